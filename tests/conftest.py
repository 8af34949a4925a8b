"""Says once, at the end, when the tests that need a cluster did not run.

``pytest --update-golden`` writes golden files anew; review them as a diff.

A suite that a shell started in the background ignores Ctrl-C, and so would every process that it starts;
tests that send it to one have to be heard.

Tests start Python some hundred times. A shell that forbids it to write byte code would have each of them
compile the product anew, a fifth of a second; they may write it."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

pytest_plugins = ["balance"]
NO_CLUSTER = "no cluster:"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")


class Failures:
    """Names each failed test at once: the suite is long, and its summary comes last."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            terminal: Any = self.config.pluginmanager.get_plugin("terminalreporter")
            terminal.write_line(f"\nFAILED {report.nodeid} ({report.when})", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [r for r in terminalreporter.stats.get("skipped", []) if NO_CLUSTER in str(r.longrepr)]
    if skipped:
        needs = "a cluster needs root on Linux, or KUBECONFIG set to one"
        line = f"{len(skipped)} CLUSTER TESTS DID NOT RUN: {needs}"
        terminalreporter.write_line(line, red=True, bold=True)
