"""Two runs that each hold half of the GPUs that both need: one lets go, so that neither waits for ever. Pure.

A run with several engines gets them one by one. Where some found a node and others do not, it waits a while and then
scales all of them to 0 for a pause. How long differs from run to run and from time to time, so that two of them do
not take turns in step; whoever is still waiting then finds what the other let go.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import EngineSeen, Seen

PATIENCE_SECONDS = 15.0
SPREAD_SECONDS = 15.0
PAUSE_SECONDS = 20.0
LONGEST_PAUSE_SECONDS = 600.0
UNPLACED = ("Unschedulable", "WaitingForQuota")


@dataclass(frozen=True, slots=True)
class Halfway:
    """Whether the engines are to be let go of for now. ``said`` is for people; empty while nothing is wrong."""

    memory: Memory
    let_go: bool = False
    wake_after_seconds: float | None = None
    said: str = ""


def halfway(uid: str, used: tuple[str, ...], memory: Memory, seen: Seen) -> Halfway:
    """What to do about engines of which some have a node and others have none."""
    if memory.let_go_until:
        left = memory.let_go_until - seen.now
        if left > 0:
            return Halfway(memory, True, left, _SAID)
        memory = replace(memory, let_go_until=0.0, halfway_since=0.0)
    stuck = [name for name in used if _stuck(seen.engines.get(name))]
    if not stuck or len(stuck) == len(used):
        ready = all(name in seen.engines and seen.engines[name].ready for name in used)
        return Halfway(replace(memory, halfway_since=0.0, let_goes=0 if ready else memory.let_goes))
    since = memory.halfway_since or seen.now
    memory = replace(memory, halfway_since=since)
    left = PATIENCE_SECONDS + SPREAD_SECONDS * _luck(uid, memory.let_goes, "patience") - (seen.now - since)
    if left > 0:
        return Halfway(memory, wake_after_seconds=left)
    pause = _pause(uid, memory.let_goes)
    memory = replace(memory, halfway_since=0.0, let_go_until=seen.now + pause, let_goes=memory.let_goes + 1)
    return Halfway(memory, True, pause, _SAID)


_SAID = "some engines find no node while others hold theirs: all are let go for a while, so that another run's can come up"


def _stuck(engine: EngineSeen | None) -> bool:
    return (
        engine is not None
        and engine.replicas > 0
        and engine.ready == 0
        and engine.trouble is not None
        and engine.trouble.reason in UNPLACED
    )


def _pause(uid: str, times: int) -> float:
    """Longer each time, since whoever got the GPUs needs them for longer than a pause."""
    longest = min(LONGEST_PAUSE_SECONDS, PAUSE_SECONDS * 2.0 ** min(times + 1, 10))
    return PAUSE_SECONDS + (longest - PAUSE_SECONDS) * _luck(uid, times, "pause")


def _luck(uid: str, times: int, what: str) -> float:
    """Uniform in [0, 1), the same whenever it is asked."""
    digest = hashlib.sha256(f"{uid}:{times}:{what}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / float(1 << 48)
