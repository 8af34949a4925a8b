"""Rules that hold for every object of every run."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from manifests_makers import FULL, OWNER, PLAIN, SETTINGS, TEMPLATE, objects_of, pod_of, run_of, step_of
from pod_security import violations

from combee import names
from combee.api.run import PromptLearningRun
from combee.names import engine_name, prefetch_name, step_name
from combee.objects.jobs import step_job
from combee.objects.plans import run_config
from combee.records import Owner

SEES = {
    # kind of step: splits and roles whose secrets and data its pods may have (the contract's table)
    "profile": {
        "store",
        "train",
        "heldOut",
        "test",
        "initialPlaybook",
        "role-task",
        "role-embedder",
    },
    "diagnose": {"store", "train", "heldOut", "role-task", "role-proposer"},
    "map": {"store", "train", "role-task", "role-proposer"},
    "reduce": {"store", "role-proposer", "role-embedder"},
    "finish": {"store", "train", "heldOut", "role-task"},
    "evaluate": {"store", "heldOut", "test", "role-task"},
    "publish": {"store"},
}

REACH_FROM = {"name": "COMBEE_REACH_FROM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}

label = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?", fullmatch=True)
key = st.sampled_from(["team", "acme.example.com/cost", "app.kubernetes.io/part-of", "topology"])
value = st.sampled_from(["", "a", "b-1.2_3"])
text = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=20)


def _maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


templates = _maybe(
    metadata=_maybe(
        labels=st.dictionaries(key, value, max_size=3),
        annotations=st.dictionaries(
            st.sampled_from(["note", "prometheus.io/port", "karpenter.sh/do-not-disrupt"]), text, max_size=3
        ),
    ),
    spec=_maybe(
        nodeSelector=st.dictionaries(key, value, max_size=2),
        tolerations=st.lists(
            _maybe(
                key=st.sampled_from(["gpu", "node.kubernetes.io/unreachable"]),
                operator=st.just("Exists"),
                effect=st.sampled_from(["NoSchedule", "NoExecute"]),
            ),
            max_size=2,
        ),
        affinity=st.just(TEMPLATE["spec"]["affinity"]),
        topologySpreadConstraints=st.just(TEMPLATE["spec"]["topologySpreadConstraints"]),
        priorityClassName=label,
        runtimeClassName=label,
        schedulerName=label,
        serviceAccountName=label,
        imagePullSecrets=st.lists(st.fixed_dictionaries({"name": label}), max_size=2),
        env=st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["NCCL_DEBUG", "HTTP_PROXY", "VLLM_LOGGING_LEVEL"]), "value": text}
            ),
            max_size=3,
            unique_by=lambda variable: variable["name"],
        ),
        resources=_maybe(
            requests=st.just({"cpu": "1", "memory": "1Gi"}), limits=st.just({"ephemeral-storage": "5Gi"})
        ),
    ),
)
claims = st.sampled_from(["combee-store", "data", "more"])
splits = st.one_of(
    st.builds(lambda c: {"pvc": {"claimName": c, "path": "a/rows.jsonl"}}, claims),
    st.just({"configMap": {"name": "rows", "key": "rows.jsonl"}}),
    st.builds(
        lambda s: {"uri": "s3://bucket/rows.jsonl", "secretRef": {"name": s}},
        st.sampled_from(["one", "two"]),
    ),
)
stores = st.one_of(
    st.builds(lambda c: {"pvc": {"claimName": c}}, claims),
    st.just({"uri": "s3://combee/runs", "secretRef": {"name": "s3"}}),
)
engines = st.builds(
    lambda name, gpus, replicas, cache, template, args, revision: {
        "name": name,
        "template": template,
        "vllm": {
            "model": "example/model",
            "gpusPerReplica": gpus,
            "replicas": replicas,
            "args": args,
            **({"modelCache": {"claimName": "models", **cache}} if cache is not None else {}),
            **({"revision": "main"} if revision else {}),
        },
    },
    label,
    st.integers(0, 8),
    st.integers(1, 3),
    st.sampled_from(
        [
            None,
            {},
            {"source": {"image": {"reference": "combee/sim:1", "path": "weights"}}},
            {"source": {"pvc": {"claimName": "shared", "path": "weights"}}},
            {"source": {"pvc": {"claimName": "models", "path": "by-hand"}}},
        ]
    ),
    templates,
    st.lists(st.sampled_from(["--max-model-len=1", "-tp=2", "--x=$(HOME)"]), max_size=2),
    st.booleans(),
)
roles = st.one_of(
    st.just({"engineRef": {"name": "?"}}),
    st.builds(
        lambda k: {
            "endpoint": {
                "url": "https://llm.example.com/v1",
                "model": "m",
                **({"apiKeySecretRef": {"name": "keys", "key": "token"}} if k else {}),
            }
        },
        st.booleans(),
    ),
)


@st.composite
def runs(draw: st.DrawFn) -> PromptLearningRun:
    """A run with any sources, models and templates that the API accepts."""
    made = draw(st.lists(engines, min_size=1, max_size=3, unique_by=lambda engine: engine["name"]))
    models = {}
    for role in ("task", "proposer", *(["embedder"] if draw(st.booleans()) else [])):
        model = copy.deepcopy(draw(roles))
        if "engineRef" in model:
            model["engineRef"]["name"] = draw(st.sampled_from([engine["name"] for engine in made]))
        models[role] = model
    spec: dict[str, Any] = {**PLAIN, "engines": made, "models": models, "store": draw(stores)}
    if "embedder" in models and draw(st.booleans()):
        spec["aggregation"] = {"strategy": "TopK"}
    data = {"train": draw(splits), "heldOut": draw(splits)}
    if draw(st.booleans()):
        data["test"] = draw(splits)
    spec["task"] = {"type": "Formula", "data": data}
    if draw(st.booleans()):
        spec["task"]["initialPlaybook"] = {"configMap": {"name": "start", "key": "prompt.md"}}
    if draw(st.booleans()):
        spec["queue"] = {"name": draw(label)}
    if draw(st.booleans()):
        spec["workers"] = {"template": draw(templates)}
    return run_of(spec, draw(label))


def _owner(run: PromptLearningRun) -> Owner:
    return Owner(run.name, "team-a", OWNER.uid)


@given(runs(), st.sampled_from([1, 4, 1000]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_allowed_override_weakens_a_pod(run: PromptLearningRun, shards: int) -> None:
    for what, made in objects_of(run, _owner(run), shards=shards):
        if (pod := pod_of(made)) is None:
            continue
        spec = pod["spec"]
        assert violations(pod) == [], what
        assert spec["automountServiceAccountToken"] is (what == "step-publish")
        assert spec["enableServiceLinks"] is False
        if what == "step-publish":
            assert spec["serviceAccountName"] == SETTINGS.publish_account
        assert {"runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001}.items() <= spec[
            "securityContext"
        ].items()
        assert len(spec["containers"]) == 1
        before = spec.get("initContainers", [])
        assert [one["name"] for one in before] == (["shell"] if _from_an_image(what, run) else [])
        assert {"name": "tmp", "mountPath": "/tmp"} in spec["containers"][0]["volumeMounts"]
        for container in [*before, *spec["containers"]]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["terminationMessagePolicy"] == "File"
            assert container["resources"].get("requests") or container["resources"].get("limits")
            for field in ("lifecycle", "envFrom", "stdin", "volumeDevices"):
                assert field not in container
            for variable in container["env"]:
                assert set(variable) == {"name", "value"} or variable == REACH_FROM


def test_a_step_is_told_which_hosts_its_clients_may_ask() -> None:
    """Those that the chart allows, and Services of other namespaces by which others' model servers answer."""
    run = run_of(PLAIN)
    allowing = replace(SETTINGS, allowed_hosts=("prometheus.monitoring.svc", "[fd00::7]"))
    servers = {"a": "http://gw.ingress.svc.cluster.local/team/v1", "b": "http://svc.example.com/v1"}
    job = step_job(run, OWNER, step_of("map"), 0, allowing, servers)
    environment = job["spec"]["template"]["spec"]["containers"][0]["env"]
    assert environment[-2:] == [
        REACH_FROM,
        {
            "name": "COMBEE_ALLOWED_HOSTS",
            "value": "prometheus.monitoring.svc,[fd00::7],gw.ingress.svc.cluster.local",
        },
    ]


