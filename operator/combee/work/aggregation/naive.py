"""``Naive``: one aggregator call is given every reflection, whatever its length: a 400 carries nothing."""

from __future__ import annotations

from combee.methods.protocol import Update
from combee.work.aggregation.calls import one_call
from combee.work.reduction import Reduction


async def everything(reduction: Reduction) -> list[Update]:
    """Return the updates of the one call."""
    return await one_call(reduction, list(reduction.reflections))
