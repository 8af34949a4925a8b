"""``combee rows``: the tasks of a public benchmark, as it is published, as the rows of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from combee.cli.errors import guarded

if TYPE_CHECKING:
    from combee.assembly.benchmarks.layout import Splits

app = typer.Typer(
    help="Write the tasks of a public benchmark as rows of a run: a file of JSON lines a split.",
    epilog="Example: combee rows tau2 tau2-bench --domain retail -o examples/tau2/rows",
    no_args_is_help=True,
)
Output = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the files of rows.")]
HeldOut = Annotated[
    int | None,
    typer.Option(
        "--held-out", metavar="N", min=1, help="Tasks of train that select and gate; absent: half of them."
    ),
]


@app.command(epilog="Example: combee rows tau2 tau2-bench --domain retail -o examples/tau2/rows")
def tau2(
    checkout: Annotated[Path, typer.Argument(metavar="CHECKOUT", help="A checkout of tau2-bench.")],
    output: Output,
    domain: Annotated[str, typer.Option("--domain", help="Such as airline, retail or telecom.")],
    held_out: HeldOut = None,
) -> None:
    """Write the train and test tasks of a domain of tau2-bench; part of train becomes heldOut.

    Exit codes: 0 written, 2 another layout than a checkout's.
    """
    from combee.assembly.benchmarks.tau2 import read_tau2

    raise typer.Exit(guarded(lambda: _written(read_tau2(checkout, domain), output, held_out)))


@app.command(epilog="Example: combee rows appworld examples/appworld/root -o examples/appworld/rows")
def appworld(
    root: Annotated[Path, typer.Argument(metavar="ROOT", help="The folder that AppWorld downloaded to.")],
    output: Output,
    dataset: Annotated[
        str, typer.Option("--test", help="The dataset to test with: test_normal or test_challenge.")
    ] = "test_normal",
) -> None:
    """Write the tasks of AppWorld: train, dev as heldOut, and a test dataset. Cluster by scenario.

    Exit codes: 0 written, 2 another layout than the download's.
    """
    from combee.assembly.benchmarks.appworld import read_appworld

    raise typer.Exit(guarded(lambda: _written(read_appworld(root, dataset), output, None)))


@app.command(
    "terminal-bench",
    epilog="Example: combee rows terminal-bench terminal-bench-2 -o examples/terminal-bench/rows",
)
def terminal_bench(
    checkout: Annotated[
        Path, typer.Argument(metavar="CHECKOUT", help="A folder whose folders are tasks in Harbor's layout.")
    ],
    output: Output,
    image_prefix: Annotated[
        str,
        typer.Option(
            "--image-prefix",
            metavar="PREFIX",
            help="Where you pushed images of tasks that name none; the folder's name follows.",
        ),
    ] = "",
    leave_out: Annotated[
        list[str] | None, typer.Option("--leave-out", metavar="TASK", help="A task to leave out; repeatable.")
    ] = None,
    held_out: HeldOut = None,
) -> None:
    """Write the tasks of Terminal-Bench, or others in Harbor's layout; part of them becomes heldOut.

    Exit codes: 0 written, 2 another layout than Harbor's, or a task that cannot be played.
    """
    from combee.assembly.benchmarks.terminal_bench import read_terminal_bench

    raise typer.Exit(
        guarded(
            lambda: _written(read_terminal_bench(checkout, image_prefix, leave_out or ()), output, held_out)
        )
    )


def _written(splits: Splits, output: Path, held_out: int | None) -> int:
    """Write the rows, and say how many tasks there were and how many rows each file has."""
    from combee.assembly.benchmarks.layout import FILES, with_held_out, write_rows

    typer.echo(f"tasks: {', '.join(f'{len(rows)} {split}' for split, rows in splits.items())}")
    for split, count in write_rows(with_held_out(splits, held_out), output).items():
        typer.echo(f"{output / FILES[split]}: {count} rows")
    return 0
