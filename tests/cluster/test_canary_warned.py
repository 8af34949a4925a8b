"""kubectl apply warns when a canary asks for more than its traffic can give, as the operator does later."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from cluster_tools import Cluster, eventually, fresh_namespace
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes import client, config
from releases import CHART, NAME, Release

from combee.algo.power import EPSILONS, decidable_epsilon, least_pairs, pairs_needed
from combee.api.load import parse_resource
from combee.api.playbook import Playbook
from combee.api.stakes import WEAKEST
from combee.names import API_GROUP
from combee.plan.playbook.traffic import warnings
from combee.plan.playbook.unasked import WITHOUT_CANARY

ENDPOINT = {"url": "https://llm.example.com/v1", "model": "m"}
PROMETHEUS = {"url": "https://prometheus.example.com", "score": {"query": "good$(version)", "unit": "Ratio"}}
ALLOWED = [epsilon for epsilon in EPSILONS if epsilon <= WEAKEST["Low"].epsilon]
UNKNOWN = 10_000
"""pairs; an epsilon that takes more is warned of where nobody says how many come."""


def playbook(mode: str = "Shadow", **canary: Any) -> dict[str, Any]:
    """A Playbook whose canary is of this mode."""
    told = {"prometheus": PROMETHEUS} if mode == "Prometheus" else {"evaluator": ENDPOINT}
    replay = {"replay": {"requests": {"uri": "s3://bucket/requests"}}} if mode == "Replay" else {}
    gateway = {"enabled": True, "upstream": {"url": ENDPOINT["url"]}}
    return {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "Playbook",
        "metadata": {"name": "formula"},
        "spec": {
            "failureCost": "Low",
            "canary": {"mode": mode, **told, **replay, **canary},
            "delivery": {"gateway": gateway},
        },
    }


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Iterator[str]:
    """A namespace in which the chart's policy for canaries holds, and no other of it."""
    with fresh_namespace(cluster) as namespace:
        rendered = Release(cluster, namespace).helm(
            *("template", NAME, str(CHART), "-s", "templates/policy.yaml"),
            values={"namespaces": [namespace]},
        )
        made = [one for one in yaml.safe_load_all(rendered) if one]
        policy = [one for one in made if one["metadata"]["name"].endswith("-canaries")]
        assert len(policy) == 2
        cluster.kubectl("apply", "-f", "-", stdin=policy)
        try:
            eventually("the policy holds", lambda: told(cluster, namespace, playbook()))
            yield namespace
        finally:
            cluster.kubectl("delete", "-f", "-", stdin=policy)


def told(cluster: Cluster, namespace: str, manifest: dict[str, Any], *flags: str) -> list[str]:
    """What kubectl apply warns of, without the names of the policy."""
    asked = cluster.try_kubectl(
        "apply", "-f", "-", *(flags or ["--dry-run=server"]), namespace=namespace, stdin=manifest
    )
    assert asked.returncode == 0, asked.stderr
    found = re.findall(r"^Warning: .*?-canaries' with binding '[^']*': (.*)$", asked.stderr, re.MULTILINE)
    return [str(one) for one in found]


def test_kubectl_apply_warns_names_the_pairs_and_proposes_an_epsilon(cluster: Cluster, place: str) -> None:
    (said,) = told(cluster, place, playbook(expectedRequestsPerDay=28_800))
    print(said)
    assert said == (
        "canary.epsilon 0.005: about 55000 pairs would show an equal candidate to be no worse, and about "
        "4320 come before "
        "the deadline: epsilon 0.02 can be decided"
    )
    assert told(cluster, place, playbook(expectedRequestsPerDay=28_800, epsilon=0.02)) == []
    (said,) = told(cluster, place, playbook())
    print(said)
    assert said.endswith(
        "give expectedRequestsPerDay to be told what your traffic can decide. With 10000 pairs epsilon "
        "0.015 can be decided"
    )
    undecided, too_few = told(cluster, place, playbook(expectedRequestsPerDay=10))
    assert "no epsilon that failureCost Low allows can be decided: look at more requests" in undecided
    assert too_few == "canary.minSamples 200: about 1 pairs come before the deadline"
    (said,) = told(cluster, place, playbook("Prometheus", deadlineSeconds=36_000, durationSeconds=0))
    print(said)
    assert "about 1300 windows" in said and "about 600 come before the deadline: epsilon 0.015" in said
    late = {**PROMETHEUS, "labelDelaySeconds": 18_000}
    short = playbook("Prometheus", deadlineSeconds=36_000, durationSeconds=0, prometheus=late)
    assert "about 300 come before the deadline" in told(cluster, place, short)[0]


