"""The bookkeeping of a Job that judges: from the spool, through the judge, into ConfigMaps, then deleted.

Of the pairs whose conversations begin with the same words, and of those of one cluster, only one counts: they
are no independent evidence. Which one that is, is written beside the pairs before anybody knows its outcome.

An object of the spool is deleted once all of its pairs are in ConfigMaps that the API server has, or are
given up. If the Job is killed before that, the next one reads it again: its calls are in the memo, and a pair
that is handed in twice counts once, since (stream, number) is its identity.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from combee.algo.tally import REPEATED, UNJUDGED, LeftOut, Pair
from combee.names import traffic_folder
from combee.plan.playbook.judging import JudgeTask
from combee.work.judge import Key, Sampled, Unjudged, claims, read_samples, roots_of
from combee.work.traffic.sweeping import TrafficStore
from combee.work.traffic.sweeping import written as stated_time

BATCH_PAIRS = 100
"""How many pairs are judged together: at most so many verdicts are on their way into a ConfigMap."""
MOST_IN_CONFIG_MAP = 200
GIVE_UP_SECONDS = 3600.0
"""A pair whose calls still fail this long after it was kept is left out."""

Outcome = Pair | Unjudged


@dataclass(slots=True)
class Judging:
    """The pairs of one comparison."""

    task: JudgeTask
    spool: TrafficStore
    judge: Callable[[Sequence[Sampled]], Awaitable[Sequence[Outcome]]]
    publish: Callable[..., Awaitable[None]]
    """takes pairs and requests that are left out; returns when they are where the operator finds them."""
    clock: Callable[[], float] = time.time
    counts: Counter[str] = field(default_factory=Counter)
    """the numbers of judged, failed (given up), unreadable, repeated and left (for another time)."""
    _roots: dict[str, Key] | None = None
    """conversation or cluster -> its pair that counts."""
    _left: set[str] = field(default_factory=set)

    @property
    def folder(self) -> str:
        """Where the pairs wait."""
        return traffic_folder(self.task.playbook, self.task.test)

    async def once(self) -> bool:
        """Judge the oldest waiting pairs, about BATCH_PAIRS; return False when nothing waits."""
        held = await self._oldest()
        if not held:
            return False
        waiting = {(s.stream, s.number): s for samples in held.values() for s in samples}
        todo = [sample for key, sample in sorted(waiting.items()) if not self.task.has(*key)]
        todo, repeated = await self._one_of_each(todo)
        outcomes = {(outcome.stream, outcome.number): outcome for outcome in await self.judge(todo)}
        pairs = [outcome for outcome in outcomes.values() if isinstance(outcome, Pair)]
        for at in range(0, len(pairs), MOST_IN_CONFIG_MAP):
            await self.publish(pairs[at : at + MOST_IN_CONFIG_MAP])
        await self._leave_out(repeated)
        self.counts["judged"] += len(pairs)
        for path, samples in held.items():
            await self._done(path, [outcomes.get((s.stream, s.number)) for s in samples])
        return True

    async def _leave_out(self, requests: Sequence[LeftOut]) -> None:
        for at in range(0, len(requests), MOST_IN_CONFIG_MAP):
            await self.publish((), requests[at : at + MOST_IN_CONFIG_MAP])

    async def _one_of_each(self, samples: Sequence[Sampled]) -> tuple[list[Sampled], list[LeftOut]]:
        """Return those of ``samples`` that count, and those of conversations or clusters that have their
        pair."""
        folder = f"{traffic_folder(self.task.playbook)}/roots/{self.task.test}"
        if self._roots is None:
            self._roots = {}
            for path in oldest_first(await self.spool.alist(folder)):
                for line in (await self.spool.aget(path) or b"").decode("utf-8", "replace").splitlines():
                    root, number, stream = (*line.split(" ", 2), "", "")[:3]
                    if number.isdigit():
                        self._roots.setdefault(root, (stream, int(number)))
        holders = dict(self._roots)
        chosen, repeated = [], []
        for sample in samples:
            key = sample.stream, sample.number
            if claims(holders, roots_of(self.task.test, sample.request), key):
                chosen.append(sample)
            else:
                repeated.append(LeftOut(*key, REPEATED))
        if taken := {root: key for root, key in holders.items() if root not in self._roots}:
            lines = "".join(
                f"{root} {number} {stream}\n" for root, (stream, number) in taken.items()
            ).encode()
            name = f"{int(self.clock())}-{hashlib.sha256(lines).hexdigest()[:12]}.txt"
            await self.spool.aput(f"{folder}/{name}", lines)
            self._roots |= taken
        self.counts["repeated"] += len(repeated)
        return chosen, repeated

    async def waiting(self) -> list[str]:
        """Return the objects of the comparison, oldest first, except those that are left for another Job."""
        return [path for path in oldest_first(await self.spool.alist(self.folder)) if path not in self._left]

    async def _oldest(self) -> dict[str, list[Sampled]]:
        held: dict[str, list[Sampled]] = {}
        size = 0
        for path in await self.waiting():
            data = await self.spool.aget(path)
            if data is None:
                continue  # its retention is over, and it is gone
            held[path], bad = read_samples(data, self.task.test)
            self.counts["unreadable"] += bad
            size += len(held[path])
            if size >= BATCH_PAIRS:
                break
        return held

    async def _done(self, path: str, outcomes: Iterable[Outcome | None]) -> None:
        """Delete an object whose pairs are all told or given up; else leave it for another time. Those given
        up are told, too, since it may depend on the version whether its answer can be judged."""
        unjudged = [outcome for outcome in outcomes if isinstance(outcome, Unjudged)]
        passing = any(outcome.passing for outcome in unjudged)
        if passing and self.clock() - written(path) < GIVE_UP_SECONDS:
            self._left.add(path)
            self.counts["left"] += 1
            return
        await self._leave_out([LeftOut(pair.stream, pair.number, UNJUDGED) for pair in unjudged])
        await asyncio.to_thread(self.spool.delete, path)
        self.counts["failed"] += len(unjudged)


def written(path: str) -> float:
    """Return when an object of the spool was written, in seconds since 1970; 0 if its name does not say."""
    return stated_time(path) or 0.0


def oldest_first(paths: Iterable[str]) -> list[str]:
    """Sort objects of the spool by when they were written, then by name."""
    return sorted(paths, key=lambda path: (written(path), path))
