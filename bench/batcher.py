"""The batcher against every fixed number of calls in flight, on a workload that changes in mid-run.

The calls are made by the product's own client, on modelled time, to a server that batches as vLLM does
(``bench.batching``). A step is a stage of calls, and the next one waits for its last. In mid-run prompts and
answers become four times as long, and all that the server does takes three times as long. Mid-run is read in
two ways: half of the time that 16 in flight take, or half of the calls, after which most of the time is still
to come. Four stages before it and one after it are run, and those before count accordingly. A call that was
lost at its deadline is made again, until it is answered.

What is built, and what was thought of and is not, is measured by the same workload, one piece at a time.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, cast

from bench import virtual
from bench.batching import Server
from bench.harness import Row
from combee.clients.model.adaptive import MIN_WINDOW, AdaptiveLimit, LimitChange
from combee.clients.model.batcher import Batcher
from combee.clients.model.chat import ChatClient, ChatRequest, Completion, Endpoint
from combee.clients.model.limits import RunLimits
from combee.clients.model.looks import Look
from combee.clients.model.memo import Memo
from combee.clients.model.wire import Answered
from combee.errors import TransientError
from combee.records import Message, Prompt
from combee.work.pool import pooled

FIXED = (16, 32, 64, 128, 256)
MOST = 512
CALLS = 300
EARLY_STAGES, LATE_STAGES = 4, 1
LONGER, SLOWER = 4, 3.0
PROMPT_TOKENS, ANSWER_TOKENS, SCATTER = 600, (200, 400, 600), 0.5
COUPLED = 0.5
CACHES = {"24 GB": 40_000, "48 GB": 205_000, "141 GB": 850_000}
"""Tokens of KV cache beside 8B weights in bf16, 128 KiB a token, by the card's memory."""
SEEDS = (1, 2, 3, 4, 5, 6)
DEADLINE_SECONDS, PATIENT_SECONDS = 600.0, 1200.0
"""Of a call: the product's default, and one that the longest call of each load keeps."""
MOST_TRIES = 5
"""How often a call is made again; a number in flight that needs more never ends."""
HELD_SECONDS = 0.2
IN_TIME_SECONDS = 300.0
WORD = "word "


@dataclass(frozen=True)
class Load:
    """A workload beside a card's KV cache."""

    cache_tokens: int
    answer_tokens: int
    seed: int
    coupled: float = COUPLED
    deadline_seconds: float = DEADLINE_SECONDS


@dataclass(frozen=True)
class Outcome:
    """Modelled seconds until the last answer, infinite where it never came, and what happened."""

    seconds: float
    early_seconds: float
    lost: int
    """calls that ran into their deadlines twice, and were made again."""
    preemptions: int


@dataclass(frozen=True)
class Policy:
    """When calls go. ``batcher``: None for a fixed number."""

    most: int = MOST
    batcher: Callable[[], Batcher] | None = lambda: Batcher(AdaptiveLimit(MOST))
    metrics: bool = True
    longest_first: bool = True


class _NoQueue(AdaptiveLimit):
    def looked(self, look: Look, in_flight: int) -> LimitChange | None:
        return None


class _Refusals(_NoQueue):
    """As it was before: windows as long as the limit, and nothing but refusals counts."""

    def answered(self, *, in_flight: int, refusal: str = "") -> LimitChange | None:
        self._stale = 0
        return super().answered(in_flight=self.allowed, refusal=refusal)


class _Paced(_NoQueue):
    """Falls to what the server answers in half of a deadline, at the pace of 32 answers beside places that
    were filled: what a server without metrics shows of its queue."""

    answers, since, most = 0, 0.0, 0

    def answered(self, *, in_flight: int, refusal: str = "") -> LimitChange | None:
        now = asyncio.get_running_loop().time()
        if not self.answers or 2 * in_flight < self.most:
            self.answers, self.since, self.most = 0, now, 0
        self.answers, self.most = self.answers + 1, max(self.most, in_flight)
        if self.answers > MIN_WINDOW:
            in_time = int(MIN_WINDOW / (now - self.since) * IN_TIME_SECONDS)
            self.answers = 0
            if in_time < in_flight:
                return self._set(in_time, "slow", in_flight)
        return super().answered(in_flight=in_flight, refusal=refusal)


class _NoTokens(Batcher):
    def looked(self, look: Look | None) -> None:
        super().looked(look and replace(look, kv_use=None))


class _Held(Batcher):
    """Lets calls go every 200 ms only, of those that came meanwhile the longest first."""

    def __init__(self, limit: AdaptiveLimit) -> None:
        super().__init__(limit)
        self.held: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def place(self, kind: str, prompt_tokens: int) -> AsyncIterator[int]:
        loop = asyncio.get_running_loop()
        if not self.held:
            loop.call_later(HELD_SECONDS, self._flush)
        ticket: asyncio.Future[None] = loop.create_future()
        self.held.append((-prompt_tokens, len(self.held), ticket))
        await ticket
        async with super().place(kind, prompt_tokens) as in_flight:
            yield in_flight

    def _flush(self) -> None:
        for *_, ticket in sorted(self.held, key=lambda one: one[:2]):
            ticket.set_result(None)
        self.held.clear()


