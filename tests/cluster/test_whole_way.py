"""The whole way: a run that a Playbook makes, gates, a canary on real traffic, promotion, and back again."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest
from canaries import (
    CLIENT_KEY,
    MODEL,
    MODEL_KEY,
    canary,
    gateway,
    loading,
    prepare,
    questions,
    settled,
    show,
    simulated,
    text_with,
)
from cluster_tools import REPOSITORY, eventually, restricted_pod
from gateways import gateway_ready
from langchain_openai import ChatOpenAI
from playbooks import Playbooks
from pydantic import SecretStr
from runs import Operator, Runs, quickstart, template

from combee.names import GATEWAY, published_name

sys.path.insert(0, str(REPOSITORY / "tests" / "e2e"))
from e2e_support import environment

from warm import run_program

WORDS = "What is the heron's ratio of 4711 and 12?"
"""of people who ask through the official clients."""

# Says the digest of what it has mounted, whenever it changes.
READER = """
import hashlib, pathlib, time
last = None
while True:
    try:
        now = hashlib.sha256(pathlib.Path("/playbook/prompt.md").read_bytes()).hexdigest()
    except FileNotFoundError:
        now = "absent"
    if now != last:
        print(now, flush=True)
    last = now
    time.sleep(0.1)
"""


@dataclass
class Reader:
    """A pod of a service that mounts what is delivered, as a whole volume."""

    there: Playbooks

    def start(self) -> None:
        mounts = {"volumeMounts": [{"name": "playbook", "mountPath": "/playbook"}]}
        volume = {"name": "playbook", "configMap": {"name": f"{self.there.name}-playbook"}}
        image = self.there.cluster.image("worker")
        pod = restricted_pod("reader", image, ["python", "-c", READER], container=mounts, volumes=[volume])
        self.there.cluster.kubectl("create", "-f", "-", namespace=self.there.namespace, stdin=pod)

    def seen(self) -> list[str]:
        """Digests of all that was mounted, one after the other."""
        got = self.there.cluster.try_kubectl("logs", "reader", namespace=self.there.namespace)
        return got.stdout.split()

    def follows(self, digest: str) -> float:
        """Wait until the mounted file has that digest; seconds that it took."""
        began = time.monotonic()

        def true() -> bool:
            # A changed annotation makes the kubelet look at the pod now, and not with its next round.
            note = f"looked={time.monotonic()}"
            self.there.cluster.kubectl(
                "annotate", "--overwrite", "pod", "reader", note, namespace=self.there.namespace
            )
            return self.seen()[-1:] == [digest]

        eventually(f"{digest[:12]} is mounted", true, seconds=240, every=3)
        return time.monotonic() - began


@dataclass
class Watched:
    """One field of one object: its values, each with the moment at which a watch told it."""

    values: list[tuple[float, str]] = field(default_factory=list)

    def when(self, value: str) -> float:
        """The moment of the last change to ``value``."""
        return max(moment for moment, told in self.values if told == value)


@contextmanager
def watching(there: Playbooks, kind: str, name: str, path: str) -> Iterator[Watched]:
    """Watch a field (a JSON path) of an object."""
    output = f'jsonpath={{{path}}}{{"\\n"}}'
    command = ["kubectl", "-n", there.namespace, "get", kind, name, "--watch", "-o", output]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=there.cluster.environment)
    told = Watched()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not told.values or told.values[-1][1] != line.strip():
                told.values.append((time.monotonic(), line.strip()))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        eventually(f"{kind} {name} is watched", lambda: told.values)
        yield told
    finally:
        process.kill()
        process.wait()
        thread.join()


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def rolled_back(there: Playbooks, asked: list[tuple[str, str]], refused: str, back: str) -> None:
    """``kubectl combee playbook rollback``, and how long it took until each had the version before."""
    name, note = published_name(there.name, refused), r".metadata.annotations.combee\.dev/digest"
    with (
        watching(there, "pbv", name, ".spec.decision") as decided,
        watching(there, "configmap", f"{there.name}-playbook", note) as delivered,
        loading(there, asked, per_second=40) as often,
    ):
        eventually("it is asked", lambda: often.served)
        done = run_program(
            ["combee", "playbook", "rollback", there.name, "-n", there.namespace],
            {**environment(), **there.cluster.environment},
            seconds=120,
        )
        assert done.returncode == 0, done.stderr
        assert f"{there.name} serves {back[:12]}" in done.stdout
        eventually("requests get the one before", lambda: often.served[-1][1] == back, every=0.02)
        eventually("it is delivered", lambda: delivered.values[-1][1] == back, every=0.02)
        eventually("it is decided", lambda: decided.values[-1][1] == "Refuse", every=0.02)
        began = decided.when("Refuse")
    first = next(moment for moment, digest in often.served if digest == back)
    print(
        f"rollback: {first - began:.3f} s to the gateway, {delivered.when(back) - began:.3f} s to the "
        f"delivered "
        "ConfigMap, from when a watch told of the decision"
    )
    assert set(often.statuses) == {200} and not often.wrong


def official_clients(port: int, playbook: str) -> set[str]:
    """Ask as services do, whole and in pieces; the digests that answered."""
    url = f"http://127.0.0.1:{port}/{playbook}/v1"
    client = openai.OpenAI(base_url=url, api_key=CLIENT_KEY, max_retries=0)
    asked: list[Any] = [{"role": "user", "content": WORDS}]
    whole = client.chat.completions.with_raw_response.create(model=MODEL, messages=asked)
    assert whole.parse().choices[0].message.content
    pieces = client.chat.completions.create(model=MODEL, messages=asked, stream=True)
    assert "".join(one.choices[0].delta.content or "" for one in pieces if one.choices)
    chain = ChatOpenAI(base_url=url, api_key=SecretStr(CLIENT_KEY), model=MODEL, max_retries=0)
    assert chain.invoke(WORDS).content
    assert "".join(str(one.content) for one in chain.stream(WORDS))
    return {whole.headers["x-combee-digest"]}


def everything_said(there: Playbooks, operator: Operator) -> str:
    """Logs, metrics, statuses and events of all that is ours."""
    metrics = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8081/metrics').read().decode())"
    kinds = "pb,pbv,plr,events,jobs,deployments"
    said = [operator.log.read_text(), json.dumps(there.cluster.get(kinds, namespace=there.namespace))]
    for command in (
        ("logs", f"deployment/{GATEWAY}"),
        ("exec", f"deployment/{GATEWAY}", "--", "python", "-c", metrics),
    ):
        said.append(there.cluster.kubectl(*command, namespace=there.namespace))
    assert "combee_gateway_requests_total{" in said[-1] and all(said)
    return "".join(said)


def run_made(there: Playbooks) -> str:
    """The run that the Playbook's status names, once it exists: the status is written first."""
    name: str = there.status().get("runName", "")
    return name if name and there.cluster.find("plr", name, namespace=there.namespace) else ""


