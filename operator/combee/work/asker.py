"""One step's way to its models: it charges, records the call graph, parses, and repairs once.

A call belongs to a *stage* (stages are barriers, in order) and in it to a *chain* (calls of one
chain follow each other). From these and the recorded latencies the critical path of a step and its
modelled time are computed, with no clock: a call answered from the memo is charged the tokens and
the latency that were recorded when it was made.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from combee.adapters.chat import ChatClient, ChatRequest
from combee.algo.schedule import list_schedule
from combee.errors import BugError, EndpointError
from combee.methods.protocol import ParseError, repair_prompt
from combee.plan.types import RoleUsage
from combee.records import Prompt

Parsed = TypeVar("Parsed")


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
        """The parsed answer. Raises ParseError when one repair round did not help, and the errors
        of ``ChatClient.ask`` untouched."""
        text, cut = await self._call(role, prompt, stage, chain, ordinal)
        try:
            return parse(text)
        except ParseError as broken:
            self.repaired += 1
            reason = "the answer was cut at the token limit; be briefer" if cut else broken.what
            text, _ = await self._call(role, repair_prompt(prompt, text, reason), stage, chain, ordinal)
            return parse(text)

    async def _call(
        self, role: str, prompt: Prompt, stage: str, chain: int, ordinal: int
    ) -> tuple[str, bool]:
        client = self.clients.get(role)
        if client is None:
            raise EndpointError(f"no model is given for the role {role}", where=f"spec.models.{role}")
        if stage not in self.stages:
            self.stages.append(stage)
        temperature, top_p = self.samplings.get(role, (0.0, 1.0))
        answered = await client.ask(
            ChatRequest(prompt=prompt, temperature=temperature, top_p=top_p, ordinal=ordinal)
        )
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
            )
        )
        return done.text, done.finish_reason == "length"

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

    def encode(self) -> bytes:
        """The call graph as JSON lines: role, stage, chain, seconds, tokens in / out / cached, hit, attempts."""
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
                ]
            )
            for r in ordered
        ]
        return ("\n".join(lines) + "\n" if lines else "").encode()


def decode_rows(data: bytes) -> list[CallRow]:
    """The rows that ``Asker.encode`` wrote. Roles and stages are few and shared."""
    rows = []
    for line in data.splitlines():
        role, stage, *rest = json.loads(line)
        rows.append(CallRow(sys.intern(role), sys.intern(stage), *rest))
    return rows


def modelled_seconds(rows: list[CallRow], slots: int) -> float:
    """The recorded calls list-scheduled on ``slots``, stage after stage: seconds."""
    stages: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        stages.setdefault(row.stage, {}).setdefault(row.chain, []).append(row.seconds)
    if slots < 1:
        raise BugError(f"a schedule on {slots} slots")
    return list_schedule([list(chains.values()) for chains in stages.values()], slots).seconds
