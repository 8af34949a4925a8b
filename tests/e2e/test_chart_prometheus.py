"""The chart's alerts and dashboard, evaluated by a real Prometheus on what operator and gateway count."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_real import program, prometheus

from combee.api.status import Phase, RoleUsage, RunStatus, SpendStatus
from combee.gateway.metrics import Metrics as GatewayMetrics
from combee.operator.metrics import Metrics

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "chart"))
from chart_tools import objects

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.e2e
SCRAPE, MINUTE = 30, 60
GATEWAY = {"namespace": "team-a"}
"""what scraping adds to a gateway's series, which the alerts group by."""


@dataclass
class Programs:
    """An operator's and a gateway's own metrics, and what they were at each scrape."""

    operator: Metrics = field(default_factory=Metrics)
    gateway: GatewayMetrics = field(default_factory=GatewayMetrics)
    scraped: dict[str, dict[int, float]] = field(default_factory=dict)
    """series -> number of a scrape -> value."""
    scrapes: int = 0

    def scrape(self) -> None:
        for registry, added in ((self.operator.registry, {}), (self.gateway.registry, GATEWAY)):
            for name, value in _samples(registry, added):
                self.scraped.setdefault(name, {})[self.scrapes] = value
        self.scrapes += 1

    def live(self, minutes: int, each_minute: Callable[[int], None]) -> None:
        """Do what happens in each minute, and be scraped meanwhile."""
        for minute in range(minutes):
            each_minute(minute)
            for _ in range(MINUTE // SCRAPE):
                self.scrape()

    def series(self) -> list[dict[str, str]]:
        """The scrapes as promtool's tests have them."""
        return [
            {"series": name, "values": " ".join(_shown(values.get(n)) for n in range(self.scrapes))}
            for name, values in self.scraped.items()
        ]

    def openmetrics(self, begins: int) -> str:
        """The scrapes with their times, to fill a Prometheus with."""
        lines = [
            f"{name} {values[n]} {begins + n * SCRAPE}"
            for name, values in sorted(self.scraped.items())
            for n in sorted(values)
        ]
        return "\n".join([*lines, "# EOF", ""])


def _samples(registry: CollectorRegistry, added: dict[str, str]) -> Iterator[tuple[str, float]]:
    for metric in registry.collect():
        for sample in metric.samples:
            if not sample.name.endswith("_created"):
                labels = ",".join(f'{key}="{value}"' for key, value in {**sample.labels, **added}.items())
                yield f"{sample.name}{{{labels}}}", sample.value


def _shown(value: float | None) -> str:
    return "_" if value is None else f"{value:g}"


# -- alerts --------------------------------------------------------------------------------------------


def failing(per_minute: int) -> Programs:
    programs = Programs()
    programs.live(30, lambda _: programs.operator.failures.inc(per_minute))
    return programs


def reconciling(seconds: float) -> Programs:
    programs = Programs()
    programs.live(40, lambda _: programs.operator.ticked(seconds))
    return programs


def once(event: str) -> Programs:
    """Nothing for ten minutes, then one event: the first that this operator has seen."""
    programs = Programs()

    def minute(number: int) -> None:
        if number == 10:
            programs.operator.versions.labels(event).inc()

    programs.live(30, minute)
    return programs


def blind(minutes: int) -> Programs:
    """A gateway that hears of no versions for a while, and of Playbooks always."""
    programs = Programs()

    def heard(minute: int) -> None:
        programs.gateway.watching.labels("Playbook").set(1)
        programs.gateway.watching.labels("PlaybookVersion").set(not 10 <= minute < 10 + minutes)

    programs.live(30, heard)
    return programs


STORIES: list[tuple[str, Programs, int, dict[str, str] | None]] = [
    ("CombeeReconcilesFail", failing(2), 20, {}),
    ("CombeeReconcilesFail", failing(1), 20, None),
    ("CombeeReconcilesSlow", reconciling(2.0), 30, {}),
    ("CombeeReconcilesSlow", reconciling(2.0), 5, None),
    ("CombeeReconcilesSlow", reconciling(0.2), 30, None),
    ("CombeePlaybookRolledBack", once("RolledBack"), 15, {}),
    ("CombeePlaybookRolledBack", once("Promoted"), 15, None),
    ("CombeeContentReplaced", once("ContentReplaced"), 15, {}),
    ("CombeeContentReplaced", once("PairsRefused"), 15, {}),
    ("CombeeContentReplaced", once("RolledBack"), 15, None),
    ("CombeeGatewayBlind", blind(10), 18, {**GATEWAY, "kind": "PlaybookVersion"}),
    ("CombeeGatewayBlind", blind(3), 18, None),
    ("CombeeGatewayBlind", blind(3), 12, None),
]
"""alert, what the programs counted, the minute at which it is looked at, its labels (None: silent)."""


@pytest.fixture(scope="module")
def rules() -> dict[str, Any]:
    """The spec of the chart's PrometheusRule, which is a file of rules."""
    (made,) = objects("everything", "PrometheusRule")
    spec: dict[str, Any] = made["spec"]
    return spec


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_when_it_should_and_not_when_it_should_not(
    rules: dict[str, Any], tmp_path: Path
) -> None:
    alerts = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    for fires in (True, False):
        assert {name for name, _, _, labels in STORIES if (labels is not None) == fires} == set(alerts)
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rules))
    promtool("check", "rules", file)
    tests = [
        {
            "interval": f"{SCRAPE}s",
            "name": f"{name} {'fires' if labels is not None else 'is silent'}",
            "input_series": programs.series(),
            "alert_rule_test": [
                {
                    "eval_time": f"{minute}m",
                    "alertname": name,
                    "exp_alerts": [
                        {
                            "exp_labels": {**alerts[name]["labels"], **labels},
                            "exp_annotations": alerts[name]["annotations"],
                        }
                    ]
                    if labels is not None
                    else [],
                }
            ],
        }
        for name, programs, minute, labels in STORIES
    ]
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": [str(file)], "evaluation_interval": "1m", "tests": tests})
    )
    promtool("test", "rules", tmp_path / "tests.yaml")


