"""A task in a container on a real cluster: a pod a rollout, the same bytes as on a laptop, and what
misbehaves isolated.

The worker's image stands for the user's, with the example's program as an argument; the model is a process of
this machine."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import REPOSITORY, Cluster, eventually, fresh_namespace, run_python, sharing
from laptop import combee_run
from runs import FINISHED, Runs, operating

sys.path.insert(0, str(REPOSITORY / "tests" / "e2e"))
from gardener import Gardener, gardener

pytestmark = pytest.mark.timeout(900)
GREENHOUSE = REPOSITORY / "examples" / "greenhouse" / "care.py"
DATA = REPOSITORY / "examples" / "data" / "greenhouse"
ADDRESS = "10.250.0.1"
"""the test node's machine, as its pods see it"""
ROWS = 12
"""of each split: a rollout is a pod."""
ROWS_BESIDE_BAD = 17
"""of train where eight misbehave: more than half would be a bad day, and the step's end."""
LOADER = "import base64,sys,zlib;exec(zlib.decompress(base64.b64decode(''.join(sys.argv[1:]))))"
ALLOWED = {"COMBEE_ALLOW_CUSTOM_TASKS": "true"}

MISBEHAVIOURS = {
    "hangs": ("import time; time.sleep(1000)", {"TaskTimeout"}),
    "writes 1 GB": (
        "f = (OUT / 'big').open('wb')\nfor _ in range(1024): f.write(bytes(1 << 20)); f.flush()",
        {"TaskWroteTooMuch"},
    ),
    "forks without end": (
        # Refused, it waits: hundreds that try at once take the cores for as long as the rollout may last.
        "import time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(1)",
        {"TaskTimeout", "TaskKilled", "TaskCrashed"},
    ),
    "takes all memory": ("hoard = []\nwhile True: hoard.append(bytes(b'x' * (1 << 24)))", {"TaskKilled"}),
    "exits 137": ("raise SystemExit(137)", {"TaskKilled"}),
    "exits 3": ("raise SystemExit(3)", {"TaskCrashed"}),
    "leaves no reward": ("raise SystemExit(0)", {"TaskNoReward"}),
    "leaves malformed JSON": (
        "(OUT / 'reward.json').write_text('{'); raise SystemExit(0)",
        {"TaskBadReward"},
    ),
}


def rows(split: str, count: int = ROWS) -> list[str]:
    return (DATA / f"{split}.jsonl").read_text().splitlines(keepends=True)[:count]


def program(scripts: dict[str, str]) -> list[str]:
    """The example's program as arguments of Python. In the row with the script's id it runs the script
    first."""
    checks = ["ROW = json.loads((TASK / 'example.json').read_text())['id']"]
    for row, script in scripts.items():
        checks += [f"if ROW == {row!r}:", *(f"    {line}" for line in script.splitlines())]
    main = 'if __name__ == "__main__":'
    text = GREENHOUSE.read_text().replace(main, "\n".join([*checks, main]))
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return ["-c", LOADER, *(packed[k : k + 1900] for k in range(0, len(packed), 1900))]


def objects(cluster: Cluster, url: str, scripts: dict[str, str], **container: Any) -> list[dict[str, Any]]:
    """The run, its rows and its claim."""
    model = {"endpoint": {"url": url, "model": "openai/gpt-oss-20b"}}
    own = {
        "image": cluster.image("worker"),
        "command": ["python3"],
        "args": program(scripts),
        "concurrency": 4,
        "timeoutSeconds": 20,
        "memory": "200Mi",
        "scratch": "64Mi",
    }
    count = ROWS_BESIDE_BAD if scripts else ROWS
    named = {
        split: {"configMap": {"name": "rows", "key": f"{split}.jsonl"}} for split in ("train", "heldOut")
    }
    spec = {
        "playbookRef": {"name": "greenhouse"},
        "task": {"type": "Custom", "custom": {"container": own | container}, "data": named},
        "method": {"type": "ACE"},
        "models": {"task": model, "proposer": model},
        "batching": {"mode": "Fixed", "size": count, "reason": "test"},
        # One shard when half of its rows might misbehave: more of them is a bad day.
        "workers": {"parallelism": 1 if scripts else 2, "concurrency": 8, "hedgeBudget": 0},
        "store": {"pvc": {"claimName": "greenhouse-store"}},
        "seed": 7,
    }
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "greenhouse-store"},
            "spec": claim,
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "rows"},
            "data": {"train.jsonl": "".join(rows("train", count)), "heldOut.jsonl": "".join(rows("heldout"))},
        },
        {
            "apiVersion": "combee.dev/v1alpha1",
            "kind": "PromptLearningRun",
            "metadata": {"name": "greenhouse"},
            "spec": spec,
        },
    ]


@pytest.fixture(scope="module")
def model(cluster: Cluster) -> Iterator[Gardener]:
    if not cluster.own:
        pytest.skip("the model is a process of this machine, which pods of another cluster do not reach")
    with gardener(ADDRESS) as running:
        yield running


def locally(runs: Runs, folder: Path, model: Gardener, run: dict[str, Any]) -> None:
    """Learn on this machine from the plans of the run."""
    for split, name in (("train", "train"), ("heldOut", "heldout")):
        (folder / f"{split}.jsonl").write_text("".join(rows(name)))
    flags = ["--plans", str(runs.plans(folder / "plans")), "--task-user", "me"]
    for split in ("train", "heldOut"):
        flags += ["--data", f"{split}={folder / split}.jsonl"]
    combee_run(run, folder, flags)


