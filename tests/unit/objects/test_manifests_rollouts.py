"""Pods of a user's image: what they may see, and that nothing of ours is in the user's container."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from manifests_makers import CONTAINER, FULL, OWNER, PLAIN, SETTINGS, run_of, step_of
from pod_security import violations

from combee import names
from combee.names import rollout_token
from combee.objects.accounts import isolation
from combee.objects.jobs import step_job
from combee.objects.rollouts import rollout_job, rollout_service
from combee.steps import KINDS


def job(attempt: int = 0, address: str = "10.96.7.7", **changes: Any) -> dict[str, Any]:
    return rollout_job(run_of({**CONTAINER, **changes}), OWNER, attempt, address, SETTINGS)


def pod(**changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = job(**changes)["spec"]["template"]["spec"]
    return spec


def test_its_pods_are_restricted_and_hold_no_token_secret_or_claim() -> None:
    made = job()
    assert violations(made["spec"]["template"]) == []
    spec = made["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "combee-worker"
    assert all(set(volume) == {"name", "emptyDir"} for volume in spec["volumes"])


def test_the_users_container_is_told_nothing_of_the_run() -> None:
    (user,) = pod()["containers"]
    told = json.dumps(user)
    assert rollout_token(OWNER.uid) not in told and OWNER.uid not in told and "10.96.7.7" not in told
    assert {variable["name"] for variable in user["env"]} == {
        "COMBEE_TASK",
        "COMBEE_OUT",
        "HOME",
        "TMPDIR",
        "LANG",
    }
    assert {m["mountPath"]: m.get("readOnly", False) for m in user["volumeMounts"]} == {
        "/task": True,
        "/out": False,
        "/tmp": False,
        "/combee/bin": True,
        "/combee/end": False,
    }


@pytest.mark.parametrize(("cpu", "asked"), [(None, "100m"), ("4", "400m"), ("0.25", "25m"), ("5m", "0m")])
def test_what_a_rollout_may_use_is_bounded_and_what_it_may_use_of_a_core_is_not_kept_for_it(
    cpu: str | None, asked: str
) -> None:
    task = copy.deepcopy(CONTAINER["task"])
    if cpu is not None:
        task["custom"]["container"]["cpu"] = cpu
    (user,) = pod(task=task)["containers"]
    assert user["resources"] == {
        "requests": {"cpu": asked, "memory": "512Mi"},
        "limits": {"cpu": cpu or "1", "memory": "512Mi"},
    }


def test_a_quota_on_limits_admits_every_container_of_a_pod() -> None:
    spec = pod()
    for one in (*spec["containers"], *spec["initContainers"]):
        assert {*one["resources"]["limits"]} == {*one["resources"]["requests"]} == {"cpu", "memory"}


def test_its_program_is_started_by_our_shell_word_by_word() -> None:
    (user,) = pod()["containers"]
    launch = ["/combee/bin/busybox", "sh", "/combee/bin/launch.sh", "/combee/end"]
    assert user["command"] == [*launch, "python3", "/opt/greenhouse/care.py"]
    assert user["args"] == ["--price=$$(5)"]


def test_the_container_beside_it_is_there_first_and_reads_what_the_user_wrote() -> None:
    (beside,) = pod()["initContainers"]
    assert (beside["restartPolicy"], beside["command"]) == ("Always", ["combee-worker", "attend"])
    assert [m["mountPath"] for m in beside["volumeMounts"] if not m.get("readOnly")] == [
        "/task",
        "/combee/bin",
    ]
    (desk,) = (json.loads(v["value"]) for v in beside["env"] if v["name"] == "COMBEE_DESK")
    assert desk == {"desk": "http://10.96.7.7:8090", "token": rollout_token(OWNER.uid)}
    six = rollout_job(run_of(CONTAINER), OWNER, 0, "fd00::7", SETTINGS)["spec"]["template"]["spec"]
    assert "http://[fd00::7]:8090" in json.dumps(six["initContainers"])


def test_each_run_has_a_token_of_its_own() -> None:
    assert rollout_token(OWNER.uid) != rollout_token(OWNER.uid.replace("3", "4"))
    assert len(rollout_token(OWNER.uid)) == 64


@pytest.mark.parametrize(("concurrency", "pods"), [(4, 256), (64, 256), (100, 400)])
def test_a_job_has_pods_for_many_rollouts_and_none_is_tried_again(concurrency: int, pods: int) -> None:
    task = copy.deepcopy(CONTAINER["task"])
    task["custom"]["container"]["concurrency"] = concurrency
    spec = job(task=task)["spec"]
    assert {key: value for key, value in spec.items() if key != "template"} == {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": concurrency,
        "backoffLimitPerIndex": 0,
        "maxFailedIndexes": pods,
        "podReplacementPolicy": "TerminatingOrFailed",
        "activeDeadlineSeconds": 21600,
    }


def test_it_goes_where_the_manifest_sends_pods() -> None:
    template = {**FULL["workers"]["template"]}
    made = job(workers={"template": template})
    spec = made["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"pool": "gpu"}
    # A template's account and variables are for our pods: the user's have neither.
    assert spec["serviceAccountName"] == "combee-worker"
    assert "HTTPS_PROXY" not in json.dumps(spec)


def test_the_service_leads_to_the_desks_of_its_run() -> None:
    selector = rollout_service(OWNER)["spec"]["selector"]
    for kind in ("profile", "map", "finish", "evaluate", "reduce", "publish"):
        template = step_job(run_of(CONTAINER), OWNER, step_of(kind), 0, SETTINGS)["spec"]["template"]
        led = selector.items() <= template["metadata"]["labels"].items()
        env = {variable["name"] for variable in template["spec"]["containers"][0]["env"]}
        assert led == ("COMBEE_ADDRESS" in env) == (kind not in ("reduce", "publish"))
    plain = step_job(run_of(PLAIN), OWNER, step_of("map"), 0, SETTINGS)["spec"]["template"]
    assert names.LABEL_DESK not in plain["metadata"]["labels"]


def test_the_policies_let_rollouts_reach_desks_and_nothing_else() -> None:
    def chosen(kind: str) -> set[str]:
        """Names of the policies that a pod falls under."""
        made = (
            rollout_job(run_of(CONTAINER), OWNER, 0, "10.96.7.7", SETTINGS)
            if kind == "rollout"
            else step_job(run_of(CONTAINER), OWNER, step_of(kind), 0, SETTINGS)
        )
        labels = made["spec"]["template"]["metadata"]["labels"].items()
        return {
            one["metadata"]["name"]
            for one in isolation("team-a")
            if one["spec"]["podSelector"]["matchLabels"].items() <= labels
        }

    assert chosen("rollout") == {"combee-rollouts"}
    assert [kind for kind in KINDS if chosen(kind)] == [one.name for one in KINDS.values() if one.rolls_out]
    rollouts, desks = (one["spec"] for one in isolation("team-a"))
    assert (rollouts["policyTypes"], desks["policyTypes"]) == (["Ingress", "Egress"], ["Ingress"])
    assert "ingress" not in rollouts
    port = [{"port": rollout_service(OWNER)["spec"]["ports"][0]["port"], "protocol": "TCP"}]
    assert rollouts["egress"] == [{"to": [{"podSelector": desks["podSelector"]}], "ports": port}]
    assert desks["ingress"] == [{"from": [{"podSelector": rollouts["podSelector"]}], "ports": port}]


def test_a_step_is_not_what_a_rollout_is() -> None:
    """Whoever follows the pods of steps meets none of the user's."""
    labels = job()["spec"]["template"]["metadata"]["labels"]
    assert names.LABEL_STEP not in labels and labels[names.LABEL_COMPONENT] == "rollout"
