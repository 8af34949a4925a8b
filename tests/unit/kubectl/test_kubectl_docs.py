"""docs/kubectl.md and the examples of --help: every command is one that the program takes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from combee.cli.main import app

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
OURS = ("status", "why", "logs", "playbook", "suspend", "resume", "report", "preview")


def written() -> list[str]:
    """Every command of the page, of the examples and of --help."""
    page = (ROOT / "docs" / "kubectl.md").read_text()
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL))
    texts = [blocks, (ROOT / "examples" / "quickstart.yaml").read_text().replace("#", "")]
    texts += [
        command.epilog.replace(";", "\n").removeprefix("Examples:")
        for command in COMMANDS.values()
        if command.epilog
    ]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return sorted({line for line in lines if line.startswith("kubectl combee ")})


@pytest.mark.parametrize("line", written())
def test_every_command_is_taken(line: str) -> None:
    words = shlex.split(line.partition(">")[0])[2:]
    with COMMANDS[words[0]].make_context(words[0], words[1:]) as context:
        assert context.command.name == words[0]


def test_every_command_is_on_the_page_and_has_an_example() -> None:
    page = (ROOT / "docs" / "kubectl.md").read_text()
    for name in OURS:
        assert f"kubectl combee {name}" in page
        assert f"kubectl combee {name}" in (COMMANDS[name].epilog or ""), name


@pytest.mark.parametrize("name", OURS)
def test_every_command_takes_a_namespace_and_a_context(name: str) -> None:
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert {"--namespace", "-n", "--context"} <= options


def test_help_loads_nothing_heavy() -> None:
    """Commands import their work when they run."""
    program = (
        "import sys; from combee.cli import main; "
        "heavy = {'kubernetes', 'aiohttp', 'rich', 'pydantic', 'numpy', 'combee.cli.cluster'} & set(sys.modules); "
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    path = {"PYTHONPATH": str(ROOT / "operator")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=path)
    assert done.returncode == 0, done.stderr
