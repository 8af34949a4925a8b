"""Runs in a real Kueue, which `make kueue` installs: each queues as a whole, and gives back what it had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from earlier import earlier, tree_before
from kills import SLOTS, answer_log
from laptop import blob, learn
from local_queues import NODES, QUOTA, Queues, deleted, waiting_for_pods, watched
from releases import CHART, NAME, Release, apply_crds
from runs import ENDED, FINISHED, Operator, Runs, at_once, operating

from combee.objects.queues import QUEUE_LABEL

pytestmark = [pytest.mark.kueue, pytest.mark.alone, pytest.mark.timeout(1200)]
TWO = {"cpu": "400m", "memory": "1Gi"}
"""Room for two runs."""


@pytest.fixture
def queues(cluster: Cluster, namespace: str) -> Queues:
    return Queues(cluster, namespace)


def low(*flags: str) -> Callable[[dict[str, Any]], None]:
    """Change the quickstart: slow enough to be taken back at work, and no call is asked twice by choice."""

    def change(run: dict[str, Any]) -> None:
        at_once(run)
        spec = run["spec"]
        spec["queue"] = {"name": "team-a", "priorityClass": "learning-low"}
        spec["engines"][0]["vllm"]["args"] = ["--time-scale=1", *flags]
        spec["workers"] = {"parallelism": 1, "concurrency": SLOTS, "hedgeBudget": 0}

    return change


def urgent(run: dict[str, Any]) -> None:
    at_once(run)
    run["metadata"]["name"] = "urgent"
    run["spec"] |= {"queue": {"name": "team-a", "priorityClass": "learning-high"}, "seed": 8}


def test_a_run_is_queued_admitted_preempted_by_a_more_urgent_one_and_ends_with_the_same_playbook(
    cluster: Cluster, namespace: str, operator: Operator, queues: Queues, tmp_path: Path
) -> None:
    runs, log = Runs(cluster, namespace), answer_log(cluster, "quickstart")
    slow = low(log.flag)
    with log.kept():
        queues.apply(QUOTA | {"cpu": "150m"})
        runs.apply(slow)
        eventually("it waits, and Kueue says why", lambda: queues.waits() and "cpu" in queues.quota()[2])
        print(queues.quota()[2])
        place = queues.workload("quickstart")["spec"]
        assert (place["queueName"], place["priority"]) == ("team-a", 10)
        assert [one["name"] for one in place["podSets"]] == ["engine-0-main", "steps"]
        assert not cluster.get("pods,jobs,deployments", "-l", "combee.dev/run", namespace=namespace)["items"]

        queues.apply(QUOTA)
        eventually("it is admitted", queues.admitted)
        eventually("its map is at work", lambda: queues.at_work("map"), seconds=300)
        assert all(pod["spec"]["nodeSelector"] == NODES for pod in queues.pods())
        before = len(log.answers())
        eventually("its map has had an answer", lambda: len(log.answers()) > before)

        runs.apply(urgent)
        eventually("the urgent run takes its place", lambda: queues.evictions("quickstart", "Preempted"))
        eventually("the run says so", queues.waits)
        assert runs.ended("urgent")["phase"] in FINISHED
        assert runs.status()["phase"] not in ENDED
        assert not queues.pods("quickstart")

        status = runs.ended()
        assert status["phase"] == "Learned", status["message"]
    eventually("its place goes after its end", lambda: not queues.workload("quickstart"), seconds=60)
    answers = log.answers().values()
    twice = sum(len(given) - 1 for given in answers)
    print(f"{len(answers)} calls, {twice} answered twice, {SLOTS} in flight at most")
    assert twice <= SLOTS
    learn(runs.plans(tmp_path / "plans", "quickstart"), tmp_path, slow)
    assert blob(tmp_path, runs.playbook()).exists()


def test_a_queue_that_is_drained_has_all_pods_of_a_run_at_once_and_the_run_goes_on_after(
    cluster: Cluster, namespace: str, operator: Operator, queues: Queues, tmp_path: Path
) -> None:
    runs, slow = Runs(cluster, namespace), low()
    queues.apply(QUOTA)
    runs.apply(slow)
    eventually("its map is at work", lambda: queues.at_work("map"), seconds=300)
    assert {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in queues.pods()} >= {"engine"}

    queues.apply(QUOTA, stopPolicy="HoldAndDrain")
    eventually("no pod of it is left", lambda: not queues.pods(), seconds=30)
    eventually("it says so", queues.waits)
    print(queues.quota()[2])

    eventually("its place is given back", lambda: not queues.admission())
    assert runs.status()["phase"] not in ENDED

    queues.apply(QUOTA, stopPolicy="None")
    status = runs.ended()
    assert status["phase"] == "Learned", status["message"]
    learn(runs.plans(tmp_path / "plans", "quickstart"), tmp_path, slow)
    assert blob(tmp_path, runs.playbook()).exists()


def test_five_runs_in_a_queue_without_room_for_two_all_end_and_none_is_let_in_before_the_pods_of_another_end(
    cluster: Cluster, namespace: str, operator: Operator, queues: Queues, tmp_path: Path
) -> None:
    """A hundredth of each amount: 11 cpu, of which a Job asks for 2 and an engine for 5. The engine has the
    longest name that one may have."""
    pods, places, engine = tmp_path / "pods", tmp_path / "places", "m" * 63
    runs, names = Runs(cluster, namespace), [f"run-{number}" for number in range(5)]

    def named(name: str) -> Callable[[dict[str, Any]], None]:
        def change(run: dict[str, Any]) -> None:
            at_once(run)
            run["metadata"]["name"] = name
            spec = run["spec"]
            spec["queue"] = {"name": "team-a"}
            spec["seed"] = 7 + int(name[-1])
            spec["engines"][0]["name"] = engine
            spec["models"] = {role: {"engineRef": {"name": engine}} for role in ("task", "proposer")}
            spec["engines"][0]["template"]["spec"]["resources"]["requests"]["cpu"] = "50m"
            spec["workers"]["template"] = {"spec": {"resources": {"requests": {"cpu": "20m"}}}}

        return change

    queues.apply({"cpu": "110m", "memory": "8Gi"})
    for name in names:
        runs.apply(named(name))
    most = 0

    def over() -> bool:
        nonlocal most
        most = max(most, queues.at_once())
        return all(runs.status(name).get("phase") in ENDED for name in names)

    with (
        watched(cluster, namespace, "pods", pods),
        watched(cluster, namespace, "workloads.kueue.x-k8s.io", places),
    ):
        eventually("all five are over", over, seconds=900, every=2)
        eventually("no place is left", queues.empty, seconds=60)
    phases = {name: runs.status(name)["phase"] for name in names}
    print(f"{phases}; {most} admitted at once at most")
    assert set(phases.values()) <= set(FINISHED) and most == 1
    left = {run: when for run, _, when in deleted(places)}
    ends = {run: when for run, component, when in deleted(pods) if component == "engine"}
    print(f"left the queue {left}, the engine's pod went {ends}")
    assert ends.keys() == left.keys() == set(names)
    assert all(ends[run] < left[run] for run in names)


def test_a_run_in_work_of_the_version_before_goes_back_into_its_queue_whole_and_ends(
    cluster: Cluster, namespace: str, queues: Queues, tmp_path: Path
) -> None:
    """That version's Jobs are in the queue by themselves, and its engines in none."""
    runs, slow, log, before = Runs(cluster, namespace), low(), tmp_path / "log", tree_before(tmp_path)
    queues.apply(QUOTA)
    try:
        with earlier(cluster, namespace, before, log):
            runs.apply(slow)
            eventually("its map is at work", lambda: queues.at_work("map"), seconds=300)
        apply_crds(cluster)
        with operating(cluster, namespace, log):
            eventually("it has a place as a whole", lambda: queues.workload("quickstart"))
            assert runs.ended()["phase"] == "Learned"
    finally:
        apply_crds(cluster)
    jobs = cluster.get("jobs", "-l", "combee.dev/run=quickstart", namespace=namespace)["items"]
    labelled = [job["metadata"]["name"] for job in jobs if QUEUE_LABEL in job["metadata"]["labels"]]
    assert labelled and len(labelled) < len(jobs), "the version before made some of them"
    learn(runs.plans(tmp_path / "plans", "quickstart"), tmp_path, slow)
    assert blob(tmp_path, runs.playbook()).exists()


