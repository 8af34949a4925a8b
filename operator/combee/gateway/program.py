"""The start of ``combee-gateway``: arguments first, then what is heavy to import."""

from __future__ import annotations

from combee import __version__
from combee.assembly.extras import parser, require

ABOUT = (
    "Serve the Playbooks of a namespace in front of an OpenAI-compatible API, until a signal says to stop."
)
MORE = """The operator sets its environment; POD_NAMESPACE is required. docs/gateway.md is for its clients.

Example:

  combee-gateway

Exit codes: 0 stopped; 1 an error that may pass; 2 something to mend first."""


def main() -> None:
    """The console script."""
    words = parser("combee-gateway", ABOUT, MORE)
    words.add_argument("command", nargs="?", choices=["version"], help="print the version; absent: serve")
    if words.parse_args().command == "version":
        print(f"combee-gateway {__version__}")  # noqa: T201
        return
    require("gateway", ("kubernetes", "aiohttp", "httptools", "uvloop"))
    from combee.gateway.main import start

    start()


if __name__ == "__main__":
    main()
