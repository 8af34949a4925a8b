"""``combee playbook forget`` without its output: a run is learned anew without a row, and that is proven.

The run is that of the manifest which names the row as forgotten. It works in a folder of its own, takes over
the answers of the first run where it asks the same, and asks models for the others: its folder has what it
asked, and nothing else. The proof is a replay: from the data without the row and from these answers alone the
same comes out, to the byte.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from combee.algo.membership import batch
from combee.api.digests import manifest_digest
from combee.api.load import config_maps_in, parse_run
from combee.api.local import sources
from combee.api.run import PromptLearningRun
from combee.assembly.identity import RunIdentity, holds
from combee.assembly.manifest import read_manifest_text, run_in
from combee.clients.model.memo import MEMO
from combee.clients.store.store import Store
from combee.errors import UserError
from combee.local.record import Record, read_record
from combee.local.replay import Difference, replay
from combee.local.session import SERVERS, Prepared, prepare_run, preview_here
from combee.local.sources import StandIns, with_config_maps
from combee.plan.types import IterationPlan
from combee.records import example_of
from combee.report.result import Result
from combee.steps import kind_of
from combee.tasks.dataset import Dataset

ARTIFACT = "artifact"
"""What stands for the artifact after the last iteration, among names of files."""


@dataclass(frozen=True, slots=True)
class Forgetting:
    """A run, the row that it is to forget, and what that takes."""

    split: str
    row: str
    before: Record
    """of the run that had the row."""
    result: Result
    """what that run came to."""
    prepared: Prepared
    """the run without the row."""
    iteration: int | None
    """the first one, from 0, that the row can have changed; None where it had no part in learning."""
    answered: int
    """the calls of the first run before that iteration."""
    most_asked: int
    """the calls that may be asked anew."""

    @property
    def forgotten(self) -> tuple[str, ...]:
        """All rows of the split that the run forgets."""
        return sources(self.prepared.run)[self.split].forgotten or ()

    def folder(self, path: Path) -> Path:
        """Return where to learn anew, beside the first run's folder: the same whenever it is asked for."""
        return path.with_name(f"{path.name}-without-{manifest_digest(self.prepared.run)[:8]}")


def forgetting(path: Path, folder: Path, source: str, given: StandIns, store_uri: str = "") -> Forgetting:
    """Return what it takes that the run in ``folder`` forgets a source: the id of a row, of a trace, or of a
    trajectory of one. Writes nothing. Raises UserErrors."""
    text, where = read_manifest_text(path), str(path)
    run, base = run_in(text, where), path.resolve().parent
    given = with_config_maps(given, run, config_maps_in(text, where))
    had = prepare_run(run, base, given, recorded=True)
    before = read_record(folder, store_uri, had)
    if before.result is None:
        raise UserError("the run is not over", where=str(folder), fix="Finish it first: `combee run` goes on")
    split, row = _place_of(run, had, source, str(folder))
    prepared = replace(prepare_run(_without(run, split, row), base, given), earlier=before.store)
    iteration = _first(split, row, had.splits["train"], before)
    answered = _calls(before, len(before.plans) if iteration is None else iteration, split)
    shown = preview_here(prepared)
    most = shown.rollouts.high + shown.reflections.high + shown.aggregator_calls.high
    return Forgetting(
        split, row, before, before.result, prepared, iteration, answered, max(0, round(most) - answered)
    )


def _place_of(run: PromptLearningRun, had: Prepared, source: str, where: str) -> tuple[str, str]:
    """Return the split and the id of a source. Raises UserError where there is none."""
    ids = (source, example_of(source))
    for split, rows in had.splits.items():
        known = {example.id for example in rows.examples}
        if row := next((one for one in ids if one in known), ""):
            return split, row
    for split, given in sources(run).items():
        if set(ids) & {*(given.forgotten or ())}:
            raise UserError(
                f"row {source} of {split} is forgotten already", where=where, fix="Nothing is to be done"
            )
    raise UserError(
        f"no row or trace {source}",
        where=where,
        fix="Give the id of a row (its line number where it has none) or of a trace, or a source that "
        "`combee playbook why DIR ENTRY` tells. One with a # is a row of an earlier run: forget it there",
    )


def _without(run: PromptLearningRun, split: str, row: str) -> PromptLearningRun:
    """Return the run as its manifest would be with the row forgotten, besides those that are."""
    plain = run.dump()
    source = plain["spec"]["task"]["data"][split]
    source["forgotten"] = sorted({*source.get("forgotten", ()), row})
    return parse_run(plain, "")


def _first(split: str, row: str, train: Dataset, before: Record) -> int | None:
    """Return the first iteration that the row can have changed. What heldOut's split is follows from all of
    it, and test is looked at when all is learned."""
    if split != "train":
        return 0 if split == "heldOut" else None

    def has(plan: IterationPlan) -> bool:
        ids = [*(example.id for example in train.examples), *train.forgotten]
        at = (plan.seed, plan.epoch, plan.offset, plan.batch_size)
        return row in batch(ids, *at, in_order=plan.in_order)

    return next((number for number, plan in sorted(before.plans.items()) if has(plan)), None)


def _calls(before: Record, iteration: int, split: str) -> int:
    """Return the calls of the run before an iteration, and those of profile where it looks at the same."""
    same = [
        one
        for one in before.summaries.values()
        if (kind_of(one.kind).opens and split != "heldOut")
        or ("iteration" in one.counts and one.counts["iteration"] < iteration)
    ]
    return sum(used.calls for one in same for used in one.usage.values())


def begin(what: Forgetting, out: Path) -> None:
    """Make a folder in which ``run_session`` learns anew know what served the answers that are taken over.
    Raises UserError where it holds another run."""
    run = what.prepared.run
    holds(out, RunIdentity(run.name, manifest_digest(run), what.prepared.facts.digests))
    served = what.before.store.get(SERVERS)
    if served is not None:
        Store.open(str(out / "store")).put_new(SERVERS, served)


@dataclass(frozen=True, slots=True)
class Proof:
    """What was learned anew, and whether the same came out of it again."""

    new_answers: int
    """the answers that the first run did not have."""
    answers: int
    """the calls of the replay, each answered by what was asked."""
    digests: dict[str, tuple[str, str]]
    """of what was learned, by its name: with the row, and without it; empty where there was none."""
    texts: tuple[str, str]
    """the playbook with the row, and without it."""
    differences: list[Difference]


async def proof(what: Forgetting, out: Path) -> Proof:
    """Replay what was learned anew, from its own answers and without the row."""
    recorded = replace(what.prepared, recorded=True, earlier=None)
    record = read_record(out, "", recorded)
    had, has = ({*one.store.list(MEMO)} for one in (what.before, record))
    digests = [_digests(one) for one in (what.before, record)]
    done = await replay(recorded, record)
    return Proof(
        len(has - had),
        done.answers,
        {name: (digests[0].get(name, ""), digest) for name, digest in digests[1].items()},
        (_text(what.before), _text(record)),
        done.differences,
    )


def _digests(record: Record) -> dict[str, str]:
    """Return the digests of the files that hold what was learned, and of the artifact after the last
    iteration."""
    done = [one for one in record.summaries.values() if kind_of(one.kind).sums_up and not one.error]
    last = max(done, key=lambda one: one.counts["iteration"], default=None)
    files = {name: hashlib.sha256(data).hexdigest() for name, data in record.files.items()}
    return files | ({ARTIFACT: last.outputs["artifact"]} if last is not None else {})


def _text(record: Record) -> str:
    return record.result.playbook.text if record.result and record.result.playbook else ""
