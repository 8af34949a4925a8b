"""Whether a run's plan is good on this cluster. Pure: the object and the operator's policy in, a run out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from combee.api.cluster import check_cluster
from combee.api.conditions import Reason
from combee.api.discipline import refusal
from combee.api.load import parse_run
from combee.api.run import Discipline, PromptLearningRun, RunSpec
from combee.errors import CombeeError, ManifestError
from combee.plan.cluster.hardware import EngineGpus, with_hardware
from combee.plan.cluster.memory import Memory
from combee.plan.playbook.changed import Looks, unexplained


@dataclass(frozen=True, slots=True)
class Policy:
    """What the administrator allows."""

    allow_custom_tasks: bool
    secret_policy: bool
    """whether the admission policy that guards Secrets is installed."""
    discipline: Discipline
    """that of runs that name none."""


class RefusedError(CombeeError):
    """The plan is not accepted; ``reason`` is that of the condition."""

    code = "Refused"

    def __init__(self, reason: Reason, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what, where=where, fix=fix)
        self.reason = reason


def accept(raw: Mapping[str, Any], policy: Policy, *, over: bool = False) -> PromptLearningRun:
    """Return the run of an object. Raises RefusedError, which says what is wrong and what to do.

    What a run must state is asked by ``question``. Of a run that is ``over`` nothing is asked but that it can
    be read: it only gives back what it holds.
    """
    body = {key: raw[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in raw}
    try:
        run = parse_run(body, "")
        if over:
            return run
        for problem in check_cluster(run):
            raise problem
    except ManifestError as error:
        raise RefusedError(Reason.INVALID_MANIFEST, error.what, where=error.where, fix=error.fix) from None
    if run.spec.task.type == "Custom" and not policy.allow_custom_tasks:
        raise RefusedError(
            Reason.PODS_NOT_ALLOWED,
            "custom tasks are not allowed on this cluster",
            where="spec.task.type",
            fix="Ask its administrator for allowCustomTasks, or use a task of the registry",
        )
    if not policy.secret_policy and (named := secrets_of(run.spec)):
        raise RefusedError(
            Reason.SECRET_NOT_ALLOWED,
            f"Secret {named[0]} is named, and nothing here checks who may use it",
            where="spec",
            fix="An administrator must install the chart's admission policy, or remove the reference to it",
        )
    return run


def asks_for_reasons(memory: Memory, spec: RunSpec, policy: Policy) -> bool:
    """Return whether a run has to wait where heldOut was changed and nobody says why: until it learns."""
    strict = (spec.discipline or policy.discipline) == "Strict"
    return strict and spec.playbook_ref is not None and not memory.run.iteration and not memory.ended


def question(
    spec: RunSpec, policy: Policy, nodes: EngineGpus, *, started: bool, looks: Looks | None = None
) -> None:
    """Raise RefusedError for a run that does not state what it must. ``nodes``: what they say of its engines;
    ``looks``: what its Playbook knows of heldOuts, None where that is not asked.

    It is asked before a run starts: neither an upgrade nor another value of the chart stops one at work.
    """
    refused = refusal(with_hardware(spec, nodes), policy.discipline, unknown=nodes.unknown)
    if refused is not None and not started:
        reason, lacks = refused
        raise RefusedError(reason, lacks.what, where=lacks.where, fix=lacks.fix)
    if looks is not None and not started and (why := unexplained(looks, "")):
        raise RefusedError(Reason.CHANGE_UNEXPLAINED, why)


def secrets_of(spec: RunSpec) -> list[str]:
    """Return the names of all Secrets that a run's pods would mount or be pulled with, sorted."""
    data = spec.task.data
    splits = [split for split in (data.train, data.held_out, data.test) if split is not None]
    refs = [*(split.secret_ref for split in splits), spec.store.secret_ref]
    named = {ref.name for ref in refs if ref is not None}
    for model in spec.roles().values():
        if model.endpoint is not None and model.endpoint.api_key_secret_ref is not None:
            named.add(model.endpoint.api_key_secret_ref.name)
    for template in (spec.workers.template, *(engine.template for engine in spec.engines)):
        if template is not None:
            named |= {ref.name for ref in template.spec.image_pull_secrets}
    return sorted(named)
