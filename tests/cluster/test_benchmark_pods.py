"""Benchmarks of agents on a real cluster: small tasks in their layouts, a pod a rollout, each by its metric.

The worker's image stands for a benchmark's, with the program of its example, what stands in for its package,
and its data as arguments; the model is a process of this machine."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_tools import REPOSITORY, Cluster, run_python
from runs import Runs, operating
from test_containers import ADDRESS, ALLOWED

from combee.assembly.benchmarks.appworld import read_appworld
from combee.assembly.benchmarks.layout import Splits, with_held_out
from combee.assembly.benchmarks.tau2 import read_tau2
from combee.assembly.benchmarks.terminal_bench import read_terminal_bench

sys.path.insert(0, str(REPOSITORY / "tests" / "e2e"))
from benchmark_layouts import STANDINS, appworld_root, tau2_checkout, terminal_bench_tasks
from gardener import code, gardener, shell

pytestmark = pytest.mark.timeout(1200)
EXAMPLES = REPOSITORY / "examples"
FOLDER = "/tmp/benchmark"
"""where a rollout's pod finds them"""
LOADER = (
    "import base64,io,runpy,sys,zipfile;"
    "packed=io.BytesIO(base64.b64decode(''.join(sys.argv[1:])));zipfile.ZipFile(packed).extractall({folder!r});"
    "sys.path.insert(0,{folder!r});sys.argv[1:]={args!r};runpy.run_module({module!r},run_name='__main__')"
)


@pytest.fixture(autouse=True)
def _reached(cluster: Cluster) -> None:
    if not cluster.own:
        pytest.skip("the model is a process of this machine, which pods of another cluster do not reach")


@dataclass(frozen=True)
class Small:
    """A benchmark with a small task of our own. ``program``: that of its example; ``data``: its folder of
    data, which the program is given with ``args``."""

    example: str
    program: str
    splits: Splits
    data: Path | None = None
    args: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """The arguments of Python that are the program of a rollout."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as archive:
            for path in (EXAMPLES / self.example / f"{self.program}.py", STANDINS / f"{self.example}.py"):
                if path.exists():
                    archive.writestr(path.name, path.read_text())
            for path in sorted(self.data.rglob("*.*")) if self.data else ():
                archive.writestr(str(path.relative_to(self.data.parent)), path.read_text())  # type: ignore[union-attr]
        text = base64.b64encode(packed.getvalue()).decode()
        loader = LOADER.format(folder=FOLDER, args=list(self.args), module=self.program)
        return ["-c", loader, *(text[k : k + 1900] for k in range(0, len(text), 1900))]


def objects(cluster: Cluster, url: str, small: Small) -> list[dict[str, Any]]:
    """The example's run with its rows, and its claim."""
    spec, splits = yaml.safe_load((EXAMPLES / f"{small.example}.yaml").read_text())["spec"], small.splits
    spec["task"]["custom"]["container"] |= {
        "image": cluster.image("worker"),
        "command": ["python3"],
        "args": small.words(),
        "concurrency": 4,
        "memory": "200Mi",
        "scratch": "64Mi",
    }
    del spec["task"]["custom"]["container"]["localCommand"]
    files = {split: f"{split}.jsonl" for split in splits}
    spec["task"]["data"] = {
        split: {"configMap": {"name": "rows", "key": key}} for split, key in files.items()
    }
    texts = {files[split]: "".join(json.dumps(row) + "\n" for row in rows) for split, rows in splits.items()}
    del spec["engines"]
    endpoint = {"endpoint": {"url": url, "model": "openai/gpt-oss-20b"}}
    spec["models"] = {"task": endpoint, "proposer": endpoint}
    spec["method"]["epochs"] = 1
    spec |= {
        "batching": {"mode": "Fixed", "size": 24, "reason": "test"},
        "workers": {"parallelism": 1, "concurrency": 8, "hedgeBudget": 0},
        "store": {"pvc": {"claimName": "store"}},
    }
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    kinds = {
        "PersistentVolumeClaim": ("v1", "store", {"spec": claim}),
        "ConfigMap": ("v1", "rows", {"data": texts}),
        "PromptLearningRun": ("combee.dev/v1alpha1", small.example, {"spec": spec}),
    }
    return [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **rest}
        for kind, (version, name, rest) in kinds.items()
    ]


