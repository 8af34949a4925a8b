"""The controller's batch size against the best one in hindsight, on made-up delays whose law is known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from bench.harness import Row
from combee.algo.batch import choose_batch, rule_size, saving_batch_size
from combee.algo.delay import Observation
from combee.algo.laws import POWER, T_ITER, Law, fit_laws

SIZES = (5, 10, 25, 50, 100)
EACH, NOISE, RUNS, SHARE, TARGET = 9, 0.2, 60, 0.45, 15.0
LAWS = {
    **{f"c0 + c1 b, b_half {b}": Law(T_ITER, b, 1.0, 1.0, 0) for b in (2, 5, 10, 20, 40, 80, 150)},
    **{f"power law, exponent {a}": Law(POWER, 7.0, a, 0.0, 0) for a in (0.3, 0.5, 0.7, 0.93, 1.0)},
}
"""With a floor (a fixed cost of an iteration) and without one."""


def controller(folder: Path) -> Row:
    """The worst law's median error of the size that was chosen."""
    errors = {name: median_error(law) for name, law in LAWS.items()}
    worst = max(errors, key=lambda name: errors[name])
    return Row(
        name="controller's batch size against the best in hindsight",
        figure=round(errors[worst], 1),
        target=f"median within {TARGET:g}",
        unit="%",
        met=errors[worst] <= TARGET,
        how=f"{len(LAWS)} delay laws with and without a floor, {EACH} observations at each of {len(SIZES)} sizes, "
        f"{NOISE:.0%} noise, {RUNS} seeded runs a law, rule Saving; the worst law's median",
        detail={"medianErrorPercent": {name: round(error, 1) for name, error in errors.items()}},
    )


def median_error(law: Law) -> float:
    """Percent between the size chosen from noisy observations and the one the law itself asks for."""
    best = min(max(saving_batch_size(law, SHARE), SIZES[0]), SIZES[-1])
    sizes = (_chosen(law, seed) for seed in range(RUNS))
    return 100 * float(np.median([abs(size - best) / best for size in sizes]))


def _chosen(law: Law, seed: int) -> int:
    draws = np.random.default_rng(seed)
    seen = [
        Observation(b, law.predict(b) * math.exp(NOISE * draws.standard_normal()))
        for b in SIZES
        for _ in range(EACH)
    ]
    laws = fit_laws(seen)
    if laws is None:
        raise RuntimeError(f"{len(seen)} observations were not enough for a fit")
    law = laws.typical(lambda one: rule_size(one, "Saving", SHARE, SIZES))
    return choose_batch(fit=law, rule="Saving", share=SHARE, sizes=SIZES, fallback=25).size
