"""Chooses the next iteration's batch size by a rule on a delay law, and gives the reason in words."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from combee.algo.delay import Fit
from combee.algo.laws import POWER, POWER_FLOOR, T_ITER, Law, bounded_power
from combee.errors import BugError

Rule = Literal["Saving", "Paper"]
SIZES_CAP = "batching.sizes"
PAPER_SHARE = 0.016
"""The paper's threshold tau, as a share of the steepest slope of its epoch times."""


@dataclass(frozen=True, slots=True)
class Cap:
    """An upper bound on the batch size, its source ("budget"), and a sentence with the reason."""

    name: str
    value: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """``size`` in examples; ``reason`` is one sentence for people; ``capped_by`` names the cap that
    applied."""

    size: int
    reason: str
    capped_by: str | None = None
    fit: Fit | Law | None = None


def saving_batch_size(fit: Fit | Law, share: float) -> float:
    """The largest b at which growing further could still save more than ``share`` of the time.

    Per example t(b) = a b^-alpha + f, of which growth can save a b^-alpha; that share is over
    ``share`` while

        b < ((1 / share - 1) a / f)^(1 / alpha)

    which on T_iter (alpha = 1) is (1 / share - 1) b_half. Returns examples, in [0, inf]; inf where
    there is no floor f (growth never stops paying), so a bound or a cap decides. ``share`` in (0, 1],
    else ``BugError``. Source: DESIGN section 5 (rule ``Saving``). Cost: O(1).

    >>> saving_batch_size(Fit(c0=36.0, c1=1.0, rmse=0.0, n=9), share=0.45)
    44.0
    >>> round(saving_batch_size(Law("power+floor", a=6.0, alpha=0.5, f=1.0, n=9), share=0.5), 6)
    36.0
    """
    if not 0 < share <= 1:
        raise BugError(f"share must be in (0, 1], not {share}", where="saving_batch_size")
    law, growth = _law(fit), 1 / share - 1
    if growth <= 0 or law.a <= 0:
        return 0.0
    return bounded_power(growth * (law.a / law.f), 1 / law.alpha) if law.f > 0 else math.inf


def paper_batch_size(fit: Fit | Law, sizes: Sequence[int]) -> float:
    """The paper's plateau: the largest b at which an epoch still gets ``tau`` seconds shorter with
    each further example in the batch,

        b = (alpha A / tau)^(1 / (alpha + 1)),
        tau = 1.6 % of (T_epoch(s1) - T_epoch(s2)) / (s2 - s1)

    where s1 < s2 are the two smallest of ``sizes``: the first finite difference of the fitted law is
    its steepest. The epoch's length and the floor F drop out, so b hangs on alpha (and ``sizes``)
    alone: sqrt(s1 s2 / 0.016) for T_iter, more for a smaller alpha. 0 where growth saves nothing.
    Fewer than two sizes: inf. Source: arXiv 2604.04247 (facts.md, "Controller"). Cost: O(1).

    >>> round(paper_batch_size(Fit(c0=36.0, c1=1.0, rmse=0.0, n=9), [5, 10, 25]), 1)
    55.9
    """
    law, ordered = _law(fit), sorted({size for size in sizes if size >= 1})
    if law.a <= 0:
        return 0.0
    if len(ordered) < 2:
        return math.inf
    return _plateau(law.alpha, *ordered[:2])


@functools.lru_cache(1024)
def _plateau(alpha: float, first: int, second: int) -> float:
    steepest = (first**-alpha - second**-alpha) / (second - first)
    return bounded_power(alpha / (PAPER_SHARE * steepest), 1 / (alpha + 1)) if steepest > 0 else math.inf


def rule_size(fit: Fit | Law, rule: Rule, share: float, sizes: Sequence[int]) -> float:
    """Return the size that ``rule`` derives from a law before bounds and caps, in examples; inf: no limit.

    >>> rule_size(Fit(c0=36.0, c1=1.0, rmse=0.0, n=9), "Saving", share=0.45, sizes=[5, 100])
    44.0
    """
    return paper_batch_size(fit, sizes) if rule == "Paper" else saving_batch_size(fit, share)


