"""What is combined with what: the texts that a component may have, and which combination is tried next.

The choice is optuna's TPE (the paper's section 3.2), whose study is made anew each time of the pool's probes.
So a pool is all that a run needs to go on, and equal pools choose alike.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from combee.algo.seeds import digest_of, unit
from combee.methods.components.pool import Pool, Probe, Variant, Wording
from combee.methods.components.standing import given, members
from combee.methods.mipro.demonstrations import DEMONSTRATIONS

MOST_WORDINGS = 16
"""Texts of a component that a pool keeps on offer, besides those of the variants that are in."""
MOST_PROBES = 256
RANDOM = 5
"""Combinations that are drawn at random before the estimator chooses: as many as are tried at once."""

Combination = tuple[tuple[str, str], ...]
"""(component, digest of its text) of each component."""
Space = Mapping[str, Mapping[str, str]]
"""component -> digest -> text, the texts of variants that are in first."""


def texts_of(variant: Variant) -> dict[str, str]:
    """Return the texts of a variant; the demonstrations are empty where it has none."""
    return {DEMONSTRATIONS: "", **dict(variant.components)}


def variant_of(texts: Mapping[str, str]) -> Variant:
    """Return the variant of some texts; ``texts_of`` the other way round."""
    return Variant.of({name: text for name, text in texts.items() if text or name != DEMONSTRATIONS})


def combination_of(variant: Variant) -> Combination:
    """Return a variant as a combination."""
    return tuple(sorted((name, digest_of(text)) for name, text in texts_of(variant).items()))


def space_of(pool: Pool) -> Space:
    """Return what each component may say: what it says in a variant that is in, and what is on offer."""
    space: dict[str, dict[str, str]] = defaultdict(dict)
    for digest in members(pool):
        for name, text in texts_of(pool.by_digest[digest]).items():
            space[name].setdefault(digest_of(text), text)
    for wording in sorted(pool.wordings):
        space[wording.component].setdefault(digest_of(wording.text), wording.text)
    return dict(sorted(space.items()))


def combined(space: Space, combination: Combination) -> Variant:
    """Return the variant that a combination stands for."""
    return variant_of({name: space[name][digest] for name, digest in combination})


def stands(space: Space, combination: Combination) -> bool:
    """Return whether a combination has a text for each component, each still on offer."""
    return len(combination) == len(space) and all(
        digest in space.get(name, {}) for name, digest in combination
    )


def offered(pool: Pool, proposals: Iterable[str]) -> Pool:
    """Return the pool with what these proposals change as wordings."""
    wordings = set[Wording]()
    for digest in proposals:
        origin = pool.origin_of(digest)
        before = texts_of(pool.by_digest[origin.parents[0]])
        for name, text in texts_of(pool.by_digest[digest]).items():
            if text != before.get(name):
                wordings.add(Wording(origin.iteration, name, text))
    return replace(pool, wordings=pool.wordings | wordings)


def bounded(pool: Pool) -> Pool:
    """Return the pool with the wordings of each component that did best in the mean, untried ones like the
    start, of equals the newer; and the latest probes of what is left."""
    gains: dict[tuple[str, str], list[float]] = defaultdict(list)
    for probe in pool.probes:
        for choice in probe.combination:
            gains[choice].append(probe.gain)

    def rank(one: Wording) -> tuple[float, int, Wording]:
        tried = sorted(gains.get((one.component, digest_of(one.text)), [0.0]))
        return -sum(tried) / len(tried), -one.iteration, one

    kept, counts = set[Wording](), dict[str, int]()
    for one in sorted(pool.wordings, key=rank):
        counts[one.component] = counts.get(one.component, 0) + 1
        if counts[one.component] <= MOST_WORDINGS:
            kept.add(one)
    pool = replace(pool, wordings=frozenset(kept))
    space = space_of(pool)
    standing = sorted(probe for probe in pool.probes if stands(space, probe.combination))
    return replace(pool, probes=frozenset(standing[-MOST_PROBES:]))


def chosen(pool: Pool, count: int) -> list[Combination]:
    """Return what to try next, side by side: nothing where there is no choice. Equal pools choose alike.

    The start is a trial that gained nothing, as in the paper's code; each choice takes those beside it for
    failures, so that they differ.
    """
    space = space_of(pool)
    several = {name: texts for name, texts in space.items() if len(texts) > 1}
    if not several:
        return []
    start = Probe(-1, combination_of(given(pool)), 0.0, 0)
    known = [one for one in (start, *sorted(pool.probes)) if stands(space, one.combination)]
    seed = int(unit(pool.seed, "mipro", pool.drawn) * 2**31)
    only = {name: next(iter(texts)) for name, texts in space.items()}
    return [
        tuple(sorted({**only, **choice}.items()))
        for choice in _picked({name: list(texts) for name, texts in several.items()}, known, seed, count)
    ]


def _picked(
    choices: Mapping[str, Sequence[str]], known: Iterable[Probe], seed: int, count: int
) -> list[dict[str, str]]:
    """Return ``count`` choices of an estimator that is told the probes."""
    import optuna  # a fifth of a second, which only a step that searches has to take

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions: dict[str, Any] = {
        name: optuna.distributions.CategoricalDistribution(values) for name, values in choices.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed, multivariate=True, constant_liar=True, n_startup_trials=RANDOM
        )
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for probe in known:
            params = {name: digest for name, digest in probe.combination if name in choices}
            study.add_trial(
                optuna.trial.create_trial(params=params, distributions=distributions, value=probe.gain)
            )
        return [dict(study.ask(distributions).params) for _ in range(count)]
