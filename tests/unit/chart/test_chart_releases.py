"""Two releases in one cluster: uninstalling one leaves what is the other's."""

from __future__ import annotations

from typing import Any

import yaml
from chart_tools import CHART, SERVER, helm

Name = tuple[str, str, str]
OWN = {"crds": {"install": False}}
"""Definitions belong to the cluster, and so to one release at most."""


def made_by(namespace: str, **values: Any) -> set[Name]:
    """Kind, namespace and name of all that a release in ``namespace`` makes."""
    words = ("template", "combee", str(CHART), "-n", namespace, "--kube-version", SERVER, "-f", "-")
    rendered = helm(*words, stdin=yaml.safe_dump({**OWN, **values}))
    assert rendered.returncode == 0, rendered.stderr
    objects = [made for made in yaml.load_all(rendered.stdout, yaml.CSafeLoader) if made]
    return {(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]) for o in objects}


def test_releases_for_different_namespaces_have_nothing_in_common() -> None:
    first = made_by("bees", namespaces=["team-a"], readNodes=True)
    second = made_by("wasps", namespaces=["team-b"], readNodes=True)
    assert ("Role", "team-a", "combee-publish") in first and ("Role", "team-b", "combee-publish") in second
    assert not first & second


def test_a_second_release_for_all_namespaces_meets_the_roles_of_the_first() -> None:
    """So helm refuses it, as no two may serve one namespace."""
    common = {("ClusterRole", "", f"combee-{name}") for name in ("publish", "gateway")}
    assert made_by("bees") & made_by("wasps") == common
    assert not made_by("bees") & made_by("wasps", namespaces=["team-b"])