@pytest.mark.slow
@pytest.mark.timeout(1500, func_only=True)
def test_from_a_run_to_what_services_get_and_back(there: Playbooks, operator: Operator) -> None:
    cluster, namespace = there.cluster, there.namespace
    model = simulated()
    asked = questions(model)
    prepare(there)
    rows = [one for one in quickstart() if one["kind"] != "PromptLearningRun"]
    cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=rows)
    spec: dict[str, Any] = {
        "heldOut": {"minScore": 0.5},
        "canary": canary("Shadow", trafficPercent=100.0),
        "delivery": {"gateway": gateway()},
    }
    # What a team wrote by hand, and named.
    there.apply(**spec)
    by_hand = text_with(model, {}, "Read the whole question before you begin.")
    first = there.version(by_hand, decision="Promote")
    there.serves(first)
    there.decide(first, "Auto")
    reader = Reader(there)
    reader.start()
    there.shows(READY="True", ACTIVE=first, CANDIDATE="")

    learn = {"trigger": "OnChange", "template": template(initialPlaybook={"activeVersion": True})}
    there.apply(**spec, learn=learn)
    run = eventually("a run is made", lambda: run_made(there), seconds=180)
    status = Runs(cluster, namespace).ended(run, seconds=600)
    assert status["phase"] == "Learned", status
    learned = eventually("it is a candidate", lambda: there.status().get("candidateDigest"), seconds=180)
    print(cluster.kubectl("get", "pb,pbv,plr", namespace=namespace))
    there.shows(READY="True", ACTIVE=first, CANDIDATE=learned, HELD_OUT="Passed")
    eventually("kubectl get pb counts its pairs", lambda: there.row()["CANARY"].endswith(" pairs"))
    version = there.versions()[learned]["spec"]
    assert (version["parentDigest"], version["runRef"]["name"]) == (first, run)
    there.tells("RunCreated", "CanaryBegan")

    gateway_ready(there)
    with loading(there, asked) as load:
        settled(there, learned, "Active", seconds=600)
        there.serves(learned)
        eventually("requests get it", lambda: load.served[-1][1] == learned)
        there.shows(READY="True", ACTIVE=learned, CANDIDATE="", HELD_OUT="Passed", CANARY="Passed")
        told = there.tells("CanaryPassed", "Promoted", of=learned)
        print("canary:", told["CanaryPassed"])
        text = there.delivered()[1]
        assert text == Runs(cluster, namespace).playbook(run) != by_hand
        print(f"mounted {reader.follows(digest_of(text)):.0f} s after that")
        assert official_clients(load.port, there.name) == {learned}

        rolled_back(there, asked, learned, first)
        there.serves(first)
        for _ in range(3):  # as a GitOps tool does, which knows nothing of it
            there.apply(**spec, learn=learn)
            time.sleep(1)
        print(f"mounted again {reader.follows(digest_of(by_hand)):.0f} s after that")
        there.shows(READY="True", ACTIVE=first, CANDIDATE="")
        there.tells("Refused", of=learned)
        there.tells("RolledBack", of=first)
        there.comes_to(learned, "Refused")
        assert there.delivered() == (first, by_hand)
    print(cluster.kubectl("get", "pb,pbv", "-o", "wide", namespace=namespace))
    print("answers by status:", dict(load.statuses), "not whole:", load.wrong[:2])
    assert set(load.statuses) == {200} and not load.wrong
    # One version after the other, each without a gap, in requests and in what is mounted.
    order = [digest for _, digest in load.served]
    changes = [now for before, now in zip(["", *order], order, strict=False) if now != before]
    assert changes == [first, learned, first]
    assert reader.seen() == [digest_of(by_hand), digest_of(text), digest_of(by_hand)]
    said = everything_said(there, operator)
    words = ("heron", "4711 and", "Use formula", CLIENT_KEY, MODEL_KEY)
    found = [word for word in words if word in said]
    if found:
        show(cluster, there)
    assert not found
