"""What a result says, in sentences: headline, verdict, what to look at next. Pure; no markup, no colour.

The report and the last screen say the same things because both read them here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from combee.algo.gates import CONFIDENCE, examples_needed
from combee.api.methods import budget_field
from combee.api.stakes import TUNED_ON
from combee.names import LESSONS_FILE
from combee.plan import calibrated
from combee.plan.state import ENOUGH_EXAMPLES
from combee.report.parts import Faults
from combee.report.result import Paired, PlaybookInfo, Result
from combee.report.tables_cost import NOT_SHOWN, currency
from combee.report.tables_cost import energy as joules
from combee.report.text import amount, count, duration, score, signed
from combee.report.text import price as money

SIMULATED = "simulated model"
SIMULATED_BANNER = "Numbers made with a simulated model"

_TITLES = {
    "Learned": "learned a better playbook",
    "Unsure": "found a gain that chance could make",
    "NothingBetter": "found nothing better than the start",
    "BudgetExhausted": "stopped at its budget",
    "Failed": "failed",
    "Stopped": "was stopped",
}


@dataclass(frozen=True, slots=True)
class Headline:
    """``title`` says what happened, ``reason`` why it ended, ``verdict`` what the gate half says."""

    title: str
    reason: str
    verdict: str
    tone: str
    """good, neutral or bad."""


def headline(result: Result) -> Headline:
    """Return the first lines of the report and of the last screen."""
    title = _TITLES[result.outcome]
    gain = result.gate
    if result.outcome == "Learned" and not _scored(result):
        title = "learned a playbook that nothing has scored"
    if result.outcome in {"BudgetExhausted", "Stopped"} and gain is not None and gain.gain > 0:
        title += f", with {'a better playbook' if gain.low > 0 else 'a gain that chance could make'} so far"
    tone = {"Learned": "good", "Failed": "bad"}.get(result.outcome, "neutral")
    keeper = f" {result.setup.steward} keeps heldOut." if result.setup.steward else ""
    return Headline(title, _sentence(result.reason), f"{verdict(result)}{keeper}", tone)


def _scored(result: Result) -> bool:
    """Return whether the run has rows to score on; recorded trajectories come without any."""
    return result.data is None or result.data.held_out is not None


def verdict(result: Result) -> str:
    """Return how far the gate's number can be trusted, in one or two sentences."""
    gate = result.gate
    if not _scored(result):
        return "There is no heldOut: a canary, or a person who reads it, has to say how good it is."
    if gate is None:
        return "The gate half was not looked at, so there is no unbiased before and after."
    if gate.low > 0:
        text = "The whole interval lies above zero: the gain is more than chance."
    elif gate.high < 0:
        text = "The whole interval lies below zero: the playbook does harm."
    else:
        text = "The interval includes zero: the difference can be chance."
    smallest = result.smallest_detectable_gain
    if smallest is not None and gate.low <= 0 <= gate.gain < smallest:
        text += (
            f" With {count(gate.n, 'example')} a true gain of {score(smallest)} shows in four of five runs."
        )
    return text


def cost(result: Result) -> str:
    """Return ``1.24 M tokens, 1,312 rollouts, 2 min 14 s``."""
    rollouts = count(result.rollouts, "rollout")
    return f"{amount(result.tokens)} tokens, {rollouts}, {duration(result.wall_seconds)}"


def cost_per_point(result: Result) -> str:
    """Return what a point of held-out gain cost, or why that cannot be said."""
    price = result.cost_per_point
    if price is None:
        return "no gain on the gate half to divide by"
    parts = [f"{amount(price.tokens)} tokens", f"{price.rollouts:,.1f} rollouts"]
    if price.gpu_seconds is not None:
        parts.append(f"{price.gpu_seconds:,.1f} GPU seconds")
    if price.money is not None:
        parts.append(f"{money(price.money)} {currency(result)}")
    return f"{', '.join(parts[:-1])} and {parts[-1]} for each point (0.01) of gain"


