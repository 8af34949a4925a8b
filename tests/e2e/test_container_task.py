"""A task in a container of its own, on a laptop: the example learns, and what misbehaves is isolated."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from e2e_support import ENDED, ROOT, process, result_of
from gardener import Gardener, gardener

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux", reason="limits are those of Linux"),
]
EXAMPLES = ROOT / "examples"
FIXED = {
    "batching": {"mode": "Fixed", "size": 16, "reason": "test"},
    "workers": {"concurrency": 8, "hedgeBudget": 0},
}
ME = ["--task-user", "me"]
EVERYBODYS = "/usr/local/bin:/usr/bin:/bin"
"""programs that another user may run, too"""
MAY_BECOME_ANOTHER = os.geteuid() == 0 and shutil.which("python3", path=EVERYBODYS) is not None
AS_ANOTHER = ["--task-user", str(62_000 + os.getpid() % 20 * 50)] if MAY_BECOME_ANOTHER else ME


@pytest.fixture
def model() -> Iterator[Gardener]:
    with gardener() as running:
        yield running


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others may read, which pytest's own are not."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def written(tmp_path: Path, *, rows: int | None = None, **container: object) -> Path:
    """The example with batches of a fixed size, in a folder that others may read."""
    document = yaml.safe_load((EXAMPLES / "container.yaml").read_text())
    document["spec"] |= FIXED
    document["spec"]["task"]["custom"]["container"] |= container
    for split, source in document["spec"]["task"]["data"].items():
        lines = (EXAMPLES / source["uri"]).read_text().splitlines(keepends=True)
        (tmp_path / f"{split}.jsonl").write_text("".join(lines[:rows]))
        source["uri"] = f"{split}.jsonl"
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(document))
    shutil.copytree(EXAMPLES / "greenhouse", tmp_path / "greenhouse")
    return tmp_path / "run.yaml"


def misbehaving(path: Path, scripts: dict[str, str]) -> None:
    """The example's program. In the row with the script's id it runs the script first; "" is every row."""
    program = path.parent / "greenhouse" / "care.py"
    checks = ["ROW = json.loads((TASK / 'example.json').read_text())['id']"]
    for row, script in scripts.items():
        checks += [f"if ROW.endswith({row!r}):", *(f"    {line}" for line in script.splitlines())]
    text, main = program.read_text(), 'if __name__ == "__main__":'
    program.write_text(text.replace(main, "\n".join([*checks, main])))


def test_the_example_learns_with_an_agent_that_calls_tools(model: Gardener, open_folder: Path) -> None:
    path, out = written(open_folder, rows=24), open_folder / "out"
    command = ["run", "-f", path, "-o", out, "--engine", f"main={model.url}", *AS_ANOTHER]
    done = process(*command, PATH=f"{EVERYBODYS}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stdout + done.stderr
    result = result_of(out)
    assert result["outcome"] == "Learned"
    assert result["heldOut"]["gate"]["best"] > 0.7
    assert "A fern in dry soil needs 240 ml" in (out / "lessons.md").read_text()
    assert result["faults"]["rollouts"] == {}
    assert len(model.keys) == 1  # the run's own, and none that a rollout was given
    asked = sum(model.asked.values())
    assert process(*command, PATH=f"{EVERYBODYS}:{os.environ['PATH']}").returncode == 0
    assert sum(model.asked.values()) == asked


MISBEHAVIOURS = {
    "TaskTimeout": "import time; time.sleep(1000)",
    "TaskWroteTooMuch": "f = (OUT / 'big').open('wb')\nwhile f.write(bytes(1 << 20)): f.flush()",
    "TaskKilled": "raise SystemExit(137)",
    "TaskCrashed": "raise ValueError",
    "TaskNoReward": "raise SystemExit(0)",
    "TaskBadReward": "(OUT / 'reward.json').write_text('{'); raise SystemExit(0)",
}


def test_rollouts_that_misbehave_are_counted_and_the_run_goes_on(model: Gardener, tmp_path: Path) -> None:
    path = written(tmp_path, rows=24, timeoutSeconds=30, scratch="1Mi", attempts=2)
    rows = [json.loads(line)["id"] for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    misbehaving(path, dict(zip(rows, MISBEHAVIOURS.values(), strict=False)))
    out = tmp_path / "out"
    done = process("run", "-f", path, "-o", out, "--engine", f"main={model.url}", *ME)
    assert done.returncode in ENDED, done.stdout + done.stderr
    result = result_of(out)
    met = result["faults"]["rollouts"]
    assert met.pop("TaskTimeout") >= 1
    assert met == {
        "TaskCrashed": 1,
        "TaskKilled": 1,
        "TaskWroteTooMuch": 1,
        "TaskNoReward": 1,
        "TaskBadReward": 1,
    }
    assert sum(iteration["failed"] for iteration in result["iterations"]) == len(MISBEHAVIOURS)
    told = done.stdout + done.stderr
    assert "rollouts misbehaved (" in told
    assert "Traceback" not in told
    assert "needs 240 ml" in (out / "lessons.md").read_text()
    assert len((out / "rollouts.jsonl").read_text().splitlines()) == result["rollouts"]
    # Again from its record: no program is run, and what misbehaved does so again.
    path.with_name("greenhouse").rename(tmp_path / "gone")
    again = process("replay", out, "-f", path, *ME)
    assert again.returncode == 0 and "identical" in again.stdout, again.stdout + again.stderr


def test_when_most_misbehave_the_run_fails_and_says_why(model: Gardener, tmp_path: Path) -> None:
    path = written(tmp_path, rows=24, attempts=1)
    misbehaving(path, {"": "raise SystemExit(3)"})
    done = process("run", "-f", path, "-o", tmp_path / "out", "--engine", f"main={model.url}", *ME)
    assert done.returncode == 5, done.stdout + done.stderr
    assert "TaskCrashed" in done.stdout


@pytest.mark.parametrize(
    ("container", "flags", "said"),
    [
        ({"localCommand": ["no-such-program"]}, ME, "there is no program 'no-such-program'"),
        ({"command": [], "localCommand": []}, ME, "Give the command that stands for it"),
        ({}, ["--task-user", "nobody"], "--task-user"),
    ],
)
def test_what_cannot_be_run_is_a_mistake_before_any_work(
    model: Gardener, tmp_path: Path, container: dict[str, object], flags: list[str], said: str
) -> None:
    path = written(tmp_path, **container)
    done = process("run", "-f", path, "-o", tmp_path / "out", "--engine", f"main={model.url}", *flags)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert not (tmp_path / "out").exists()
    assert not model.asked


def test_the_flag_is_for_a_container_alone(model: Gardener, tmp_path: Path) -> None:
    done = process(
        "run", "-f", EXAMPLES / "custom.yaml", "-o", tmp_path / "out", "--engine", f"main={model.url}", *ME
    )
    assert done.returncode == 2
    assert "there is no task in a container here" in done.stderr


def test_it_is_validated_and_previewed_without_running_anything(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert process("validate", "-f", path).returncode == 0
    assert process("preview", "-f", path).returncode == 0
    assert json.loads((tmp_path / "train.jsonl").read_text().splitlines()[0])["need"]
