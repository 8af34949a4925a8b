"""The report's tables, each a pure view of the result. Figures and tables show the same numbers.

A table without rows says in ``missing`` why there is nothing to show, so that a run which ended early still
has a whole report.
"""

from __future__ import annotations

from typing import get_args

from combee.algo.gates import score_interval
from combee.report import durations, views, words
from combee.report.diagnosis import diagnosis_table
from combee.report.diverse import diversity_table
from combee.report.prefix import prefix_table
from combee.report.result import BudgetLine, IterationRecord, Paired, Result, Role
from combee.report.tables_cost import accepted, serial
from combee.report.tables_happened import faults, in_flight, latency, path, replies, servers
from combee.report.text import Table as Table
from combee.report.text import amount, count, duration, percent, price, score, signed

NO_ITERATION = "No iteration was finished."
SHORT_DIGEST = 12


def tables(result: Result) -> dict[str, Table]:
    """Return all tables by key."""
    made = (
        _paired(result),
        _held_out(result),
        *([diagnosis_table(result.diagnosis)] if result.diagnosis else []),
        _batch(result),
        _delay(result),
        _time(result),
        path(result),
        latency(result),
        durations.table(result),
        prefix_table(result),
        in_flight(result),
        servers(result),
        replies(result),
        faults(result),
        _levels(result),
        _lessons(result),
        _rarity(result),
        _verification(result),
        *([_variants(result)] if result.variants else []),
        *([diversity_table(result)] if result.setup.diversity else []),
        _refusals(result),
        _usage(result),
        _data(result),
        _budget(result),
        accepted(result),
        *([] if result.diagnosis else [serial(result)]),
        _setup(result),
    )
    return {table.key: table for table in made}


def _paired(result: Result) -> Table:
    def row(split: str, pair: Paired) -> tuple[str, ...]:
        interval = f"{signed(pair.low)} to {signed(pair.high)}"
        numbers = (score(pair.baseline), score(pair.best), signed(pair.gain), interval)
        return (split, *numbers, f"{pair.n:,}", f"{pair.discordant:,}")

    looks = (("heldOut, gate half", result.gate), ("test", result.test))
    smallest = result.smallest_detectable_gain
    note = (
        "Paired on the same examples; the interval is of the gain. "
        "Discordant: examples whose verdict changed."
    )
    if smallest is not None:
        note += f" Smallest true gain that the gate half shows in four of five runs: {score(smallest)}."
    note += "".join(
        f" {split}{words.partial_words(pair)}." for split, pair in looks if pair and words.partial_words(pair)
    )
    columns = ("split", "#before", "#after", "#gain", "#95 % interval", "#examples", "#discordant")
    rows = tuple(row(split, pair) for split, pair in looks if pair is not None)
    return Table("paired", "Before and after", columns, rows, "The gate half was not looked at.", note)


def _held_out(result: Result) -> Table:
    size = views.select_size(result)
    examples = {it.iteration: it.examples for it in result.iterations}

    def row(point: views.ScorePoint) -> tuple[str, ...]:
        low, high = score_interval(point.score, size, 0.95)
        interval = f"{score(low)} to {score(high)}" if size else "unknown"
        name = str(point.iteration) if point.iteration else "start"
        learned = f"{examples.get(point.iteration, 0):,}"
        return name, learned, amount(point.tokens), score(point.score), interval, "best" if point.best else ""

    columns = (
        "iteration",
        "#examples so far",
        "#tokens so far",
        "#score on select",
        "#95 % interval",
        "kept",
    )
    note = (
        f"Select half, {count(size, 'example')}; Wilson interval of each single score. The best iteration "
        "was chosen on this half, so its score is optimistic: the gate half is the judge."
    )
    rows = tuple(row(point) for point in views.score_points(result))
    return Table(
        "held_out", "Held-out score by iteration", columns, rows, "Held-out was not evaluated.", note
    )


def _batch(result: Result) -> Table:
    rows = tuple((str(it.iteration), f"{it.batch_size:,}", it.batch_reason) for it in result.iterations)
    return Table("batch", "Batch size and why", ("iteration", "#batch size", "reason"), rows, NO_ITERATION)


