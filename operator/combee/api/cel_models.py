"""CEL rules of models: which fields go together. Each mirrors a validator of the model."""

from __future__ import annotations

from itertools import product

from combee.api import common, parts
from combee.api.cel import CLUSTER, Rule
from combee.api.common import Model
from combee.api.fields import fields_of
from combee.api.parts import (
    CustomTask,
    DataSource,
    InitialPlaybook,
    Method,
    PodTemplateMeta,
    RoleModel,
    Task,
    Vllm,
)
from combee.api.playbook import Canary, Learn, RunTemplate
from combee.api.run import Batching, Budget, PromptLearningRun, RunSpec, SerialBaseline, Store

_FLAGS = [
    f"--{''.join(spelled)}"
    for flag in parts.SET_BY_US
    for spelled in product(*("-_" if letter == "-" else letter for letter in flag.removeprefix("--")))
]
"""vLLM reads an underscore as a hyphen anywhere in a flag's name."""


def _union(model: type[Model]) -> Rule:
    """Of the fields that ``exactly_one`` names, one must be given."""
    by_attribute = dict(zip(model.model_fields, fields_of(model), strict=True))
    names = [by_attribute[attribute] for attribute in model.exactly_one]
    given = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in names)
    return Rule(
        model, f"{given} == 1", f"give exactly one of {', '.join(names)}", "common.Model._exactly_one"
    )


def _secret(model: type[Model], mirrors: str) -> Rule:
    message = "secretRef is given without uri: remove it, only a uri needs credentials"
    return Rule(model, "!has(self.secretRef) || has(self.uri)", message, mirrors, ".secretRef")


def _options(kind: str) -> Rule:
    field = kind.lower()
    message = f"{field} goes with type {kind} only: remove it, or set type: {kind}"
    cel = f"self.type == '{kind}' || !has(self.{field})"
    return Rule(Method, cel, message, "parts.Method._options_go_with_type", f".{field}")


def _not_ours(field: str) -> Rule:
    message = f"{common.OUR_PREFIX} is the operator's to set: use a prefix of your own"
    cel = f"!has(self.{field}) || !self.{field}.exists(key, key.startsWith('{common.OUR_PREFIX}'))"
    return Rule(PodTemplateMeta, cel, message, "parts.PodTemplateMeta._not_ours", f".{field}")


def _primary(limit: str) -> Rule:
    message = f"primary {limit} has no limit: add {limit}, or change primary"
    cel = f"self.primary != '{limit}' || has(self.{limit})"
    return Rule(Budget, cel, message, "run.Budget._primary_is_limited", ".primary")


def _engine_ref(role: str, *, optional: bool) -> Rule:
    model = f"self.models.{role}"
    absent = f"!has({model}) || !has({model}.engineRef)" if optional else f"!has({model}.engineRef)"
    named = f"has(self.engines) && self.engines.exists(engine, engine.name == {model}.engineRef.name)"
    message = f"models.{role}.engineRef names an engine that is not under engines"
    return Rule(
        RunSpec,
        f"{absent} || ({named})",
        message,
        "run.RunSpec._engine_refs_hold",
        f".models.{role}.engineRef",
    )


RULES: tuple[Rule, ...] = (
    *(_union(model) for model in (DataSource, CustomTask, InitialPlaybook, RoleModel, Store)),
    _secret(DataSource, "parts.DataSource._secret_goes_with_uri"),
    _secret(Store, "run.Store._secret_goes_with_uri"),
    Rule(
        Task,
        "self.type != 'Custom' || has(self.custom)",
        'type Custom without custom: add custom: {class: "module:Class"} or custom: {container: ...}',
        "parts.Task._custom_goes_with_type",
        ".custom",
    ),
    Rule(
        Task,
        "self.type == 'Custom' || !has(self.custom)",
        "custom goes with type Custom only: remove custom, or set type: Custom",
        "parts.Task._custom_goes_with_type",
        ".custom",
    ),
    _options("ACE"),
    _options("GEPA"),
    _not_ours("labels"),
    _not_ours("annotations"),
    Rule(
        Vllm,
        f"!has(self.args) || !self.args.exists(arg, {_FLAGS}.exists(flag, arg == flag || arg.startsWith(flag + '=')))",
        "a flag that the operator sets itself: remove it; model, revision and replicas have fields",
        "parts.Vllm._args_not_ours",
        ".args",
    ),
    Rule(
        SerialBaseline,
        "!self.measure || !has(self.curve) || size(self.curve) == 0",
        "measure and curve are both given: give exactly one of measure: true, curve",
        "run.SerialBaseline._one_of",
    ),
    Rule(
        Batching,
        "self.sizes.isSorted() && self.sizes.all(size, self.sizes.exists_one(other, other == size))",
        "not ascending: write each size once, the smallest first",
        "run.Batching._ascending",
        ".sizes",
    ),
    Rule(
        Batching,
        "self.mode != 'Fixed' || (has(self.size) && has(self.reason))",
        'mode Fixed needs size and reason: write {mode: Fixed, size: 25, reason: "why this size"}, or mode: Dynamic',
        "run.Batching._fixed_is_stated",
    ),
    Rule(
        Batching,
        "self.mode == 'Fixed' || !(has(self.size) || has(self.reason))",
        "size and reason go with mode Fixed only: remove them, or set mode: Fixed",
        "run.Batching._fixed_is_stated",
    ),
    _primary("tokens"),
    _primary("gpuSeconds"),
    _primary("wallClockSeconds"),
    _engine_ref("task", optional=False),
    _engine_ref("proposer", optional=False),
    _engine_ref("evaluator", optional=True),
    _engine_ref("embedder", optional=True),
    Rule(
        PromptLearningRun,
        "has(self.spec.playbookRef)",
        "playbookRef is missing: on a cluster a run says which Playbook its result is for, playbookRef: {name: ...}",
        CLUSTER,
        ".spec.playbookRef",
    ),
    Rule(
        RunTemplate,
        "!has(self.playbookRef)",
        "playbookRef is given in a template: remove it, the runs are this Playbook's",
        "playbook.RunTemplate._playbook_is_named",
        ".playbookRef",
    ),
    Rule(
        Learn,
        "self.trigger != 'Schedule' || has(self.schedule)",
        'trigger Schedule without schedule: add schedule: "0 3 * * 1"',
        "playbook.Learn._schedule_goes_with_trigger",
        ".schedule",
    ),
    Rule(
        Learn,
        "self.trigger == 'Schedule' || !has(self.schedule)",
        "schedule goes with trigger Schedule only: remove schedule, or set trigger: Schedule",
        "playbook.Learn._schedule_goes_with_trigger",
        ".schedule",
    ),
    Rule(
        Canary,
        "self.deadlineSeconds >= self.durationSeconds",
        "deadlineSeconds is shorter than durationSeconds: give a deadline at least as long as the duration",
        "playbook.Canary._deadline_is_later",
        ".deadlineSeconds",
    ),
)