class _Preempting(Batcher):
    """Where the limit falls, takes back the newest calls above it, or all, and makes them again later."""

    def __init__(self, limit: AdaptiveLimit, *, everything: bool) -> None:
        super().__init__(limit)
        self.everything = everything
        self.flying: dict[asyncio.Task[Any], None] = {}
        self.taken: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def place(self, kind: str, prompt_tokens: int) -> AsyncIterator[int]:
        async with super().place(kind, prompt_tokens) as in_flight:
            task = cast("asyncio.Task[Any]", asyncio.current_task())
            self.flying[task] = None
            try:
                yield in_flight
            finally:
                del self.flying[task]

    def _follow(self, change: LimitChange | None) -> None:
        super()._follow(change)
        if change is None or change.after > change.before:
            return
        others = [task for task in self.flying if task is not asyncio.current_task()]
        for task in others if self.everything else others[change.after :]:
            self.taken.add(task)
            task.cancel()


class _NoMemo(Memo):
    """Every call is new, and no disk is in the figures."""

    def __init__(self) -> None:
        pass

    async def once(
        self, key: str, make: Any, *, slot: AbstractAsyncContextManager[None] | None = None
    ) -> Answered:
        async with slot or nullcontext():
            completion: Completion = await make()
        return Answered(completion, hit=False)


BATCHER = Policy()
ORDER = "in the order of the examples"
PIECES = {
    "without the queue's length": Policy(batcher=lambda: Batcher(_NoQueue(MOST))),
    "without the KV cache's use": Policy(batcher=lambda: _NoTokens(AdaptiveLimit(MOST))),
    "at a server without metrics": Policy(metrics=False),
    "there, by the pace of its answers": Policy(batcher=lambda: Batcher(_Paced(MOST)), metrics=False),
    "refusals only, as before": Policy(
        batcher=lambda: Batcher(_Refusals(MOST)), metrics=False, longest_first=False
    ),
    ORDER: Policy(longest_first=False),
    "with a wait of 200 ms": Policy(batcher=lambda: _Held(AdaptiveLimit(MOST))),
    "dropping the newest as it falls": Policy(
        batcher=lambda: _Preempting(AdaptiveLimit(MOST), everything=False)
    ),
    "rolling all back as it falls": Policy(batcher=lambda: _Preempting(AdaptiveLimit(MOST), everything=True)),
}
"""What is left out of the batcher, or put into it."""


REFERENCE = "16 fixed"
FIXED_POLICIES = {f"{most} fixed": Policy(most, None, metrics=False, longest_first=False) for most in FIXED}


def batcher(folder: Path) -> Row:
    """The time of the best fixed number over the batcher's, in the worst of all loads."""
    return _beside_fixed(DEADLINE_SECONDS)


def patient(folder: Path) -> Row:
    """The same where no long call runs into its deadline for lack of patience."""
    return _beside_fixed(PATIENT_SECONDS)


def _beside_fixed(deadline_seconds: float) -> Row:
    policies = [*FIXED_POLICIES, "refusals only, as before", "batcher"]
    table, ratios = dict[str, Any](), dict[str, list[float]]()
    for name, rows in _measured(policies, SEEDS, deadline_seconds=deadline_seconds).items():
        for reading, weighed in READINGS.items():
            seconds = {policy: [weighed(row[policy], row[REFERENCE]) for row in rows] for policy in policies}
            lost = {policy: mean(row[policy].lost for row in rows) for policy in policies}
            best = [min(seconds[one][place] for one in FIXED_POLICIES) for place in range(len(rows))]
            each = [least / ours for least, ours in zip(best, seconds["batcher"], strict=True)]
            told = {one: f"{mean(seconds[one]):.0f} s, {lost[one]:.0f} lost" for one in policies}
            table[f"{name}, half of the {reading}"] = {**told, "best fixed / batcher": _spread(each)}
            ratios.setdefault(reading, []).extend(each)
    return Row(
        name="batcher: time of the best fixed number in flight / its own, the worst of all, deadlines of "
        f"{deadline_seconds:.0f} s",
        figure=round(min(ratios["time"]), 3),
        target="> 1",
        unit="x",
        met=min(ratios["time"]) > 1,
        how=f"stages of {CALLS} calls, in the second half of the time {LONGER} times as long and at a server "
        f"that takes {SLOWER:.0f} times as long; vLLM's scheduler, by the H200's latency law; three cards, "
        f"three lengths of answers, {len(SEEDS)} seeds, of each the best of {FIXED} in flight, whose lost "
        f"calls are made again; deadlines of {deadline_seconds:.0f} s; "
        f"{_spread(ratios['time'])}; by calls, not time: {_spread(ratios['calls'])}",
        detail=table,
    )