def _delay(result: Result) -> Table:
    delay = views.delay(result)
    rows = tuple(
        (f"{size:g}", duration(seconds), duration(fitted) if fitted is not None else "no fit")
        for size, seconds in delay.observations
        for fitted in (delay.predict(size),)
    )
    note = "No curve was fitted: that takes two different batch sizes."
    if delay.fit is not None:
        fit = delay.fit
        half = f"{fit.b_half:.1f}" if fit.b_half is not None else "beyond measure"
        error = f", root mean squared error {duration(fit.rmse)}" if fit.rmse is not None else ""
        observed = count(fit.n, "observation")
        note = f"T(b) = {fit.c0:.3g} s + {fit.c1:.3g} s × b from {observed}{error}; b½ = {half}."
        note += f" {rivals}" if (rivals := views.rivals(fit)) else ""
        if fit.changed_by is not None:
            note += f" Iterations became {fit.changed_by:.2g} times as long; what was before counts no more."
    columns = ("#batch size", "#observed", "#fitted")
    return Table("delay", "Observed and fitted time", columns, rows, "No iteration was timed.", note)


def _time(result: Result) -> Table:
    def row(it: IterationRecord) -> tuple[str, ...]:
        path = it.critical_path_seconds
        ratio = f"{it.wall_seconds / path:.2f}" if path else "unknown"
        times = (duration(it.wall_seconds), duration(path), ratio, duration(it.modelled_seconds))
        return (str(it.iteration), *times, f"{it.calls:,}", f"{it.rollouts:,}", amount(it.tokens))

    columns = (
        "iteration",
        "#wall time",
        "#critical path",
        "#ratio",
        "#modelled time",
        "#calls",
        "#rollouts",
        "#tokens",
    )
    note = (
        "Critical path: the recorded calls list-scheduled on the run's slots. Ratio: wall time over it; "
        "below 1 where calls were answered from memory, which count as they did when they were made."
    )
    return Table("time", "Time and cost", columns, tuple(map(row, result.iterations)), NO_ITERATION, note)


def _levels(result: Result) -> Table:
    rows = tuple(
        (
            kept.label,
            f"{kept.calls:,}",
            f"{kept.inputs:,}",
            f"{kept.lessons:,}",
            f"{kept.carried:,}",
            percent(kept.carried, kept.lessons),
        )
        for kept in views.levels(result)
    )
    columns = ("level", "#calls", "#inputs", "#lessons in", "#carried", "#share")
    note = "All iterations together, in distinct lessons; a lesson counts as carried with its anchors only."
    return Table("levels", "Retention by level", columns, rows, "No lesson was reduced.", note)


def _lessons(result: Result) -> Table:
    rows = tuple(
        (str(it.iteration), *(f"{n:,}" for n in (kept.distinct, kept.carried, kept.rendered)))
        for it in result.iterations
        if (kept := it.retention) is not None
    )
    columns = ("iteration", "#distinct lessons", "#in the ledger", "#in the playbook")
    note = "In the playbook: as rendered under its token budget, verified entries first."
    if result.variants:
        columns = ("iteration", "#records", "#cited by a lesson or a text", "#in the prompt word for word")
        note = "A call that writes a whole text cites all records that it was given."
        return Table("lessons", "From record to prompt", columns, rows, "No record was reduced.", note)
    return Table("lessons", "From lesson to playbook", columns, rows, "No lesson was reduced.", note)


def _rarity(result: Result) -> Table:
    rows = tuple(
        (kept.label, f"{kept.lessons:,}", f"{kept.carried:,}", percent(kept.carried, kept.lessons))
        for kept in views.rarity(result)
    )
    columns = ("brought by (trajectories)", "#lessons", "#carried", "#share")
    return Table("rarity", "Retention by rarity", columns, rows, "No lesson was reduced.")


def _verification(result: Result) -> Table:
    rows = tuple(
        (
            str(it.iteration),
            *(f"{n:,}" for n in (v.candidates, v.replayed, v.verified, v.refused, v.leaks, v.injections)),
        )
        for it in result.iterations
        if (v := it.verification) is not None
    )
    names = ("undecided", "replayed", "verified", "refused", "of them leaks", "of them injections")
    columns = ("iteration", *(f"#{name}" for name in names))
    note = "An entry is rendered once a replay fixes its example and harms no control."
    if result.variants:
        columns = ("iteration", *(f"#{name}" for name in ("proposals", "judged", "let in", *names[3:])))
        if any(it.built_on for it in result.iterations):
            rows = tuple((*row, count) for row, count in zip(rows, _built_on(result), strict=True))
            columns = (*columns, "#built on")
        note = (
            "A proposal is let in when it beats its parent on the batch that it came from, and is then "
            "scored on select."
        )
        return Table("verification", "Acceptance", columns, rows, "Nothing was proposed.", note)
    return Table("verification", "Verification", columns, rows, "No entry was verified.", note)


