"""One step's way to its models: it charges, records the call graph, parses, and repairs once.

A call belongs to a *stage* and in it to a *chain* (calls of one chain follow each other). A stage waits for
all before it, or each of its chains for the chains of the stage before that it names (``work.callgraph``). A
call answered from the memo is charged the tokens and the latency that were recorded when it was made.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TypeVar

from combee.api.sampling import DEFAULT, Sampling
from combee.clients.model.chat import Answered, ChatClient, ChatRequest
from combee.clients.model.room import check_cut, check_room
from combee.errors import (
    BugError,
    CombeeError,
    ContextLengthError,
    EndpointError,
    RolloutError,
    TransientError,
    VerdictError,
)
from combee.methods.protocol import CutError, ParseError
from combee.methods.replies import repair_prompt, shorter_prompt
from combee.methods.schemas import sized
from combee.plan.types import RoleUsage, Scorer
from combee.records import Prompt
from combee.work.noted import LostCall, Notes, is_note

Parsed = TypeVar("Parsed")

LOSSES = (ContextLengthError, TransientError, VerdictError, ParseError, RolloutError)
"""The errors that may end one example without ending the step. Such an example counts as wrong and stays in
the denominator; the call is not remembered, so it is made again when it is asked for again."""


class Fate(StrEnum):
    """Why an ask brought nothing: each asks something else of the user."""

    CUT = "cut"
    UNPARSABLE = "unparsable"
    UNANSWERED = "unanswered"


def fate_of(error: CombeeError) -> Fate:
    """Return what became of an ask that ended with this error, one of ``LOSSES``."""
    if isinstance(error, CutError):
        return Fate.CUT
    return Fate.UNPARSABLE if isinstance(error, ParseError) else Fate.UNANSWERED


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
    """why it was asked again, one word for each attempt."""
    hedged: bool = False
    """whether a second request raced it."""
    limits: tuple[tuple[int, int, int, str], ...] = ()
    """how the limit of its server changed with it: (answers so far, from, to, why)."""
    look: tuple[int, float | None, int, int] | None = None
    """what the servers were seen to do after it: (requests waiting, share of the KV cache in use, prompt
    tokens and those of them that were cached since the look before)."""
    unusable: str = ""
    """``Fate.CUT`` or ``Fate.UNPARSABLE`` for a reply that could not be used as it was."""
    after: tuple[int, ...] = ()
    """the chains of the stage before that its chain waits for; empty: for all stages before."""
    lost_tokens: int = 0
    """tokens of its requests whose answers came to nothing."""
    in_flight: int = 0
    """its process's calls at the server when it went, itself included; 0: memory answered."""

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that the server had to read."""
        return max(0, self.prompt_tokens - self.cached_tokens)


@dataclass(frozen=True, slots=True)
class _Reply:
    text: str
    cut: bool
    row: CallRow

    def read(self, parse: Callable[[str], Parsed]) -> Parsed:
        """Return the parsed text. Raises ParseError, and puts down why."""
        try:
            return parse(self.text)
        except ParseError:
            self.row.unusable = Fate.CUT if self.cut else Fate.UNPARSABLE
            raise


@dataclass(slots=True)
class Asker:
    """Asks models for one step. Steps do not share it, since its rows are the step's call graph."""

    clients: Mapping[str, ChatClient]
    samplings: Mapping[str, Sampling]
    """by role; a role without one has the defaults."""
    token_factor: float | None = None
    """tokens that the server counts for each estimated one; None: not known yet."""
    scored_by: Scorer = "evaluator"
    """the role that scores answers by a rubric."""
    rows: list[CallRow] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)
    repaired: int = 0
    replies: dict[tuple[str, int], str] = field(default_factory=dict)
    """by stage and chain, the text of the first reply; only of chains that were put in beforehand, empty."""
    lost: Counter[Fate] = field(default_factory=Counter)
    """asks that ended without an answer that could be used, by what became of them; their work counts as
    failed."""
    unanswered: list[tuple[str, int]] = field(default_factory=list)
    """(role, the most tokens that it may have used) of each call that failed though it was sent."""
    notes: Notes = field(default_factory=Notes)

    async def ask(
        self,
        role: str,
        prompt: Prompt,
        parse: Callable[[str], Parsed],
        *,
        stage: str,
        chain: int,
        ordinal: int = 0,
        least_temperature: float = 0.0,
        after: tuple[int, ...] = (),
        anew: str = "",
    ) -> Parsed:
        """Return the parsed answer. Raises ParseError when three repair rounds did not help, CutError when a
        shorter answer was cut, too, and the errors of ``ChatClient.ask``; those that only concern this ask
        (``LOSSES``) are counted by their fate.

        What a tolerant parser reads out of broken JSON is a guess: the model is asked again, and the
        guess is taken only when that brings nothing. An answer that was cut is taken if it can be parsed.
        ``anew``: why a remembered answer is not taken, unless it was given for the same reason.
        """
        sampling = self.samplings.get(role, DEFAULT).warmed(least_temperature)
        prompt = sized(prompt, sampling.max_tokens or prompt.max_output_tokens)
        try:
            return await self._answer(
                partial(self._call, role, sampling, (stage, chain, after), (ordinal, anew)), prompt, parse
            )
        except LOSSES as error:
            self.lost[fate_of(error)] += 1
            raise

    async def _answer(
        self,
        call: Callable[[Prompt], Awaitable[_Reply]],
        prompt: Prompt,
        parse: Callable[[str], Parsed],
    ) -> Parsed:
        reply = await call(prompt)
        usable: list[Parsed] = []
        try:
            usable.append(reply.read(parse))
            if reply.cut or not is_broken_json(reply.text):
                return usable[0]
            reply.row.unusable = Fate.UNPARSABLE
            reason = "it is no valid JSON"
        except ParseError as broken:
            reason = broken.what
        self.repaired += 1
        if reply.cut:
            return await _cut_again(call, prompt, parse)
        for round_number in range(1, REPAIR_ROUNDS + 1):
            try:
                reply = await call(repair_prompt(prompt, reply.text, reason, round_number))
                return reply.read(parse)
            except ParseError as broken:
                if reply.cut and not usable:
                    return await _cut_again(call, prompt, parse)
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
        self,
        role: str,
        sampling: Sampling,
        place: tuple[str, int, tuple[int, ...]],
        repeat: tuple[int, str],
        prompt: Prompt,
    ) -> _Reply:
        stage, chain, after = place
        client = self.clients.get(role)
        if client is None:
            raise EndpointError(f"no model is given for the role {role}", where=f"spec.models.{role}")
        self.begin(stage)
        request = ChatRequest(prompt, sampling, *repeat)
        if (context_tokens := client.context_tokens) is not None:
            check_room(request, context_tokens, self.token_factor, f"models.{role}")
        try:
            answered = await client.ask(request, lambda tokens: self.unanswered.append((role, tokens)))
        except LOSSES as error:
            self.notes.lost.append(LostCall.of(client.key_of(request), error))
            raise
        row = self.record(role, stage, chain, answered, after)
        if self.replies.get((stage, chain)) == "":
            self.replies[stage, chain] = answered.completion.text
        if (context_tokens := client.context_tokens) is not None:
            try:
                check_cut(request, answered.completion, context_tokens, f"models.{role}")
            except ContextLengthError:
                row.unusable = Fate.CUT
                raise
        return _Reply(answered.completion.text, answered.completion.finish_reason == "length", row)

    def begin(self, stage: str) -> None:
        """Add a stage unless it has begun; stages are in the order of their first calls."""
        if stage not in self.stages:
            self.stages.append(stage)

    def record(
        self, role: str, stage: str, chain: int, answered: Answered, after: tuple[int, ...] = ()
    ) -> CallRow:
        """Put an answered call into the call graph, and return its row."""
        completion = answered.completion
        row = CallRow(
            role=role,
            stage=stage,
            chain=chain,
            seconds=completion.latency_seconds,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            cached_tokens=completion.cached_tokens,
            hit=answered.hit,
            attempts=completion.attempts,
            retried_for=completion.retried_for,
            hedged=completion.hedged,
            limits=tuple((c.call, c.before, c.after, c.reason) for c in answered.limit_changes),
            look=None if answered.look is None else answered.look.recorded,
            after=after,
            lost_tokens=completion.lost_tokens,
            in_flight=answered.in_flight,
        )
        self.rows.append(row)
        if role == "task":
            self.notes.called(
                stage,
                chain,
                prompt_tokens=row.prompt_tokens,
                completion_tokens=row.completion_tokens,
                cached_tokens=row.cached_tokens,
                lost_tokens=row.lost_tokens,
                seconds=row.seconds,
            )
        return row

    def take_in(self, part: Asker, first_chain: int) -> None:
        """Put the calls of ``part`` into the call graph, with its chains numbered from ``first_chain``."""
        for stage in part.stages:
            self.begin(stage)
        self.rows += [replace(row, chain=row.chain + first_chain) for row in part.rows]
        self.repaired += part.repaired
        self.lost.update(part.lost)
        self.unanswered += part.unanswered
        self.notes.take_in(part.notes, first_chain)

    def usage(self) -> dict[str, RoleUsage]:
        """Return the tokens and calls by role."""
        total: dict[str, RoleUsage] = {}
        for row in self.rows:
            tokens = row.prompt_tokens, row.completion_tokens, row.cached_tokens, row.lost_tokens
            usage = RoleUsage(1, int(row.hit), *tokens)
            total[row.role] = total.get(row.role, RoleUsage()) + usage
        for role, most in self.unanswered:
            total[role] = total.get(role, RoleUsage()) + RoleUsage(lost_tokens=most)
        return dict(sorted(total.items()))

    def rollouts(self) -> int:
        """Return the number of calls of the task model: map, replay and heldOut alike."""
        roles = [*(row.role for row in self.rows), *(role for role, _ in self.unanswered)]
        return roles.count("task")

    def counts(self) -> dict[str, int]:
        """Return what a step's receipt counts of its asks."""
        fates = {fate.value: self.lost[fate] for fate in (Fate.CUT, Fate.UNPARSABLE)}
        return {
            "rollouts": self.rollouts(),
            "repaired": self.repaired,
            "lost": self.lost.total(),
            **{name: number for name, number in fates.items() if number},
        }

    def encode(self) -> bytes:
        """Return the call graph as JSON lines: role, stage, chain, seconds, tokens in / out / cached, hit and
        attempts; then, only where something happened, why it was asked again, whether it was raced, how the
        server's limit changed, what the servers were seen to do, why the reply could not be used, the chains
        that its own waits for, the tokens of requests whose answers came to nothing, and how many calls were
        in flight. Behind them come the notes."""
        ordered = sorted(self.rows, key=lambda row: (self.stages.index(row.stage), row.chain))
        return "".join(json.dumps(_cells(row)) + "\n" for row in ordered).encode() + self.notes.encode()


