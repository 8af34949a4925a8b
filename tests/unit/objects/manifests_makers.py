"""Runs to make objects of: a plain one, and one that uses every field that shows in an object."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import sample_plan
from combee.api.run import PromptLearningRun
from combee.names import step_name
from combee.objects.engines import engine_objects, engine_service, prefetch_job
from combee.objects.jobs import step_job
from combee.objects.plans import plan_config, run_config
from combee.objects.rollouts import rollout_job, rollout_service
from combee.objects.types import Settings
from combee.objects.warm_pools import sandbox_claim, warm_pool
from combee.plan.types import Clocks, Step
from combee.records import Owner
from combee.steps import KINDS

OWNER = Owner("formula-ace", "team-a", "3fa9c1d2-6d1e-4c0e-9a51-7b2f0c9d8e11")
SETTINGS = Settings(
    worker_image="combee/worker:1.2.3",
    vllm_image="vllm/vllm-openai:v0.32.0",
    engine_images=("registry.example.com/models", "combee/sim:"),
)

PLAIN: dict[str, Any] = {
    "playbookRef": {"name": "formula"},
    "task": {
        "type": "Formula",
        "data": {
            "train": {"pvc": {"claimName": "combee-store", "path": "data/train.jsonl"}},
            "heldOut": {"configMap": {"name": "formula", "key": "heldout.jsonl"}},
        },
    },
    "method": {"type": "ACE"},
    "engines": [{"name": "main", "vllm": {"model": "example/tiny", "gpusPerReplica": 0}}],
    "models": {
        "task": {"engineRef": {"name": "main"}},
        "proposer": {"engineRef": {"name": "main"}},
    },
    "seed": 7,
}

SHARED: dict[str, Any] = {**PLAIN, "engines": [{**PLAIN["engines"][0], "shared": True}]}
"""The same with an engine that other runs may use, too."""

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"prometheus.io/scrape": "true", "note": "mine"}},
    "spec": {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": {"team": "a"}},
                        },
                    }
                ]
            }
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"team": "a"}},
            }
        ],
        "serviceAccountName": "bucket-reader",
        "schedulerName": "default-scheduler",
        "imagePullSecrets": [{"name": "registry"}],
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"}],
        "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "3Gi"}},
    },
}

FULL: dict[str, Any] = {
    "playbookRef": {"name": "formula"},
    "task": {
        "type": "Formula",
        "data": {
            "train": {"uri": "s3://datasets/formula/train.jsonl", "secretRef": {"name": "s3-train"}},
            "heldOut": {"uri": "s3://datasets/formula/heldout.jsonl", "secretRef": {"name": "s3-heldout"}},
            "test": {"uri": "s3://datasets/formula/test.jsonl", "secretRef": {"name": "s3-test"}},
        },
        "initialPlaybook": {"configMap": {"name": "start", "key": "prompt.md"}},
    },
    "method": {"type": "ACE"},
    "engines": [
        {
            "name": "main",
            "vllm": {
                "model": "openai/gpt-oss-120b",
                "revision": "4f2a9c",
                "gpusPerReplica": 2,
                "replicas": 2,
                "args": ["--max-model-len=65536"],
                "modelCache": {"claimName": "models"},
            },
            "template": TEMPLATE,
        },
        {
            "name": "small",
            "vllm": {
                "model": "/models/small",
                "image": "registry.example.com/models/vllm:1",
                "modelCache": {"claimName": "models"},
            },
        },
        {
            "name": "offline",
            "vllm": {
                "model": "example/tiny",
                "revision": "2",
                "gpusPerReplica": 0,
                "replicas": 2,
                "modelCache": {
                    "claimName": "models",
                    "source": {
                        "image": {
                            "reference": "registry.example.com/models/tiny:2",
                            "path": "weights/tiny",
                        }
                    },
                },
            },
            "template": TEMPLATE,
        },
        {
            "name": "copied",
            "vllm": {
                "model": "example/tiny",
                "gpusPerReplica": 0,
                "modelCache": {
                    "claimName": "models",
                    "source": {"pvc": {"claimName": "shared", "path": "weights/tiny"}},
                },
            },
        },
    ],
    "models": {
        "task": {
            "endpoint": {
                "url": "https://llm.example.com/v1",
                "model": "hosted",
                "apiKeySecretRef": {"name": "task-key", "key": "token"},
            }
        },
        "proposer": {"engineRef": {"name": "small"}, "sampling": {"temperature": 0.7}},
    },
    "workers": {"parallelism": 4, "template": TEMPLATE},
    "queue": {"name": "team-a", "priorityClass": "learning-low"},
    "store": {"uri": "s3://combee/runs", "secretRef": {"name": "s3-store"}},
    "seed": 7,
}

CONTAINER: dict[str, Any] = {
    **PLAIN,
    "task": {
        "type": "Custom",
        "custom": {
            "container": {
                "image": "registry.example.com/team/greenhouse:1",
                "command": ["python3", "/opt/greenhouse/care.py"],
                "args": ["--price=$(5)"],
                "concurrency": 8,
                "memory": "512Mi",
                "scratch": "64Mi",
            }
        },
        "data": PLAIN["task"]["data"],
    },
    "workers": {"template": {"spec": {"tolerations": [{"key": "agents", "operator": "Exists"}]}}},
}
"""A run of a task in a container."""

PLAN = replace(
    sample_plan.PLAN,
    iteration=3,
    offset=40,
    batch_size=20,
    batch_reason="the largest that saves a share of 0.45",
    shards=4,
)


def run_of(spec: dict[str, Any], name: str = OWNER.name) -> PromptLearningRun:
    """The run, read as the operator reads it."""
    return PromptLearningRun.model_validate(
        {
            "apiVersion": "combee.dev/v1alpha1",
            "kind": "PromptLearningRun",
            "metadata": {"name": name},
            "spec": copy.deepcopy(spec),
        }
    )


def step_of(kind: str, owner: Owner = OWNER, shards: int | None = None) -> Step:
    """A step of each kind, with parameters as the plan layer gives them."""
    params: dict[str, dict[str, Any]] = {
        "reduce": {"shards": 4, "waitSeconds": 60},
        "evaluate": {"baseline": "b" * 64},
        "publish": {"playbook": "formula", "digest": "d" * 64, "name": "formula-dddddddddddd"},
    }
    name = step_name(owner.name, owner.uid, 3, kind)
    count = shards if shards is not None else 4 if kind == "map" else 1
    return Step(name=name, kind=kind, iteration=3, seed=7, shards=count, params=params.get(kind, {}))


def objects_of(
    run: PromptLearningRun, owner: Owner = OWNER, settings: Settings = SETTINGS, *, shards: int | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object that is made for a run, with a word for what it is."""
    yield "run-config", run_config(run, owner)
    yield "plan-config", plan_config(PLAN, Clocks(90.5, 181.0), owner)
    for kind in KINDS:
        yield f"step-{kind}", step_job(run, owner, step_of(kind, owner, shards), 0, settings)
    if run.spec.task.container is not None:
        yield "rollout-service", rollout_service(owner)
        yield "rollout-job", rollout_job(run, owner, 0, "10.96.7.7", settings)
        template, pool = warm_pool(run, owner, "10.96.7.7", settings)
        yield "sandbox-template", template
        yield "sandbox-warm-pool", pool
        yield "sandbox-claim", sandbox_claim(owner, 3, 1_798_761_600.0, settings)
    for index, engine in enumerate(run.spec.engines):
        service, deployment = engine_objects(run, owner, index, settings)
        if engine.shared:
            service = engine_service(run, owner, index, settings, "0b1c2d3e-deployment")
        yield f"engine-{engine.name}-service", service
        yield f"engine-{engine.name}-deployment", deployment
        if (fetch := prefetch_job(run, owner, index, settings)) is not None:
            yield f"engine-{engine.name}-prefetch", fetch


def pod_of(made: dict[str, Any]) -> dict[str, Any] | None:
    """The pod template of an object; None for one without pods."""
    template: dict[str, Any] | None = made.get("spec", {}).get("template")
    return template
