"""What a run asks its queue for, and how its pods go where the queue sends them."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from manifests_makers import CONTAINER, FULL, OWNER, PLAIN, SETTINGS, SHARED, objects_of, run_of, step_of

from combee.names import pod_set_name
from combee.objects.engines import engine_deployment
from combee.objects.jobs import step_job
from combee.objects.queues import given_back, placed, pods_ready, workload
from combee.plan.cluster.seen import Assigned

AT = "2026-01-01T00:00:09Z"


def counts(spec: dict[str, Any]) -> dict[str, int]:
    made = workload(run_of({**spec, "queue": {"name": "team-a"}}), OWNER, SETTINGS, 0)
    return {one["name"]: one["count"] for one in made["spec"]["podSets"]}


def test_it_asks_for_every_engine_that_is_used_and_for_the_shards_of_one_step() -> None:
    models = {"task": {"engineRef": {"name": "main"}}, "proposer": {"engineRef": {"name": "small"}}}
    assert counts({**FULL, "models": models}) == {"engine-0-main": 2, "engine-1-small": 1, "steps": 4}
    assert counts(PLAIN | {"workers": {"parallelism": 3}})["steps"] == 3
    assert counts(CONTAINER)["rollouts"] == 8


def test_a_shared_engine_is_asked_for_by_each_of_its_runs() -> None:
    shared = {name: count for name, count in counts(SHARED).items() if name != "steps"}
    assert shared == {
        f"engine-{index}-{one['name']}": one["vllm"].get("replicas", 1)
        for index, one in enumerate(SHARED["engines"])
    }


def test_sets_have_names_that_fit_and_differ_however_long_those_of_engines_are() -> None:
    engines = [f"{'a' * 53}-{end}" for end in ("b", "c" * 9, "d" * 9)] + ["0-" + "a" * 61, "main"]
    sets = [pod_set_name(index, engine) for index, engine in enumerate(engines)]
    assert len({*sets, "steps", "rollouts"}) == 7 and sets[-1] == "engine-4-main"
    assert all(re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", one) and len(one) <= 63 for one in sets)


def test_the_set_of_steps_asks_for_what_the_pods_of_every_step_ask_for() -> None:
    run = run_of(FULL)
    (steps,) = (one for one in workload(run, OWNER, SETTINGS, 0)["spec"]["podSets"] if one["name"] == "steps")
    for kind in ("profile", "map", "reduce", "finish", "evaluate", "publish"):
        pod = step_job(run, OWNER, step_of(kind), 0, SETTINGS)["spec"]["template"]["spec"]
        asked = [one["resources"] for one in steps["template"]["spec"]["containers"]]
        assert [one["resources"] for one in pod["containers"]] == asked, kind
        assert pod["nodeSelector"] == steps["template"]["spec"]["nodeSelector"]


@pytest.mark.parametrize("spec", [FULL, SHARED], ids=["full", "shared"])
def test_no_object_but_the_workload_names_a_queue(spec: dict[str, Any]) -> None:
    for what, made in objects_of(run_of({**spec, "queue": FULL["queue"]})):
        assert "kueue" not in str(made) and "suspend" not in made.get("spec", {}), what


def test_pods_go_where_the_queue_sends_them_and_no_more_at_once_than_it_admitted() -> None:
    taint = {"key": "gpu", "operator": "Exists"}
    assigned = Assigned(2, {"pool": "spot", "zone": "a"}, (taint,), {"autoscaling.x-k8s.io/provision": "x"})
    for maker in (
        step_job(run_of(FULL), OWNER, step_of("map"), 0, SETTINGS),
        engine_deployment(run_of(FULL), OWNER, 0, SETTINGS),
    ):
        before = copy.deepcopy(maker)
        made = placed(maker, assigned)
        assert maker == before, "the maker's own is unchanged"
        pod = made["spec"]["template"]["spec"]
        assert pod["nodeSelector"] == {"pool": "spot", "zone": "a"}, "the queue's goes before the template's"
        assert pod["tolerations"] == [*maker["spec"]["template"]["spec"]["tolerations"], taint]
        assert made["spec"]["template"]["metadata"]["annotations"]["autoscaling.x-k8s.io/provision"] == "x"
        assert made["spec"].get("completions") == maker["spec"].get("completions")
        if "parallelism" in maker["spec"]:
            assert made["spec"]["parallelism"] == 2 < maker["spec"]["completions"]
        assert placed(maker, None) is maker


def evicted(reason: str, message: str) -> dict[str, Any]:
    def condition(type: str, status: str, reason: str, message: str = "m") -> dict[str, str]:
        return {
            "type": type,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }

    conditions = [
        condition("QuotaReserved", "True", "QuotaReserved"),
        condition("Admitted", "True", "Admitted"),
        condition("PodsReady", "True", "Started"),
        condition("Evicted", "True", reason, message),
    ]
    return {
        "metadata": {"resourceVersion": "7", "generation": 3},
        "status": {"conditions": conditions, "admission": {"clusterQueue": "q"}},
    }


@pytest.mark.parametrize(
    ("reason", "requeued"),
    [
        ("Preempted", "True"),
        ("NodeFailures", "True"),
        ("ClusterQueueStopped", "False"),
        ("Deactivated", "False"),
    ],
)
def test_quota_is_given_back_as_kueues_own_integrations_do(reason: str, requeued: str) -> None:
    before = evicted(reason, "why")
    patch = given_back(before, AT)
    assert patch["metadata"] == {"resourceVersion": "7"} and patch["status"]["admission"] is None
    after = {one["type"]: one for one in patch["status"]["conditions"]}
    assert after["Evicted"] == before["status"]["conditions"][3], "it stays until quota is reserved again"
    told = {type: (one["status"], one["reason"], one["message"]) for type, one in after.items()}
    assert told["QuotaReserved"] == ("False", "Pending", "why")
    assert told["Admitted"][:2] == ("False", "NoReservation")
    assert told["Requeued"] == (requeued, reason, "why")
    assert "PodsReady" not in told
    assert {one["observedGeneration"] for type, one in after.items() if type != "Evicted"} == {3}


def test_that_pods_came_up_is_told_beside_what_stands_there() -> None:
    patch = pods_ready(evicted("Preempted", "why"), AT)
    assert "admission" not in patch["status"]
    (ready,) = (one for one in patch["status"]["conditions"] if one["type"] == "PodsReady")
    assert (ready["status"], ready["lastTransitionTime"]) == ("True", AT)
    assert len(patch["status"]["conditions"]) == 4