def energy(result: Result) -> str:
    """Return what the GPUs used, as far as it was read."""
    used = result.energy
    if shared := ", ".join(result.setup.shared_engines):
        return f"{NOT_SHOWN}: other runs may use {shared}, too, and the joules of a GPU are not told by run"
    if used is None:
        return NOT_SHOWN
    gap = "" if used.steps == used.of_steps else f", read in {used.steps} of {count(used.of_steps, 'step')}"
    gain = result.gate.gain * 100 if result.gate else 0.0
    point = f", {joules(used.joules / gain)} a point of gate" if gain > 0 else ""
    return f"{joules(used.joules)}{gap}{point}"


def served_by(result: Result) -> tuple[str, ...]:
    """Return a line for each role: which model answered, and the server's own words about itself."""
    lines = []
    for role, model in result.models.items():
        words = model.served_by or "the server says nothing about itself"
        at = f" at {model.endpoint_host}" if model.endpoint_host else ""
        lines.append(f"{role}: {model.model}{at}, served by: {words}")
    return tuple(lines)


BAD_DAY_SHARE = 0.01
"""The endpoint had a bad day when more than this share of the requests were sent again."""


def faults(result: Result) -> str:
    """Return what went wrong on the way, in one sentence; empty when nothing did."""
    met = result.faults
    failed = sum(it.failed for it in result.iterations)
    if not met.any and not failed:
        return ""
    again = sum(met.asked_again.values())
    reasons = ", ".join(f"{n:,} × {name}" for name, n in sorted(met.asked_again.items(), key=_most_first))
    misbehaved = ", ".join(f"{n:,} × {name}" for name, n in sorted(met.rollouts.items(), key=_most_first))
    parts = [
        f"{count(sum(met.rollouts.values()), 'rollout')} misbehaved ({misbehaved})" if misbehaved else "",
        f"{count(again, 'request')} sent again ({reasons})" if again else "",
        f"{count(met.repaired, 'broken answer')} asked for once more" if met.repaired else "",
        f"{count(met.hedges, 'slow call')} raced" if met.hedges else "",
    ]
    calls = sum(use.calls - use.hits for use in result.usage.values())
    unanswered = met.lost - met.cut - met.unparsable
    bad = again + unanswered > BAD_DAY_SHARE * max(1, calls)
    head = "the endpoint had a bad day" if bad else "the endpoint"
    return f"{head}: {', '.join(part for part in parts if part) or 'calls failed'}; {_lost(met, failed)}"


def _most_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _lost(met: Faults, examples: int) -> str:
    if not met.lost and not examples:
        return "nothing was lost"
    fates = {
        "cut at the token limit": met.cut,
        "unreadable": met.unparsable,
        "unanswered": met.lost - met.cut - met.unparsable,
    }
    which = ", ".join(f"{number:,} {fate}" for fate, number in fates.items() if number)
    text = f"{count(met.lost, 'call')} brought no usable answer" + (f" ({which})" if which else "")
    wrong = "counts as wrong" if examples == 1 else "count as wrong"
    return f"{text}, {count(examples, 'example')} {wrong} for it" if examples else text


def refused(result: Result) -> str:
    """Return ``5 entries (3 replay, 1 leak, 1 injection)``, or that nothing was refused."""
    kinds = Counter(refusal.kind for refusal in result.refusals)
    if not kinds:
        return "no entry was refused"
    parts = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    return f"{count(len(result.refusals), 'entry', 'entries')} ({parts})"


def evaluator(result: Result) -> str:
    """Return how the evaluator's scores compare with others', and who scores where it costs too much; empty
    where no evaluator scored."""
    profile = result.profile
    return "; ".join(filter(None, (profile.calibration, profile.scorer))) if profile else ""


def playbook(result: Result) -> str:
    """Return the size of the playbook in words."""
    book = result.playbook
    if book is None:
        return "none was made"
    if book.components:
        parts, variants = count(len(book.components), "component"), count(len(result.variants), "variant")
        return f"a prompt of {parts}, {book.tokens:,} tokens, the best of {variants}"
    left = f", {book.left_out:,} left out" if book.left_out else ""
    return f"{count(book.entries, 'entry', 'entries')}, {book.tokens:,} tokens{left}"


