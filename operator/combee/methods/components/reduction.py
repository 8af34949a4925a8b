"""Combee in the reflection: what each call of a proposal is given. Every component is reduced by itself.

    records of a component -> shuffled into leaves -> a map call a leaf -> group-by
    -> ONE reduce call -> children

The leaves are dealt as for any method (``algo.tree``). This module says what is reduced by itself, and how
much the last call is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from combee.algo.tokens import estimate_tokens
from combee.methods.components.prompts import narrowed
from combee.methods.protocol import Part, Rendered
from combee.records import Reflection

EARLIER_TOKENS = 2_000
"""Most tokens of what earlier iterations learned of a component, where a call is told that again."""
COMPONENT = "component"
"""The key of ``Rendered.ids`` that names which component a text is."""


def parts(playbook: Rendered, reflections: Sequence[Reflection]) -> list[Part]:
    """Return the components that there is a record for, in the order of names, each with its own records."""
    components = []
    for name, text in playbook.components:
        inside = tuple(own for one in reflections if (own := narrowed(one, name)).lessons)
        if inside:
            ids = {**playbook.ids, COMPONENT: name}
            tried = tuple(one for one in playbook.tried if one[0] == name)
            rendered = Rendered(text, estimate_tokens(text), playbook.included, (), ids, tried=tried)
            components.append(Part(rendered, inside, name))
    return components


def carried_by_reduce(tokens: Sequence[int], *, cap: int, room_tokens: int) -> int:
    """Return how many lessons, best first, the last call of a component is given: as many as both caps allow,
    and at least one. The others still reach the child that has all lessons below its text.

    >>> carried_by_reduce([50] * 100, cap=32, room_tokens=23_500)
    32
    """
    fitting = sum(total <= room_tokens for total in accumulate(tokens[:cap]))
    return max(1, fitting) if tokens else 0


def earlier_room(call_tokens: int, taken_tokens: int) -> int:
    """Return what a call of at most ``call_tokens`` may be told of earlier iterations: half of what is left
    for lessons.

    >>> earlier_room(24_000, 9_000), earlier_room(10_000, 9_000), earlier_room(8_000, 9_000)
    (2000, 500, 0)
    """
    return min(EARLIER_TOKENS, max(0, call_tokens - taken_tokens) // 2)