def test_a_default_queue_that_holds_back_what_the_run_did_not_put_into_it_is_named(
    cluster: Cluster, namespace: str, operator: Operator, queues: Queues
) -> None:
    runs = Runs(cluster, namespace)
    queues.apply(QUOTA | {"cpu": "50m"}, local="default")
    runs.apply(at_once)
    eventually("it waits", queues.waits)
    message = queues.quota()[2]
    print(message)
    assert "held back by a queue that the cluster put it into" in message, message


def test_runs_that_share_an_engine_each_reserve_it_and_it_stays_while_one_of_them_has_its_place(
    cluster: Cluster, namespace: str, operator: Operator, queues: Queues
) -> None:
    runs, names = Runs(cluster, namespace), ("quickstart", "second")

    def sharing(name: str) -> Callable[[dict[str, Any]], None]:
        def change(run: dict[str, Any]) -> None:
            low()(run)
            run["metadata"]["name"] = name
            run["spec"]["seed"] = 7 + names.index(name)
            run["spec"]["engines"][0]["shared"] = True

        return change

    def engines() -> dict[str, list[str]]:
        """uid -> the runs that use it."""
        chosen = ("-l", "app.kubernetes.io/component=engine")
        metas = [one["metadata"] for one in cluster.get("deployments", *chosen, namespace=namespace)["items"]]
        return {m["uid"]: sorted(ref["name"] for ref in m.get("ownerReferences", ())) for m in metas}

    queues.apply(QUOTA)
    for name in names:
        runs.apply(sharing(name))
    eventually("one is admitted", lambda: sorted(map(queues.admitted, names)) == [False, True])
    (waits,) = (name for name in names if not queues.admitted(name))
    eventually("the other waits for room for an engine, too", lambda: "cpu" in queues.quota(waits)[2])
    queues.apply(TWO)
    eventually("both use one engine", lambda: list(engines().values()) == [list(names)], seconds=300)
    (uid,) = engines()

    queues.activate("quickstart", False)
    eventually("it has given its place back", lambda: not queues.admission("quickstart"), seconds=60)
    print(queues.quota("quickstart")[2])
    assert engines() == {uid: ["second"]}, "the other one still has its place"
    queues.activate("quickstart", True)
    for name in names:
        assert runs.ended(name)["phase"] in FINISHED
    eventually(
        "the engine goes with its last run, and their places", lambda: not engines() and queues.empty()
    )


