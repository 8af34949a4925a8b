"""kubectl apply refuses a waived canary where the chart says that none is waived here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from cluster_tools import Cluster, eventually, fresh_namespace
from releases import CHART, NAME, Release

WAIVED = {"canary": {"waived": "a demo"}}
HERE = "spec.canary.waived is not allowed here (playbooks.allowWaivedCanary)"


def playbook(spec: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": "formula"}
    return {"apiVersion": "combee.dev/v1alpha1", "kind": "Playbook", "metadata": meta, "spec": spec}


def applied(cluster: Cluster, namespace: str, spec: dict[str, Any], *flags: str) -> str:
    """What kubectl says of a Playbook that it refuses; empty where it takes it."""
    made = playbook(spec)
    asked = cluster.try_kubectl("apply", "-f", "-", *flags, namespace=namespace, stdin=made)
    return asked.stderr if asked.returncode else ""


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Iterator[str]:
    """A namespace with a Playbook that waived its canary before the chart's policy came, which is installed
    there alone."""
    with fresh_namespace(cluster) as namespace:
        assert applied(cluster, namespace, WAIVED) == ""
        rendered = Release(cluster, namespace).helm(
            *("template", NAME, str(CHART), "-s", "templates/policy.yaml"),
            values={"namespaces": [namespace], "playbooks": {"allowWaivedCanary": False}},
        )
        made = [one for one in yaml.safe_load_all(rendered) if one]
        policy = [one for one in made if one["metadata"]["name"].endswith("-waivers")]
        assert len(policy) == 2
        cluster.kubectl("apply", "-f", "-", stdin=policy)
        other = {"canary": {"waived": "another demo"}}
        try:
            eventually(
                "the policy holds",
                lambda: applied(cluster, namespace, other, "--dry-run=server"),
                seconds=120,
            )
            yield namespace
        finally:
            cluster.kubectl("delete", "-f", "-", stdin=policy)


def test_a_new_waiver_is_refused_and_one_that_was_there_is_in_nobodys_way(
    cluster: Cluster, place: str
) -> None:
    assert HERE in applied(cluster, place, {"canary": {"waived": "another demo"}}, "--dry-run=server")
    assert applied(cluster, place, {**WAIVED, "heldOut": {"minScore": 0.5}}) == ""
    for allowed in ({}, {"canary": {"mode": "Manual"}}):
        assert applied(cluster, place, allowed, "--dry-run=server") == ""
