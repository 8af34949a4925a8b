"""examples/kagent.yaml: its agent takes what its Playbook delivers, and kagent's definitions take its parts.

The definitions come from a checkout of kagent: ``make kagent KAGENT=DIR``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from combee.api.load import resources_in
from combee.api.playbook import Playbook
from combee.names import delivered_name
from combee.objects.playbooks import delivered_config_map
from combee.records import Owner

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "examples" / "kagent.yaml"
OBJECTS = {made["kind"]: made for made in yaml.safe_load_all(FILE.read_text())}
PLURALS = {"Agent": "agents", "ModelConfig": "modelconfigs"}
FROM = OBJECTS["Agent"]["spec"]["declarative"]["systemMessageFrom"]


def test_the_agents_system_message_is_what_the_playbook_delivers() -> None:
    (playbook,) = resources_in(FILE.read_text(), str(FILE))
    assert isinstance(playbook, Playbook)
    assert playbook.spec.delivery is not None and playbook.spec.delivery.config_map is not None
    name = delivered_name(playbook.metadata.name, playbook.spec.delivery.config_map.name)
    owner = Owner(playbook.metadata.name, "team", "u-1")
    for held in ({"prompt.md": "Round late."}, {}):
        made = delivered_config_map(owner, name, "ab" * 32, held)
        assert (FROM["type"], FROM["name"]) == (made["kind"], made["metadata"]["name"])
        assert made["data"][FROM["key"]] == held.get("prompt.md", "")


def test_the_page_shows_the_line_of_the_example() -> None:
    page = (ROOT / "docs" / "use" / "kagent.md").read_text()
    shown = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    assert shown == {"systemMessageFrom": FROM}


@pytest.fixture
def definitions() -> Path:
    folder = os.environ.get("KAGENT")
    if not folder:
        pytest.skip("no checkout of kagent: make kagent KAGENT=DIR")
    return Path(folder) / "go" / "api" / "config" / "crd" / "bases"


@pytest.mark.parametrize("kind", PLURALS)
def test_kagents_definitions_take_it(kind: str, definitions: Path) -> None:
    made = OBJECTS[kind]
    group, _, version = made["apiVersion"].partition("/")
    crd = yaml.safe_load((definitions / f"{group}_{PLURALS[kind]}.yaml").read_text())
    (served,) = [one for one in crd["spec"]["versions"] if one["name"] == version and one["served"]]
    schema = _strict(served["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {}
    validator = Draft202012Validator(schema)
    assert not [error.message for error in validator.iter_errors(made)]
    assert list(validator.iter_errors({**made, "spec": {**made["spec"], "unknown": 1}}))


def _strict(schema: Any) -> Any:
    """The schema as ``kubectl apply`` holds objects to it: fields that it lacks are errors."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict) and made.get("type") == "object":
        made.setdefault("additionalProperties", bool(made.get("x-kubernetes-preserve-unknown-fields")))
    return made
