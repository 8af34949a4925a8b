"""The commands that speak to a cluster, as typer has them; ``kubectl combee`` finds them under these names.

Their work is in ``cli.cluster`` and imported when they run: ``--help`` is there at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from combee.cli.options import TIMEOUT_SECONDS, Command, Timeout
from combee.cli.where import Place, with_place
from combee.steps import KINDS

if TYPE_CHECKING:
    StepName = str
else:
    StepName = Literal[tuple(KINDS)]
    """typer lists the words of a Literal, which only a running program can take from the table."""

RunName = Annotated[str, typer.Argument(metavar="NAME", help="The run.")]
Format = Annotated[Literal["text", "json"] | None, typer.Option("-o", "--output", help="json: for programs.")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    examples: dict[Command, tuple[str, ...]] = {
        status: ("status", "status quickstart", "status quickstart -o json"),
        why: ("why quickstart",),
        logs: ("logs quickstart --follow", "logs quickstart --step map --shard 1"),
        suspend: ("suspend quickstart",),
        resume: ("resume quickstart",),
        report: (
            "report quickstart",
            "report quickstart -o out/quickstart",
            "report quickstart --strategist",
            "report out/run --strategist",
            "report out/run",
        ),
    }
    for command, lines in examples.items():
        epilog = f"Examples: {'; '.join(f'kubectl combee {line}' for line in lines)}"
        app.command(epilog=epilog)(with_place(command))


def status(
    place: Place,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A run; absent: all of them.")] = None,
    output: Format = None,
    watch: Annotated[
        bool | None,
        typer.Option("--watch/--no-watch", "-w", help="Go on until it is over; absent: on a terminal."),
    ] = None,
) -> None:
    """Show where a run on a cluster stands: live on a terminal, once elsewhere. Without NAME: all runs.

    Exit codes: 0 shown, 2 no such run, no cluster or no right to look.
    """
    from combee.cli.cluster.status import run_status

    raise typer.Exit(run_status(name, place, watch=watch, as_json=output == "json"))


def why(name: RunName, place: Place) -> None:
    """Say what a run on a cluster waits for, or what it died of, and what to do about it.

    Exit codes: 0 said, 2 no such run, no cluster or no right to look.
    """
    from combee.cli.cluster.why import run_why

    raise typer.Exit(run_why(name, place))


def logs(
    name: RunName,
    place: Place,
    step: Annotated[
        StepName | None,
        typer.Option(help="Of this kind; absent: the one that matters."),
    ] = None,
    iteration: Annotated[int | None, typer.Option(min=1, help="Of this iteration, from 1.")] = None,
    shard: Annotated[int | None, typer.Option(min=0, help="Of this shard; absent: of all.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it is written.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The JSON lines as they are.")] = False,
) -> None:
    """Print the logs of a run's step: the one at work, else the one that failed, else the last.

    Exit codes: 0 printed, 2 no such run, step or right.
    """
    from combee.cli.cluster.logs import Wish, run_logs

    wish = Wish(step, iteration, shard, follow, raw)
    raise typer.Exit(run_logs(name, place, wish))


def suspend(name: RunName, place: Place) -> None:
    """Stop a run on a cluster for a while: its pods go, its GPUs are free, what it knows stays.

    Exit codes: 0 done, 2 no such run, or it is over.
    """
    from combee.cli.cluster.change import run_suspend

    raise typer.Exit(run_suspend(name, place, suspend=True))


def resume(name: RunName, place: Place) -> None:
    """Let a suspended run go on where it was.

    Exit codes: 0 done, 2 no such run, or it is over.
    """
    from combee.cli.cluster.change import run_suspend

    raise typer.Exit(run_suspend(name, place, suspend=False))


def report(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|DIR", help="The run, or a folder of `combee run`, whose reports are made anew."
        ),
    ],
    place: Place,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Folder for the files; absent: one called NAME."),
    ] = None,
    timeout: Timeout = TIMEOUT_SECONDS,
    strategist: Annotated[
        bool,
        typer.Option(
            "--strategist",
            help="Print the strategist's ten sections, and leave them as strategist.md and strategist.html.",
        ),
    ] = False,
) -> None:
    """Fetch what `combee run` would have written: result.json, reports, playbook, plans, summaries. With the
    stamps of an audit where there is one in the folder.

    A short-lived pod, made with your own rights, reads the run's store and is deleted afterwards.

    Exit codes: 0 written, 2 no such run, right or result.
    """
    folder = output or Path(name)
    if (Path(name) / ("result.json" if strategist else "run.json")).is_file():
        from combee.cli.report import run_report_here

        raise typer.Exit(run_report_here(Path(name), folder, strategist=strategist))
    from combee.cli.cluster.report import run_report

    raise typer.Exit(run_report(name, folder, place, wait_seconds=timeout, strategist=strategist))
