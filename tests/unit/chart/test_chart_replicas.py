"""Several operators: one works, the others stand by; a drain takes them one at a time."""

from __future__ import annotations

from typing import Any

import yaml
from chart_tools import CHART, SERVER, WAYS, helm, objects


def _template(way: str) -> dict[str, Any]:
    (made,) = objects(way, "Deployment")
    return dict(made["spec"]["template"])


def test_one_replica_is_ready_with_the_lease_and_nothing_holds_a_drain_up() -> None:
    for way in set(WAYS) - {"everything"}:
        assert not objects(way, "PodDisruptionBudget")
        (container,) = _template(way)["spec"]["containers"]
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_of_several_each_is_ready_and_one_at_a_time_may_be_evicted() -> None:
    """A replica that stands by holds no Lease: with /readyz helm would wait for it for ever."""
    (made,), (budget,) = objects("everything", "Deployment"), objects("everything", "PodDisruptionBudget")
    assert made["spec"]["replicas"] == 2 and made["spec"]["strategy"] == {"type": "Recreate"}
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/healthz"
    assert budget["spec"] == {"maxUnavailable": 1, "selector": made["spec"]["selector"]}
    assert budget["metadata"]["namespace"] == made["metadata"]["namespace"]


def test_constraints_without_a_selector_are_about_the_operators_pods() -> None:
    (made,) = objects("everything", "Deployment")
    ours, theirs = made["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert ours["labelSelector"] == made["spec"]["selector"]
    assert theirs["labelSelector"] == {"matchLabels": {"team": "platform"}}
    assert {key: ours[key] for key in ours if key != "labelSelector"} == WAYS["everything"]["operator"][
        "topologySpreadConstraints"
    ][0]


def test_labels_annotations_and_variables_arrive_where_they_belong() -> None:
    (made,) = objects("everything", "Deployment")
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels["team"] == "platform" and made["spec"]["selector"]["matchLabels"].items() <= labels.items()
    accounts = {one["metadata"]["name"]: one["metadata"] for one in objects("everything", "ServiceAccount")}
    assert accounts["combee-operator"]["annotations"] == {
        "eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/x"
    }
    assert not {"eks.amazonaws.com/role-arn"} & accounts["combee-cleanup"].get("annotations", {}).keys()
    (job,) = objects("everything", "Job")
    for pod in (made["spec"]["template"], job["spec"]["template"]):
        (container,) = pod["spec"]["containers"]
        assert container["env"][-2:] == WAYS["everything"]["operator"]["extraEnv"]


def test_two_releases_share_no_object_of_the_cluster_but_the_definitions() -> None:
    """helm deletes what a release made: what two have in common is gone with the first of them."""

    def made(namespace: str) -> set[tuple[str, str]]:
        values = yaml.safe_dump({"namespaces": [f"{namespace}-runs"], "readNodes": True})
        rendered = helm(
            *("template", namespace, str(CHART), "-n", namespace, "--kube-version", SERVER, "-f", "-"),
            stdin=values,
        )
        found = [one for one in yaml.load_all(rendered.stdout, yaml.CSafeLoader) if one]
        return {(one["kind"], one["metadata"]["name"]) for one in found if "namespace" not in one["metadata"]}

    assert {kind for kind, _ in made("one") & made("two")} == {"CustomResourceDefinition"}
