"""What becomes of kept traffic, as a table: the Jobs of one store, and what the plan does with them."""

from __future__ import annotations

import pytest

from combee.api.stores import Store, default_store
from combee.plan.sweep import (
    MARGIN_SECONDS,
    SLOT_SECONDS,
    Kept,
    Memory,
    SweepJob,
    SweepPlan,
    SweepSeen,
    SweepStart,
    decide_sweep,
)

NOW = 1_000 * SLOT_SECONDS + 100.0
DAY = 86_400.0
STORE = default_store()
TENDED = Memory(STORE, (Kept("formula", DAY, tended=True),))
REPLAYED = Memory(STORE, (Kept("formula", DAY),))
ENDING = Memory(STORE, (Kept("formula", DAY, until=NOW + DAY),))
CLAIM = STORE.pvc.claim_name if STORE.pvc else ""


def job(memory: Memory, *, age: float = 0.0, complete: bool = False, over: bool = False) -> SweepJob:
    return SweepJob(
        f"sweep-{age:g}", f"uid-{age:g}", NOW - age, memory, complete=complete, over=over or complete
    )


def live(memory: Memory) -> dict[str, Memory]:
    return {memory.key: memory}


RUNNING, DONE_BEFORE = job(ENDING), job(ENDING, age=SLOT_SECONDS, complete=True)
SUSPENDED = job(TENDED, age=SLOT_SECONDS, over=True)
LEFT = Memory(STORE, (Kept("formula", DAY, until=round(NOW + DAY + MARGIN_SECONDS)),))

CASES = {
    "nothing is kept": (SweepSeen(), SweepPlan()),
    "a first Playbook keeps": (
        SweepSeen(live=live(TENDED)),
        SweepPlan(start=(SweepStart(TENDED),), keeps=True),
    ),
    "a gateway still tends it": (SweepSeen((SUSPENDED,), live(TENDED)), SweepPlan(keeps=True)),
    "its gateway was turned off": (
        SweepSeen((SUSPENDED,)),
        SweepPlan(start=(SweepStart(LEFT, replaces=(SUSPENDED,)),), keeps=True),
    ),
    "the Playbook cannot be read": (
        SweepSeen((SUSPENDED,), unread=frozenset({"formula"})),
        SweepPlan(keeps=True),
    ),
    "a sweep is at work": (SweepSeen((RUNNING,)), SweepPlan(keeps=True)),
    "it is time for the next sweep": (
        SweepSeen((DONE_BEFORE,)),
        SweepPlan(start=(SweepStart(ENDING, replaces=(DONE_BEFORE,)),), keeps=True),
    ),
    "an older Job was left behind": (
        SweepSeen((DONE_BEFORE, RUNNING)),
        SweepPlan(delete=(DONE_BEFORE,), keeps=True),
    ),
    "the claim is gone": (
        SweepSeen((RUNNING,), lost_claims=frozenset({CLAIM})),
        SweepPlan(delete=(RUNNING,)),
    ),
    "replays are kept for another time": (
        SweepSeen((job(TENDED),), live(REPLAYED)),
        SweepPlan(note=((job(TENDED), REPLAYED),), keeps=True),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_store_is_swept_as_the_table_says(case: str) -> None:
    seen, plan = CASES[case]
    assert decide_sweep(seen, NOW) == plan


def test_a_swept_store_is_forgotten_once_all_is_over() -> None:
    over = Memory(STORE, (Kept("formula", DAY, until=NOW - 60),))
    swept = job(over, age=30, complete=True)
    assert decide_sweep(SweepSeen((swept,)), NOW) == SweepPlan(delete=(swept,))


def test_stores_do_not_mix() -> None:
    other = Memory(Store(uri="s3://bucket/x"), (Kept("other", DAY, tended=True),))
    plan = decide_sweep(SweepSeen((RUNNING,), live(other)), NOW)
    assert plan == SweepPlan(start=(SweepStart(other),), keeps=True)
