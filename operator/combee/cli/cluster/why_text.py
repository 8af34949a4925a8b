"""What a run waits for or died of, in words. Pure: what was seen of it in, lines out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from combee.api.conditions import Condition, Reason
from combee.api.status import Phase, RunStatus
from combee.cli.cluster.pods import event_time
from combee.cli.cluster.status_text import Line, Shown, head, labelled, not_good
from combee.clients.kubernetes.kube import Object
from combee.names import RUN_KIND
from combee.plan.cluster.seen import Trouble
from combee.report.text import visible

EVENTS = 6
R = Reason
TO_DO: Mapping[Reason, str] = {
    R.INVALID_MANIFEST: "Mend the field and apply the manifest again; `combee validate -f run.yaml` tells "
    "all that is wrong.",
    R.NOT_AVAILABLE: "Use another address, or an image with the package that is named.",
    R.MISSING_INPUT: "Say what it asks in the manifest and apply it again: docs/discipline.md says what each "
    "answer is for.",
    R.UNSOUND: "Change what it names and apply the manifest again: docs/discipline.md says why.",
    R.CHANGE_UNEXPLAINED: "Write digest and reason into spec.heldOut of the Playbook: the run then goes "
    "on by itself.",
    R.INVALID_DATA: "Mend the data and start a new run: its rows were pinned.",
    R.DATA_OVERLAP: "Take the shared rows out of train or heldOut.",
    R.HELD_OUT_MOVED: "Put the data back as it was, or start a new run under another name.",
    R.HELD_OUT_TOO_SMALL: "Add rows to heldOut.",
    R.EVALUATOR_NOT_CALIBRATED: "Use another evaluator or clearer criteria, and start a new run.",
    R.PROXY_NOT_CALIBRATED: "Use another proxy or a higher ceiling, and start a new run.",
    R.INCONCLUSIVE: "Label more rows, or give more of them: see docs/evaluator.md.",
    R.SECRET_NOT_ALLOWED: "Ask an administrator for the chart's admission policy, or name no Secret.",
    R.PODS_NOT_ALLOWED: "Ask an administrator to allow it, or leave the template out.",
    R.ADDRESS_NOT_ALLOWED: "Ask an administrator to add the host to the chart's allowedHosts, then start a "
    "new run.",
    R.ENDPOINT_REFUSED: "See the model's name, the key and the endpoint's own log; a new run finds all calls "
    "that were answered in memory.",
    R.STORE_UNUSABLE: "See whether the claim is full, or the Secret may write to the bucket; a new run finds "
    "what is kept.",
    R.TOO_MANY_FAILURES: "See its log and mend what it says, then start a new run: answered calls are kept.",
    R.INTERNAL_ERROR: "This is ours: please report it with the output of this command.",
    R.STOPPED: "It stays as it is: what was learned until then is kept; start a new run to go on.",
    R.WAITING_FOR_QUOTA: "It goes on by itself when there is room: see kubectl describe quota, or the "
    "queue's.",
    R.UNSCHEDULABLE: "See kubectl describe nodes, and workers.template or engines[].template in the "
    "manifest.",
    R.IMAGE_PULL_FAILED: "See the image's name, and imagePullSecrets in the template.",
    R.STARTING: "Large models load for minutes; it goes on by itself.",
    R.LOAD_FAILED: "See the engine's log; mend engines[].vllm and start a new run.",
    R.NOT_READY: "See the object that engines[].ref names; the run goes on by itself when it is ready.",
    R.CRASHING: "See its log; mend what it says.",
    R.ROLLOUTS_SPENT: "Raise budget.rollouts and apply the manifest again.",
    R.TOKENS_SPENT: "Raise budget.tokens and apply the manifest again.",
    R.GPU_SECONDS_SPENT: "Raise budget.gpuSeconds and apply the manifest again.",
    R.WALL_CLOCK_SPENT: "Raise budget.wallClockSeconds and apply the manifest again.",
    R.MONEY_SPENT: "Raise budget.money and apply the manifest again.",
}
_OVER_BUDGET = "A finished run stays as it is: start a new one with a larger budget; answered calls are kept."


@dataclass(frozen=True, slots=True)
class Facts:
    """What was seen of a run and of what it made."""

    shown: Shown
    generation: int = 0
    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    """step or engine -> why it does not run."""
    last_words: Mapping[str, str] = field(default_factory=dict)
    """pod that failed -> what it said last."""
    events: Sequence[Object] = ()


def why(facts: Facts) -> list[Line]:
    """Return lines that say what it waits for or died of, and what to do."""
    troubles = (f"{visible(what)}: {visible(one.message)}" for what, one in sorted(facts.troubles.items()))
    words = (f"{pod}: {visible(text)}" for pod, text in sorted(facts.last_words.items()))
    return [
        Line("", head(facts.shown), "bold"),
        *labelled("why", _reasons(facts)),
        *labelled("now", troubles),
        *labelled("last words", words),
        *labelled("events", map(_event, sorted(facts.events, key=event_time)[-EVENTS:])),
    ]


def next_command(facts: Facts) -> str:
    """Return the words after ``kubectl combee`` that help most."""
    shown = facts.shown
    name, status = shown.name, shown.status
    if status.phase is Phase.SUSPENDED:
        return f"resume {name}"
    if facts.last_words:
        return f"logs {name}"
    if status.published:
        return f"playbook {name}"
    if status.phase.over:
        return f"report {name} -o {name}" if status.start_time else f"status {name}"
    return f"logs {name} --follow" if status.steps and not facts.troubles else f"status {name}"


def _reasons(facts: Facts) -> Iterator[str]:
    shown, status = facts.shown, facts.shown.status
    if not status.conditions and not status.phase.over:
        yield "no operator has looked at it."
        yield (
            "Is one installed (helm list -A), does it run (kubectl get pods -A -l "
            f"app.kubernetes.io/name=combee-operator), and does it watch the namespace {shown.namespace}?"
        )
        return
    if status.observed_generation < facts.generation and not status.phase.over:
        yield (
            "the operator has not looked at its last change yet; it does so within seconds. If this stays, "
            "see the operator's log."
        )
    if status.phase is Phase.SUSPENDED:
        yield "it is suspended (spec.suspend is true), and goes on when it is resumed."
        return
    yield from _of_conditions(status)


def _of_conditions(status: RunStatus) -> Iterator[str]:
    bad = not_good(status)
    messages: set[str] = set()
    for one in bad:
        if one.message not in messages:
            messages.add(one.message)
            yield f"{one.reason.value}: {visible(one.message)}"
            if advice := _advice(status, one):
                yield advice
    if bad:
        return
    if status.phase.over:
        yield f"nothing is wrong: it is over ({status.phase.value}). {visible(status.message)}"
    elif status.phase is Phase.PENDING:
        yield f"it is about to start: {visible(status.message)}"
    else:
        yield f"nothing is wrong: it is at work ({status.phase.value}). {visible(status.message)}"


def _advice(status: RunStatus, one: Condition) -> str:
    if status.phase.over and one.type.value == "BudgetExhausted":
        return _OVER_BUDGET
    return TO_DO.get(one.reason, "")


def _event(event: Object) -> str:
    mark = "! " if event.get("type") == "Warning" else ""
    about = event.get("involvedObject", {})
    what = f"{about.get('kind', '').lower()} {about.get('name', '')}: "
    if about.get("kind") == RUN_KIND:
        what = ""
    message = visible(str(event.get("message", "")))
    return f"{event_time(event)[11:19]} {mark}{visible(what)}{event.get('reason', '')}: {message}"
