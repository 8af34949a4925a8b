"""Each way a manifest can be wrong: its exact path, and the words that say what would be right."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from combee.api import fields
from combee.api.load import parse_run, problems_in
from combee.api.local import Given, check_local
from combee.errors import ManifestError

GOOD: dict[str, Any] = {
    "apiVersion": "combee.dev/v1alpha1",
    "kind": "PromptLearningRun",
    "metadata": {"name": "formula-ace"},
    "spec": {
        "task": {
            "type": "Formula",
            "data": {"train": {"uri": "train.jsonl"}, "heldOut": {"uri": "heldout.jsonl"}},
        },
        "method": {"type": "ACE"},
        "engines": [{"name": "main", "vllm": {"model": "openai/gpt-oss-120b"}}],
        "models": {"task": {"engineRef": {"name": "main"}}, "proposer": {"engineRef": {"name": "main"}}},
    },
}
TASK = GOOD["spec"]["task"]
RUBRIC = {"metric": "rubric", "rubric": {"criteria": ["It is short"]}}
TRACES = {"type": "Traces", "data": {"train": TASK["data"]["train"]}}
CUSTOM = {**TASK, "type": "Custom"}
GONE = object()
ENDPOINT = {"endpoint": {"url": "https://llm.example.com/v1", "model": "m"}}
TRAIN, ROLE = "spec.task.data.train", "spec.models.evaluator"


def edited(path: str, value: object) -> dict[str, Any]:
    """GOOD with ``value`` at a dotted path (numbers index lists); GONE removes."""
    manifest = copy.deepcopy(GOOD)
    at: Any = manifest
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        if isinstance(part, str) and part not in at:
            at[part] = {}
        at = at[part]
    if value is GONE:
        del at[last]
    else:
        at[last] = value
    return manifest


# (edit path, value, path in the error or None for the same, words of the message)
WRONG: list[tuple[str, object, str | None, list[str]]] = [
    # the envelope
    ("apiVersion", "combee.dev/v1", None, ["'combee.dev/v1' is not allowed", "combee.dev/v1alpha1"]),
    ("apiVersion", GONE, None, ["required", "Add apiVersion"]),
    ("kind", GONE, None, ["kind is missing", "PromptLearningRun"]),
    ("kind", "promptlearningrun", None, ["unknown kind", "Did you mean PromptLearningRun"]),
    ("kind", "Deployment", None, ["unknown kind 'Deployment'"]),
    ("kind", ["x"], None, ["unknown kind"]),
    ("metadata", GONE, None, ["required"]),
    ("metadata.name", GONE, None, ["required", "Name of the run"]),
    ("metadata.name", "Formula ACE", None, ["not a valid name: 'Formula ACE'", "a-z"]),
    ("metadata.name", "x" * 64, None, ["64 characters, more than the 63"]),
    ("metadata.name", 12, None, ["12 is not text"]),
    ("metadata.generateName", 7, None, ["7 is not text"]),
    ("metadata.generateName", "../kube-system", None, ["not the beginning of a name"]),
    ("metadata.labels", {"a b": "x"}, None, ["'a b' is not a valid key"]),
    ("metadata.labels", {"team": "é"}, None, ["'team' has a value that labels cannot have"]),
    ("metadata.annotations", {"a/b/c": "x"}, None, ["'a/b/c' is not a valid key"]),
    ("metadata.lables", {}, None, ["unknown field 'lables'", "Did you mean labels"]),
    ("metadata.labels", {"team": 1}, "metadata.labels.team", ["1 cannot stand here",
     "Write text, in quotes"]),
    ("spec", GONE, None, ["required"]),
    ("spec", [], None, ["a list is not a mapping with playbookRef, suspend, discipline, task"]),
    ("specs", {}, None, ["unknown field 'specs'", "Did you mean spec?"]),
    # typing
    ("spec.seed", "7", None, ["'7' is not a whole number"]),
    ("spec.seed", 7.5, None, ["7.5 is not a whole number"]),
    ("spec.seed", True, None, ["true is not a whole number"]),
    ("spec.seed", -1, None, ["-1 is out of bounds", "0 or more"]),
    ("spec.seed", 2**60, None, ["out of bounds"]),
    ("spec.suspend", "yes", None, ["'yes' is not true or false"]),
    ("spec.suspend", 1, None, ["1 is not true or false"]),
    ("spec.aggregation", None, None, ["nothing is written here", "Remove the line or complete it"]),
    # typos and misplaced fields
    ("spec.metod", {}, None, ["unknown field 'metod'", "Did you mean method"]),
    ("spec.epochs", 2, None, ["unknown field 'epochs'", "It belongs at spec.method.epochs"]),
    ("spec.aggregation.max_fan_in", 4, None, ["Did you mean maxFanIn"]),
    ("spec.aggregation.leafsize", 4, None, ["Did you mean leafSize"]),
    ("spec.zebra", 4, None, ["unknown field 'zebra'", "Fields here: playbookRef"]),
    # task and data
    ("spec.task.type", GONE, None, ["required", "Formula, FiNER, Reply, Traces, Custom"]),
    ("spec.task.type", "formula", None, ["'formula' is not allowed", "Did you mean Formula"]),
    ("spec.task.custom", {"class": "a:B"}, "spec.task", ["custom is given with type Formula",
     "type: Custom"]),
    ("spec.task.type", "Reply", "spec.task", ["metric accuracy with type Reply", "Set metric: rubric"]),
    ("spec.task.metric", "rubric", "spec.task", ["metric rubric without rubric", "criteria"]),
    ("spec.task.rubric", {"criteria": ["Short"]}, "spec.task", ["rubric is given with metric accuracy"]),
    ("spec.task", {**TASK, "metric": "rubric", "rubric": {"criteria": []}}, "spec.task.rubric.criteria", []),
    ("spec.task", {**TASK, **RUBRIC}, "spec", ["metric rubric without models.evaluator"]),
    ("spec.task.type", "Custom", "spec.task", ["type Custom without custom"]),
    ("spec.task.metric", "f1", None, ["'f1' is not allowed", "accuracy"]),
    ("spec.task.failureCost", "  ", None, ["empty"]),
    ("spec.task.failureCost", "x" * 501, None, ["501 characters, more than the 500"]),
    ("spec.task.data.heldOut", GONE, "spec.task", ["data.heldOut is required", "rows that select and gate"]),
    ("spec.task.type", "Traces", "spec.task", ["data.heldOut is given with type Traces", "Remove heldOut"]),
    ("spec.task.traces", {}, "spec.task", ["traces is given with type Formula", "type: Traces"]),
    ("spec.task", {**TRACES, "data": {**TRACES["data"], "test": {"uri": "t"}}}, None, ["data.test is given",
     "Remove test"]),
    ("spec.task", {**TRACES, "traces": {"format": "atif"}}, "spec.task.traces.format", ["Did you mean ATIF"]),
    ("spec.task", {**TRACES, "traces": {"partTokens": 10}}, "spec.task.traces.partTokens",
     ["from 500 to 1000000"]),
    ("spec.task", {**CUSTOM, "custom": {"container": {"image": "i"}, "image": "i"}}, "spec.task.custom",
     ["image is given with container"]),
    ("spec.task.data.heldout", {"uri": "x"}, None, ["Did you mean heldOut"]),
    (TRAIN, {}, None, ["none of uri, configMap, pvc is given"]),
    (TRAIN, {"uri": "a", "pvc": {"claimName": "c", "path": "p"}}, None, ["uri and pvc are given together",
     "exactly one"]),
    (TRAIN, {"configMap": {"name": "c", "key": "k"}, "secretRef": {"name": "s"}}, None,
     ["secretRef is given without uri"]),
    (f"{TRAIN}.uri", "ftp://x/y", None, ["scheme ftp: is not allowed: 'ftp://x/y'", "s3://"]),
    (f"{TRAIN}.uri", "http://x/y", None, ["scheme http: is not allowed"]),
    (f"{TRAIN}.uri", "s3://a/b::file:///etc/passwd", None, ["'::' chains filesystems"]),
    (f"{TRAIN}.uri", "zip://x::s3://b/k", None, ["'::' chains"]),
    (f"{TRAIN}.uri", "s3:bucket/key", None, ["no bucket or host"]),
    (f"{TRAIN}.uri", "file://host/x", None, ["a file: URI with a host", "three slashes"]),
    (f"{TRAIN}.uri", "", None, ["empty"]),
    (f"{TRAIN}.uri", "a b.jsonl", None, ["blanks"]),
    (f"{TRAIN}.uri", "s3://key:hunter2@bucket/x", None, ["credentials inside a URI", "secretRef"]),
    (TRAIN, {"pvc": {"claimName": "c", "path": "../x"}}, f"{TRAIN}.pvc.path",
     ["not a path inside the volume"]),
    ("spec.task.initialPlaybook", {"activeVersion": False}, "spec.task.initialPlaybook.activeVersion",
     ["false is not allowed"]),
    ("spec.task.initialPlaybook", {"activeVersion": True}, "spec", ["without playbookRef"]),
    # method
    ("spec.method", {}, "spec.method.type", ["required", "ACE"]),
    ("spec.method.type", "ace", None, ["Did you mean ACE"]),
    ("spec.method.epochs", 0, None, ["0 is out of bounds", "from 1 to 100", "the default is 1"]),
    ("spec.method.gepa", {}, "spec.method", ["gepa is given with type ACE"]),
    ("spec.method", {"type": "GEPA", "gepa": {"mapTemplate": "only <curr_param>"}},
     "spec.method.gepa.mapTemplate", ["lacks <side_info>", "records or lessons"]),
    ("spec.method", {"type": "GEPA", "gepa": {"frontier": "Hybrid"}}, "spec",
     ["gepa.frontier Hybrid needs a score by objectives"]),
    ("spec.method", {"type": "GEPA", "gepa": {"paperCompat": True, "merges": -1}}, "spec.method.gepa.merges",
     ["from 0 to 1000"]),
    ("spec.method.ace.reflectionRounds", 6, None, ["6 is out of bounds", "from 1 to 5"]),
    ("spec.method.ace.renderTokenBudget", 90_000, None, ["from 100 to 80000"]),
    # engines and models
    ("spec.engines.0.vllm", GONE, "spec.engines[0]", ["none of vllm, ref is given"]),
    ("spec.engines.0.vllm.replicas", 0, "spec.engines[0].vllm.replicas", ["0 is out of bounds"]),
    ("spec.engines.0.vllm.args", ["--port=1"], "spec.engines[0].vllm.args",
     ["--port is set by the operator"]),
    ("spec.engines.0.vllm.args", [1], "spec.engines[0].vllm.args[0]", ["1 is not text"]),
    ("spec.engines.0.vllm.modelCache", {"claimName": "models", "source": {}},
     "spec.engines[0].vllm.modelCache.source", ["exactly one of image, pvc"]),
    ("spec.engines.0.vllm", {"model": "/models/tiny", "modelCache": {"claimName": "models", "source":
     {"pvc": {"claimName": "shared", "path": "tiny"}}}}, "spec.engines[0].vllm",
     ["modelCache.source is given with model /models/tiny", "name to serve the weights under"]),
    ("spec.engines.0.template", {"spec": {"hostNetwork": True}}, "spec.engines[0].template.spec.hostNetwork",
     ["unknown field"]),
    ("spec.engines", [GOOD["spec"]["engines"][0]] * 2, None, ["two engines are named main"]),
    ("spec.engines", [], "spec", ["models.task.engineRef names engine 'main'", "Engines here: none"]),
    ("spec.models.proposer", GONE, None, ["required", "Reflects and aggregates"]),
    (ROLE, {}, None, ["none of engineRef, endpoint is given"]),
    (ROLE, {**ENDPOINT, "engineRef": {"name": "main"}}, None, ["engineRef and endpoint are given together"]),
    (ROLE, {"endpoint": {"url": "llm.example.com", "model": "m"}}, f"{ROLE}.endpoint.url",
     ["not an http or https address"]),
    (ROLE, {"endpoint": {"url": "https://u:p@h/v1", "model": "m"}}, f"{ROLE}.endpoint.url", ["credentials",
     "apiKeySecretRef"]),
    (ROLE, {"endpoint": {"url": "https://h/v1?key=1", "model": "m"}}, f"{ROLE}.endpoint.url", ["query"]),
    (ROLE, {**ENDPOINT, "sampling": {"temperature": 3}}, f"{ROLE}.sampling.temperature",
     ["3 is out of bounds", "from 0 to 2"]),
    (ROLE, {**ENDPOINT, "sampling": {"topP": 0}}, f"{ROLE}.sampling.topP", ["above 0 and at most 1"]),
    # the rest
    ("spec.serialBaseline", {"method": "ACE", "measure": True, "curve": [{"examples": 1, "seconds": 1,
     "score": 1}]}, None, ["both given"]),
    ("spec.serialBaseline", {"method": "ACE", "curve": [{"examples": 9, "seconds": 1, "score": 1},
     {"examples": 9, "seconds": 2, "score": 1}]}, "spec.serialBaseline.curve", ["not ascending by examples"]),
    ("spec.serialBaseline", {"method": "GEPA", "measure": True}, "spec",
     ["serialBaseline.method is GEPA, and method.type ACE"]),
    ("spec.aggregation.strategy", "ParalellScan", None, ["Did you mean ParallelScan", "Naive"]),
    ("spec.aggregation", {"strategy": "TopK"}, "spec", ["TopK without models.embedder",
     "Add models.embedder"]),
    ("spec.aggregation.verify", False, None, ["false is not allowed", "Replay, Support, Off"]),
    ("spec.aggregation.maxFanIn", 1, None, ["1 is out of bounds", "the default is 32"]),
    ("spec.aggregation.subgroups", "sqrt", None, ["is not allowed. Write Sqrt."]),
    ("spec.aggregation.redundancy", "Auto", None, ["'Auto' is not a mapping with mode, copies, maxRounds"]),
    ("spec.aggregation.redundancy.copies", 0, None, ["0 is out of bounds"]),
    ("spec.batching.sizes", [5, 10, "x"], "spec.batching.sizes[2]", ["'x' is not a whole number"]),
    ("spec.batching.sizes", [10, 5], None, ["not ascending", "Write [5, 10]"]),
    ("spec.batching.sizes", [0, 5], "spec.batching.sizes[0]", ["out of bounds"]),
    ("spec.batching.sizes", [], None, ["fewer than the 1 items needed"]),
    ("spec.batching.sizes", list(range(1, 40)), None, ["more than the 32 items"]),
    ("spec.batching.sizes", 5, None, ["5 is not a list"]),
    ("spec.batching.share", 1, None, ["1 is out of bounds", "above 0 and below 1", "0.45"]),
    ("spec.batching.share", float("nan"), None, ["nan is not a number"]),
    ("spec.batching", {"mode": "Fixed", "size": 5}, None, ["mode Fixed without reason"]),
    ("spec.batching", {"mode": "Fixed"}, None, ["mode Fixed without size and reason"]),
    ("spec.batching", {"size": 5, "reason": "r"}, None, ["with mode Dynamic", "mode: Fixed"]),
    ("spec.stopping.targetGain", 2, None, ["from 0 to 1"]),
    ("spec.budget.rollouts", 0, None, ["0 is out of bounds", "1 or more"]),
    ("spec.budget", {"primary": "tokens"}, None, ["primary tokens has no limit", "Add tokens"]),
    ("spec.budget", {"primary": "money"}, None, ["primary money has no limit", "Add money"]),
    ("spec.budget", {"primary": "cost"}, "spec.budget.primary", ["one of rollouts, tokens, gpuSeconds"]),
    ("spec.workers.hedgeBudget", -1, None, ["from 0 to 1"]),
    ("spec.workers.overlap", "always", None, ["one of Auto, Never"]),
    ("spec.store", {}, None, ["none of uri, pvc is given"]),
    ("spec.store", {"uri": "https://h/x"}, "spec.store.uri", ["scheme https: is not allowed"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("at", "value", "path", "words"), WRONG, ids=[f"{n}-{case[0]}" for n, case in enumerate(WRONG)]
)
def test_a_wrong_manifest_names_path_and_remedy(
    at: str, value: object, path: str | None, words: list[str]
) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_run(edited(at, value), "run.yaml")
    message = str(caught.value)
    assert caught.value.where == f"run.yaml: {path or at}"
    assert caught.value.fix
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_there_are_many_of_them() -> None:
    assert len(WRONG) >= 60


def test_an_active_version_is_on_a_cluster_and_a_laptop_needs_a_file_for_it() -> None:
    manifest = edited("spec.task.initialPlaybook", {"activeVersion": True})
    manifest["spec"]["playbookRef"] = {"name": "formula"}
    run = parse_run(manifest, "run.yaml")
    with pytest.raises(ManifestError, match="--data initialPlaybook=PATH") as caught:
        check_local(run, Given())
    assert "spec.task.initialPlaybook.activeVersion" in str(caught.value)


@pytest.mark.parametrize(("at", "value"), [("spec.workers.hedgeBudget", 0), ("spec.batching.rule", "Saving")])
def test_stating_what_is_built_is_fine(at: str, value: object) -> None:
    parse_run(edited(at, value), "run.yaml")


SECRET = "sk-VERYSECRET 1"


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (ROLE, {"endpoint": {**ENDPOINT["endpoint"], "apiKeySecretRef": SECRET}}),
        (ROLE, {"endpoint": {**ENDPOINT["endpoint"], "apiKeySecretRef": {"name": SECRET, "key": "k"}}}),
        (ROLE, {"endpoint": {**ENDPOINT["endpoint"], "apiKey": SECRET}}),
        (ROLE, {"endpoint": {**ENDPOINT["endpoint"], "url": f"https://u:{SECRET}@h"}}),
        (f"{TRAIN}.secretRef", SECRET),
        (f"{TRAIN}.uri", f"s3://key:{SECRET}@bucket/x"),
        ("spec.password", SECRET),
    ],
)
def test_no_message_shows_what_could_be_a_secret(at: str, value: object) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_run(edited(at, value), "run.yaml")
    assert "VERYSECRET" not in str(caught.value)


def test_unknown_fields_are_told_before_what_they_explain_and_the_rest_is_listed() -> None:
    manifest = edited("spec.models.propser", manifest_role := GOOD["spec"]["models"]["proposer"])
    assert manifest_role
    del manifest["spec"]["models"]["proposer"]
    manifest["spec"]["seed"] = "x"
    with pytest.raises(ManifestError) as caught:
        parse_run(manifest, "run.yaml")
    assert caught.value.where == "run.yaml: spec.models.propser"
    assert "(2 more: run.yaml: spec.models.proposer; run.yaml: spec.seed.)" in str(caught.value)


def test_problems_in_lists_all_of_them_with_lines() -> None:
    text = "apiVersion: combee.dev/v1alpha1\nkind: PromptLearningRun\nmetadata: {name: A}\nspec:\n  seed: x\n"
    found = problems_in(text, "run.yaml")
    assert [problem.where for problem in found] == [
        "run.yaml:3: metadata.name",
        "run.yaml:4: spec.task",
        "run.yaml:4: spec.method",
        "run.yaml:4: spec.models",
        "run.yaml:5: spec.seed",
    ]


def test_thousands_of_unknown_fields_do_not_walk_the_models_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them searched all models for a field of its name: 10,000 took minutes."""
    looks, real = [0], fields.model_of

    def counted(annotation: Any) -> Any:
        looks[0] += 1
        return real(annotation)

    monkeypatch.setattr(fields, "model_of", counted)
    text = json.dumps(edited("spec.task", {f"k{number}": number for number in range(1_000)}))
    problems = problems_in(text, "run.yaml")
    assert len(problems) == 1_002
    assert looks[0] < 10 * len(problems)
