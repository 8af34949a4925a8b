"""How much faster a run learned than the serial learning that it measured, under another latency law."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from combee.algo.latency import LatencyLaw
from combee.clients.store.store import RESTORE, Store
from combee.errors import DamagedError
from combee.local.record import Record
from combee.plan.types import StepSummary
from combee.steps import FINISH, ITERATION, kind_of
from combee.work.asker import CallRow, decode_rows
from combee.work.callgraph import graph_of, retimed
from combee.work.context import decoded_receipt
from combee.work.diagnose import FOLDER
from combee.work.finish import without_select


@dataclass(frozen=True, slots=True)
class _Learning:
    """Modelled seconds of learning, and the examples learned from."""

    seconds: float
    examples: int


async def speed_up(record: Record, prefix: str, slots: int, law: LatencyLaw) -> float | None:
    """Return serial seconds over the run's, an example; None where the store has no calls of either.

    ``prefix``: the run's folder in the store. Both are re-timed on the same slots, without scoring, as
    ``diagnosis.speedUp`` counts. Raises DamagedError where a receipt or a blob of the store is damaged.
    """
    serial = await _serial(record.store, prefix, slots, law)
    own = await _own(record, prefix, slots, law)
    if not (serial.examples and own.examples and serial.seconds and own.seconds):
        return None
    return (serial.seconds / serial.examples) / (own.seconds / own.examples)


async def _serial(store: Store, prefix: str, slots: int, law: LatencyLaw) -> _Learning:
    """Time the examples that the diagnosis learned from, one after the other. Those that got no answer are
    left out, as in ``diagnosis.secondsPerExample``."""
    seconds, examples = 0.0, 0
    folder = f"{prefix}/{FOLDER}"
    for path in await store.alist(f"{folder}/steps"):
        step = path.removeprefix(f"{folder}/steps/").partition("/")[0]
        if step.endswith(f"-{FINISH.name}"):
            if any(one.counts.get("failed") for one in await _left_by(store, folder, step)):
                continue
            head = step.removesuffix(FINISH.name)
            for kind in ITERATION:
                seconds += _seconds(await _rows(store, folder, head + kind.name), slots, law)
            examples += 1
    return _Learning(seconds, examples)


async def _own(record: Record, prefix: str, slots: int, law: LatencyLaw) -> _Learning:
    """Time the run's iterations."""
    seconds, examples = 0.0, 0
    for summary in record.summaries.values():
        kind = kind_of(summary.kind)
        if not kind.sums_up or summary.error:
            continue
        head = summary.step.removesuffix(f"{kind.name}-a0")
        for one in ITERATION:
            seconds += _seconds(await _rows(record.store, prefix, f"{head}{one.name}-a0"), slots, law)
        examples += sum(size for size, _ in summary.observations)
    return _Learning(seconds, examples)


async def _left_by(store: Store, prefix: str, step: str) -> list[StepSummary]:
    """Return what all shards of a step left. Raises DamagedError where it cannot be read: without a step's
    calls its time would be too short."""
    made = list[StepSummary]()
    for path in await store.alist(f"{prefix}/steps/{step}"):
        if path.endswith(".manifest.json"):
            left = decoded_receipt(await store.aget(path) or b"", path)
            if left is None:
                raise DamagedError("the receipt is damaged", where=f"{store.uri}/{path}", fix=RESTORE)
            made.append(left)
    return made


async def _rows(store: Store, prefix: str, step: str) -> list[CallRow]:
    """Return the learning calls of all shards of a step."""
    rows: list[CallRow] = []
    for left in await _left_by(store, prefix, step):
        digest = left.outputs.get("calls")
        rows += decode_rows(await store.aget_blob(digest)) if digest else []
    return without_select(rows)


def _seconds(rows: Iterable[CallRow], slots: int, law: LatencyLaw) -> float:
    return retimed(graph_of(rows), slots, law).seconds
