"""Rollouts by a program of the user's own, as the memo, the budget and the call graph count them.

In all accounts a rollout is one call of the task model, whatever it asked meanwhile: its tokens are the sum,
its seconds its own. A good one is remembered by everything that went in; a failed one never is.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

from combee.api.sampling import DEFAULT, Sampling
from combee.clients.model.proxy import ModelProxy, Visit
from combee.clients.model.wire import Answered, CallRecord, Completion, Endpoint, canonical_digest
from combee.errors import BugError, CombeeError, RolloutError
from combee.records import Example, Shown
from combee.tasks.container import may_be_tried_again
from combee.tasks.traces import Recording, decode
from combee.work.asker import LOSSES, Asker, fate_of
from combee.work.context import Accounts
from combee.work.noted import LostCall

ROLE = "task"


@dataclass(frozen=True, slots=True)
class Rollout:
    """A rollout to make. ``reflected``: whether it will be reflected on, and not only scored; ``sampling`` is
    that of the calls that say nothing of it."""

    example: Example
    shown: Shown
    ordinal: int
    reflected: bool
    sampling: Sampling = DEFAULT


@dataclass(slots=True, kw_only=True)
class ProgramRunner(ABC):
    """Implements ``work.context.Runner`` on ``attempt`` and ``recording``."""

    endpoint: Endpoint
    """the endpoint of the task model, which is part of what a rollout is remembered by."""
    sampling: Sampling
    proxy: ModelProxy
    accounts: Accounts
    at_once: int = 0
    """the most rollouts of this process at once; 0 means as many as the whole run may have."""
    slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.slots = asyncio.Semaphore(self.at_once or self.concurrency)

    @property
    @abstractmethod
    def concurrency(self) -> int:
        """The most rollouts of the whole run at once."""

    @property
    @abstractmethod
    def attempts(self) -> int:
        """How often a rollout is tried when its program dies."""

    @abstractmethod
    async def identity(self, rollout: Rollout) -> dict[str, Any]:
        """Return what a rollout is remembered by, besides its model, example and ordinal."""

    @abstractmethod
    async def attempt(self, rollout: Rollout, visits: list[Visit]) -> tuple[Any, float]:
        """Return how the program ended, and its seconds. Its visit is put into ``visits`` as it begins."""

    @abstractmethod
    def recording(self, rollout: Rollout, end: Any) -> Recording:
        """Return the recording in what ``attempt`` returned. Raises RolloutError for a program's faults."""

    async def _digest(self, rollout: Rollout) -> str:
        """Return the digest of all that goes into a rollout."""
        endpoint, sampling = self.endpoint, rollout.sampling
        decoding = [sampling.temperature, sampling.top_p, *([sampling.stated] if sampling.stated else [])]
        common = {
            "v": 1,
            "model": [endpoint.model, endpoint.revision, list(endpoint.engine_args), decoding],
            "example": [rollout.example.id, rollout.example.digest],
            "ordinal": rollout.ordinal,
        }
        return canonical_digest(common | await self.identity(rollout))

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
        least_temperature: float = 0.0,
    ) -> Recording:
        """Return what was done. Raises RolloutError (the program's fault) or TransientError (the model's)."""
        asker.begin(stage)
        visits: list[Visit] = []
        rollout = Rollout(example, shown, ordinal, reflected, self.sampling.warmed(least_temperature))
        key = await self._digest(rollout)
        try:
            answered = await self.accounts.memo.once(
                key, lambda: self._charged(rollout, visits), slot=self.slots
            )
        except CombeeError as error:
            used = error.used if isinstance(error.used, Completion) else None
            if visits:
                faults = (error.code,) if isinstance(error, RolloutError) else ()
                used = completion_of("", visits, 0.0, faults)
            if isinstance(error, LOSSES):
                asker.lost[fate_of(error)] += 1
                asker.notes.lost.append(LostCall.of(key, error, used))
            if used is not None:
                asker.record(ROLE, stage, chain, Answered(used, hit=False))
            if isinstance(error, RolloutError):
                await self._explain(error)
            raise
        if answered.hit:
            self.accounts.budget.recall(ROLE)
            self.accounts.on_call(CallRecord.of(ROLE, answered.completion, hit=True))
        asker.record(ROLE, stage, chain, answered)
        return decode(answered.completion.text.encode())

    async def _explain(self, error: RolloutError) -> None:
        """Keep the first failure of its kind in the store, since it may quote a row, and say where it is."""
        path = f"{self.accounts.prefix}/rollouts/{error.code}.txt"
        await self.accounts.store.aput_new(path, f"{error}\n".encode(errors="replace"))
        self.accounts.progress.note(
            f"a rollout failed ({error.code}): {error.fix}; the first one's last words: store/{path}"
        )

    async def _charged(self, rollout: Rollout, visits: list[Visit]) -> Completion:
        hold, error, sent = self.accounts.budget.hold(ROLE, 0, 0), "", True
        try:
            return await self._tried(rollout, visits)
        except CombeeError as failed:
            error, sent = failed.code, bool(visits)
            raise
        except asyncio.CancelledError:
            error, sent = "Cancelled", False
            raise
        finally:
            hold.release()
            # The accounts were told of its calls as those were made: without tokens, it is one rollout.
            self.accounts.on_call(replace(CallRecord.of(ROLE, None, hit=False, error=error), sent=sent))

    async def _tried(self, rollout: Rollout, visits: list[Visit]) -> Completion:
        """Return the rollout with its recording as the text. One that died is tried again, up to ``attempts``
        times in all."""
        faults: list[str] = []
        for attempt in range(1, self.attempts + 1):
            end, seconds = await self.attempt(rollout, visits)
            if (lost := visits[-1].lost) is not None:
                raise lost
            try:
                recording = self.recording(rollout, end)
            except RolloutError as error:
                if attempt < self.attempts and may_be_tried_again(error):
                    faults.append(error.code)
                    continue
                raise
            return completion_of(recording.encode().decode(), visits, seconds, tuple(faults))
        raise BugError("a rollout is tried at least once")


def completion_of(text: str, visits: list[Visit], seconds: float, faults: tuple[str, ...] = ()) -> Completion:
    """Return a rollout as one call. ``faults``: how its earlier attempts misbehaved."""
    return Completion(
        text=text,
        prompt_tokens=sum(visit.prompt_tokens for visit in visits),
        completion_tokens=sum(visit.completion_tokens for visit in visits),
        cached_tokens=sum(visit.cached_tokens for visit in visits),
        lost_tokens=sum(visit.lost_tokens for visit in visits),
        latency_seconds=seconds,
        finish_reason="stop",
        attempts=len(visits),
        retried_for=faults,
    )
