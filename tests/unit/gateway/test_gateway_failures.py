"""Missing answers: a version's failure makes a pair, and an upstream without room makes none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from combee.gateway.metrics import Metrics
from combee.gateway.room import Room
from combee.gateway.shadow import MOST_BYTES, Sample, Shadow
from combee.gateway.spool import Place, Spool
from combee.gateway.table import Mirroring, Route, Served, TrafficComparison
from combee.gateway.upstream import NoAnswerError
from combee.work.traffic.record import NO_ANSWER, TIMEOUT, TOO_LONG

FINE = json.dumps({"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}).encode()
HALF = json.dumps({"choices": [{"message": {"content": "4"}, "finish_reason": None}]}).encode()
BODY = b'{"messages": [{"role": "user", "content": "2 + 2"}]}'
ACTIVE, CANDIDATE = Served("a" * 64, "the active rule"), Served("b" * 64, "the candidate's rule")
Says = int | bytes | Exception


@dataclass
class Answer:
    """As aiohttp's, as far as it is read."""

    status: int
    body: bytes
    content_type: str = "application/json"
    _pieces: Iterator[bytes] = field(init=False)

    def __post_init__(self) -> None:
        size = 64 * 1024
        self._pieces = iter([self.body[at : at + size] for at in range(0, len(self.body), size)])

    @property
    def content(self) -> Self:
        return self

    async def readany(self) -> bytes:
        return next(self._pieces, b"")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@dataclass
class Upstream:
    """Says of a version's rule what it is told; a TimeoutError is an answer that does not come."""

    says: Callable[[str], Says]
    asked: list[str] = field(default_factory=list)

    async def ask(self, method: str, url: str, headers: object, key: str, body: bytes) -> Answer:
        rule = "candidate" if b"candidate" in body else "active"
        self.asked.append(rule)
        said = self.says(rule)
        if isinstance(said, TimeoutError):
            await asyncio.sleep(3600)
        if isinstance(said, Exception):
            raise said
        return Answer(200, said) if isinstance(said, bytes) else Answer(said, b"{}")


async def allowed(token: str) -> str:
    return "a tenant" if True else ""


