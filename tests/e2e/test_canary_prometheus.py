"""A canary of mode Prometheus: the pod, as a process, asks a real Prometheus, and the operator's rule
judges."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from e2e_support import environment
from prometheus_real import prometheus

from answering import Request
from combee.algo.canary import Rules
from combee.algo.tally import Tally
from combee.api.prometheus import Prometheus
from combee.plan.playbook.judging import read_pairs
from combee.plan.playbook.readings import Reading, read_reading, reading_verdict
from tls_server import TlsServer
from warm import run_program

pytestmark = pytest.mark.e2e
WINDOWS, WINDOW, SCRAPE = 160, 60, 15
TESTED, AGAINST = "b" * 64, "a" * 64
RULES = Rules(epsilon=0.05, min_samples=20, duration_seconds=0, deadline_seconds=10**6)


def samples(begins: int) -> str:
    """Counters as a service has them: the candidate answers 5 of 6 well and slowly, the active version all
    but one of sixty. Per scrape 60 requests each; ``other`` has no requests at all."""
    lines = ["# TYPE answers counter", "# TYPE good counter", "# TYPE seconds counter", "# TYPE stars gauge"]
    rows: dict[str, list[str]] = {"answers": [], "good": [], "seconds": [], "stars": []}
    sides = {"b" * 12: (60, 50, 120.0), "a" * 12: (60, 59, 60.0), "other": (0, 0, 0.0)}
    for tick in range((WINDOWS * WINDOW) // SCRAPE + 1):
        at = begins + tick * SCRAPE
        for version, (count, good, seconds) in sides.items():
            label = f'{{version="{version}"}}'
            rows["answers"].append(f"answers_total{label} {count * (tick + 1)} {at}")
            rows["good"].append(f"good_total{label} {good * (tick + 1)} {at}")
            rows["seconds"].append(f"seconds_total{label} {seconds * (tick + 1)} {at}")
            rows["stars"].append(f'stars{{version="{version}",pod="p"}} 4.5 {at}')
            rows["stars"].append(f'stars{{version="{version}",pod="q"}} 3.5 {at}')
    text = []
    for head, name in zip(lines, rows, strict=True):
        by_series = sorted(rows[name], key=lambda row: row.split(" ", 1)[0])
        text += [head, *by_series]
    return "\n".join([*text, "# EOF", ""])


@pytest.fixture(scope="module")
def begins() -> int:
    """Long enough ago for all windows to be over."""
    return (int(time.time()) // WINDOW) * WINDOW - (WINDOWS + 5) * WINDOW


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, begins: int) -> Iterator[str]:
    with prometheus(tmp_path_factory.mktemp("prometheus"), samples(begins)) as there:
        yield there


@dataclass
class Pod:
    """The layout of a pod, and an API server that takes its ConfigMap."""

    root: Path
    api: TlsServer
    made: list[dict[str, Any]] = field(default_factory=list)
    log: str = ""

    def __post_init__(self) -> None:
        account = self.root / "var/run/secrets/kubernetes.io/serviceaccount"
        for folder in (account, self.root / "dev"):
            folder.mkdir(parents=True)
        (account / "token").write_text("the-token")
        (account / "ca.crt").write_bytes(self.api.ca_file.read_bytes())
        self.api.answer = self._answer

    def _answer(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        self.made.append(json.loads(request.body))
        return 201, {}, b"{}"

    def look(self, asked: dict[str, Any], begins: int) -> tuple[Tally, Reading]:
        task = {
            "playbook": "formula",
            "namespace": "team",
            "uid": "u-1",
            "test": "test-1",
            "mode": "Prometheus",
            "prometheus": asked,
            "tested": TESTED,
            "against": AGAINST,
            "begins": begins,
        }
        variables = {
            "COMBEE_ROOT": str(self.root),
            "COMBEE_JUDGE": json.dumps(task),
            "KUBERNETES_SERVICE_HOST": "localhost",
            "KUBERNETES_SERVICE_PORT": str(self.api.port),
            "HOME": str(self.root),
        }
        ended = run_program(["combee-worker", "judge"], environment(**variables), seconds=300)
        self.log = ended.stderr
        assert ended.returncode == 0, ended.stderr
        data = self.made[-1]["data"]
        reading = read_reading(data["reading.json"])
        assert reading is not None
        return Tally().with_pairs("test-1", read_pairs(data["pairs.json"])), reading


@pytest.fixture
def pod(tls: TlsServer, tmp_path: Path) -> Pod:
    return Pod(tmp_path / "pod", tls)


def asking(url: str, **more: Any) -> dict[str, Any]:
    only = '{version="$(version)"}[$(window)]'
    return {
        "url": url,
        "score": {
            "query": f"100 * sum(rate(good_total{only})) / sum(rate(answers_total{only}))",
            "unit": "Percent",
        },
        "latency": {
            "query": f"sum(rate(seconds_total{only})) / sum(rate(answers_total{only}))",
            "unit": "Seconds",
        },
        **more,
    }


def said(asked: dict[str, Any], tally: Tally, reading: Reading) -> tuple[str, str]:
    judged = reading_verdict(Prometheus.model_validate(asked), tally, reading, RULES, 9999.0)
    print(judged.message)
    return judged.outcome, judged.message


def test_what_a_service_counts_refuses_the_worse_candidate(pod: Pod, url: str, begins: int) -> None:
    asked = asking(url)
    tally, reading = pod.look(asked, begins)
    assert reading.trouble is None and reading.compared >= WINDOWS - 2, pod.log
    assert reading.score == pytest.approx((100 * 50 / 60, 100 * 59 / 60), abs=0.01)
    assert reading.latency == pytest.approx((2.0, 1.0), abs=0.001)
    assert tally.expenses["latency"].mean == pytest.approx(2.0, abs=0.001)
    outcome, message = said(asked, tally, reading)
    assert outcome == "Failed" and message.startswith("-15.000 [")
    assert "percent vs active" in message and "2 against 1 s" in message


def test_an_equal_one_passes_by_points(pod: Pod, url: str, begins: int) -> None:
    score = {"query": 'avg(stars{version="$(version)"})', "unit": "Points", "lowest": 1, "highest": 5}
    asked = asking(url, score=score)
    del asked["latency"]
    tally, reading = pod.look(asked, begins)
    outcome, message = said(asked, tally, reading)
    assert outcome == "Passed" and "4 against 4 points" in message
    assert "the lower end is above -0.200 points" in message


@pytest.mark.parametrize(
    ("query", "problem", "words"),
    [
        ('stars{version="$(version)"}', "SeveralSeries", "2 series"),
        ('sum(nothing{version="$(version)"})', "Empty", "gives no series"),
        ('good_total{version="$(version)"}[1m]', "BadQuery", "invalid expression type"),
        ('sum(good_total{version="$(version)"}', "BadQuery", "parse error"),
        ('"$(version)"', "BadQuery", "invalid expression type"),
        ('sum(good_total{version="$(version)"}) * 1e9', "OutOfRange",
         "outside of its unit (Percent, 0 to 100)"),
        (
            ('0 * sum(rate(good_total{version="$(version)"}[1m])) / '
            'sum(rate(answers_total{version="other"}[1m]))'),
            "NotANumber",
            "divide by (... > 0)",
        ),
    ],
)  # fmt: skip
def test_what_prometheus_makes_of_a_wrong_query_says_what_to_do(
    pod: Pod, url: str, begins: int, query: str, problem: str, words: str
) -> None:
    asked = asking(url, score={"query": query, "unit": "Percent"})
    tally, reading = pod.look(asked, begins)
    assert reading.trouble is not None and reading.trouble.problem == problem
    outcome, message = said(asked, tally, reading)
    assert outcome == "Error" and words in message and tally.pairs == 0