def warnings(result: Result) -> tuple[str, ...]:
    """Return the data's warnings and what a careful reader should know about the numbers."""
    texts = list(result.data.warnings) if result.data else []
    if result.profile and result.profile.start:
        texts.append(result.profile.start)
    if result.setup.scored_by:
        texts.append(result.setup.scored_by)
    if result.setup.used_for_tuning:
        texts.append(TUNED_ON)
    held_out, gate = result.held_out, result.gate
    smallest = result.smallest_detectable_gain
    if smallest is not None and smallest > SMALL:
        texts.append(f"heldOut is small: gains under {score(smallest)} show in fewer than four of five runs")
    if held_out and held_out.best and held_out.baseline and gate:
        drop = (held_out.best.select - held_out.baseline.select) - gate.gain
        if drop > 0.05:
            texts.append(
                f"the gain on select is {score(drop)} larger than on gate: the choice fitted the select half"
            )
    if result.test and gate and result.test.high < gate.low:
        texts.append("the gain on test lies under the interval of the gate: the two splits may differ")
    if again := [it for it in result.iterations if it.repeats]:
        examples = sum(it.batch_size for it in again)
        if examples >= ENOUGH_EXAMPLES:
            where = count(len(again), "iteration")
            texts.append(
                f"the proposer repeated itself in {where} ({count(examples, 'example')}): every proposal "
                "was known, or tried and refused"
            )
    return tuple(texts)


def next_steps(result: Result, *, command: str = "") -> tuple[str, ...]:
    """Return what to look at or do next, most useful first. ``command`` is the one that ran, if known: the
    report may be of a run on a cluster."""
    again = f"run `{command}` again" if command else "start it again (on a cluster: under another name)"
    gate = result.gate
    steps: list[str] = []
    if result.outcome == "Stopped":
        steps.append(f"{_capital(again)} to go on: finished calls are kept and not asked twice.")
    where = "in another folder with a copy of this one's store/memo" if command else "under another name"
    if result.outcome == "Failed" and result.reason.startswith((calibrated.CODE, calibrated.PROXY_CODE)):
        steps.append(f"Start {where}: what was answered is not asked again.")
    elif result.outcome == "Failed":
        steps.append(f"Mend what the reason says, then {again}: finished calls are kept.")
    if result.outcome == "BudgetExhausted":
        more = f"Raise the limit under spec.budget and start {where}: what was answered is not asked again."
        steps.append(f"{more} Or use the playbook as it is.")
    if result.diagnosis is not None and not result.diagnosis.go:
        return ("Do what the diagnosis of serial learning says; learning in parallel was not started.",)
    if result.outcome == "NothingBetter":
        steps += _nothing_better(result)
    if result.outcome == "NothingBetter" and not _scored(result):
        steps.append(
            'Give more traces of the same kind, or show what one trace alone taught with verify: "Off".'
        )
    if result.playbook is not None and ((gate is not None and gate.gain > 0) or not _scored(result)):
        steps.append(_read(result.playbook))
    if gate is not None and gate.low <= 0 < gate.gain:
        steps.append(_more_rows(gate))
    if result.outcome == "Unsure":
        may = "use it" if command else "promote it: `kubectl combee playbook promote`"
        steps.append(f"No gate of a Playbook promotes it by itself. A person who has read it may {may}.")
    steps.extend(_from_the_numbers(result))
    return tuple(steps)


def _more_rows(gate: Paired) -> str:
    """Return how many rows of heldOut, half of which are gate, would show a true gain as large as this."""
    share = min(1.0, max(gate.gain, gate.discordant / gate.n))
    rows = 2 * examples_needed(gate.gain, discordance=share, confidence=CONFIDENCE)
    return (
        "Do not rely on this gain: its interval includes zero. A true gain as large shows in four of five "
        f"runs with about {rows:,} heldOut rows."
    )


SMALL = 0.15
"""The smallest gain shown from which on heldOut is called small."""
WEAK = 0.1
"""A score on select below which a model probably lacks the skill that the task asks for."""