def test_an_image_that_cannot_be_pulled_is_explained(
    cluster: Cluster, namespace: str, model: Gardener, tmp_path: Path
) -> None:
    image = "127.0.0.1:9/team/greenhouse:1"  # nobody listens there, which the node hears at once
    runs = Runs(cluster, namespace)

    def told() -> str:
        status = runs.status("greenhouse")
        placed = [c for c in status.get("conditions", ()) if c["type"] == "PodsPlaced"]
        explained = placed and (placed[0]["status"], placed[0]["reason"]) == ("False", "ImagePullFailed")
        return f"{placed[0]['message']} {status['message']}" if explained else ""

    with operating(cluster, namespace, tmp_path / "operator.log", **ALLOWED):
        made = objects(cluster, model.url, {}, image=image)
        cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=made)
        message: str = eventually("the condition says what cannot be pulled", told, seconds=240)
        assert message.count(f"the image {image} of pod greenhouse-") == 2
        assert "Is its name right" in message


class Refusals(threading.Thread):
    """How often this node refused a process to a pod that already had as many as it may."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self._seen = self._now()
        self.count = 0

    def run(self) -> None:
        while not self._ended.wait(0.3):
            now = self._now()
            self.count += sum(max(0, n - self._seen.get(path, 0)) for path, n in now.items())
            self._seen |= now

    def stop(self) -> int:
        self._ended.set()
        self.join(timeout=10)
        return self.count

    @staticmethod
    def _now() -> dict[str, int]:
        """By control group, of either version of them; those of pods that are gone are no longer there."""
        groups, found = Path("/sys/fs/cgroup"), {}
        for group, _, files in os.walk(groups / "pids" if (groups / "pids").is_dir() else groups):
            if "kubepods" in group and "pids.events" in files:
                with contextlib.suppress(OSError):
                    found[group] = int(Path(group, "pids.events").read_text().split()[1])
        return found


@pytest.fixture(scope="module")
def refused() -> list[int]:
    """One number when the misbehaving are done: ``Refusals`` meanwhile."""
    return []


@pytest.fixture(scope="module")
def misbehaved(
    cluster: Cluster, model: Gardener, tmp_path_factory: pytest.TempPathFactory, refused: list[int]
) -> Iterator[dict[str, dict[str, str]]]:
    """By the id of its row, what became of each rollout that misbehaved; the last words under ``""``."""
    ids = [json.loads(line)["id"] for line in rows("train", ROWS_BESIDE_BAD)]
    scripts = dict(zip(ids, (script for script, _ in MISBEHAVIOURS.values()), strict=False))
    folder = tmp_path_factory.mktemp("misbehaved")
    refusals = Refusals()
    refusals.start()
    with sharing(), fresh_namespace(cluster) as namespace:
        with operating(cluster, namespace, folder / "operator.log", **ALLOWED):
            cluster.kubectl(
                "apply", "-f", "-", namespace=namespace, stdin=objects(cluster, model.url, scripts)
            )
            status = Runs(cluster, namespace).ended("greenhouse", seconds=600)
        assert status["phase"] in FINISHED, status["message"]
        refused.append(refusals.stop())
        yield _told(cluster, namespace)


def _told(cluster: Cluster, namespace: str) -> dict[str, dict[str, str]]:
    program = """
        import json, pathlib
        store = pathlib.Path("/store")
        (run,) = (store / "runs").iterdir()
        found = {"": {p.stem: p.read_text() for p in (run / "rollouts").glob("*.txt")}}
        for manifest in (run / "steps").glob("*-map-a0/*.manifest.json"):
            digest = json.loads(manifest.read_text())["outputs"]["trajectories"]
            for line in (store / "blobs" / digest[:2] / digest).read_text().splitlines():
                row = json.loads(line)
                if row["error"]:
                    found[row["example_id"]] = {row["error"]: row["feedback"]}
        print(json.dumps(found))
    """
    claim = {"name": "store", "persistentVolumeClaim": {"claimName": "greenhouse-store"}}
    mount = {"volumeMounts": [{"name": "store", "mountPath": "/store"}]}
    told: dict[str, dict[str, str]] = json.loads(
        run_python(cluster, namespace, program, container=mount, volumes=[claim])
    )
    return told


@pytest.mark.parametrize("what", MISBEHAVIOURS)
def test_a_rollout_that(what: str, misbehaved: dict[str, dict[str, str]]) -> None:
    """... is counted, explained and isolated; the run goes on."""
    number = list(MISBEHAVIOURS).index(what)
    row = json.loads(rows("train")[number])["id"]
    (word,) = misbehaved[row]
    assert word in MISBEHAVIOURS[what][1], misbehaved[row]
    assert misbehaved[row][word], "it is explained"
    assert misbehaved[""][word].startswith(("it ", "its ")), "the first of its kind keeps its last words"


def test_a_pod_has_no_more_processes_than_it_may(
    misbehaved: dict[str, dict[str, str]], refused: list[int]
) -> None:
    """The kubelet's podPidsLimit holds what forks without end, before it takes the node's."""
    assert misbehaved
    assert refused[0] > 0


def test_no_other_rollout_is_harmed(misbehaved: dict[str, dict[str, str]]) -> None:
    assert len(misbehaved) - 1 == len(MISBEHAVIOURS)
