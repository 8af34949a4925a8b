"""Judging an answer: the truth, flipped now and then, and kinder in the lenient."""

from __future__ import annotations

from combee.sim import draws
from combee.sim.params import Law


def verdict(right: bool, lenient: bool, law: Law, *key: str | int) -> bool:
    """Whether the judge says 'right'. A lenient one takes more wrong answers for right."""
    flip = law.judge_flip + (law.judge_leniency if lenient and not right else 0.0)
    return right != (draws.unit(*key) < flip)
