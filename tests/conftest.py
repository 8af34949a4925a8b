"""Says once, at the end, when the tests that need a cluster did not run.

``pytest --update-golden`` writes golden files anew; review them as a diff.

A suite that a shell started in the background ignores Ctrl-C, and so would every process that it starts; tests that
send it to one have to be heard.
"""

from __future__ import annotations

import signal
from typing import Any

import pytest

pytest_plugins = ["balance"]
NO_CLUSTER = "no cluster:"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [r for r in terminalreporter.stats.get("skipped", []) if NO_CLUSTER in str(r.longrepr)]
    if skipped:
        line = f"{len(skipped)} CLUSTER TESTS DID NOT RUN: a cluster needs root on Linux, or KUBECONFIG set to one"
        terminalreporter.write_line(line, red=True, bold=True)
