"""``ParallelScan``: leaves distil reflections side by side, and a merge brings together what they gave.

With ``Retransmit``, reflections whose lesson was lost are sent again in the same iteration, so that no lesson
depends on one call. Leaves of one reflection were made by the map (``work.leaves``).
"""

from __future__ import annotations

from itertools import chain as chained

from combee.algo.tree import plan_leaves
from combee.methods.protocol import Update
from combee.records import Reflection
from combee.work.aggregation import calls
from combee.work.aggregation.model import climb
from combee.work.aggregation.structured import group
from combee.work.pool import pooled
from combee.work.reduction import Reduction, leaf_stage
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
    """Make leaf calls, round after round, after those that the map made; a round takes only what was lost so
    far."""
    plan, method = reduction.plan, reduction.context.method
    rounds = plan.max_rounds if plan.redundancy == "Retransmit" else 1
    leaves, done = _made(reduction)
    todo = list(range(len(reduction.reflections)))
    if done:
        so_far = list(chained.from_iterable(leaves))
        todo = to_send_again(method, reduction.reflections, so_far) if _helped(reduction) else []
    for number in range(done, rounds):
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
        stage = leaf_stage(number + 1)
        reduction.progress(stage, len(dealt))
        groups = [[reduction.reflections[todo[index]] for index in leaf] for leaf in dealt]

        async def leaf(
            item: tuple[int, list[Reflection]], stage: str = stage, number: int = number
        ) -> list[Update]:
            return await calls.leaf(reduction, item[1], stage, item[0], ordinal=number)

        leaves += await pooled(list(enumerate(groups)), leaf, width=reduction.context.concurrency)
        so_far = list(chained.from_iterable(leaves))
        _report(reduction, number + 1, len(groups), len(todo), so_far)
        if number + 1 == rounds:
            break
        sent, todo = todo, to_send_again(method, reduction.reflections, so_far)
        if todo == sent and reduction.lost_calls == lost_calls:
            break  # models that were asked, and carried none of it
    return leaves


def _made(reduction: Reduction) -> tuple[list[list[Update]], int]:
    """Return the updates of the leaves that the map made, and how many rounds these were."""
    leaves: list[list[Update]] = []
    done = max((leaf.round for leaf in reduction.made), default=0)
    for number in range(1, done + 1):
        now = [leaf for leaf in reduction.made if leaf.round == number]
        leaves += [list(leaf.updates) for leaf in now]
        so_far = list(chained.from_iterable(leaves))
        _report(reduction, number, len(now), len(now), so_far)
    return leaves, done


def _report(reduction: Reduction, number: int, calls: int, inputs: int, so_far: list[Update]) -> None:
    name, method = f"leaf round {number}", reduction.context.method
    reduction.levels.append(level_report(method, name, calls, inputs, reduction.reflections, so_far))


def _helped(reduction: Reduction) -> bool:
    """Return whether the last round carried a lesson that the one before did not, or lost a call: models that
    were asked twice and carried no more the second time are not asked again."""
    *earlier, last = (level.carried for level in reduction.levels)
    lost = any(leaf.lost for leaf in reduction.made if leaf.round == len(reduction.levels))
    return lost or last > max(earlier, default=0)
