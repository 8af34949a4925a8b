"""``combee``, also installed as ``kubectl-combee``. Commands import what they need when they run,
so that ``--help`` is there at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from combee import __version__
from combee.assembly.crash import bug_text
from combee.cli import audit, comparing, kubectl, rows, versions
from combee.cli.errors import OUR_ERROR, STOPPED, USER_ERROR, forget, say_line
from combee.cli.options import TIMEOUT_SECONDS, Json, Manifest, Timeout, with_stand_ins
from combee.cli.record import RecordName, RecordPlans, RecordStore, record_folder
from combee.cli.where import Place, with_place
from combee.local.flags import StandInFlags

EXAMPLES = """Examples:

  combee validate -f run.yaml

  combee preview -f run.yaml

  combee run -f run.yaml -o out/run --engine main=http://127.0.0.1:8000/v1

  kubectl combee status quickstart
"""

app = typer.Typer(
    name="combee",
    help="Learn playbooks from experience, in parallel. The same manifest runs here and on a cluster.",
    epilog=EXAMPLES,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
COMPLETION = ("--install-completion", "--show-completion")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"combee {__version__}")
        raise typer.Exit


@app.command(epilog="Examples: combee validate -f run.yaml; kustomize build . | combee validate -f -")
def validate(filename: Manifest, json: Json = False) -> None:
    """Check a manifest: all that is wrong with it, a line each. Reads no data, asks no server.

    Exit codes: 0 valid, 2 not.
    """
    from combee.cli.validate import run_validate

    raise typer.Exit(run_validate(filename, as_json=json))


@app.command(
    epilog="Examples: combee preview -f run.yaml --data train=train.jsonl; kubectl combee preview quickstart"
)
@with_place
@with_stand_ins
def preview(
    place: Place,
    given: StandInFlags,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A run on a cluster, in place of a manifest.")
    ] = None,
    filename: Annotated[
        Path | None,
        typer.Option(
            "-f", "--filename", help="The manifest: a PromptLearningRun in YAML; -: standard input."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show what a run would do and cost: batches, tree, calls, tokens, and which outcomes its heldOut can
    show. Reads the data; spends nothing. The flags of `combee run` are checked, and the next command has
    them.

    Exit codes: 0 shown, 2 the manifest or its data is wrong.
    """
    if (name is None) == (filename is None):
        raise typer.BadParameter("give either -f FILE or the NAME of a run on a cluster")
    if filename is not None:
        from combee.cli.preview import run_preview

        raise typer.Exit(run_preview(filename, given, as_json=json))
    from combee.cli.cluster.preview import run_cluster_preview

    raise typer.Exit(run_cluster_preview(name or "", given, place, as_json=json))


@app.command(
    epilog="Examples: combee run -f run.yaml -o out/run --engine main=http://127.0.0.1:8000/v1; "
    "combee run -f run.yaml -o out/hosted --engine main=https://llm.example.com/v1 "
    "--engine-key main=env:LLM_KEY --engine-model main=gpt-oss-120b"
)
@with_stand_ins
def run(
    filename: Manifest,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="Folder for results; the same folder resumes."),
    ],
    given: StandInFlags,
    plans: Annotated[
        Path | None,
        typer.Option(
            "--plans", metavar="DIR", help="Obey the iteration plans of an earlier run (its DIR/plans)."
        ),
    ] = None,
    task_user: Annotated[
        str,
        typer.Option(
            "--task-user",
            metavar="UID|me",
            help="For a task in a container: the first user id its commands run under (as root; absent: "
            "64000), or me: with your own rights.",
        ),
    ] = "",
    recorded: Annotated[
        bool,
        typer.Option(
            "--recorded",
            help="Ask no model: take every answer from the memo in DIR/store, which an earlier run left.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Learn a playbook on this machine. Stop it with Ctrl-C and go on with the same command.

    Exit codes: 0 learned; 2 a mistake found before any work, a store that takes no writes, or with
    --recorded a call that was not recorded; 3 nothing better than the start was found; 4 the budget
    is spent; 5 failed; 6 unsure: a gain that chance could make; 130 stopped.
    """
    from combee.cli.run import run_run

    raise typer.Exit(
        run_run(filename, output, given, plans, task_user=task_user, recorded=recorded, as_json=json)
    )


@app.command(
    epilog="Examples: combee replay out/run -f run.yaml; kubectl combee replay quickstart -f run.yaml "
    "--data train=train.jsonl --data heldOut=heldout.jsonl"
)
@with_place
@with_stand_ins
def replay(
    name: RecordName,
    filename: Manifest,
    given: StandInFlags,
    place: Place,
    store: RecordStore = "",
    plans: RecordPlans = None,
    task_user: Annotated[
        str,
        typer.Option("--task-user", metavar="UID|me", help="As of combee run; no command of a task is run."),
    ] = "",
    timeout: Timeout = TIMEOUT_SECONDS,
    json: Json = False,
) -> None:
    """Do a run again from its record and ask no model: the same decisions and bytes, or what differs.

    Exit codes: 0 identical; 2 a wrong manifest, data or folder, or a call that the record lacks; 5 something
    differs.
    """
    from combee.cli.replay import run_replay

    folder = record_folder(name, store, place, wait_seconds=timeout, as_json=json)
    raise typer.Exit(run_replay(folder, filename, given, plans, store, task_user=task_user, as_json=json))


comparing.register(app)
audit.register(app)


@app.command(epilog="Example: combee gc out/run")
def gc(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `combee run -o` made.")],
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it, only say what would be.")] = False,
) -> None:
    """Delete the store of a run (memo, trajectories, ledgers) and keep its results and plans.

    Exit codes: 0 done, 2 not a run's folder, or a run is working in it.
    """
    from combee.cli.gc import run_gc

    raise typer.Exit(run_gc(folder, really=yes))


kubectl.register(app)
app.add_typer(rows.app, name="rows")
app.add_typer(versions.app, name="playbook")
versions.register(app)


def main() -> None:
    """Run ``combee``: this is the entry point."""
    if len(sys.argv) > 1 and sys.argv[1] == "sim":
        from combee.cli.sim import main as sim

        sim(sys.argv[2:])
        return
    sys.exit(_exit_code(sys.argv[1:] or ["--help"]))


def _exit_code(arguments: list[str]) -> int:
    """Run a command; whatever goes wrong is one line on stderr, never a traceback."""
    try:
        name = Path(sys.argv[0]).name
        called = {"main.py": "combee", "kubectl-combee": "kubectl combee"}.get(name, name)
        if arguments[0] in COMPLETION:  # a shell completes a line's first word; kubectl completes its plugins
            called = "combee"
        code = app(arguments, prog_name=called, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        forget(sys.stdout)
        return USER_ERROR
    except KeyboardInterrupt:
        return STOPPED
    except TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "combee"
        say_line(f"{error.format_message().rstrip('.')}. See {command} --help")
        return USER_ERROR
    except Exception as error:
        say_line(bug_text(error))
        return OUR_ERROR


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True}, add_help_option=False
)
def sim() -> None:
    """A simulated model server, for demos and tests (`combee sim --help`)."""


if __name__ == "__main__":
    main()
