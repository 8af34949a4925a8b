"""Inherited entries on fresh rows: whether what an earlier run verified still helps.

An entry that was learned in an earlier run stands by what that run's examples showed. Rules drift, models
change, and rows of this run tell what no old row can. So each iteration looks at some of the inherited
entries that are in the playbook, each once a run: first those that more wrong than right answers of the batch
used, the more the sooner, then those whose last replay is oldest.

**Another model.** A verdict is one of the task model that answered. Where the last replay of an entry was by
another one than this run's, its verdicts are *stale*: it stands as before, and is looked at before the
others. A ledger that names no model, of an earlier release, has no stale verdicts.

**Rows.** Examples of the batch whose agents say that they used the entry, then those that read it, are
answered with the whole playbook and with the playbook less this entry. What shows is asked once more, since
models slip: only what shows twice counts.

| what shows twice | verdict |
|---|---|
| right with it, wrong without, on as many rows as the reverse or more | won |
| wrong with it, right without | lost: it harms |
| wrong with it on all rows, whose agents all used it: two rows, or one that used only it | lost: wrong now |
| anything else | neither; the entry stays as it stood |

**The budget.** It is that of new entries: a look takes about twice as many rollouts as a replay, so it counts
for two. New entries come first; where inherited ones are due, a quarter is kept for them, and half where
verdicts are stale.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from combee.algo.seeds import digest_of
from combee.methods.ace.facts import facts_of, lessons_of
from combee.methods.ace.ids import bullet_ids
from combee.methods.ace.ledger import Ledger
from combee.methods.ace.matching import Readers
from combee.methods.ace.render import render
from combee.methods.protocol import Rendered, Verdict
from combee.methods.replies import one_line
from combee.methods.verification import Page, Rollout
from combee.records import Trajectory

ROWS = 3
"""Rows that an entry is looked at on, at most."""
LEAST_FAILING = 2
"""Rows that an entry must leave wrong, and all there are, to be found not right any more; one will do where
its agent used nothing else, for then nothing else is to blame."""
SHARE, STALE_SHARE = 4, 2
"""One part in so many of the replays is kept for inherited entries, where any are due; and where verdicts on
any of these are stale."""
REPLAYS_OF_A_LOOK = 2
MOST_CHARS = 200
"""Of names of models in a sentence: a ledger may give them any length."""

Asking = Generator[list[Rollout], list[Trajectory], Verdict | None]


@dataclass(frozen=True, slots=True)
class Row:
    """A trajectory of the batch, and whether its agent says that it used the entry, and nothing else."""

    trajectory: Trajectory
    used: bool
    alone: bool


def stale(ledger: Ledger, model: str) -> frozenset[str]:
    """Return the entries, each for all that say the same, whose last replay was by another task model than
    ``model``; none where either of the two is not known."""
    other = {run.number for run in ledger.runs if run.model not in ("", model)} if model else set()
    lessons = lessons_of(ledger).members.items() if other else ()
    return frozenset(digest for digest, lesson in lessons if lesson.last_run in other)


def share(ledger: Ledger, waiting: Iterable[str], model: str) -> int:
    """Return the part of the replays, one in so many, that is kept for these inherited entries."""
    return SHARE if stale(ledger, model).isdisjoint(waiting) else STALE_SHARE


def stale_note(ledger: Ledger, shown: Rendered, model: str) -> str:
    """Return how many entries of a playbook have stale verdicts, for people; empty where none has."""
    members, models = lessons_of(ledger).members, {run.number: run.model for run in ledger.runs}
    others = [models[members[one].last_run or 0] for one in stale(ledger, model).intersection(shown.included)]
    if not others:
        return ""
    return (
        f"{len(others)} of the {len(shown.included)} entries in the playbook that this run starts from were "
        f"last replayed with another model ({_named(*others)}) than its own ({_named(model)}): they are "
        "looked at on fresh rows before the others"
    )


def _named(*models: str) -> str:
    return one_line(", ".join(sorted(set(models))))[:MOST_CHARS]


def due(
    ledger: Ledger,
    shown: Rendered,
    trajectories: Mapping[str, Trajectory],
    readers: Readers,
    model: str = "",
) -> dict[str, list[Row]]:
    """Return the rows of the inherited entries in ``shown`` that this run has not looked at yet, by entry,
    those first whose verdicts are stale, then those that wrong answers used, then those that were replayed
    longest ago."""
    if not ledger.runs:
        return {}
    facts, lessons, ids = facts_of(ledger), lessons_of(ledger), bullet_ids(ledger)
    inherited = {support.entry for support in ledger.supports if support.run}
    first = stale(ledger, model)
    waiting: list[tuple[bool, int, int, str]] = []
    rows: dict[str, list[Row]] = {}
    for digest in shown.included:
        lesson = lessons.members.get(digest)
        if lesson is None or facts.trusted(digest) or lesson.last_run == 0:
            continue
        if inherited.isdisjoint(lesson.members):
            continue
        fit = _rows(digest, ids[digest], trajectories, readers.of(ledger.texts[digest]))
        if fit:
            last = -1 if lesson.last_run is None else lesson.last_run
            waiting.append((digest not in first, _credit(ids[digest], trajectories), last, digest))
            rows[digest] = fit
    return {digest: rows[digest] for *_, digest in sorted(waiting)}


def _credit(bullet: str, trajectories: Mapping[str, Trajectory]) -> int:
    """Return the right answers less the wrong ones that used an entry, 0 where there are not more wrong."""
    right = [one.correct for one in trajectories.values() if bullet in one.cited and not one.error]
    return min(0, 2 * sum(right) - len(right))


def _rows(digest: str, bullet: str, trajectories: Mapping[str, Trajectory], reading: Set[str]) -> list[Row]:
    """Return the rows to look at it on: where it was used, then where it is read, by hash."""
    fit = [
        Row(one, bullet in one.cited, one.cited == (bullet,))
        for one in trajectories.values()
        if not one.error and (bullet in one.cited or one.example_id in reading)
    ]
    fit.sort(key=lambda row: (not row.used, digest_of([digest, row.trajectory.example_id])))
    return fit[:ROWS]


def looked_at(
    ledger: Ledger, digest: str, rows: Sequence[Row], *, budget_tokens: int, shown: Rendered, look: int
) -> Asking:
    """Return the verdict on an inherited entry of the page ``shown``; None where a call was lost. ``look``:
    the repeat of the first look; the second is the next one."""
    # Nothing may move into the room that the entry leaves: the answers would tell of both.
    out = ledger.texts.keys() - {*shown.included} | {digest}
    less = render(ledger, budget_tokens=budget_tokens, verify="Replay", without=out).text
    pages = Page(shown.text, len(shown.text), ""), Page.of(less, shown.text)
    outcomes: list[dict[str, tuple[bool, bool]]] = []
    open_rows = list(rows)
    for repeat in (look, look + 1):
        answers = yield [Rollout(row.trajectory.example_id, p, repeat) for row in open_rows for p in pages]
        if any(one.error for one in answers):
            return None
        right = [one.correct for one in answers]
        pairs = zip(right[::2], right[1::2], strict=True)
        outcomes.append({row.trajectory.id: pair for row, pair in zip(open_rows, pairs, strict=True)})
        open_rows = [row for row in open_rows if _shows(row, outcomes[0][row.trajectory.id])]
        if not open_rows:
            return _neither(digest, rows)
    return _verdict(digest, rows, *outcomes)


def _shows(row: Row, outcome: tuple[bool, bool]) -> bool:
    """Return whether (right with, right without) may tell of an entry."""
    right_with, right_without = outcome
    return right_with != right_without or (row.used and not right_with)


def _verdict(
    digest: str,
    rows: Sequence[Row],
    first: Mapping[str, tuple[bool, bool]],
    second: Mapping[str, tuple[bool, bool]],
) -> Verdict:
    twice = {name: outcome for name, outcome in second.items() if outcome == first[name]}
    helped = [name for name, outcome in twice.items() if outcome == (True, False)]
    harmed = [name for name, outcome in twice.items() if outcome == (False, True)]
    examples = {row.trajectory.id: row.trajectory.example_id for row in rows}
    controls = tuple(examples.values())
    if helped and len(helped) >= len(harmed):
        own = examples[helped[0]]
        return Verdict(digest, helped[0], True, 0, tuple(one for one in controls if one != own))
    if harmed:
        return Verdict(digest, "", False, len(harmed), controls)
    failing = [name for name, outcome in twice.items() if outcome == (False, False)]
    if len(failing) == len(rows) and (len(rows) >= LEAST_FAILING or rows[0].alone):
        return Verdict(digest, failing[0], False, 0)
    return _neither(digest, rows)


def _neither(digest: str, rows: Sequence[Row]) -> Verdict:
    return Verdict(digest, "", False, 0, tuple(row.trajectory.example_id for row in rows))
