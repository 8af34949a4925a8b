"""From a Playbook's template to what services mount: run, version, gates, delivery; and all of it again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cluster_tools import Cluster, eventually
from playbooks import Playbooks
from runs import Operator, Runs, quickstart, template

from combee.names import LEARN_ANNOTATION

BY_HAND = "## general\n[x-0] helpful=0 harmful=0 :: Read the whole question before you begin.\n"


def learn(there: Playbooks) -> None:
    """The Playbook as it is in git: it learns from what is active."""
    made = template(initialPlaybook={"activeVersion": True})
    there.apply(heldOut={"minScore": 0.5}, learn={"trigger": "OnChange", "template": made})


@contextmanager
def synced(there: Playbooks) -> Iterator[set[str]]:
    """What git says is applied every second, whatever others wrote; all that was delivered meanwhile."""
    stop, seen = threading.Event(), set[str]()

    def sync() -> None:
        while not stop.wait(1.0):
            learn(there)

    def look() -> None:
        while not stop.wait(0.2):
            seen.add(there.delivered()[0])

    threads = [threading.Thread(target=work) for work in (sync, look)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.timeout(900, func_only=True)
def test_what_a_playbook_learns_is_delivered_and_learning_it_again_costs_no_call_and_undoes_no_refusal(
    cluster: Cluster, namespace: str, operator: Operator
) -> None:
    parts = [one for one in quickstart() if one["kind"] != "PromptLearningRun"]
    cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=parts)
    there, runs = Playbooks(cluster, namespace), Runs(cluster, namespace)
    there.apply(heldOut={"minScore": 0.5})
    by_hand = there.version(BY_HAND, decision="Promote")
    there.serves(by_hand)
    there.decide(by_hand, "Auto")
    learn(there)
    (name,) = eventually("a run is made", lambda: _runs(cluster, namespace), seconds=180)
    assert there.status()["runName"] == name
    status = runs.ended(name)
    assert status["phase"] == "Learned", status
    (digest,) = there.versions().keys() - {by_hand}
    there.serves(digest)
    version = there.versions()[digest]
    origin, scores = version["spec"]["origin"], version["spec"]["scores"]
    print(cluster.kubectl("get", "pb,pbv,plr", namespace=namespace))
    print("origin:", origin, "scores:", scores)
    assert version["spec"]["runRef"]["name"] == name and "ownerReferences" not in version["metadata"]
    assert origin["dataDigests"]["heldOut"] and origin["models"]["task"] == "openai/gpt-oss-120b"
    assert scores["gate"]["best"] > scores["gate"]["baseline"]
    assert there.delivered()[1] == runs.playbook(name)
    there.tells("RunCreated", "Promoted", "Delivered")

    there.decide(digest, "Refuse")
    there.serves(by_hand)
    same = there.delivered_uid()
    with synced(there) as seen:
        cluster.kubectl("delete", "pb", there.name, namespace=namespace)
        eventually("its run goes with it", lambda: not runs.left() and not _runs(cluster, namespace))
        eventually("it is active again", lambda: _active(there) == by_hand)
        # What it would learn is there: nothing is made by itself, and by hand it costs nothing.
        assert _runs(cluster, namespace) == []
        note = f"{LEARN_ANNOTATION}=again"
        cluster.kubectl("annotate", "pb", there.name, note, namespace=namespace)
        (again,) = eventually("a run is made by hand", lambda: _runs(cluster, namespace), seconds=180)
        assert again.startswith(name)
        repeated = runs.ended(again)
        time.sleep(3)  # whatever would follow from what was learned
    assert repeated["phase"] == "Learned" and repeated["bestDigest"] == status["bestDigest"]
    made = sum(role["calls"] for role in repeated["usage"].values())
    print(
        f"calls of the second run: {made} new, {sum(r['hits'] for r in repeated['usage'].values())} "
        f"remembered"
    )
    assert made == 0
    assert there.delivered_uid() == same, "what is delivered was gone for a moment"
    assert seen == {by_hand}, "what is delivered was another one, or none, for a moment"
    assert there.versions().keys() == {by_hand, digest}
    assert there.phase(digest) == "Refused" and there.status()["activeDigest"] == by_hand


def _active(there: Playbooks) -> str:
    """The active digest; empty also while the Playbook is not there."""
    found = there.cluster.find("pb", there.name, namespace=there.namespace) or {}
    return str(found.get("status", {}).get("activeDigest", ""))


def _runs(cluster: Cluster, namespace: str) -> list[str]:
    return [one["metadata"]["name"] for one in cluster.get("plr", namespace=namespace)["items"]]
