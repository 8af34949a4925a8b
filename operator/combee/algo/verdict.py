"""What a gate says: one of four outcomes, a stable reason, and a sentence with the numbers.

Passed: shown. Failed: the contrary is shown. Inconclusive: neither, and the sentence says what is missing.
Error: it cannot be judged as things are, and the sentence says what to do. Only Passed promotes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["Passed", "Failed", "Inconclusive", "Error"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A gate's word on a candidate. Scores are in [0, 1], gains in [-1, 1]; None: not known."""

    outcome: Outcome
    reason: str
    message: str
    score: float | None = None
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    samples: int = 0
    needed: int | None = None
    """examples or pairs still needed to tell, as far as can be told."""
    final: bool = True
    """False while more may come: the gate waits."""


@dataclass(frozen=True, slots=True)
class Words:
    """How the numbers of a comparison are said: what is counted, and in which unit differences are."""

    one: str = "pair"
    many: str = "pairs"
    scale: float = 1.0
    """a difference of 1 in ``unit``."""
    unit: str = ""

    def amount(self, share: float) -> str:
        """A difference, as a share of the scale, in its unit.

        >>> Words().amount(-0.005), Words(scale=100, unit="percent").amount(-0.005)
        ('-0.005', '-0.500 percent')
        """
        return number(round(share * self.scale, 9)) + (f" {self.unit}" if self.unit else "")


PAIRS = Words()


def spoken(gain: float, low: float, high: float, samples: int, against: str, words: Words = PAIRS) -> str:
    """The numbers of a comparison.

    >>> spoken(0.221, 0.18, 0.26, 300, "active")
    '+0.221 [0.180, 0.260] vs active, n=300'
    >>> spoken(-0.013, -0.02, -0.006, 120, "active", Words("window", "windows", 100, "percent"))
    '-1.300 [-2.000, -0.600] percent vs active, n=120 windows'
    """
    gain, low, high = (end * words.scale for end in (gain, low, high))
    unit, counted = (f" {words.unit}", f" {words.many}") if words.unit else ("", "")
    return f"{gain:+.3f} [{low:.3f}, {high:.3f}]{unit} vs {against}, n={samples:,}{counted}"


def number(value: float) -> str:
    """A threshold as short as it can be written, with three digits at least: 0.85 -> 0.850, 0.0005 -> 0.0005.

    >>> number(0.85), number(-0.005), number(0.00025)
    ('0.850', '-0.005', '0.00025')
    """
    short = f"{value:.3f}"
    return short if float(short) == value else f"{value:g}"
