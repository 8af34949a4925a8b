"""The manifest in docs/promotion.md is one that is taken, and its numbers are those that are reckoned."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from combee.algo.power import least_pairs
from combee.api.playbook import PlaybookSpec
from combee.plan import playbook
from combee.plan.playbook.traffic import warnings

PAGE = (Path(__file__).resolve().parents[3] / "docs/promotion.md").read_text(encoding="utf-8")


def test_the_canary_by_prometheus_is_taken_without_a_warning() -> None:
    (block,) = [
        text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "mode: Prometheus" in text
    ]
    spec = PlaybookSpec.model_validate(yaml.safe_load(block))
    assert spec.canary is not None and spec.canary.prometheus is not None
    assert spec.canary.prometheus.latency is not None and warnings(spec) == ()


def test_how_many_windows_two_equal_versions_need() -> None:
    said = re.search(r"need (\d+) windows at epsilon 0.05, (\d+) at\s+0.01, ([\d,]+) at 0.005", PAGE)
    assert said is not None
    needed = [int(number.replace(",", "")) for number in said.groups()]
    assert needed == [least_pairs(epsilon) for epsilon in (0.05, 0.01, 0.005)]


def test_the_table_of_the_history_has_every_line_that_is_written() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in Path(playbook.__file__).parent.glob("*.py"))
    written = set(re.findall(r'(?:note|record_line)\(\s*"(\w+)"', source))
    written |= {"Promoted", "RolledBack", "CanaryPassed", "CanaryWaived", "WaitingForApproval"}
    written |= {"WaiverNotAllowed", "Made", "Pinned", "Unpinned"}
    table = PAGE.partition("| line | is about |")[2].partition("\n\n")[0]
    firsts = [row.split("|")[1] for row in table.splitlines()[2:]]
    assert set(re.findall(r"`(\w+)`", "".join(firsts))) == written


def test_the_page_has_the_warning_of_a_playbook_without_a_canary() -> None:
    (said,) = warnings(PlaybookSpec())
    assert f"warning: Playbook formula: {said}\n" in PAGE
