"""Canaries on real traffic, mirrored by the gateway or replayed, judged blind, and the candidate's
outcome."""

from __future__ import annotations

import json
from typing import Any

import pytest
from canaries import (
    CLIENT_KEY,
    MODEL_KEY,
    canary,
    endpoint,
    gateway,
    half_of,
    loading,
    prepare,
    questions,
    requests_of,
    settled,
    show,
    simulated,
    text_with,
)
from cluster_tools import eventually, restricted_pod
from gateways import gateway_ready
from playbooks import Playbooks
from runs import Operator


def left(there: Playbooks) -> list[Any]:
    """ConfigMaps of judged pairs that nobody took in."""
    found = there.cluster.get("configmaps", "-l", "combee.dev/canary", namespace=there.namespace)
    return list(found["items"])


@pytest.mark.slow
@pytest.mark.timeout(1200, func_only=True)
def test_traffic_refuses_the_worse_one_promotes_the_better_and_cannot_tell_an_equal_one(
    there: Playbooks, operator: Operator
) -> None:
    model = simulated()
    asked = questions(model)
    topics = {topic for topic, _ in asked}
    known = half_of(topics)
    prepare(there)
    there.apply(canary=canary("Shadow", trafficPercent=100.0), delivery={"gateway": gateway()})
    active = there.version(text_with(model, dict.fromkeys(known, "right")), right=60, decision="Promote")
    there.serves(active)
    there.decide(active, "Auto")
    gateway_ready(there)
    with loading(there, asked) as load:
        # heldOut says that it is better; traffic knows better.
        worse = there.version(
            text_with(model, dict.fromkeys(known, "wrong")), right=90, base=60, parent=active
        )
        status = settled(there, worse, "Refused")
        print("worse:", status["canary"]["message"], "| heldOut:", status["heldOut"]["message"])
        assert status["heldOut"]["outcome"] == "Passed"
        assert status["canary"]["reason"] == "CanaryWorse" and status["canary"]["high"] < -0.05
        assert there.status()["activeDigest"] == active and there.delivered()[0] == active

        better = there.version(
            text_with(model, dict.fromkeys(topics, "right")), right=90, base=60, parent=active
        )
        status = settled(there, better, "Active")
        print("better:", status["canary"]["message"])
        assert status["promotedBy"] == "Gates" and status["canary"]["low"] > -0.05
        assert status["canary"]["samples"] >= 20
        there.serves(better)

        brief = canary("Shadow", trafficPercent=100.0, epsilon=0.005, deadlineSeconds=60)
        there.apply(canary=brief, delivery={"gateway": gateway()})
        remark = "Read the whole question before you begin."
        equal = there.version(
            text_with(model, dict.fromkeys(topics, "right"), remark), right=92, base=60, parent=better
        )
        status = settled(there, equal, "Inconclusive")
        print("equal:", status["canary"]["message"])
        assert status["canary"]["reason"] == "DeadlineExceeded" and status["canary"]["samples"] > 0
        assert there.status()["activeDigest"] == better
    print("answers by status:", dict(load.statuses), "not whole:", load.wrong[:2])
    print(there.cluster.kubectl("get", "pb,pbv,jobs", namespace=there.namespace))
    assert set(load.statuses) == {200} and not load.wrong
    # Users only ever got the version that was active.
    order = [digest for _, digest in load.served if digest]
    assert set(order) <= {active, better} and order == sorted(order, key=[active, better].index)
    eventually("nothing is left to take in", lambda: not left(there), seconds=180)
    told = operator.log.read_text() + str(there.status()) + str(there.versions())
    assert not [word for word in ("Use formula", CLIENT_KEY, MODEL_KEY) if word in told]


@pytest.mark.slow
@pytest.mark.timeout(600, func_only=True)
def test_a_refused_evaluator_is_told_and_the_canary_goes_on_once_the_key_is_right(
    there: Playbooks, operator: Operator
) -> None:
    """By replay of given requests: no gateway is needed."""
    model = simulated()
    asked = questions(model)[:60]
    topics = {topic for topic, _ in asked}
    prepare(there, evaluator_key="wrong")
    there.cluster.kubectl(
        "create",
        "-f",
        "-",
        namespace=there.namespace,
        stdin={
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "asked"},
            "data": {"requests.jsonl": requests_of(asked)},
        },
    )
    replay = {"requests": {"configMap": {"name": "asked", "key": "requests.jsonl"}}}
    upstream = {"gateway": {"upstream": endpoint("llm")}}
    there.apply(canary=canary("Replay", replay=replay), delivery=upstream)
    active = there.version(
        text_with(model, dict.fromkeys(half_of(topics), "right")), right=60, decision="Promote"
    )
    there.serves(active)
    there.decide(active, "Auto")
    better = there.version(text_with(model, dict.fromkeys(topics, "right")), right=90, base=60, parent=active)

    def told() -> bool:
        condition = there.condition("CanaryPassed")
        return condition.get("reason") == "NotJudged" and "401" in condition["message"]

    try:
        eventually("why nothing is judged is told", told, seconds=120)
    except BaseException:
        show(there.cluster, there)
        raise
    print("NotJudged:", there.condition("CanaryPassed")["message"])
    there.tells("NotJudged", of=better)
    assert "wrong" not in there.condition("CanaryPassed")["message"].split()
    patch = {"stringData": {"token": MODEL_KEY}}
    there.cluster.kubectl(
        "patch", "secret", "judge", "--type=merge", "-p", json.dumps(patch), namespace=there.namespace
    )
    status = settled(there, better, "Active")
    print("better:", status["canary"]["message"])
    assert status["canary"]["samples"] <= len(asked)
    there.serves(better)


