"""Reading manifests: YAML's traps, several documents, digests, and any input at all."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from combee.api.digests import manifest_digest
from combee.api.load import parse_resource, parse_run, parse_runs, problems_in, resources_in
from combee.api.playbook import Playbook
from combee.api.run import PromptLearningRun
from combee.api.yamlread import MAX_MANIFEST_BYTES, read_yaml
from combee.cli.validate import run_validate
from combee.errors import CombeeError, ManifestError

ROOT = Path(__file__).parents[3]
EXAMPLE = (ROOT / "examples" / "formula.yaml").read_text()
SMALL = """\
apiVersion: combee.dev/v1alpha1
kind: PromptLearningRun
metadata: {name: small}
spec:
  task: {type: Formula, data: {train: {uri: a.jsonl}, heldOut: {uri: b.jsonl}}}
  method: {type: ACE}
  models:
    task: {endpoint: {url: "http://127.0.0.1:8000/v1", model: m}}
    proposer: {endpoint: {url: "http://127.0.0.1:8000/v1", model: m}}
"""


def test_the_example_is_valid_and_its_data_are_there() -> None:
    (run,) = parse_runs(EXAMPLE, "formula.yaml")
    assert problems_in(EXAMPLE, "formula.yaml") == []
    assert run.name == "formula-ace"
    assert run.spec.engines[0].vllm.model == "openai/gpt-oss-120b"
    for source in (run.spec.task.data.train, run.spec.task.data.held_out):
        assert source.uri is not None
        assert (ROOT / "examples" / source.uri).is_file()


def test_defaults_are_those_of_the_design() -> None:
    spec = parse_runs(SMALL, "small.yaml")[0].spec
    a, w = spec.aggregation, spec.workers
    assert (a.strategy, a.merge, a.verify, a.subgroups) == ("ParallelScan", "Structured", "Replay", None)
    assert (a.leaf_size, a.max_fan_in, a.max_input_tokens) == (8, 32, 24_000)
    assert (a.redundancy.mode, a.redundancy.copies, a.redundancy.max_rounds) == ("Auto", 2, 4)
    assert (spec.batching.mode, spec.batching.sizes) == ("Dynamic", (5, 10, 25, 50, 100))
    assert (spec.batching.rule, spec.batching.share) == ("Saving", 0.45)
    assert (w.wait_seconds, w.hedge_budget, w.overlap, w.concurrency) == (60, 0.05, "Auto", 64)
    assert (spec.stopping.patience, spec.stopping.target_gain) == (3, 0.01)
    assert (spec.method.epochs, spec.method.ace.render_token_budget) == (1, 8000)
    assert spec.method.ace.reflection_rounds == 1
    assert spec.store.pvc is not None
    assert spec.store.pvc.claim_name == "combee-store"
    assert (spec.budget.rollouts, spec.budget.primary, spec.suspend) == (None, None, False)


def test_values_are_immutable() -> None:
    run = parse_runs(SMALL, "small.yaml")[0]
    with pytest.raises(ValueError, match="frozen"):
        run.spec.seed = 3  # type: ignore[misc]


def with_line(line: str) -> str:
    return f"{SMALL}  {line}\n"


FINE = [
    ('aggregation: {verify: "Off"}', lambda s: s.aggregation.verify == "Off"),
    ("aggregation: {verify: Off}", lambda s: s.aggregation.verify == "Off"),
    ("suspend: True", lambda s: s.suspend is True),
    ("batching: {share: 5e-1}", lambda s: s.batching.share == 0.5),
    ("stopping: {targetGain: 1}", lambda s: s.stopping.target_gain == 1.0),
    ("batching: {mode: Fixed, size: 25, reason: comparison}", lambda s: s.batching.size == 25),
    ("store: {uri: 's3://combee/runs', secretRef: {name: s3}}", lambda s: s.store.uri == "s3://combee/runs"),
    ("budget: {tokens: 5, primary: tokens}", lambda s: s.budget.tokens == 5),
]


@pytest.mark.parametrize(("line", "holds"), FINE)
def test_fine_lines(line: str, holds: Any) -> None:
    assert holds(parse_runs(with_line(line), "small.yaml")[0].spec)


REFUSED = [
    ("seed: 1\n  seed: 2", 11, ["the key 'seed' is given twice"]),
    ("seed: 010", 10, ["'010' is not a whole number"]),
    ("seed: 1_000", 10, ["'1_000' is not a whole number"]),
    ("seed: 0x1F", 10, ["'0x1F' is not a whole number"]),
    ("seed: 1e3", 10, ["1000.0 is not a whole number"]),
    (f"seed: {'9' * 5000}", 10, ["more than 40 digits"]),
    ("seed: 2026-01-01", 10, ["'2026-01-01' is not a whole number"]),
    ("batching: {share: .inf}", 10, ["'.inf' is not a number"]),
    ("batching: {share: 1e999}", 10, ["inf is not a number"]),
    ("suspend: on", 10, ["'on' is not true or false"]),
    ("seed: !!python/object/apply:os.system [ls]", 10, ["tag", "is not allowed"]),
    ("seed: !!int 'x'", 10, ["is not allowed"]),
    ("1: x", 10, ["the key '1' is not text", "quotes"]),
    ("true: x", 10, ["the key 'true' is not text"]),
    ("[a]: x", 10, ["a key is a list or mapping"]),
    ("queue: &a {name: *a}", 10, ["an alias contains itself"]),
    ("<<: 5", 10, ["merges something that is no mapping"]),
    ("seed: [1", 11, ["not valid YAML"]),
    ("seed: *nobody", 10, ["not valid YAML", "undefined alias"]),
    ("\tseed: 1", 10, ["not valid YAML"]),
]


@pytest.mark.parametrize(("line", "number", "words"), REFUSED)
def test_refused_lines_name_file_and_line(line: str, number: int, words: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_runs(with_line(line), "small.yaml")
    assert caught.value.where.startswith(f"small.yaml:{number}"), caught.value.where
    for word in words:
        assert word in str(caught.value)


def test_an_alias_bomb_is_refused_at_once() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for n in range(1, 12):
        bomb += f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n"
    with pytest.raises(ManifestError, match="values once aliases are expanded"):
        parse_runs(bomb, "bomb.yaml")


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 5_000, "- " * 20_000, "a: [" * 60])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        parse_runs(text, "deep.yaml")


def test_an_oversized_file_is_refused_with_the_limit() -> None:
    with pytest.raises(ManifestError, match=f"more than the {MAX_MANIFEST_BYTES}"):
        parse_runs(SMALL + "#" * MAX_MANIFEST_BYTES, "big.yaml")


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n---\n", "null\n", "~"])
def test_nothing_in_it(text: str) -> None:
    with pytest.raises(ManifestError, match="there is no manifest in it"):
        parse_runs(text, "empty.yaml")
    assert len(problems_in(text, "empty.yaml")) == 1


@pytest.mark.parametrize("text", ["hello", "- a\n- b", "5", "true"])
def test_no_mapping(text: str) -> None:
    with pytest.raises(ManifestError, match="not a mapping"):
        parse_runs(text, "x.yaml")


def test_several_documents() -> None:
    runs = parse_runs(f"{SMALL}---\n{SMALL.replace('name: small', 'name: other')}", "two.yaml")
    assert [run.name for run in runs] == ["small", "other"]
    with pytest.raises(ManifestError, match=r"two\.yaml:13: metadata\.name: two runs are named 'small'"):
        parse_runs(f"{SMALL}---\n{SMALL}", "two.yaml")


PLAYBOOK = """apiVersion: combee.dev/v1alpha1
kind: Playbook
metadata: {name: formula}
spec: {heldOut: {minScore: 0.85}, delivery: {configMap: {name: formula-playbook}}}
"""


def test_playbooks_are_checked_and_left_to_the_cluster() -> None:
    assert [run.name for run in parse_runs(f"{PLAYBOOK}---\n{SMALL}", "two.yaml")] == ["small"]
    assert problems_in(PLAYBOOK, "pb.yaml") == []
    with pytest.raises(ManifestError, match="only runs are learned"):
        parse_runs(PLAYBOOK, "pb.yaml")
    with pytest.raises(ManifestError, match=r"pb\.yaml:4: spec\.heldOut\.minScore: 85 is out of bounds"):
        parse_runs(PLAYBOOK.replace("0.85", "85"), "pb.yaml")


CLAIM = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: store}\n"


def test_objects_of_other_apis_are_left_alone() -> None:
    text = f"{CLAIM}---\n{PLAYBOOK}---\n{SMALL}"
    assert problems_in(text, "three.yaml") == []
    named = [(one.kind, one.metadata.name) for one in resources_in(text, "three.yaml")]
    assert named == [("Playbook", "formula"), ("PromptLearningRun", "small")]
    assert [run.name for run in parse_runs(text, "three.yaml")] == ["small"]
    (nothing,) = problems_in(CLAIM, "claim.yaml")
    assert "there is no manifest in it" in str(nothing)
    for api in ("combee.dev/v1alpha1", "combe.dev/v1alpha1"):  # ours, or meant to be
        kind = "Claim" if api.startswith("combee") else "PromptLearningRuns"
        (wrong,) = problems_in(f"apiVersion: {api}\nkind: {kind}\n---\n{SMALL}", "two.yaml")
        assert f"unknown kind '{kind}'" in str(wrong)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_validate_takes_every_example(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_validate(path, as_json=False) == 0
    assert ": valid (" in capsys.readouterr().out


def test_a_gateway_needs_an_upstream() -> None:
    gateway = "enabled: true, upstream: {url: 'https://llm.example.com/v1'}"
    text = PLAYBOOK.split("spec:")[0] + "spec: {delivery: {gateway: {%s}}}\n"
    assert problems_in(text % gateway, "pb.yaml") == []
    with pytest.raises(ManifestError, match="enabled without upstream"):
        parse_resource(yaml.safe_load(text % "enabled: true"), "pb.yaml")


def test_merge_keys_and_aliases_work_in_reason() -> None:
    text = SMALL.replace("task: {endpoint: {", "task: &m {endpoint: {").replace(
        'proposer: {endpoint: {url: "http://127.0.0.1:8000/v1", model: m}}',
        "proposer: {<<: *m, sampling: {temperature: 0.7}}",
    )
    models = parse_runs(text, "small.yaml")[0].spec.models
    assert models.proposer.endpoint == models.task.endpoint
    assert models.proposer.sampling.temperature == 0.7


def test_a_character_that_json_writes_in_two_halves_is_one() -> None:
    manifest = {**yaml.safe_load(PLAYBOOK), "spec": {"canary": {"waived": "fine \U0001f600"}}}
    text = json.dumps(manifest)
    assert "\\ud83d\\ude00" in text
    (playbook,) = resources_in(text, "pb.json")
    assert isinstance(playbook, Playbook) and playbook.spec.canary is not None
    assert playbook.spec.canary.waived == "fine \U0001f600"
    (half,) = problems_in(text.replace("\\ude00", ""), "pb.json")
    assert str(half).startswith("pb.json:1: half a character.")


def test_annotations_are_long_and_their_prefixes_may_have_capitals() -> None:
    more = {"Example.com/owner": "a", "kubectl.kubernetes.io/last-applied-configuration": "x" * 20_000}
    manifest = yaml.safe_load(SMALL)
    manifest["metadata"] |= {
        "annotations": more,
        "labels": {"example.com/team": "a"},
        "generateName": "small-",
    }
    assert parse_run(manifest, "").metadata.annotations == more


def test_an_object_from_the_api_server_is_read() -> None:
    data = yaml.safe_load(SMALL)
    data["metadata"] |= {"uid": "u", "resourceVersion": "5", "generation": 2, "managedFields": [{}]}
    data["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z", "namespace": "team-a"}
    data["status"] = {"phase": "Learning"}
    run = parse_run(data, "")
    assert manifest_digest(run) == manifest_digest(parse_runs(SMALL, "small.yaml")[0])


SAME = [
    lambda t: "# a comment\n" + t,
    lambda t: json.dumps(yaml.safe_load(t)),
    lambda t: yaml.safe_dump(yaml.safe_load(t), sort_keys=True),
    lambda t: t + "  seed: 0\n  aggregation: {leafSize: 8}\n",
    lambda t: t + "  stopping: {patience: 3}\n  suspend: true\n",
    lambda t: t.replace("{name: small}", "{name: small, labels: {a: b}}"),
]
OTHER = [
    lambda t: t + "  seed: 1\n",
    lambda t: t + "  aggregation: {leafSize: 9}\n",
    lambda t: t.replace("name: small", "name: smaller"),
    lambda t: t.replace("a.jsonl", "c.jsonl"),
]


@pytest.mark.parametrize("change", SAME)
def test_the_digest_ignores_how_a_manifest_is_written(change: Any) -> None:
    assert manifest_digest(parse_runs(change(SMALL), "x")[0]) == manifest_digest(parse_runs(SMALL, "x")[0])


@pytest.mark.parametrize("change", OTHER)
def test_the_digest_sees_every_change(change: Any) -> None:
    assert manifest_digest(parse_runs(change(SMALL), "x")[0]) != manifest_digest(parse_runs(SMALL, "x")[0])


def test_the_digest_survives_a_round_trip_and_another_process() -> None:
    run = parse_runs(EXAMPLE, "x")[0]
    assert manifest_digest(PromptLearningRun.model_validate(run.dump())) == manifest_digest(run)
    code = (
        "import sys; from combee.api.load import parse_runs; from combee.api.digests import manifest_digest;"
        "print(manifest_digest(parse_runs(sys.stdin.read(), 'x')[0]))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        input=EXAMPLE,
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT / "operator",
    )
    assert out.stdout.strip() == manifest_digest(run)


FIELD_NAMES = [
    "apiVersion",
    "kind",
    "metadata",
    "name",
    "spec",
    "task",
    "type",
    "data",
    "train",
    "heldOut",
    "uri",
]
FIELD_NAMES += [
    "method",
    "engines",
    "models",
    "endpoint",
    "sizes",
    "batching",
    "aggregation",
    "store",
    "budget",
]
WORDS = [
    "combee.dev/v1alpha1",
    "PromptLearningRun",
    "ACE",
    "Formula",
    "Fixed",
    "Off",
    "s3://b/k",
    "::",
    "\ud800",
]
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(WORDS)
)
keys = st.one_of(st.sampled_from(FIELD_NAMES), st.text(max_size=6))
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=4) | st.dictionaries(keys, v, max_size=5), max_leaves=20
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spec=st.dictionaries(keys, values, max_size=8), path=st.integers(0, 3))
def test_any_mapping_parses_or_raises_ours(spec: dict[str, Any], path: int) -> None:
    data: Any = yaml.safe_load(SMALL)
    if path == 0:
        data = spec
    elif path == 1:
        data["spec"] = spec
    elif path == 2:
        data["spec"] |= spec
    else:
        data["spec"]["models"]["task"] = spec
    try:
        parse_run(data, "x")
    except CombeeError as error:
        assert "\n" not in str(error)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.integers(0, len(SMALL)))
@example('a: "\\UFFFFFFFF"', 0)
@example("%YAML 9.9\n---\na", 0)
@example("\x00", 3)
@example("\ud800", 3)
def test_any_text_parses_or_raises_ours(junk: str, at: int) -> None:
    for text in (junk, SMALL[:at] + junk + SMALL[at:]):
        try:
            parse_runs(text, "x")
        except CombeeError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "ruamels", "ours"),
    [
        ("a: 010", 10, "010"),
        ("a: 1_000", 1000, "1_000"),
        ("a: 2026-01-01", date(2026, 1, 1), "2026-01-01"),
        ("a: 0x1F", 31, "0x1F"),
        ("a: &a {b: *a}", {"b": None}, "an alias contains itself"),
        (
            "a: !!python/name:os.system x",
            ANY,
            "the tag tag:yaml.org,2002:python/name:os.system is not allowed",
        ),
    ],
)
def test_what_ruamel_takes_for_something_else(text: str, ruamels: object, ours: str) -> None:
    """Why yamlread is ours (docs/architecture.md): what it reads as text or refuses, ruamel.yaml reads."""
    assert YAML(typ="rt", pure=True).load(text)["a"] == ruamels
    try:
        (document,) = read_yaml(text, "run.yaml")
    except ManifestError as error:
        assert ours in str(error)
    else:
        assert document.value == {"a": ours}
