"""Requests asked once more, of the version that is not served, and both answers kept for a canary.

It waits for nobody and nobody waits for it: what has no room is left out and counted, and what has room gives it to
a request that finds none. Users only ever get the answer of the version that is served.
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
from combee.gateway.table import Mirroring, Route, Served, TrafficTest
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
"""of a request or an answer that is looked at; longer ones are left out."""
KEPT, SHED, FAILED = "Kept", "Shed", "Failed"


@dataclass(frozen=True, slots=True)
class Asked:
    """One answer: which version gave it, and how long it took, in seconds."""

    digest: str
    body: bytes
    streamed: bool
    seconds: float
    first_byte_seconds: float
    failed: str = ""
    """why it is none."""

    def record(self) -> dict[str, Any]:
        """As it is kept. Of an answer that is none, or no whole one, why; and how long it was waited for."""
        answer = None if self.failed else answer_record(self.body, streamed=self.streamed)
        if answer is None:
            waited = {"seconds": round(self.seconds, 4)} if self.failed == TIMEOUT else {}
            return {"digest": self.digest, "failed": self.failed or NO_ANSWER, **waited}
        took = {"seconds": round(self.seconds, 4), "firstByteSeconds": round(self.first_byte_seconds, 4)}
        return {"digest": self.digest, **took, "answer": answer}


@dataclass(eq=False, slots=True)
class Sample:
    """A request that is a sample of something: while it is answered, and after."""

    route: Route
    mirroring: Mirroring
    served: Served
    """the version that answers it."""
    tests: tuple[TrafficTest, ...]
    captured: bool
    request: str
    """its random id."""
    path: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    hold: Hold
    """the memory that it takes."""
    answer: list[bytes] = field(default_factory=list)
    """what has come of it."""
    too_long: bool = False
    """whether more has come than is looked at."""
    asked: Asked | None = None
    """the whole of it, with its times."""
    open: int = field(init=False)
    """outcomes that are still to be counted: one of each test, and one of the captured request."""

    def __post_init__(self) -> None:
        self.open = len(self.tests) + self.captured


@dataclass(slots=True)
class _Lane:
    """One Playbook's samples."""

    running: int = 0
    waiting: deque[Sample] = field(default_factory=deque)


