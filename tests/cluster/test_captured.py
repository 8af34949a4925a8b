"""What a gateway captures of traffic: on a claim and in S3, and replayed from there for a canary."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest
from canaries import (
    CLIENT_KEY,
    MODEL_KEY,
    canary,
    gateway,
    half_of,
    loading,
    prepare,
    questions,
    settled,
    simulated,
    text_with,
)
from cluster_tools import eventually
from gateways import gateway_ready
from playbooks import Playbooks
from runs import Operator
from test_s3_run import BUCKET, KEYS

from combee.names import GATEWAY

pytestmark = pytest.mark.usefixtures("minio")
ASKED, LEAST = 60, 40
# Each line of a store, as the gateway itself reads and writes it.
LINES = """
import json, pathlib
from combee.clients.store.s3 import s3_options
from combee.clients.store.store import Store
folder = pathlib.Path("/etc/combee/gateway/store/{name}")
files = [one for one in folder.iterdir() if not one.name.startswith("..")] if folder.is_dir() else []
secret = {{one.name: one.read_text() for one in files}}
store = Store.open("{uri}", options=s3_options(secret) if secret else None)
for path in (one for one in store.list("traffic") if one.endswith(".jsonl")):
    for line in store.get(path).splitlines():
        print(json.dumps({{"path": path, **json.loads(line)}}))
"""


def captured(there: Playbooks, uri: str) -> list[dict[str, Any]]:
    """The lines of a Playbook's store, read in the gateway's pod."""
    program = LINES.format(name=there.name, uri=uri)
    command = ("exec", f"deployment/{GATEWAY}", "--", "python", "-c", program)
    said = there.cluster.kubectl(*command, namespace=there.namespace)
    return [json.loads(line) for line in said.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(1200, func_only=True)
def test_captured_requests_outlive_the_pod_and_decide_a_canary(there: Playbooks, operator: Operator) -> None:
    cluster, namespace = there.cluster, there.namespace
    model = simulated()
    asked = questions(model)
    topics = {topic for topic, _ in asked}
    prepare(there)
    literals = [f"--from-literal={key}={value}" for key, value in KEYS.items()]
    cluster.kubectl("create", "secret", "generic", "s3", *literals, namespace=namespace)
    bucket = f"s3://{BUCKET}/{namespace}/traffic"
    stores: dict[str, tuple[str, dict[str, Any]]] = {
        "formula": ("/traffic/formula", {}),
        "in-s3": (bucket, {"store": {"uri": bucket, "secretRef": {"name": "s3"}}}),
    }
    playbooks = [Playbooks(cluster, namespace, name) for name in stores]
    weaker, better = (text_with(model, dict.fromkeys(known, "right")) for known in (half_of(topics), topics))
    active, candidate = {}, {}
    for one in playbooks:
        capture = {"enabled": True, "percent": 100, **stores[one.name][1]}
        one.apply(canary=canary("Replay"), delivery={"gateway": gateway(capture=capture)})
        active[one.name] = one.version(weaker, right=60, decision="Promote")
        one.serves(active[one.name])
        one.decide(active[one.name], "Auto")
    gateway_ready(there)
    with ExitStack() as stack:
        loads = [stack.enter_context(loading(one, asked)) for one in playbooks]
        eventually("there is traffic", lambda: min(len(load.served) for load in loads) >= ASKED, seconds=120)
    assert all(set(load.statuses) == {200} and not load.wrong for load in loads)
    # Told to stop, it writes what it holds; its successor reads it.
    cluster.kubectl("rollout", "restart", f"deployment/{GATEWAY}", namespace=namespace)
    status = ("rollout", "status", f"deployment/{GATEWAY}", "--timeout=180s")
    cluster.kubectl(*status, namespace=namespace)
    for one in playbooks:
        uri = stores[one.name][0]
        lines = eventually(
            f"all of {one.name} is kept", lambda one=one, uri=uri: _enough(captured(one, uri)), seconds=180
        )
        print(f"{one.name}: {len(lines)} lines in {len({line['path'] for line in lines})} objects")
        assert all(line["path"].startswith(f"traffic/{one.name}/requests/") for line in lines)
        assert {line["active"]["digest"] for line in lines} == {active[one.name]}
        assert len({(line["stream"], line["number"]) for line in lines}) == len(lines)
        words = {line["request"]["messages"][0]["content"] for line in lines}
        assert words <= {row for _, row in asked} and len(words) > LEAST // 2
        candidate[one.name] = one.version(better, right=90, base=60, parent=active[one.name])
    for one in playbooks:
        verdict = settled(one, candidate[one.name], "Active", seconds=400)["canary"]
        print(f"{one.name}: {verdict['message']}")
        assert 20 <= verdict["samples"] <= len(captured(one, stores[one.name][0]))
        one.serves(candidate[one.name])
        one.tells("CanaryBegan", "CanaryPassed", "Promoted")
    told = operator.log.read_text() + cluster.kubectl("logs", f"deployment/{GATEWAY}", namespace=namespace)
    secrets = ("Use formula", CLIENT_KEY, MODEL_KEY, KEYS["AWS_SECRET_ACCESS_KEY"])
    assert not [word for word in secrets if word in told]


def _enough(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return lines if len(lines) >= LEAST else []
