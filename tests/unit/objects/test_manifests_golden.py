"""Every object of two runs, whole, as YAML to read and review."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from manifests_makers import CONTAINER, FULL, OWNER, PLAIN, SETTINGS, SHARED, objects_of, run_of

from combee.objects.queues import workload

GOLDEN = Path(__file__).parent / "golden"
MADE = (
    {
        f"{name}/{what}": made
        for name, spec in (("plain", PLAIN), ("full", FULL))
        for what, made in objects_of(run_of(spec))
    }
    | {
        f"{name}/workload": workload(run_of(spec), OWNER, SETTINGS, 10)
        for name, spec in (("full", FULL), ("container", {**CONTAINER, "queue": FULL["queue"]}))
    }
    | {
        f"shared/{what}": made
        for what, made in objects_of(run_of(SHARED))
        if what.startswith("engine") or what == "step-map"
    }
    | {
        f"container/{what}": made
        for what, made in objects_of(run_of(CONTAINER))
        if what.startswith(("rollout", "sandbox")) or what in ("step-map", "step-reduce")
    }
)


@pytest.mark.parametrize("name", MADE)
def test_object_is_as_reviewed(name: str, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / f"{name}.yaml"
    text = _text(MADE[name])
    if request.config.getoption("--update-golden", default=False):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "review with --update-golden and git diff"


def test_no_golden_file_is_left_over() -> None:
    assert {str(p.relative_to(GOLDEN).with_suffix("")) for p in GOLDEN.rglob("*.yaml")} == set(MADE)


def _text(made: dict[str, Any]) -> str:
    return yaml.dump(made, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Dumper(yaml.SafeDumper):
    """Repeats what is equal instead of pointing to it, and keeps lines of text apart."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _lines(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _lines)
