"""Help, completion and the message about a missing part, of every program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from combee.cli.main import _exit_code, app
from combee.pod.main import main as worker
from combee.sim.main import app as sim

ROOT = Path(__file__).resolve().parents[3]
EXTRAS = ("kopf", "kubernetes", "aiohttp", "uvloop", "httptools", "prometheus_client", "s3fs")
DEFAULT_INSTALL = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
module, _, function = sys.argv[1].partition(":")
sys.argv = sys.argv[2:]
getattr(__import__(module, fromlist=["x"]), function)()
"""
PROGRAMS = {"combee-operator": "operator", "combee-gateway": "gateway", "combee-worker": ""}
"""those beside combee itself, with the extra that each needs."""


def entry_points() -> dict[str, str]:
    """The console scripts that an installation makes."""
    lines = (ROOT / "pyproject.toml").read_text().partition("[project.scripts]\n")[2].partition("\n\n")[0]
    pairs = (line.split(" = ") for line in lines.splitlines())
    return {name: target.strip('"') for name, target in pairs}


def default_install(*words: str) -> subprocess.CompletedProcess[str]:
    """A program in a process that lacks the modules of every extra."""
    path = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "operator")}
    target = entry_points()[words[0]]
    command = [sys.executable, "-c", DEFAULT_INSTALL, target, *words]
    return subprocess.run(command, capture_output=True, text=True, env=path, check=False)


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_is_there_on_a_default_install(name: str) -> None:
    done = default_install(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {name} ") and "Exit codes: 0 " in done.stdout
    assert f"  {name}" in done.stdout or f"Example: COMBEE_ROOT=/ {name}" in done.stdout


@pytest.mark.parametrize("name", [name for name, extra in PROGRAMS.items() if extra])
def test_a_missing_extra_is_one_line_that_installs_it(name: str) -> None:
    done = default_install(name)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and line.endswith(f"pip install 'combee-operator[{PROGRAMS[name]}]'")


@pytest.mark.parametrize("name", PROGRAMS)
def test_short_help_is_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for flag in ("-h", "--help"):
        monkeypatch.setattr("sys.argv", [name, flag])
        if name == "combee-worker":
            assert worker() == 0
        else:
            module, _, function = entry_points()[name].partition(":")
            with pytest.raises(SystemExit) as ended:
                getattr(__import__(module, fromlist=["x"]), function)()
            assert not ended.value.code
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and printed[0].startswith(f"usage: {name}")


@pytest.mark.parametrize("words", [["step", "-h"], ["judge", "--help"], ["-h", "step"]])
def test_help_of_a_word_of_the_worker_is_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert worker(words) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("usage: combee-worker") and not printed.err


def paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and subcommand below ``command``."""
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from paths(below, (*path, name))


@pytest.mark.parametrize("path", [path for path in paths(typer.main.get_command(app)) if path != ("sim",)])
@pytest.mark.parametrize("program", ["combee", "kubectl-combee"])
def test_every_command_takes_both_words_for_help(
    path: tuple[str, ...],
    program: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", [f"/bin/{program}"])
    printed = []
    for flag in ("-h", "--help"):
        assert _exit_code([*path, flag]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].startswith(" ".join(("Usage:", program.replace("-", " "), *path)))
    assert "Example" in printed[0]


@pytest.mark.parametrize("path", list(paths(typer.main.get_command(sim))))
def test_the_simulated_model_does_too(path: tuple[str, ...]) -> None:
    short, long = (CliRunner().invoke(sim, [*path, flag]) for flag in ("-h", "--help"))
    assert short.exit_code == 0 and short.output == long.output and short.output.startswith("Usage: ")


def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What bash would offer for the last of ``words``."""
    monkeypatch.setattr("sys.argv", ["combee"])
    monkeypatch.setenv("_COMBEE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(("combee", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    with pytest.raises(SystemExit) as ended:
        _exit_code(["--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out.split()


def test_completion_offers_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(monkeypatch, capsys, "pre") == ["preview"]
    assert completed(monkeypatch, capsys, "playbook", "ro") == ["rollback"]
    assert "--engine" in completed(monkeypatch, capsys, "run", "--eng")


def test_the_script_for_bash_completes_combee(tmp_path: Path) -> None:
    """The script that --show-completion prints, loaded by a real bash that asks a real program."""
    bash = subprocess.run(
        ["bash", "--norc", "-c", SCRIPT.format(python=sys.executable)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "operator"), "HOME": str(tmp_path)},
        check=False,
    )
    assert (bash.returncode, bash.stderr, bash.stdout.split()) == (0, "", ["preview"])


SCRIPT = """
combee() {{
  {python} -c 'import sys; sys.argv[0] = "combee"; from combee.cli.main import main; main()' "$@"
}}
# The script calls it with the program, which is a function here.
env() {{ local -x "$1" "$2" "$3" && "$4"; }}
script="$(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1 combee --show-completion bash)" || exit 1
eval "$script"
COMP_WORDS=(combee pre)
COMP_CWORD=1
_combee_completion combee
echo "${{COMPREPLY[@]}}"
"""


def test_a_plugin_of_kubectl_shows_the_same_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    scripts = []
    for program in ("combee", "kubectl-combee"):
        monkeypatch.setattr("sys.argv", [f"/bin/{program}"])
        with pytest.raises(SystemExit):
            _exit_code(["--show-completion", "bash"])
        scripts.append(capsys.readouterr().out)
    assert scripts[0] == scripts[1] and "_COMBEE_COMPLETE=complete_bash" in scripts[0]
