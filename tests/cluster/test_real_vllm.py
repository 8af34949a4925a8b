"""A real model behind two real vLLM servers on the test node: one is killed in mid-run, and what was answered
is remembered to the byte."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_tools import NODE, REPOSITORY, Cluster, eventually
from kills import AT_ONCE, OpenLogs
from laptop import ENDED, Sims, environment
from runs import FINISHED, Runs, operating

from warm import run_program

pytestmark = [pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(3600, func_only=True)]
IMAGES = ("vllm-cpu", "smollm2", "office")
OFFICE = REPOSITORY / "examples" / "office"
ROWS = ("train.jsonl", "heldout.jsonl")
ANSWERED = re.compile(r'INFO: +(\S+):\d+ - "POST /v1/chat/completions HTTP/1\.1" 200')
SERVERS = "app.kubernetes.io/component=engine"
PROBED = "127.0.0.1"
"""whom the answers to the startup probe are for."""


@pytest.fixture(scope="module")
def images(cluster: Cluster) -> None:
    """The images of real.yaml; minutes where they are not built yet."""
    if not cluster.own:
        pytest.skip("its images are for the test node, and KUBECONFIG names another cluster")
    made = {**cluster.environment, "PYTHON": sys.executable}
    subprocess.run([NODE / "node.sh", "images", *IMAGES], env=made, check=True)


def objects() -> list[dict[str, Any]]:
    """Those of examples/real.yaml, and the rows."""
    rows = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "office-rows"}}
    made = list(yaml.safe_load_all((REPOSITORY / "examples" / "real.yaml").read_text()))
    return [*made, {**rows, "data": {name: (OFFICE / name).read_text() for name in ROWS}}]


class Logs(OpenLogs):
    """What the servers of a run logged, the ones that were killed too."""

    def __init__(self, runs: Runs) -> None:
        kubelet = Path(runs.cluster.part("log", "kubelet").strip())
        super().__init__(kubelet.parents[1] / "pod-logs", f"{runs.namespace}_real-*-main-*/vllm/*.log")

    def answers(self) -> list[int]:
        """How many calls each server answered, those of its own probe aside."""
        counts = []
        for file in self.files.values():
            file.seek(0)
            found = (ANSWERED.search(line) for line in file)
            counts.append(sum(1 for match in found if match and match[1] != PROBED))
        return counts


def servers(runs: Runs, condition: str = "Ready") -> list[dict[str, Any]]:
    """The pods of the engine that fulfil a condition and are not on their way out."""
    pods = runs.cluster.get("pods", "-l", SERVERS, namespace=runs.namespace)["items"]
    return [
        pod
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and any(c["type"] == condition and c["status"] == "True" for c in pod["status"].get("conditions", ()))
    ]


def store(runs: Runs) -> Path:
    """The folder of the run's claim on this machine."""
    claim = runs.cluster.get("persistentvolumeclaim", "real-store", namespace=runs.namespace)
    volume = runs.cluster.get("persistentvolume", claim["spec"]["volumeName"])
    return Path(volume["spec"]["hostPath"]["path"])


def learned(runs: Runs, status: dict[str, Any]) -> tuple[str, str]:
    """How the run ended, and the playbook that it published, if any."""
    return status["phase"], runs.playbook("real") if status.get("published") else ""


def locally(runs: Runs, folder: Path) -> tuple[str, str]:
    """What a laptop learns that has the run's memory and plans, and what it asked of its model: one that is
    simulated, so that an answer of its own would be another one."""
    shutil.copytree(store(runs) / "memo", folder / "out" / "store" / "memo")
    run = next(one for one in objects() if one["kind"] == "PromptLearningRun")
    (folder / "run.yaml").write_text(yaml.safe_dump(run))
    sim = Sims(folder).start("--served-model-name", run["spec"]["engines"][0]["vllm"]["model"])
    rows = [f"{split}={OFFICE / file}" for split, file in zip(("train", "heldOut"), ROWS, strict=True)]
    words = ["combee", "run", "-f", folder / "run.yaml", "-o", folder / "out", "--engine", f"main={sim.url}"]
    words += ["--data", rows[0], "--data", rows[1], "--plans", runs.plans(folder / "plans")]
    try:
        done = run_program(words, {**environment(), "PYTHONPATH": str(OFFICE)}, seconds=400)
    finally:
        sim.stop()
    assert done.returncode in ENDED, done.stdout + done.stderr
    asked = sim.log.read_text() if sim.log.exists() else ""
    return (folder / "out" / "prompt.md").read_text(), asked


def test_one_of_two_servers_is_killed_and_nothing_is_asked_twice_but_what_it_had_in_hand(
    cluster: Cluster, namespace: str, tmp_path: Path, images: None
) -> None:
    runs = Runs(cluster, namespace)
    logs = Logs(runs)
    allowed = {"COMBEE_ENGINE_IMAGES": ",".join(cluster.image(name).rpartition(":")[0] for name in IMAGES)}
    with (
        operating(cluster, namespace, tmp_path / "operator.log", COMBEE_ALLOW_CUSTOM_TASKS="true", **allowed),
        logs.kept(),
    ):
        cluster.reader.apply(objects(), namespace)
        pair = eventually("two servers serve", lambda: (p := servers(runs))[1:] and p, seconds=1500)
        for pod in pair:
            (vllm,) = pod["spec"]["containers"]
            assert vllm["image"] == cluster.image("vllm-cpu")
            assert vllm["securityContext"]["readOnlyRootFilesystem"] is True
        before = eventually("both answer", lambda: (n := logs.answers()) and min(n) > 4 and n, seconds=1500)
        cluster.kubectl(
            "delete", "pod", pair[0]["metadata"]["name"], *AT_ONCE, "--wait=false", namespace=namespace
        )
        first = runs.ended("real", seconds=2400)
        answers = sum(logs.answers())
        eventually("the servers are taken down", lambda: not servers(runs, "PodScheduled"), seconds=120)
        remembered = sum(1 for path in (store(runs) / "memo").rglob("*") if path.is_file())
        print(
            f"{first['phase']}: {answers} calls answered, {remembered} remembered; before the kill {before}"
        )
        assert first["phase"] in FINISHED, first["message"]
        assert sum(before) < answers == remembered
        outcome = learned(runs, first)
        cluster.kubectl("delete", "plr", "real", "--wait=true", namespace=namespace)
        cluster.reader.apply(objects(), namespace)
        second = runs.ended("real", seconds=2400)
        assert learned(runs, second) == outcome
        assert sum(logs.answers()) == answers, "what was remembered was asked again"
        alone, asked = locally(runs, tmp_path / "laptop")
        assert asked == ""
        assert alone == outcome[1] or not outcome[1]
