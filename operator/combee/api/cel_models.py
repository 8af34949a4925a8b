"""CEL rules of models: which fields go together. Each mirrors a validator of the model."""

from __future__ import annotations

from itertools import product

from combee.api import cel_baseline, common, engines
from combee.api.aggregation import STRATEGIES
from combee.api.canary import Canary
from combee.api.cel import CLUSTER
from combee.api.cel_methods import CHOSEN_METHOD_RULES, METHOD_RULES
from combee.api.cel_metric import METRIC_RULES, goes_with
from combee.api.common import Model, Rule
from combee.api.engines import Engine, ServiceRef, Vllm
from combee.api.fields import fields_of
from combee.api.gateway import Gateway, GatewayKeys
from combee.api.metric import Ceiling
from combee.api.parts import DataSource, InitialPlaybook, PodTemplateMeta, RoleModel, Task
from combee.api.playbook import HeldOutGate, Learn, PlaybookSpec, RunTemplate
from combee.api.prometheus import ScoreQuery
from combee.api.run import Batching, Budget, PromptLearningRun, RunSpec
from combee.api.stakes import WEAKEST, FailureCost, too_weak
from combee.api.stores import Store
from combee.api.tasks import CustomTask
from combee.api.weights import WeightsSource

_FLAGS = [
    f"--{''.join(spelled)}"
    for flag in engines.SET_BY_US
    for spelled in product(*("-_" if letter == "-" else letter for letter in flag.removeprefix("--")))
]
"""vLLM reads an underscore as a hyphen anywhere in a flag's name."""

_GATEWAY = "has(self.delivery) && has(self.delivery.gateway)"
_ENABLED = f"{_GATEWAY} && self.delivery.gateway.enabled"


def _union(model: type[Model]) -> Rule:
    """Require one of the fields that ``exactly_one`` names."""
    by_attribute = dict(zip(model.model_fields, fields_of(model), strict=True))
    names = [by_attribute[attribute] for attribute in model.exactly_one]
    given = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in names)
    return Rule(
        model, f"{given} == 1", f"give exactly one of {', '.join(names)}", "common.Model._exactly_one"
    )


def _secret(model: type[Model], mirrors: str) -> Rule:
    message = "secretRef is given without uri: remove it, only a uri needs credentials"
    return Rule(model, "!has(self.secretRef) || has(self.uri)", message, mirrors, ".secretRef")


def _mode_is(mode: str) -> str:
    """Return the expression that a Playbook's canary has a mode."""
    return f"has(self.canary) && has(self.canary.mode) && self.canary.mode == '{mode}'"


def _strict_enough(cost: FailureCost) -> tuple[Rule, ...]:
    """Refuse a canary that is weaker than a class of failure cost allows: of one that does not compare, the
    watch goes by its epsilon."""
    least = WEAKEST[cost]
    bounds = {
        "minSamples": f">= {least.min_samples}",
        "durationSeconds": f">= {least.duration_seconds}",
        "epsilon": f"<= {least.epsilon:g}",
    }
    uncounted = "!has(self.canary.mode) || self.canary.mode == 'Manual' || "
    return tuple(
        Rule(
            PlaybookSpec,
            f"self.failureCost != '{cost}' || !has(self.canary) || "
            f"{'' if name == 'epsilon' else uncounted}self.canary.{name} {bound}",
            f"{too_weak(name, cost)}: make the canary as strict as that, or give another failureCost",
            "playbook.PlaybookSpec._canary_fits_failure_cost",
            f".canary.{name}",
        )
        for name, bound in bounds.items()
        if bound != ">= 0"
    )


def _not_ours(field: str) -> Rule:
    message = f"{common.OUR_PREFIX} is the operator's to set: use a prefix of your own"
    cel = f"!has(self.{field}) || !self.{field}.exists(key, key.startsWith('{common.OUR_PREFIX}'))"
    return Rule(PodTemplateMeta, cel, message, "parts.PodTemplateMeta._not_ours", f".{field}")


def _own_pods(field: str) -> Rule:
    return Rule(
        Engine,
        f"!has(self.ref) || !has(self.{field})",
        f"{field} is given with ref: remove {field}, the run changes no pods but its own",
        "engines.Engine._pods_are_our_own",
        f".{field}",
    )


