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

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from combee.methods.ace.change import with_verdicts
from combee.methods.ace.ledger import Ledger
from combee.methods.ace.render import render
from combee.methods.ace.replay import replay_candidates, replay_controls, replay_request
from combee.methods.protocol import Verdict, Verify
from combee.methods.verification import Page, Rollout, Round, Verified, Verifying
from combee.records import Trajectory, example_of

SECOND_LOOK = 1000
"""Repeats of a second look never share a memo entry with an epoch's rollouts."""


@dataclass(frozen=True, slots=True)
class _Request:
    """One candidate: its digest, the wrong trajectory it comes from, and the page with it."""

    entry_digest: str
    source: str
    page: Page


@dataclass(frozen=True, slots=True)
class _Try:
    """One replayed example."""

    digest: str
    example_id: str
    page: Page
    own: bool


@dataclass(slots=True)
class _Evidence:
    """What the tries of one candidate showed; None: a call was lost, so nothing is known."""

    fixed: bool | None = None
    harmed: int | None = 0


Evidence = Mapping[str, _Evidence]
_Asking = Generator[Round, Sequence[Trajectory], None]


def verification(
    artifact: Ledger, *, trajectories: Mapping[str, Trajectory], budget_tokens: int, verify: Verify
) -> Verifying[Ledger]:
    """A verdict for every candidate of the artifact. A replay whose call is lost has no verdict: the
    entry stays unverified and is a candidate again."""
    if verify != "Replay":
        return Verified(artifact)
    shown = render(artifact, budget_tokens=budget_tokens, verify=verify).text
    requests = []
    for digest in replay_candidates(artifact, trajectories=trajectories):
        found = replay_request(
            artifact, digest, trajectories=trajectories, budget_tokens=budget_tokens, verify=verify
        )
        requests.append(_Request(digest, found.source, Page.of(found.text, shown)))
    right = sorted(trajectory.example_id for trajectory in trajectories.values() if trajectory.correct)
    evidence = {request.entry_digest: _Evidence() for request in requests}
    own = [_Try(r.entry_digest, example_of(r.source), r.page, own=True) for r in requests]
    yield from _own_examples(own, evidence)
    controls = {
        r.entry_digest: replay_controls(r.entry_digest, right, source=r.source)
        for r in requests
        if evidence[r.entry_digest].fixed
    }
    yield from _controls(requests, controls, evidence)
    verdicts = [
        Verdict(r.entry_digest, r.source, seen.fixed, seen.harmed, controls.get(r.entry_digest, ()))
        for r in requests
        if (seen := evidence[r.entry_digest]).fixed is not None and seen.harmed is not None
    ]
    won = sum(verdict.won for verdict in verdicts)
    return Verified(with_verdicts(artifact, verdicts), len(requests), len(verdicts), won)


def _own_examples(own: Sequence[_Try], evidence: Evidence) -> _Asking:
    answers = yield Round("replay", tuple(Rollout(one.example_id, one.page) for one in own))
    doubted = _doubted(own, answers)
    again = _second_look(doubted, (yield _both_ways(doubted, "replay again")))
    for one, answer in zip(own, answers, strict=True):
        if answer.error:
            continue
        against = again.get((one.digest, one.example_id), False)
        evidence[one.digest].fixed = None if against is None else not against


def _controls(
    requests: Sequence[_Request], controls: Mapping[str, tuple[str, ...]], evidence: Evidence
) -> _Asking:
    tries = [
        _Try(request.entry_digest, example_id, request.page, own=False)
        for request in requests
        for example_id in controls.get(request.entry_digest, ())
    ]
    answers = yield Round("controls", tuple(Rollout(one.example_id, one.page) for one in tries))
    doubted = _doubted(tries, answers)
    again = _second_look(doubted, (yield _both_ways(doubted, "controls again")))
    for one, answer in zip(tries, answers, strict=True):
        seen = evidence[one.digest]
        against = None if answer.error else again.get((one.digest, one.example_id), False)
        if against is None or seen.harmed is None:
            seen.harmed = None
        else:
            seen.harmed += against


def _doubted(tries: Sequence[_Try], answers: Sequence[Trajectory]) -> list[_Try]:
    """The tries whose answer speaks against the entry."""
    return [
        one for one, answer in zip(tries, answers, strict=True) if not answer.error and not answer.correct
    ]


def _both_ways(tries: Sequence[_Try], stage: str) -> Round:
    """Each example without the entry, then with it."""
    pages = ((one, page) for one in tries for page in (Page(one.page.base, len(one.page.base), ""), one.page))
    return Round(stage, tuple(Rollout(one.example_id, page) for one, page in pages), repeat=SECOND_LOOK)


def _second_look(tries: Sequence[_Try], answers: Sequence[Trajectory]) -> dict[tuple[str, str], bool | None]:
    """(entry, example) -> whether it speaks against the entry again; None when a call was lost."""
    found: dict[tuple[str, str], bool | None] = {}
    for one, without, with_it in zip(tries, answers[::2], answers[1::2], strict=True):
        if without.error or with_it.error:
            found[one.digest, one.example_id] = None
        elif one.own:
            found[one.digest, one.example_id] = without.correct or not with_it.correct
        else:
            found[one.digest, one.example_id] = without.correct and not with_it.correct
    return found
