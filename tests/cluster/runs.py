"""Runs on a real cluster: an operator as a process of its own, and what a run left."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cluster_tools import REPOSITORY, Cluster, eventually

from warm import Program

FORMULA = REPOSITORY / "examples" / "data" / "formula"
FINISHED = ("Learned", "Unsure", "NothingBetter")
"""The phases of a run that came to its own end."""
ENDED = (*FINISHED, "BudgetExhausted", "Failed", "Stopped")


def quickstart() -> list[dict[str, Any]]:
    """The objects of examples/quickstart.yaml."""
    return list(yaml.safe_load_all((REPOSITORY / "examples" / "quickstart.yaml").read_text()))


def short(run: dict[str, Any]) -> None:
    """Two iterations, of sizes that no clock has a say in: all that a run does comes, and once more."""
    run["spec"]["batching"] = {"mode": "Fixed", "size": 60, "reason": "two iterations"}


def at_once(run: dict[str, Any]) -> None:
    """One iteration, each step on one pod, where what is tested comes in each."""
    run["spec"]["batching"] = {"mode": "Fixed", "size": 120, "reason": "one iteration"}
    run["spec"]["workers"]["parallelism"] = 1


def template(**task: Any) -> dict[str, Any]:
    """The quickstart's run as a Playbook's template, with one batch size, so that two runs plan the same."""
    run = next(one for one in quickstart() if one["kind"] == "PromptLearningRun")
    at_once(run)
    made = {name: value for name, value in run["spec"].items() if name != "playbookRef"}
    made["task"] = {**made["task"], **task}
    return made


@dataclass
class Runs:
    """The runs of one namespace."""

    cluster: Cluster
    namespace: str

    def apply(self, change: Callable[[dict[str, Any]], None] = lambda run: None) -> None:
        """Apply the quickstart, with its run changed."""
        objects = quickstart()
        change(next(o for o in objects if o["kind"] == "PromptLearningRun"))
        self.cluster.reader.apply(objects, self.namespace)

    def get(self, name: str = "quickstart") -> dict[str, Any]:
        return self.cluster.get("promptlearningrun", name, namespace=self.namespace)

    def status(self, name: str = "quickstart") -> dict[str, Any]:
        return self.get(name).get("status", {})

    def ended(self, name: str = "quickstart", *, seconds: float = 400) -> dict[str, Any]:
        """The status of a run that is over."""

        def over() -> dict[str, Any] | None:
            status = self.status(name)
            return status if status.get("phase") in ENDED else None

        try:
            return eventually(f"{name} is over", over, seconds=seconds, every=1)
        except BaseException:
            print(self.cluster.kubectl("describe", "plr", name, namespace=self.namespace)[-6000:])
            print(self.cluster.kubectl("get", "pods,jobs", "-o", "wide", namespace=self.namespace))
            raise

    def plans(self, folder: Path, name: str = "") -> Path:
        """The frozen plans of a run, or of all, as the folder that ``combee run --plans`` reads."""
        folder.mkdir(parents=True)
        for item in self.cluster.get("configmap", namespace=self.namespace)["items"]:
            labels = item["metadata"].get("labels", {})
            if name in ("", labels.get("combee.dev/run")) and "plan.json" in item["data"]:
                plan = item["data"]["plan.json"]
                (folder / f"i{json.loads(plan)['iteration']:03d}.json").write_text(plan)
        return folder

    def playbook(self, name: str = "quickstart") -> str:
        """The published playbook."""
        config = self.status(name)["published"]
        return self.cluster.get("configmap", config, namespace=self.namespace)["data"]["prompt.md"]

    def left(self) -> list[dict[str, Any]]:
        """The objects that runs made and that are still there."""
        kinds = "jobs,deployments,services,pods,configmaps"
        found = self.cluster.get(kinds, "-l", "combee.dev/run-uid", namespace=self.namespace)
        return list(found["items"])


@dataclass
class Operator:
    """The operator as a process: the code under test, on the real API server."""

    process: Program
    log: Path

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


def make_accounts(cluster: Cluster, namespace: str) -> None:
    """The accounts of step pods, and what publish may do."""
    rbac = "rbac.authorization.k8s.io"
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        for name in ("combee-worker", "combee-publish")
    ]
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]}
    meta = {"metadata": {"name": "combee-publish"}, "apiVersion": f"{rbac}/v1"}
    subject = {"kind": "ServiceAccount", "name": "combee-publish", "namespace": namespace}
    objects.append({**meta, "kind": "Role", "rules": [rule]})
    role = {"apiGroup": rbac, "kind": "Role", "name": "combee-publish"}
    objects.append({**meta, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]})
    cluster.reader.apply(objects, namespace)


def operator_environment(cluster: Cluster, namespace: str) -> dict[str, str]:
    """What an operator for one namespace, which also holds its Lease, is started with."""
    return {
        **cluster.environment,
        "PYTHONPATH": str(REPOSITORY / "operator"),
        "POD_NAMESPACE": namespace,
        "POD_NAME": "combee-operator-0",
        "COMBEE_NAMESPACES": namespace,
        "COMBEE_WORKER_IMAGE": cluster.image("worker"),
        "COMBEE_ENGINE_IMAGES": "localhost/combee-sim",
        "COMBEE_ENGINE_ARGUMENTS": "*",
        "COMBEE_SECRET_POLICY": "true",
        "COMBEE_DISCIPLINE": "Advisory",
        "COMBEE_METRICS_PORT": "0",
        "COMBEE_GATEWAY_IMAGE": cluster.image("operator"),
        "COMBEE_GATEWAY_REPLICAS": "1",
    }


def start_operator(cluster: Cluster, namespace: str, log: Path, **more: str) -> Operator:
    """An operator for one namespace, which also holds its Lease; the accounts of step pods are made as
    the chart makes them for a list of namespaces.

    One that is started after another was killed is the container of the same pod, as the kubelet starts it
    again: the Lease is its own. That another pod waits until the Lease runs out is for tests that kill pods.
    """
    make_accounts(cluster, namespace)
    environment = operator_environment(cluster, namespace) | more
    return Operator(Program(["combee-operator"], environment, log, log), log)


@contextmanager
def operating(cluster: Cluster, namespace: str, log: Path, **more: str) -> Iterator[Operator]:
    """An operator that is stopped at the end, however the test goes."""
    operator = start_operator(cluster, namespace, log, **more)
    try:
        yield operator
    finally:
        if operator.process.poll() is None:
            operator.kill()