async def _cut_again(
    call: Callable[[Prompt], Awaitable[_Reply]], prompt: Prompt, parse: Callable[[str], Parsed]
) -> Parsed:
    """Return the parsed answer to the same question, asked once more for a shorter one."""
    reply = await call(shorter_prompt(prompt))
    try:
        return reply.read(parse)
    except ParseError as broken:
        if reply.cut:
            raise CutError(
                f"the answer was cut at {prompt.max_output_tokens} tokens, and so was a shorter one",
                fix="Raise sampling.maxTokens, or give a reasoning model sampling.reasoningTokens",
            ) from broken
        raise


def _cells(row: CallRow) -> list[object]:
    """Return a row's cells; those at the end are left out where nothing happened."""
    tokens = (row.prompt_tokens, row.completion_tokens, row.cached_tokens)
    cells = [row.role, row.stage, row.chain, round(row.seconds, 6), *tokens, row.hit, row.attempts]
    happened = row.retried_for, row.hedged, row.limits, row.look, row.unusable, row.after, row.lost_tokens
    more: list[object] = [*happened, row.in_flight]
    last = max((place for place, cell in enumerate(more, 1) if cell), default=0)
    return cells + more[: max(last, 2) if last else 0]


def is_broken_json(text: str) -> bool:
    """Return whether an answer begins a JSON object (prose and fences before it do not matter) that does not
    end as one. Plain text is not broken.

    >>> [is_broken_json(text) for text in ('Here: {"a": 1} so', '{"a" = 1}', "about {3, 4}")]
    [False, True, False]
    """
    match = _OBJECT.search(text)
    if match is None:
        return False
    try:
        _DECODER.raw_decode(text, match.start())
    except (ValueError, RecursionError):
        return True
    return False


def _of_today(stage: str) -> str:
    """Return a stage's name; earlier versions wrote ``reduce round 1`` and, of a strategy of one call,
    ``reduce``."""
    return "one call" if stage == "reduce" else stage.replace("reduce round", "leaf round")


def decode_rows(data: bytes) -> list[CallRow]:
    """Return the rows that ``Asker.encode`` wrote. Roles and stages are few, so rows share their strings."""
    rows = []
    for line in io.BytesIO(data):
        if is_note(line):
            continue
        role, stage, *cells = json.loads(line)
        row = CallRow(sys.intern(role), sys.intern(_of_today(stage)), *cells)
        row.retried_for = tuple(map(sys.intern, row.retried_for))
        row.limits = tuple((call, before, after, why) for call, before, after, why in row.limits)
        row.look = None if row.look is None else (row.look[0], row.look[1], row.look[2], row.look[3])
        row.after = tuple(row.after)
        rows.append(row)
    return rows
