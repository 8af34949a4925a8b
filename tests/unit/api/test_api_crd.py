"""The CRDs: structural, small, bounded, and every rule of theirs tried and mirrored."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import admission_cases
from combee.api import cel_frozen
from combee.api.cel import CLUSTER
from combee.api.cel_table import RULES
from combee.api.cluster import check_cluster
from combee.api.common import Rule
from combee.api.conditions import TABLE
from combee.api.load import parse_resource
from combee.api.playbook import RunTemplate
from combee.api.run import PromptLearningRun, RunSpec
from combee.api.status import GateStatus, HeldOutStatus, RunStatus, SpendStatus, shown
from combee.errors import ManifestError
from combee.generate.crd import CHART_FOLDER, FOLDER, KINDS, definition, files, main
from combee.generate.docs_api import api_markdown

ROOT = Path(__file__).parents[3]
OPAQUE = {"affinity", "options", "state"}


def schema(kind: str) -> dict[str, Any]:
    (made,) = [definition(k) for k in KINDS if k.name == kind]
    return dict(made["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, inner in node.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}".removeprefix("."))
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from nodes(node[key], f"{path}[]")


EVERY = [(kind.name, path, node) for kind in KINDS for path, node in nodes(schema(kind.name))]
WRITTEN = [(kind, path, node) for kind, path, node in EVERY if path.startswith("spec")]


def test_the_files_are_up_to_date_and_small(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["--check"]) == 0, capsys.readouterr().err
    written = {path.name: path.read_text() for path in (ROOT / FOLDER).iterdir()}
    assert sorted(written) == sorted(files())
    for text in written.values():
        assert len(text.encode()) < 256 * 1024
        assert not {"$ref", "anyOf", "title:"} & set(text.split())
        assert "x-combee" not in text


def test_a_stale_file_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (FOLDER, CHART_FOLDER):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert main(["--check"]) == 1
    assert "crds/playbooks.yaml" in capsys.readouterr().err
    assert main(["--write"]) == 0
    assert main(["--check"]) == 0
    assert yaml.safe_load((tmp_path / FOLDER / "playbooks.yaml").read_text())["spec"]["names"][
        "shortNames"
    ] == ["pb"]


@pytest.mark.parametrize(("kind", "path", "node"), EVERY, ids=[f"{k}.{p}" for k, p, _ in EVERY])
def test_every_part_is_structural(kind: str, path: str, node: dict[str, Any]) -> None:
    assert "type" in node or node.get("x-kubernetes-int-or-string")
    assert not {"$ref", "anyOf", "oneOf", "nullable", "title", "const"} & set(node)
    assert not ("properties" in node and "additionalProperties" in node)
    if node.get("x-kubernetes-preserve-unknown-fields"):
        assert path.rpartition(".")[2] in OPAQUE or "topologySpreadConstraints[]" in path
    if node.get("type") == "array":
        assert node["x-kubernetes-list-type"] in ("atomic", "map")
    if "[]" in path:
        assert "default" not in node


@pytest.mark.parametrize(("kind", "path", "node"), WRITTEN, ids=[f"{k}.{p}" for k, p, _ in WRITTEN])
def test_all_that_people_write_is_bounded(kind: str, path: str, node: dict[str, Any]) -> None:
    match node.get("type"):
        case "string":
            assert "maxLength" in node or "enum" in node
        case "array":
            assert "maxItems" in node
        case "object" if "additionalProperties" in node:
            assert "maxProperties" in node
        case "integer":
            assert {"minimum", "maximum"} <= set(node)
    assert node.get("description") or "[]" in path or path.startswith("spec.learn.template.")


@pytest.mark.parametrize(("kind", "path", "node"), EVERY, ids=[f"{k}.{p}" for k, p, _ in EVERY])
def test_no_part_has_a_rule_twice(kind: str, path: str, node: dict[str, Any]) -> None:
    """The API server refuses a definition in which one has."""
    rules = [rule["rule"] for rule in node.get("x-kubernetes-validations", ())]
    assert len(rules) == len(set(rules)), f"{kind}: {path}"


def test_a_status_has_no_bounds() -> None:
    for _, path, node in EVERY:
        if path.startswith("status"):
            assert not {"enum", "maxLength", "maxItems", "minimum", "default"} & set(node), path


def test_the_fields_of_a_run_are_explained_once_and_not_again_in_a_template() -> None:
    template = dict(nodes(schema("Playbook")))["spec.learn.template"]
    run = dict(nodes(schema("PromptLearningRun")))["spec"]
    explained = [path for path, node in nodes(template) if "description" in node and path]
    assert explained == [] and "kubectl explain plr.spec" in template["description"]
    assert sum("description" in node for _, node in nodes(run)) > 100
    assert {path for path, _ in nodes(template)} == {path for path, _ in nodes(run)}


def test_names_and_columns_are_those_of_the_design() -> None:
    spec = definition(KINDS[0])["spec"]
    assert spec["names"]["shortNames"] == ["plr"]
    assert spec["names"]["categories"] == ["combee"]
    assert spec["scope"] == "Namespaced"
    columns = spec["versions"][0]["additionalPrinterColumns"]
    plain = [column["name"].upper() for column in columns if not column.get("priority")]
    assert plain == ["METHOD", "STATE", "ITERATION", "BATCH", "HELD-OUT", "GAIN", "ROLLOUTS", "AGE"]
    assert spec["versions"][0]["subresources"] == {"status": {}}


def test_columns_point_at_fields() -> None:
    for kind in KINDS:
        known = {f".{path}" for path, _ in nodes(schema(kind.name))}
        for column in kind.columns:
            assert column.path in known or column.path.startswith((".metadata.", ".status.conditions"))


def test_figures_are_shown_as_the_columns_promise() -> None:
    status = RunStatus(
        iteration=3,
        iterations_planned=6,
        gain=0.2212,
        held_out=HeldOutStatus(best=0.8613),
        spend=SpendStatus(rollouts=312),
    )
    assert shown(status, 4000).dump() == {
        "iteration": "3/6",
        "heldOut": "0.861",
        "gain": "+0.221",
        "rollouts": "312/4000",
        "cost": "",
    }
    nothing = {"iteration": "0", "heldOut": "", "gain": "", "rollouts": "0", "cost": ""}
    assert shown(RunStatus(), None).dump() == nothing
    looks = [GateStatus(baseline=0.5, best=0.5 + g, gain=g, low=low, high=g + 0.1, rows=9, discordant=3)
             for g, low in ((0.12, 0.01), (0.12, -0.01), (-0.02, -0.1))]  # fmt: skip
    told = [shown(status.model_copy(update={"gate": look}), None).gain for look in looks]
    assert told == ["+0.120", "+0.120?", "-0.020"], "select's is not told once gate is looked at"
    costing = RunStatus(spend=SpendStatus(money=1.8401, currency="EUR"))
    assert [shown(costing, None, limit).cost for limit in (None, 25.0)] == ["1.84 EUR", "1.84/25 EUR"]


@pytest.mark.parametrize(
    "rule", RULES, ids=lambda rule: f"{getattr(rule.at, '__name__', rule.at)}: {rule.message}"
)
def test_every_rule_has_a_place_a_mirror_and_a_manifest_that_it_refuses(rule: Rule) -> None:
    placed = [
        node
        for _, _, node in EVERY
        for made in node.get("x-kubernetes-validations", ())
        if made["rule"] == rule.cel
    ]
    assert placed, "no schema carries it"
    if rule in cel_frozen.RULES:
        assert any(case.says and case.says in rule.message for case in admission_cases.changes())
    else:
        assert any(rule.message in case.says for case in admission_cases.bad())
    if rule.mirrors != CLUSTER:
        module, *names = rule.mirrors.split(".")
        at: Any = importlib.import_module(f"combee.api.{module}")
        for name in names:
            at = getattr(at, name)
        assert callable(at)


@pytest.mark.parametrize(
    "manifest", admission_cases.good(), ids=lambda manifest: str(manifest["metadata"]["name"])
)
def test_good_manifests_are_good_here(manifest: dict[str, Any]) -> None:
    resource = parse_resource(manifest, "")
    assert check_cluster(resource) == []


@pytest.mark.parametrize(
    "case", [c for c in admission_cases.bad() if not c.operator], ids=lambda case: case.name
)
def test_bad_manifests_are_bad_here(case: Any) -> None:
    try:
        resource = parse_resource(case.manifest, "")
    except ManifestError as error:
        assert error.where
        assert error.fix
        return
    problems = check_cluster(resource)
    assert problems
    for problem in problems:
        assert problem.fix
        assert problem.where.startswith("spec.")


def test_defaults_are_written_out_where_their_parts_are_left_out() -> None:
    spec = schema("PromptLearningRun")["properties"]["spec"]["properties"]
    assert spec["store"]["default"] == {"pvc": {"claimName": "combee-store"}}
    assert spec["batching"]["default"]["sizes"] == [5, 10, 25, 50, 100]
    assert spec["aggregation"]["default"]["redundancy"] == {"mode": "Auto", "copies": 2, "maxRounds": 4}
    # With type GEPA, options of ACE that the server filled in would be refused.
    assert "default" not in spec["method"]["properties"]["ace"]
    assert json.dumps(spec["suspend"]["default"]) == "false"


def test_the_reference_is_up_to_date_and_has_every_rule_and_condition() -> None:
    text = api_markdown()
    assert text == (ROOT / "docs" / "api.md").read_text()
    for rule in RULES:
        assert rule.message.replace("|", "\\|") in text or rule.at in (RunTemplate,)
    for about, status in TABLE:
        assert f"| {about} | {status} |" in text


@pytest.mark.parametrize(
    "manifest", admission_cases.good(), ids=lambda manifest: str(manifest["metadata"]["name"])
)
def test_what_pods_are_shown_of_a_run_is_read_back(manifest: dict[str, Any]) -> None:
    resource = parse_resource(manifest, "")
    if isinstance(resource, PromptLearningRun):
        shown = resource.spec.dump()
        assert RunSpec.model_validate(shown).dump() == shown
