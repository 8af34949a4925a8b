"""A task in a container as a cluster runs it, without one: steps in processes with a desk, rollouts in pods
of their own.

The same plans give the same bytes as on a laptop, and what misbehaves costs its example alone there, too.
"""

from __future__ import annotations

import json
import random
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e_support import ENDED, ROOT, process, result_of
from gardener import Gardener, gardener
from pods import UID, Cluster

from combee.clients.store.store import Store
from combee.names import rollout_token, step_name
from combee.objects.rollout_layout import PORT
from combee.plan.types import StepSummary
from rollout_pods import BUSYBOX, FakePod

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux", reason="each pod has an address of 127.1.0.0/16"),
    pytest.mark.skipif(BUSYBOX is None, reason="no busybox here"),
]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def model() -> Iterator[Gardener]:
    with gardener() as running:
        yield running


def written(folder: Path, **container: Any) -> Path:
    """The example with few rows, batches of a fixed size, and one command for both places."""
    document = yaml.safe_load((EXAMPLES / "container.yaml").read_text())
    spec = document["spec"]
    shutil.copytree(EXAMPLES / "greenhouse", folder / "greenhouse")
    command = [sys.executable, str(folder / "greenhouse" / "care.py")]
    own = {"image": "i", "command": command, "concurrency": 4, "timeoutSeconds": 120, "scratch": "1Mi"}
    spec["task"]["custom"]["container"] = own | container
    for split, source in spec["task"]["data"].items():
        lines = (EXAMPLES / source.pop("uri")).read_text().splitlines(keepends=True)
        (folder / f"{split}.jsonl").write_text("".join(lines[:16]))
        source["pvc"] = {"claimName": "data", "path": f"{split}.jsonl"}
    spec["batching"] = {"mode": "Fixed", "size": 8, "reason": "test"}
    spec["workers"] = {"concurrency": 8, "hedgeBudget": 0, "parallelism": 2}
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


class Rollouts:
    """What the operator makes of a run's container: pods, one after the other in each of some places, which
    find a desk at one address, as through a Service."""

    def __init__(self, cluster: Cluster, folder: Path, command: list[str], places: int) -> None:
        self.cluster, self.folder, self.command = cluster, folder, command
        self.over = threading.Event()
        self.service = socket.create_server(("127.0.0.1", 0))
        self.made: list[FakePod] = []
        self.lock = threading.Lock()
        threading.Thread(target=self._serve, daemon=True).start()
        self.threads = [threading.Thread(target=self._place, daemon=True) for _ in range(places)]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(120)
            assert not thread.is_alive()
        self.service.close()

    def _place(self) -> None:
        address = f"http://127.0.0.1:{self.service.getsockname()[1]}"
        while not self.over.is_set():
            with self.lock:
                root = self.folder / f"rollout{len(self.made):03d}"
                pod = FakePod(root, address, rollout_token(UID), self.command, over=self.over)
                self.made.append(pod)
            pod.run()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.service.accept()
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        """To the desk of any pod that has one."""
        pods = list(range(len(self.cluster.pods)))[-5:]
        random.shuffle(pods)
        for number in pods:
            with suppress(OSError), socket.create_connection((Cluster.address(number), PORT)) as desk:
                back = threading.Thread(target=_copy, args=(desk, client), daemon=True)
                back.start()
                _copy(client, desk)
                back.join()
                break
        client.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65_536):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def learned(tmp_path: Path, manifest: Path, model: Gardener) -> Iterator[tuple[Cluster, Rollouts]]:
    cluster = Cluster(tmp_path / "cluster", manifest, model.url)
    container = cluster.run.spec.task.container
    assert container is not None
    rollouts = Rollouts(cluster, tmp_path / "rollouts", list(container.command), container.concurrency)
    try:
        cluster.to_the_end()
        yield cluster, rollouts
    finally:
        rollouts.stop()
        cluster.stop()


