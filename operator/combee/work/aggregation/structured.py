"""``merge: Structured``: ONE group-by over all leaf updates. Singletons pass verbatim, each cluster gets one
call, all side by side: fixed depth at any n, and nothing is lost to a root's capacity.
"""

from __future__ import annotations

from functools import partial

from combee.methods.protocol import Update
from combee.work.aggregation.calls import canonical, divided, merge
from combee.work.reduction import Reduction


async def group(reduction: Reduction, leaves: list[list[Update]]) -> list[Update]:
    """Return the updates of all leaves, grouped and merged."""
    updates = [update for leaf in leaves for update in leaf]
    plan = reduction.plan
    as_estimated = int(plan.max_input_tokens / (plan.token_factor or 1.0))
    grouping = reduction.context.method.group(updates, cap=plan.max_fan_in, max_tokens=as_estimated)
    merged = await divided(reduction, "merge", grouping.clusters, partial(merge, keep=True))
    return canonical([*grouping.passed, *(update for cluster in merged for update in cluster)])
