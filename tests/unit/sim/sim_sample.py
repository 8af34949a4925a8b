"""Prints the replies to a few dozen requests, for comparison with another process: order is argument 1."""

from __future__ import annotations

import random
import sys

from sim_fixtures import body, model
from test_sim_forms import conversations


def replies(order: int) -> list[str]:
    served = model(3)
    asked = list(enumerate(conversations()))
    random.Random(order).shuffle(asked)
    said = {place: served.respond(body(text, 1, schema)).text for place, (text, schema) in asked}
    return [said[place] for place in sorted(said)]


if __name__ == "__main__":
    sys.stdout.write("\n".join(replies(int(sys.argv[1]))))
