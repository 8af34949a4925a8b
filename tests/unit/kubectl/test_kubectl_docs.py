"""docs/kubectl.md and the examples of --help: every command is one that the program takes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from combee.cli.main import _exit_code, app

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
VERSIONS = COMMANDS["playbook"].commands
OF_A_FOLDER = {"forget"}
"""Commands of ``combee playbook`` that ask no cluster."""
OURS = (
    "status",
    "why",
    "logs",
    "playbook",
    "suspend",
    "resume",
    "report",
    "replay",
    "audit",
    "compare",
    "preview",
    "rollback",
    "approve",
)


def written() -> list[str]:
    """Every command of the page, of the examples and of --help."""
    pages = "".join((ROOT / "docs" / f"{name}.md").read_text() for name in ("kubectl", "troubleshooting"))
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", pages, re.DOTALL))
    examples = sorted((ROOT / "examples").rglob("*.yaml"))
    texts = [
        blocks,
        *(
            re.sub(r"  #.*", "", path.read_text().replace("#", "", 1).replace("\n#", "\n"))
            for path in examples
        ),
    ]
    texts += [
        command.epilog.replace(";", "\n").removeprefix("Examples:").removeprefix("Example:")
        for command in (*COMMANDS.values(), *VERSIONS.values())
        if command.epilog
    ]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return sorted({line for line in lines if line.startswith("kubectl combee ")})


@pytest.mark.parametrize("line", written())
def test_every_command_is_taken(line: str) -> None:
    words = shlex.split(line.partition(">")[0])[2:]
    with COMMANDS[words[0]].make_context(words[0], words[1:]) as context:
        assert context.command.name == words[0]
    if words[0] == "playbook":
        named = words[1] in VERSIONS
        command, given = VERSIONS[words[1] if named else "show"], words[2 if named else 1 :]
        with command.make_context(words[1], given) as context:
            assert context.params["name"]


SAID = re.compile(r"kubectl combee ([a-z-]+)(?: ([a-z-]+)\b)?")


def test_every_command_that_a_message_names_is_there() -> None:
    """Conditions, errors and hints name the next command; a page of docs is read in the same way."""
    files = [*(ROOT / "operator").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    unknown = [
        (path.name, found[0])
        for path in files
        for found in SAID.finditer(path.read_text())
        if found[1] not in COMMANDS
    ]
    assert not unknown


def test_every_command_is_on_the_page_and_has_an_example() -> None:
    page = (ROOT / "docs" / "kubectl.md").read_text()
    for name in OURS:
        assert f"kubectl combee {name}" in page
        assert f"kubectl combee {name}" in (COMMANDS[name].epilog or ""), name


@pytest.mark.parametrize("name", sorted({*OURS, *VERSIONS} - {"playbook", *OF_A_FOLDER}))
def test_every_command_says_where_and_as_whom(name: str) -> None:
    options = {option for parameter in (VERSIONS | COMMANDS)[name].params for option in parameter.opts}
    assert {"--namespace", "-n", "--context", "--as", "--as-group", "--as-uid"} <= options


@pytest.mark.parametrize("name", sorted({*VERSIONS} - OF_A_FOLDER))
def test_every_command_about_versions_is_on_the_page_and_has_an_example(name: str) -> None:
    assert f"kubectl combee playbook {name}" in (ROOT / "docs" / "kubectl.md").read_text()
    assert f"kubectl combee playbook {name}" in (VERSIONS[name].epilog or "")


def test_playbook_alone_is_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(["playbook"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("Usage: ") and "rollback" in said.out and not said.err


def test_help_loads_nothing_heavy() -> None:
    """Commands import their work when they run."""
    program = (
        "import sys; from combee.cli import main; "
        "heavy = {'kubernetes', 'aiohttp', 'rich', 'pydantic', 'numpy', 'combee.cli.cluster'} & "
        "set(sys.modules); "
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    path = {"PYTHONPATH": str(ROOT / "operator")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=path)
    assert done.returncode == 0, done.stderr