# -- dashboard -----------------------------------------------------------------------------------------

MINUTES = 30


def day() -> Programs:
    """A run that learns for half an hour and ends, and a Playbook whose requests a gateway passes on."""
    programs, key = Programs(), ("team-a", "formula")
    operator, gateway = programs.operator, programs.gateway

    def minute(number: int) -> None:
        over, ends = number >= MINUTES - 2, number == MINUTES - 2
        status = RunStatus(
            phase=Phase.LEARNED if over else Phase.LEARNING,
            iteration=number,
            spend=SpendStatus(rollouts=60 * number),
            usage={"task": RoleUsage(prompt_tokens=6000 * number, completion_tokens=600 * number)},
        )
        operator.saw(key, status)
        operator.saw(("team-a", "other"), RunStatus(phase=Phase.LEARNING))
        operator.ticked(0.02)
        operator.reaction_seconds.observe(0.1)
        operator.made.labels("Job").inc(3)
        if number == 0:
            gateway.switched("formula", "", "a" * 64)
        if ends:
            operator.versions.labels("Promoted").inc()
            gateway.switched("formula", "a" * 64, "b" * 64)
        gateway.watching.labels("Playbook").set(1)
        gateway.in_flight.set(2)
        for _ in range(6):
            gateway.sent_on("formula", 0.002)
            gateway.began("formula", 0.2)
            gateway.answered("formula", 200, 0.8)
            gateway.mirrored.labels("formula", "Kept").inc()

    programs.live(MINUTES, minute)
    return programs


Asked = Callable[[str], dict[tuple[str, ...], float]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    begins = (int(time.time()) // MINUTE - 3 * MINUTES) * MINUTE
    ends = begins + (MINUTES * MINUTE // SCRAPE - 1) * SCRAPE
    with prometheus(tmp_path_factory.mktemp("prometheus"), day().openmetrics(begins)) as url:

        def query(expression: str) -> dict[tuple[str, ...], float]:
            words = urllib.parse.urlencode({"query": expression, "time": ends})
            with urllib.request.urlopen(f"{url}/api/v1/query?{words}", timeout=30) as answer:
                result = json.load(answer)["data"]["result"]
            return {
                tuple(one["metric"][name] for name in sorted(one["metric"]) if name != "__name__"): float(
                    one["value"][1]
                )
                for one in result
            }

        yield query


PANELS = json.loads((ROOT / "charts/combee-operator/files/dashboard.json").read_text())["panels"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel.get("targets", ())]


@pytest.mark.parametrize(("title", "expression"), QUERIES, ids=[f"{t}: {e}" for t, e in QUERIES])
def test_each_query_of_the_dashboard_gives_numbers(title: str, expression: str, ask: Asked) -> None:
    answered = ask(expression)
    assert answered and all(math.isfinite(value) for value in answered.values()), title


def expression_of(title: str) -> str:
    return next(expression for panel, expression in QUERIES if panel == title)


@pytest.mark.parametrize(
    ("title", "labels", "value"),
    [
        ("Runs by phase", ("Learned",), 1.0),
        ("Runs that ended, a day", ("Learned",), 1.0),
        ("What happened to versions, a day", ("Promoted",), 1.0),
        ("Switches, a day", ("formula",), 1.0),
        ("Iterations and rollouts, a minute", (), 1.0),
        ("Tokens by model role, a second", ("prompt", "task"), 100.0),
        ("Objects made, a minute", ("Job",), 3.0),
        ("Requests by status, a second", ("200", "formula"), 0.1),
        ("Version served", ("b" * 64, "formula"), 1.0),
    ],
)
def test_the_numbers_are_those_that_were_counted(
    title: str, labels: tuple[str, ...], value: float, ask: Asked
) -> None:
    """Prometheus extrapolates to the ends of a range, so that counts are about right."""
    assert ask(expression_of(title))[labels] == pytest.approx(value, rel=0.15)
