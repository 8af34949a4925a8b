"""``combee playbook``: what was learned, and which version of it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from combee.cli.options import Json, Manifest, with_stand_ins
from combee.cli.record import RecordStore
from combee.cli.where import Place, with_place
from combee.local.flags import StandInFlags

PlaybookName = Annotated[str, typer.Argument(metavar="NAME", help="The Playbook.")]
Digest = Annotated[
    str,
    typer.Argument(
        metavar="DIGEST", help="A version: first digits of its digest, or active, previous, candidate."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would follow, and change nothing.")]


class ShowByDefault(TyperGroup):
    """A group where ``playbook NAME`` is ``playbook show NAME``, unless NAME is the name of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words, or ``--help`` where there are none."""
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Resolve the command, which is ``show`` where none is named."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            args = ["show", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=ShowByDefault,
    help="Print what was learned; see, promote, refuse and roll back versions of a Playbook.",
    epilog="Examples: kubectl combee playbook quickstart > prompt.md; "
    "kubectl combee playbook rollback formula",
    rich_markup_mode=None,
)


@app.command(epilog="Example: kubectl combee playbook show quickstart > prompt.md")
@with_place
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A run, or a Playbook.")],
    place: Place,
) -> None:
    """Print the playbook that a run published, or the active version of a Playbook.

    Exit codes: 0 printed, 2 there is none (and why).
    """
    from combee.cli.cluster.playbook import run_playbook

    raise typer.Exit(run_playbook(name, place))


@app.command(epilog="Example: kubectl combee playbook history formula")
@with_place
def history(
    name: PlaybookName,
    place: Place,
    verify: Annotated[
        bool, typer.Option("--verify", help="Say which lines are gone or altered, if any are.")
    ] = False,
) -> None:
    """List the versions of a Playbook, how they scored, and all that was decided about them.

    Exit codes: 0 listed, 2 no such Playbook, 5 a line is gone or altered.
    """
    from combee.cli.cluster.versions import run_history

    raise typer.Exit(run_history(name, place, verify=verify))


@app.command(epilog="Example: kubectl combee playbook diff formula active candidate")
@with_place
def diff(name: PlaybookName, before: Digest, after: Digest, place: Place) -> None:
    """Show what changed between two versions, bullet by bullet.

    Exit codes: 0 shown, 2 no such version.
    """
    from combee.cli.cluster.versions import run_diff

    raise typer.Exit(run_diff(name, before, after, place))


@app.command(
    epilog="Examples: kubectl combee playbook why formula candidate; "
    "kubectl combee playbook why formula str-1b2c3d; combee playbook why out/run str-1b2c3d"
)
@with_place
def why(
    name: Annotated[
        str, typer.Argument(metavar="NAME|DIR", help="The Playbook, or a run's folder with a slash: ./out.")
    ],
    what: Annotated[
        str,
        typer.Argument(
            metavar="DIGEST|ENTRY",
            help="A version, as other commands take it; or an entry of the active one: the id in brackets.",
        ),
    ],
    place: Place,
    json: Json = False,
) -> None:
    """Say where a version stands and why; or tell an entry's life: sources, replays, votes, and what added,
    changed and retired it.

    Exit codes: 0 said, 2 no such version or entry.
    """
    from combee.cli.life import is_folder, run_life_here

    if is_folder(name):
        raise typer.Exit(run_life_here(Path(name), what, as_json=json))
    from combee.cli.cluster.versions import run_why_version

    raise typer.Exit(run_why_version(name, what, place, as_json=json))


@app.command(
    epilog="Example: combee playbook forget out/run --source order-17 -f run.yaml "
    "--engine main=http://127.0.0.1:8000/v1"
)
@with_stand_ins
def forget(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run that is over.")],
    source: Annotated[
        str, typer.Option("--source", metavar="ID", help="A row, a trace, or a trajectory of one.")
    ],
    filename: Manifest,
    given: StandInFlags,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="DIR", help="Where to learn anew; absent: beside the run's folder."
        ),
    ] = None,
    store: RecordStore = "",
    task_user: Annotated[str, typer.Option("--task-user", metavar="UID|me", help="As of combee run.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it takes, and ask nobody.")] = False,
) -> None:
    """Learn a run anew without a row or a trace, and prove that nothing of it is left: the result equals, to
    the byte, learning without it. Stop it with Ctrl-C and go on with the same command.

    Exit codes: 0 proven; 2 a mistake, or no such row; 5 not proven, or the run failed; 130 stopped.
    """
    from combee.cli.forget import run_forget

    raise typer.Exit(
        run_forget(folder, source, filename, output, given, store, task_user=task_user, dry_run=dry_run)
    )


@app.command(epilog="Example: kubectl combee playbook preview formula -f playbook.yaml")
@with_place
def preview(
    name: PlaybookName,
    place: Place,
    manifest: Annotated[
        Path | None,
        typer.Option(
            "-f", "--filename", metavar="FILE", help="Its manifest as it would be; -: standard input."
        ),
    ] = None,
) -> None:
    """Say what the gates would decide now, with another manifest or with the one that is there. Nothing is
    written.

    Exit codes: 0 said, 2 no such Playbook, or the manifest cannot be read.
    """
    from combee.cli.cluster.playbook_preview import run_playbook_preview

    raise typer.Exit(run_playbook_preview(name, manifest, place))


DECISIONS = {
    "promote": (
        "Promote",
        "1b2c3d4e",
        "Make a version active, whatever the gates say, also one that was refused.",
    ),
    "approve": (
        "Approve",
        "candidate",
        "Pass a canary of mode Manual, or one that is not given: the other gates still decide.",
    ),
    "refuse": (
        "Refuse",
        "candidate",
        "Never use a version, and stop using it at once where it is active. It stays refused.",
    ),
    "auto": (
        "Auto",
        "1b2c3d4e",
        "Take back a decision: the gates decide again. What they refused stays refused.",
    ),
}
"""command -> the version's ``decision``, an example's version, what it does."""


def _register(to: typer.Typer, called: str, command: str) -> None:
    decision, version, what = DECISIONS[command]

    def decide(
        name: PlaybookName,
        digest: Digest,
        place: Place,
        dry_run: DryRun = False,
    ) -> None:
        from combee.cli.cluster.versions import run_decide

        raise typer.Exit(run_decide(name, digest, decision, place, dry_run=dry_run))

    decide.__doc__ = f"{what}\n\nExit codes: 0 done, 2 no such version."
    to.command(command, epilog=f"Example: {called} {command} formula {version}")(with_place(decide))


for _command in DECISIONS:
    _register(app, "kubectl combee playbook", _command)


@app.command(epilog="Example: kubectl combee playbook rollback formula")
@with_place
def rollback(name: PlaybookName, place: Place, dry_run: DryRun = False) -> None:
    """Refuse the active version: the one before it is served at once.

    Exit codes: 0 done, 2 nothing is active.
    """
    from combee.cli.cluster.versions import run_decide

    raise typer.Exit(run_decide(name, "active", "Refuse", place, dry_run=dry_run))


@app.command(epilog="Example: kubectl combee playbook learn formula")
@with_place
def learn(name: PlaybookName, place: Place) -> None:
    """Make one run from a Playbook's learn.template now.

    Exit codes: 0 asked for, 2 no such Playbook, or it has no template.
    """
    from combee.cli.cluster.versions import run_learn

    raise typer.Exit(run_learn(name, place))


def register(to: typer.Typer) -> None:
    """Add the two urgent commands to ``to``, so that they are found without ``playbook``, too."""
    to.command(epilog="Example: kubectl combee rollback formula")(rollback)
    _register(to, "kubectl combee", "approve")
