"""Every example is valid, previews as its first lines say, and its preview ends with a command that works."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from combee.algo.gates import POWER
from combee.cli import run as run_command
from combee.cli.main import _exit_code
from combee.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.yaml"))
BENCHMARKS = ("tau2.yaml", "tau2-small.yaml", "appworld.yaml", "terminal-bench.yaml")
RUNS = [name for name in EXAMPLES if name not in ("playbook.yaml", "kagent.yaml", *BENCHMARKS)]
"""A Playbook is previewed beside its versions: test_kubectl_playbook_preview does it. The rows of a benchmark
come of a checkout: test_benchmarks makes one."""
CHECKED = "every check before the first request is passed"


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture
def stopped_before_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """``combee run`` goes as far as it goes without a server."""

    async def run_session(*_: Any) -> None:
        raise UserError(CHECKED)

    monkeypatch.setattr(run_command, "run_mended", run_session)


def stated(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words after ``combee`` of the command that an example states for its preview; its PYTHONPATH is
    searched from then on."""
    text = (ROOT / "examples" / name).read_text()
    (line,) = re.findall(r"^#   ((?:PYTHONPATH=\S+ )?combee preview .*)$", text, re.MULTILINE)
    path, _, command = line.rpartition("combee ")
    if path:
        monkeypatch.syspath_prepend(str(ROOT / path.strip().removeprefix("PYTHONPATH=")))
    return shlex.split(command)


