"""docs/operations.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from manifests_makers import CONTAINER, FULL, OWNER, SETTINGS, objects_of, pod_of, run_of

from combee.objects.allowed import ANNOTATIONS, ENV_NAMES, ENV_PREFIXES
from combee.steps import KINDS

PAGE = (Path(__file__).resolve().parents[3] / "docs/operations.md").read_text(encoding="utf-8")
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.splitlines()
    if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) in (2, 4, 6)
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_of_what_a_pod_may_see(kind: str) -> None:
    data, roles, plan, store, token = ROWS[kind]
    uses = KINDS[kind]
    assert data == (", ".join(uses.data) or "none")
    assert roles == (", ".join(uses.roles) or "none")
    assert plan == ("yes" if uses.planned else "no")
    assert store == ("read, write" if uses.writes_store else "read")
    assert token.startswith("yes") == uses.own_account


def test_names_of_objects_are_those_that_are_made() -> None:
    made = {
        one["metadata"]["name"]
        for spec in (FULL, CONTAINER)
        for _, one in objects_of(run_of(spec), OWNER, SETTINGS)
    }
    named = {
        name for line in PAGE.splitlines() for name in re.findall(r"`(formula-ace-3fa9c1d2-[^`]+)`", line)
    }
    assert named and named <= made


def test_the_lists_of_what_templates_may_set() -> None:
    quoted = {key.replace("/*", "/") for key in re.findall(r"`([^`]+)`", ROWS["annotations"][0])}
    assert quoted - {"/", "."} == set(ANNOTATIONS)
    allowed = ROWS["env"][0].split("Never a secret")[0]
    assert set(re.findall(r"`([^`]+)`", allowed)) == {*ENV_NAMES, *ENV_PREFIXES}


def test_engines_have_no_token_and_no_secret() -> None:
    for what, one in objects_of(run_of(FULL), OWNER, SETTINGS):
        if what.startswith("engine") and (pod := pod_of(one)) is not None:
            assert pod["spec"]["automountServiceAccountToken"] is False
            assert not any("secret" in volume for volume in pod["spec"]["volumes"])
            row = ROWS["prefetch" if what.endswith("prefetch") else "engine"]
            assert row == ["none", "none", "no", "no", "no"]
