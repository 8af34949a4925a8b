"""The lists in tests/content: what the content gate must refuse, and what it must let through."""

from __future__ import annotations

import random
import re
import string
from pathlib import Path

FOLDER = Path(__file__).parent / "content"
_ALPHABETS = {
    "a": string.ascii_lowercase + string.digits,
    "A": string.ascii_letters + string.digits,
    "B": string.ascii_letters + string.digits + "+/",
    "h": "0123456789abcdef",
    "U": string.ascii_uppercase + string.digits,
    "n": string.digits,
}


def entries(name: str) -> list[str]:
    """Return the entries of a list, with what its places stand for drawn; the first half is the one in sight
    when the patterns were made, the second was held out."""
    lines = (FOLDER / f"{name}.txt").read_text().splitlines()
    drawn = [_drawn(line, number) for number, line in enumerate(lines)]
    return drawn[::2] + drawn[1::2]


def _drawn(line: str, seed: int) -> str:
    rng = random.Random(f"content {seed}")
    line = re.sub(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})", lambda m: chr(int(m[1] or m[2], 16)), line)
    return re.sub(r"<([aABhUn])(\d+)>", lambda m: "".join(rng.choices(_ALPHABETS[m[1]], k=int(m[2]))), line)
