"""Canaries on a real cluster: better and worse playbooks for the simulated model, and real load."""

from __future__ import annotations

import hashlib
import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cluster_tools import Cluster, eventually, restricted_pod
from gateways import forwarded
from playbooks import Playbooks
from runs import FORMULA

from combee.names import GATEWAY
from combee.objects.gateway import gateway_account
from combee.sim import keyfile, lessons
from combee.sim.model import Model

MODEL = "openai/gpt-oss-120b"
CLIENT_KEY, MODEL_KEY = "key-of-the-client", "key-of-the-model"
FILES = [FORMULA / "train.jsonl", FORMULA / "heldout.jsonl"]


def simulated() -> Model:
    """The model that the image of the simulated model serves, to know which rules it lacks."""
    return Model([keyfile.build("formula", [(str(path), path.read_bytes()) for path in FILES])])


def questions(model: Model) -> list[tuple[str, str]]:
    """(topic, question) of the rows whose rule the model does not know."""
    rows = [json.loads(line)["context"] for path in FILES for line in path.read_text().splitlines()]
    asked = [(keyfile.formula_row(row, "")[0], row) for row in rows]
    return [(topic, row) for topic, row in asked if not model.book.rule(topic).known]


def text_with(model: Model, rules: dict[str, str], remark: str = "") -> str:
    """A playbook with a bullet for each topic: side ``right`` or ``wrong``."""
    lines = ["## general"]
    for number, (topic, side) in enumerate(sorted(rules.items()), 1):
        rule = model.book.rule(topic)
        entry = lessons.rule_entry(rule.name, rule.phrase(side), topic)
        lines.append(f"[x-{number}] helpful=0 harmful=0 :: {entry}")
    if remark:
        lines.append(f"[x-0] helpful=0 harmful=0 :: {remark}")
    return "\n".join(lines) + "\n"


def prepare(there: Playbooks, evaluator_key: str = MODEL_KEY) -> None:
    """Upstream and evaluator, their keys, a claim for traffic, and what the chart makes for a gateway."""
    secrets = {
        "gateway-keys": {"one": CLIENT_KEY},
        "llm": {"token": MODEL_KEY},
        "judge": {"token": evaluator_key},
    }
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}
        for name, data in secrets.items()
    ]
    for name in ("llm", "judge"):
        command = ["vllm", "serve", MODEL, "--host=0.0.0.0", "--port=8000", "--time-scale=0.02"]
        command.append(f"--api-key={MODEL_KEY}")
        pod = restricted_pod(name, there.cluster.image("sim"), command)
        pod["metadata"]["labels"] = {"app": name}
        pod["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"path": "/health", "port": 8000}}
        service = {"selector": {"app": name}, "ports": [{"port": 8000}]}
        objects += [
            pod,
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service},
        ]
    account, binding = gateway_account(there.namespace)
    binding["roleRef"]["kind"] = "Role"
    watched = {"apiGroups": ["combee.dev"], "resources": ["playbooks", "playbookversions"]}
    rules = [
        {**watched, "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]
    role = {
        "apiVersion": binding["apiVersion"],
        "kind": "Role",
        "metadata": {"name": GATEWAY},
        "rules": rules,
    }
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    objects += [account, role, binding]
    objects.append(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "combee-store"},
            "spec": claim,
        }
    )
    there.cluster.kubectl("apply", "-f", "-", namespace=there.namespace, stdin=objects)
    waits = ("wait", "--for=condition=Ready", "pod/llm", "pod/judge", "--timeout=240s")
    there.cluster.kubectl(*waits, namespace=there.namespace)


def endpoint(name: str, **more: Any) -> dict[str, Any]:
    """The upstream (llm) or the evaluator (judge)."""
    return {
        "url": f"http://{name}:8000/v1",
        "apiKeySecretRef": {"name": name, "key": "token"},
        **more,
    }


