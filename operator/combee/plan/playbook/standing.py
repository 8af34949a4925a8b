"""What a Playbook and its versions say about themselves, from the board as it stands in the end."""

from __future__ import annotations

from dataclasses import replace

from combee.algo.spending import percent
from combee.api.common import one_line
from combee.api.playbook_status import (
    ErrorBudget,
    PlaybookShown,
    PlaybookStatus,
    Verdict,
    VersionPhase,
    VersionStatus,
)
from combee.plan.playbook.board import MAX_SENTENCE, Board, Record
from combee.plan.playbook.conditions import (
    CANARY,
    HELD_OUT,
    PINNED,
    PROMOTED,
    READY,
    SERVED_AS_LEARNED,
    Statement,
    merge,
)
from combee.plan.playbook.judges import known_judges
from combee.plan.playbook.learn import NO_RUN, Learning
from combee.plan.playbook.traffic import warnings
from combee.plan.playbook.types import Delivery
from combee.plan.playbook.unasked import FOR_A_PERSON, let_through, unreached

P = VersionPhase


def playbook_status(
    board: Board, learned: Learning, delivery: Delivery, held: str, budget: ErrorBudget | None
) -> PlaybookStatus:
    """Return the Playbook's status; equal facts give an equal one."""
    about, before = board.about, board.before
    shown = _shown(board)
    active, candidate = board.get(board.active), board.get(board.candidate)
    ready = _ready(board, delivery)
    conditions = [ready, *_of_version(board, shown, held), _pinned(board)]
    conditions += () if about.unreadable else (Statement(SERVED_AS_LEARNED, *_served_as_learned(board)),)
    held_out = _first_verdict(shown) if shown else None
    # Computing them takes a while, and they depend on the spec alone.
    same = before.observed_generation == about.generation or bool(about.unreadable)
    warned = list(before.warnings if same else warnings(about.spec))
    # The installation's discipline can change, too.
    warned = [text for text in warned if not text.startswith(NO_RUN)]
    if learned.warning and learned.warning not in warned:
        warned.append(learned.warning)
    return PlaybookStatus(
        observed_generation=about.generation,
        message=one_line(_sentence(board, ready, held), MAX_SENTENCE),
        conditions=merge(before.conditions, conditions, about.generation, board.now),
        active_digest=board.active,
        previous_digest=board.previous,
        candidate_digest=board.candidate,
        held_out_digest=about.spec.held_out.digest or board.held_out_digest,
        held_out=held_out,
        error_budget=budget,
        canary=shown.status.canary if shown else None,
        watch=active.status.watch if active else None,
        run_name=learned.latest or before.run_name,
        next_run_time=about.when(learned.next_time),
        history=tuple(board.history),
        trail=board.trail,
        warnings=tuple(warned),
        shown=PlaybookShown(
            active=active.short if active else "",
            candidate=candidate.short if candidate else "",
            gain="" if held_out is None or held_out.gain is None else f"{held_out.gain:+.3f}",
            canary=_progress(shown),
            next_look="" if budget is None else f"{percent(budget.next_confidence)} %",
        ),
        state=board.memory.to_json(),
    )


def version_status(board: Board, record: Record, held: str) -> VersionStatus:
    generation, conditions = record.seen.generation, _of_version(board, record, held)
    promoted = next(condition for condition in conditions if condition.type == PROMOTED)
    changed = {
        "observed_generation": generation,
        "message": one_line(promoted.message, MAX_SENTENCE),
        "conditions": merge(record.status.conditions, conditions, generation, board.now),
        "state": replace(record.memory, job_uids=_job_uids(board, record)).to_json(),
    }
    return record.status.model_copy(update=changed)


def _job_uids(board: Board, record: Record) -> tuple[str, ...]:
    """Return the Jobs whose pairs count in the version's comparison, as it remembers them."""
    comparison = record.memory.comparison
    present = board.seen.job_uids.get(comparison, ())
    return known_judges(record.memory.job_uids, present) if comparison else ()


def _shown(board: Board) -> Record | None:
    """Return the version whose verdicts the Playbook shows: the candidate, else the last one judged."""
    if (candidate := board.get(board.candidate)) is not None:
        return candidate
    decided = [record for record in board.latest_first() if _first_verdict(record) is not None]
    return next(iter(decided), board.get(board.active))


