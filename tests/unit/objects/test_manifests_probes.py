"""When a server counts as started: the program that its startup probe runs, against servers of all kinds."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from manifests_makers import PLAIN, SETTINGS, objects_of, run_of

from combee.objects.probes import ATTEMPT_SECONDS, PROGRAM, STARTUP_SECONDS, probes

MODELS = {"data": [{"id": "openai/gpt-oss-120b"}, {"id": "a-lora"}]}
CHAT = {"choices": [{"message": {"content": None}, "finish_reason": "length"}]}
Answer = Callable[[str, dict[str, Any]], tuple[int, Any]]


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[int, list[tuple[str, dict[str, Any]]]]]:
    """A server that answers as told; its port, and what it was asked."""
    asked: list[tuple[str, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._do({})

        def do_POST(self) -> None:
            self._do(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def _do(self, body: dict[str, Any]) -> None:
            asked.append((self.path, body))
            status, said = answer(self.path, body)
            data = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def command(port: int, answers: Any = "chat") -> list[str]:
    """The program and its words, for another port."""
    words = list(probes(answers)["startupProbe"]["exec"]["command"])
    words[words.index("8000")] = str(port)
    return words


def attempt(port: int, monkeypatch: pytest.MonkeyPatch, answers: Any = "chat") -> str:
    """One attempt on a clock that only its pauses move; why it failed, empty when it did not."""
    now = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0],
        time_ns=time.time_ns,
        sleep=lambda seconds: now.__setitem__(0, now[0] + seconds),
    )
    program = PROGRAM.replace(", sys, time\n", ", sys\n")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "argv", ["-c", *command(port, answers)[5:]])
        with pytest.raises(SystemExit) as ended:
            exec(compile(program, "probe", "exec"), {"time": clock})
    return "" if ended.value.code == 0 else str(ended.value.code)


def well(path: str, body: dict[str, Any]) -> tuple[int, Any]:
    return 200, MODELS if path == "/v1/models" else CHAT


def test_a_server_has_started_when_it_has_answered_a_request() -> None:
    """As a kubelet runs it: a process of its own."""
    with serving(well) as (port, asked):
        done = subprocess.run(
            [sys.executable, *command(port)[1:]], capture_output=True, text=True, timeout=60
        )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    (first, _), (second, body) = asked
    assert (first, second) == ("/v1/models", "/v1/chat/completions")
    assert (body["model"], body["max_tokens"], len(body["messages"])) == ("openai/gpt-oss-120b", 1, 1)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda path, body: (503, b"loading"), "/v1/models answers 503: loading"),
        (lambda path, body: (200, {"data": []}), "an answer of another form than expected: IndexError"),
        (lambda path, body: (200, b"<html>"), "an answer of another form than expected: JSONDecodeError"),
        (
            lambda path, body: (200, MODELS) if path == "/v1/models" else (500, b"CUDA error"),
            "/v1/chat/completions answers 500: CUDA error",
        ),
        (
            lambda path, body: (200, MODELS) if path == "/v1/models" else (200, {"choices": []}),
            "an answer of another form than expected: IndexError",
        ),
    ],
    ids=["loads", "lists no model", "is something else", "cannot run its model", "answers nothing"],
)
def test_a_server_that_answers_no_request_has_not_and_it_says_why(
    answer: Answer, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(answer) as (port, _):
        assert attempt(port, monkeypatch).startswith(why)


def test_nobody_there_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(well) as (port, _):
        pass
    assert "/v1/models does not answer: " in attempt(port, monkeypatch)


def test_an_attempt_goes_on_until_the_server_answers_and_never_asks_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = iter([500] * 20)

    def late(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return (200, MODELS) if path == "/v1/models" else (next(refused, 200), CHAT)

    with serving(late) as (port, asked):
        assert attempt(port, monkeypatch) == ""
    bodies = [json.dumps(body) for path, body in asked if path == "/v1/chat/completions"]
    assert len(set(bodies)) == len(bodies) == 21


def test_an_attempt_lasts_as_long_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second between any two requests; so many such failures are the hour that a server has."""
    with serving(lambda path, body: (503, b"")) as (port, asked):
        attempt(port, monkeypatch)
    assert len(asked) - 1 == ATTEMPT_SECONDS
    probe = probes()["startupProbe"]
    assert probe["failureThreshold"] * ATTEMPT_SECONDS == STARTUP_SECONDS
    assert probe["timeoutSeconds"] > ATTEMPT_SECONDS


def test_an_engine_for_embeddings_is_asked_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"name": "small", "vllm": {"model": "example/embedder", "gpusPerReplica": 0}}
    models = {**PLAIN["models"], "embedder": {"engineRef": {"name": "small"}}}
    spec = {**PLAIN, "engines": [*PLAIN["engines"], small], "models": models}
    made = dict(objects_of(run_of(spec), settings=SETTINGS))

    def path(engine: str) -> str:
        (server,) = made[f"engine-{engine}-deployment"]["spec"]["template"]["spec"]["containers"]
        return str(server["startupProbe"]["exec"]["command"][6])

    assert (path("main"), path("small")) == ("/v1/chat/completions", "/v1/embeddings")

    def embeds(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return 200, MODELS if path == "/v1/models" else {"data": [{"embedding": [0.0]}]}

    with serving(embeds) as (port, asked):
        assert attempt(port, monkeypatch, "embeddings") == ""
    assert [path for path, _ in asked] == ["/v1/models", "/v1/embeddings"] and asked[1][1]["input"]


def test_the_kubelet_finds_nothing_in_the_program_to_expand() -> None:
    assert "$" not in PROGRAM
