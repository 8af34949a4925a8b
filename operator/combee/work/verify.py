"""Replay: an entry of one source earns its place by fixing its own example and harming no control.

A replay is a rollout with the playbook plus this one entry, and is charged as one. Own examples
first, all in parallel; controls only for those that were fixed.

**The second look.** Models slip: one answer in eight goes wrong with the right rule in front of it,
and an answer that was right by luck does not stay right. So what speaks against an entry is asked
once more under another repeat ordinal, *with and without* the entry: its example counts as fixed
when it is wrong without and right with it, a control as harmed only when it is right without and
wrong with it. In a thousand planted lessons half of all replays were lost to such luck before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from combee.methods.protocol import Verdict
from combee.plan.types import IterationPlan
from combee.records import Example, Trajectory, example_of
from combee.work.asker import Asker
from combee.work.context import WorkContext
from combee.work.pool import pooled
from combee.work.rollouts import rollout

SECOND_ORDINAL = 1000
"""Added to the epoch: repeats of a second look never share a memo entry with an epoch's rollouts."""


@dataclass(frozen=True, slots=True)
class _Page:
    """A playbook text by how it differs from the one without any candidate: the page is nearly
    always that one and a bullet more, and a thousand candidates have a thousand pages."""

    shared: int
    """characters that both begin with."""
    rest: str

    @classmethod
    def of(cls, text: str, shown: str) -> _Page:
        low, high = 0, min(len(text), len(shown))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if text[low:middle] == shown[low:middle] else (low, middle - 1)
        return cls(low, text[low:])


@dataclass(frozen=True, slots=True)
class _Request:
    """One candidate: its digest, the wrong trajectory it comes from, and the page with it."""

    entry_digest: str
    source: str
    page: _Page


@dataclass(frozen=True, slots=True)
class _Try:
    """One replayed example: with the entry, or (second look only) without it."""

    digest: str
    example_id: str
    page: _Page
    own: bool
    with_entry: bool = True


@dataclass(slots=True)
class _Evidence:
    """What the tries of one candidate showed; None: a call was lost, so nothing is known."""

    fixed: bool | None
    harmed: int | None = 0


@dataclass(frozen=True, slots=True)
class _Replayer:
    context: WorkContext
    asker: Asker
    plan: IterationPlan
    shown: str
    """the playbook without any candidate."""
    examples: Mapping[str, Example]

    async def answers(self, tries: Sequence[_Try], stage: str, ordinal: int) -> list[Trajectory]:
        """One rollout a try, in parallel."""
        self.context.progress.begin(stage, len(tries))

        async def one(item: tuple[int, _Try]) -> Trajectory:
            chain, replayed = item
            page = replayed.page
            text = self.shown[: page.shared] + page.rest if replayed.with_entry else self.shown
            example = self.examples[replayed.example_id]
            done = await rollout(
                self.context, self.asker, example, text, stage=stage, chain=chain, epoch=ordinal
            )
            self.context.progress.advance()
            return done

        return await pooled(list(enumerate(tries)), one, width=self.context.concurrency)

    async def second_look(self, tries: Sequence[_Try], stage: str) -> dict[tuple[str, str], bool | None]:
        """(entry, example) -> whether it speaks against the entry again; None when a call was lost."""
        pairs = [
            _Try(one.digest, one.example_id, one.page, one.own, with_entry)
            for one in tries
            for with_entry in (False, True)
        ]
        answers = await self.answers(pairs, stage, SECOND_ORDINAL + self.plan.epoch)
        found: dict[tuple[str, str], bool | None] = {}
        for one, without, with_it in zip(tries, answers[::2], answers[1::2], strict=True):
            if without.error or with_it.error:
                found[one.digest, one.example_id] = None
            elif one.own:
                found[one.digest, one.example_id] = without.correct or not with_it.correct
            else:
                found[one.digest, one.example_id] = without.correct and not with_it.correct
        return found


async def replay_all(
    context: WorkContext,
    asker: Asker,
    plan: IterationPlan,
    ledger: Any,
    shown: str,
    trajectories: Mapping[str, Trajectory],
    examples: Mapping[str, Example],
) -> list[Verdict]:
    """A verdict for every candidate of the ledger. ``shown`` is the playbook without them. A replay
    whose call is lost has no verdict: the entry stays unverified and is a candidate again."""
    method = context.method
    requests = list(_requests(context, plan, ledger, shown, trajectories))
    right = sorted(trajectory.example_id for trajectory in trajectories.values() if trajectory.correct)
    replayer = _Replayer(context, asker, plan, shown, examples)
    evidence = {request.entry_digest: _Evidence(fixed=None) for request in requests}
    own = [_Try(r.entry_digest, example_of(r.source), r.page, own=True) for r in requests]
    await _own_examples(replayer, own, evidence)
    controls = {
        r.entry_digest: method.replay_controls(r.entry_digest, right, source=r.source)
        for r in requests
        if evidence[r.entry_digest].fixed
    }
    await _controls(replayer, requests, controls, evidence)
    return [
        Verdict(r.entry_digest, r.source, seen.fixed, seen.harmed, controls.get(r.entry_digest, ()))
        for r in requests
        if (seen := evidence[r.entry_digest]).fixed is not None and seen.harmed is not None
    ]


def _requests(
    context: WorkContext,
    plan: IterationPlan,
    ledger: Any,
    shown: str,
    trajectories: Mapping[str, Trajectory],
) -> Iterator[_Request]:
    method = context.method
    for digest in method.replay_candidates(ledger, trajectories=trajectories):
        found = method.replay_request(
            ledger,
            digest,
            trajectories=trajectories,
            budget_tokens=plan.render_token_budget,
            verify=plan.verify,
        )
        yield _Request(digest, found.source, _Page.of(found.text, shown))


async def _own_examples(replayer: _Replayer, own: Sequence[_Try], evidence: Mapping[str, _Evidence]) -> None:
    answers = await replayer.answers(own, "replay", replayer.plan.epoch)
    doubted = [
        one for one, answer in zip(own, answers, strict=True) if not answer.error and not answer.correct
    ]
    again = await replayer.second_look(doubted, "replay again")
    for one, answer in zip(own, answers, strict=True):
        if answer.error:
            continue
        against = again.get((one.digest, one.example_id), False)
        evidence[one.digest].fixed = None if against is None else not against


async def _controls(
    replayer: _Replayer,
    requests: Sequence[_Request],
    controls: Mapping[str, tuple[str, ...]],
    evidence: Mapping[str, _Evidence],
) -> None:
    tries = [
        _Try(request.entry_digest, example_id, request.page, own=False)
        for request in requests
        for example_id in controls.get(request.entry_digest, ())
    ]
    answers = await replayer.answers(tries, "controls", replayer.plan.epoch)
    doubted = [
        one for one, answer in zip(tries, answers, strict=True) if not answer.error and not answer.correct
    ]
    again = await replayer.second_look(doubted, "controls again")
    for one, answer in zip(tries, answers, strict=True):
        seen = evidence[one.digest]
        against = None if answer.error else again.get((one.digest, one.example_id), False)
        if against is None or seen.harmed is None:
            seen.harmed = None
        else:
            seen.harmed += against
