"""Mirrors sampled requests to the version that is not served, and records both answers for a canary.

Serving never waits for mirroring. Samples that find no memory are dropped and counted, and samples give their
memory to a request that finds none. Users only ever get the answer of the version that is served.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from combee.gateway.metrics import Metrics
from combee.gateway.room import EACH, Hold, Room
from combee.gateway.spool import Spool
from combee.gateway.table import Mirroring, Route, Served, TrafficComparison
from combee.gateway.upstream import NoAnswerError, Upstreams, next_piece, without_identity
from combee.times import rfc3339
from combee.work.traffic.record import (
    NO_ANSWER,
    PASSING,
    TIMEOUT,
    TOO_LONG,
    VERSION,
    answer_record,
    request_record,
)
from combee.work.traffic.rewrite import with_preface

MOST_BYTES = 256 * 1024
"""most bytes of a sampled request or answer; longer ones are left out."""
KEPT, SHED, FAILED = "Kept", "Shed", "Failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One version's answer to a request, and how long it took, in seconds."""

    digest: str
    body: bytes
    streamed: bool
    seconds: float
    first_byte_seconds: float
    failed: str = ""
    """why there is no whole answer; empty when there is one."""

    def record(self) -> dict[str, Any]:
        """Return the outcome as it is recorded: the answer with its times, or the failure."""
        answer = None if self.failed else answer_record(self.body, streamed=self.streamed)
        if answer is None:
            waiting_time = {"seconds": round(self.seconds, 4)} if self.failed == TIMEOUT else {}
            return {"digest": self.digest, "failed": self.failed or NO_ANSWER, **waiting_time}
        times = {"seconds": round(self.seconds, 4), "firstByteSeconds": round(self.first_byte_seconds, 4)}
        return {"digest": self.digest, **times, "answer": answer}


@dataclass(eq=False, slots=True)
class Sample:
    """A sampled request, while it is answered and after."""

    route: Route
    mirroring: Mirroring
    served: Served
    """the version that answers the request."""
    comparisons: tuple[TrafficComparison, ...]
    captured: bool
    request: str
    """the request's random id."""
    path: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    hold: Hold
    """the memory that the sample takes."""
    cluster: str = ""
    """what the client says that the request belongs to."""
    answer: list[bytes] = field(default_factory=list)
    """the pieces of the answer so far."""
    too_long: bool = False
    """whether the answer is longer than MOST_BYTES."""
    outcome: Outcome | None = None
    """the whole answer, with its times."""
    open: int = field(init=False)
    """results still to be counted: one per comparison, and one of a captured request."""

    def __post_init__(self) -> None:
        self.open = len(self.comparisons) + self.captured


@dataclass(slots=True)
class _Lane:
    """The samples of one Playbook."""

    running: int = 0
    waiting: deque[Sample] = field(default_factory=deque)


