"""A gate's verdict: one of four outcomes, a stable reason, and a sentence with the numbers.

Passed: the claim is shown. Failed: the contrary is shown. Inconclusive: neither is, and the sentence says
what is missing. Error: it cannot be judged as things are, and the sentence says what to do. Only Passed
promotes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["Passed", "Failed", "Inconclusive", "Error"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A gate's verdict on a candidate. Scores are in [0, 1], gains in [-1, 1]; None means unknown."""

    outcome: Outcome
    reason: str
    message: str
    score: float | None = None
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    samples: int = 0
    needed: int | None = None
    """estimate of the examples or pairs still needed to decide."""
    final: bool = True
    """False while the gate waits for more data."""
    shrunk_gain: float | None = None
    """the gain as it probably is, of a candidate that passed (``shrinkage``)."""


@dataclass(frozen=True, slots=True)
class Words:
    """How a comparison's numbers are put into words: what is counted, and the unit of differences."""

    one: str = "pair"
    many: str = "pairs"
    scale: float = 1.0
    """the value in ``unit`` of a difference of 1."""
    unit: str = ""

    def amount(self, share: float) -> str:
        """Return a difference in its unit, given as a share of the scale.

        >>> Words().amount(-0.005), Words(scale=100, unit="percent").amount(-0.005)
        ('-0.005', '-0.500 percent')
        """
        return number(round(share * self.scale, 9)) + (f" {self.unit}" if self.unit else "")


PAIRS = Words()


def spoken(gain: float, low: float, high: float, samples: int, against: str, words: Words = PAIRS) -> str:
    """Return the numbers of a comparison as text.

    >>> spoken(0.221, 0.18, 0.26, 300, "active")
    '+0.221 [0.180, 0.260] vs active, n=300'
    >>> spoken(-0.013, -0.02, -0.006, 120, "active", Words("window", "windows", 100, "percent"))
    '-1.300 [-2.000, -0.600] percent vs active, n=120 windows'
    """
    gain, low, high = (end * words.scale for end in (gain, low, high))
    unit, noun = (f" {words.unit}", f" {words.many}") if words.unit else ("", "")
    return f"{gain:+.3f} [{low:.3f}, {high:.3f}]{unit} vs {against}, n={samples:,}{noun}"


def number(value: float) -> str:
    """Return a threshold as briefly as possible, with at least three decimals: 0.85 -> 0.850, 0.0005 ->
    0.0005.

    >>> number(0.85), number(-0.005), number(0.00025)
    ('0.850', '-0.005', '0.00025')
    """
    short = f"{value:.3f}"
    return short if float(short) == value else f"{value:g}"
