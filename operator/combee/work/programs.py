"""Rollouts by a program of the user's own, in the accounts: the memo, the budget, the call graph.

A rollout is one call of the task model in all accounts, whatever it asked meanwhile: its tokens are the sum, its
seconds its own. Good ones are remembered by all that went in; a failed one never is.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from combee.clients.model.memo import Memo
from combee.clients.model.proxy import ModelProxy, Visit
from combee.clients.model.wire import (
    Answered,
    Budget,
    CallRecord,
    Completion,
    Endpoint,
    OnCall,
    canonical_digest,
)
from combee.clients.store.store import Store
from combee.errors import CombeeError, RolloutError
from combee.records import Example, Shown
from combee.tasks.container import may_be_tried_again
from combee.tasks.traces import Recording, decode
from combee.work.asker import LOSSES, Asker
from combee.work.context import Progress

ROLE = "task"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A rollout to be made. ``reflected``: it will be reflected on, not only scored."""

    example: Example
    shown: Shown
    ordinal: int
    reflected: bool


@dataclass(slots=True, kw_only=True)
class ProgramRunner(ABC):
    """Implements ``work.context.Runner`` for what ``once`` does."""

    endpoint: Endpoint
    """of the task model: part of what a rollout is remembered by."""
    sampling: tuple[float, float]
    proxy: ModelProxy
    store: Store
    prefix: str
    """the run's folder in the store."""
    budget: Budget
    on_call: OnCall
    progress: Progress
    at_once: int = 0
    """rollouts of this process; 0: as many as the whole run may have."""
    memo: Memo = field(init=False)
    slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.memo = Memo(self.store)
        self.slots = asyncio.Semaphore(self.at_once or self.concurrency)

    @property
    @abstractmethod
    def concurrency(self) -> int:
        """Rollouts at once, of the whole run."""

    @abstractmethod
    async def identity(self, wanted: Wanted) -> dict[str, Any]:
        """All that goes into a rollout: what it is remembered by."""

    @property
    @abstractmethod
    def attempts(self) -> int:
        """How often a rollout is tried that dies."""

    @abstractmethod
    async def once(self, wanted: Wanted, used: list[Visit]) -> tuple[Recording, float]:
        """One attempt, and its seconds; ``used`` gets its visit to the model. RolloutError when it misbehaved."""

    async def tried(self, wanted: Wanted, used: list[Visit]) -> Completion:
        """The rollout, its recording as the text, after so many attempts as it takes one not to die."""
        faults: list[str] = []
        while True:
            try:
                recording, seconds = await self.once(wanted, used)
            except RolloutError as error:
                if len(faults) + 1 >= self.attempts or not may_be_tried_again(error):
                    raise
                faults.append(error.code)
            else:
                return completion_of(recording.encode().decode(), used, seconds, tuple(faults))

    @property
    def model_identity(self) -> list[Any]:
        """The part of ``identity`` that is the model."""
        endpoint = self.endpoint
        return [endpoint.model, endpoint.revision, list(endpoint.engine_args), list(self.sampling)]

    async def run(
        self,
        asker: Asker,
        example: Example,
        shown: Shown,
        *,
        stage: str,
        chain: int,
        ordinal: int,
        reflected: bool = False,
    ) -> Recording:
        """What was done. RolloutError when the user's program misbehaved, TransientError when the model did."""
        asker.begin(stage)
        used: list[Visit] = []
        try:
            wanted = Wanted(example, shown, ordinal, reflected)
            answered = await self.memo.once(
                canonical_digest(await self.identity(wanted)),
                lambda: self._made(wanted, used),
                slot=self.slots,
            )
        except CombeeError as error:
            asker.lost += isinstance(error, LOSSES)
            if used:
                met = (error.code,) if isinstance(error, RolloutError) else ()
                asker.record(ROLE, stage, chain, Answered(completion_of("", used, 0.0, met), hit=False))
            if isinstance(error, RolloutError):
                await self._explain(error)
            raise
        done = answered.completion
        asker.record(ROLE, stage, chain, answered)
        self._settle(done if answered.hit else None, hit=answered.hit)
        return decode(done.text.encode())

    async def _explain(self, error: RolloutError) -> None:
        """Keep the first failure of its kind in the store, last words and all, and say where: they may quote a row."""
        path = f"{self.prefix}/rollouts/{error.code}.txt"
        await self.store.aput_new(path, f"{error}\n".encode(errors="replace"))
        self.progress.note(
            f"a rollout failed ({error.code}): {error.fix}; the first one's last words: store/{path}"
        )

    async def _made(self, wanted: Wanted, used: list[Visit]) -> Completion:
        self.budget(1, 1)
        error = ""
        try:
            return await self.tried(wanted, used)
        except CombeeError as failed:
            error = failed.code
            raise
        except asyncio.CancelledError:
            error = "Cancelled"
            raise
        finally:
            if error:
                self._settle(None, hit=False, error=error)

    def _settle(self, done: Completion | None, *, hit: bool, error: str = "") -> None:
        """Tell the accounts of one rollout. The calls of one that was made were told as they came."""
        self.on_call(
            CallRecord(
                role=ROLE,
                started=0.0,
                seconds=done.latency_seconds if done else 0.0,
                queued_seconds=0.0,
                prompt_tokens=done.prompt_tokens if done else 0,
                completion_tokens=done.completion_tokens if done else 0,
                cached_tokens=done.cached_tokens if done else 0,
                hit=hit,
                attempts=1,
                planned_tokens=0 if hit else 1,
                error=error,
            )
        )


def completion_of(text: str, visits: list[Visit], seconds: float, met: tuple[str, ...] = ()) -> Completion:
    """A rollout as one call. ``met``: how it misbehaved on the way."""
    return Completion(
        text=text,
        prompt_tokens=sum(visit.prompt_tokens for visit in visits),
        completion_tokens=sum(visit.completion_tokens for visit in visits),
        cached_tokens=sum(visit.cached_tokens for visit in visits),
        latency_seconds=seconds,
        finish_reason="stop",
        attempts=len(visits),
        retried_for=met,
    )