def _from_an_image(what: str, run: PromptLearningRun) -> bool:
    """Whether an object is the Job that copies weights from an image."""
    sources = {f"engine-{e.name}-prefetch": e.vllm.weights_source for e in run.spec.engines}
    source = sources.get(what)
    return source is not None and source.image is not None


@given(runs(), st.sampled_from([1, 4, 1000]))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_names_owner_and_labels_of_every_object(run: PromptLearningRun, shards: int) -> None:
    owner = _owner(run)
    seen = set()
    for what, made in objects_of(run, owner, shards=shards):
        meta = made["metadata"]
        index = f"-{shards - 1}" if what.startswith("step-") else ""
        assert len(meta["name"] + index) <= 63
        shape = r"[a-z][-a-z0-9]*[a-z0-9]" if made["kind"] == "Service" else r"[a-z0-9][-a-z0-9]*[a-z0-9]"
        assert re.fullmatch(shape, meta["name"])
        assert (made["kind"], meta["name"]) not in seen
        seen.add((made["kind"], meta["name"]))
        assert meta["namespace"] == owner.namespace
        assert meta["ownerReferences"] == [
            {
                "apiVersion": "combee.dev/v1alpha1",
                "kind": "PromptLearningRun",
                "name": run.name,
                "uid": owner.uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ]
        for labels in (meta["labels"], (pod_of(made) or made)["metadata"]["labels"]):
            assert labels["app.kubernetes.io/name"] == "combee"
            assert labels["app.kubernetes.io/managed-by"] == "combee-operator"
            assert labels["combee.dev/run"] == run.name
            assert labels["combee.dev/run-uid"] == owner.uid
            assert all(len(value) <= 63 for value in labels.values())
            if what.startswith("step-"):
                assert labels["app.kubernetes.io/component"] == what.removeprefix("step-")
                assert labels["combee.dev/iteration"] == "3" and labels["combee.dev/attempt"] == "0"


@given(runs())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_pod_mounts_what_its_step_needs_and_nothing_else(run: PromptLearningRun) -> None:
    for what, made in objects_of(run, _owner(run)):
        if (pod := pod_of(made)) is None:
            continue
        spec, mounts = pod["spec"], pod["spec"]["containers"][0]["volumeMounts"]
        kinds = {v["name"]: next(k for k in v if k != "name") for v in spec["volumes"]}
        assert len(kinds) == len(spec["volumes"])
        assert {m["name"] for m in mounts} == set(kinds), "every volume is mounted, every mount has one"
        assert len({m["mountPath"] for m in mounts}) == len(mounts)
        bound = [
            v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"] if "persistentVolumeClaim" in v
        ]
        assert len(bound) == len(set(bound)), "a claim is declared once"
        writable = {m["mountPath"] for m in mounts if not m.get("readOnly")}
        if not what.startswith("step-"):
            assert "secret" not in kinds.values()
            extra = {"/models"} if what.endswith("prefetch") else {"/dev/shm"}
            assert writable - {"/models"} <= {"/tmp"} | extra
            assert ("/models" in writable) == what.endswith("prefetch")
            continue
        kind = what.removeprefix("step-")
        seen = {
            m["mountPath"].rsplit("/", 1)[1]
            for m in mounts
            if m["mountPath"].startswith("/etc/combee/secrets/")
        }
        seen |= {m["mountPath"].rsplit("/", 1)[1] for m in mounts if m["mountPath"].startswith("/data/")}
        assert seen <= SEES[kind]
        assert "role-embedder" not in seen or run.spec.aggregation.strategy == "TopK"
        assert writable <= ({"/tmp"} if kind == "publish" else {"/tmp", "/store"})
        assert ("/etc/combee/plan" in {m["mountPath"] for m in mounts}) == (
            kind in ("map", "reduce", "finish")
        )


@given(runs())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_objects_are_json_made_alike_each_time_and_leave_the_run_as_it_was(run: PromptLearningRun) -> None:
    before = run.model_dump()
    first = json.dumps(dict(objects_of(run, _owner(run))))
    made = dict(objects_of(run, _owner(run)))
    assert json.dumps(made) == first
    for one in made.values():
        _spoil(one)
    assert run.model_dump() == before
    assert json.dumps(dict(objects_of(run, _owner(run)))) == first, "objects share nothing with each other"


def _spoil(value: Any) -> None:
    if isinstance(value, dict):
        for inner in value.values():
            _spoil(inner)
        value["spoilt"] = True
    elif isinstance(value, list):
        for inner in value:
            _spoil(inner)
        value.append("spoilt")


@pytest.mark.parametrize("kind", SEES)
def test_the_full_run_gives_each_step_exactly_its_share(kind: str) -> None:
    spec = step_job(run_of(FULL), OWNER, step_of(kind), 0, SETTINGS)["spec"]["template"]["spec"]
    given = {
        v["name"].removeprefix("secret-"): v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v
    }
    there = {
        "store": "s3-store",
        "train": "s3-train",
        "heldout": "s3-heldout",
        "test": "s3-test",
        "role-task": "task-key",
    }
    assert given == {use: name for use, name in there.items() if use in {s.lower() for s in SEES[kind]}}


def test_a_new_attempt_has_a_new_name_and_does_the_same_step() -> None:
    first, later = (step_job(run_of(PLAIN), OWNER, step_of("map"), n, SETTINGS) for n in (0, 2))
    assert later["metadata"]["name"] == "formula-ace-3fa9c1d2-i003-map-a2"
    assert later["metadata"]["labels"][names.LABEL_ATTEMPT] == "2"
    worker = later["spec"]["template"]["spec"]["containers"][0]
    assert worker == first["spec"]["template"]["spec"]["containers"][0]
    step = json.loads(next(e["value"] for e in worker["env"] if e["name"] == "COMBEE_STEP"))
    assert step["name"] == "formula-ace-3fa9c1d2-i003-map-a0"
    assert set(step) == {"name", "kind", "iteration", "seed", "shards", "inputs", "params"}


def test_a_job_retries_each_index_and_replaces_what_is_being_deleted() -> None:
    spec = step_job(run_of(PLAIN), OWNER, step_of("map"), 0, SETTINGS)["spec"]
    assert {k: v for k, v in spec.items() if k != "template"} == {
        "completionMode": "Indexed",
        "completions": 4,
        "parallelism": 4,
        "backoffLimitPerIndex": 6,
        "maxFailedIndexes": 4,
        "podReplacementPolicy": "TerminatingOrFailed",
        "activeDeadlineSeconds": 21600,
    }


def test_only_engines_that_a_step_calls_are_named_to_it() -> None:
    models = {"task": {"engineRef": {"name": "main"}}, "proposer": {"engineRef": {"name": "small"}}}
    run = run_of({**FULL, "models": models})

    def named(kind: str) -> dict[str, str]:
        env = step_job(run, OWNER, step_of(kind), 0, SETTINGS)["spec"]["template"]["spec"]["containers"][0][
            "env"
        ]
        found: dict[str, str] = json.loads(next(e["value"] for e in env if e["name"] == "COMBEE_ENGINES"))
        return found

    small = "http://formula-ace-3fa9c1d2-e1-small.team-a.svc:8000/v1"
    assert named("reduce") == {"small": small}
    assert set(named("map")) == {"main", "small"}
    assert set(named("finish")) == {"main"}
    assert named("publish") == {}


def test_a_run_and_its_plan_are_shown_as_they_were_when_it_began() -> None:
    awake, asleep = (run_config(run_of({**PLAIN, "suspend": s}), OWNER) for s in (False, True))
    assert awake == asleep and awake["immutable"] is True
    shown = json.loads(awake["data"]["run.json"])
    assert PromptLearningRun.model_validate(shown).spec == run_of(PLAIN).spec
    assert shown["metadata"] == {"name": OWNER.name, "namespace": OWNER.namespace, "uid": OWNER.uid}


def test_values_reach_a_container_as_they_are_written() -> None:
    spec = copy.deepcopy(PLAIN)
    spec["store"] = {"uri": "s3://combee/$(HOME)"}
    worker = step_job(run_of(spec), OWNER, step_of("map"), 0, SETTINGS)["spec"]["template"]["spec"][
        "containers"
    ][0]
    assert {"name": "COMBEE_STORE", "value": "s3://combee/$$(HOME)"} in worker["env"]


@given(label, st.integers(0, 15), label)
def test_names_of_engines_fit_and_begin_with_a_letter(run: str, index: int, engine: str) -> None:
    for name in (engine_name(run, OWNER.uid, index, engine), prefetch_name(run, OWNER.uid, index)):
        assert len(name) <= 63 and name[0].isalpha() and name[-1].isalnum()


def test_step_names_fit_with_their_index() -> None:
    assert len(step_name("a" * 63, OWNER.uid, 999, "evaluate", 10) + "-99999") <= 63


WEAK: dict[str, dict[str, Any]] = {
    "hostNetwork": {"hostNetwork": True},
    "hostPID": {"hostPID": True},
    "hostPath": {"volumes": [{"name": "x", "hostPath": {"path": "/"}}]},
    "nfs": {"volumes": [{"name": "x", "nfs": {"server": "a", "path": "/"}}]},
    "root": {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    },
    "no seccomp": {"securityContext": {"runAsNonRoot": True}},
    "unconfined": {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "Unconfined"}}},
    "may be root": {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
    "sysctl": {
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            "sysctls": [{"name": "kernel.msgmax", "value": "1"}],
        }
    },
}
WEAK_CONTAINER: dict[str, dict[str, Any]] = {
    "privileged": {"securityContext": {"privileged": True}},
    "escalation": {"securityContext": {"capabilities": {"drop": ["ALL"]}}},
    "capabilities kept": {"securityContext": {"allowPrivilegeEscalation": False}},
    "capabilities added": {
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
        }
    },
    "host port": {"ports": [{"containerPort": 1, "hostPort": 1}]},
    "probe of a host": {"livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 1}}},
    "procMount": {
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "procMount": "Unmasked",
            "runAsNonRoot": True,
        }
    },
}


@pytest.mark.parametrize("name", [*WEAK, *WEAK_CONTAINER])
def test_the_checker_sees_a_weak_pod(name: str) -> None:
    pod = copy.deepcopy(pod_of(step_job(run_of(FULL), OWNER, step_of("finish"), 0, SETTINGS)))
    assert pod is not None and violations(pod) == []
    pod["spec"].update(WEAK.get(name, {}))
    container = pod["spec"]["containers"][0]
    container.update(WEAK_CONTAINER.get(name, {}))
    if name not in WEAK_CONTAINER:
        container["securityContext"].pop("runAsNonRoot")
    assert violations(pod)
