"""A Shadow canary keeps its pairs when the operator and the gateway are killed in the middle of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from canaries import (
    canary,
    gateway,
    half_of,
    loading,
    prepare,
    questions,
    settled,
    show,
    simulated,
    text_with,
)
from cluster_tools import Cluster, eventually
from gateways import gateway_pods, gateway_ready
from playbooks import Playbooks
from runs import start_operator

from combee.names import LABEL_COMPONENT

SOME, ENOUGH = 8, 150
"""pairs that are judged when they are killed, and those that a decision takes."""


@dataclass
class Seen:
    """What a version's status said of its canary, look by look."""

    samples: list[int] = field(default_factory=list)
    tests: set[str] = field(default_factory=set)
    restarts: set[int] = field(default_factory=set)

    def add(self, status: dict[str, Any]) -> None:
        if told := status.get("canary"):
            self.samples.append(told.get("samples", 0))
        if test := status.get("test"):
            self.tests.add(test["id"])
        self.restarts.add(status.get("restarts", 0))


@contextmanager
def watching(there: Playbooks, digest: str) -> Iterator[Seen]:
    """Look at a version twice a second."""
    seen, stop = Seen(), threading.Event()

    def look() -> None:
        while not stop.wait(0.5):
            seen.add(there.versions()[digest].get("status", {}))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.timeout(900, func_only=True)
def test_a_canary_whose_gateway_and_operator_are_killed_goes_on_and_is_decided(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    there, model = Playbooks(cluster, namespace), simulated()
    more = {"COMBEE_GATEWAY_IMAGE": cluster.image("operator"), "COMBEE_GATEWAY_REPLICAS": "1"}
    operator = start_operator(cluster, namespace, tmp_path / "first.log", **more)
    try:
        asked = questions(model)
        topics = {topic for topic, _ in asked}
        prepare(there)
        shadow = canary("Shadow", trafficPercent=100.0, minSamples=ENOUGH)
        there.apply(canary=shadow, delivery={"gateway": gateway()})
        known = dict.fromkeys(half_of(topics), "right")
        active = there.version(text_with(model, known), right=60, decision="Promote")
        there.serves(active)
        there.decide(active, "Auto")
        gateway_ready(there)
        better = there.version(
            text_with(model, dict.fromkeys(topics, "right")), right=90, base=60, parent=active
        )
        with watching(there, better) as seen:
            # Before there are pairs: one that came late would find enough of them at once.
            eventually("its judge runs", lambda: _judge_runs(there))
            with loading(there, asked[::2]) as load:
                eventually("some pairs are judged", lambda: seen.samples[-1:] >= [SOME], seconds=240)
                operator.kill()
                before, answered = seen.samples[-1], load.statuses[200]
                # It still answers, and keeps pairs, with nobody there who counts them.
                eventually("it answers", lambda: load.statuses[200] >= answered + 20)
            assert set(load.statuses) == {200} and not load.wrong
            assert before < ENOUGH and there.phase(better) == "Candidate"
            (old,) = _gateways(there)
            cluster.kubectl("delete", "pod", old, "--grace-period=0", "--force", namespace=namespace)
            operator = start_operator(cluster, namespace, tmp_path / "second.log", **more)
            eventually("there is another gateway", lambda: _another(there, old), seconds=120)
            gateway_ready(there)
            with loading(there, asked[1::2]) as load:
                status = settled(there, better, "Active")
            assert set(load.statuses) == {200} and not load.wrong
        print("better:", status["canary"]["message"])
        print(f"pairs when they were killed: {before}; as they were seen: {sorted(set(seen.samples))}")
        assert seen.samples == sorted(seen.samples), "pairs were lost"
        assert seen.restarts == {0} and len(seen.tests) == 1
        assert status["promotedBy"] == "Gates" and status["canary"]["samples"] >= ENOUGH
        there.serves(better)
    except BaseException:
        show(cluster, there)
        raise
    finally:
        if operator.process.poll() is None:
            operator.kill()


def _judge_runs(there: Playbooks) -> bool:
    pods = there.cluster.get("pods", "-l", f"{LABEL_COMPONENT}=canary", namespace=there.namespace)["items"]
    return any(pod["status"]["phase"] == "Running" for pod in pods)


def _gateways(there: Playbooks) -> list[str]:
    """Names of its pods."""
    return [pod["metadata"]["name"] for pod in gateway_pods(there)]


def _another(there: Playbooks, old: str) -> bool:
    pods = _gateways(there)
    return bool(pods) and old not in pods
