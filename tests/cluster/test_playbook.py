"""Playbooks on a real cluster: gates, delivery, rollback, and what GitOps does meanwhile."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from cluster_tools import eventually
from playbooks import Playbooks
from runs import Operator

from combee.names import published_name

BULLET = "[x-{0}] helpful=0 harmful=0 :: "
GOOD = "## general\n" + BULLET.format(1) + "Divide first.\n"
BETTER = GOOD + BULLET.format(2) + "Round at the end.\n"
WORSE = "## general\n" + BULLET.format(3) + "Guess.\n"


def test_a_candidate_is_promoted_delivered_and_rolled_back_within_a_second(
    there: Playbooks, operator: Operator
) -> None:
    there.apply(heldOut={"minScore": 0.6})
    eventually("an empty playbook is delivered", lambda: there.delivered()[0] == "" and there.status())
    first = there.version(GOOD, right=70)
    there.serves(first)
    assert there.delivered()[1] == GOOD
    second = there.version(BETTER, right=90, base=70, parent=first)
    there.serves(second)
    assert there.status()["previousDigest"] == first
    print("HeldOutPassed:", there.versions()[second]["status"]["heldOut"]["message"])
    assert "0.900 >= 0.600" in there.versions()[second]["status"]["heldOut"]["message"]
    began = time.monotonic()
    there.decide(second, "Refuse")
    while there.delivered()[0] != first:
        assert time.monotonic() - began < 180
        time.sleep(0.02)
    print(
        f"delivered again {time.monotonic() - began:.2f} s after the decision (kubectl's own time included)"
    )
    there.comes_to(second, "Refused")
    assert there.delivered()[1] == GOOD
    events = there.cluster.kubectl("get", "events", "-o", "wide", namespace=there.namespace)
    for reason in ("Promoted", "Delivered", "RolledBack"):
        assert reason in events
    print(there.cluster.kubectl("get", "pb,pbv", namespace=there.namespace))


def test_a_worse_candidate_is_refused_by_held_out(there: Playbooks, operator: Operator) -> None:
    there.apply()
    good = there.version(GOOD, right=90)
    there.serves(good)
    # It rose over its own start, which is why its run published it; over today's active version it did not.
    worse = there.version(WORSE, right=60, base=40)
    eventually("the worse one is refused", lambda: there.phase(worse) == "Refused")
    verdict = there.versions()[worse]["status"]["heldOut"]
    print(verdict["message"])
    assert verdict["outcome"] == "Failed" and verdict["gain"] == pytest.approx(-0.3)
    assert there.status()["activeDigest"] == good and there.delivered()[1] == GOOD
    conditions = {one["type"]: one for one in there.versions()[worse]["status"]["conditions"]}
    assert (conditions["HeldOutPassed"]["status"], conditions["HeldOutPassed"]["reason"]) == (
        "False",
        "NotBetter",
    )


def test_without_a_canary_a_version_waits_until_somebody_approves_it(
    there: Playbooks, operator: Operator
) -> None:
    there.apply(canary=None)
    first = there.version(GOOD, right=70)
    there.tells("WaitingForApproval", of=first)
    there.shows(CANARY="Inconclusive")
    said = there.condition("CanaryPassed")
    assert (said["status"], said["reason"]) == ("Unknown", "WaitingForApproval")
    assert f"kubectl combee playbook approve {there.name} {first[:12]}" in said["message"]
    assert there.delivered() == ("", "")
    there.decide(first, "Approve")
    there.serves(first)
    there.apply()
    second = there.version(BETTER, right=90, base=70, parent=first)
    there.serves(second)
    told = there.tells("CanaryWaived", "Promoted", of=second)
    assert "a test on heldOut alone" in told["CanaryWaived"] and "a test on heldOut alone" in told["Promoted"]
    there.shows(CANARY="Waived")


def test_what_leaks_or_instructs_is_refused_whatever_it_scored(there: Playbooks, operator: Operator) -> None:
    there.apply()
    leak = there.version(GOOD + BULLET.format(9) + "Ask jane.doe@example.com for the rates.\n", right=95)
    eventually("the leak is refused", lambda: there.phase(leak) == "Refused")
    said = there.versions()[leak]["status"]
    assert "jane.doe" not in str(said) and said["content"]["outcome"] == "Failed"
    assert there.delivered()[0] == ""


def test_a_pin_holds_and_a_refused_version_cannot_be_pinned(there: Playbooks, operator: Operator) -> None:
    there.apply()
    first = there.version(GOOD, right=70)
    there.serves(first)
    second = there.version(BETTER, right=90, base=70, parent=first)
    there.serves(second)
    there.apply(version={"pinnedDigest": first})
    there.serves(first)
    assert there.condition("Pinned")["status"] == "True"
    there.apply(version={"pinnedDigest": second})
    there.serves(second)
    there.decide(second, "Refuse")
    there.serves(first)
    eventually("Pinned says why", lambda: there.condition("Pinned").get("reason") == "PinnedRefused")


def test_no_git_ops_brings_a_refused_version_back(there: Playbooks, operator: Operator) -> None:
    spec = {"heldOut": {"minScore": 0.5}}
    there.apply(**spec)
    first = there.version(GOOD, right=70)
    there.serves(first)
    second = there.version(BETTER, right=90, base=70, parent=first)
    there.serves(second)
    stop, looks, same = threading.Event(), list[tuple[float, str]](), there.delivered_uid()

    def sync() -> None:
        while not stop.wait(1.0):
            there.apply(**spec)

    def look() -> None:
        while not stop.wait(0.1):
            began = time.monotonic()
            looks.append((began, there.delivered()[0]))

    threads = [threading.Thread(target=work) for work in (sync, look)]
    for thread in threads:
        thread.start()
    try:
        there.decide(second, "Refuse")
        there.serves(first)
        back = time.monotonic()

        def seen() -> set[str]:
            """What was delivered in every look that began since."""
            return {digest for began, digest in looks if began > back}

        time.sleep(6)
        eventually("it was looked at", seen)
        assert seen() == {first}, "what was refused came back, or nothing was delivered"
        there.cluster.kubectl("delete", "pb", there.name, namespace=there.namespace)
        time.sleep(4)
        eventually(
            "it is applied again", lambda: there.cluster.find("pb", there.name, namespace=there.namespace)
        )
        there.serves(first)
        assert seen() == {first}
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    there.comes_to(second, "Refused")
    there.comes_to(first, "Active")
    assert there.delivered_uid() == same, "what is delivered was gone for a moment"
    # Only naming that very version lets it in again.
    there.decide(second, "Auto")
    time.sleep(3)
    assert there.status()["activeDigest"] == first
    there.decide(second, "Promote")
    there.serves(second)


def test_deleting_and_applying_again_never_takes_the_delivered_one_away(
    there: Playbooks, operator: Operator
) -> None:
    there.apply()
    first = there.version(GOOD, right=70)
    there.serves(first)
    same = there.delivered_uid()
    there.cluster.kubectl("delete", "pb", there.name, namespace=there.namespace)
    time.sleep(2)
    assert there.delivered() == (first, GOOD)
    there.apply()
    eventually("it is active again", lambda: there.status().get("activeDigest") == first)
    assert there.delivered() == (first, GOOD) and there.delivered_uid() == same


def test_a_config_map_that_is_not_ours_is_left_alone(there: Playbooks, operator: Operator) -> None:
    name = f"{there.name}-playbook"
    there.cluster.kubectl("create", "configmap", name, "--from-literal=mine=yes", namespace=there.namespace)
    there.apply()
    there.version(GOOD, right=70)

    def told() -> bool:
        events = there.cluster.kubectl("get", "events", namespace=there.namespace)
        return "DeliveryBlocked" in events and "not ours" in events

    eventually("it is told", told)
    found = there.cluster.get("configmap", name, namespace=there.namespace)
    assert found["data"] == {"mine": "yes"}


def test_a_playbook_that_cannot_be_read_says_so_and_keeps_what_is_active(
    there: Playbooks, operator: Operator
) -> None:
    there.apply()
    first = there.version(GOOD, right=70)
    there.serves(first)
    there.cluster.kubectl("delete", "configmap", published_name(there.name, first), namespace=there.namespace)
    time.sleep(2)
    assert there.delivered() == (first, GOOD)


def test_a_served_model_that_was_not_learned_with_is_a_condition(
    there: Playbooks, operator: Operator
) -> None:
    def served(model: str) -> dict[str, Any]:
        return {"gateway": {"upstream": {"url": "http://llm/v1", "model": model}}}

    there.apply(delivery=served("large"))
    active = there.version(GOOD, right=70, models={"task": "small"})
    there.serves(active)

    def told(reason: str) -> bool:
        return there.condition("ServedAsLearned").get("reason") == reason

    eventually("it is told", lambda: told("AnotherModel"))
    condition = there.condition("ServedAsLearned")
    print(condition["message"])
    assert condition["status"] == "False" and "activeVersion" in condition["message"]
    there.apply(delivery=served("small"))
    eventually("it is over", lambda: told("SameModel"))
    assert there.status()["activeDigest"] == active