def _embedder(strategy: str) -> Rule:
    return Rule(
        RunSpec,
        "!has(self.aggregation) || !has(self.aggregation.strategy) || self.aggregation.strategy != "
        f"'{strategy}' || has(self.models.embedder)",
        f"strategy {strategy} without models.embedder: add models.embedder, a model that gives embeddings, "
        "or use another strategy",
        "run.RunSpec._embedder_is_given",
        ".models",
    )


def _primary(limit: str) -> Rule:
    message = f"primary {limit} has no limit: add {limit}, or change primary"
    cel = f"!has(self.primary) || self.primary != '{limit}' || has(self.{limit})"
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
    *(
        _union(model)
        for model in (
            DataSource,
            WeightsSource,
            CustomTask,
            InitialPlaybook,
            Engine,
            RoleModel,
            Ceiling,
            Store,
            GatewayKeys,
            Canary,
        )
    ),
    _secret(DataSource, "parts.DataSource._secret_goes_with_uri"),
    _secret(Store, "stores.Store._secret_goes_with_uri"),
    Rule(
        Task,
        "self.type != 'Custom' || has(self.custom)",
        'type Custom without custom: add custom: {class: "module:Class"}, {container: ...} or {adapter: ...}',
        "parts.Task._custom_goes_with_type",
        ".custom",
    ),
    goes_with(Task, "custom", "type", "Custom", "parts.Task._custom_goes_with_type"),
    goes_with(Task, "traces", "type", "Traces", "parts.Task._custom_goes_with_type"),
    Rule(
        Task,
        "self.type == 'Traces' || has(self.data.heldOut)",
        "data.heldOut is required and missing: add heldOut, rows that select and gate candidates",
        "parts.Task._held_out_goes_with_type",
        ".data",
    ),
    Rule(
        Task,
        "self.type != 'Traces' || (!has(self.data.heldOut) && !has(self.data.test))",
        "data.heldOut or data.test is given with type Traces, which has no rollouts to score on it: remove "
        "it",
        "parts.Task._held_out_goes_with_type",
        ".data",
    ),
    *METRIC_RULES,
    Rule(
        CustomTask,
        "!has(self.image) || !has(self.container)",
        "image is given with container: remove image, a container has its own",
        "tasks.CustomTask._image_goes_with_class",
        ".image",
    ),
    *METHOD_RULES,
    _not_ours("labels"),
    _not_ours("annotations"),
    Rule(
        Vllm,
        f"!has(self.args) || !self.args.exists(arg, {_FLAGS}.exists(flag, arg == flag"
        " || arg.startsWith(flag + '=')))",
        "a flag that the operator sets itself: remove it; model, revision and replicas have fields",
        "engines.Vllm._args_not_ours",
        ".args",
    ),
    Rule(
        Vllm,
        "!has(self.modelCache) || !has(self.modelCache.source)"
        " || !(self.model.startsWith('/') || self.model.startsWith('.') || self.model.contains('://'))",
        "modelCache.source is given with a model that is a folder or an address: write the name to serve the "
        "weights under, or remove source",
        "engines.Vllm._source_has_a_name",
        ".model",
    ),
    Rule(
        ServiceRef,
        "self.kind != 'InferencePool' || has(self.model)",
        "kind InferencePool without model: add model, the name that its servers list at /v1/models",
        "engines.ServiceRef._pool_has_a_model",
        ".model",
    ),
    _own_pods("template"),
    _own_pods("shared"),
    _own_pods("idleTimeoutSeconds"),
    *cel_baseline.RULES,
    Rule(
        HeldOutGate,
        "!has(self.reason) || has(self.digest)",
        "reason is given without digest: add digest, of the new rows, or remove reason",
        "playbook.HeldOutGate._reason_goes_with_digest",
        ".reason",
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
        'mode Fixed needs size and reason: write {mode: Fixed, size: 25, reason: "why this size"}, or '
        "mode: Dynamic",
        "run.Batching._fixed_is_stated",
    ),
    Rule(
        Batching,
        "self.mode == 'Fixed' || !(has(self.size) || has(self.reason))",
        "size and reason go with mode Fixed only: remove them, or set mode: Fixed",
        "run.Batching._fixed_is_stated",
    ),
    Rule(
        RunSpec,
        "!has(self.budget) || !has(self.budget.money) || has(self.prices)",
        "budget.money without prices: add prices: {currency: ..., models: [...], perGpuHour: ...}",
        "run.RunSpec._money_has_prices",
        ".prices",
    ),
    _primary("tokens"),
    _primary("gpuSeconds"),
    _primary("wallClockSeconds"),
    _primary("money"),
    _engine_ref("task", optional=False),
    _engine_ref("proposer", optional=False),
    _engine_ref("evaluator", optional=True),
    _engine_ref("referee", optional=True),
    _engine_ref("proxy", optional=True),
    _engine_ref("embedder", optional=True),
    *(_embedder(name) for name, traits in STRATEGIES.items() if traits.embeds),
    *CHOSEN_METHOD_RULES,
    Rule(
        PromptLearningRun,
        "has(self.spec.playbookRef)",
        "playbookRef is missing: on a cluster a run says which Playbook its result is for, playbookRef: "
        "{name: ...}",
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
    goes_with(Learn, "schedule", "trigger", "Schedule", "playbook.Learn._schedule_goes_with_trigger"),
    Rule(
        Canary,
        "self.deadlineSeconds >= self.durationSeconds",
        "deadlineSeconds is shorter than durationSeconds: give a deadline at least as long as the duration",
        "canary.Canary._deadline_is_later",
        ".deadlineSeconds",
    ),
    Rule(
        Canary,
        "!has(self.mode) || !(self.mode in ['Shadow', 'Replay']) || has(self.evaluator)",
        "a canary of mode Shadow or Replay without evaluator: add evaluator: {url: ..., model: ...}, the "
        "model that judges the answers",
        "canary.Canary._judged_has_evaluator",
    ),
    Rule(
        Canary,
        "!has(self.mode) || self.mode != 'Prometheus' || has(self.prometheus)",
        "a canary of mode Prometheus without prometheus: add prometheus: {url: ..., score: {query: ..., "
        "unit: ...}}",
        "canary.Canary._prometheus_goes_with_mode",
    ),
    Rule(
        Canary,
        "(has(self.mode) && self.mode == 'Prometheus') || !has(self.prometheus)",
        "prometheus goes with mode Prometheus only: remove prometheus, or set mode: Prometheus",
        "canary.Canary._prometheus_goes_with_mode",
        ".prometheus",
    ),
    Rule(
        ScoreQuery,
        "self.unit != 'Points' || (has(self.lowest) && has(self.highest) && self.lowest < self.highest)",
        "unit Points without lowest below highest: give both, such as lowest: 1, highest: 5",
        "prometheus.ScoreQuery._points_have_ends",
    ),
    Rule(
        ScoreQuery,
        "self.unit == 'Points' || (!has(self.lowest) && !has(self.highest))",
        "lowest and highest go with unit Points only: remove them, or set unit: Points",
        "prometheus.ScoreQuery._points_have_ends",
    ),
    Rule(
        PlaybookSpec,
        f"!({_mode_is('Shadow')}) || ({_ENABLED})",
        "a canary of mode Shadow without gateway: set delivery.gateway.enabled: true with an upstream, the "
        "gateway mirrors requests",
        "playbook.PlaybookSpec._canary_has_traffic",
    ),
    Rule(
        PlaybookSpec,
        f"!({_mode_is('Replay')}) || ({_GATEWAY} && has(self.delivery.gateway.upstream))",
        "a canary of mode Replay without upstream: add delivery.gateway.upstream: {url: ...}, the API that "
        "answers the requests",
        "playbook.PlaybookSpec._canary_has_traffic",
    ),
    Rule(
        PlaybookSpec,
        f"!({_mode_is('Replay')})"
        " || (has(self.canary.replay) && has(self.canary.replay.requests))"
        f" || ({_ENABLED} && has(self.delivery.gateway.capture) && self.delivery.gateway.capture.enabled)",
        "a canary of mode Replay without requests: add canary.replay.requests, or let the gateway keep "
        "some with delivery.gateway.capture.enabled",
        "playbook.PlaybookSpec._replay_has_requests",
    ),
    *(rule for cost in WEAKEST for rule in _strict_enough(cost)),
    Rule(
        Gateway,
        "!self.enabled || has(self.upstream)",
        "the gateway is enabled without upstream: add upstream: {url: ...}, the API that requests are "
        "passed on to",
        "gateway.Gateway._enabled_has_upstream",
    ),
)
