"""The reduce tree: which aggregator call takes which inputs, so that no call is overloaded.

Level 0 are the leaves, over reflections. With ``merge: Structured`` the tree ends there (the group-by
over leaf entries follows from the entries, see ``components``); with ``merge: Model`` levels are added
until one root is left. Every call obeys the fan-in and the token cap, at any n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from combee.algo.seeds import rng
from combee.algo.shuffle import augmented_shuffle
from combee.errors import BugError, ManifestError

Node = tuple[int, ...]
Level = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Caps:
    """The most that one aggregator call takes; ``overhead_tokens`` are in every call's prompt anyway."""

    max_fan_in: int
    max_input_tokens: int
    overhead_tokens: int = 0

    @property
    def room(self) -> int:
        """Tokens left for inputs.

        >>> Caps(32, 1000, 300).room
        700
        """
        return self.max_input_tokens - self.overhead_tokens


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


def pack(token_counts: Sequence[int], caps: Caps) -> Level:
    """Inputs, in the order given, cut into the fewest calls within the caps.

    Returns tuples of indices into ``token_counts``: consecutive, together every input once. A single input
    above ``caps.room`` gets a call of its own, which the caller flags. Where the caps allow, sizes are within
    one of each other. Empty input gives (). Raises ``BugError`` for a fan-in below 1 or negative tokens.
    Source: DESIGN section 5 (reduce tree). Cost: O(n).

    >>> pack([10, 10, 10, 90, 10], Caps(3, 60, 20)), pack([1, 1, 1, 1], Caps(3, 60, 20))
    (((0, 1, 2), (3,), (4,)), ((0, 1), (2, 3)))
    """
    if caps.max_fan_in < 1 or any(tokens < 0 for tokens in token_counts):
        raise BugError("fan-in below 1 or negative tokens", where="pack")
    greedy = _pack_greedily(token_counts, caps)
    even = _cut_evenly(len(token_counts), len(greedy))
    return even if all(_fits(node, token_counts, caps) for node in even) else greedy


def _pack_greedily(token_counts: Sequence[int], caps: Caps) -> Level:
    nodes: list[Node] = []
    current: list[int] = []
    load = 0
    for i, tokens in enumerate(token_counts):
        if current and (len(current) == caps.max_fan_in or load + tokens > caps.room):
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


def _fits(node: Node, token_counts: Sequence[int], caps: Caps) -> bool:
    return len(node) <= 1 or (
        len(node) <= caps.max_fan_in and sum(token_counts[i] for i in node) <= caps.room
    )


def plan_levels(token_counts: Sequence[int], caps: Caps, *, node_output_tokens: int) -> tuple[Level, ...]:
    """Levels of calls over given inputs until one root is left (``merge: Model``).

    ``token_counts`` are the tokens of the inputs (leaf outputs, entries); every node above them is
    expected to give ``node_output_tokens``. Level 0 indexes the inputs, level k the nodes of level
    k-1; the last level has one node. No inputs give (); one input gives () too: it is its own root.
    Raises ``ManifestError`` when two node outputs cannot share a call, for then no tree ends, and
    ``BugError`` as ``pack``. Source: DESIGN section 5 (``merge: Model``). Cost: O(n).

    >>> plan_levels([5] * 5, Caps(3, 40, 20), node_output_tokens=5)
    (((0, 1), (2, 3, 4)), ((0, 1),))
    """
    levels: list[Level] = []
    counts: Sequence[int] = token_counts
    while len(counts) > 1:
        if levels and (caps.max_fan_in < 2 or 2 * node_output_tokens > caps.room):
            raise ManifestError(
                f"two outputs of {node_output_tokens} tokens and a prompt of {caps.overhead_tokens} do not "
                f"fit in {caps.max_input_tokens} tokens or a fan-in of {caps.max_fan_in}, so the tree would "
                "never end",
                where="spec.aggregation.maxInputTokens",
                fix="Raise maxInputTokens (or maxFanIn to 2), or use merge: Structured.",
            )
        levels.append(pack(counts, caps))
        counts = [node_output_tokens] * len(levels[-1])
    return tuple(levels)


def plan_leaves(
    token_counts: Sequence[int],
    caps: Caps,
    *,
    seed: int,
    iteration: int,
    round: int = 0,
    copies: int = 1,
    leaf_size: int = 8,
    subgroups: str | None = None,
) -> Level:
    """The leaves of one round of an iteration over n = len(token_counts) reflections.

    ``token_counts[i]`` are the tokens of reflection i as it stands in a prompt. Leaves come from
    ``leaf_count`` and ``augmented_shuffle``, seeded by (seed, iteration, round); a leaf above the caps is
    split (its members keep different leaves). Each reflection is in exactly min(copies, leaf_count) leaves.
    n = 0 gives (). Errors as ``leaf_count`` and ``pack``. Source: Combee section 3, DESIGN section 5.
    Cost: O(p n log n); under a second at n = 100,000.

    >>> len(plan_leaves([200] * 84, Caps(32, 24_000), seed=7, iteration=0, copies=2, subgroups="Sqrt"))
    9
    """
    n = len(token_counts)
    count = leaf_count(n, copies, leaf_size, subgroups=subgroups, max_fan_in=caps.max_fan_in)
    if count == 0:
        return ()
    dealt = augmented_shuffle(n, copies=copies, leaves=count, rng=rng(seed, "shuffle", iteration, round))
    return tuple(part for leaf in dealt for part in _split(leaf, token_counts, caps))


def _split(leaf: Node, token_counts: Sequence[int], caps: Caps) -> Level:
    """Return the leaf, cut into several where it is above a cap."""
    if _fits(leaf, token_counts, caps):
        return (leaf,)
    parts = pack([token_counts[i] for i in leaf], caps)
    return tuple(tuple(leaf[k] for k in part) for part in parts)
