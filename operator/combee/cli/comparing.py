"""``combee compare``, as typer has it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from combee.cli.options import Json, with_flags, with_stand_ins
from combee.cli.where import Place, with_place
from combee.local.flags import StandInFlags

EXAMPLES = (
    "combee compare -f run.yaml --strategies Sequential,Naive,ParallelScan --sizes 100 --seeds 10 -o out "
    "--engine main=http://127.0.0.1:8000/v1; combee compare -f run.yaml --for-cluster methods -o runs; "
    "kubectl combee compare methods -o out"
)


@dataclass(frozen=True, slots=True)
class Flags:
    """The command's own flags, as they were given."""

    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="Folder for results; the same folder resumes."),
    ]
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A comparison on a cluster, in place of manifests: fetch it."),
    ] = None
    filename: Annotated[
        list[Path] | None,
        typer.Option(
            "-f",
            "--filename",
            help="A manifest, or - for standard input; more than once to compare on several tasks.",
        ),
    ] = None
    strategies: Annotated[
        str,
        typer.Option(
            metavar="NAME[:WORD...][@SIZE],...",
            help="What to compare, such as ParallelScan:Model:Sqrt@100.",
        ),
    ] = "Sequential,Naive,ParallelScan"
    sizes: Annotated[
        str,
        typer.Option(
            metavar="N,...", help="Batch sizes of strategies that name none; absent: the manifest's."
        ),
    ] = ""
    seeds: Annotated[
        str,
        typer.Option(
            metavar="N|A,B,...",
            help="How many seeds, or which. An --engine given once a seed deals its servers out.",
        ),
    ] = "3"
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Cells run side by side.")] = 1
    slots: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="Slots of modelled time; absent: the manifest's concurrency."),
    ] = None
    evaluate_every: Annotated[
        int | None,
        typer.Option(min=1, help="Examples between scorings of heldOut; absent: the largest batch."),
    ] = None
    methods: Annotated[
        str,
        typer.Option(metavar="NAME,...", help="Base methods, such as ACE,GEPA; absent: each manifest's own."),
    ] = ""
    for_cluster: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Write the cells as runs of this comparison, for kubectl apply; run nothing.",
        ),
    ] = ""
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", min=1, max=600, help="Longest wait for a run's files."),
    ] = 300
    json: Json = False


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    own = inspect.signature(Flags, eval_str=True).parameters.values()
    app.command(epilog=f"Examples: {EXAMPLES}")(
        with_place(with_stand_ins(with_flags("flags", own, Flags)(compare)))
    )


def compare(flags: Flags, given: StandInFlags, place: Place) -> None:
    """Compare strategies over methods, seeds and tasks on equal terms: one table, one plot, in modelled time.

    Exit codes: 0 compared; 2 a mistake found before any work; 5 a cell failed; 130 stopped.
    """
    if (flags.name is None) == (not flags.filename):
        raise typer.BadParameter("give either -f FILE or the NAME of a comparison on a cluster")
    if flags.name is not None:
        from combee.cli.cluster.compare import run_collected

        waited, slots = flags.timeout, flags.slots
        raise typer.Exit(run_collected(flags.name, flags.output, place, wait_seconds=waited, slots=slots))
    from combee.cli.compare import run_compare, run_for_cluster

    raise typer.Exit(run_for_cluster(flags, given) if flags.for_cluster else run_compare(flags, given))