def looked(cluster: Cluster, namespace: str, url: str, log: Path, small: Small) -> dict[str, Any]:
    """What the closing look of the example's run, which learns, handed in."""
    with operating(cluster, namespace, log, **ALLOWED):
        cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=objects(cluster, url, small))
        status = Runs(cluster, namespace).ended(small.example, seconds=900)
    assert status["phase"] == "Learned", status
    script = """
        import pathlib
        (path,) = pathlib.Path("/store/runs").glob("*/steps/*-evaluate-a0/*.manifest.json")
        print(path.read_text())
    """
    claim = {"name": "store", "persistentVolumeClaim": {"claimName": "store"}}
    mount = {"volumeMounts": [{"name": "store", "mountPath": "/store"}]}
    summary: dict[str, Any] = json.loads(
        run_python(cluster, namespace, script, container=mount, volumes=[claim])
    )
    return summary


def test_tau2_learns_by_pass_k(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    splits = with_held_out(read_tau2(tau2_checkout(tmp_path / "tau2-bench"), "greenhouse"), None)
    del splits["test"]
    with gardener(ADDRESS) as model:
        small = Small("tau2", "play", splits)
        look = looked(cluster, namespace, model.url, tmp_path / "operator.log", small)
    assert look["usage"]["task"]["calls"] == 2 * 4 * look["counts"]["gateRows"] == 96
    assert look["scores"]["gateLow"] > 0


def test_appworld_learns_by_scenario(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    splits = read_appworld(appworld_root(tmp_path / "root"), "test_normal")
    del splits["test"]
    with gardener(ADDRESS, agent=code) as model:
        small = Small("appworld", "solve", splits, tmp_path / "root" / "data", ("--root", FOLDER))
        look = looked(cluster, namespace, model.url, tmp_path / "operator.log", small)
    assert look["counts"]["gateRows"] == 8 and look["usage"]["task"]["calls"] == 2 * 16
    assert look["scores"]["gateLow"] > 0


@contextmanager
def serving(cluster: Cluster, namespace: str, most: int = 16) -> Iterator[str]:
    """The URL of the server of environments, which has the rights that its example gives it."""
    rights = ("ServiceAccount", "Role", "RoleBinding")
    example = (EXAMPLES / "terminal-bench" / "environments.yaml").read_text()
    made = [one for one in yaml.safe_load_all(example) if one["kind"] in rights]
    for one in made:
        one["metadata"]["namespace"] = namespace
    made[-1]["subjects"][0]["namespace"] = namespace
    cluster.kubectl("apply", "-f", "-", stdin=made)
    account = f"--kubectl=--as=system:serviceaccount:{namespace}:environments"
    words = ("--image-prefix", "localhost/combee-", "--namespace", namespace, "--restricted", account)
    server = subprocess.Popen(
        [
            sys.executable,
            EXAMPLES / "terminal-bench/serve.py",
            *words,
            "--host",
            ADDRESS,
            "--port",
            "0",
            "--most",
            str(most),
        ],
        env=cluster.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        yield server.stdout.readline().split()[-1]
    finally:
        server.terminate()
        server.communicate()


def test_terminal_bench_learns_in_environments_of_its_tasks_images(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    images = [cluster.image("worker"), cluster.image("operator")]
    splits = with_held_out(read_terminal_bench(terminal_bench_tasks(tmp_path / "tasks", images)), None)
    with gardener(ADDRESS, agent=shell) as model, serving(cluster, namespace) as url:
        args = ("--environments", url, "--tasks", f"{FOLDER}/tasks")
        small = Small("terminal-bench", "play", splits, tmp_path / "tasks", args)
        look = looked(cluster, namespace, model.url, tmp_path / "operator.log", small)
        left = cluster.get(
            "pods", "-l", "app.kubernetes.io/name=terminal-bench-environment", namespace=namespace
        )
    assert look["counts"]["gateRows"] == 12 and look["scores"]["gateLow"] > 0
    assert look["scores"]["gateBest"] == 1, "resolved rate"
    assert not [pod for pod in left["items"] if "deletionTimestamp" not in pod["metadata"]]
