"""``combee compare``, as typer has it."""

from __future__ import annotations

import inspect

import typer

from combee.cli.options import CompareFlags, with_flags, with_stand_ins
from combee.cli.where import Place, with_place
from combee.local.flags import StandInFlags

EXAMPLES = (
    "combee compare -f run.yaml --strategies Sequential,Naive,ParallelScan --sizes 100 --seeds 10 "
    "-o out/compare --engine main=http://127.0.0.1:8000/v1; "
    "combee compare -f run.yaml --for-cluster methods -o runs; "
    "kubectl combee compare methods -o out/methods"
)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    own = inspect.signature(CompareFlags, eval_str=True).parameters.values()
    app.command(epilog=f"Examples: {EXAMPLES}")(
        with_place(with_stand_ins(with_flags("flags", own, CompareFlags)(compare)))
    )


def compare(flags: CompareFlags, given: StandInFlags, place: Place) -> None:
    """Compare strategies over methods, seeds and tasks on equal terms: one table, one plot, in modelled time.

    Exit codes: 0 compared; 2 a mistake found before any work; 5 a cell failed; 130 stopped.
    """
    if (flags.name is None) == (not flags.filename):
        raise typer.BadParameter("give either -f FILE or the NAME of a comparison on a cluster")
    if flags.name is not None:
        from combee.cli.cluster.compare import run_collected

        raise typer.Exit(run_collected(flags, place))
    from combee.cli.compare import run_compare, run_for_cluster

    raise typer.Exit(run_for_cluster(flags, given) if flags.for_cluster else run_compare(flags, given))