def next_command(printed: str) -> list[str]:
    """The words after ``combee`` of the command that a preview ends with."""
    last = printed.strip().splitlines()[-1]
    command = shlex.split(last.partition("Nothing was spent. Next: ")[2])
    assert command[0] == "combee"
    return command[1:]


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_valid(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(["validate", "-f", f"examples/{name}"]) == 0
    assert f"examples/{name}: valid" in capsys.readouterr().out


@pytest.mark.parametrize("name", RUNS)
def test_its_heldout_is_large_enough_for_the_gain_it_aims_for(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = stated(name, monkeypatch)
    assert _exit_code([*words, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["outlook"] is None) == (name == "traces.yaml")
    assert shown["outlook"] is None or shown["outlook"]["power"] >= POWER, shown["outlook"]
    assert not [warning for warning in shown["warnings"] if warning.startswith("heldOut is small")]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.usefixtures("stopped_before_work")
def test_its_preview_ends_with_a_command_that_starts_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = stated(name, monkeypatch)
    assert _exit_code(words) == 0
    printed = capsys.readouterr()
    assert printed.err == "" and "iterations at the sizes known now" in printed.out
    command = next_command(printed.out)
    for variable in re.findall(r"=env:(\w+)", " ".join(command)):
        monkeypatch.setenv(variable, "a-key")
    if name == "container.yaml" and os.geteuid() != 0:
        command += ["--task-user", "me"]
    command[command.index("-o") + 1] = str(tmp_path / "out")
    assert _exit_code(command) == 2
    assert capsys.readouterr().err == f"error: {CHECKED}\n"


@pytest.mark.usefixtures("stopped_before_work")
def test_the_next_command_has_the_flags_that_the_preview_had(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLM_KEY", "sk-1")
    flags = ["--engine", "main=https://llm.example.com/v1", "--engine-key", "main=env:LLM_KEY"]
    flags += ["--engine-model", "main=big", "--data", "train=examples/data/formula/train.jsonl"]
    assert _exit_code(["preview", "-f", "examples/formula.yaml", *flags]) == 0
    command = next_command(capsys.readouterr().out)
    assert command == ["run", "-f", "examples/formula.yaml", "-o", "out/formula-ace", *flags]
    assert _exit_code(command) == 2
    assert CHECKED in capsys.readouterr().err


def quickstart(folder: Path, **data: str) -> str:
    """The quickstart's run, with other keys in its ConfigMap; without any, without it."""
    (claim, run, rows) = yaml.safe_load_all((ROOT / "examples/quickstart.yaml").read_text())
    beside = [{**rows, "data": {**rows["data"], **data}}] if data else []
    (folder / "own.yaml").write_text(yaml.safe_dump_all([claim, run, *beside]))
    return str(folder / "own.yaml")


def test_rows_of_a_config_map_in_the_same_file_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _exit_code(["preview", "-f", "examples/quickstart.yaml", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert sum(batch["size"] for batch in shown["batches"]) == 120 and shown["held_out"] == [100, 100]
    bad = quickstart(tmp_path, **{"train.jsonl": '{"context": "q"}\n'})
    assert _exit_code(["preview", "-f", bad]) == 2
    assert "error: ConfigMap quickstart-rows: train.jsonl:1: the row has no target" in capsys.readouterr().err
    other = ["--data", "train=examples/data/formula/train.jsonl"]
    assert _exit_code(["preview", "-f", bad, "--json", *other]) == 0
    assert sum(batch["size"] for batch in json.loads(capsys.readouterr().out)["batches"]) == 500


def test_data_on_a_cluster_is_asked_for_by_its_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _exit_code(["preview", "-f", quickstart(tmp_path)]) == 2
    line = capsys.readouterr().err
    assert "spec.task.data.train.configMap" in line and "--data train=PATH" in line
    assert line.endswith("and --data heldOut=PATH for spec.task.data.heldOut.configMap.\n")
    assert _exit_code(["preview", "-f", "examples/s3.yaml"]) == 2
    line = capsys.readouterr().err
    assert "--secret s3/AWS_ACCESS_KEY_ID=env:VAR, and --secret s3/AWS_SECRET_ACCESS_KEY=env:VAR for " in line
    assert line.count("--secret") == 2


def test_a_suspended_run_is_for_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(["preview", "-f", edited(tmp_path, suspend=True)]) == 0
    assert capsys.readouterr().out.endswith(f"Next: kubectl apply -f {tmp_path}/run.yaml\n")


def test_what_would_be_refused_has_no_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join((ROOT / "examples/data/formula/heldout.jsonl").open().readlines()[:6]))
    assert _exit_code(["preview", "-f", "examples/formula.yaml", "--data", f"heldOut={few}"]) == 0
    printed = capsys.readouterr().out
    assert "would be refused: " in printed and printed.endswith("Nothing was spent.\n")


def test_a_playbook_is_no_run_and_its_preview_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(["preview", "-f", "examples/playbook.yaml"]) == 2
    line = capsys.readouterr().err
    assert "kubectl combee playbook preview NAME -f examples/playbook.yaml" in line


def edited(folder: Path, **spec: Any) -> str:
    """The formula example with other fields, wherever its data is."""
    manifest = yaml.safe_load((ROOT / "examples/formula.yaml").read_text())
    manifest["spec"] |= spec
    for source in manifest["spec"]["task"]["data"].values():
        source["uri"] = str(ROOT / "examples" / source["uri"])
    (folder / "run.yaml").write_text(yaml.safe_dump(manifest))
    return str(folder / "run.yaml")


@pytest.mark.parametrize("command", ["validate", "preview", "run"])
@pytest.mark.usefixtures("stopped_before_work")
def test_a_dash_is_standard_input(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its paths are relative to the working directory, so here it is read in that of the examples."""
    monkeypatch.chdir(ROOT / "examples")
    flags = ["-o", str(tmp_path / "out"), "--engine", "main=http://127.0.0.1:9/v1"]
    more = {"validate": [], "preview": flags[2:], "run": flags}[command]
    outputs = []
    for path in ("formula.yaml", "-"):
        content = (ROOT / "examples" / "formula.yaml").read_bytes()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        outputs.append(_exit_code([command, "-f", path, *more]))
        printed = capsys.readouterr()
        text = (printed.out + printed.err).replace("write it to run.yaml, then ", "")
        outputs.append(re.sub(r"(formula|run)\.yaml", "-", text))
    assert outputs[:2] == outputs[2:] and outputs[1]


def test_what_is_next_after_validating_standard_input_is_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, command in (("formula.yaml", "combee preview"), ("playbook.yaml", "kubectl apply")):
        content = (ROOT / "examples" / name).read_bytes()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert _exit_code(["validate", "-f", "-"]) == 0
        ending = f"Next: write it to run.yaml, then {command} -f run.yaml\n"
        assert capsys.readouterr().out.endswith(ending)


def test_standard_input_that_is_wrong_is_said_with_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for content, words in ((b"kind: [\n", "-:"), (b"\xff", "-: not UTF-8"), (b"", "-: there is no manifest")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert _exit_code(["validate", "-f", "-"]) == 2
        assert words in capsys.readouterr().err


def test_comparing_reads_standard_input_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (ROOT / "examples" / "quickstart.yaml").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    words = ["compare", "-f", "-", "--strategies", "Naive@20", "--seeds", "1", "--for-cluster", "few"]
    assert _exit_code([*words, "-o", str(tmp_path)]) == 0
    (made,) = tmp_path.glob("*.yaml")
    assert made.read_text().startswith("# Derived from - by") and capsys.readouterr().out.startswith("1 runs")