def _nothing_better(result: Result) -> list[str]:
    """Return why nothing was better, as far as the numbers say, and what to try."""
    steps = []
    scores = [it.select for it in result.iterations if it.select is not None]
    if result.held_out and result.held_out.baseline and scores:
        start, most = result.held_out.baseline.select, max(scores)
        if max(start, most) < WEAK:
            steps.append(
                f"On select the task model scores {score(start)} without a playbook and at most "
                f"{score(most)} with one: it probably lacks the skill, which no lesson brings. "
                "Try a stronger task model."
            )
    kept = [it.retention for it in result.iterations if it.retention is not None]
    distinct, carried = sum(one.distinct for one in kept), sum(one.carried for one in kept)
    if carried < distinct:
        steps.append(
            f"Of {count(distinct, 'distinct lesson')} the aggregator brought {carried:,} into the ledger: "
            "the levels show where the others were lost."
        )
    if result.entries or result.refusals:
        steps.append("Read the entries that were tried, and why each was left out or refused.")
    return [*steps, "Try more examples, another proposer model, or a smaller batching.sizes."]


def _read(book: PlaybookInfo) -> str:
    if book.components:
        return (
            f"Read {book.path}, the prompt as agents see it; the report says which variants it came out of."
        )
    return f"Read {LESSONS_FILE}: every bullet names the examples it was learned from. Use {book.path}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _from_the_numbers(result: Result) -> list[str]:
    """Return steps that follow from where lessons or bullets went."""
    steps = []
    contested = sum(entry.contested for entry in result.entries)
    if contested:
        steps.append(f"Settle {count(contested, 'contested bullet')}: sources disagree about them.")
    if any(refusal.kind in {"leak", "injection"} for refusal in result.refusals):
        steps.append(
            "Look at the refused entries of kind leak and injection: they say something about the data."
        )
    if result.playbook and result.playbook.over_budget:
        over = result.playbook.over_budget
        what = count(over, *(("variant",) if result.variants else ("verified entry", "verified entries")))
        field = budget_field(result.setup.method).removeprefix("spec.")
        steps.append(f"Raise {field}: {what} did not fit.")
    if result.iterations and result.iterations[-1].best and result.outcome == "Learned":
        steps.append("The last iteration was the best one: more epochs or examples may still help.")
    return steps


def _sentence(text: str) -> str:
    text = text.strip()
    if text.partition(" ")[0].isalpha():
        text = text[:1].upper() + text[1:]
    return text if not text or text[-1] in ".!?" else f"{text}."


def gate_line(gate: Paired) -> str:
    """Return ``0.640 -> 0.861, +0.221 (95 % interval +0.160 to +0.282)`` with an arrow."""
    interval = f"95 % interval {signed(gate.low)} to {signed(gate.high)}"
    return (
        f"{score(gate.baseline)} → {score(gate.best)}, {signed(gate.gain)} ({interval}){partial_words(gate)}"
    )


def partial_words(pair: Paired) -> str:
    """Return ``; partial credit 0.791 -> 0.875`` with an arrow, and the share of clusters whose rows are all
    right alike; empty where the task has neither."""
    sides = {
        "partial credit": (pair.partial_baseline, pair.partial_best),
        "clusters all right": (pair.whole_baseline, pair.whole_best),
    }
    return "".join(
        f"; {name} {score(before)} → {score(after)}"
        for name, (before, after) in sides.items()
        if before is not None and after is not None
    )


def waived(result: Result) -> str:
    """Return what the manifest leaves out for a stated reason."""
    return "; ".join(result.setup.waivers) or "nothing"


def largest_risk(result: Result) -> tuple[str, str]:
    """Return the largest failure mode that the numbers show, and what would catch it for the least cost."""
    gate, setup = result.gate, result.setup
    if result.simulated:
        return "a simulated model answered: nothing here shows that a real one learns", "the same run on it"
    if setup.used_for_tuning:
        return (
            "heldOut was used for tuning before: its scores are optimistic",
            "score rows that nobody has seen",
        )
    if gate is None:
        return "the gain was not looked at on gate", "the gate half, looked at once"
    if gate.low <= 0:
        return "the gain may be chance: its interval includes zero", "a canary on live traffic"
    if "evaluator" in result.models:
        return "the evaluator may favour what the proposer writes", "a second judge on 5 % of the rows"
    return "live traffic differs from heldOut", "a canary on live traffic, which is paired by request"
