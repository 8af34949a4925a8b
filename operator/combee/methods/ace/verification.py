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

from collections import Counter
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
SECOND_LOOK_TEMPERATURE = 0.7
"""What a second look is drawn at, unless the task model's own temperature is higher."""


@dataclass(frozen=True, slots=True)
class _Try:
    """One replayed example."""

    digest: str
    example_id: str
    page: Page
    own: bool


_Asking = Generator[Round, Sequence[Trajectory], list[tuple[_Try, bool | None]]]


def verification(
    artifact: Ledger, *, trajectories: Mapping[str, Trajectory], budget_tokens: int, verify: Verify
) -> Verifying[Ledger]:
    """Return a verdict for every candidate; one whose replay is lost stays an unverified candidate."""
    if verify != "Replay":
        return Verified(artifact)
    shown = render(artifact, budget_tokens=budget_tokens, verify=verify).text
    requests = [
        replay_request(
            artifact, digest, shown, trajectories=trajectories, budget_tokens=budget_tokens, verify=verify
        )
        for digest in replay_candidates(artifact, trajectories=trajectories)
    ]
    right = sorted(trajectory.example_id for trajectory in trajectories.values() if trajectory.correct)
    own = [_Try(r.entry_digest, example_of(r.source), r.page, own=True) for r in requests]
    spoken = yield from _looked_at(own, "replay")
    fixed = {one.digest: not against for one, against in spoken if against is not None}
    controls = {
        r.entry_digest: replay_controls(r.entry_digest, right, source=r.source)
        for r in requests
        if fixed.get(r.entry_digest)
    }
    tries = [
        _Try(r.entry_digest, example_id, r.page, own=False)
        for r in requests
        for example_id in controls.get(r.entry_digest, ())
    ]
    spoken = yield from _looked_at(tries, "controls")
    lost = {one.digest for one, against in spoken if against is None}
    harmed = Counter(one.digest for one, against in spoken if against)
    verdicts = [
        Verdict(digest, r.source, fixed[digest], harmed[digest], controls.get(digest, ()))
        for r in requests
        if (digest := r.entry_digest) in fixed and digest not in lost
    ]
    won = sum(verdict.won for verdict in verdicts)
    return Verified(with_verdicts(artifact, verdicts), len(requests), len(verdicts), won)


def _looked_at(tries: Sequence[_Try], stage: str) -> _Asking:
    """Return each try, and whether it speaks against the entry on both looks; None: a call was lost."""
    answers = yield Round(stage, tuple(Rollout(one.example_id, one.page) for one in tries))
    pairs = list(zip(tries, answers, strict=True))
    doubted = [one for one, answer in pairs if not answer.error and not answer.correct]
    again = _second_look(doubted, (yield _both_ways(doubted, f"{stage} again")))
    return [
        (one, None if answer.error else again.get((one.digest, one.example_id), False))
        for one, answer in pairs
    ]


def _both_ways(tries: Sequence[_Try], stage: str) -> Round:
    """Return a round that answers each example without the entry, then with it."""
    pages = ((one, page) for one in tries for page in (Page(one.page.base, len(one.page.base), ""), one.page))
    return Round(
        stage,
        tuple(Rollout(one.example_id, page) for one, page in pages),
        repeat=SECOND_LOOK,
        least_temperature=SECOND_LOOK_TEMPERATURE,
    )


def _second_look(tries: Sequence[_Try], answers: Sequence[Trajectory]) -> dict[tuple[str, str], bool | None]:
    """Return, by (entry, example), whether it speaks against the entry again; None when a call was lost."""
    against: dict[tuple[str, str], bool | None] = {}
    for one, without, with_it in zip(tries, answers[::2], answers[1::2], strict=True):
        if without.error or with_it.error:
            against[one.digest, one.example_id] = None
        elif one.own:
            against[one.digest, one.example_id] = without.correct or not with_it.correct
        else:
            against[one.digest, one.example_id] = without.correct and not with_it.correct
    return against
