"""The server over real HTTP, in a process of its own, with faults on request."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import openai
import pytest
from sim_fixtures import body, data_file, rows

from waiting import wait_until

OPERATOR = Path(__file__).parents[3] / "operator"
RUN = "from combee.sim.main import app; app()"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", RUN, *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(OPERATOR)}


class Served:
    """A running server and plain HTTP to it."""

    def __init__(self, port: int, log: Path) -> None:
        self.port, self.log_path = port, log

    def call(
        self, method: str, path: str, sent: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            data = None if sent is None else json.dumps(sent).encode()
            link.request(method, path, data, {"content-type": "application/json", **headers})
            got = link.getresponse()
            return got.status, {k.lower(): v for k, v in got.getheaders()}, got.read()
        finally:
            link.close()

    def chat(self, text: str = "Hi", **more: Any) -> tuple[int, dict[str, str], Any]:
        status, headers, data = self.call("POST", "/v1/chat/completions", {**body(text), **more})
        return status, headers, json.loads(data)

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log_path.read_text().splitlines()]


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[Served]:
    port_file, log = folder / "port", folder / "answers.jsonl"
    told = ("--port", "0", "--port-file", str(port_file), "--log", str(log), "--time-scale", "0", *flags)
    process = subprocess.Popen(
        command("serve", "sim", *told),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert f"http://127.0.0.1:{port_file.read_text().strip()}/v1" in said
        assert "simulated model" in said
        yield Served(int(port_file.read_text()), log)
    finally:
        process.send_signal(signal.SIGINT)
        _, complained = process.communicate(timeout=120)
    assert "Traceback" not in complained, complained


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("sim")
    key = folder / "key.json"
    made = ("key", "--task", "formula", "--data", str(data_file("train")), "-o", str(key))
    subprocess.run(command(*made), env=environment(), check=True, capture_output=True)
    ignored = (
        "--gpu-memory-utilization",
        "0.9",
        "--enforce-eager",
        "--tensor-parallel-size=2",
        "--dtype",
        "auto",
    )
    with serving(folder, "--key", str(key), "--max-model-len", "4k", *ignored) as served:
        yield served


def client(served: Served, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key="none", max_retries=0, **more)


def test_models_say_that_they_are_simulated(plain: Served) -> None:
    model = json.loads(plain.call("GET", "/v1/models")[2])["data"][0]
    assert (model["id"], model["root"]) == ("sim", "simulated model")
    assert "simulated model" in model["owned_by"]
    assert plain.call("GET", "/health")[0] == 200


def test_a_completion_and_its_stream_say_the_same(plain: Served) -> None:
    asked = {"model": "sim", "messages": [{"role": "user", "content": rows()[3]["context"]}], "seed": 1}
    whole = client(plain).chat.completions.create(**asked)
    parts = list(
        client(plain).chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    assert (
        "".join(p.choices[0].delta.content or "" for p in parts if p.choices)
        == whole.choices[0].message.content
    )
    assert parts[-1].usage is not None
    assert parts[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert [p.choices[0].finish_reason for p in parts if p.choices][-1] == "stop"


def test_usage_counts_the_cached_prefix(plain: Served) -> None:
    text = "shared words " * 200
    plain.chat(text + "first")
    usage = plain.chat(text + "second")[2]["usage"]
    assert usage["prompt_tokens"] == -(-len(text + "second") // 4)
    assert 500 <= usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]


def test_embeddings_are_unit_vectors_in_both_encodings(plain: Served) -> None:
    got = client(plain).embeddings.create(
        model="sim", input=["net present value", "net present worth", "tree"]
    )
    a, b, c = (item.embedding for item in got.data)
    assert sum(x * x for x in a) == pytest.approx(1, abs=1e-5)
    assert sum(x * y for x, y in zip(a, b, strict=True)) > sum(x * y for x, y in zip(a, c, strict=True))
    asked = {"model": "sim", "input": "net present value", "encoding_format": "base64"}
    raw = json.loads(plain.call("POST", "/v1/embeddings", asked)[2])["data"][0]["embedding"]
    assert list(struct.unpack(f"<{len(a)}f", base64.b64decode(raw))) == pytest.approx(a)


def test_a_request_beyond_the_context_is_a_real_400(plain: Served) -> None:
    with pytest.raises(openai.BadRequestError, match="maximum context length is 4000 tokens") as refused:
        client(plain).chat.completions.create(
            model="sim", messages=[{"role": "user", "content": "x" * 20_000}]
        )
    assert refused.value.code == "context_length_exceeded"
    assert plain.chat("x" * 12_000, max_tokens=2_000)[0] == 400
    assert plain.chat("x" * 12_000, max_tokens=900)[0] == 200
    texts = {"model": "sim", "input": ["short", "x" * 20_000]}
    assert plain.call("POST", "/v1/embeddings", texts)[0] == 400


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(
            {"model": "other", "messages": [{"role": "user", "content": "x"}]}, 404, id="unknown model"
        ),
        pytest.param({"model": "sim", "messages": []}, 400, id="no messages"),
        pytest.param(
            {"model": "sim", "messages": [{"role": "user", "content": 4}]}, 400, id="content of no form"
        ),
        pytest.param({"model": "sim", "messages": "x", "n": 3}, 400, id="several choices"),
        pytest.param(["x"], 400, id="no object"),
        pytest.param(
            {"model": "sim", "messages": [{"role": "user", "content": "x"}], "max_tokens": 0},
            400,
            id="no room",
        ),
    ],
)
def test_bad_requests_are_told_so_in_openais_form(plain: Served, sent: Any, status: int) -> None:
    got, _, data = plain.call("POST", "/v1/chat/completions", sent)
    assert got == status
    assert set(json.loads(data)["error"]) == {"message", "type", "param", "code"}


def test_a_reply_beyond_max_tokens_is_cut(plain: Served) -> None:
    got = plain.chat(max_tokens=3)[2]
    assert got["choices"][0]["finish_reason"] == "length"
    assert got["usage"]["completion_tokens"] == 3


def test_metrics_have_vllms_names(plain: Served) -> None:
    plain.chat("count me")
    text = plain.call("GET", "/metrics")[2].decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    for name in ("prompt_tokens_total", "generation_tokens_total", "prefix_cache_queries_total"):
        assert float(values[f'vllm:{name}{{model_name="sim"}}']) > 0
    assert values['vllm:num_requests_running{model_name="sim"}'] == "0"
    assert values['vllm:num_requests_waiting{model_name="sim"}'] == "0"
    label = '{model_name="sim",le="+Inf"}'
    count = values['vllm:e2e_request_latency_seconds_count{model_name="sim"}']
    assert values[f"vllm:e2e_request_latency_seconds_bucket{label}"] == count


def test_every_answer_is_logged_once_by_digest_and_role_and_never_by_text(plain: Served) -> None:
    before = len(plain.log())
    for _ in range(2):
        plain.chat("a secret question")
    plain.chat("a secret question", stream=False, temperature=0.5)
    lines = plain.log()[before:]
    assert [line["n"] for line in lines] == list(range(before + 1, before + 4))
    assert lines[0]["request"] == lines[1]["request"] != lines[2]["request"]
    assert {(line["role"], line["status"]) for line in lines} == {("chat", 200)}
    assert "secret" not in plain.log_path.read_text()


def test_a_request_that_breaks_off_is_nobodys_error(tmp_path: Path) -> None:
    with serving(tmp_path, "--served-model-name", "sim") as served:
        link = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
        link.putrequest("POST", "/v1/chat/completions")
        link.putheader("content-length", "1000")
        link.endheaders(b'{"model"')
        link.close()
        assert served.call("GET", "/health")[0] == 200


def test_the_key_is_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path, "--api-key", "right", "--served-model-name", "sim") as served:
        assert served.chat()[0] == 401
        assert served.call("GET", "/v1/models")[0] == 401
        assert served.call("GET", "/v1/models", authorization="Bearer right")[0] == 200
        assert served.call("GET", "/health")[0] == 200


def statuses(served: Served, count: int) -> Counter[int]:
    return Counter(served.chat(f"question {i}")[0] for i in range(count))


def test_errors_and_rate_limits_come_at_their_share_and_a_retry_gets_through(tmp_path: Path) -> None:
    with serving(
        tmp_path, "--error-rate", "0.3", "--rate-limit-rate", "0.2", "--retry-after-seconds", "2"
    ) as served:
        got = statuses(served, 200)
        assert 0.12 <= got[429] / 200 <= 0.3
        assert 0.14 <= got[500] / 200 <= 0.36
        told = next(headers for i in range(200) for s, headers, _ in [served.chat(f"more {i}")] if s == 429)
        assert told["retry-after"] == "2"
        assert any(served.chat("again and again")[0] == 200 for _ in range(12))
        assert Counter(line["status"] for line in served.log())[500] >= got[500]


def test_truncated_and_malformed_replies_are_no_json(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    for flag in ("--truncate-rate", "--malform-rate"):
        with serving(tmp_path, f"{flag}=1") as served:
            asked = body(rows()[0]["context"], 0, schema)
            reply = json.loads(served.call("POST", "/v1/chat/completions", asked)[2])
            with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
                json.loads(reply["choices"][0]["message"]["content"])


def test_connections_are_dropped(tmp_path: Path) -> None:
    with serving(tmp_path, "--reset-rate", "1") as served:
        with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
            served.chat()
        with pytest.raises(openai.APIConnectionError):
            client(served).chat.completions.create(model="sim", messages=[{"role": "user", "content": "x"}])
        assert served.call("GET", "/health")[0] == 200


def test_a_hanging_call_hangs_until_its_client_goes(tmp_path: Path) -> None:
    with serving(tmp_path, "--hang-one-in", "1") as served:
        link = http.client.HTTPConnection("127.0.0.1", served.port)
        link.request(
            "POST", "/v1/chat/completions", json.dumps(body("x")), {"content-type": "application/json"}
        )
        for _ in range(3):  # those that came later are answered
            assert served.call("GET", "/health")[0] == 200
        link.sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            link.sock.recv(1)
        assert served.log() == []
        link.close()
        wait_until("a line of the log", served.log)
        assert [line["status"] for line in served.log()] == [0]


def modelled(served: Served) -> float:
    """Seconds that all calls took, by the law of latency."""
    text = served.call("GET", "/metrics")[2].decode()
    (line,) = [line for line in text.splitlines() if line.startswith("vllm:e2e_request_latency_seconds_sum")]
    return float(line.rsplit(" ", 1)[1])


def test_one_in_n_is_slow_by_the_factor(tmp_path: Path) -> None:
    flags = ("--slow-one-in", "4", "--slow-factor", "30")
    with serving(tmp_path, *flags) as served:
        sums = [0.0]
        for i in range(24):
            served.chat(f"question {i}")
            sums.append(modelled(served))
    by_law = [after - before for before, after in pairwise(sums)]
    middle = sorted(by_law)[8]
    assert 2 <= sum(seconds > 5 * middle for seconds in by_law) <= 12
    (tmp_path / "port").unlink()
    with serving(tmp_path, "--time-scale", "0.02", *flags) as served:
        for i, seconds in enumerate(by_law):
            began = time.monotonic()
            served.chat(f"question {i}")
            assert time.monotonic() - began >= 0.02 * 0.95 * seconds


def test_user_errors_name_file_and_line_and_exit_2(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(
        '{"context": "Use formula X to answer. Question: y. Answer:", "target": "1"}\n{"context": 3}\n'
    )
    ran = subprocess.run(
        command("key", "--task", "formula", "--data", str(bad), "-o", str(tmp_path / "key.json")),
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, f"{bad}:2" in ran.stderr) == (2, True)
    ran = subprocess.run(
        command("serve", "sim", "--key", str(bad)), env=environment(), capture_output=True, text=True
    )
    assert (ran.returncode, str(bad) in ran.stderr) == (2, True)
