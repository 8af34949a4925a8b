"""The PlaybookVersion of what a run learned: it records where that comes from and how it scored. Pure."""

from __future__ import annotations

from typing import Any

from combee import names
from combee.api.gateway import LONGEST_MODEL
from combee.api.run import PromptLearningRun
from combee.objects.meta import labels_of
from combee.objects.types import Object
from combee.plan.cluster.memory import Memory
from combee.records import Owner


def version_object(run: PromptLearningRun, owner: Owner, memory: Memory) -> Object:
    """Return the version to make once the run's best playbook is published. It has no owner: it outlives the
    run and the Playbook, which finds it again when both are deleted and applied anew."""
    assert run.spec.playbook_ref is not None and memory.run.best is not None
    playbook, best = run.spec.playbook_ref.name, memory.run.best
    spec: dict[str, Any] = {
        "playbookRef": {"name": playbook},
        "digest": best.artifact,
        "runRef": {"name": owner.name, "uid": owner.uid},
        "origin": _origin(run, memory),
        "scores": _scores(memory),
        "configMapName": memory.published,
    }
    if memory.content_digests:
        spec["contentDigests"] = dict(memory.content_digests)
    if memory.start is not None and memory.start.digest:
        spec["parentDigest"] = memory.start.digest
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.PLAYBOOK_VERSION_KIND,
        "metadata": {
            "name": names.published_name(playbook, best.artifact),
            "namespace": owner.namespace,
            "labels": version_labels(playbook),
        },
        "spec": spec,
    }


def version_labels(playbook: str) -> dict[str, str]:
    """Return the labels of a Playbook's versions and of what is delivered for it."""
    return labels_of("playbook") | {names.LABEL_PLAYBOOK: names.playbook_label(playbook)}


def _origin(run: PromptLearningRun, memory: Memory) -> Object:
    state, best = memory.run, memory.run.best
    origin: dict[str, Any] = {
        "method": str(run.spec.method.type),
        "models": _models(run),
        "dataDigests": dict(state.facts.digests) if state.facts else {},
        "seed": run.spec.seed,
        "rollouts": state.spend.rollouts,
        "tokens": state.spend.tokens,
        "gpuSeconds": round(memory.gpu_seconds, 1),
    }
    stakes = run.spec.task.stakes
    named = {
        "steward": stakes.steward,
        "usedForTuning": stakes.used_for_tuning,
        "failureCost": stakes.failure_cost,
    }
    origin |= {name: value for name, value in named.items() if value}
    if run.spec.task.data.forgotten:
        origin["forgotten"] = list(run.spec.task.data.forgotten)
    if run.spec.task.rubric is not None:
        origin["rubric"] = {"criteria": list(run.spec.task.rubric.criteria)}
    if best is not None and best.iteration >= 0:
        origin["iteration"] = best.iteration
    return origin


def _models(run: PromptLearningRun) -> dict[str, str]:
    """Return the model of each role; for an engine, the model that it serves."""
    engines = {engine.name: engine.model for engine in run.spec.engines}
    named = {}
    for role, model in run.spec.roles().items():
        if model.endpoint is not None:
            named[role] = model.endpoint.model
        elif model.engine_ref is not None:
            named[role] = engines[model.engine_ref.name]
    return {role: str(name)[:LONGEST_MODEL] for role, name in named.items()}


def _scores(memory: Memory) -> Object:
    scores: dict[str, Any] = {}
    if memory.run.best is not None and memory.run.facts is not None and memory.run.facts.held_out_rows:
        scores["select"] = memory.run.best.select
    if memory.gate is not None:
        gate = memory.gate
        scores["gate"] = {
            "baseline": gate.baseline,
            "best": gate.best,
            "low": gate.low,
            "high": gate.high,
            "rows": gate.rows,
            "discordant": gate.discordant,
        }
    if memory.test is not None:
        scores["test"] = memory.test
    return scores
