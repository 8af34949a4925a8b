"""A run that asks servers which are there already: KServe's and Gateway API's real kinds, whose controllers
this test stands for, in front of a simulated model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from cluster_tools import Cluster, eventually
from laptop import blob, combee_run
from neighbours import define
from runs import FORMULA, Operator, Runs, at_once, quickstart

from combee.sim.keyfile import build
from combee.sim.params import SimConfig
from combee.sim.server import create_app
from waiting import wait_until

pytestmark = pytest.mark.timeout(900)
ADDRESS = "10.250.0.1"
SERVED, POOLED = "qwen3", "meta/llama"
NOW = "2026-01-01T00:00:00Z"
REFS = [
    {"name": "served", "ref": {"kind": "LLMInferenceService", "name": "qwen", "objective": "learning"}},
    {
        "name": "pooled",
        "ref": {
            "kind": "InferencePool",
            "name": "llama",
            "model": POOLED,
            "objective": "low",
            "fairnessId": "t/a",
        },
    },
]


@dataclass
class Front:
    """What stands in front of the model: one path for each server, and the headers of what came there."""

    port: int = 0
    asked: dict[str, list[dict[str, str]]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def front(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    if not cluster.own:
        pytest.skip("the model is a process of this machine, which pods of another cluster do not reach")

    key = tmp_path_factory.mktemp("key") / "key.json"
    rows = [FORMULA / f"{name}.jsonl" for name in ("train", "heldout")]
    key.write_text(json.dumps(build("formula", [(str(path), path.read_bytes()) for path in rows])))
    model = create_app(SimConfig(model=SERVED, served_names=(SERVED, POOLED), keys=(key,), time_scale=0.0))
    made = Front()

    async def routed(scope: Any, receive: Any, send: Any) -> None:
        _, server, rest = scope["path"].split("/", 2)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        made.asked.setdefault(server, []).append(headers)
        await model({**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}, receive, send)

    config = uvicorn.Config(routed, host=ADDRESS, port=0, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until("the model", lambda: server.started)
    made.port = server.servers[0].sockets[0].getsockname()[1]
    yield made
    server.should_exit = True
    thread.join(10)


def referring(run: dict[str, Any]) -> None:
    at_once(run)
    run["spec"]["engines"] = REFS
    sampling = run["spec"]["models"]["proposer"]["sampling"]
    run["spec"]["models"] = {
        "task": {"engineRef": {"name": "served"}},
        "proposer": {"engineRef": {"name": "pooled"}, "sampling": sampling},
    }


def condition(type: str, status: str = "True", reason: str = "Good", message: str = "") -> dict[str, Any]:
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": NOW,
    }


def neighbours(port: int) -> list[dict[str, Any]]:
    """What a serving team has: a KServe service, and a pool behind a route of a Gateway."""
    gateway = "gateway.networking.k8s.io"
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "llama"}
    prefix = {"path": {"type": "PathPrefix", "value": "/pooled"}}
    return [
        {
            "apiVersion": "serving.kserve.io/v1alpha2",
            "kind": "LLMInferenceService",
            "metadata": {"name": "qwen"},
            "spec": {"model": {"uri": "hf://Qwen/Qwen3-8B", "name": SERVED}},
        },
        {
            "apiVersion": "inference.networking.k8s.io/v1",
            "kind": "InferencePool",
            "metadata": {"name": "llama"},
            "spec": {
                "selector": {"matchLabels": {"app": "llama"}},
                "targetPorts": [{"number": 8000}],
                "endpointPickerRef": {"name": "llama-epp", "port": {"number": 9002}},
            },
        },
        {
            "apiVersion": f"{gateway}/v1",
            "kind": "Gateway",
            "metadata": {"name": "inference"},
            "spec": {
                "gatewayClassName": "test",
                "listeners": [{"name": "http", "protocol": "HTTP", "port": port}],
            },
        },
        {
            "apiVersion": f"{gateway}/v1",
            "kind": "HTTPRoute",
            "metadata": {"name": "llama"},
            "spec": {
                "parentRefs": [{"name": "inference"}],
                "rules": [{"matches": [prefix], "backendRefs": [pool]}],
            },
        },
    ]


def statuses(namespace: str, port: int) -> dict[str, dict[str, Any]]:
    """What the controllers of these kinds write when all is well."""
    url = f"http://{ADDRESS}:{port}/served"
    parent = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "inference"}
    accepted = [condition("Accepted"), condition("ResolvedRefs")]
    return {
        "llminferenceservice/qwen": {
            "observedGeneration": 1,
            "conditions": [condition("Ready")],
            "url": url,
            "addresses": [{"url": url, "origin": {"group": "", "kind": "Service", "name": "qwen"}}],
        },
        "gateway/inference": {
            "addresses": [{"type": "IPAddress", "value": ADDRESS}],
            "conditions": [condition("Accepted"), condition("Programmed")],
        },
        "httproute/llama": {
            "parents": [
                {
                    "parentRef": {**parent, "namespace": namespace},
                    "controllerName": "example.com/gateway",
                    "conditions": accepted,
                }
            ]
        },
    }


def test_a_run_waits_for_servers_of_others_asks_them_as_told_and_learns_the_same_on_a_laptop(
    cluster: Cluster, namespace: str, operator: Operator, front: Front, tmp_path: Path
) -> None:
    define(cluster)
    runs = Runs(cluster, namespace)

    def waits_for(words: str) -> None:
        def last_words() -> str:
            status = runs.status()
            engines = next((o for o in status.get("conditions", ()) if o["type"] == "EnginesReady"), {})
            told.append(engines.get("message", ""))
            stands = (engines.get("status"), engines.get("reason")) == ("False", "NotReady")
            return told[-1] if stands and words in told[-1] and words in status["message"] else ""

        told: list[str] = []
        assert eventually(f"it says {words!r}", last_words), told
        assert not cluster.get("jobs", namespace=namespace)["items"]

    def stands(name: str, status: dict[str, Any]) -> None:
        patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
        cluster.kubectl("patch", name, *patch, namespace=namespace)

    runs.apply(referring)
    waits_for("engine pooled waits for InferencePool llama: it is not there")
    cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=neighbours(front.port))
    waits_for("HTTPRoute llama: no Gateway has taken it yet")
    good = statuses(namespace, front.port)
    stands("httproute/llama", good["httproute/llama"])
    waits_for(f"Gateway {namespace}/inference: Programmed is Unknown")
    stands("gateway/inference", good["gateway/inference"])
    failing = condition("Ready", "False", "MinimumReplicasUnavailable", "0 of 2 are up")
    stands("llminferenceservice/qwen", {"observedGeneration": 1, "conditions": [failing]})
    waits_for("LLMInferenceService qwen: Ready is False (MinimumReplicasUnavailable: 0 of 2 are up)")
    stands("llminferenceservice/qwen", good["llminferenceservice/qwen"])
    status = runs.ended()
    assert status["phase"] == "Learned", status["message"]
    assert status["usage"]["task"]["calls"] and not cluster.get("deployments", namespace=namespace)["items"]
    (version,) = cluster.get("playbookversions", namespace=namespace)["items"]
    assert version["spec"]["origin"]["models"] == {"task": SERVED, "proposer": POOLED}

    headers = {
        name: {tuple((key, one[key]) for key in sorted(one) if "-inference-" in key) for one in asked}
        for name, asked in front.asked.items()
    }
    spelled = ("x-gateway-inference-", "x-llm-d-inference-")
    assert headers == {
        "served": {tuple((f"{name}objective", "learning") for name in spelled)},
        "pooled": {
            tuple(
                (f"{n}{key}", v) for n in spelled for key, v in (("fairness-id", "t/a"), ("objective", "low"))
            )
        },
    }

    run = next(o for o in quickstart() if o["kind"] == "PromptLearningRun")
    referring(run)
    rows = next(o for o in quickstart() if o["kind"] == "ConfigMap")["data"]
    for name, text in rows.items():
        (tmp_path / name).write_text(text)
    flags = [f"--engine={name}=http://{ADDRESS}:{front.port}/{name}/v1" for name in ("served", "pooled")]
    flags += ["--engine-model", f"served={SERVED}", "--plans", str(runs.plans(tmp_path / "plans"))]
    flags += ["--data", f"train={tmp_path}/train.jsonl", "--data", f"heldOut={tmp_path}/heldout.jsonl"]
    combee_run(run, tmp_path, flags)
    assert blob(tmp_path, runs.playbook()).exists()
