"""docs/metrics.md names every metric that there is, with its labels, and none that is not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from combee.gateway.metrics import Metrics as GatewayMetrics
from combee.operator.metrics import Metrics
from combee.plan.playbook.types import EVENTS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text()
ROW = re.compile(r"^\| `(combee_\w+)` \| ([\w, ]*) ?\| ", re.MULTILINE)


def named(registry: CollectorRegistry) -> dict[str, tuple[str, ...]]:
    found = {}
    for collector in registry._collector_to_names:
        suffix = "_total" if isinstance(collector, Counter) else ""
        found[collector._name + suffix] = tuple(collector._labelnames)  # type: ignore[attr-defined]
    return found


def test_the_page_and_the_programs_say_the_same() -> None:
    written = {
        name: tuple(label.strip() for label in labels.split(",") if label.strip())
        for name, labels in ROW.findall(PAGE)
    }
    assert written == named(Metrics().registry) | named(GatewayMetrics().registry)
    assert f"| {', '.join(EVENTS)}; all begin at 0 |" in PAGE


def test_dashboard_and_alerts_ask_for_nothing_that_is_not_there() -> None:
    chart = Path(__file__).resolve().parents[3] / "charts" / "combee-operator"
    there = named(Metrics().registry) | named(GatewayMetrics().registry)
    for file in ("files/dashboard.json", "templates/metrics.yaml"):
        text = (chart / file).read_text()
        asked = set(re.findall(r"\bcombee_\w+", text))
        assert asked and {name.removesuffix("_bucket") for name in asked} <= set(there), file
    panels = json.loads((chart / "files" / "dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize(("resync_seconds", "patience"), [(5.0, 180.0), (60.0, 180.0), (3600.0, 10_800.0)])
def test_alive_while_reconciles_end_in_time(resync_seconds: float, patience: float) -> None:
    """Nothing need happen between two resyncs: with rare resyncs an idle operator is not killed again and
    again."""
    now = [0.0]
    metrics = Metrics(resync_seconds=resync_seconds, clock=lambda: now[0])
    metrics.ticked(0.1)
    now[0] = patience - 1
    assert metrics.alive(waiting=1)
    now[0] = patience
    assert not metrics.alive(waiting=1)
    assert metrics.alive(waiting=0)
    now[0] += patience - 1
    assert metrics.alive(waiting=1)
    metrics.ticked(0.1)
    now[0] += patience - 1
    assert metrics.alive(waiting=1)