def _progress(shown: Record | None) -> str:
    """Return the outcome of a version's canary, or while traffic is compared how far it is."""
    verdict = shown.status.canary if shown else None
    if shown is None or verdict is None or verdict.outcome is None:
        return ""
    comparison = shown.status.test
    if comparison is None or comparison.kind != "Promotion" or verdict.outcome != "Inconclusive":
        return verdict.outcome
    of = "" if verdict.needed is None else f"/{verdict.samples + verdict.needed}"
    return f"{verdict.samples}{of} {'windows' if comparison.mode == 'Prometheus' else 'pairs'}"


def _first_verdict(record: Record) -> Verdict | None:
    """Return the verdict before its canary: its content's where that refuses it, else heldOut's."""
    content = record.status.content
    return content if content is not None and content.outcome == "Failed" else record.status.held_out


def _ready(board: Board, delivery: Delivery) -> Statement:
    return Statement(READY, *_readiness(board, delivery))


def _readiness(board: Board, delivery: Delivery) -> tuple[str, str]:
    """Return reason and message of Ready."""
    active, target = board.get(board.active), f"ConfigMap {delivery.config_map}"
    if board.about.unreadable:
        return "InvalidManifest", board.about.unreadable
    if board.opaque(board.active):
        version = f"the PlaybookVersion of {board.active[:12]}, which is active,"
        return "VersionUnreadable", f"{version} cannot be read by this release: it stays"
    if board.seen.blocked and not delivery.current:
        return "DeliveryBlocked", board.seen.blocked
    if active is None and not delivery.current:
        return "Delivering", f"no version is active, and {target} is emptied"
    if active is None:
        holds = f"still holds {delivery.digest[:12]}" if delivery.digest else "is empty"
        return "NothingActive", f"no version is active; {target} {holds}"
    if active.seen.replaced:
        return "ContentReplaced", active.seen.replaced_sentence
    if delivery.current:
        return "Delivered", f"{active.short} is active and in {target}"
    if not active.seen.has_content:
        return "ContentMissing", f"ConfigMap {delivery.source} of {active.short} is not there"
    return "Delivering", f"{active.short} is active and goes into {target}"


def _pinned(board: Board) -> Statement:
    if not board.pinned:
        return Statement(PINNED, "NotPinned", "spec.version.pinnedDigest is not given")
    short, record = board.pinned[:12], board.get(board.pinned)
    if record is None:
        return Statement(PINNED, "PinnedUnknown", f"there is no version {short}: nothing changes")
    if record.served().refused:
        how = f"kubectl combee playbook promote {board.about.name} {short} would bring it back"
        return Statement(
            PINNED, "PinnedRefused", f"{short} is refused, and a pin does not bring it back; {how}"
        )
    if board.active != board.pinned:
        return Statement(PINNED, "PinnedUnknown", f"the content of {short} is not there: nothing changes")
    return Statement(PINNED, "Pinned", f"{short} is active because spec.version.pinnedDigest says so")


def _served_as_learned(board: Board) -> tuple[str, str]:
    """Return reason and message of ServedAsLearned: whether services ask the model that the active version
    was learned with. Names are compared as endpoints have them: equal weights may bear two."""
    record, upstream = board.get(board.active), board.about.spec.delivery.gateway.upstream
    served = upstream.model if upstream is not None else None
    if record is None and board.active:
        return "VersionUnreadable", f"{board.active[:12]} cannot be read by this release"
    if record is None:
        return "NothingActive", "no version is active"
    learned = record.seen.spec.origin.models.get("task")
    if not learned:
        return "NoTaskModel", f"{record.short} does not say which task model it was learned with"
    if served is None:
        unknown = "delivery.gateway.upstream.model does not say which model services ask"
        return "ModelNotStated", f"{record.short} was learned with {learned}; {unknown}"
    if served == learned:
        return "SameModel", f"services ask {served}, and {record.short} was learned with it"
    what = f"services ask {served}, and {record.short} was learned with {learned}"
    fix = (
        f"Start a run from it (task.initialPlaybook.activeVersion: true) with {served} as models.task: "
        f"entries that {learned} replayed are looked at again, before other inherited ones"
    )
    return "AnotherModel", f"{what}: no score and no replay of its run is of {served}. {fix}"