@pytest.mark.slow
@pytest.mark.timeout(900, func_only=True)
def test_what_falls_under_its_floor_after_promotion_is_rolled_back(
    there: Playbooks, operator: Operator
) -> None:
    """It was promoted on the questions of one season; then another kind is asked, which it answers worse."""
    model = simulated()
    asked = questions(model)
    topics = {topic for topic, _ in asked}
    early = half_of(topics)
    late = topics - early
    first, then = ([one for one in asked if one[0] in of] for of in (early, late))
    most = min(len(first), len(then))
    prepare(there)
    watched = canary("Shadow", trafficPercent=100.0, watchSeconds=3600)
    there.apply(canary=watched, delivery={"gateway": gateway()})
    active = there.version(text_with(model, dict.fromkeys(late, "right")), right=60, decision="Promote")
    there.serves(active)
    there.decide(active, "Auto")
    gateway_ready(there)
    with loading(there, first[:most]) as load:
        rules = {**dict.fromkeys(early, "right"), **dict.fromkeys(late, "wrong")}
        promoted = there.version(text_with(model, rules), right=90, base=60, parent=active)
        status = settled(there, promoted, "Active")
        print("promoted:", status["canary"]["message"])
        assert status["promotedBy"] == "Gates"
        there.serves(promoted)
        load.asked = then[:most]
        status = settled(there, promoted, "Refused")
        print("watched:", status["watch"]["message"])
        assert status["refusedBy"] == "Rollback" and status["watch"]["against"] == active
        assert status["watch"]["outcome"] == "Failed" and status["watch"]["high"] < -0.05
        there.serves(active)
        eventually("the gateway serves the one before", lambda: load.served[-1][1] == active, seconds=180)
    assert set(load.statuses) == {200} and not load.wrong
    promoted_by = [one["message"] for one in there.status()["history"] if one["event"] == "RolledBack"]
    assert promoted_by and "by rollback" in promoted_by[0]
    assert "RolledBack" in there.cluster.kubectl("get", "events", namespace=there.namespace)


METERED = """
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.say(200, b"ready")

    def do_POST(self):
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if self.headers["Authorization"] != "Bearer token-of-prometheus":
            return self.say(401, b"")
        assert self.path == "/prom/api/v1/query_range"
        query, step = form["query"][0], int(form["step"][0])
        value = "95" if "canary" in query else "20"
        times = range(int(form["start"][0]), int(form["end"][0]) + 1, step)
        series = {"metric": {}, "values": [[time, value] for time in times]}
        data = {"resultType": "matrix", "result": [series]}
        self.say(200, json.dumps({"status": "success", "data": data}).encode())

    def say(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

ThreadingHTTPServer(("", 9090), Handler).serve_forever()
"""


@pytest.mark.slow
@pytest.mark.timeout(900, func_only=True)
def test_what_prometheus_says_of_both_promotes_the_better_one(there: Playbooks, operator: Operator) -> None:
    """A server that speaks Prometheus' API, and asks for a token."""
    cluster, token = there.cluster, "token-of-prometheus"
    pod = restricted_pod("prometheus", cluster.image("worker"), ["python", "-c", METERED])
    pod["metadata"]["labels"] = {"app": "prometheus"}
    pod["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"path": "/", "port": 9090}}
    meta = {"name": "prometheus"}
    service = {"selector": {"app": "prometheus"}, "ports": [{"port": 9090}]}
    objects = [
        pod,
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service},
        {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"token": token}},
    ]
    cluster.kubectl("apply", "-f", "-", namespace=there.namespace, stdin=objects)
    cluster.kubectl(
        "wait", "--for=condition=Ready", "pod/prometheus", "--timeout=240s", namespace=there.namespace
    )
    asked = {
        "url": "http://prometheus:9090/prom",
        "tokenSecretRef": {"name": "prometheus", "key": "token"},
        "score": {"query": 'good{track="$(side)",version="$(version)"}', "unit": "Percent"},
        "sides": {"active": "stable", "candidate": "canary"},
        "windowSeconds": 10,
        "delaySeconds": 0,
    }
    limits = {"epsilon": 0.1, "minSamples": 20, "durationSeconds": 0, "deadlineSeconds": 600}
    there.apply(canary={"mode": "Prometheus", **limits, "prometheus": asked, "watchSeconds": 0})
    active = there.version(
        "## general\n[x-1] helpful=0 harmful=0 :: Be brief.\n", right=60, decision="Promote"
    )
    there.serves(active)
    there.decide(active, "Auto")
    better = there.version(
        "## general\n[x-2] helpful=0 harmful=0 :: Answer with one number.\n", right=90, base=60, parent=active
    )
    status = settled(there, better, "Active", seconds=540)  # twenty windows of ten seconds
    print("better:", status["canary"]["message"])
    assert status["promotedBy"] == "Gates" and status["canary"]["gain"] == pytest.approx(0.75)
    assert "95 against 20 percent" in status["canary"]["message"]
    there.serves(better)
    eventually("nothing is left to take in", lambda: not left(there), seconds=180)
    assert token not in operator.log.read_text() + str(there.status()) + str(there.versions())
