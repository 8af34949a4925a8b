"""Replay: an entry earns its place by fixing its own example and harming no control.

A replay is a rollout with the playbook plus this one entry, and is charged as one. The playbook beside it
holds no other entry that is still to be decided.

**Luck.** Models slip: one answer in eight goes wrong with the right rule in front of it, and an answer that
was right by luck does not stay right. So nothing is held against or for an entry that shows only once. Its
own example is asked anew *without* it first: where that is right, there is nothing to fix. Then it is asked
with the entry, and where it stays wrong once more. Controls follow for what was fixed and for what has
nothing to fix: one that goes wrong puts all controls of the entry to a second look, *with and without* it.
Harmed is a control that is right without and wrong with it. In a thousand planted lessons half of all replays
were lost to such luck before.

**The budget.** In an iteration as many entries are replayed as it has examples, those that matter most first;
the others stay undecided. Most take three rollouts, which is what ``preview`` counts.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from combee.algo.grouping import grouped
from combee.methods.ace.change import with_verdicts
from combee.methods.ace.facts import lessons_of
from combee.methods.ace.ledger import Ledger
from combee.methods.ace.matching import Readers
from combee.methods.ace.render import render
from combee.methods.ace.replay import ReplayRequest, replay_candidates, replay_controls, replay_request
from combee.methods.ace.resolve import DISTINCT_TO_SUPPORT
from combee.methods.protocol import Verdict, Verify
from combee.methods.verification import Page, Rollout, Round, Verified, Verifying
from combee.records import Trajectory, example_of

SECOND_LOOK = 1000
"""Repeats of a second look never share a memo entry with an epoch's rollouts."""
SECOND_LOOK_TEMPERATURE = 0.7
"""What a second look is drawn at, unless the task model's own temperature is higher."""
LOOKS = (0, SECOND_LOOK, SECOND_LOOK + 1, SECOND_LOOK + 2)
"""Repeats at which the examples behind an entry that has nothing to fix are asked."""
SHOWN_TWICE = 2
"""Answers that an entry must have spoilt, of one control or of several, to be found harmful."""
ROUNDS = 5
"""Rounds of a verification: own examples without the entry, with it, and again; controls, and again."""
LEAST_CANDIDATES = 8
"""Entries that are replayed in an iteration of few examples, if there are as many."""


@dataclass(frozen=True, slots=True)
class _Try:
    """One replayed example."""

    digest: str
    example_id: str
    page: Page
    repeat: int = 0

    @property
    def without(self) -> _Try:
        """The same example without the entry."""
        return replace(self, page=Page(self.page.base, len(self.page.base), ""))

    @property
    def anew(self) -> _Try:
        """The same question, asked anew."""
        return replace(self, repeat=SECOND_LOOK)


_Asking = Generator[Round, Sequence[Trajectory], dict[str, int | None]]


def verification(
    artifact: Ledger, *, trajectories: Mapping[str, Trajectory], budget_tokens: int, verify: Verify
) -> Verifying[Ledger]:
    """Return a verdict for every candidate that could be decided; one whose replay is lost does not stand."""
    if verify != "Replay":
        return Verified(artifact)
    readers = Readers({one.example_id: one.input for one in trajectories.values()})
    candidates = _requests(artifact, trajectories, readers, budget_tokens)
    requests, fixed = yield from _own(artifact, candidates)
    right = sorted(trajectory.example_id for trajectory in trajectories.values() if trajectory.correct)
    controls = {
        r.entry_digest: replay_controls(r, right, readers.of(artifact.texts[r.entry_digest]))
        for r in requests
        if not r.source or fixed.get(r.entry_digest)
    }
    harmed = yield from _controls(
        [
            _Try(r.entry_digest, example, r.page, repeat)
            for r in requests
            for example in controls.get(r.entry_digest, ())
            for repeat in (LOOKS if example in r.own else LOOKS[:1])
        ],
        [
            replace(_Try(digest, example_of(r.source), r.page).without, repeat=LOOKS[-1])
            for r in requests
            if r.source and fixed.get(digest := r.entry_digest) and not _supported(artifact, digest)
        ],
    )
    verdicts = []
    for r in requests:
        digest = r.entry_digest
        repaired, count = fixed.get(digest) if r.source else 0, harmed.get(digest, 0)
        if repaired is not None and count is not None:
            verdicts.append(Verdict(digest, r.source, bool(repaired), count, controls.get(digest, ())))
    won = sum(not verdict.lost for verdict in verdicts)
    return Verified(with_verdicts(artifact, verdicts), len(candidates), len(verdicts), won)