def test_pods_learn_what_a_laptop_learns_byte_for_byte(model: Gardener, tmp_path: Path) -> None:
    manifest = written(tmp_path)
    with learned(tmp_path, manifest, model) as (cluster, rollouts):
        assert cluster.state.iteration == 2
        assert len(model.keys) == 1  # the run's own, and none that a rollout was given
        plans, out = tmp_path / "plans", tmp_path / "laptop"
        plans.mkdir()
        for number, plan in cluster.plans.items():
            (plans / f"i{number:03d}.json").write_bytes(plan.to_json())
        _local(manifest)
        flags = ["--engine", f"main={model.url}", "--plans", plans, "--task-user", "me"]
        done = process("run", "-f", manifest, "-o", out, *flags)
        assert done.returncode in ENDED, done.stdout + done.stderr
        own, other = Store.open(str(cluster.folder / "store")), Store.open(str(out / "store"))
        name = cluster.run.name
        mine = [cluster.summaries[step_name(name, UID, n, "finish")] for n in sorted(cluster.plans)]
        theirs = [
            StepSummary.decode(path.read_bytes()) for path in sorted((out / "steps").glob("*-finish-a0.json"))
        ]
        assert len(mine) == len(theirs) == 2
        for ours, summary in zip(mine, theirs, strict=True):
            assert summary is not None
            for what in ("artifact", "playbook"):
                assert own.get_blob(ours.outputs[what]) == other.get_blob(summary.outputs[what])
            assert ours.counts["rollouts"] == summary.counts["rollouts"]
        assert cluster.state.best is not None
        assert cluster.state.best.artifact == result_of(out)["playbook"]["digest"]
        assert " soil needs " in (out / "lessons.md").read_text()
        assert any((pod.root / "out/reward.json").exists() for pod in rollouts.made)


def _local(manifest: Path) -> None:
    """The same run with its data beside it."""
    document = yaml.safe_load(manifest.read_text())
    for split, source in document["spec"]["task"]["data"].items():
        source.clear()
        source["uri"] = f"{split}.jsonl"
    manifest.write_text(yaml.safe_dump(document))


MISBEHAVIOURS = {
    "TaskTimeout": "import time; time.sleep(1000)",
    "TaskWroteTooMuch": "f = (OUT / 'big').open('wb')\nwhile f.write(bytes(1 << 16)): f.flush()",
    "TaskKilled": "import signal; os.kill(os.getppid(), signal.SIGKILL); os.kill(0, signal.SIGKILL)",
    "TaskCrashed": "raise ValueError",
    "TaskNoReward": "raise SystemExit(0)",
    "TaskBadReward": "(OUT / 'reward.json').write_text('{'); raise SystemExit(0)",
}


def test_what_misbehaves_in_a_pod_is_counted_and_the_run_goes_on(model: Gardener, tmp_path: Path) -> None:
    manifest = written(tmp_path, timeoutSeconds=20, attempts=2)
    program = tmp_path / "greenhouse" / "care.py"
    rows = [json.loads(line)["id"] for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    checks = ["ROW = json.loads((TASK / 'example.json').read_text())['id']"]
    for row, script in zip(rows, MISBEHAVIOURS.values(), strict=False):
        checks += [f"if ROW == {row!r}:", *(f"    {line}" for line in script.splitlines())]
    text, main = program.read_text(), 'if __name__ == "__main__":'
    program.write_text(text.replace(main, "\n".join([*checks, main])))
    with learned(tmp_path, manifest, model) as (cluster, _):
        assert cluster.state.iteration == 2
        store = Store.open(str(cluster.folder / "store"))
        met: set[str] = set()
        for n in sorted(cluster.plans):
            record = json.loads(
                store.get_blob(
                    cluster.summaries[step_name(cluster.run.name, UID, n, "finish")].outputs["record"]
                )
            )
            met |= set(record.get("rolloutFaults", {}))
        assert met == set(MISBEHAVIOURS)
