"""``combee audit``."""

from __future__ import annotations

import asyncio
import json as jsonlib
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from combee.cli.errors import OUR_ERROR, STOPPED, USER_ERROR, guarded, say, write
from combee.cli.interrupt import until_stopped
from combee.cli.options import TIMEOUT_SECONDS, Json, Manifest, Timeout, with_stand_ins
from combee.cli.record import RecordName, RecordPlans, RecordStore, record_folder
from combee.cli.where import Place, with_place
from combee.errors import BugError, CombeeError
from combee.local.flags import StandInFlags

if TYPE_CHECKING:
    from combee.audit.run import Request
    from combee.local.session import Prepared
    from combee.plan.types import IterationPlan
    from combee.report.audit import Audit
    from combee.report.progress import ProgressState

UNSHOWN = 6
"""No claim failed, and not all survived."""
SAY_EVERY = 10.0
"""The least seconds between two lines of progress."""
Tell = Callable[[str], None]

EXAMPLES = (
    "combee audit out/run -f run.yaml; "
    "kubectl combee audit quickstart -f run.yaml --data train=train.jsonl --data heldOut=heldout.jsonl; "
    "combee audit out/run -f run.yaml --engine main=http://127.0.0.1:8000/v1 "
    "--latency-law 0.0047,0.00013,0.000027 --yes; "
    "combee audit out/run -f run.yaml --engine main=http://127.0.0.1:8000/v1 "
    "--second-engine main=http://127.0.0.1:8001/v1 --yes"
)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog=f"Examples: {EXAMPLES}")(with_place(with_stand_ins(audit)))


