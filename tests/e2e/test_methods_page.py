"""docs/methods.md shows a whole base method. It is taken from the page as it stands, and learns."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_support import ROOT, Manifest, Sims

from combee.local.flags import StandInFlags
from combee.local.session import _Silent, prepare, run_session
from combee.local.sources import parse_stand_ins
from combee.methods import registry
from combee.records import Lesson, Reflection
from combee.report.result import Result

pytestmark = pytest.mark.e2e
PAGE = ROOT / "docs" / "methods.md"
NAME = "docs_methods"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """The page's only Python block, as a module; its method stands in the registry where ACE does."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) < 100
    module = types.ModuleType(NAME)
    monkeypatch.setitem(sys.modules, NAME, module)
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
    monkeypatch.setitem(registry.METHODS, "ACE", lambda spec: module.NotesMethod())
    yield module


async def learn(sims: Sims, key: Path, path: Path, out: Path) -> tuple[Result, str]:
    sim = sims.start("--key", key, "--time-scale", "0")
    given = parse_stand_ins(StandInFlags(engines=[f"main={sim.url}"]))
    result = await run_session(prepare(path, given), out, _Silent())
    return result, (out / "playbook.md").read_text()


async def test_the_method_of_the_page_learns_through_the_local_executor(
    page: Any, sims: Sims, key: Path, manifest: Manifest, rows: Any, tmp_path: Path
) -> None:
    path = manifest(train=rows(100), batching={"mode": "Fixed", "size": 100, "reason": "test"})
    result, text = await learn(sims, key, path, tmp_path / "out")
    assert result.outcome == "Learned", result.reason
    assert result.held_out is not None and result.held_out.gate is not None
    assert result.held_out.gate.gain > 0.03
    assert result.playbook is not None and result.playbook.entries > 10
    assert result.entries[0].text in text


def test_its_artifact_is_a_set_of_facts(page: Any) -> None:
    one, other, third = (page.Notes(frozenset({(f"note {k}", f"{k}@0")})) for k in range(3))
    assert one.join(other) == other.join(one) and one.join(one) == one
    assert one.join(other).join(third) == one.join(other.join(third))
    method = page.NotesMethod()
    assert method.from_json(one.join(other).to_json()).digest == one.join(other).digest
    assert one.diff(one.join(other)).added[0].text == "note 1"
    assert method.initial("- a\n\n- b").render(budget_tokens=10, verify="Off").text == "- a\n- b"
    assert method.initial("- a word\n" * 3 + "- b").render(budget_tokens=2, verify="Off").tokens <= 2


def test_its_tree_with_a_call_at_every_node_works_too(page: Any) -> None:
    method = page.NotesMethod()
    shown = method.empty().render(budget_tokens=10, verify="Off")
    reflections = [
        Reflection(f"r-{k}", f"{k}@0", False, "", (Lesson(f"r-{k}.1", f"rule {k}"),)) for k in range(2)
    ]
    updates = method.parse_leaf(
        "- rule 0 [r-0]\n- rule 1 [r-1, r-9]", reflections=reflections, playbook=shown
    )
    assert [sorted(one.sources) for one in updates] == [["0@0"], ["1@0"]]
    assert "[u-2] rule 1" in method.merge_prompt(shown, updates).messages[1].content
    merged = method.parse_merge("- both rules [u-1, u-2]", updates=updates, playbook=shown)
    assert [(one.text, sorted(one.sources)) for one in merged.updates] == [("both rules", ["0@0", "1@0"])]
    joined = method.group([*updates, *updates], cap=4)
    assert (len(joined.passed), joined.clusters) == (2, [])
