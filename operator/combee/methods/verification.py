"""What evaluation a method needs before it believes an update, said as data: rounds of rollouts.

A method's ``verification`` is a generator. It yields a ``Round``, is sent one trajectory for each rollout of
it, in order, and ends with what it settled on. Whoever drives it runs the rollouts of a round side by side
and rounds one after the other; the method itself calls no model and knows nothing of who does.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from combee.records import Shown, Trajectory

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Page:
    """A text by its difference from one that many pages share: most of a thousand add just a line to it."""

    base: str
    shared: int
    """characters that both begin with."""
    rest: str
    components: tuple[tuple[str, str], ...] = ()
    """(name, text) of the text's components, where it has any."""

    @classmethod
    def of(cls, text: str, base: str, components: tuple[tuple[str, str], ...] = ()) -> Page:
        """Return ``text`` by its difference from ``base``.

        >>> Page.of("one two", "one three").text
        'one two'
        """
        low, high = 0, min(len(text), len(base))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if text[low:middle] == base[low:middle] else (low, middle - 1)
        return cls(base, low, text[low:], components)

    @property
    def text(self) -> str:
        """The whole text."""
        return self.base[: self.shared] + self.rest

    @property
    def shown(self) -> Shown:
        """What agents get of it."""
        return Shown(self.text, self.components)


@dataclass(frozen=True, slots=True)
class Rollout:
    """A rollout: an example of the batch or of select, answered with a text in the artifact's place."""

    example_id: str
    page: Page
    repeat: int = 0
    """which repeat of the same question: 0 shares an answer with the epoch's rollouts, others look anew."""
    of: Literal["train", "select"] = "train"
    """the rows that the example is one of."""


@dataclass(frozen=True, slots=True)
class Round:
    """Rollouts that may all run at once."""

    stage: str
    """what progress and the call graph call it."""
    rollouts: tuple[Rollout, ...] = ()
    sweep: tuple[Page, ...] = ()
    """texts to be scored on every example of select, the half of heldOut that chooses. Their trajectories
    follow those of ``verification``, text after text, each in the order of the examples."""
    least_temperature: float = 0.0
    """of rollouts that look anew: at 0 a model answers a repeated question with the same words, whatever its
    seed."""


Known = tuple[float, float | None]
"""(score, partial credit) of an example, as a trajectory has them."""


@dataclass(frozen=True, slots=True)
class Verified(Generic[A]):
    """What a verification settled: the artifact that follows, and the counts that reports show."""

    artifact: A
    candidates: int = 0
    """what could be tried."""
    decided: int = 0
    """of these, what was decided; a rollout that was lost decides nothing."""
    passed: int = 0
    """of these, what was found good."""
    known: Mapping[str, Known] = field(default_factory=dict)
    """by example of select, what the rendered text is known to score: it is not asked again."""


Verifying = Generator[Round, Sequence[Trajectory], Verified[A]]