def test_a_run_whose_pods_do_not_come_up_in_time_is_taken_back_and_tells_kueue_when_they_do(
    cluster: Cluster, namespace: str, operator: Operator, queues: Queues
) -> None:
    runs, there = Runs(cluster, namespace), "combee.dev/there"

    def elsewhere(run: dict[str, Any]) -> None:
        low()(run)
        run["spec"]["engines"][0]["template"]["spec"]["nodeSelector"] = {there: "true"}

    with waiting_for_pods(cluster, 60):
        queues.apply(QUOTA)
        runs.apply(elsewhere)
        eventually("it is admitted", queues.admitted)
        taken = eventually("it is taken back", lambda: queues.evictions("quickstart", "PodsReadyTimeout"))
        eventually("it says so", lambda: queues.waits() and queues.quota()[2])
        print(taken, queues.quota()[2])
        cluster.kubectl("label", "node", "--all", f"{there}=true")
        try:
            eventually("Kueue hears that its pods came up", lambda: _ready(queues), seconds=300)
            assert runs.ended()["phase"] in FINISHED
        finally:
            cluster.kubectl("label", "node", "--all", f"{there}-")


def _ready(queues: Queues) -> bool:
    told = queues.workload("quickstart").get("status", {}).get("conditions", ())
    return any(one["type"] == "PodsReady" and one["status"] == "True" for one in told)


def test_the_charts_roles_and_policies_are_enough_for_a_run_in_a_queue(
    cluster: Cluster, namespace: str, team: str
) -> None:
    release, runs, queues = Release(cluster, namespace), Runs(cluster, team), Queues(cluster, team)
    values: dict[str, Any] = {
        "namespaces": [team],
        "crds": {"install": False},
        "userRoles": {"create": False},
        "engineImages": ["localhost/combee-sim"],
        "engineArguments": ["--time-scale"],
    }
    queues.apply(QUOTA)
    try:
        release.install(values)
        runs.apply(low())
        eventually("it may not read flavors", lambda: "cannot be asked" in queues.quota()[2])
        print(queues.quota()[2])
        values["readQueues"] = True
        release.helm("upgrade", NAME, str(CHART), "--wait", "--timeout", "240s", values=values)
        eventually("its map is at work", lambda: queues.at_work("map"), seconds=300)
        assert _ready(queues), "who is at work has told Kueue so"
        queues.apply(QUOTA, stopPolicy="HoldAndDrain")
        eventually("its place is given back", lambda: not queues.admission())
        assert not queues.pods()
        queues.apply(QUOTA, stopPolicy="None")
        assert runs.ended()["phase"] in FINISHED
        eventually("it has left its queue", queues.empty)
        queues.apply(QUOTA | {"cpu": "50m"})
        runs.apply(urgent)
        eventually("the next one waits in it", lambda: queues.waits("urgent") and not queues.empty())
    finally:
        release.uninstall()
    assert queues.empty(), "an uninstall leaves no place"
