"""Replay: an entry earns its place by fixing its own example and harming no control.

A replay is a rollout with the playbook plus this one entry, and is charged as one. The playbook beside it
holds no other entry that is still to be decided, nor an inherited one that is looked at anew (``reverify``):
one that is not right any more says otherwise than the entry which is to take its place, and would lose it
its replay.

**Luck.** Models slip: one answer in eight goes wrong with the right rule in front of it, and an answer that
was right by luck does not stay right. So nothing is held against or for an entry that shows only once. Its
own example is asked anew *without* it first: where that is right, there is nothing to fix. Then it is asked
with the entry, and where it stays wrong once more. Controls follow for what was fixed and for what has
nothing to fix: one that goes wrong puts all controls of the entry to a second look, *with and without* it.
Harmed is a control that is right without and wrong with it. In a thousand planted lessons half of all replays
were lost to such luck before.

**Rounds.** What each entry asks next is asked side by side, whatever that is: an entry that fixed its example
asks its controls while another one is asked once more. Four rounds decide most; one that fixed its example
only when asked once more may take a fifth.

**The budget.** In an iteration as many entries are replayed as it has examples, those that matter most first;
the others stay undecided. Most take three rollouts, which is what ``preview`` counts. Inherited entries have
their part of it (``reverify``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count, islice

from combee.methods.ace import reverify
from combee.methods.ace.change import with_verdicts
from combee.methods.ace.facts import lessons_of
from combee.methods.ace.ledger import Ledger
from combee.methods.ace.matching import Readers
from combee.methods.ace.render import render
from combee.methods.ace.replay import ReplayRequest, replay_controls, replay_request, to_replay
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
ROUNDS = 4
"""Rounds of most verifications: own examples without the entry, and with it; controls, and again."""
LEAST_REPLAYED = 8
"""Entries that are replayed in an iteration of few examples, if there are as many."""

_Asking = reverify.Asking
"""The replay of one entry, which yields what may be asked at once; None: it was not decided."""
_Controls = Callable[[ReplayRequest], tuple[str, ...]]


def verification(
    artifact: Ledger,
    *,
    trajectories: Mapping[str, Trajectory],
    budget_tokens: int,
    verify: Verify,
    model: str = "",
) -> Verifying[Ledger]:
    """Return a verdict on every entry that could be decided; one whose replay is lost does not stand.
    ``model``: the task model, by which inherited verdicts are told that are stale."""
    if verify != "Replay":
        return Verified(artifact)
    readers = Readers({one.example_id: one.input for one in trajectories.values()})
    right = sorted(trajectory.example_id for trajectory in trajectories.values() if trajectory.correct)

    def controls(request: ReplayRequest) -> tuple[str, ...]:
        return replay_controls(request, right, readers.of(artifact.texts[request.entry_digest]))

    undecided = to_replay(artifact, trajectories=trajectories, readers=readers)
    page = partial(render, artifact, budget_tokens=budget_tokens, verify=verify, without=frozenset(undecided))
    shown = page()
    inherited = reverify.due(artifact, shown, trajectories, readers, model)
    most = max(LEAST_REPLAYED, len(trajectories))
    kept = most // reverify.share(artifact, inherited, model) if inherited else 0
    looks = (most - min(len(undecided), most - kept)) // reverify.REPLAYS_OF_A_LOOK
    looked = dict(islice(inherited.items(), looks))
    # An undecided entry is replayed beside what is settled, and what is being looked at is not.
    page = partial(page, without={*undecided, *looked})
    settled = page()
    requests = [
        replay_request(
            artifact,
            digest,
            trajectories=trajectories,
            page=Page.of(page(with_entry=digest).text, settled.text),
        )
        for digest in undecided[: most - kept]
    ]
    again = [
        reverify.looked_at(artifact, digest, rows, budget_tokens=budget_tokens, shown=shown, look=SECOND_LOOK)
        for digest, rows in looked.items()
    ]
    new = (
        _replayed(request, controls, supported=_supported(artifact, request.entry_digest))
        for request in requests
    )
    verdicts = yield from _side_by_side(chain(new, again))
    won = sum(not verdict.lost for verdict in verdicts)
    return Verified(with_verdicts(artifact, verdicts), len(requests) + len(again), len(verdicts), won)


def _supported(ledger: Ledger, digest: str) -> bool:
    return len(lessons_of(ledger).members[digest].examples) >= DISTINCT_TO_SUPPORT


def _side_by_side(replays: Iterable[_Asking]) -> Generator[Round, Sequence[Trajectory], list[Verdict]]:
    """Return the verdicts of replays, each of which takes as many rounds as it needs."""
    verdicts: list[Verdict] = []
    answers: dict[_Asking, list[Trajectory] | None] = dict.fromkeys(replays)
    for number in count(1):
        questions: dict[_Asking, list[Rollout]] = {}
        for replay, answered in answers.items():
            try:
                questions[replay] = next(replay) if answered is None else replay.send(answered)
            except StopIteration as end:
                verdicts += [end.value] if end.value else []
        if not questions:
            break
        rollouts = tuple(one for ones in questions.values() for one in ones)
        turn = Round(f"replay round {number}", rollouts, least_temperature=SECOND_LOOK_TEMPERATURE)
        came = iter((yield turn))
        answers = {replay: list(islice(came, len(ones))) for replay, ones in questions.items()}
    return verdicts


def _replayed(request: ReplayRequest, controls: _Controls, *, supported: bool) -> _Asking:
    """Return the verdict on an entry; None: a call was lost, or its example shows nothing.

    An example that is answered right without the entry when asked anew has nothing to be fixed. An entry that
    other sources support has it for a control then; of another one it shows nothing.
    """
    digest, own = request.entry_digest, Rollout(example_of(request.source), request.page)
    doubts: list[Rollout] = []
    if request.source:
        (before,) = yield [_without(_anew(own))]
        if before.correct and supported:
            request = replace(request, source="", own=(own.example_id,))
        elif before.correct or before.error:
            return None
        else:
            fixed = yield from _fixed(own)
            if not fixed:
                return None if fixed is None else Verdict(digest, request.source, False, 0)
            doubts = [] if supported else [replace(_without(own), repeat=LOOKS[-1])]
    chosen = controls(request)
    harmed = yield from _harmed(request, chosen, doubts)
    return None if harmed is None else Verdict(digest, request.source, bool(request.source), harmed, chosen)


def _fixed(own: Rollout) -> Generator[list[Rollout], list[Trajectory], bool | None]:
    """Return whether an entry fixes its own example in one look or another; None: a call was lost."""
    (answer,) = yield [_anew(own)]
    if not answer.correct and not answer.error:
        (answer,) = yield [own]
    return None if answer.error else answer.correct


def _harmed(
    request: ReplayRequest, controls: Sequence[str], doubts: Sequence[Rollout]
) -> Generator[list[Rollout], list[Trajectory], int | None]:
    """Return how many controls an entry harms; None: a call was lost, or one of ``doubts``, its own example
    without it, was answered right."""
    looks = [
        Rollout(example, request.page, repeat)
        for example in controls
        for repeat in (LOOKS if example in request.own else LOOKS[:1])
    ]
    if not looks and not doubts:
        return 0
    answers = yield [*looks, *doubts]
    if any(one.error for one in answers) or any(one.correct for one in answers[len(looks) :]):
        return None
    wrong = [look for look, answer in zip(looks, answers, strict=False) if not answer.correct]
    if not wrong:
        return 0
    # What stands for its own examples was looked at anew already.
    anew = [] if request.own else [_anew(look) for look in looks]
    again = yield [*anew, *(_without(look) for look in [*wrong, *anew])]
    if any(one.error for one in again):
        return None
    right_with = [False for _ in wrong] + [one.correct for one in again[: len(anew)]]
    right_without = [one.correct for one in again[len(anew) :]]
    spoilt = [
        look.example_id
        for look, with_entry, without in zip([*wrong, *anew], right_with, right_without, strict=True)
        if without and not with_entry
    ]
    return len(set(spoilt)) if len(spoilt) >= SHOWN_TWICE else 0


def _without(one: Rollout) -> Rollout:
    """Return the same question, asked without the entry."""
    return replace(one, page=Page(one.page.base, len(one.page.base), ""))


def _anew(one: Rollout) -> Rollout:
    """Return the same question, asked anew."""
    return replace(one, repeat=SECOND_LOOK)
