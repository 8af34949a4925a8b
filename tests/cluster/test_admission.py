"""A real API server and the models accept and refuse the same manifests, and say why."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes import client, config

from admission_cases import Case, Manifest, bad, base, changed, changes, good
from combee.api.cluster import check_cluster
from combee.api.load import parse_resource
from combee.errors import CombeeError, NotAvailableError
from combee.generate.crd import KINDS
from combee.names import API_GROUP

PLURALS = {kind.name: kind.plural for kind in KINDS}


@dataclass(frozen=True)
class Server:
    """The API server, asked by plain requests."""

    api: client.CustomObjectsApi
    namespace: str

    def create(self, manifest: Manifest, *, dry_run: bool = True, strict: bool = True) -> tuple[Any, str]:
        """The object as the server would store it, or None and its message."""
        return self._ask(
            self.api.create_namespaced_custom_object,
            *self._place(manifest),
            manifest,
            dry_run="All" if dry_run else None,
            field_validation="Strict" if strict else "Ignore",
        )

    def replace(self, manifest: Manifest) -> str:
        """The server's message to a change that is not kept; empty when it is fine."""
        name = manifest["metadata"]["name"]
        return self._ask(
            self.api.replace_namespaced_custom_object,
            *self._place(manifest),
            name,
            manifest,
            dry_run="All",
            field_validation="Strict",
        )[1]

    def write_status(self, manifest: Manifest, status: dict[str, Any]) -> Any:
        """The object with this status."""
        name = manifest["metadata"]["name"]
        return self.api.patch_namespaced_custom_object_status(
            *self._place(manifest), name, {"status": status}
        )

    def delete(self, manifest: Manifest) -> None:
        self.api.delete_namespaced_custom_object(*self._place(manifest), manifest["metadata"]["name"])

    def _place(self, manifest: Manifest) -> tuple[str, str, str, str]:
        plural = PLURALS.get(str(manifest.get("kind")), PLURALS["PromptLearningRun"])
        return API_GROUP, "v1alpha1", self.namespace, plural

    @staticmethod
    def _ask(call: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, str]:
        try:
            return call(*arguments, **{k: v for k, v in options.items() if v is not None}), ""
        except client.ApiException as error:
            return None, json.loads(str(error.body))["message"]


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[Server]:
    """A namespace of the cluster."""
    name = cluster.kubectl("create", "-f", "-", "-o", "name", stdin=NAMESPACE).strip().partition("/")[2]
    api = client.CustomObjectsApi(config.new_client_from_config(cluster.environment["KUBECONFIG"]))
    server = Server(api, name)
    eventually("a good run is accepted", lambda: not server.create(good()[0])[1])
    yield server
    cluster.kubectl("delete", "namespace", name, "--wait=false")


NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-admission-"}}


def refused_here(manifest: Manifest) -> str:
    """What our own models and the cluster's rules say; empty when nothing. What is not built yet is fine."""
    try:
        resource = parse_resource(manifest, "")
    except NotAvailableError:
        return ""
    except CombeeError as error:
        return str(error)
    problems = check_cluster(resource)
    return str(problems[0]) if problems else ""


@pytest.mark.parametrize("manifest", good(), ids=lambda manifest: str(manifest["metadata"]["name"]))
def test_good_manifests_are_accepted_and_mean_the_same_with_the_servers_defaults(
    server: Server, manifest: Manifest
) -> None:
    stored, message = server.create(manifest)
    assert message == ""
    ours, theirs = parse_resource(manifest, ""), parse_resource(stored, "")
    assert theirs.spec.dump() == ours.spec.dump()
    assert theirs.spec == ours.spec


@pytest.mark.parametrize("case", [case for case in bad() if not case.operator], ids=lambda case: case.name)
def test_bad_manifests_are_refused_by_both(server: Server, case: Case) -> None:
    _, message = server.create(case.manifest)
    assert case.says in message
    assert refused_here(case.manifest)


@pytest.mark.parametrize("case", [case for case in bad() if case.operator], ids=lambda case: case.name)
def test_what_only_the_operator_can_know_passes_the_server(server: Server, case: Case) -> None:
    assert server.create(case.manifest)[1] == ""


def test_there_are_many_bad_manifests() -> None:
    assert len([case for case in bad() if not case.operator]) >= 60


