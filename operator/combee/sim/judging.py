"""Judges an answer: the truth, flipped with some probability, and leniently for a lenient judge."""

from __future__ import annotations

from combee.sim import draws
from combee.sim.params import Law


def verdict(right: bool, lenient: bool, law: Law, *key: str | int) -> bool:
    """Return whether the judge says 'right'. A lenient judge accepts more wrong answers."""
    flip = law.judge_flip + (law.judge_leniency if lenient and not right else 0.0)
    return right != (draws.unit(*key) < flip)