@dataclass
class Scene:
    """A request that the active version answered, or not, and that is asked of the candidate, too."""

    folder: Path
    candidate: Says | Callable[[], Says]
    active_again: Says = FINE
    captured: bool = False
    deadline: float = 0.05
    asked: list[str] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=dict)

    def kept(self, answer: bytes = FINE, failed: str = "", seconds: float = 0.01) -> list[dict[str, Any]]:
        """The records of its pairs."""
        return asyncio.run(self._kept(answer, failed, seconds))

    async def _kept(self, answer: bytes, failed: str, seconds: float) -> list[dict[str, Any]]:
        test = TrafficComparison("test-1", CANDIDATE.digest, ACTIVE.digest, 1.0, CANDIDATE)
        mirroring = Mirroring(Place(str(self.folder)), (test,), deadline_seconds=self.deadline)
        route = Route("formula", ACTIVE, "http://up/v1", "", allowed, mirroring=mirroring)
        room, metrics, spool = Room(64 * MOST_BYTES), Metrics(), Spool()
        says = self.candidate if callable(self.candidate) else lambda: self.candidate
        upstream = Upstream(lambda rule: says() if rule == "candidate" else self.active_again)
        shadow = Shadow(upstream, spool, metrics, room)  # type: ignore[arg-type]
        sample = Sample(
            route,
            mirroring,
            ACTIVE,
            (test,),
            self.captured,
            "r",
            "/chat/completions",
            [],
            BODY,
            room.hold(sample=True),
        )
        assert shadow.begin(sample)
        for at in range(0, len(answer), 64 * 1024):
            shadow.hear(sample, answer[at : at + 64 * 1024])
        shadow.offer(sample, streamed=False, seconds=seconds, first_byte_seconds=seconds, failed=failed)
        await asyncio.gather(*shadow._tasks)
        assert room.taken == 0
        await spool.flush()
        self.asked = upstream.asked
        for outcome in ("Kept", "Shed", "Failed"):
            self.counts[outcome] = metrics.mirrored.labels("formula", outcome)._value.get()
        files = sorted(self.folder.glob("traffic/formula/**/*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


GONE = NoAnswerError("gone")
LONG = b"x" * (MOST_BYTES + 1)
LOST = [(400, "400"), (404, "404"), (500, "500"), (502, "502"), (TimeoutError(), TIMEOUT), (GONE, NO_ANSWER)]
LOST += [(LONG, TOO_LONG), (HALF, NO_ANSWER), (b"<html>", NO_ANSWER)]


@pytest.mark.parametrize(("says", "why"), LOST, ids=[why for _, why in LOST])
def test_what_the_candidate_does_not_answer_and_the_active_version_does_is_kept_as_that(
    tmp_path: Path, says: Says, why: str
) -> None:
    scene = Scene(tmp_path, says)
    (row,) = scene.kept()
    assert row["tested"]["failed"] == why and "answer" not in row["tested"]
    assert row["against"]["answer"]["content"] == "4"
    assert ("seconds" in row["tested"]) is (why == TIMEOUT), "a refusal is not a quick answer"
    assert scene.counts == {"Kept": 1, "Shed": 0, "Failed": 0}


@pytest.mark.parametrize("failed", ["400", "500", TIMEOUT, NO_ANSWER])
def test_what_the_active_version_does_not_answer_and_the_candidate_does_is_kept_as_that(
    tmp_path: Path, failed: str
) -> None:
    scene = Scene(tmp_path, FINE, active_again=TimeoutError(), captured=True)
    (row,) = scene.kept(b"{}", failed)
    assert row["against"]["failed"] == failed and row["tested"]["answer"]["content"] == "4"
    assert scene.counts["Kept"] == 1 and scene.counts["Failed"] == 1, "an error is not captured"


def test_both_have_the_same_time_and_the_same_length(tmp_path: Path) -> None:
    (late,) = Scene(tmp_path / "late", FINE, active_again=TimeoutError()).kept(seconds=1.0)
    assert late["against"]["failed"] == TIMEOUT and late["against"]["seconds"] == 1.0
    (long,) = Scene(tmp_path / "long", FINE).kept(LONG)
    assert long["against"]["failed"] == TOO_LONG


@pytest.mark.parametrize("says", [429, 503, 408])
def test_what_the_upstream_has_no_room_for_is_nobodys(tmp_path: Path, says: int) -> None:
    scene = Scene(tmp_path, says)
    assert scene.kept() == [] and scene.counts["Kept"] == 0


@pytest.mark.parametrize("again", [500, 503, TimeoutError(), GONE, HALF])
@pytest.mark.parametrize("says", [500, TimeoutError(), GONE])
def test_an_upstream_that_is_down_is_not_the_candidates_fault(
    tmp_path: Path, says: Says, again: Says
) -> None:
    scene = Scene(tmp_path, says, active_again=again)
    tries = 2 if isinstance(says, TimeoutError) else 1
    assert scene.kept() == [] and scene.asked == ["candidate"] * tries + ["active"]


def test_a_hang_of_the_upstream_that_is_over_speaks_for_nobody(tmp_path: Path) -> None:
    """All requests under way came late, so it is no merit of the candidate to be asked afterwards."""
    scene = Scene(tmp_path / "active", FINE)
    (row,) = scene.kept(seconds=290.0)
    assert scene.asked == ["active", "candidate"]
    assert row["against"]["answer"] == row["tested"]["answer"] and "seconds" not in row["against"]
    scene = Scene(tmp_path / "candidate", once_late())
    (row,) = scene.kept()
    assert scene.asked == ["candidate", "candidate"]
    assert row["tested"]["answer"] == row["against"]["answer"]
    assert row["tested"]["seconds"] >= scene.deadline, "its users would have waited so long"


def once_late() -> Callable[[], Says]:
    """Late the first time, and then well."""
    left: list[Says] = [TimeoutError()]
    return lambda: left.pop() if left else FINE


@pytest.mark.parametrize("failed", ["500", NO_ANSWER])
def test_what_the_upstream_failed_at_is_asked_of_the_candidate_at_once_or_not_at_all(
    tmp_path: Path, failed: str
) -> None:
    """An upstream that was away for a minute is well again when the queue comes to those requests."""
    asked, counts = asyncio.run(_crowded(tmp_path, ["", "", "", "", *[failed] * 20, "", "400"], at_once=8))
    assert sorted(asked[:8]) == [""] * 4 + [failed] * 4, "all eight are under way before one is answered"
    assert sorted(asked[8:]) == ["", "400"], "the others wait their turn"
    assert counts == {"Kept": 10, "Shed": 16}


async def _crowded(folder: Path, answers: list[str], at_once: int) -> tuple[list[str], dict[str, float]]:
    """Offer requests whose answers are all complete; return those that the candidate was asked, in order.

    The candidate answers none before it was asked ``at_once`` of them.
    """
    test = TrafficComparison("test-1", CANDIDATE.digest, ACTIVE.digest, 1.0, CANDIDATE)
    mirroring = Mirroring(Place(str(folder)), (test,), concurrency=4)
    route = Route("formula", ACTIVE, "http://up/v1", "", allowed, mirroring=mirroring)
    room, metrics = Room(10**9), Metrics()
    asked: list[str] = []
    all_asked = asyncio.Event()

    class Telling(Upstream):
        async def ask(self, method: str, url: str, headers: Any, key: str, body: bytes) -> Answer:
            asked.append(next(value for name, value in headers if name == b"x-failed").decode())
            if len(asked) == at_once:
                all_asked.set()
            await all_asked.wait()
            return await super().ask(method, url, headers, key, body)

    shadow = Shadow(Telling(lambda rule: FINE), Spool(), metrics, room)  # type: ignore[arg-type]
    for at, failed in enumerate(answers):
        about = (route, mirroring, ACTIVE, (test,), False, f"r{at}", "/chat/completions")
        sample = Sample(*about, [(b"x-failed", failed.encode())], BODY, room.hold(sample=True))
        assert shadow.begin(sample)
        shadow.hear(sample, FINE if not failed else b"{}")
        shadow.offer(sample, streamed=False, seconds=0.01, first_byte_seconds=0.01, failed=failed)
    while shadow._tasks:
        await asyncio.gather(*shadow._tasks)
    counts = {name: metrics.mirrored.labels("formula", name)._value.get() for name in ("Kept", "Shed")}
    return asked, counts


@pytest.mark.parametrize("says", [400, 500, TimeoutError(), GONE])
def test_what_neither_answers_is_no_pair(tmp_path: Path, says: Says) -> None:
    scene = Scene(tmp_path, says)
    assert scene.kept(b"{}", "400") == [] and scene.counts["Kept"] == 0
    assert scene.asked == ["candidate"]