def _of_version(board: Board, record: Record | None, held: str) -> tuple[Statement, ...]:
    """Return HeldOutPassed, CanaryPassed and Promoted of a version."""
    if record is None:
        none = "no version was made yet"
        waived = board.about.spec.canary is not None and board.about.spec.canary.waived is not None
        unasked = unreached(board.about) if waived else None
        canary = Statement(CANARY, "NoCandidate", none)
        if unasked is not None:
            canary = Statement(CANARY, unasked.reason, unasked.message)
        return (Statement(HELD_OUT, "NoCandidate", none), canary, Statement(PROMOTED, "NoCandidate", none))
    return (_held_out(record), _canary(board, record), Statement(PROMOTED, *_promoted(board, record, held)))


def _held_out(record: Record) -> Statement:
    content, verdict = record.status.content, _first_verdict(record)
    if verdict is not None:
        return Statement(HELD_OUT, verdict.reason, verdict.message)
    return Statement(HELD_OUT, "NotLookedAt", content.message if content else "its gates were not asked")


def _canary(board: Board, record: Record) -> Statement:
    verdict = record.status.canary or unreached(board.about)
    if verdict is None:
        return Statement(CANARY, "NotReached", "the canary comes after heldOut")
    needed, message = verdict.needed, verdict.message
    missing = f" ({needed:,} more needed)" if needed and "needed" not in message else ""
    return Statement(CANARY, verdict.reason, f"{message}{missing}")


def _promoted(board: Board, record: Record, held: str) -> tuple[str, str]:
    """Return reason and message of Promoted."""
    status, has_content = record.status, record.seen.has_content
    if record.digest == board.active:
        return (
            f"By{status.promoted_by or 'Decision'}",
            f"{record.short} is active since {status.promoted_time}",
        )
    if record.phase is P.REFUSED and record.seen.spec.decision == "Promote" and not has_content:
        return (
            "ContentMissing",
            f"its content is gone, apply the run that learned it once more; before: {status.message}",
        )
    if record.phase is P.REFUSED:
        reasons = {"Gates": "GatesFailed", "Rollback": "RolledBack"}
        return reasons.get(status.refused_by, "Refused"), status.message
    if record.phase is P.INCONCLUSIVE:
        return "Inconclusive", status.message
    if record.phase in (P.PREVIOUS, P.SUPERSEDED):
        return "Superseded", _overtaken(board, record)
    if record.seen.replaced:
        return "ContentReplaced", record.seen.replaced_sentence
    if not has_content:
        config_map = record.seen.spec.config_map_name
        return "ContentMissing", f"its ConfigMap {config_map} is not there, or holds something else"
    return _waiting(board, record, held)


def _overtaken(board: Board, record: Record) -> str:
    if record.phase is P.PREVIOUS:
        return f"{record.short} was active before {board.active[:12]}"
    if record.memory.promoted:
        return f"{record.short} was active once"
    return record.status.message or "a later version was compared instead"


def _waiting(board: Board, record: Record, held: str) -> tuple[str, str]:
    """Return reason and message of Promoted for a version that waits."""
    status = record.status
    if record.digest != board.candidate:
        return "Waiting", f"it waits until {board.candidate[:12] or 'another version'} is compared"
    if held and _passed(status.held_out):
        return "HeldByPin" if held == "Pin" else "HeldByDecision", status.message
    if _passed(status.held_out) and let_through(status.canary):
        how = f"kubectl combee playbook promote {board.about.name} {record.short}"
        return "WaitingForDecision", f"its gates are passed, and version.policy is Manual: {how}"
    verdict = status.canary or status.held_out or status.content
    waits = verdict is not None and verdict.reason in FOR_A_PERSON
    reason = "WaitingForDecision" if waits else "Testing"
    return reason, verdict.message if verdict else "its gates are being asked"


def _passed(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.outcome == "Passed"


def _sentence(board: Board, ready: Statement, held: str) -> str:
    candidate = board.get(board.candidate)
    if candidate is None:
        return ready.message
    return f"{ready.message}; candidate {candidate.short}: {_waiting(board, candidate, held)[1]}"