def choose_batch(
    *,
    fit: Fit | Law | None,
    rule: Rule = "Saving",
    share: float = 0.45,
    sizes: Sequence[int],
    fallback: int,
    lower: int = 1,
    upper_caps: Sequence[Cap] = (),
) -> BatchChoice:
    """Return the batch size of the next iteration.

    The size is that of ``rule`` on ``fit`` (to the nearest whole number), or ``fallback`` while there is no
    fit. It is kept within the smallest and largest of ``sizes``, then at least ``lower``, then within every
    cap (caps win over all else), and at least 1. Sizes below 1 and caps that are NaN are left out; a fit
    whose numbers are not finite counts as none. Never raises for measured garbage (a ``share`` outside (0, 1]
    is ``BugError``). Source: DESIGN section 5 (batch size; "re-planned before each iteration; status says in
    words why"). Cost: O(sizes + caps).

    >>> fit = Fit(c0=36.0, c1=1.0, rmse=0.5, n=9)
    >>> choice = choose_batch(fit=fit, sizes=[5, 100], fallback=10, upper_caps=[Cap("rows left", 40)])
    >>> choice.size, choice.capped_by
    (40, 'rows left')
    >>> choice.reason.partition(", so ")[2]
    'growing past 44 saves less than 45 % of the time; capped at 40 by rows left.'
    """
    candidates = [size for size in sizes if size >= 1]
    low, high = (min(candidates), max(candidates)) if candidates else (1, math.inf)
    law = None if fit is None else _law(fit)
    if law is None or not (math.isfinite(law.a) and math.isfinite(law.f) and 0 < law.alpha <= 1):
        law = fit = None
    rule_result, reason = _wanted(law, rule, share, candidates, fallback)
    capped_by: str | None = None
    notes: list[str] = []
    size = rule_result
    if size > high:
        size, capped_by = high, SIZES_CAP
        notes.append(f"capped at {_number(high)}, the largest of {SIZES_CAP}")
    if size < max(low, lower):
        notes.append(f"raised to {_number(max(low, lower))}, the smallest allowed")
        size = max(low, lower)
    binding = tightest(upper_caps)
    if binding is not None and binding.value < size:
        size, capped_by = max(1.0, binding.value), binding.name
        explanation = f" ({binding.why})" if binding.why else ""
        notes.append(f"capped at {_number(math.floor(size))} by {binding.name}{explanation}")
    whole = max(1, math.floor(size + 1e-9)) if math.isfinite(size) else max(1, fallback)
    return BatchChoice(whole, "; ".join([reason, *notes]) + ".", capped_by, fit)


def tightest(caps: Sequence[Cap]) -> Cap | None:
    """Return the cap that binds first, the earlier one in a tie; NaN caps are left out.

    >>> tightest([Cap("budget", 30.0), Cap("hardware", 64.0)]).name
    'budget'
    """
    return min((cap for cap in caps if not math.isnan(cap.value)), key=lambda c: c.value, default=None)


def _law(fit: Fit | Law) -> Law:
    return fit if isinstance(fit, Law) else Law(T_ITER, fit.c0, 1.0, fit.c1, fit.n)


def _wanted(
    law: Law | None, rule: Rule, share: float, sizes: Sequence[int], fallback: int
) -> tuple[float, str]:
    """Return the size before bounds, and the first part of the sentence."""
    if law is None:
        start = max(1, fallback)
        return (
            start,
            f"No fit of iteration time yet (it needs two batch sizes), so the stated start of {start}",
        )
    cost = _cost(law) + (f" ({law.n} observations)" if law.n else "")
    if law.a <= 0:
        return 1.0, f"{cost}, so a larger batch saves nothing worth having"
    if law.f <= 0 and law.name == T_ITER:
        return math.inf, f"{cost}, so its time does not grow with the batch and larger is always cheaper"
    size = rule_size(law, rule, share, sizes)
    gain = f"saves less than {_number(100 * share)} % of the time"
    if rule == "Paper":
        gain = "saves less than 1.6 % of what the first steps save"
    if math.isinf(size):
        return size, f"{cost}, a law without a floor, so larger is always cheaper an example"
    whole = math.floor(size + 0.5)
    if whole < 1:
        return 1.0, f"{cost}, so a larger batch saves nothing worth having"
    return whole, f"{cost}, so growing past {whole:.0f} {gain}"


def _cost(law: Law) -> str:
    """Return the law in words."""
    if law.name == POWER:
        return f"An example costs {_number(law.a)} s x b^-{law.alpha:.2f} in a batch of b"
    if law.name == POWER_FLOOR:
        growing = f"{_number(law.a)} s x b^-{law.alpha:.2f}"
        return f"An example costs {growing} plus {_number(law.f)} s in a batch of b"
    return f"An iteration costs {_number(law.a)} s plus {_number(law.f)} s an example"


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
