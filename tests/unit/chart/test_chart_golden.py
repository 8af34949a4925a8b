"""What helm makes of the chart, whole, for each way to install it; helm's own check of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from chart_tools import CHART, SERVER, WAYS, helm, objects, text

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("way", WAYS)
def test_helm_finds_nothing_wrong(way: str) -> None:
    checked = helm(
        "lint", str(CHART), "--strict", "--kube-version", SERVER, "-f", "-", stdin=yaml.safe_dump(WAYS[way])
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "[WARNING]" not in checked.stdout


@pytest.mark.parametrize("way", WAYS)
def test_manifests_are_as_reviewed(way: str, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / f"{way}.yaml"
    made = "".join(
        part for part in _parts(text(way)) if "# Source: combee-operator/templates/crds" not in part
    )
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(made, encoding="utf-8")
    assert made == path.read_text(encoding="utf-8"), "review with --update-golden and git diff"


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(WAYS)


@pytest.mark.parametrize("way", WAYS)
def test_no_object_is_there_twice_and_each_names_its_namespace(way: str) -> None:
    names = [(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]) for o in objects(way)]
    assert len(names) == len(set(names))
    in_a_namespace = {kind for kind, namespace, _ in names if namespace}
    assert in_a_namespace.isdisjoint(kind for kind, namespace, _ in names if not namespace)


def _parts(rendered: str) -> list[str]:
    return [part for part in re.split(r"(?m)^(?=---$)", rendered) if part.strip() not in ("", "---")]
