"""The clock of a run goes on over its sessions, and a kill takes nothing away."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from combee.assembly.folder import RunFolder
from combee.assembly.identity import RunIdentity
from combee.errors import StoreError
from combee.local.clock import BEAT_SECONDS, RunClock
from combee.plan.types import StepSummary
from waiting import until


class Paper:
    """Where seconds are written down, in memory."""

    written = (0.0, True)

    def seconds(self) -> tuple[float, bool]:
        return self.written

    def keep_seconds(self, seconds: float, *, ended: bool) -> None:
        self.written = seconds, ended


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=30))
def test_what_is_remembered_is_never_less_than_what_passed_and_a_beat_a_kill_more(
    sessions: list[tuple[float, bool]],
) -> None:
    paper, passed, kills, now = Paper(), 0.0, 0, [0.0]
    for seconds, killed in sessions:
        clock = RunClock(paper, lambda: now[0])
        paper.keep_seconds(clock(), ended=False)
        for _ in range(int(seconds // BEAT_SECONDS)):
            now[0] += BEAT_SECONDS
            paper.keep_seconds(clock(), ended=False)
        now[0] += seconds % BEAT_SECONDS
        if not killed:
            clock.stop()
        passed, kills = passed + seconds, kills + killed
        remembered = RunClock(paper, lambda: now[0])()
        assert passed - 1e-6 <= remembered <= passed + kills * BEAT_SECONDS + 1e-6


async def test_the_beat_writes_at_once_and_again() -> None:
    paper = Paper()
    beating = asyncio.ensure_future(RunClock(paper, lambda: 7.0).beat())
    await until(lambda: paper.written == (0.0, False))
    beating.cancel()


NO_CLOCKS = [f'{{"seconds": {n}, "ended": true}}' for n in ("NaN", "1e999", "1" + "0" * 400, "true", '"1"')]


def test_a_folder_keeps_them_and_one_of_an_earlier_version_knows_its_steps(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path / "out", RunIdentity("r", "d" * 64, {}))
    assert folder.seconds() == (0.0, True)
    folder.keep(StepSummary("a", "profile", seconds={"wall": 5.0}))
    folder.keep(StepSummary("b", "map", seconds={"wall": 2.0}))
    folder.keep(StepSummary("c", "finish", seconds={"wall": 3.0}))
    assert folder.seconds() == (8.0, True), "finish sums up the steps of its iteration"
    folder.keep_seconds(9.25, ended=False)
    assert folder.seconds() == (9.25, False)
    for damaged in ("damaged", "[" * 100_000, *NO_CLOCKS):
        (tmp_path / "out" / "clock.json").write_text(damaged)
        assert folder.seconds() == (8.0, True), damaged[:40]
    folder.close()


async def test_a_disk_that_was_full_once_is_written_to_again_and_nothing_after_the_end() -> None:
    class Full(Paper):
        tries = 0

        def keep_seconds(self, seconds: float, *, ended: bool) -> None:
            self.tries += 1
            if self.tries == 1:
                raise StoreError("the disk is full", where="here")
            super().keep_seconds(seconds, ended=ended)

    paper, now = Full(), [0.0]
    clock = RunClock(paper, lambda: now[0])
    for moment in (1.0, 2.0):
        now[0] = moment
        beat = asyncio.create_task(clock.beat())
        await until(lambda tries=paper.tries: paper.tries > tries)
        beat.cancel()
    assert paper.written == (2.0, False)
    clock.stop()
    tries = paper.tries
    late = asyncio.create_task(clock.beat())
    await asyncio.sleep(0)
    late.cancel()
    clock.stop()
    assert paper.written == (2.0, True) and paper.tries == tries
