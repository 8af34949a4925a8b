"""Short ways to make the values that the GEPA tests speak of."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from combee.methods.components.pool import (
    Acceptance,
    Edited,
    Gradient,
    Lost,
    Merged,
    Observed,
    Origin,
    Pool,
    Probe,
    Scored,
    Variant,
    Wording,
)
from combee.methods.gepa import GepaMethod, Terms
from combee.methods.protocol import Refusal, Update
from combee.methods.verification import Round, Verified
from combee.records import Trajectory

GEPA = GepaMethod(Terms(seed=7))


def lesson(text: str, *sources: str, component: str = "instructions") -> Update:
    backing = frozenset(sources or ("1@0",))
    return Update("ADD", component, text, backing, cited=backing)


def rewrite(text: str, component: str = "instructions") -> Update:
    return Update("UPDATE", component, text, frozenset({"1@0"}))


def answer(example: str, score: float, *, error: str = "", partial: float | None = None) -> Trajectory:
    return Trajectory(
        f"{example}@0", example, "asked", "worked", "41", score, score > 0, "It is 42.", (), error, partial
    )


def variant(**components: str) -> Variant:
    return Variant.of(components or {"instructions": ""})


def scored(of: Mapping[Variant, Mapping[str, float]], *, objective: str = "") -> frozenset[Scored]:
    return frozenset(
        Scored(one.digest, example, objective, value)
        for one, found in of.items()
        for example, value in found.items()
    )


def pool_of(*variants: Variant, start: int = 1) -> Pool:
    """A pool whose first ``start`` variants were given, the others accepted, each a child of the first."""
    first = variants[0].digest
    return Pool(
        seed=7,
        variants=frozenset(variants),
        origins=frozenset(
            Origin(one.digest, "start", (), -1)
            if place < start
            else Origin(one.digest, "rewrite", (first,), place)
            for place, one in enumerate(variants)
        ),
        judged=frozenset(Acceptance(one.digest, True, 1.0, 4) for one in variants[start:]),
    )


Answering = Callable[[str, str], Trajectory]
"""(text, example) -> what came of it."""


def settled(
    pool: Pool, before: Mapping[str, Trajectory], answering: Answering, select: list[str]
) -> Verified:
    """Drive the verification of a pool; ``answering`` stands for the models."""
    trying = GEPA.verification(
        pool, trajectories={one.id: one for one in before.values()}, budget_tokens=8000, verify="Off"
    )
    try:
        asked: Round = next(trying)
        while True:
            answers = [answering(rollout.page.text, rollout.example_id) for rollout in asked.rollouts]
            answers += [answering(page.text, example) for page in asked.sweep for example in select]
            asked = trying.send(answers)
    except StopIteration as done:
        return done.value


def any_pool(seed: int) -> Pool:
    """Some pool, however odd its facts; of few values, so that two have some in common."""
    luck = random.Random(seed)
    digest = [f"{k:064x}" for k in range(4)]

    def some(make: Callable[[], object], most: int) -> frozenset:
        return frozenset(make() for _ in range(luck.randint(0, most)))

    def one() -> str:
        return luck.choice(digest)

    kinds = ("start", "rewrite", "lessons", "merge")
    values = (0.0, 0.25, 1.0)
    texts = ("", "Ask.", 'Say "é"\n', "\u2028[x]")
    return Pool(
        seed=luck.randint(0, 3),
        drawn=luck.randint(0, 5),
        variants=some(
            lambda: Variant.of(
                {name: luck.choice(texts) for name in luck.choice((["ask"], ["ask", "check"]))}
            ),
            4,
        ),
        origins=some(
            lambda: Origin(
                one(),
                luck.choice(kinds),
                tuple(one() for _ in range(luck.randint(0, 2))),
                luck.randint(-1, 3),
            ),
            4,
        ),
        scores=some(
            lambda: Scored(one(), luck.choice("abc"), luck.choice(("", "partial")), luck.choice(values)), 6
        ),
        judged=some(
            lambda: Acceptance(one(), luck.random() < 0.5, luck.choice(values), luck.randint(0, 9)), 3
        ),
        merged=some(lambda: Merged(one(), one(), one()), 2),
        lost=some(lambda: Lost(luck.randint(0, 3), one(), "ask", luck.choice(texts), "why"), 2),
        edits=some(lambda: Edited(one(), luck.choice(("insert", "delete"))), 2),
        gradients=some(lambda: Gradient(luck.randint(0, 3), "ask", 0, luck.choice(texts), one()), 2),
        observed=some(lambda: Observed(luck.randint(0, 3), "ask", luck.choice(texts), "1@0"), 2),
        wordings=some(lambda: Wording(luck.randint(0, 3), "ask", luck.choice(texts)), 2),
        probes=some(
            lambda: Probe(luck.randint(0, 3), (("ask", one()),), luck.choice(values), luck.randint(1, 9)), 2
        ),
        refusals=some(
            lambda: Refusal(one(), one(), luck.choice(("leak", "injection")), luck.choice(texts)), 2
        ),
    )


pools = st.integers(0, 10_000).map(any_pool)
