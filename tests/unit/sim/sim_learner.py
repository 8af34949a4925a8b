"""A learner over the text interface, for tests: sends public prompt forms, imports nothing of combee.

``ask`` is any function from (prompt text, seed) to reply text. Strategies: ``naive`` (one curator call per
batch) and ``tree`` (shuffle with p copies into k leaves, one call each, one call on their entries: the
paper's)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sim_public_forms as forms

Ask = Callable[[str, int], str]
Row = dict[str, str]


@dataclass(frozen=True)
class Learnt:
    """One epoch: the playbook's contents, updates applied, aggregator calls."""

    contents: list[str]
    updates: int
    calls: int


def answer(ask: Ask, row: Row, playbook: str, seed: int) -> dict[str, object]:
    return json.loads(
        ask(forms.GENERATOR.format(playbook=playbook, question=forms.question_of(row["context"])), seed)
    )


def reflection(ask: Ask, row: Row, playbook: str, seed: int) -> str:
    said = answer(ask, row, playbook, seed)
    right = said["final_answer"] == row["target"]
    return ask(
        forms.REFLECTOR.format(
            question=forms.question_of(row["context"]),
            trace=json.dumps(said),
            predicted=said["final_answer"],
            target=row["target"],
            feedback="Predicted answer matches ground truth"
            if right
            else "Predicted answer does not match ground truth",
            bullets="(No bullets used by generator)",
        ),
        seed,
    )


def curate(ask: Ask, texts: Sequence[str], contents: list[str], seed: int) -> list[str]:
    prompt = forms.CURATOR.format(
        step=1,
        total=250,
        bullets=len(contents),
        reflection="\n\n".join(texts),
        playbook=forms.playbook(contents),
    )
    return [operation["content"] for operation in json.loads(ask(prompt, seed))["operations"]]


def dealt(count: int, copies: int, leaves: int, rng: random.Random) -> list[list[int]]:
    """Each of ``count`` to min(copies, leaves) different leaves, the least loaded first."""
    groups: list[list[int]] = [[] for _ in range(leaves)]
    for index in rng.sample(range(count), count):
        ranked = sorted(groups, key=lambda group: len(group) + rng.random() * 0.5)
        for group in ranked[: min(copies, leaves)]:
            group.append(index)
    return groups


def tree(
    ask: Ask, texts: list[str], contents: list[str], leaves: int, rng: random.Random, copies: int = 2
) -> list[str]:
    groups = dealt(len(texts), copies, leaves, rng)
    entries: list[str] = []
    for leaf, group in enumerate(groups, 1):
        entries += curate(ask, [f"[r-{i:05d}] {texts[i]}" for i in group], contents, leaf)
    return (
        curate(ask, [f"[u-{i}] {text}" for i, text in enumerate(entries, 1)], contents, 0) if entries else []
    )


def epoch(
    ask: Ask, rows: list[Row], size: int, seed: int, leaves: Callable[[int], int] | None = None
) -> Learnt:
    """One pass over the rows in batches; ``leaves`` of a batch's size: the tree, else naive."""
    rng = random.Random(seed)
    contents: list[str] = []
    updates = calls = 0
    for start in range(0, len(rows), size):
        playbook = forms.playbook(contents)
        texts = [reflection(ask, row, playbook, 0) for row in rows[start : start + size]]
        if leaves is None:
            new = curate(ask, texts, contents, 0)
            calls += 1
        else:
            count = leaves(len(texts))
            new = tree(ask, texts, contents, count, rng)
            calls += count + 1
        contents = contents + new
        updates += len(new)
    return Learnt(contents, updates, calls)


def accuracy(ask: Ask, rows: list[Row], contents: list[str], seed: int = 1_000) -> float:
    """Share of rows answered right with the playbook; other repeats than those learnt from."""
    playbook = forms.playbook(contents)
    return sum(answer(ask, row, playbook, seed)["final_answer"] == row["target"] for row in rows) / len(rows)
