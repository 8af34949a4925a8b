"""The Job that asks Prometheus, against a server with its API: its queries, its reading, its results."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import pytest

from answering import Answering, Reply, Request, answering
from combee.algo.tally import Pair
from combee.clients.answers import TooLongError
from combee.clients.prometheus import ATTEMPTS, MOST_BYTES, PrometheusApi
from combee.errors import EndpointError, TransientError
from combee.plan.playbook.judging import JudgeTask
from combee.plan.playbook.readings import Reading
from combee.pod.judge import config_map
from combee.pod.log import PodLog
from combee.pod.looking import Looking

BEGINS = 1_800_000_000
TESTED, AGAINST = "b" * 64, "a" * 64
TOKEN = "the-token-for-prometheus"


def form_of(request: Request) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(request.body.decode()).items()}


def matrix(*series: Sequence[tuple[float, str]]) -> bytes:
    result = [{"metric": {"n": str(n)}, "values": list(map(list, one))} for n, one in enumerate(series)]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def steps(form: dict[str, str]) -> range:
    return range(int(form["start"]), int(form["end"]) + 1, int(form["step"]))


def flat(request: Request) -> Reply:
    """Both versions score 0.9; the candidate takes 2 s and the active one 1 s."""
    form = form_of(request)
    said = {"score": "0.9", "latency": "2" if "bbbb" in form["query"] else "1"}
    value = said[form["query"].split("{")[0]]
    return 200, {"Content-Type": "application/json"}, matrix([(time, value) for time in steps(form)])


def task(url: str, **more: Any) -> JudgeTask:
    prometheus = {
        "url": url,
        "score": {"query": 'score{version="$(version)"}', "unit": "Ratio"},
        "latency": {"query": 'latency{version="$(version)"}', "unit": "Seconds"},
        "windowSeconds": 60,
        "delaySeconds": 30,
    }
    about = {"playbook": "formula", "namespace": "team", "uid": "u-1", "test": "test-1"}
    return JudgeTask.model_validate(
        {
            **about,
            "mode": "Prometheus",
            "prometheus": prometheus,
            "tested": TESTED,
            "against": AGAINST,
            "begins": BEGINS,
            **more,
        }
    )


@dataclass
class Scene:
    answer: Callable[[Request], Reply] = flat
    now: float = BEGINS + 330.0
    token: str = TOKEN
    made: list[dict[str, Any]] = field(default_factory=list)
    log: io.StringIO = field(default_factory=io.StringIO)
    counts: dict[str, int] = field(default_factory=dict)
    waited: list[float] = field(default_factory=list)
    server: Answering | None = None
    readings: list[Reading] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)

    def look(self, path: str = "", **more: Any) -> Scene:
        with answering(self.answer) as self.server:
            told = task(self.server.url + path, **more)

            def publish(pairs: Sequence[Pair], reading: Reading) -> None:
                self.pairs += pairs
                self.readings.append(reading)
                self.made.append(config_map(told, "job-1", pairs, reading=reading))

            looking = Looking(
                told, self.token, publish, PodLog(stream=self.log), lambda: self.now, self._open
            )
            asyncio.run(looking.run())
            self.counts = looking.counts()
        return self

    def _open(self, url: str, token: str, where: str) -> PrometheusApi:
        api = PrometheusApi.open(url, token, where)

        async def sleep(seconds: float) -> None:
            self.waited.append(seconds)

        api.sleep = sleep
        return api

    @property
    def asked(self) -> list[Request]:
        assert self.server is not None
        return self.server.asked


def test_both_are_asked_for_the_windows_that_are_over_and_a_configmap_has_what_came() -> None:
    scene = Scene().look("/prom")
    forms = [form_of(request) for request in scene.asked]
    assert [form["query"] for form in forms] == [
        'score{version="bbbbbbbbbbbb"}',
        'score{version="aaaaaaaaaaaa"}',
        'latency{version="bbbbbbbbbbbb"}',
        'latency{version="aaaaaaaaaaaa"}',
    ]
    assert {(form["start"], form["end"], form["step"]) for form in forms} == {
        (str(BEGINS + 60), str(BEGINS + 300), "60")
    }
    assert {request.path for request in scene.asked} == {"/prom/api/v1/query_range"}
    assert {request.headers["Authorization"] for request in scene.asked} == {f"Bearer {TOKEN}"}
    assert scene.pairs == [Pair("prometheus", n, 0.0, 2.0, time=BEGINS + 60 * n) for n in range(5)]
    (made,) = scene.made
    assert made["immutable"] and made["metadata"]["labels"]["combee.dev/canary"] == "test-1"
    reading = json.loads(made["data"]["reading.json"])
    assert (reading["first"], reading["last"], reading["compared"]) == (0, 4, 5)
    assert (reading["score"], reading["latency"]) == ([0.9, 0.9], [2.0, 1.0])
    assert scene.counts == {"windows": 5, "compared": 5} and TOKEN not in json.dumps(made)


def test_a_later_job_asks_for_later_windows_and_none_twice() -> None:
    scene = Scene(now=BEGINS + 600).look(first=5)
    assert [pair.number for pair in scene.pairs] == [5, 6, 7, 8]
    idle = Scene(now=BEGINS + 60).look()
    assert idle.asked == [] and idle.made == [] and "no window is over yet" in idle.log.getvalue()


def test_no_token_is_sent_where_none_is_given() -> None:
    assert "Authorization" not in Scene(token="").look().asked[0].headers


def test_an_answer_that_cannot_be_used_ends_the_look_and_is_handed_over() -> None:
    def several(request: Request) -> Reply:
        form = form_of(request)
        one = [(time, "0.9") for time in steps(form)]
        return 200, {}, matrix(one, one) if "aaaa" in form["query"] else matrix(one)

    scene = Scene(several).look()
    assert len(scene.asked) == 2 and scene.pairs == []
    (reading,) = scene.readings
    assert reading.trouble is not None and (reading.first, reading.last) == (0, 4)
    assert (reading.trouble.problem, reading.trouble.side) == ("SeveralSeries", "active")
    assert "SeveralSeries" in scene.log.getvalue()


@pytest.mark.parametrize("status", [400, 422])
def test_a_query_that_is_refused_is_told_in_the_servers_words(status: int) -> None:
    said = json.dumps({"status": "error", "errorType": "bad_data", "error": "unexpected )"}).encode()
    (reading,) = Scene(lambda request: (status, {}, said)).look().readings
    assert reading.trouble is not None
    assert (reading.trouble.problem, reading.trouble.detail) == ("BadQuery", "unexpected )")


def test_no_more_is_read_than_is_needed() -> None:
    (reading,) = Scene(lambda request: (200, {}, b" " * (20 * MOST_BYTES))).look().readings
    assert reading.trouble is not None and reading.trouble.problem == "TooLarge"


@pytest.mark.parametrize("status", [301, 307, 401, 403, 404, 405, 418])
def test_who_refuses_to_be_asked_ends_the_pod_with_what_to_do(status: int) -> None:
    with answering(lambda request: (200, {}, matrix())) as elsewhere:
        headers = {"Location": elsewhere.url} if status < 400 else {}
        scene = Scene(lambda request: (status, headers, b"no"))
        with pytest.raises(EndpointError, match=f"Prometheus answers {status}") as caught:
            scene.look()
        assert len(scene.asked) == 1 and elsewhere.asked == [], "the token went nowhere else"
    assert "canary.prometheus.url" in str(caught.value) and TOKEN not in str(caught.value)
    assert scene.made == []


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_asked_again_and_not_for_ever(status: int) -> None:
    scene = Scene(lambda request: (status, {"Retry-After": "7"}, b"busy"))
    with pytest.raises(TransientError, match=f"answers {status}"):
        scene.look()
    assert len(scene.asked) == ATTEMPTS and scene.made == []
    assert len(scene.waited) == ATTEMPTS - 1 and min(scene.waited) >= 7
    turns: list[int] = []

    def at_last(request: Request) -> Reply:
        turns.append(0)
        return (status, {}, b"") if len(turns) == 1 else flat(request)

    assert len(Scene(at_last).look().pairs) == 5


def test_an_answer_that_is_not_packed_as_it_says_is_none() -> None:
    scene = Scene(lambda request: (200, {"Content-Encoding": "gzip"}, b"no gzip"))
    with pytest.raises(TransientError, match="does not answer"):
        scene.look()


def test_nobody_there_is_told() -> None:
    with answering(flat) as gone:
        url = gone.url

    async def ask() -> None:
        api = PrometheusApi.open(url, "", "spec.canary.prometheus.url")

        async def at_once(seconds: float) -> None:
            """Nobody waits here."""

        api.sleep = at_once
        try:
            await api.query_range("x", 0, 60, 60)
        finally:
            await api.aclose()

    with pytest.raises(TransientError, match="Prometheus does not answer"):
        asyncio.run(ask())


def test_too_much_is_an_error_of_its_own() -> None:
    async def ask(url: str) -> None:
        api = PrometheusApi.open(url, "", "here")
        try:
            await api.query_range("x", 0, 60, 60)
        finally:
            await api.aclose()

    with (
        answering(lambda request: (200, {}, b"x" * (MOST_BYTES + 1))) as server,
        pytest.raises(TooLongError),
    ):
        asyncio.run(ask(server.url))


@pytest.mark.parametrize(
    "wrong",
    [
        {"prometheus": None},
        {"mode": "Shadow"},
        {"mode": "Replay", "prometheus": None},
        {"first": -1},
    ],
)
def test_a_task_that_does_not_fit_its_mode_is_refused(wrong: dict[str, Any]) -> None:
    raw = {**task("http://p").model_dump(mode="json", by_alias=True, exclude_none=True), **wrong}
    with pytest.raises(ValueError):
        JudgeTask.model_validate({name: value for name, value in raw.items() if value is not None})
