"""A cluster that changes under the operator: namespaces, accounts and quotas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from runs import FINISHED, Operator, Runs, at_once, operating

pytestmark = pytest.mark.timeout(900)
LABELS = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.mark.alone
def test_a_namespace_that_was_deleted_and_made_again_and_accounts_that_went_hold_no_run_up(
    cluster: Cluster, namespace: str, team: str, tmp_path: Path
) -> None:
    runs = Runs(cluster, team)
    accounts = ("combee-worker", "combee-publish")

    def started() -> bool:
        return bool(runs.status().get("phase", "Pending") != "Pending")

    def job(step: str) -> list[dict[str, Any]]:
        chosen = f"combee.dev/run=quickstart,combee.dev/step={step}"
        jobs = cluster.get("jobs", "-l", chosen, namespace=team)["items"]
        return [one for one in jobs if one.get("status", {}).get("ready")]

    with operating(
        cluster, namespace, tmp_path / "operator.log", COMBEE_NAMESPACES="", COMBEE_MAKE_ACCOUNTS="true"
    ):
        runs.apply(at_once)
        eventually("its first pod works", started)
        cluster.reader.delete_jobs(team)
        cluster.kubectl("delete", "namespace", team, "--wait", "--timeout=240s")
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team, "labels": LABELS}}
        cluster.reader.apply([made])
        runs.apply(at_once)
        eventually("the first pod of the run that came again works", started)
        cluster.kubectl("delete", "serviceaccount", *accounts, namespace=team)
        eventually("its map works", lambda: job("map"), seconds=300)
        found = cluster.get("serviceaccounts", namespace=team)["items"]
        assert set(accounts) <= {one["metadata"]["name"] for one in found}


def test_the_quickstart_learns_under_a_quota_of_limits_and_what_states_none_is_told_so(
    cluster: Cluster, namespace: str, operator: Operator
) -> None:
    hard = {"limits.cpu": "20", "limits.memory": "40Gi", "requests.cpu": "10", "requests.memory": "20Gi"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "limits"},
        "spec": {"hard": hard},
    }
    cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=quota)
    runs = Runs(cluster, namespace)

    def unlimited(run: dict[str, Any]) -> None:
        at_once(run)
        run["metadata"]["name"] = "unlimited"
        del run["spec"]["engines"][0]["template"]["spec"]["resources"]["limits"]

    runs.apply(at_once)
    status = runs.ended()
    assert status["phase"] in FINISHED, status["message"]
    runs.apply(unlimited)
    says = "wants amounts that the pods do not state. State them in resources of engines[].template.spec"
    eventually("it is told so", lambda: says in runs.status("unlimited").get("message", ""))
    message = runs.status("unlimited")["message"]
    assert "must specify limits.cpu" in message, message