def pieces(folder: Path) -> Row:
    """What each piece of the batcher is worth: the time with one piece less, or one more, over its own."""
    table: dict[str, Any] = {}
    for coupled, names, more in (
        (COUPLED, list(PIECES), ""),
        (0.0, [ORDER], ", where length says nothing of the answer"),
    ):
        for load, rows in _measured([*names, REFERENCE, "batcher"], SEEDS, coupled).items():
            for piece in names:
                ratios = [
                    READINGS["time"](row[piece], row[REFERENCE])
                    / READINGS["time"](row["batcher"], row[REFERENCE])
                    for row in rows
                ]
                lost = mean(row[piece].lost for row in rows)
                table.setdefault(piece + more, {})[load] = f"{_spread(ratios)}, {lost:.0f} lost"
    return Row(
        name="batcher: pieces measured one at a time, by the loads of the row `batcher`",
        figure=float(len(PIECES)),
        target="",
        unit="pieces",
        how="seconds with the change / those of the batcher as it is: over 1, the change costs time",
        detail=table,
    )


def _by_time(one: Outcome, reference: Outcome) -> float:
    early_share = (reference.seconds - reference.early_seconds) / reference.early_seconds
    return early_share * one.early_seconds + one.seconds - one.early_seconds


def _by_calls(one: Outcome, reference: Outcome) -> float:
    return one.early_seconds / EARLY_STAGES + one.seconds - one.early_seconds


READINGS = {"time": _by_time, "calls": _by_calls}
"""Seconds of a run whose second half is the one after the change: the stages before it count as often as they
have to for that, by the time that the reference takes, or by their number."""


def _measured(
    policies: Sequence[str],
    seeds: Sequence[int],
    coupled: float = COUPLED,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> dict[str, list[dict[str, Outcome]]]:
    """Return by load the outcome of each policy, for each seed."""
    with ProcessPoolExecutor(2) as pool:
        done = {
            (card, tokens): [
                pool.submit(
                    _of_load, Load(CACHES[card], tokens, seed, coupled, deadline_seconds), tuple(policies)
                )
                for seed in seeds
            ]
            for card, tokens in product(CACHES, ANSWER_TOKENS)
        }
        return {
            f"{card}, answers of {tokens}": [one.result() for one in rows]
            for (card, tokens), rows in done.items()
        }


def _of_load(load: Load, policies: tuple[str, ...]) -> dict[str, Outcome]:
    every = {**FIXED_POLICIES, **PIECES, "batcher": BATCHER}
    return {name: outcome(load, every[name]) for name in policies}


def _spread(ratios: Sequence[float]) -> str:
    return f"{mean(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def outcome(load: Load, policy: Policy) -> Outcome:
    """Return how a workload goes."""
    server = Server(load.cache_tokens, shows_metrics=policy.metrics)
    seen = _Seen()

    async def work() -> None:
        clock = asyncio.get_running_loop().time
        batcher = policy.batcher() if policy.batcher else None
        limits = RunLimits(policy.most, clock=clock)
        client = ChatClient(
            Endpoint("http://server/v1", "m"),
            "task",
            _NoMemo(),
            limits,
            pool=cast(Any, server),
            deadline_seconds=load.deadline_seconds,
            batcher=batcher,
            clock=clock,
        )
        taken = batcher.taken if isinstance(batcher, _Preempting) else set()

        async def ask(call: tuple[str, int, int]) -> None:
            text = f"{call[0]} {WORD * call[1]}"
            request = ChatRequest(Prompt((Message("user", text),), max_output_tokens=10_000))
            tries = 0
            while tries < MOST_TRIES:
                task = asyncio.create_task(client.ask(request))
                try:
                    await task
                    return
                except asyncio.CancelledError:
                    if task not in taken:
                        raise
                except TransientError:
                    tries += 1
                    seen.lost += 1
            raise _NeverError

        rng = random.Random(load.seed)
        for stage in range(EARLY_STAGES + LATE_STAGES):
            late = stage >= EARLY_STAGES
            if stage == EARLY_STAGES:
                seen.early_seconds = clock()
            server.slow = SLOWER if late else 1.0
            calls = [_call(rng, load, LONGER if late else 1, f"{stage}-{n}") for n in range(CALLS)]
            server.answer_tokens = {name: answer for name, _, answer in calls}
            lengths = [tokens for _, tokens, _ in calls] if policy.longest_first else None
            await pooled(calls, ask, width=policy.most, lengths=lengths)
        seen.seconds = clock()

    try:
        virtual.run(work())
    except _NeverError:
        seen.seconds = math.inf
    return Outcome(seen.seconds, seen.early_seconds, seen.lost, server.preemptions)


class _NeverError(Exception):
    """A call that is lost however often it is made."""


@dataclass
class _Seen:
    seconds: float = 0.0
    early_seconds: float = 0.0
    lost: int = 0


def _call(rng: random.Random, load: Load, longer: int, name: str) -> tuple[str, int, int]:
    """Return a call's name, words of its prompt and tokens of its answer. Long questions have long answers,
    by a power of their length, and each scatters."""
    length = rng.lognormvariate(0, SCATTER)
    answer = length**load.coupled * rng.lognormvariate(0, SCATTER / 2)
    return (
        name,
        max(1, round(longer * PROMPT_TOKENS * length)),
        max(1, round(longer * load.answer_tokens * answer)),
    )
