"""The start of ``combee-operator``: arguments first, then what is heavy to import."""

from __future__ import annotations

from combee import __version__
from combee.assembly.extras import parser, require

ABOUT = "Reconcile PromptLearningRuns and Playbooks until a signal says to stop."
MORE = """The Helm chart sets its environment; POD_NAMESPACE and COMBEE_WORKER_IMAGE are required.

Examples:

  combee-operator

  combee-operator cleanup

Exit codes: 0 stopped or cleaned up; 1 an error that may pass; 2 something to mend first."""
COMMANDS = {
    "cleanup": "delete what the operator made, as the chart's uninstall does",
    "version": "print the version",
}


def main() -> None:
    """The console script."""
    words = parser("combee-operator", ABOUT, MORE)
    what = "; ".join(f"{name}: {does}" for name, does in COMMANDS.items())
    words.add_argument("command", nargs="?", choices=COMMANDS, help=f"{what}; absent: operate")
    command = words.parse_args().command
    if command == "version":
        print(f"combee-operator {__version__}")  # noqa: T201
        return
    require("operator", ("kubernetes", "kopf"))
    from combee.operator.main import run

    run(clean=command == "cleanup")


if __name__ == "__main__":
    main()
