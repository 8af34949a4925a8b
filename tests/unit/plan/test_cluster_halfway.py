"""Runs that need more GPUs than there are: one waits for another, and none for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.plan.cluster.engines import halfway
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import EngineSeen, Seen, Trouble

NOWHERE = Trouble("Unschedulable", "finds no node")
USED = ("a", "b")


def seen(now: float, **engines: EngineSeen) -> Seen:
    return Seen(now=now, engines=engines)


def up(name: str) -> EngineSeen:
    return EngineSeen(name, 1, 1)


def nowhere(name: str) -> EngineSeen:
    return EngineSeen(name, 1, 0, NOWHERE)


def test_one_that_has_half_lets_go_after_a_while_and_tries_again() -> None:
    first = halfway("x", USED, Memory(), seen(100.0, a=up("a"), b=nowhere("b")))
    assert not first.let_go and first.wake_after_seconds is not None
    assert 15 <= first.wake_after_seconds <= 30 and first.memory.halfway_since == 100.0
    later = halfway("x", USED, first.memory, seen(161.0, a=up("a"), b=nowhere("b")))
    assert later.let_go and later.memory.let_goes == 1 and "let go" in later.message
    until = later.memory.let_go_until
    assert halfway("x", USED, later.memory, seen(until - 1)).let_go
    over = halfway("x", USED, later.memory, seen(until + 1))
    assert not over.let_go and over.memory.let_go_until == 0.0 and over.memory.let_goes == 1


@pytest.mark.parametrize(
    "engines",
    [
        {},
        {"a": up("a"), "b": up("b")},
        {"a": nowhere("a"), "b": nowhere("b")},
        {"a": up("a"), "b": EngineSeen("b", 1, 0)},
        {"a": up("a"), "b": EngineSeen("b", 1, 0, Trouble("ImagePullFailed", "no such image"))},
    ],
)
def test_whoever_holds_nothing_of_others_waits(engines: dict[str, EngineSeen]) -> None:
    memory = Memory(halfway_since=1.0)
    got = halfway("x", USED, memory, seen(1000.0, **engines))
    assert not got.let_go and got.memory.halfway_since == 0.0


def test_once_all_are_up_the_count_begins_anew() -> None:
    got = halfway("x", USED, Memory(let_goes=3), seen(5.0, a=up("a"), b=up("b")))
    assert got.memory.let_goes == 0


class World:
    """Some GPUs, and runs that need two each; a second is a tick, and a server starts within three."""

    def __init__(self, gpus: int, runs: int, order: list[int]) -> None:
        self.gpus, self.now, self.order = gpus, 0.0, order
        self.memories = [Memory() for _ in range(runs)]
        self.placed: list[dict[str, float]] = [{} for _ in range(runs)]
        self.works = [40.0] * runs

    def held(self) -> int:
        return sum(map(len, self.placed))

    def tick(self) -> None:
        self.now += 1.0
        for run in (self.order[int(self.now) % len(self.order)], *range(len(self.memories))):
            if self.works[run] <= 0:
                self.placed[run] = {}
                continue
            engines = {
                name: EngineSeen(name, 1, int(self.now - self.placed[run][name] > 3))
                if name in self.placed[run]
                else nowhere(name)
                for name in USED
            }
            got = halfway(f"run-{run}", USED, self.memories[run], seen(self.now, **engines))
            self.memories[run] = got.memory
            if got.let_go:
                self.placed[run] = {}
                continue
            for name in USED:
                if name not in self.placed[run] and self.held() < self.gpus:
                    self.placed[run][name] = self.now
                    break
        for run, placed in enumerate(self.placed):
            if len(placed) == 2 and all(self.now - since > 3 for since in placed.values()):
                self.works[run] -= 1.0


@settings(max_examples=60, deadline=None)
@given(
    gpus=st.integers(2, 4),
    runs=st.integers(2, 4),
    order=st.lists(st.integers(0, 1), min_size=1, max_size=5),
)
def test_runs_that_share_too_few_gpus_all_end(gpus: int, runs: int, order: list[int]) -> None:
    world = World(gpus, runs, order)
    for _ in range(3_600):
        world.tick()
        if all(left <= 0 for left in world.works):
            break
    assert all(left <= 0 for left in world.works), (world.works, world.placed)


def test_without_letting_go_two_runs_would_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("combee.plan.cluster.engines.PATIENCE_SECONDS", 1e9)
    world = World(2, 2, [0, 1])
    for _ in range(600):
        world.tick()
    assert world.works == [40.0, 40.0] and world.held() == 2
    assert replace(world.memories[0]).let_goes == 0
