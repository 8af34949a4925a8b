"""What strategies and merges cost, and which there are: the pure half of ``work/aggregation/``.

A strategy has two halves. What a manifest, a plan or a preview must know before it runs stands here and in
``api.aggregation`` (its traits, from which the CRD's rules follow); what it does with model calls is a file
of ``work/aggregation/``. Plans and base methods stand below work and must not import it, so they ask this
table.

To add one: a row of ``STRATEGIES`` in ``api/aggregation.py``, its cost here, its file in
``work/aggregation/`` and the line in the table there. A package outside the product declares an entry point
of ``combee.strategies`` instead, an object with ``traits``, ``cost`` and ``reduce``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from combee import extensions
from combee.algo.ranges import Range
from combee.algo.retransmit import Redundancy, choose_redundancy
from combee.algo.tree import Caps, Level, leaf_count, pack, plan_leaves, plan_levels
from combee.api.aggregation import Aggregation

REFLECTION_TOKENS = 250
"""a reflection of a finance task in the paper's figures has 200-315."""
SUMMARY_TOKENS = 400
"""300 words, which is what is asked for."""
SUMMARY_OVERHEAD_TOKENS = 150
ENTRY_TOKENS = 50
ENTRIES_PER_LEAF = 6


@dataclass(frozen=True, slots=True)
class Batch:
    """The reflections of one iteration that are reduced together."""

    size: int
    seed: int
    iteration: int
    overhead_tokens: int
    """tokens of an aggregator's prompt without any of them."""
    slots: int
    """aggregator calls that may run at once."""
    clusters: int | None = None
    """calls of the base method's group-by over what the leaves gave; None: as many as are alike."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Aggregator calls for one batch. ``levels``: calls of each level above the leaves, where known."""

    leaves: int
    leaf_inputs: int
    """inputs of the leaf that has most."""
    calls: Range
    levels: tuple[int, ...] = ()
    rounds: Range = Range(1, 1)  # noqa: RUF009
    in_map: bool = False
    """whether the leaves are made in the map, each right after the reflection that it takes."""


Cost = Callable[[Aggregation, Batch], Calls]


def one_call(how: Aggregation, batch: Batch) -> Calls:
    """Everything goes into one call."""
    return Calls(1, batch.size, Range.of(1))


def nearest(how: Aggregation, batch: Batch) -> Calls:
    """One call, over as many as it may be given."""
    return Calls(1, min(batch.size, how.max_fan_in), Range.of(1))


def summarized(how: Aggregation, batch: Batch) -> Calls:
    """Summaries for leaves, summarized again until one aggregator call takes them."""
    caps = Caps(how.max_fan_in, how.max_input_tokens, SUMMARY_OVERHEAD_TOKENS)
    levels: list[Level] = []
    inputs = [REFLECTION_TOKENS] * batch.size
    while not levels or len(inputs) > 1:
        level = pack(inputs, caps)
        if levels and len(level) in (1, len(inputs)):
            break
        levels.append(level)
        inputs = [SUMMARY_TOKENS] * len(level)
    above = (*(len(level) for level in levels[1:]), 1)
    widest = max(len(group) for group in levels[0])
    return Calls(len(levels[0]), widest, Range.of(len(levels[0]) + sum(above)), above)


def redundancy_of(how: Aggregation, n: int, slots: int) -> Redundancy:
    """Return how n reflections are sent, as the manifest says it, where ``slots`` calls run at once."""
    stated = how.redundancy
    return choose_redundancy(
        stated.mode, n, slots, copies=stated.copies, max_rounds=stated.max_rounds, most=how.leaf_size
    )


def leaves_in_map(strategy: str, mode: str, leaf_size: int, subgroups: str | None) -> bool:
    """Return whether the map makes the leaves: each is of one reflection, so it waits for no other.

    >>> [leaves_in_map("ParallelScan", "Retransmit", size, None) for size in (1, 2)]
    [True, False]
    """
    return strategy == "ParallelScan" and mode == "Retransmit" and leaf_size == 1 and not subgroups


def leaf_calls(how: Aggregation, redundancy: Redundancy, n: int) -> int:
    """Return how many leaf calls of n reflections several pods may divide in the reduce: none where the map
    makes them, and none of a strategy that has no leaves.

    >>> leaf_calls(Aggregation(), Redundancy("Retransmit", 1, 4, 8), 100_000)
    12500
    """
    in_map = leaves_in_map(how.strategy, redundancy.mode, redundancy.leaf_size, how.subgroups)
    if how.strategy != "ParallelScan" or in_map:
        return 0
    sizes = redundancy.copies, redundancy.leaf_size
    return leaf_count(n, *sizes, subgroups=how.subgroups, max_fan_in=how.max_fan_in)


def scanned(how: Aggregation, batch: Batch) -> Calls:
    """Leaves, again for what was lost where retransmission is on, and then the merge."""
    redundancy = redundancy_of(how, batch.size, batch.slots)
    dealt = plan_leaves(
        [REFLECTION_TOKENS] * batch.size,
        Caps(how.max_fan_in, how.max_input_tokens, batch.overhead_tokens),
        seed=batch.seed,
        iteration=batch.iteration,
        copies=redundancy.copies,
        leaf_size=redundancy.leaf_size,
        subgroups=how.subgroups,
    )
    leaves = len(dealt)
    widest = max((len(leaf) for leaf in dealt), default=0)
    rounds = Range(1, redundancy.rounds)
    levels, merged = MERGES[how.merge](how, batch, leaves, leaves * min(ENTRIES_PER_LEAF, widest))
    again = leaves if rounds.high > 1 else 0
    in_map = leaves_in_map(how.strategy, redundancy.mode, redundancy.leaf_size, how.subgroups)
    return Calls(leaves, widest, Range(leaves, leaves + again) + merged, levels, rounds, in_map)


MergeCost = Callable[[Aggregation, Batch, int, int], tuple[tuple[int, ...], Range]]
"""(aggregation, batch, leaves, entries that they write) -> calls of each level above the leaves, and calls of
the merge in all."""


def grouped(how: Aggregation, batch: Batch, leaves: int, entries: int) -> tuple[tuple[int, ...], Range]:
    """Count a call a cluster; how many clusters there are shows only when the leaves have answered."""
    return (), Range(0, entries // 2 if batch.clusters is None else batch.clusters)


def climbed(how: Aggregation, batch: Batch, leaves: int, entries: int) -> tuple[tuple[int, ...], Range]:
    """Count a call at every node above the leaves; a lone leaf is grouped by itself."""
    node_output_tokens = ENTRY_TOKENS * ENTRIES_PER_LEAF
    caps = Caps(how.max_fan_in, how.max_input_tokens, batch.overhead_tokens)
    planned = plan_levels([node_output_tokens] * leaves, caps, node_output_tokens=node_output_tokens)
    levels = tuple(len(level) for level in planned)
    return (levels, Range.of(sum(levels))) if levels else grouped(how, batch, leaves, entries)


COSTS: Mapping[str, Cost] = {
    "ParallelScan": scanned,
    "Naive": one_call,
    # A batch is one example, whose reflection goes the same way.
    "Sequential": scanned,
    "TopK": nearest,
    "Summarize": summarized,
}
MERGES: Mapping[str, MergeCost] = {
    "Structured": grouped,
    "Model": climbed,
}


def cost_of(how: Aggregation) -> Cost:
    """Return what the strategy of a run costs; that of a package's own is its ``cost``."""
    if how.strategy in COSTS:
        return COSTS[how.strategy]
    cost: Cost = extensions.load(extensions.STRATEGIES, how.strategy).cost
    return cost