def audit(
    name: RecordName,
    filename: Manifest,
    given: StandInFlags,
    place: Place,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="DIR", help="Folder for the audit; absent: DIR/audit, or NAME/audit."
        ),
    ] = None,
    store: RecordStore = "",
    second_engine: Annotated[
        list[str] | None,
        typer.Option(
            "--second-engine", metavar="NAME=URL", help="The engine's server of a second class of hardware."
        ),
    ] = None,
    latency_law: Annotated[
        str,
        typer.Option(
            metavar="A,B,C",
            help="Time the recorded calls by another server's law, as combee compare does.",
        ),
    ] = "",
    plans: RecordPlans = None,
    task_user: Annotated[str, typer.Option("--task-user", metavar="UID|me", help="As of combee run.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Audit; without it, only say what it costs.")] = False,
    timeout: Timeout = TIMEOUT_SECONDS,
    json: Json = False,
) -> None:
    """Put each claim of a result to the test: three other seeds, fresh answers on held-out rows, a second
    class of hardware, a replay. Stamps: survived, failed, not shown. Promotes nothing.

    Exit codes: 0 every claim survived, or the cost was said; 2 a mistake found before any work; 5 a claim
    failed, or a run of the audit did; 6 none failed, some are not shown; 130 stopped.
    """
    folder = record_folder(name, store, place, wait_seconds=timeout, as_json=json)
    flags = Flags(folder, filename, given, output, store, tuple(second_engine or ()), latency_law, plans)
    raise typer.Exit(run_audit(replace(flags, task_user=task_user), really=yes, as_json=json))


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of ``combee audit``, as they were given."""

    folder: Path
    filename: Path
    given: StandInFlags
    output: Path | None = None
    store: str = ""
    second_engine: tuple[str, ...] = ()
    latency_law: str = ""
    plans: Path | None = None
    task_user: str = ""


def run_audit(flags: Flags, *, really: bool, as_json: bool) -> int:
    """Say what the audit costs, or do it and print the stamps; return the exit code."""
    if not really:
        return guarded(lambda: _cost(flags, as_json=as_json), as_json=as_json)
    from combee.audit.again import RunFailedError
    from combee.audit.run import audit as work

    tell, noted = _teller(as_json=as_json), set[str]()
    try:
        request = _request(flags)
        done = asyncio.run(until_stopped(work(request, lambda name: _Heard(name, tell, noted), tell)))
    except KeyboardInterrupt:
        tell("stopped; what is finished is kept, the same command goes on")
        return STOPPED
    except CombeeError as error:
        say(error, as_json=as_json)
        return OUR_ERROR if isinstance(error, BugError | RunFailedError) else USER_ERROR
    write(sys.stdout, _json(done) if as_json else text_of(done))
    return 0 if done.survived else OUR_ERROR if done.failed else UNSHOWN


def _cost(flags: Flags, *, as_json: bool) -> int:
    from combee.audit.cost import parts, table
    from combee.audit.run import result_in
    from combee.report.text import columns

    result = result_in(flags.folder, flags.store, _recorded(flags))
    listed = parts(result, second_engine=bool(flags.second_engine))
    if as_json:
        fields = [{name: getattr(one, name) for name in one.__slots__} for one in listed]
        write(sys.stdout, jsonlib.dumps({"event": "cost", "parts": fields}) + "\n")
        return 0
    shown = table(result, listed)
    lines = columns([[head for head, _ in shown.heads], *shown.rows]) if shown.rows else [shown.missing]
    again = shlex.join(["combee", *sys.argv[1:], "--yes"])
    write(sys.stdout, f"{shown.title}\n" + "\n".join(f"  {line}" for line in lines))
    write(sys.stdout, f"\nThe memo answers what the run asked already. Audit with: {again}\n")
    return 0


def _recorded(flags: Flags) -> Prepared:
    from combee.local.session import prepare
    from combee.local.sources import parse_stand_ins

    return prepare(flags.filename, parse_stand_ins(flags.given, flags.task_user), flags.plans, recorded=True)


def _request(flags: Flags) -> Request:
    """Check everything before any work. Raises UserErrors."""
    from combee.audit.run import Request
    from combee.cli.compare import parse_law
    from combee.local.session import prepare
    from combee.local.sources import parse_stand_ins
    from combee.report.audit import AUDIT_FOLDER

    second = replace(flags.given, engines=flags.second_engine) if flags.second_engine else None
    live, other = (
        None if given is None else prepare(flags.filename, parse_stand_ins(given, flags.task_user))
        for given in (flags.given, second)
    )
    assert live is not None
    return Request(
        folder=flags.folder,
        store=flags.store,
        out=flags.output or flags.folder / AUDIT_FOLDER,
        recorded=_recorded(flags),
        live=live,
        second=other,
        law=parse_law(flags.latency_law) if flags.latency_law else None,
    )


def _teller(*, as_json: bool) -> Tell:
    """Return what says that something is done: an event a line, or a line on stderr."""
    started = time.monotonic()

    def tell(text: str) -> None:
        seconds = time.monotonic() - started
        if as_json:
            event = {"event": "progress", "seconds": round(seconds, 3), "text": text}
            write(sys.stdout, jsonlib.dumps(event) + "\n")
        else:
            write(sys.stderr, f"{seconds:7.0f} s  {text}\n")

    return tell


@dataclass(slots=True)
class _Heard:
    """Listens to one part of the audit, and says lines of it under its name."""

    name: str
    tell: Tell
    noted: set[str]
    """what was noted already, whichever part it came from."""
    said_at: float = field(default_factory=time.monotonic)

    def started(self, run: str, folder: str, *, resumed: bool = False, over: bool = False) -> None:
        if resumed or over:
            self.tell(f"{self.name}: {'is finished' if over else 'goes on'} in {folder}")

    def plan(self, plan: IterationPlan) -> None: ...

    def progress(self, state: ProgressState) -> None:
        from combee.report.progress import progress

        if time.monotonic() - self.said_at >= SAY_EVERY:
            self.said_at = time.monotonic()
            self.tell(f"{self.name}: {progress(state).text}")

    def iteration(self, state: ProgressState) -> None:
        from combee.cli.screen import iteration_line

        self.said_at = time.monotonic()
        self.tell(f"{self.name}: {iteration_line(state.iteration, state.batch_size, state)}")

    def note(self, text: str) -> None:
        from combee.report.text import visible

        if text not in self.noted:
            self.noted.add(text)
            self.tell(f"{self.name}: warning: {visible(text)}")


def _json(done: Audit) -> str:
    return jsonlib.dumps({"event": "finished", "audit": done.model_dump(mode="json")}) + "\n"


def text_of(done: Audit) -> str:
    """Return the stamps as a table in plain text."""
    from combee.report.audit import audit_table
    from combee.report.text import columns, visible
    from combee.report.words import SIMULATED

    mark = f" ({SIMULATED})" if done.simulated else ""
    table = audit_table(done)
    rows = [[head for head, _ in table.heads], *([visible(cell) for cell in row] for row in table.rows)]
    return f"audit of {visible(done.run)}{mark}\n" + "".join(f"  {line}\n" for line in columns(rows))
