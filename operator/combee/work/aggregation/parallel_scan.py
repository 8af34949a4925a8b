"""``ParallelScan``: leaves distil reflections side by side, and a merge brings together what they gave.

With ``Retransmit``, reflections whose lesson was lost are sent again in the same iteration, so that no lesson
depends on one call.
"""

from __future__ import annotations

from combee.algo.tree import plan_leaves
from combee.methods.protocol import Update
from combee.records import Reflection
from combee.work.aggregation import calls
from combee.work.aggregation.model import climb
from combee.work.aggregation.structured import group
from combee.work.pool import pooled
from combee.work.reduction import Reduction
from combee.work.retention import level_report, to_send_again

MERGES = {"Structured": group, "Model": climb}


async def scan(reduction: Reduction) -> list[Update]:
    """Return the updates of all leaves, merged."""
    leaves = await _rounds(reduction)
    inputs = sum(len(leaf) for leaf in leaves)
    before = len(reduction.asker.rows)
    merged = await MERGES[reduction.plan.merge](reduction, leaves)
    merge_calls = len(reduction.asker.rows) - before
    reduction.levels.append(
        level_report(reduction.context.method, "merge", merge_calls, inputs, reduction.reflections, merged)
    )
    return merged


async def _rounds(reduction: Reduction) -> list[list[Update]]:
    """Make leaf calls, round after round; a round takes only what was lost so far."""
    plan, method = reduction.plan, reduction.context.method
    rounds = plan.max_rounds if plan.redundancy == "Retransmit" else 1
    todo = list(range(len(reduction.reflections)))
    leaves: list[list[Update]] = []
    for number in range(rounds):
        if not todo:
            break
        lost_calls = reduction.lost_calls
        dealt = plan_leaves(
            [reduction.tokens[index] for index in todo],
            reduction.caps,
            seed=plan.seed,
            iteration=plan.iteration,
            round=number,
            copies=plan.copies if plan.redundancy == "Duplicate" else 1,
            leaf_size=plan.leaf_size,
            subgroups=plan.subgroups or None,
        )
        stage = f"reduce round {number + 1}"
        reduction.progress(stage, len(dealt))
        groups = [[reduction.reflections[todo[index]] for index in leaf] for leaf in dealt]

        async def leaf(item: tuple[int, list[Reflection]], stage: str = stage) -> list[Update]:
            return await calls.leaf(reduction, item[1], stage, item[0])

        leaves += await pooled(list(enumerate(groups)), leaf, width=reduction.context.concurrency)
        so_far = [update for leaf in leaves for update in leaf]
        reduction.levels.append(
            level_report(
                method, f"leaf round {number + 1}", len(groups), len(todo), reduction.reflections, so_far
            )
        )
        if number + 1 == rounds:
            break
        sent, todo = todo, to_send_again(method, reduction.reflections, so_far)
        if todo == sent and reduction.lost_calls == lost_calls:
            break  # models that were asked, and carried none of it
    return leaves