def test_the_server_and_validate_say_the_same_of_no_canary_and_of_a_deadline_too_soon(
    cluster: Cluster, place: str
) -> None:
    none = playbook()
    del none["spec"]["canary"]
    soon = playbook(epsilon=0.05, durationSeconds=90_000, deadlineSeconds=500_000)
    late = {**PROMETHEUS, "labelDelaySeconds": 18_000}
    delayed = playbook("Prometheus", epsilon=0.05, prometheus=late)
    for manifest in (none, soon, delayed):
        resource = parse_resource(manifest, "")
        assert isinstance(resource, Playbook)
        (said,) = told(cluster, place, manifest)
        assert (said,) == warnings(resource.spec)
    for good in (
        playbook(epsilon=0.05, durationSeconds=90_000, deadlineSeconds=518_400),
        playbook("Replay", epsilon=0.05, durationSeconds=90_000, deadlineSeconds=90_000),
    ):
        assert told(cluster, place, good) == []


def test_it_warns_when_the_canary_changes_and_not_each_time_something_does(
    cluster: Cluster, place: str
) -> None:
    bad, kept = playbook(expectedRequestsPerDay=10, minSamples=20), "--validate=strict"
    try:
        assert told(cluster, place, bad, kept)
        bad["spec"]["heldOut"] = {"minScore": 0.5}
        assert told(cluster, place, bad, kept) == []
        bad["spec"]["canary"]["epsilon"] = 0.01
        assert told(cluster, place, bad, kept)
        bad["spec"]["canary"] = {"mode": "Manual"}
        assert told(cluster, place, bad, kept) == []
        del bad["spec"]["canary"]
        assert told(cluster, place, bad, kept) == [WITHOUT_CANARY]
        bad["spec"]["heldOut"] = {"minScore": 0.6}
        assert told(cluster, place, bad, kept) == []
    finally:
        cluster.kubectl("delete", "pb", "formula", namespace=place)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    mode=st.sampled_from(["Shadow", "Replay", "Prometheus"]),
    epsilon=st.one_of(st.sampled_from([0, *ALLOWED]), st.floats(0.0005, ALLOWED[-1])),
    expected=st.one_of(st.none(), st.integers(1, 300), st.integers(300, 5_000_000)),
    percent=st.sampled_from([1, 5, 7.5, 100]),
    hours=st.sampled_from([1, 72, 720]),
    least=st.sampled_from([20, 200, 5000]),
)
def test_the_server_and_the_operator_warn_of_the_same(
    cluster: Cluster,
    place: str,
    mode: str,
    epsilon: float,
    expected: int | None,
    percent: float,
    hours: int,
    least: int,
) -> None:
    more = {} if expected is None or mode == "Prometheus" else {"expectedRequestsPerDay": expected}
    limits = {"deadlineSeconds": hours * 3600, "durationSeconds": 0, "minSamples": least}
    manifest = playbook(mode, epsilon=epsilon, trafficPercent=percent, **limits, **more)
    resource = parse_resource(manifest, "")
    assert isinstance(resource, Playbook)
    ours, theirs = warnings(resource.spec), _header(cluster, place, manifest)
    for field in ("canary.epsilon", "canary.minSamples"):
        if field == "canary.epsilon" and _close(mode, epsilon, _come(mode, expected, percent, hours)):
            continue
        said = [any(field in one for one in ours), f"{field} " in theirs]
        assert said[0] == said[1], (manifest["spec"]["canary"], ours, theirs)
    if "requests" not in theirs and expected is not None and mode != "Prometheus" and "decided" in theirs:
        best = decidable_epsilon(_come(mode, expected, percent, hours), among=ALLOWED)
        assert best is not None and f"epsilon {best:g} can be decided" in theirs


def _come(mode: str, expected: int | None, percent: float, hours: int) -> float:
    if mode == "Prometheus":
        return hours * 60
    return UNKNOWN if expected is None else expected * hours / 24 * (percent / 100 if mode == "Shadow" else 1)


def _close(mode: str, epsilon: float, come: float) -> bool:
    """Check the figures: within 5 % or two pairs of the theory."""
    needed = least_pairs(epsilon) if mode == "Prometheus" else pairs_needed(epsilon)
    if needed is None:
        return False
    return abs(needed - come) <= max(2, 0.05 * needed)


def _header(cluster: Cluster, namespace: str, manifest: dict[str, Any]) -> str:
    """What the server warns of: the header that kubectl prints."""
    api = client.CustomObjectsApi(config.new_client_from_config(cluster.environment["KUBECONFIG"]))
    _, _, headers = api.create_namespaced_custom_object_with_http_info(
        API_GROUP, "v1alpha1", namespace, "playbooks", manifest, dry_run="All"
    )
    return str(headers.get("Warning", ""))
