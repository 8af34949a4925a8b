"""``merge: Model``: the paper's tree, a call at every node up to one root. A node's inputs are the outputs of
the level below; fan-in and tokens are capped by adding levels. What no call may merge passes all of them.
"""

from __future__ import annotations

from functools import partial

from combee.algo.tokens import estimate_tokens
from combee.algo.tree import pack
from combee.methods.protocol import Update
from combee.work.aggregation.calls import canonical, divided, merge
from combee.work.reduction import Reduction


async def climb(reduction: Reduction, leaves: list[list[Update]]) -> list[Update]:
    """Merge level by level and return the updates of the root."""
    plan, mergeable = reduction.plan, reduction.context.method.mergeable
    passed = [update for leaf in leaves for update in leaf if not mergeable(update)]
    level = [node for leaf in leaves if (node := list(filter(mergeable, leaf)))]
    depth = 0
    while len(level) > 1:
        depth += 1
        sizes = [round(plan.token_factor * sum(estimate_tokens(u.text) + 24 for u in node)) for node in level]
        groups = pack(sizes, reduction.caps)
        if len(groups) >= len(level):
            break
        stage = f"merge level {depth}"
        inputs = [[update for index in group for update in level[index]] for group in groups]
        level = await divided(reduction, stage, inputs, partial(merge, keep=False))
        level = [node for node in level if node]
    return canonical([*passed, *(update for node in level for update in node)])
