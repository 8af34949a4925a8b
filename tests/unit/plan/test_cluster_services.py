"""Servers that a run refers to: where their objects say they answer, and what a run does until they do."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from cluster_bench import LEARNING, NOW, job, memory, placed, plan, run_of, seen

from combee.api.engines import ServiceRef
from combee.plan.cluster.decide import ClusterPlan, decide_cluster
from combee.plan.cluster.memory import Memory, Served
from combee.plan.cluster.seen import EngineSeen, JobSeen, Seen, ServiceSeen
from combee.plan.cluster.services import gateways_of, kserve_service, pool_service, routes_to
from combee.plan.cluster.standing import conditions, standing
from combee.plan.engine import engine_digest

Object = dict[str, Any]


def true(*types: str) -> list[Object]:
    return [{"type": one, "status": "True", "reason": "Good", "message": ""} for one in types]


# -- KServe --------------------------------------------------------------------------------------------

KSERVE = ServiceRef.model_validate({"kind": "LLMInferenceService", "name": "qwen"})
INSIDE, OUTSIDE = "http://gw.ingress.svc.cluster.local/team/qwen", "https://llm.example.com/team/qwen"


def llm_service(**status: Any) -> Object:
    return {
        "metadata": {"name": "qwen", "namespace": "team", "generation": 3},
        "spec": {"model": {"uri": "hf://Qwen/Qwen3-8B", "name": "qwen3"}},
        "status": {
            "observedGeneration": 3,
            "conditions": true("Ready"),
            "url": OUTSIDE,
            "addresses": [{"url": OUTSIDE}, {"url": INSIDE}],
            **status,
        },
    }


@pytest.mark.parametrize(
    ("status", "url"),
    [
        ({}, f"{INSIDE}/v1"),
        ({"addresses": [{"url": OUTSIDE}]}, f"{OUTSIDE}/v1"),
        ({"addresses": []}, f"{OUTSIDE}/v1"),
        # Its certificate is KServe's own.
        ({"addresses": [{"url": INSIDE.replace("http:", "https:")}, {"url": OUTSIDE}]}, f"{OUTSIDE}/v1"),
        ({"url": None, "addresses": [{"url": "http://10.0.0.7/team/qwen/"}]}, "http://10.0.0.7/team/qwen/v1"),
        (
            {"addresses": [{"url": INSIDE, "models": [{"name": "publishers/team/qwen"}]}, {"url": OUTSIDE}]},
            f"{OUTSIDE}/v1",
        ),
        ({"addresses": [{"url": INSIDE, "models": [{"name": "qwen3"}]}]}, f"{INSIDE}/v1"),
    ],
)
def test_a_ready_kserve_service_is_asked_where_its_status_says(status: Object, url: str) -> None:
    assert kserve_service(KSERVE, llm_service(**status)) == ServiceSeen(url, "qwen3")


def test_its_model_is_the_stated_one_or_its_own_or_its_name() -> None:
    stated = KSERVE.model_copy(update={"model": "adapter"})
    unnamed = llm_service()
    del unnamed["spec"]["model"]["name"]
    assert kserve_service(stated, llm_service()).model == "adapter"
    assert kserve_service(KSERVE, unnamed).model == "qwen"


FALSE = {"type": "Ready", "status": "False", "reason": "HTTPRoutesNotReady", "message": "no\nparent"}


@pytest.mark.parametrize(
    ("raw", "lack"),
    [
        (None, "it is not there, or its kind is not installed"),
        (llm_service(conditions=[FALSE]), "Ready is False (HTTPRoutesNotReady: no parent)"),
        (llm_service(conditions=[]), "Ready is not known yet"),
        (llm_service(observedGeneration=2), "KServe has not looked at its last change yet"),
        (llm_service(addresses=[], url=None), "its status names no address"),
        ({**llm_service(), "status": None}, "Ready is not known yet"),
    ],
)
def test_one_that_is_not_ready_says_what_it_lacks(raw: Object | None, lack: str) -> None:
    assert kserve_service(KSERVE, raw) == ServiceSeen(waits_for=f"LLMInferenceService qwen: {lack}")


# -- a Gateway API pool --------------------------------------------------------------------------------

POOL = ServiceRef.model_validate({"kind": "InferencePool", "name": "llama", "model": "meta/llama"})
BACKEND = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "llama"}
PARENT = {
    "parentRef": {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "name": "gw",
        "namespace": "infra",
    },
    "controllerName": "example.com/gateway",
    "conditions": true("Accepted", "ResolvedRefs"),
}
ROUTE: Object = {
    "metadata": {"name": "llama", "namespace": "team"},
    "spec": {"rules": [{"backendRefs": [BACKEND]}]},
    "status": {"parents": [PARENT]},
}
GATEWAY: Object = {
    "metadata": {"name": "gw", "namespace": "infra"},
    "spec": {
        "listeners": [
            {"name": "tcp", "protocol": "TCP", "port": 9000},
            {"name": "web", "protocol": "HTTP", "port": 80},
            {"name": "tls", "protocol": "HTTPS", "port": 8443, "hostname": "llm.example.com"},
        ]
    },
    "status": {"conditions": true("Programmed"), "addresses": [{"type": "IPAddress", "value": "10.0.0.9"}]},
}
RAW: Object = {"metadata": {"name": "llama", "namespace": "team"}, "spec": {}}


def changed(what: Object, path: str, value: Any) -> Object:
    copied = deepcopy(what)
    *parents, last = path.split(".")
    node: Any = copied
    for name in parents:
        node = node[int(name)] if isinstance(node, list) else node[name]
    node[int(last) if isinstance(node, list) else last] = value
    return copied


def pool(*routes: Object, gateway: Object | None = GATEWAY, raw: Object | None = RAW) -> ServiceSeen:
    leading = routes_to(POOL, routes)
    return pool_service(POOL, raw, leading, dict.fromkeys(gateways_of(leading), gateway))


RULE = "spec.rules.0"
PREFIX = [{"path": {"type": "PathPrefix", "value": "/llama"}}]
V1 = [{"path": {"type": "PathPrefix", "value": "/v1/chat/completions"}}]
EXACT = [{"path": {"type": "Exact", "value": "/x"}}]


@pytest.mark.parametrize(
    ("route", "gateway", "url"),
    [
        (ROUTE, GATEWAY, "http://10.0.0.9/v1"),
        (changed(ROUTE, f"{RULE}.matches", PREFIX), GATEWAY, "http://10.0.0.9/llama/v1"),
        (changed(ROUTE, f"{RULE}.matches", V1), GATEWAY, "http://10.0.0.9/v1"),
        (changed(ROUTE, f"{RULE}.matches", EXACT + PREFIX), GATEWAY, "http://10.0.0.9/llama/v1"),
        (
            changed(ROUTE, "spec.hostnames", ["*.example.com", "l.example.com"]),
            GATEWAY,
            "http://l.example.com/v1",
        ),
        (
            changed(ROUTE, "status.parents.0.parentRef.sectionName", "tls"),
            GATEWAY,
            "https://llm.example.com:8443/v1",
        ),
        (
            changed(ROUTE, "status.parents.0.parentRef.port", 8443),
            GATEWAY,
            "https://llm.example.com:8443/v1",
        ),
        (ROUTE, changed(GATEWAY, "status.addresses.0.value", "fd00::9"), "http://[fd00::9]/v1"),
    ],
)
def test_a_pool_is_asked_through_its_route_and_gateway(route: Object, gateway: Object, url: str) -> None:
    assert pool(route, gateway=gateway) == ServiceSeen(url, "meta/llama")


def test_routes_of_other_pools_and_parents_without_an_address_do_not_count() -> None:
    other = changed(ROUTE, f"{RULE}.backendRefs.0.name", "mistral")
    service = changed(ROUTE, f"{RULE}.backendRefs.0", {"name": "llama", "port": 80})
    elsewhere = changed(ROUTE, f"{RULE}.backendRefs.0.namespace", "other")
    mesh = changed(ROUTE, "status.parents", [{"parentRef": {"kind": "Service", "name": "s"}}, PARENT])
    refused = changed(changed(ROUTE, "status.parents.0.conditions", []), "metadata.name", "a")
    assert routes_to(POOL, [other, service, elsewhere]) == []
    assert pool(mesh, refused).url == "http://10.0.0.9/v1"


@pytest.mark.parametrize(
    ("got", "lack"),
    [
        (pool(ROUTE, raw=None), "it is not there, or its kind is not installed"),
        (pool(), "no HTTPRoute of its namespace leads to it"),
        (pool(changed(ROUTE, "status", {})), "HTTPRoute llama: no Gateway has taken it yet"),
        (
            pool(changed(ROUTE, "status.parents.0.conditions", [])),
            "HTTPRoute llama: Accepted is not known yet",
        ),
        (pool(ROUTE, gateway=None), "HTTPRoute llama: its Gateway infra/gw is not there"),
        (
            pool(ROUTE, gateway=changed(GATEWAY, "status.conditions", [])),
            "HTTPRoute llama: Gateway infra/gw: Programmed is not known yet",
        ),
        (
            pool(ROUTE, gateway=changed(GATEWAY, "status.addresses", [])),
            "HTTPRoute llama: Gateway infra/gw has no address with a listener for HTTP",
        ),
        (
            pool(changed(ROUTE, f"{RULE}.matches", EXACT)),
            "HTTPRoute llama: no rule that leads to the pool begins with a path (PathPrefix)",
        ),
    ],
)
def test_a_pool_that_cannot_be_asked_says_what_it_lacks(got: ServiceSeen, lack: str) -> None:
    assert got == ServiceSeen(waits_for=f"InferencePool llama: {lack}")


# -- the run -------------------------------------------------------------------------------------------

REF = {"name": "main", "ref": {"kind": "LLMInferenceService", "name": "qwen"}}
MAIN, OWN = {"engineRef": {"name": "main"}}, {"engineRef": {"name": "own"}}
ABOUT = {"engines": [REF], "models": {"task": MAIN, "proposer": MAIN}}
MIXED = {
    "engines": [REF, {"name": "own", "vllm": {"model": "m", "gpusPerReplica": 2}}],
    "models": {"task": MAIN, "proposer": OWN},
}
READY, ABSENT = ServiceSeen("http://a/v1", "qwen3"), ServiceSeen(waits_for="LLMInferenceService qwen: no")
SERVED = {"main": Served("http://a/v1", "qwen3")}


def decided(
    service: ServiceSeen, *jobs: JobSeen, about: Object = ABOUT, known: Memory | None = None, **facts: Any
) -> ClusterPlan:
    known = known or memory()
    facts = {"services": {"main": service}, "plans": {0: plan()}, **facts}
    return decide_cluster(run_of(**about), known, seen(*jobs, **facts))


def engines_ready(about: Object, got: ClusterPlan, facts: Seen) -> tuple[str, str, str]:
    end = standing(got.memory, got, facts)
    written = conditions(run_of(**about).spec, got.memory, got, facts, end)
    one = next(condition for condition in written if condition.type.value == "EnginesReady")
    return one.status, one.reason.value, one.message


@pytest.mark.parametrize("about", [ABOUT, {**ABOUT, "queue": {"name": "team-a"}}])
def test_nothing_starts_before_the_server_is_ready_and_the_run_says_so(about: Object) -> None:
    got = decided(ABSENT, about=about)
    assert (got.jobs, got.engines, got.wake_after_seconds) == ((), {}, 5.0)
    assert got.waiting == "engine main waits for LLMInferenceService qwen: no"
    facts = seen(services={"main": ABSENT})
    assert engines_ready(about, got, facts) == ("False", "NotReady", got.waiting)
    assert standing(got.memory, got, facts).message == got.waiting


def test_it_starts_with_a_ready_one_and_holds_no_gpus() -> None:
    got = decided(READY)
    assert [wish.step.kind for wish in got.jobs] == ["profile"]
    assert (got.engines, got.memory.engines_since, got.memory.services) == ({}, {}, SERVED)
    facts = seen(services={"main": READY})
    assert engines_ready(ABOUT, got, facts) == ("True", "Serving", "servers ready: main at a")


def test_the_model_stays_that_of_the_first_time_and_the_address_moves() -> None:
    moved = decided(ServiceSeen("http://b/v1", "other"), known=memory(services=SERVED)).memory
    assert moved.services == {"main": Served("http://b/v1", "qwen3")}
    assert Memory.from_status(moved.to_status()) == moved


def test_while_it_is_away_jobs_go_on_and_later_ones_wait() -> None:
    known = memory(LEARNING, services=SERVED)
    working = decided(ABSENT, placed("map"), known=known)
    assert [wish.step.kind for wish in working.jobs] == ["map", "reduce"]
    assert working.memory.services == SERVED
    assert decided(ABSENT, known=known).jobs == ()


def test_own_engines_wait_for_the_others_server_before_they_hold_gpus() -> None:
    assert decided(ABSENT, about=MIXED).engines == {}
    up = decided(READY, about=MIXED)
    assert [*up.engines] == ["own"] and up.jobs == ()
    held = {"own": EngineSeen("own", 1, 1)}
    working = decided(ABSENT, placed("profile"), about=MIXED, known=up.memory, engines=held)
    assert working.engines["own"].replicas == 1


def test_a_run_that_is_suspended_or_over_asks_for_nothing() -> None:
    got = decided(READY, job("map"), known=memory(LEARNING, services=SERVED), suspend=True)
    assert (got.engines, got.jobs) == ({}, ())
    ended = replace(memory(services=SERVED), ended=NOW)
    assert decide_cluster(run_of(**ABOUT), ended, seen()).engines == {}


def test_the_digest_of_the_engine_is_the_same_before_and_after_its_model_is_known() -> None:
    spec = run_of(**ABOUT).spec
    known = spec.engines[0].model_copy(update={"ref": KSERVE.model_copy(update={"model": "qwen3"})})
    assert engine_digest(spec.model_copy(update={"engines": (known,)})) == engine_digest(spec)
    other = spec.engines[0].model_copy(update={"ref": KSERVE.model_copy(update={"name": "mistral"})})
    assert engine_digest(spec.model_copy(update={"engines": (other,)})) != engine_digest(spec)