def _built_on(result: Result) -> list[str]:
    """Return how many variants each iteration built on."""
    return [str(max(1, len(it.built_on))) for it in result.iterations if it.verification is not None]


_KINDS = {
    "start": "given",
    "rewrite": "rewritten",
    "lessons": "rewritten, with lessons below",
    "merge": "merge of two",
}


def _variants(result: Result) -> Table:
    rows = tuple(
        (
            one.id + (" (this prompt)" if one.leads else ""),
            _KINDS[one.kind],
            ", ".join(one.parents) or "none",
            str(one.iteration) if one.iteration else "start",
            ", ".join(one.changed),
            f"{one.gain:+.1f} on {one.examples:,}" if one.gain is not None else "",
            score(one.score),
        )
        for one in result.variants
    )
    columns = ("variant", "how", "out of", "#iteration", "changed", "#gain when let in", "#score on select")
    note = "Best on select first. The gain is that of the sum of scores on the examples of its batch."
    return Table("variants", "Lines of variants", columns, rows, "No variant got in.", note)


def _refusals(result: Result) -> Table:
    rows = tuple((r.kind, r.reason, r.text_digest[:SHORT_DIGEST]) for r in result.refusals)
    note = "The refused texts themselves are kept out of the report."
    return Table(
        "refusals", "Refused entries", ("kind", "reason", "digest"), rows, "No entry was refused.", note
    )


def _usage(result: Result) -> Table:
    def row(role: Role) -> tuple[str, ...]:
        model, use = result.models.get(role), result.usage.get(role)
        about = (model.model, model.endpoint_host, model.served_by or "not said") if model else ("", "", "")
        used = (
            (use.calls, use.hits, use.prompt_tokens, use.cached_tokens, use.completion_tokens) if use else ()
        )
        return (role, *about, *(amount(n) for n in used), *("0",) * (5 - len(used)))

    roles = [role for role in get_args(Role) if role in {*result.models, *result.usage}]
    columns = (
        "role",
        "model",
        "endpoint",
        "served by",
        "#calls",
        "#from memory",
        "#tokens in",
        "#of them cached",
        "#tokens out",
    )
    note = "Served by: the server's own words. From memory: answered before, and not asked again."
    return Table("usage", "Models and usage", columns, tuple(map(row, roles)), "No model was asked.", note)


def _data(result: Result) -> Table:
    rows: list[tuple[str, ...]] = []
    if data := result.data:
        rows.append(("train", f"{data.train.rows:,}", data.train.digest))
        if held := data.held_out:
            halves = f"{held.rows:,} (select {held.select:,}, gate {held.gate:,})"
            rows.append(("heldOut", halves, held.digest))
        if data.test:
            rows.append(("test", f"{data.test.rows:,}", data.test.digest))
    return Table(
        "data",
        "Data",
        ("split", "#examples", "sha256"),
        tuple(rows),
        "The run ended before its data was read.",
    )


def _budget(result: Result) -> Table:
    def row(line: BudgetLine) -> tuple[str, ...]:
        name, written = (f"money, {line.currency}", price) if line.currency else (line.name, amount)
        if line.limit is None:
            return name, written(line.spent), "no limit", ""
        share = percent(line.spent, line.limit) if line.limit else "all"
        return name, written(line.spent), written(line.limit), share

    rows = tuple(row(line) for line in result.budget)
    return Table("budget", "Budget", ("what", "#used", "#limit", "#share"), rows, "No budget was recorded.")


def _setup(result: Result) -> Table:
    setup = result.setup.model_dump(by_alias=True)
    rows = tuple(
        (name, "yes" if value is True else ", ".join(map(str, value)) if type(value) is tuple else str(value))
        for name, value in setup.items()
        if value not in ("", None, ()) and value is not False
    )
    rows += (("manifest digest", result.manifest_digest),)
    return Table("setup", "Set-up", ("what", "value"), rows)
