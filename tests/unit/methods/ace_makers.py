"""Short ways to make the values that the ACE tests speak of."""

from __future__ import annotations

from combee.methods.ace import AceMethod, Ledger
from combee.methods.ace.entries import entry_digest
from combee.methods.protocol import Op, Rendered, Update, Verify
from combee.records import Lesson, Reflection, Trajectory

ACE = AceMethod()


def add(text: str, *sources: str, section: str = "strategies") -> Update:
    return Update("ADD", section, text, frozenset(sources or ("1@1",)))


def change(op: Op, base: tuple[str, ...], text: str, *sources: str) -> Update:
    """``base`` are texts."""
    return Update(op, "strategies", text, frozenset(sources), tuple(entry_digest(b) for b in base))


def learn(*updates: Update, start: Ledger | None = None, reflections: tuple[Reflection, ...] = ()) -> Ledger:
    return ACE.apply(start or ACE.empty(), list(updates), list(reflections), iteration=1)


def carried(reflection: Reflection, updates: list[Update]) -> tuple[str, ...]:
    """Ids of its lessons that are carried, in its order."""
    known = ACE.carried_all([reflection], updates)
    return tuple(lesson.id for lesson in reflection.lessons if lesson.id in known)


def playbook(ledger: Ledger, verify: Verify = "Replay", budget: int = 8000) -> Rendered:
    return ACE.render(ledger, budget_tokens=budget, verify=verify)


def why_left_out(ledger: Ledger, text: str, verify: Verify = "Replay") -> str:
    """The reason that ``text`` is not rendered; empty when it is, "unknown" when it is nowhere."""
    rendered, digest = playbook(ledger, verify), entry_digest(text)
    if digest in rendered.included:
        return ""
    return next((left.reason for left in rendered.left_out if left.digest == digest), "unknown")


def reflection(
    number: int,
    *lessons: str,
    source: str = "",
    tags: tuple[tuple[str, str], ...] = (),
    correct: bool = False,
) -> Reflection:
    name = f"r-{number:05d}"
    found = tuple(Lesson(f"{name}.{k}", text) for k, text in enumerate(lessons, start=1))
    return Reflection(
        name, source or f"{number}@1", correct, "It went astray at the first step.", found, tags
    )


def trajectory(source: str, *, correct: bool = False, error: str = "") -> Trajectory:
    example = source.partition("@")[0]
    return Trajectory(
        source, example, f"Question {example}?", "work", "41", float(correct), correct, "It is 42.", (), error
    )
