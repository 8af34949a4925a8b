"""Combee in the reflection: what each call of a proposal is given. Every component is reduced by itself.

    records of a component -> shuffled into leaves -> a map call a leaf -> group-by -> ONE reduce call -> children

The leaves are dealt as for any method (``algo.tree``). This module says what is reduced by itself, and how much the
last call is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from combee.algo.tokens import estimate_tokens
from combee.methods.gepa.prompts import narrowed
from combee.methods.protocol import Part, Rendered
from combee.records import Reflection

COMPONENT = "component"
"""The key of ``Rendered.ids`` that names which component a text is."""
LAST_CALL = 8
"""Most lessons that a last call works into a component. All wait for it, and it writes as long as it is given
much; the other lessons stand word for word below its text, in the child that has them all."""


@dataclass(frozen=True, slots=True)
class Caps:
    """What no call may exceed: inputs, and tokens."""

    max_fan_in: int = 32
    max_input_tokens: int = 24_000


def parts(playbook: Rendered, reflections: Sequence[Reflection]) -> list[Part]:
    """The components that there is a record for, in the order of names, each with its own records alone; those
    without one are skipped."""
    found = []
    for name, text in playbook.components:
        inside = tuple(own for one in reflections if (own := narrowed(one, name)).lessons)
        if inside:
            ids = {**playbook.ids, COMPONENT: name}
            found.append(Part(Rendered(text, estimate_tokens(text), playbook.included, (), ids), inside))
    return found


def carried_by_reduce(tokens: Sequence[int], *, caps: Caps, overhead_tokens: int) -> int:
    """How many lessons, best first, the last call of a component is given: as many as both caps allow, and one at
    least. The others still reach the child that has all lessons below its text.

    >>> carried_by_reduce([50] * 100, caps=Caps(max_fan_in=32), overhead_tokens=500)
    32
    """
    room, taken = caps.max_input_tokens - overhead_tokens, 0
    for size in tokens[: caps.max_fan_in]:
        room -= size
        if room < 0:
            break
        taken += 1
    return max(1, taken) if tokens else 0
