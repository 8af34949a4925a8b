"""Environments of Terminal-Bench's tasks on a real cluster: what is refused, run and scored there."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster
from test_benchmark_pods import EXAMPLES, gardener, read_terminal_bench, serving, terminal_bench_tasks

WANTED = {"task": "t", "cpus": 0.1, "memoryMb": 64, "seconds": 600}


@pytest.fixture
def url(cluster: Cluster, namespace: str) -> Iterator[str]:
    with serving(cluster, namespace, most=1) as served:
        yield f"{served}/environments"


def ask(method: str, url: str, **given: Any) -> tuple[int, Any]:
    """The status of an answer, and the answer."""
    request = urllib.request.Request(url, json.dumps(given).encode(), method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_an_environment_runs_commands_of_the_images_that_are_allowed(cluster: Cluster, url: str) -> None:
    status, refused = ask("POST", url, **WANTED, image="docker.io/library/debian")
    assert status == 403 and "no prefix that --image-prefix allows" in refused["error"]
    status, refused = ask("POST", url, **WANTED, image="localhost/combee-nothing:0")
    assert status == 502 and "does not start: Back-off pulling image" in refused["error"]
    status, made = ask("POST", url, **WANTED, image=cluster.image("worker"))
    assert status == 200
    assert ask("POST", url, **WANTED, image=cluster.image("worker"))[0] == 503, "there is place for one"
    one = f"{url}/{made['name']}"
    said = {
        "id -u; echo more >&2; exit 3": {"code": 3, "output": "10001\nmore\n"},
        "sleep 600 & echo served": {"code": 0, "output": "served\n"},
        "echo begun; sleep 600": {"code": 124, "output": "begun\n"},
        "cat": {"code": 0, "output": ""},
    }
    assert {command: ask("POST", one, command=command, seconds=5)[1] for command in said} == said
    assert ask("POST", one, seconds=5) == (400, {"error": "command is no text"})
    assert ask("DELETE", one) == (200, {})
    assert ask("POST", one, command="id", seconds=5)[0] == 404


def played(folder: Path, url: str, model: str, row: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """A rollout of a row."""
    (folder / "example.json").write_text(json.dumps(row))
    (folder / "artifact.md").write_text("")
    variables = {"COMBEE_TASK": folder, "COMBEE_OUT": folder, "OPENAI_BASE_URL": model}
    return subprocess.run(
        [
            *(sys.executable, EXAMPLES / "terminal-bench/play.py"),
            *("--environments", url.removesuffix("/environments"), "--tasks", folder),
        ],
        env={
            **{key: str(value) for key, value in variables.items()},
            "OPENAI_MODEL": "m",
            "OPENAI_API_KEY": "k",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def writes(script: str) -> Any:
    """An agent that has a script run, and is done."""

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        said = f"```sh\n{script}\n```" if len(body["messages"]) == 2 else "DONE"
        return {"role": "assistant", "content": said}

    return answer


def test_tests_score_what_the_agent_did_and_nothing_that_it_left_for_them(
    cluster: Cluster, url: str, tmp_path: Path
) -> None:
    folder = terminal_bench_tasks(tmp_path / "tasks", [cluster.image("worker")])
    row, other = read_terminal_bench(tmp_path)["train"][:2]
    forged = "mkdir -p /logs/verifier; echo 1 >/logs/verifier/reward.json; touch /tests/left; printf '\0'"
    with gardener(agent=writes(forged)) as model:
        done = played(tmp_path, url, model.url, dict(row))
        assert done.returncode == 0, done.stderr
        left = json.loads((tmp_path / "reward.json").read_text())
        assert left["reward"] == 0 and "needs" in left["feedback"]
        (folder / row["task"] / "tests" / "test.sh").write_text("#!/bin/sh\necho broken\nexit 2\n")
        changed = played(tmp_path, url, model.url, dict(row))
        assert "are not those that its row was made of" in changed.stderr
        renewed = next(one for one in read_terminal_bench(tmp_path)["train"] if one["id"] == row["id"])
        unscored = played(tmp_path, url, model.url, dict(renewed))
        assert (
            unscored.returncode and "left no reward; they ended with exit code 2: broken" in unscored.stderr
        )
    solved = (folder / other["task"] / "solution" / "solve.sh").read_text().splitlines()[1]
    with gardener(agent=writes(solved)) as model:
        assert played(tmp_path, url, model.url, dict(other)).returncode == 0
    assert json.loads((tmp_path / "reward.json").read_text()) == {"reward": 1.0, "feedback": ""}
