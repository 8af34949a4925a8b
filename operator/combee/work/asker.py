"""One step's way to its models: it charges, records the call graph, parses, and repairs once.

A call belongs to a *stage* (stages are barriers, in order) and in it to a *chain* (calls of one
chain follow each other). From these and the recorded latencies the critical path of a step and its
modelled time are computed, with no clock: a call answered from the memo is charged the tokens and
the latency that were recorded when it was made.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TypeVar

from combee.algo.schedule import list_schedule
from combee.clients.model.chat import Answered, ChatClient, ChatRequest
from combee.errors import BugError, ContextLengthError, EndpointError, RolloutError, TransientError
from combee.methods.protocol import ParseError
from combee.methods.replies import repair_prompt
from combee.plan.types import RoleUsage
from combee.records import Prompt

Parsed = TypeVar("Parsed")

LOSSES = (ContextLengthError, TransientError, ParseError, RolloutError)
"""What one example may die of without taking the step with it. It counts as wrong, stays in the
denominator, and is not remembered: the same call is made again when it is asked for again."""

REPAIR_ROUNDS = 3

_OBJECT = re.compile(r'\{\s*"')
_DECODER = json.JSONDecoder()


@dataclass(slots=True)
class CallRow:
    """One answered call, as recorded."""

    role: str
    stage: str
    chain: int
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    hit: bool
    attempts: int
    retried_for: tuple[str, ...] = ()
    """why it was asked again, one word an attempt."""
    hedged: bool = False
    """whether a second request raced it."""
    limits: tuple[tuple[int, int, int, str], ...] = ()
    """how the role's concurrency changed with it: (answers so far, from, to, why)."""


@dataclass(slots=True)
class Asker:
    """Asks models for one step. Not shared between steps: its rows are the step's call graph."""

    clients: Mapping[str, ChatClient]
    samplings: Mapping[str, tuple[float, float]]
    """role -> (temperature, top_p)."""
    rows: list[CallRow] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)
    estimated_tokens: int = 0
    repaired: int = 0
    lost: int = 0
    """asks that ended without an answer that could be used; their work counts as failed."""

    async def ask(
        self,
        role: str,
        prompt: Prompt,
        parse: Callable[[str], Parsed],
        *,
        stage: str,
        chain: int,
        ordinal: int = 0,
    ) -> Parsed:
        """The parsed answer. Raises ParseError when three repair rounds did not help, and the errors
        of ``ChatClient.ask`` untouched; what only concerns this ask (``LOSSES``) is counted.

        What a tolerant parser reads out of broken JSON is a guess: it is asked for again, too, and
        the guess is taken only when that brings nothing. An answer that was cut keeps what it says.
        """
        try:
            return await self._answer(role, prompt, parse, stage, chain, ordinal)
        except LOSSES:
            self.lost += 1
            raise

    async def _answer(
        self,
        role: str,
        prompt: Prompt,
        parse: Callable[[str], Parsed],
        stage: str,
        chain: int,
        ordinal: int,
    ) -> Parsed:
        text, cut = await self._call(role, prompt, stage, chain, ordinal)
        usable: list[Parsed] = []
        reason = "the answer was cut at the token limit; be briefer"
        try:
            usable.append(parse(text))
            if cut or not is_broken_json(text):
                return usable[0]
            reason = "it is no valid JSON"
        except ParseError as broken:
            reason = reason if cut else broken.what
        self.repaired += 1
        for round_number in range(1, REPAIR_ROUNDS + 1):
            try:
                repair = repair_prompt(prompt, text, reason, round_number)
                text, _ = await self._call(role, repair, stage, chain, ordinal)
                return parse(text)
            except ParseError as broken:
                if round_number == REPAIR_ROUNDS and not usable:
                    raise
                reason = broken.what
            except LOSSES:
                if not usable:
                    raise
            if usable:
                return usable[0]
        raise BugError("a repair ends with an answer or an error")

    async def _call(
        self, role: str, prompt: Prompt, stage: str, chain: int, ordinal: int
    ) -> tuple[str, bool]:
        client = self.clients.get(role)
        if client is None:
            raise EndpointError(f"no model is given for the role {role}", where=f"spec.models.{role}")
        self.begin(stage)
        temperature, top_p = self.samplings.get(role, (0.0, 1.0))
        answered = await client.ask(
            ChatRequest(prompt=prompt, temperature=temperature, top_p=top_p, ordinal=ordinal)
        )
        self.record(role, stage, chain, answered)
        return answered.completion.text, answered.completion.finish_reason == "length"

    def begin(self, stage: str) -> None:
        """Stages are in the order of their first calls."""
        if stage not in self.stages:
            self.stages.append(stage)

    def record(self, role: str, stage: str, chain: int, answered: Answered) -> None:
        """Put an answered call into the call graph."""
        done = answered.completion
        self.rows.append(
            CallRow(
                role,
                stage,
                chain,
                done.latency_seconds,
                done.prompt_tokens,
                done.completion_tokens,
                done.cached_tokens,
                answered.hit,
                done.attempts,
                done.retried_for,
                done.hedged,
                tuple((one.call, one.before, one.after, one.reason) for one in answered.limit_changes),
            )
        )

    def take_in(self, other: Asker, first_chain: int) -> None:
        """Put the calls of ``other`` into the call graph, its chains counted from ``first_chain``."""
        for stage in other.stages:
            self.begin(stage)
        self.rows += [replace(row, chain=row.chain + first_chain) for row in other.rows]
        self.estimated_tokens += other.estimated_tokens
        self.repaired += other.repaired
        self.lost += other.lost

    def usage(self) -> dict[str, RoleUsage]:
        """Tokens and calls by role."""
        total: dict[str, RoleUsage] = {}
        for row in self.rows:
            one = RoleUsage(1, int(row.hit), row.prompt_tokens, row.completion_tokens, row.cached_tokens)
            total[row.role] = total.get(row.role, RoleUsage()) + one
        return dict(sorted(total.items()))

    def rollouts(self) -> int:
        """Calls of the task model: map, replay and heldOut alike."""
        return sum(row.role == "task" for row in self.rows)

    def counts(self) -> dict[str, int]:
        """What a step's manifest counts of its asks."""
        return {"rollouts": self.rollouts(), "repaired": self.repaired, "lost": self.lost}

    def encode(self) -> bytes:
        """The call graph as JSON lines: role, stage, chain, seconds, tokens in / out / cached, hit, attempts;
        then, only where something happened, why it was asked again, whether it was raced, and what became of the
        role's concurrency."""
        ordered = sorted(self.rows, key=lambda row: (self.stages.index(row.stage), row.chain))
        lines = [
            json.dumps(
                [
                    r.role,
                    r.stage,
                    r.chain,
                    round(r.seconds, 6),
                    r.prompt_tokens,
                    r.completion_tokens,
                    r.cached_tokens,
                    r.hit,
                    r.attempts,
                    *_what_happened(r),
                ]
            )
            for r in ordered
        ]
        return ("\n".join(lines) + "\n" if lines else "").encode()