@dataclass(slots=True)
class Shadow:
    """Mirrors samples in the background. ``begin``, ``hear`` and ``offer`` return at once."""

    upstreams: Upstreams
    spool: Spool
    metrics: Metrics
    room: Room
    pressed: Callable[[], bool] = lambda: False
    """says whether active requests need all the time there is."""
    _lanes: dict[str, _Lane] = field(default_factory=dict)
    _heard: dict[Sample, None] = field(default_factory=dict)
    """samples that are being answered, the oldest first."""
    _tasks: dict[asyncio.Task[None], Sample] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.room.give_way = self.give_way

    def begin(self, sample: Sample) -> bool:
        """Take a sample of a request about to be answered; return False when there is no memory for it."""
        if len(sample.body) > MOST_BYTES or not sample.hold.take(EACH + len(sample.body)):
            self._end(sample, SHED)
            return False
        self._heard[sample] = None
        return True

    def hear(self, sample: Sample, piece: bytes) -> None:
        """Add a piece of the answer. A sample whose answer finds no memory is dropped."""
        if sample not in self._heard or sample.too_long:
            return
        answer_bytes = sample.hold.taken - EACH - len(sample.body)
        if answer_bytes + len(piece) > MOST_BYTES:
            sample.too_long = True
            sample.answer.clear()
            sample.hold.give(answer_bytes)
        elif sample.hold.take(len(piece)):
            sample.answer.append(piece)
        else:
            self._end(sample, SHED)

    def offer(
        self, sample: Sample, *, streamed: bool, seconds: float, first_byte_seconds: float, failed: str = ""
    ) -> None:
        """Mirror a sample whose answer is whole, or has ``failed``: now, later or not at all.

        ``seconds`` and ``first_byte_seconds`` are the times that the upstream took.
        """
        if sample not in self._heard:
            return
        del self._heard[sample]
        body = b"".join(sample.answer)
        sample.answer.clear()
        failed = failed or (TOO_LONG if sample.too_long else "")
        sample.outcome = Outcome(sample.served.digest, body, streamed, seconds, first_byte_seconds, failed)
        lane = self._lanes.setdefault(sample.route.playbook, _Lane())
        if self.pressed():
            self._end(sample, SHED)
        elif lane.running < sample.mirroring.concurrency * (2 if _passing(failed) else 1):
            self._start(lane, sample)
        elif len(lane.waiting) < sample.mirroring.queue and not _passing(failed):
            lane.waiting.append(sample)
        else:
            self._end(sample, SHED)

    def forget(self, sample: Sample) -> None:
        """Drop a sample that teaches nothing: its client went away, or the upstream had no room."""
        if sample in self._heard:
            sample.open = 0
            self._end(sample, FAILED)

    def give_way(self, size: int) -> None:
        """Free ``size`` bytes: of waiting samples, then of those being answered, then of those being
        mirrored."""
        for lane in self._lanes.values():
            while lane.waiting and size > 0:
                size -= self._end(lane.waiting.popleft(), SHED)
        for sample in tuple(self._heard):
            if size > 0:
                size -= self._end(sample, SHED)
        for task, sample in tuple(self._tasks.items()):
            if size > 0:
                size -= self._end(sample, SHED)
                task.cancel()

    async def aclose(self) -> None:
        """Cancel the mirrored requests under way."""
        for lane in self._lanes.values():
            lane.waiting.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, lane: _Lane, sample: Sample) -> None:
        lane.running += 1
        task = asyncio.create_task(self._work(lane, sample))
        self._tasks[task] = sample
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _work(self, lane: _Lane, sample: Sample) -> None:
        try:
            await self._keep(sample)
        finally:
            self._end(sample, SHED)
            lane.running -= 1
            if lane.waiting:
                self._start(lane, lane.waiting.popleft())

    async def _keep(self, sample: Sample) -> None:
        # Parsing and redacting take milliseconds; a thread keeps them from blocking the loop.
        request, active = await asyncio.to_thread(_records, sample.body, sample.cluster, sample.outcome)
        if request is None or active is None:
            self._end(sample, FAILED)
            return
        common = {"version": VERSION, "time": _now(), "id": sample.request, "request": request}
        if sample.captured and "failed" not in active:
            self.spool.keep(sample.route.playbook, "", sample.mirroring.place, {**common, "active": active})
        if sample.captured:
            self._count(sample, FAILED if "failed" in active else KEPT)
        if active.get("seconds", 0) > sample.mirroring.deadline_seconds:
            # Both versions get the same time, and the other version is not waited for as long.
            active = {"digest": active["digest"], "failed": TIMEOUT, "seconds": active["seconds"]}
        if sample.comparisons and active.get("failed") == TIMEOUT:
            # The cause of the delay may be gone: then compare the answer given now, and no times.
            retried = await self._record(sample, sample.served)
            if retried is not None and "failed" not in retried:
                active = {"digest": retried["digest"], "answer": retried["answer"]}
        for comparison in sample.comparisons:
            if not sample.open:
                return
            record = await self._compared(sample, comparison, active)
            if record is None:
                self._count(sample, FAILED)
                continue
            sides = {"tested": active, "against": record}
            if active["digest"] != comparison.digest:
                sides = {"tested": record, "against": active}
            self.spool.keep(
                sample.route.playbook,
                comparison.id,
                sample.mirroring.place,
                {**common, "test": comparison.id, **sides},
            )
            self._count(sample, KEPT)

    async def _compared(
        self, sample: Sample, comparison: TrafficComparison, active: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return the other version's answer or failure as recorded; None where the two cannot be compared.

        A failure that may be the upstream's own counts against the version only if the upstream answers the
        same request right after, sent with the served version. A timeout is retried once, as it is for the
        served version; the time of an answer got that way includes the first wait.
        """
        record = await self._record(sample, comparison.other)
        if record is not None and record.get("failed") == TIMEOUT and "failed" not in active:
            retried = await self._record(sample, comparison.other)
            if retried is not None and "failed" not in retried:
                return {**retried, "seconds": round(record["seconds"] + retried["seconds"], 4)}
        if record is None or "failed" not in record:
            return record
        if "failed" in active:
            return None
        if not record["failed"].startswith("4") and record["failed"] != TOO_LONG:
            retried = await self._record(sample, sample.served)
            if retried is None or "failed" in retried:
                return None
        return record

    async def _record(self, sample: Sample, version: Served) -> dict[str, Any] | None:
        """Ask a version now and return its outcome as recorded; None where there was no room to ask it."""
        outcome = await self._ask(sample, version)
        return None if outcome is None else await asyncio.to_thread(outcome.record)

    async def _ask(self, sample: Sample, version: Served) -> Outcome | None:
        """Ask a version and return its answer or failure; None where upstream or memory has no room."""
        url, began, parts, size = sample.route.upstream + sample.path, time.perf_counter(), [], 0
        body = with_preface(sample.body, version.preface)

        def failure(reason: str) -> Outcome:
            seconds = time.perf_counter() - began
            return Outcome(version.digest, b"", False, seconds, seconds, reason)

        with self.room.hold(sample=True) as hold:
            if not hold.take(len(body)):
                self._end(sample, SHED)
                return None
            try:
                async with asyncio.timeout(sample.mirroring.deadline_seconds):
                    answer = await self.upstreams.ask(
                        "POST", url, without_identity(sample.headers), sample.route.upstream_key, body
                    )
                    async with answer:
                        first_byte = time.perf_counter()
                        while piece := await next_piece(answer):
                            parts.append(piece)
                            size += len(piece)
                            if size > MOST_BYTES and answer.status == 200:
                                return failure(TOO_LONG)
                            if not hold.take(len(piece)):
                                self._end(sample, SHED)
                                return None
                        if answer.status != 200:
                            return None if answer.status in PASSING else failure(str(answer.status))
                        streamed = answer.content_type == "text/event-stream"
            except NoAnswerError:
                return failure(NO_ANSWER)
            except TimeoutError:
                return failure(TIMEOUT)
        seconds = time.perf_counter() - began
        return Outcome(version.digest, b"".join(parts), streamed, seconds, first_byte - began)

    def _end(self, sample: Sample, result: str) -> int:
        """Finish a sample: count its open results as ``result`` and return how many bytes became free."""
        self._heard.pop(sample, None)
        while sample.open > 0:
            self._count(sample, result)
        free = sample.hold.taken
        sample.hold.close()
        sample.body, sample.outcome = b"", None
        sample.answer.clear()
        return free

    def _count(self, sample: Sample, result: str) -> None:
        if sample.open > 0:
            sample.open -= 1
            self.metrics.mirrored.labels(sample.route.playbook, result).inc()


def _passing(failed: str) -> bool:
    """Return whether the upstream may have recovered a moment later. Then the other version is asked at once
    or not at all: asked later, it would meet a recovered upstream and always look better."""
    return bool(failed) and not failed.startswith("4") and failed not in (TOO_LONG, TIMEOUT)


def _records(
    body: bytes, cluster: str, outcome: Outcome | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    return request_record(body, cluster), outcome.record() if outcome is not None else None


def chosen(
    mirroring: Mirroring, served: Served, draw: Callable[[str], float]
) -> tuple[tuple[TrafficComparison, ...], bool]:
    """Return the comparisons that a request is a sample of, and whether it is captured.

    ``draw`` returns a number in [0, 1) for a name, the same one for the same name.
    """
    comparisons = tuple(
        comparison
        for comparison in mirroring.comparisons
        if served.digest in (comparison.digest, comparison.against) and draw(comparison.id) < comparison.share
    )
    return comparisons, mirroring.captured_share > 0 and draw("") < mirroring.captured_share


def _now() -> str:
    return rfc3339(time.time())
