"""The delay fit recovers what made the data, never crashes, and the batch size says why."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.algo.batch import SIZES_CAP, Cap, choose_batch, saving_batch_size
from combee.algo.delay import HUBER, Fit, Observation, fit_iteration_time
from combee.algo.laws import fit_laws
from combee.errors import BugError

costs = st.floats(1e-3, 1e4)
sizes = st.lists(st.integers(1, 1000), min_size=2, max_size=12, unique=True)


@given(costs, costs, sizes)
def test_exact_data_gives_its_coefficients(c0: float, c1: float, batch_sizes: list[int]) -> None:
    fit = fit_iteration_time(Observation(b, c0 + c1 * b) for b in batch_sizes)
    assert fit is not None
    scale = c0 + c1 * max(batch_sizes)
    for b in batch_sizes:
        assert fit.predict(b) == pytest.approx(c0 + c1 * b, rel=1e-6, abs=1e-9 * scale)
    assert fit.rmse <= 1e-6 * scale
    assert fit.n == len(batch_sizes)


@given(costs, sizes)
def test_time_that_does_not_grow_has_no_finite_half(c0: float, batch_sizes: list[int]) -> None:
    fit = fit_iteration_time([Observation(b, c0) for b in batch_sizes])
    assert fit is not None
    assert fit.b_half > 1e6


def test_edges_of_the_constraint() -> None:
    falling = fit_iteration_time([Observation(1, 10), Observation(10, 5), Observation(100, 1)])
    assert falling is not None and falling.c1 == 0 and falling.b_half == math.inf
    steep = fit_iteration_time([Observation(10, 1), Observation(20, 100)])
    assert steep is not None and steep.c0 == 0 and steep.b_half == 0


anything = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=300)
@given(st.lists(st.builds(Observation, anything, anything), max_size=12), st.integers(-3, 50))
def test_garbage_never_crashes(obs: list[Observation], fallback: int) -> None:
    fit = fit_iteration_time(obs)
    if fit is not None:
        assert fit.c0 >= 0 and fit.c1 >= 0 and fit.c0 + fit.c1 > 0
        assert math.isfinite(fit.rmse) and fit.n >= 2
    choice = choose_batch(fit=fit, sizes=[5, 100], fallback=fallback)
    assert 5 <= choice.size <= 100
    assert choice.reason.endswith(".")


@pytest.mark.parametrize(
    "obs",
    [
        [],
        [(5, 1)],
        [(5, 1), (5, 2)],
        [(5, 1), (10, math.nan)],
        [(5, 1), (10, math.inf)],
        [(5, 1), (10, 0)],
        [(5, 1), (10, -3)],
        [(5, 1), (0, 3)],
        [(5, 1), (math.nan, 3)],
    ],
)
def test_too_little_to_fit(obs: list[tuple[float, float]]) -> None:
    assert fit_iteration_time([Observation(b, t) for b, t in obs]) is None


def test_order_of_observations_does_not_matter() -> None:
    obs = [Observation(b, 10 + b * f) for b, f in [(5, 1.1), (10, 0.9), (50, 1.2), (100, 0.8)]]
    assert fit_iteration_time(obs) == fit_iteration_time(reversed(obs))


@pytest.mark.parametrize("b_half", [5, 10, 20, 40, 80])
def test_median_choice_is_within_fifteen_percent_at_twenty_percent_noise(b_half: float) -> None:
    """DESIGN section 10: 9 observations a size, 20 % noise."""
    errors = []
    for seed in range(60):
        draws = np.random.default_rng(seed)
        measured = [
            Observation(b, (b_half + b) * math.exp(0.2 * draws.standard_normal()))
            for b in (5, 10, 25, 50, 100)
            for _ in range(9)
        ]
        best = min(max(saving_batch_size(Fit(b_half, 1.0, 0, 2), 0.45), 5), 100)
        size = choose_batch(fit=fit_iteration_time(measured), sizes=[5, 100], fallback=10).size
        errors.append(abs(size - best) / best)
    print(f"b_half {b_half}: median error {np.median(errors):.3f}")
    assert np.median(errors) <= 0.15


@given(st.floats(1e-6, 1e4), st.floats(1e-6, 1e3), st.floats(0.01, 1))
def test_saving_rule_is_where_the_share_is_left(c0: float, c1: float, share: float) -> None:
    fit = Fit(c0, c1, 0, 2)
    b = saving_batch_size(fit, share)
    if b > 0:
        assert (c0 / b) / (c0 / b + c1) == pytest.approx(share, rel=1e-6, abs=1e-9)


def test_share_outside_its_range_is_our_bug() -> None:
    for share in (0.0, -1.0, 1.5, math.nan):
        with pytest.raises(BugError):
            saving_batch_size(Fit(1, 1, 0, 2), share)
    assert saving_batch_size(Fit(1, 0, 0, 2), 1.0) == 0.0


FIT = Fit(c0=36.0, c1=1.0, rmse=0.1, n=9)
COST = (
    "An iteration costs 36 s plus 1 s an example (9 observations), "
    "so growing past 44 saves less than 45 % of the time"
)


@pytest.mark.parametrize(
    ("arguments", "size", "capped_by", "reason"),
    [
        pytest.param({"fit": FIT}, 44, None, COST + ".", id="rule"),
        pytest.param(
            {"fit": None},
            10,
            None,
            "No fit of iteration time yet (it needs two batch sizes), so the stated start of 10.",
            id="fallback",
        ),
        pytest.param(
            {"fit": FIT, "sizes": [5, 25]},
            25,
            SIZES_CAP,
            COST + "; capped at 25, the largest of batching.sizes.",
            id="largest",
        ),
        pytest.param(
            {"fit": FIT, "sizes": [60, 100]},
            60,
            None,
            COST + "; raised to 60, the smallest allowed.",
            id="smallest",
        ),
        pytest.param(
            {"fit": FIT, "lower": 50}, 50, None, COST + "; raised to 50, the smallest allowed.", id="lower"
        ),
        pytest.param(
            {"fit": FIT, "upper_caps": [Cap("budget", 30.7), Cap("rows left", 33)]},
            30,
            "budget",
            COST + "; capped at 30 by budget.",
            id="tightest-cap",
        ),
        pytest.param(
            {"fit": FIT, "upper_caps": [Cap("rows left", 500)]}, 44, None, COST + ".", id="cap-does-not-bind"
        ),
        pytest.param({"fit": FIT, "upper_caps": [Cap("x", math.nan)]}, 44, None, COST + ".", id="cap-nan"),
        pytest.param(
            {"fit": FIT, "lower": 50, "upper_caps": [Cap("rows left", 3)]},
            3,
            "rows left",
            COST + "; raised to 50, the smallest allowed; capped at 3 by rows left.",
            id="caps-win",
        ),
        pytest.param(
            {"fit": FIT, "upper_caps": [Cap("budget", -4)]},
            1,
            "budget",
            COST + "; capped at 1 by budget.",
            id="at-least-one",
        ),
        pytest.param(
            {"fit": Fit(36.0, 0.0, 0, 3)},
            100,
            SIZES_CAP,
            "An iteration costs 36 s plus 0 s an example (3 observations), so its time does not grow with "
            "the batch and larger "
            "is always cheaper; capped at 100, the largest of batching.sizes.",
            id="flat",
        ),
        pytest.param(
            {"fit": Fit(0.0, 2.0, 0, 3)},
            5,
            None,
            "An iteration costs 0 s plus 2 s an example (3 observations), so a larger batch saves nothing "
            "worth having; "
            "raised to 5, the smallest allowed.",
            id="no-floor",
        ),
        pytest.param({"fit": Fit(math.nan, 2.0, 0, 3)}, 10, None, None, id="fit-nan"),
        pytest.param({"fit": Fit(36.0, 0.0, 0, 3), "sizes": []}, 10, None, None, id="nothing-bounds"),
    ],
)
def test_choice(arguments, size, capped_by, reason) -> None:  # type: ignore[no-untyped-def]
    choice = choose_batch(**{"sizes": [5, 10, 25, 50, 100], "fallback": 10, **arguments})
    assert (choice.size, choice.capped_by) == (size, capped_by)
    if reason is not None:
        assert choice.reason == reason


@given(
    st.one_of(
        st.none(),
        st.builds(Fit, st.floats(0, 1e9), st.floats(0, 1e9), st.just(0.0), st.just(3)),
    ),
    st.floats(0.01, 1),
    st.lists(st.integers(-5, 500), max_size=5),
    st.integers(-5, 500),
    st.integers(-5, 50),
    st.lists(st.builds(Cap, st.just("c"), anything), max_size=3),
)
def test_choice_keeps_its_bounds(fit, share, batch_sizes, fallback, lower, caps) -> None:  # type: ignore[no-untyped-def]
    choice = choose_batch(
        fit=fit, share=share, sizes=batch_sizes, fallback=fallback, lower=lower, upper_caps=caps
    )
    assert isinstance(choice.size, int) and choice.size >= 1
    tightest = min((cap.value for cap in caps if not math.isnan(cap.value)), default=math.inf)
    assert choice.size <= max(1, tightest)
    usable = [s for s in batch_sizes if s >= 1]
    if usable and tightest == math.inf:
        assert max(min(usable), lower) <= choice.size <= max(max(usable), lower)


def _huber_loss(log_errors: Any) -> float:
    size = np.abs(log_errors)
    return float(np.where(size <= HUBER, size**2 / 2, HUBER * (size - HUBER / 2)).sum())


@pytest.mark.parametrize("seed", range(8))
def test_fits_are_as_good_as_those_of_scipy(seed: int) -> None:
    from scipy.optimize import least_squares  # it takes half a second to import

    draws = np.random.default_rng(seed)
    batches = np.repeat([5.0, 10.0, 25.0, 50.0, 100.0], 6)
    stragglers = np.where(draws.random(30) < 0.05, 4.0, 1.0)
    noise = np.exp(draws.normal(0, 0.2, 30)) * stragglers
    for alpha, name, most in ((1.0, "T_iter", 1.15), (0.5, "power", 1.0 + 1e-3)):
        times = (40 * batches ** (1 - alpha) + (batches if alpha == 1 else 0)) * noise
        laws = fit_laws(Observation(b, t) for b, t in zip(batches, times, strict=True))
        assert laws is not None
        law = next(law for law in laws.models if law.name == name)

        def errors(numbers: Any, name: str = name, times: Any = times) -> Any:
            if name == "power":
                return np.log(times) - numbers[0] - numbers[1] * np.log(batches)
            return np.log(times) - np.log(numbers[0] + numbers[1] * batches)

        start = [3.0, 0.5] if name == "power" else [10.0, 1.0]
        least = ([-np.inf, 0.0], [np.inf, 0.95]) if name == "power" else ([0.0, 0.0], [np.inf, np.inf])
        best = least_squares(errors, start, bounds=least, loss="huber", f_scale=HUBER).x
        ours = np.log(times) - np.log([law.predict(b) for b in batches])
        assert _huber_loss(ours) <= most * _huber_loss(errors(best)) + 1e-9


def test_scipy_plans_sizes_no_nearer_to_the_right_one() -> None:
    """Why the fits are ours: other sizes would be planned, and no better ones (docs/architecture.md)."""
    from scipy.optimize import least_squares

    batches, best = (
        np.repeat([5.0, 10.0, 25.0, 50.0, 100.0], 6),
        saving_batch_size(Fit(40, 1, 0, 30), 0.45),
    )
    misses = []
    for seed in range(60):
        times = (40 + batches) * np.exp(np.random.default_rng(seed).normal(0, 0.2, 30))
        laws = fit_laws(Observation(b, t) for b, t in zip(batches, times, strict=True))
        assert laws is not None
        fitted = least_squares(
            lambda at, times=times: np.log(times) - np.log(at[0] + at[1] * batches),
            [10.0, 1.0],
            bounds=([0.0, 0.0], [np.inf, np.inf]),
            loss="huber",
            f_scale=HUBER,
        ).x
        sizes = (saving_batch_size(laws.line, 0.45), (1 / 0.45 - 1) * fitted[0] / fitted[1])
        misses.append([abs(size - best) / best for size in sizes])
    ours, theirs = np.median(misses, axis=0)
    print(f"off by {100 * ours:.1f} %, with scipy's fit {100 * theirs:.1f} %")
    assert ours <= 1.1 * theirs