@dataclass(slots=True)
class Shadow:
    """``begin``, ``hear`` and ``offer`` return at once."""

    upstreams: Upstreams
    spool: Spool
    metrics: Metrics
    room: Room
    pressed: Callable[[], bool] = lambda: False
    """whether active requests need all there is."""
    _lanes: dict[str, _Lane] = field(default_factory=dict)
    _heard: dict[Sample, None] = field(default_factory=dict)
    """those that are being answered, the oldest first."""
    _tasks: dict[asyncio.Task[None], Sample] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.room.give_way = self.give_way

    def begin(self, sample: Sample) -> bool:
        """Take a request that is about to be answered, or leave it out."""
        if len(sample.body) > MOST_BYTES or not sample.hold.take(EACH + len(sample.body)):
            self._end(sample, SHED)
            return False
        self._heard[sample] = None
        return True

    def hear(self, sample: Sample, piece: bytes) -> None:
        """A piece of its answer. One that finds no room is left out with its request."""
        if sample not in self._heard or sample.too_long:
            return
        held = sample.hold.taken - EACH - len(sample.body)
        if held + len(piece) > MOST_BYTES:
            sample.too_long = True
            sample.answer.clear()
            sample.hold.give(held)
        elif sample.hold.take(len(piece)):
            sample.answer.append(piece)
        else:
            self._end(sample, SHED)

    def offer(
        self, sample: Sample, *, streamed: bool, seconds: float, first_byte_seconds: float, failed: str = ""
    ) -> None:
        """Its answer is whole, or ``failed`` says why there is none: do with it what is to be done, now or later,
        or leave it out. ``seconds``: that the upstream took."""
        if sample not in self._heard:
            return
        del self._heard[sample]
        body = b"".join(sample.answer)
        sample.answer.clear()
        failed = failed or (TOO_LONG if sample.too_long else "")
        sample.asked = Asked(sample.served.digest, body, streamed, seconds, first_byte_seconds, failed)
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
        """Nothing can be learned of it: nobody waited for its answer, or the upstream had no room."""
        if sample in self._heard:
            sample.open = 0
            self._end(sample, FAILED)

    def give_way(self, size: int) -> None:
        """Give so many bytes back: first what those have that wait, then those being answered, then those at work."""
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
        """Give up what is under way."""
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
        # Parsing and redacting take milliseconds that the loop has not: a thread shares them out finely.
        request, active = await asyncio.to_thread(_records, sample.body, sample.asked)
        if request is None or active is None:
            self._end(sample, FAILED)
            return
        told = {"version": VERSION, "time": _now(), "id": sample.request, "request": request}
        if sample.captured and "failed" not in active:
            self.spool.keep(sample.route.playbook, "", sample.mirroring.place, {**told, "active": active})
        if sample.captured:
            self._count(sample, FAILED if "failed" in active else KEPT)
        if active.get("seconds", 0) > sample.mirroring.deadline_seconds:
            # The other version's is not waited for as long: both have the same time.
            active = {"digest": active["digest"], "failed": TIMEOUT, "seconds": active["seconds"]}
        if sample.tests and active.get("failed") == TIMEOUT:
            # What held it up may be over by now: then it is compared as it answers now, and its time with nothing.
            again = await self._record(sample, sample.served)
            if again is not None and "failed" not in again:
                active = {"digest": again["digest"], "answer": again["answer"]}
        for test in sample.tests:
            if not sample.open:
                return
            record = await self._compared(sample, test, active)
            if record is None:
                self._count(sample, FAILED)
                continue
            sides = {"tested": active, "against": record}
            if active["digest"] != test.digest:
                sides = {"tested": record, "against": active}
            self.spool.keep(
                sample.route.playbook, test.id, sample.mirroring.place, {**told, "test": test.id, **sides}
            )
            self._count(sample, KEPT)

    async def _compared(
        self, sample: Sample, test: TrafficTest, active: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """The other version's answer, or why there is none; None where no pair can be made of both.

        What may be the upstream's failure and not the version's counts only where the upstream answers the same
        request, asked of the version that is served, right after. One that comes too late is asked once more, as the
        version that is served is; an answer that it has then took both times.
        """
        record = await self._record(sample, test.other)
        if record is not None and record.get("failed") == TIMEOUT and "failed" not in active:
            again = await self._record(sample, test.other)
            if again is not None and "failed" not in again:
                return {**again, "seconds": round(record["seconds"] + again["seconds"], 4)}
        if record is None or "failed" not in record:
            return record
        if "failed" in active:
            return None
        if not record["failed"].startswith("4") and record["failed"] != TOO_LONG:
            again = await self._record(sample, sample.served)
            if again is None or "failed" in again:
                return None
        return record

    async def _record(self, sample: Sample, version: Served) -> dict[str, Any] | None:
        """What a version answers now, as it is kept; None where there was no room to ask it."""
        asked = await self._ask(sample, version)
        return None if asked is None else await asyncio.to_thread(asked.record)

    async def _ask(self, sample: Sample, version: Served) -> Asked | None:
        """What a version answers, or why it does not; None where the upstream, or the memory, has no room."""
        url, began, parts, size = sample.route.upstream + sample.path, time.perf_counter(), [], 0
        body = with_preface(sample.body, version.preface)

        def none(why: str) -> Asked:
            took = time.perf_counter() - began
            return Asked(version.digest, b"", False, took, took, why)

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
                        first = time.perf_counter()
                        while piece := await next_piece(answer):
                            parts.append(piece)
                            size += len(piece)
                            if size > MOST_BYTES and answer.status == 200:
                                return none(TOO_LONG)
                            if not hold.take(len(piece)):
                                self._end(sample, SHED)
                                return None
                        if answer.status != 200:
                            return None if answer.status in PASSING else none(str(answer.status))
                        streamed = answer.content_type == "text/event-stream"
            except NoAnswerError:
                return none(NO_ANSWER)
            except TimeoutError:
                return none(TIMEOUT)
        took = time.perf_counter() - began
        return Asked(version.digest, b"".join(parts), streamed, took, first - began)

    def _end(self, sample: Sample, outcome: str) -> int:
        """It is over: what was not counted of it comes to ``outcome``. How many bytes are free for it."""
        self._heard.pop(sample, None)
        while sample.open > 0:
            self._count(sample, outcome)
        free = sample.hold.taken
        sample.hold.close()
        sample.body, sample.asked = b"", None
        sample.answer.clear()
        return free

    def _count(self, sample: Sample, outcome: str) -> None:
        if sample.open > 0:
            sample.open -= 1
            self.metrics.mirrored.labels(sample.route.playbook, outcome).inc()


def _passing(failed: str) -> bool:
    """Whether the upstream may be well again a moment later: then the other version is asked at once or not at all, for
    later it would be compared with another upstream, and always to its favour."""
    return bool(failed) and not failed.startswith("4") and failed not in (TOO_LONG, TIMEOUT)


def _records(body: bytes, asked: Asked | None) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    return request_record(body), asked.record() if asked is not None else None


def chosen(
    mirroring: Mirroring, served: Served, draw: Callable[[str], float]
) -> tuple[tuple[TrafficTest, ...], bool]:
    """The tests that a request is a sample of, and whether it is captured. ``draw`` gives a number in [0, 1)
    for a name, the same whenever it is asked."""
    tests = tuple(
        test
        for test in mirroring.tests
        if served.digest in (test.digest, test.against) and draw(test.id) < test.share
    )
    return tests, mirroring.captured_share > 0 and draw("") < mirroring.captured_share


def _now() -> str:
    return rfc3339(time.time())
