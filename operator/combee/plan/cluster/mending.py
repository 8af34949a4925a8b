"""Which step is done again because a file that it left in the store is damaged. Pure.

The pod that meets such a file says which step wrote it. That step's next attempt makes the file again from
the memo; then the steps that read it have theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from combee.api.run import RunSpec
from combee.errors import DamagedError
from combee.names import step_name
from combee.plan.cluster.engines import deadline
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import Seen
from combee.plan.decide import Identity
from combee.plan.types import DAMAGED_FILE, STEP_LEFT, WRITER, Outcome, Step, StepSummary
from combee.steps import ITERATION, KINDS, PROFILE

MAX_MENDED = 5
"""How often a damaged file of a run's store leads to a step that is done again: a store that damages more is
not to be relied on. One that is met again, since another kept it from being made, counts again."""
_STEP = re.compile(r"-i(\d{3,9})-([a-z]+)-a0")

Summaries = Mapping[str, StepSummary]


def met_damage(who: Identity, seed: int, memory: Memory, seen: Seen, summaries: Summaries) -> Memory:
    """Return the memory with the next attempts of a step whose file is damaged and of those that read it. It
    is unchanged where no step met one, or where the one that wrote it is not to be done again."""
    met = next((one for one in summaries.values() if one.error == DamagedError.code), None)
    writer = "" if met is None else met.outputs.get(WRITER, "")
    if met is None or memory.mended >= MAX_MENDED:
        return memory
    current = {step_name(who.name, who.uid, memory.run.iteration, kind.name) for kind in ITERATION}
    if writer not in current and step_again(who, seed, memory, writer) is None:
        return memory
    readers = current if met.step in current else {met.step}
    latest = {writer: memory.attempt(writer)}
    for job in seen.jobs.values():
        if job.step in readers | {writer}:
            latest[job.step] = max(latest.get(job.step, 0), job.attempt)
    for name, attempt in latest.items():
        memory = replace(memory, attempts={**memory.attempts, name: attempt}).again(name, in_turn=True)
    return replace(
        memory,
        mending="" if writer in current else writer,
        damaged=met.outputs.get(DAMAGED_FILE, ""),
        mended=memory.mended + 1,
    )


def step_again(who: Identity, seed: int, memory: Memory, name: str) -> Step | None:
    """Return a step of which the results are settled, as it was; None for one that is not known any more."""
    match = _STEP.search(name)
    kind, iteration = (match[2], int(match[1])) if match else ("", 0)
    if kind not in KINDS or name != step_name(who.name, who.uid, iteration, kind):
        return None
    if KINDS[kind].opens:
        return Step(name, kind, 0, seed)
    notes = {note.iteration: note.artifact for note in memory.notes}
    before = notes.get(iteration - 1, "") if iteration else memory.baseline
    if not KINDS[kind].sums_up or iteration not in notes or not before:
        return None
    inputs = {one: step_name(who.name, who.uid, iteration, one) for one in KINDS[kind].waits_for}
    inputs |= {PROFILE.name: step_name(who.name, who.uid, 0, PROFILE.name), "artifact": before}
    return Step(name, kind, iteration, seed, inputs=inputs)


def asks_nobody(memory: Memory) -> bool:
    """Return whether the step that is done again finds all answers in the memo. One without its receipt is
    done as if for the first time, and one that failed may have lost its receipt, too."""
    by_memo = bool(memory.damaged) and not memory.damaged.endswith(STEP_LEFT)
    return by_memo and memory.mending not in memory.failures


def mended(spec: RunSpec, memory: Memory, summaries: Summaries, now: float) -> tuple[Memory, Outcome | None]:
    """Return the memory once the file is made again, and why the run ends where it cannot be, or the time is
    up meanwhile: what is only to be published has all the time."""
    summary = summaries.get(memory.mending)
    if summary is None:
        learning = memory.mending and memory.run.outcome is None
        return memory, deadline(spec, memory, now).passed if learning else None
    if summary.error:
        return replace(memory, error=summary.error), Outcome("Failed", summary.message)
    return replace(memory, mending=""), None
