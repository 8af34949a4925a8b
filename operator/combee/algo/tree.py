"""The reduce tree: which aggregator call takes which inputs, so that no call is overloaded.

Level 0 are the leaves, over reflections. With ``merge: Structured`` the tree ends there (the group-by
over leaf entries follows from the entries, see ``components``); with ``merge: Model`` levels are added
until one root is left. Every call obeys the fan-in and the token cap, at any n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from combee.algo.seeds import rng
from combee.algo.shuffle import augmented_shuffle
from combee.errors import BugError, ManifestError

Node = tuple[int, ...]
Level = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A planned reduce. ``leaves`` index reflections; ``levels[k]`` index the nodes one level below."""

    leaves: Level
    levels: tuple[Level, ...] = ()

    @property
    def calls(self) -> int:
        """Number of aggregator calls of the whole tree.

        >>> Tree(((0, 1), (2, 3)), (((0, 1),),)).calls
        3
        """
        return len(self.leaves) + sum(len(level) for level in self.levels)


def leaf_count(n: int, copies: int, leaf_size: int, *, subgroups: str | None = None, max_fan_in: int) -> int:
    """Leaves for n reflections sent ``copies`` (p) times: ceil(p n / f), f = min(leaf_size, max_fan_in).

    ``subgroups="Sqrt"`` is the paper's rule, floor(sqrt n), raised to ceil(p n / max_fan_in) where a
    leaf would otherwise exceed the fan-in. At least 1, and 0 when n is 0. Raises ``BugError`` for
    n < 0, copies, leaf_size or max_fan_in < 1 and for another ``subgroups``. Source: Combee
    section 3 (k = floor(sqrt n)); DESIGN section 5. Cost: O(1).

    >>> leaf_count(1000, 1, 8, max_fan_in=32), leaf_count(84, 2, 8, subgroups="Sqrt", max_fan_in=32)
    (125, 9)
    """
    if n < 0 or copies < 1 or leaf_size < 1 or max_fan_in < 1:
        raise BugError(
            f"n={n}, copies={copies}, leaf_size={leaf_size}, max_fan_in={max_fan_in} make no tree",
            where="leaf_count",
        )
    if subgroups not in (None, "Sqrt"):
        raise BugError(f"unknown subgroups {subgroups!r}", where="leaf_count")
    if n == 0:
        return 0
    if subgroups == "Sqrt":
        return max(math.isqrt(n), -(-copies * n // max_fan_in), 1)
    return max(-(-copies * n // min(leaf_size, max_fan_in)), 1)


def pack(
    token_counts: Sequence[int], *, max_fan_in: int, max_input_tokens: int, overhead_tokens: int
) -> Level:
    """Inputs, in the order given, cut into the fewest calls within the fan-in and the token cap.

    Returns tuples of indices into ``token_counts``: consecutive, together every input once. Inputs of
    a call plus ``overhead_tokens`` (what every call's prompt holds anyway) stay within
    ``max_input_tokens``; a single input above that gets a call of its own, which the caller flags.
    Where the caps allow, sizes are within one of each other. Empty input gives (). Raises
    ``BugError`` for max_fan_in < 1 or negative tokens. Source: DESIGN section 5 (reduce tree).
    Cost: O(n).

    >>> pack([10, 10, 10, 90, 10], max_fan_in=3, max_input_tokens=60, overhead_tokens=20)
    ((0, 1, 2), (3,), (4,))
    >>> pack([1, 1, 1, 1], max_fan_in=3, max_input_tokens=60, overhead_tokens=20)
    ((0, 1), (2, 3))
    """
    if max_fan_in < 1 or any(tokens < 0 for tokens in token_counts):
        raise BugError("fan-in below 1 or negative tokens", where="pack")
    room = max_input_tokens - overhead_tokens
    greedy = _pack_greedily(token_counts, max_fan_in, room)
    even = _cut_evenly(len(token_counts), len(greedy))
    if all(len(node) <= max_fan_in and _fits(node, token_counts, room) for node in even):
        return even
    return greedy


def _pack_greedily(token_counts: Sequence[int], max_fan_in: int, room: int) -> Level:
    nodes: list[Node] = []
    current: list[int] = []
    load = 0
    for i, tokens in enumerate(token_counts):
        if current and (len(current) == max_fan_in or load + tokens > room):
            nodes.append(tuple(current))
            current, load = [], 0
        current.append(i)
        load += tokens
    if current:
        nodes.append(tuple(current))
    return tuple(nodes)


def _cut_evenly(n: int, parts: int) -> Level:
    bounds = [n * k // parts for k in range(parts + 1)] if parts else [0]
    return tuple(tuple(range(bounds[k], bounds[k + 1])) for k in range(parts))


def _fits(node: Node, token_counts: Sequence[int], room: int) -> bool:
    return len(node) <= 1 or sum(token_counts[i] for i in node) <= room


def plan_levels(
    token_counts: Sequence[int],
    *,
    max_fan_in: int,
    max_input_tokens: int,
    overhead_tokens: int,
    node_output_tokens: int,
) -> tuple[Level, ...]:
    """Levels of calls over given inputs until one root is left.

    ``token_counts`` are the tokens of the inputs (leaf outputs, entries); every node above them is
    expected to give ``node_output_tokens``. Level 0 indexes the inputs, level k the nodes of level
    k-1; the last level has one node. No inputs give (); one input gives () too: it is its own root.
    Raises ``ManifestError`` when two node outputs cannot share a call, for then no tree ends, and
    ``BugError`` as ``pack``. Source: DESIGN section 5 (``merge: Model``). Cost: O(n).

    >>> plan_levels([5] * 5, max_fan_in=3, max_input_tokens=40, overhead_tokens=20, node_output_tokens=5)
    (((0, 1), (2, 3, 4)), ((0, 1),))
    """
    levels: list[Level] = []
    counts: Sequence[int] = token_counts
    while len(counts) > 1:
        if levels and (max_fan_in < 2 or 2 * node_output_tokens + overhead_tokens > max_input_tokens):
            raise ManifestError(
                f"two outputs of {node_output_tokens} tokens and a prompt of {overhead_tokens} do not fit "
                f"in {max_input_tokens} tokens or a fan-in of {max_fan_in}, so the tree would never end",
                where="spec.aggregation.maxInputTokens",
                fix="Raise maxInputTokens (or maxFanIn to 2), or use merge: Structured.",
            )
        level = pack(
            counts, max_fan_in=max_fan_in, max_input_tokens=max_input_tokens, overhead_tokens=overhead_tokens
        )
        levels.append(level)
        counts = [node_output_tokens] * len(level)
    return tuple(levels)


def upper_levels(
    n_leaves: int, *, max_fan_in: int, node_output_tokens: int, max_input_tokens: int, overhead_tokens: int
) -> tuple[Level, ...]:
    """Levels above ``n_leaves`` leaves of ``node_output_tokens`` each, until one root (``merge: Model``).

    () for 0 or 1 leaf: a lone leaf is the root. Errors as ``plan_levels``. Source: DESIGN section 5.
    Cost: O(n_leaves).

    >>> upper_levels(5, max_fan_in=3, node_output_tokens=5, max_input_tokens=40, overhead_tokens=20)
    (((0, 1), (2, 3, 4)), ((0, 1),))
    """
    return plan_levels(
        [node_output_tokens] * n_leaves,
        max_fan_in=max_fan_in,
        max_input_tokens=max_input_tokens,
        overhead_tokens=overhead_tokens,
        node_output_tokens=node_output_tokens,
    )


def plan_tree(
    token_counts: Sequence[int],
    *,
    seed: int,
    iteration: int,
    round: int = 0,
    copies: int = 1,
    leaf_size: int = 8,
    subgroups: str | None = None,
    max_fan_in: int = 32,
    max_input_tokens: int = 24_000,
    overhead_tokens: int = 0,
    merge: Literal["Structured", "Model"] = "Structured",
    node_output_tokens: int = 1_024,
) -> Tree:
    """The tree of one round of an iteration over n = len(token_counts) reflections.

    ``token_counts[i]`` are the tokens of reflection i as it stands in a prompt; ``overhead_tokens``
    what every call's prompt holds besides (instructions, playbook); ``node_output_tokens`` what a
    call may write. Leaves come from ``leaf_count`` and ``augmented_shuffle``, seeded by (seed,
    iteration, round); a leaf above the token cap is split (its members keep different leaves). Each
    reflection is in exactly min(copies, leaf_count) leaves. n = 0 gives ``Tree(())``. Errors as
    ``leaf_count``, ``pack`` and ``plan_levels``. Source: Combee section 3, DESIGN section 5.
    Cost: O(p n log n); under a second at n = 100,000.

    >>> tree = plan_tree([200] * 84, seed=7, iteration=0, copies=2, subgroups="Sqrt", merge="Model")
    >>> len(tree.leaves), [len(level) for level in tree.levels], tree.calls
    (9, [1], 10)
    """
    if merge not in ("Structured", "Model"):
        raise BugError(f"unknown merge {merge!r}", where="plan_tree")
    n = len(token_counts)
    count = leaf_count(n, copies, leaf_size, subgroups=subgroups, max_fan_in=max_fan_in)
    if count == 0:
        return Tree(())
    dealt = augmented_shuffle(n, copies=copies, leaves=count, rng=rng(seed, "shuffle", iteration, round))
    leaves = _split_heavy(dealt, token_counts, max_fan_in, max_input_tokens - overhead_tokens)
    if merge == "Structured":
        return Tree(leaves)
    levels = upper_levels(
        len(leaves),
        max_fan_in=max_fan_in,
        node_output_tokens=node_output_tokens,
        max_input_tokens=max_input_tokens,
        overhead_tokens=overhead_tokens,
    )
    return Tree(leaves, levels)


def _split_heavy(leaves: Level, token_counts: Sequence[int], max_fan_in: int, room: int) -> Level:
    """Return the leaves, with those above a cap cut into several."""
    result: list[Node] = []
    for leaf in leaves:
        if len(leaf) <= max_fan_in and _fits(leaf, token_counts, room):
            result.append(leaf)
            continue
        counts = [token_counts[i] for i in leaf]
        parts = pack(counts, max_fan_in=max_fan_in, max_input_tokens=room, overhead_tokens=0)
        result.extend(tuple(leaf[k] for k in part) for part in parts)
    return tuple(result)
