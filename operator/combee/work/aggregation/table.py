"""The function that carries out each strategy; the other half of ``combee.strategies``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from combee import extensions
from combee.methods.protocol import Update
from combee.work.aggregation.naive import everything
from combee.work.aggregation.parallel_scan import scan
from combee.work.aggregation.summarize import summarize
from combee.work.aggregation.topk import central
from combee.work.reduction import Reduction

Reduce = Callable[[Reduction], Awaitable[list[Update]]]
"""Turns reflections of one part of a batch into updates; the reduction counts calls and what they carry."""

_REDUCES: Mapping[str, Reduce] = {
    "ParallelScan": scan,
    "Naive": everything,
    "Sequential": scan,  # its batch is one reflection: a scan of one leaf
    "TopK": central,
    "Summarize": summarize,
}


def reduce_of(strategy: str) -> Reduce:
    """Return the function of a strategy; that of a package's own strategy is its ``reduce``."""
    if strategy in _REDUCES:
        return _REDUCES[strategy]
    reduce: Reduce = extensions.load(extensions.STRATEGIES, strategy).reduce
    return reduce