def canary(mode: str, **more: Any) -> dict[str, Any]:
    """A canary that a few dozen pairs decide."""
    thresholds = {"epsilon": 0.05, "minSamples": 20, "durationSeconds": 0, "deadlineSeconds": 600}
    told = {**thresholds, "maxLatencyRatio": 50.0, "maxCostRatio": 50.0, "watchSeconds": 0}
    return {"mode": mode, "evaluator": endpoint("judge", model=MODEL), **told, **more}


def gateway(**more: Any) -> dict[str, Any]:
    return {
        "enabled": True,
        "upstream": endpoint("llm"),
        "keys": {"secretRef": {"name": "gateway-keys"}},
        **more,
    }


@dataclass
class Load:
    """Asks the gateway question after question; each with a seed of its own."""

    port: int
    asked: list[tuple[str, str]]
    per_second: float = 4.0
    playbook: str = "formula"
    statuses: Counter[int] = field(default_factory=Counter)
    served: list[tuple[float, str]] = field(default_factory=list)
    """(when, digest) of each answer."""
    wrong: list[str] = field(default_factory=list)
    """what came back that was no whole answer."""
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        connection, number = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60), 0
        while not self._stop.wait(1 / self.per_second):
            again, at = divmod(number, len(self.asked))
            # A conversation of its own each time: one pair counts of those that begin with the same words.
            question = self.asked[at][1] + (f"\n({again})" if again else "")
            number += 1
            body = {
                "model": MODEL,
                "messages": [{"role": "user", "content": question}],
                "seed": number // len(self.asked),
            }
            headers = {"Authorization": f"Bearer {CLIENT_KEY}", "Content-Type": "application/json"}
            connection.request("POST", f"/{self.playbook}/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            said = answer.read()
            self.statuses[answer.status] += 1
            self.served.append((time.monotonic(), answer.getheader("x-combee-digest") or ""))
            if answer.status != 200 or json.loads(said)["choices"][0]["finish_reason"] != "stop":
                self.wrong.append(said[:200].decode())

    def stop(self) -> None:
        self._stop.set()


@contextmanager
def loading(there: Playbooks, asked: list[tuple[str, str]], per_second: float = 4.0) -> Iterator[Load]:
    """Load on the gateway's Service."""
    with forwarded(there) as port:
        load = Load(port, asked, per_second, there.name)
        thread = threading.Thread(target=load.run)
        thread.start()
        try:
            yield load
        finally:
            load.stop()
            thread.join()


def settled(there: Playbooks, digest: str, phase: str, *, seconds: float = 300) -> dict[str, Any]:
    """The status of a version once it is in a phase; what there is is shown when it does not get there."""
    try:
        eventually(
            f"{digest[:12]} is {phase}", lambda: there.phase(digest) == phase, seconds=seconds, every=1
        )
    except BaseException:
        show(there.cluster, there)
        raise
    status: dict[str, Any] = there.versions()[digest]["status"]
    return status


def show(cluster: Cluster, there: Playbooks) -> None:
    for command in (
        ("get", "pb,pbv,jobs,pods,configmaps", "-o", "wide"),
        ("get", "events", "--sort-by=.lastTimestamp"),
        ("logs", "-l", "app.kubernetes.io/component=canary", "--tail=60", "--prefix"),
        ("logs", f"deployment/{GATEWAY}", "--tail=30"),
        ("describe", "pb", there.name),
    ):
        print(cluster.try_kubectl(*command, namespace=there.namespace).stdout[-6000:])


def requests_of(asked: list[tuple[str, str]]) -> str:
    """Questions as the file of requests that a replay reads."""
    rows = [{"model": MODEL, "messages": [{"role": "user", "content": row}]} for _, row in asked]
    return "".join(json.dumps(row) + "\n" for row in rows)


def half_of(topics: set[str]) -> set[str]:
    """Every topic whose hash says so: about half."""
    return {topic for topic in topics if hashlib.sha256(topic.encode()).digest()[0] & 1}
