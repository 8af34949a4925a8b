"""``ParallelScan``: leaves distil reflections side by side, and a merge brings together what they gave.

With ``Retransmit``, reflections whose lesson was lost are sent again in the same iteration, so that no lesson
depends on one call. Leaves of one reflection were made by the map (``work.leaves``).
"""

from __future__ import annotations

from functools import partial
from itertools import chain as chained

from combee.algo.tree import plan_leaves
from combee.methods.protocol import Update
from combee.work.aggregation import calls
from combee.work.aggregation.model import climb
from combee.work.aggregation.structured import group
from combee.work.reduction import Reduction, leaf_stage

MERGES = {"Structured": group, "Model": climb}


async def scan(reduction: Reduction) -> list[Update]:
    """Return the updates of all leaves, merged."""
    leaves = await _rounds(reduction)
    inputs = sum(len(leaf) for leaf in leaves)
    before = len(reduction.asker.rows)
    merged = await MERGES[reduction.plan.merge](reduction, leaves)
    merge_calls = len(reduction.asker.rows) - before
    reduction.report("merge", merge_calls, inputs, merged)
    return merged


async def _rounds(reduction: Reduction) -> list[list[Update]]:
    """Make leaf calls, round after round, after those that the map made; a round takes only what was lost so
    far."""
    plan = reduction.plan
    rounds = plan.max_rounds if plan.redundancy == "Retransmit" else 1
    leaves, todo, done = _made(reduction)
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
        groups = [[reduction.reflections[todo[index]] for index in leaf] for leaf in dealt]
        leaves += await calls.divided(reduction, stage, groups, partial(calls.leaf, ordinal=number))
        sent, todo = todo, _report(reduction, stage, len(groups), len(todo), leaves)
        if todo == sent and reduction.lost_calls == lost_calls:
            break  # models that were asked, and carried none of it
    return leaves


def _made(reduction: Reduction) -> tuple[list[list[Update]], list[int], int]:
    """Return the updates of the leaves that the map made, which reflections to send next, and how many rounds
    the map made."""
    leaves: list[list[Update]] = []
    todo = list(range(len(reduction.reflections)))
    done = max((leaf.round for leaf in reduction.made), default=0)
    for number in range(1, done + 1):
        now = [leaf for leaf in reduction.made if leaf.round == number]
        leaves += [list(leaf.updates) for leaf in now]
        todo = _report(reduction, leaf_stage(number), len(now), len(now), leaves)
    return leaves, todo if not done or _helped(reduction) else [], done


def _report(
    reduction: Reduction, stage: str, calls: int, inputs: int, so_far: list[list[Update]]
) -> list[int]:
    """Put down what a round and those before it carry, and return which reflections to send again."""
    carried = reduction.report(stage, calls, inputs, list(chained.from_iterable(so_far)))
    return reduction.lessons.to_send_again(carried)


def _helped(reduction: Reduction) -> bool:
    """Return whether the last round carried a lesson that the one before did not, or lost a call: models that
    were asked twice and carried no more the second time are not asked again."""
    *earlier, last = (level.carried for level in reduction.levels)
    lost = any(leaf.lost for leaf in reduction.made if leaf.round == len(reduction.levels))
    return lost or last > max(earlier, default=0)
