"""Demonstrations: attempts on train rows that came out right, as sets that a prompt may quote (section 3.1).

They are a component of the prompt that no model writes, and quote the data on purpose: a manifest asks for
them. Everything else that may not be published is looked for in them as in any text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from combee.algo.seeds import permutation, rng
from combee.algo.tokens import estimate_tokens
from combee.methods.components.prompts import MAX_GIVEN_CHARS, MAX_QUOTED_CHARS, told_once
from combee.methods.replies import quote_line
from combee.records import Reflection, Trajectory

DEMONSTRATIONS = "demonstrations"
"""The component that holds a set."""
HEADING = "Questions that were answered right:"
MAX_TOKENS = 600
"""Most tokens of one demonstration; a longer attempt is none."""


def demonstration_of(trajectory: Trajectory) -> str:
    """Return an attempt as a demonstration; empty where it came out wrong, or where the task makes records of
    its own, whose components have questions and answers of their own."""
    if not trajectory.correct or trajectory.error or trajectory.records is not None or not trajectory.answer:
        return ""
    if len(trajectory.input) > MAX_GIVEN_CHARS:
        return ""
    question = quote_line(trajectory.input, MAX_GIVEN_CHARS)
    return f"Given: {question} | Answer: {quote_line(trajectory.answer, MAX_QUOTED_CHARS)}"


def sets_of(
    reflections: Iterable[Reflection], *, most: int, sets: int, budget_tokens: int, seed: int
) -> list[str]:
    """Return at most ``sets`` different sets of ``most`` demonstrations, drawn by ``seed``, as far as they
    fit into ``budget_tokens``. What all questions begin with alike is left out of them."""
    ids = {one.id: f"{one.id}.{DEMONSTRATIONS}" for one in reflections}
    texts = sorted(
        {lesson.text for one in reflections for lesson in one.lessons if lesson.id == ids[one.id]}
        if most
        else set()
    )
    _, short = told_once(texts)
    known = [text for text in short if estimate_tokens(text) <= MAX_TOKENS]
    drawn = (
        [known[place] for place in permutation(len(known), rng(seed, DEMONSTRATIONS, number))[:most]]
        for number in range(sets)
    )
    return list(dict.fromkeys(filter(None, (_block(one, budget_tokens) for one in drawn))))


def _block(lines: Sequence[str], budget_tokens: int) -> str:
    """Return a set as a prompt holds it: its first lines that fit; empty for none."""
    block = HEADING
    for line in lines:
        longer = f"{block}\n- {line}"
        if estimate_tokens(longer) > budget_tokens:
            break
        block = longer
    return block if block != HEADING else ""