def _what_happened(row: CallRow) -> tuple[object, ...]:
    """The end of an encoded row: as much of it as there is."""
    if row.limits:
        return (row.retried_for, row.hedged, row.limits)
    return (row.retried_for, row.hedged) if row.retried_for or row.hedged else ()


def is_broken_json(text: str) -> bool:
    """Whether an answer begins a JSON object (prose and fences before it do not matter) and does not end
    it as one. Plain text is not broken.

    >>> [is_broken_json(text) for text in ('Here: {"a": 1} so', '{"a" = 1}', "about {3, 4}")]
    [False, True, False]
    """
    found = _OBJECT.search(text)
    if found is None:
        return False
    try:
        _DECODER.raw_decode(text, found.start())
    except (ValueError, RecursionError):
        return True
    return False


def decode_rows(data: bytes) -> list[CallRow]:
    """The rows that ``Asker.encode`` wrote. Roles and stages are few and shared."""
    rows = []
    for line in io.BytesIO(data):
        role, stage, *rest = json.loads(line)
        row = CallRow(sys.intern(role), sys.intern(stage), *rest)
        row.retried_for = tuple(map(sys.intern, row.retried_for))
        row.limits = tuple((call, before, after, why) for call, before, after, why in row.limits)
        rows.append(row)
    return rows


def modelled_seconds(rows: list[CallRow], slots: int) -> float:
    """The recorded calls list-scheduled on ``slots``, stage after stage: seconds."""
    stages: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        stages.setdefault(row.stage, {}).setdefault(row.chain, []).append(row.seconds)
    if slots < 1:
        raise BugError(f"a schedule on {slots} slots")
    return list_schedule([list(chains.values()) for chains in stages.values()], slots).seconds


STRAGGLER = 4.0
"""A call counts at most this many times the median of its stage and role."""


def typical_seconds(rows: list[CallRow], slots: int) -> float:
    """``modelled_seconds`` with stragglers cut: what this many examples take on an ordinary day.

    One call that is ten times as slow as its like is a fault met, which says nothing of how time
    grows with the batch and would look like a change of the workload; when all are slower, so is
    their median. Seconds; never more than ``modelled_seconds``.
    """
    latencies: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        latencies[row.stage, row.role].append(row.seconds)
    most = {key: STRAGGLER * median(seconds) for key, seconds in latencies.items()}
    cut = [replace(row, seconds=min(row.seconds, most[row.stage, row.role])) for row in rows]
    return modelled_seconds(cut, slots)