@pytest.mark.parametrize("case", changes(), ids=lambda case: case.name)
def test_changes_of_what_has_started(server: Server, case: Case) -> None:
    stored, message = server.create(case.before, dry_run=False)
    assert message == ""
    try:
        if case.started:
            stored = server.write_status(case.before, {"startTime": "2026-01-01T00:00:00Z"})
        after = {**case.manifest, "metadata": {**case.manifest["metadata"]}}
        after["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        message = server.replace(after)
        assert case.says in message
        assert bool(message) == bool(case.says)
    finally:
        server.delete(case.before)


def test_a_status_of_a_newer_operator_is_kept_as_far_as_it_is_known(server: Server) -> None:
    run = good()[0]
    server.create(run, dry_run=False)
    status = {
        "phase": "PhaseOfTomorrow",
        "state": {"version": 9, "deep": {"list": [1, {"x": 0.5}]}},
        "shown": {"gain": "+0.221"},
        "conditions": [{"type": "Ready", "status": "False", "reason": "ReasonOfTomorrow", "message": "m"}],
        "fieldOfTomorrow": 1,
    }
    try:
        stored = server.write_status(run, status)["status"]
        assert stored == {key: value for key, value in status.items() if key != "fieldOfTomorrow"}
    finally:
        server.delete(run)


def test_kubectl_apply_refuses_a_field_that_is_not_there(cluster: Cluster, server: Server) -> None:
    typo = changed(good()[0], {"spec.aggregation.leafsize": 4})
    refused = cluster.try_kubectl("apply", "-f", "-", namespace=server.namespace, stdin=typo)
    assert refused.returncode == 1
    assert 'unknown field "spec.aggregation.leafsize"' in refused.stderr
    # Whoever switches that check off has it dropped; what is stored is what the operator reads.
    stored, message = server.create(typo, strict=False)
    assert message == ""
    assert "leafsize" not in stored["spec"]["aggregation"]


def test_columns_names_and_category(cluster: Cluster, server: Server) -> None:
    run = good()[0]
    server.create(run, dry_run=False)
    status = {
        "phase": "Learning",
        "batchSize": 84,
        "shown": {"iteration": "3/6", "heldOut": "0.861", "gain": "+0.221", "rollouts": "312/4000"},
    }
    try:
        server.write_status(run, status)
        lines = cluster.kubectl("get", "plr", namespace=server.namespace).splitlines()
        assert lines[0].split() == [
            "NAME",
            "METHOD",
            "STATE",
            "ITERATION",
            "BATCH",
            "HELD-OUT",
            "GAIN",
            "ROLLOUTS",
            "AGE",
        ]
        assert lines[1].split()[:-1] == [
            "formula-ace",
            "ACE",
            "Learning",
            "3/6",
            "84",
            "0.861",
            "+0.221",
            "312/4000",
        ]
        assert "formula-ace" in cluster.kubectl("get", "combee", namespace=server.namespace)
        assert cluster.try_kubectl("get", "pb,pbv", namespace=server.namespace).returncode == 0
    finally:
        server.delete(run)


JUNK = st.sampled_from(
    ["", " ", "a", "A", "-", "s3://b/k", "file:///x", "http://h/v1", "http://h:1/?", "\x00", "é", "1", "..",
     "a/b",
     0, 1, -1, 2, 7.0, 0.5, 1e300, 2**53, True, False, [], [1], [2, 1], ["a"], {}, {"name": "main"},
      {"uri": "s3://b/k"},
     {"a": "b"}, "ACE", "GEPA", "Custom", "Fixed", "Dynamic", "tokens", "x" * 64, "x" * 254]
)  # fmt: skip
"""values that are right somewhere and wrong elsewhere."""


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of everything in a manifest's spec."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield (*path, key)
        yield from places(below, (*path, key))


FULL = good()[3]
PLACES = list(places(FULL["spec"], ("spec",)))


@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    edits=st.lists(
        st.tuples(st.sampled_from(PLACES), st.one_of(JUNK, st.just(KeyError))), min_size=1, max_size=2
    )
)
def test_server_and_models_agree_on_anything(
    server: Server, edits: list[tuple[tuple[str | int, ...], Any]]
) -> None:
    manifest = copy.deepcopy(FULL)
    for path, value in edits:
        at: Any = manifest
        try:
            for part in path[:-1]:
                at = at[part]
            if value is KeyError:
                del at[path[-1]]
            else:
                at[path[-1]] = copy.deepcopy(value)
        except (KeyError, IndexError, TypeError):
            continue
    stored, message = server.create(manifest)
    # What is read back is asked: the server takes 7.0 for a whole number, and stores 7.
    said = refused_here(manifest if message else stored)
    assert bool(said) == bool(message), (message, said)


def test_the_base_of_each_kind_is_there() -> None:
    assert {base(kind.name)["kind"] for kind in KINDS} == set(PLURALS)
