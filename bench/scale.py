"""Many runs at once: the operator against a control plane with pretended nodes.

    python -m bench.scale --runs 1000 --pods 50000

Every run is in its map step, with its share of the pods running. Then an operator starts anew and is
measured: when it has its first reconcile, how long reconciles take, and its memory. The control plane is
real, pods and nodes are not (kwok); profile's results are written by this program in the kubelet's place."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf, isinf
from pathlib import Path
from typing import Any

from bench.control_plane import NODE_PODS, ControlPlane, control_plane, missing
from bench.ports import free_ports
from combee.names import LABEL_STEP, attempt_name
from combee.plan.types import RoleUsage, StepSummary

ROOT = Path(__file__).resolve().parents[1]
FIRST_TARGET_SECONDS, P99_TARGET_SECONDS, RSS_TARGET_MIB = 5.0, 1.0, 250.0
RUNS_A_NAMESPACE = 100
SETTLE_SECONDS = 20.0
DIGEST = "ab" * 32
_WRITES = re.compile(r'verb="(?:POST|PUT|PATCH|DELETE)"')


@dataclass(frozen=True, slots=True)
class Scaled:
    """What was measured. Seconds, MiB."""

    runs: int
    pods: int
    first_reconcile_seconds: float
    """from the start of the process to the end of its first reconcile."""
    all_seconds: float
    """to the moment at which it had looked at every run."""
    p50_seconds: float
    p99_seconds: float
    """of reconciles, by the histogram's buckets."""
    rss_mib: float
    """the most it ever held."""

    def lines(self) -> Iterator[str]:
        """For people."""
        for what, got, target, unit in (
            ("first reconcile after start", self.first_reconcile_seconds, FIRST_TARGET_SECONDS, "s"),
            ("p99 of a reconcile", self.p99_seconds, P99_TARGET_SECONDS, "s"),
            ("memory of the operator", self.rss_mib, RSS_TARGET_MIB, "MiB"),
        ):
            met = "met" if got < target else "NOT MET"
            yield f"{what:32} {got:8.2f} {unit:4} target < {target:g} {unit:4} {met}"
        yield f"{'all runs looked at after':32} {self.all_seconds:8.2f} s"
        yield f"{'p50 of a reconcile':32} {self.p50_seconds:8.3f} s"
        yield f"{self.runs} runs, {self.pods} pods running on pretended nodes"