def _requests(
    ledger: Ledger, trajectories: Mapping[str, Trajectory], readers: Readers, budget_tokens: int
) -> list[ReplayRequest]:
    """Return what is replayed: each candidate beside what stands without any of them."""
    candidates = replay_candidates(ledger, trajectories=trajectories, readers=readers)
    page = partial(
        render, ledger, budget_tokens=budget_tokens, verify="Replay", without=frozenset(candidates)
    )
    shown = page().text
    return [
        replay_request(
            ledger, digest, trajectories=trajectories, page=Page.of(page(with_entry=digest).text, shown)
        )
        for digest in candidates[: max(LEAST_CANDIDATES, len(trajectories))]
    ]


def _own(
    ledger: Ledger, requests: Sequence[ReplayRequest]
) -> Generator[Round, Sequence[Trajectory], tuple[list[ReplayRequest], dict[str, int | None]]]:
    """Return, by entry, whether it fixes its own example; None: a call was lost.

    An example that is answered right without the entry when asked anew has nothing to be fixed. An entry that
    other sources support has it for a control then; of another one it shows nothing.
    """
    tries = {r.entry_digest: _Try(r.entry_digest, example_of(r.source), r.page) for r in requests if r.source}
    answers = yield _round([one.anew.without for one in tries.values()], "replay without")
    before = dict(zip(tries, answers, strict=True))
    kept: list[ReplayRequest] = []
    for r in requests:
        answer = before.get(r.entry_digest)
        if answer is None or not answer.correct:
            kept.append(r)
        elif _supported(ledger, r.entry_digest):
            kept.append(replace(r, source="", own=(answer.example_id,)))
    wrong = [one for digest, one in tries.items() if not before[digest].correct and not before[digest].error]
    fixed: dict[str, int | None] = _right(wrong, (yield _round([one.anew for one in wrong], "replay")))
    doubted = [one for one in wrong if fixed[one.digest] == 0]
    return kept, fixed | _right(doubted, (yield _round(doubted, "replay again")))


def _supported(ledger: Ledger, digest: str) -> bool:
    return len(lessons_of(ledger).members[digest].examples) >= DISTINCT_TO_SUPPORT


def _right(tries: Sequence[_Try], answers: Sequence[Trajectory]) -> dict[str, int | None]:
    pairs = zip(tries, answers, strict=True)
    return {one.digest: None if answer.error else int(answer.correct) for one, answer in pairs}


def _controls(tries: Sequence[_Try], own: Sequence[_Try]) -> _Asking:
    """Return, by entry, how many of its controls it harms; None: a call was lost, or its ``own`` example was
    answered right without it."""
    everything = yield _round([*tries, *own], "controls")
    answers, without_it = everything[: len(tries)], everything[len(tries) :]
    by_entry = grouped(zip(tries, answers, strict=True), lambda pair: pair[0].digest)
    doubted = [pairs for pairs in by_entry.values() if not all(answer.correct for _, answer in pairs)]
    wrong = [one for pairs in doubted for one, answer in pairs if not answer.correct]
    anew = [one.anew for pairs in doubted if len({one.repeat for one, _ in pairs}) == 1 for one, _ in pairs]
    again = yield _round([*anew, *(one.without for one in wrong + anew)], "controls again")
    answers_with = {**dict(zip(tries, answers, strict=True)), **dict(zip(anew, again, strict=False))}
    answers_without = dict(zip(wrong + anew, again[len(anew) :], strict=True))
    spoilt: dict[str, list[str]] = {digest: [] for digest in by_entry}
    for one, without in answers_without.items():
        if without.correct and not answers_with[one].correct:
            spoilt[one.digest].append(one.example_id)
    lost = {one.digest: None for one, a in [*answers_with.items(), *answers_without.items()] if a.error}
    lucky = {one.digest: None for one, a in zip(own, without_it, strict=True) if a.error or a.correct}
    return {d: len(set(e)) if len(e) >= SHOWN_TWICE else 0 for d, e in spoilt.items()} | lost | lucky


def _round(tries: Sequence[_Try], stage: str) -> Round:
    rollouts = (Rollout(one.example_id, one.page, one.repeat) for one in tries)
    return Round(stage, tuple(rollouts), least_temperature=SECOND_LOOK_TEMPERATURE)
