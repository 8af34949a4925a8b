"""The next iteration's batch size, and in words why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from combee.algo.delay import Fit
from combee.errors import BugError

SIZES_CAP = "batching.sizes"


@dataclass(frozen=True, slots=True)
class Cap:
    """An upper bound on the batch size and who asks for it ("rows left in the epoch")."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """``size`` examples; ``reason`` is one sentence for people; ``capped_by`` names the cap that bound."""

    size: int
    reason: str
    capped_by: str | None = None
    fit: Fit | None = None


def saving_batch_size(fit: Fit, share: float) -> float:
    """The largest b at which growing further could still save more than ``share`` of the time.

    Per example T(b) = c0 / b + c1, of which growth can save c0 / b; that share is over ``share``
    while b < (1 / share - 1) b_half. Returns examples, in [0, inf]; inf when c1 is 0 (growth never
    stops paying). ``share`` in (0, 1], else ``BugError``. Source: DESIGN section 5 (rule ``Saving``).
    Cost: O(1).

    >>> saving_batch_size(Fit(c0=36.0, c1=1.0, rmse=0.0, n=9, r2=1.0), share=0.45)
    44.0
    """
    if not 0 < share <= 1:
        raise BugError(f"share must be in (0, 1], not {share}", where="saving_batch_size")
    growth = 1 / share - 1
    return growth * fit.b_half if growth > 0 else 0.0


def choose_batch(
    *,
    fit: Fit | None,
    share: float = 0.45,
    sizes: Sequence[int],
    fallback: int,
    lower: int = 1,
    upper_caps: Sequence[Cap] = (),
) -> BatchChoice:
    """The batch size of the next iteration.

    The rule ``Saving`` on ``fit``, or ``fallback`` where there is none yet; kept within the smallest
    and largest of ``sizes``, then at least ``lower``, then within every cap (caps win over all else),
    at least 1 and a whole number. Sizes below 1 and caps that are NaN are left out; a fit whose
    numbers are not finite counts as none. Never raises for measured garbage (a ``share`` outside
    (0, 1] is ``BugError``). Source: DESIGN section 5 (batch size; "re-planned before each iteration;
    status says in words why"). Cost: O(sizes + caps).

    >>> fit = Fit(c0=36.0, c1=1.0, rmse=0.5, n=9, r2=0.99)
    >>> choice = choose_batch(fit=fit, sizes=[5, 100], fallback=10, upper_caps=[Cap("rows left", 40)])
    >>> choice.size, choice.capped_by
    (40, 'rows left')
    >>> print(choice.reason)
    An iteration costs 36 s plus 1 s an example (9 observations), so growing past 44 saves less than 45 % of the time; capped at 40 by rows left.
    """
    usable = [size for size in sizes if size >= 1]
    low, high = (min(usable), max(usable)) if usable else (1, math.inf)
    if fit is not None and not (math.isfinite(fit.c0) and math.isfinite(fit.c1)):
        fit = None
    wanted, why = _wanted(fit, share, fallback)
    capped_by: str | None = None
    notes: list[str] = []
    size = wanted
    if size > high:
        size, capped_by = high, SIZES_CAP
        notes.append(f"capped at {_number(high)}, the largest of {SIZES_CAP}")
    if size < max(low, lower):
        notes.append(f"raised to {_number(max(low, lower))}, the smallest allowed")
        size = max(low, lower)
    binding = min(
        (cap for cap in upper_caps if not math.isnan(cap.value)), key=lambda c: c.value, default=None
    )
    if binding is not None and binding.value < size:
        size, capped_by = max(1.0, binding.value), binding.name
        notes.append(f"capped at {_number(math.floor(size))} by {binding.name}")
    whole = max(1, math.floor(size + 1e-9)) if math.isfinite(size) else max(1, fallback)
    return BatchChoice(whole, "; ".join([why, *notes]) + ".", capped_by, fit)


def _wanted(fit: Fit | None, share: float, fallback: int) -> tuple[float, str]:
    """The size before bounds, and the first part of the sentence."""
    if fit is None:
        start = max(1, fallback)
        return (
            start,
            f"No fit of iteration time yet (it needs two batch sizes), so the stated start of {start}",
        )
    wanted = saving_batch_size(fit, share)
    cost = (
        f"An iteration costs {_number(fit.c0)} s plus {_number(fit.c1)} s an example ({fit.n} observations)"
    )
    if math.isinf(wanted):
        return wanted, f"{cost}, so its time does not grow with the batch and larger is always cheaper"
    if wanted < 1:
        return 1.0, f"{cost}, so a larger batch saves nothing worth having"
    past = f"growing past {math.floor(wanted + 1e-9)} saves less than {_number(100 * share)} % of the time"
    return wanted, f"{cost}, so {past}"


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