def measure(
    folder: Path,
    *,
    runs: int,
    pods: int,
    resync_seconds: int = 60,
    settle_seconds: float = SETTLE_SECONDS,
    say: Callable[[str], None] = print,
) -> Scaled:
    """Set the stage and measure, a whole resync included. RuntimeError naming what did not come."""
    if absent := missing():
        raise RuntimeError(f'not on PATH: {", ".join(absent)}; eval "$(make -s cluster-env)" first')
    with control_plane(folder, nodes=pods // NODE_PODS + 2) as up:
        up.kubectl("create", "-f", str(ROOT / "crds"))
        share = pods // runs
        namespaces = [f"scale-{index}" for index in range((runs - 1) // RUNS_A_NAMESPACE + 1)]
        up.create(
            [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in namespaces]
        )
        for start in range(0, runs, 50):
            up.create([_run(index, share) for index in range(start, min(runs, start + 50))])
        say(f"{runs} runs made")
        with _operator(folder, up, "first", 60):
            _set_the_stage(up, runs, share * runs, settle_seconds, say)
        with _operator(folder, up, "measured", resync_seconds) as operator:
            return _measured(operator, runs, share * runs, resync_seconds)


def _run(index: int, share: int) -> dict[str, Any]:
    model = {"endpoint": {"url": "http://model.invalid/v1", "model": "none"}}
    return {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": f"run-{index:05d}", "namespace": f"scale-{index // RUNS_A_NAMESPACE}"},
        "spec": {
            "discipline": "Advisory",
            "playbookRef": {"name": "formula"},
            "task": {
                "type": "Formula",
                "data": {
                    "train": {"configMap": {"name": "rows", "key": "train"}},
                    "heldOut": {"configMap": {"name": "rows", "key": "heldOut"}},
                },
            },
            "method": {"type": "ACE"},
            "models": {"task": model, "proposer": model},
            "batching": {"mode": "Fixed", "size": 10 * share, "reason": "a stage for many pods"},
            "workers": {"parallelism": share, "concurrency": share, "overlap": "Never"},
            "store": {"uri": "s3://nowhere/runs"},
        },
    }


def _set_the_stage(
    up: ControlPlane, runs: int, pods: int, settle_seconds: float, say: Callable[[str], None]
) -> None:
    """Until every run's map pods run: profile's pods end with a result, as the kubelet would say."""
    done: set[str] = set()
    told = time.monotonic()
    end = time.monotonic() + 240 + pods / 5
    while (ready := _ready(up)) < pods or len(done) < runs:
        if len(done) < runs:
            _end_profiles(up, done)
        if time.monotonic() - told > 5:
            told = time.monotonic()
            say(f"{len(done)} of {runs} profiles done, {ready} of {pods} pods running")
        if time.monotonic() > end:
            raise RuntimeError(f"only {ready} of {pods} pods run; logs are beside the control plane's files")
        # Each look lists every run's Jobs: seldom where they are many, or it is the looking that takes the
        # time.
        time.sleep(max(1.0, runs / 50))
    say("waiting until the control plane is at rest")
    _rest(up, end, settle_seconds)


def _rest(up: ControlPlane, end: float, settle_seconds: float) -> None:
    """Wait until nothing has written a pod for a while: with so many pods, kwok lags by minutes."""
    before = -1.0
    while (now := _pods_written(up)) != before:
        if time.monotonic() > end:
            raise RuntimeError("the control plane does not come to rest")
        before = now
        time.sleep(settle_seconds)


def _pods_written(up: ControlPlane) -> float:
    """Requests that changed pods, since the API server began."""
    said = up.kubectl("get", "--raw", "/metrics")
    found = re.findall(r"^apiserver_request_total{([^}]*)} (\S+)$", said, re.MULTILINE)
    writes = (
        float(count) for labels, count in found if 'resource="pods"' in labels and _WRITES.search(labels)
    )
    return sum(writes)


def _end_profiles(up: ControlPlane, done: set[str]) -> None:
    listed = json.loads(up.kubectl("get", "pods", "-A", "-l", f"{LABEL_STEP}=profile", "-o", "json"))
    placed = [
        pod for pod in listed["items"] if pod["metadata"]["uid"] not in done and pod["spec"].get("nodeName")
    ]
    with ThreadPoolExecutor(4) as at_once:
        done.update(at_once.map(partial(_end_profile, up), placed))


def _end_profile(up: ControlPlane, pod: dict[str, Any]) -> str:
    """Write what the kubelet would; the pod's uid."""
    meta = pod["metadata"]
    step = attempt_name(meta["labels"]["batch.kubernetes.io/job-name"], 0)
    status = {"status": {"phase": "Succeeded", "containerStatuses": [_ended(pod, step)]}}
    up.patch(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status", status)
    return str(meta["uid"])


def _ended(pod: dict[str, Any], step: str) -> dict[str, Any]:
    summary = StepSummary(
        step,
        "profile",
        outputs={"artifact": DIGEST, "train": DIGEST, "heldOut": DIGEST, "engine": DIGEST},
        counts={"train": 100_000, "select": 50, "gate": 50, "test": 0, "rollouts": 50},
        scores={"select": 0.5},
        usage={"task": RoleUsage(50, 0, 1000, 100, 0)},
    )
    container = pod["spec"]["containers"][0]
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": {"exitCode": 0, "reason": "Completed", "message": summary.encode().decode()}},
    }


def _ready(up: ControlPlane) -> int:
    """Pods that run, as the Jobs count them."""
    said = up.kubectl(
        "get", "jobs", "-A", "-l", f"{LABEL_STEP}=map", "-o", "jsonpath={.items[*].status.ready}"
    )
    return sum(map(int, said.split()))


@dataclass(slots=True)
class _Operator:
    process: subprocess.Popen[bytes]
    port: int
    began: float

    def metrics(self) -> str:
        """Empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def peak_mib(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("the operator is gone")


@contextmanager
def _operator(folder: Path, up: ControlPlane, name: str, resync_seconds: int) -> Iterator[_Operator]:
    (port,) = free_ports(1)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "operator"),
        "KUBECONFIG": str(up.kubeconfig),
        "POD_NAMESPACE": "default",
        "POD_NAME": name,
        "COMBEE_NAMESPACES": "",
        "COMBEE_WORKER_IMAGE": "worker",
        "COMBEE_ENGINE_IMAGES": "sim",
        "COMBEE_ENGINE_ARGUMENTS": "*",
        "COMBEE_SECRET_POLICY": "true",
        "COMBEE_METRICS_PORT": str(port),
        "COMBEE_RESYNC_SECONDS": str(resync_seconds),
    }
    command = [sys.executable, "-m", "combee.operator.program"]
    began = time.monotonic()
    with (folder / f"operator-{name}.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield _Operator(process, port, began)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _measured(operator: _Operator, runs: int, pods: int, resync_seconds: int) -> Scaled:
    first = 0.0
    end = operator.began + 300
    while True:
        said = operator.metrics()
        count = _value(said, "combee_reconcile_seconds_count")
        now = time.monotonic() - operator.began
        first = first or (now if count >= 1 else 0.0)
        if _value(said, "combee_runs", phase=True) >= runs:
            break
        if operator.process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the operator looked at {count:g} of {runs} runs; its log tells why")
        time.sleep(0.05)
    everything = time.monotonic() - operator.began
    time.sleep(1.2 * resync_seconds)
    said = operator.metrics()
    return Scaled(
        runs=runs,
        pods=pods,
        first_reconcile_seconds=round(first, 3),
        all_seconds=round(everything, 2),
        p50_seconds=quantile(said, 0.5),
        p99_seconds=quantile(said, 0.99),
        rss_mib=round(operator.peak_mib(), 1),
    )


def _value(said: str, name: str, *, phase: bool = False) -> float:
    """A metric's value; of one with phases the sum over all of them."""
    pattern = rf"^{name}{{[^}}]*}} (\S+)$" if phase else rf"^{name} (\S+)$"
    return sum(map(float, re.findall(pattern, said, re.MULTILINE)))


def quantile(said: str, share: float) -> float:
    """A quantile of combee_reconcile_seconds, in seconds: as Prometheus' histogram_quantile has it, evenly
    within the bucket that holds it."""
    pairs = re.findall(r'^combee_reconcile_seconds_bucket{le="([^"]+)"} (\S+)$', said, re.MULTILINE)
    wanted = share * max((float(count) for _, count in pairs), default=0.0)
    start = below = 0.0
    for end, count in ((float(end), float(count)) for end, count in pairs):
        if count >= wanted:
            return start if isinf(end) else start + (end - start) * (wanted - below) / max(count - below, 1.0)
        start, below = end, count
    return inf


def main() -> int:
    """Print what was measured; exit code 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--keep", type=Path, help="a folder for logs; absent: a temporary one")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(asked.keep or Path(temporary), runs=asked.runs, pods=asked.pods)
    lines = list(found.lines())
    print("\n".join(lines))
    return int(any("NOT MET" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
