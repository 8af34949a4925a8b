"""No secret, prompt or row of data in anything that is printed, logged or reported, even when the
endpoint's own errors repeat all of them. The store may hold rows; nothing at all holds the key."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from e2e_support import COMBEE, ENDED, FORMULA, MODEL, Manifest, Sim, Sims, environment, process, result_of

pytestmark = pytest.mark.e2e

KEY = "sk-4f1dNOBODYMAYSEETHIS99"
MARK = "XQ7-VANTABLACK"
"""In every row of train and heldOut; shorter than any stretch that a filter could look for."""
ROW = f"{MARK}\nholdings of Jane Doe, account 4471-0098-1123: "
LOUD = {"PYTHONDEVMODE": "1", "PYTHONASYNCIODEBUG": "1", "OPENAI_LOG": "debug", "HTTPX_LOG_LEVEL": "trace"}

Fault = Callable[[dict[str, Any], bytes, str], tuple[int, bytes] | None]
"""(request, its bytes, its Authorization) -> status and body, or None to answer as the model does."""


class Echo(ThreadingHTTPServer):
    """Stands before the simulated model, takes the mark out of a request, and fails as it is told."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.fault: Fault = lambda request, raw, key: None
        self.prompts: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Echo
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(*self._ask(None))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        request = json.loads(raw)
        self.server.prompts.update(message["content"] for message in request["messages"])
        failed = self.server.fault(request, raw, self.headers["Authorization"])
        self._send(*(failed or self._ask(raw.replace(json.dumps(ROW)[1:-1].encode(), b""))))

    def _ask(self, body: bytes | None) -> tuple[int, bytes]:
        headers = {"Authorization": self.headers["Authorization"], "Content-Type": "application/json"}
        address = self.server.upstream.removesuffix("/v1") + self.path
        with urllib.request.urlopen(urllib.request.Request(address, body, headers)) as answer:
            return answer.status, answer.read()

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silence."""


@pytest.fixture(scope="module")
def sim(key: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    running = Sims(tmp_path_factory.mktemp("sims"))
    yield running.start("--key", key, "--time-scale", "0", "--api-key", KEY)
    for one in running.started:
        one.stop()


@pytest.fixture
def echo(sim: Sim) -> Iterator[Echo]:
    server = Echo(sim.url)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def path(echo: Echo, manifest: Manifest, tmp_path: Path) -> Path:
    """A manifest whose every row holds the mark and whose endpoint wants the key."""
    for name, count in (("train", 40), ("heldout", 30)):
        rows = [json.loads(line) for line in (FORMULA / f"{name}.jsonl").read_text().splitlines()[:count]]
        marked = [json.dumps({**row, "context": ROW + row["context"]}) + "\n" for row in rows]
        (tmp_path / f"{name}.jsonl").write_text("".join(marked))
    role = {"endpoint": {"url": echo.url, "model": MODEL, "apiKeySecretRef": {"name": "llm", "key": "token"}}}
    return manifest(
        train=tmp_path / "train.jsonl",
        held_out=tmp_path / "heldout.jsonl",
        engines=[],
        models={"task": role, "proposer": role},
        batching={"mode": "Fixed", "size": 40, "reason": "test"},
        workers={"concurrency": 16},
    )


def run(path: Path, out: Path, *flags: str, **extra: str) -> subprocess.CompletedProcess[str]:
    secret = ("--secret", "llm/token=env:COMBEE_TEST_KEY")
    return process("run", "-f", path, "-o", out, *secret, *flags, COMBEE_TEST_KEY=KEY, **extra)


def is_private(done: subprocess.CompletedProcess[str], out: Path, echo: Echo) -> None:
    """Assert that key, mark and prompts are nowhere but where they may be."""
    told = {"stdout": done.stdout, "stderr": done.stderr}
    files = [file for file in out.rglob("*") if file.is_file()]
    store = [file for file in files if (out / "store") in file.parents]
    for file in files:
        assert KEY.encode() not in file.read_bytes(), file
    told |= {str(file): file.read_text() for file in files if file not in store}
    openings = {" ".join(prompt.split())[:60] for prompt in echo.prompts}
    assert openings or done.returncode == 2
    for name, text in told.items():
        flat = " ".join(text.split())
        for secret in (KEY, KEY[:10], MARK, "Jane Doe", "4471-0098", *openings):
            assert secret not in flat, (
                f"{secret!r} is in {name}: {flat[max(0, flat.find(secret) - 300) :][:600]}"
            )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr


def refusing(status: int, text: Callable[[dict[str, Any], bytes, str], str]) -> Fault:
    """A fault that says ``text`` in OpenAI's form."""
    return lambda request, raw, key: (
        status,
        json.dumps({"error": {"message": text(request, raw, key), "type": "x", "code": "x"}}).encode(),
    )


def asked(request: dict[str, Any]) -> str:
    """The last message, where the row is."""
    return request["messages"][-1]["content"]


def row(request: dict[str, Any]) -> str:
    """The row from its mark on."""
    text = asked(request)
    return text[max(0, text.find(MARK)) :]


ECHOES: dict[str, Fault] = {
    "400-the-body": refusing(400, lambda request, raw, key: f"bad request {raw.decode()} from {key}"),
    "400-the-row": refusing(400, lambda request, raw, key: f"cannot read: {row(request)}"),
    "400-the-key": refusing(400, lambda request, raw, key: f"this {key} is not for {row(request)[:200]}"),
    "400-late": refusing(400, lambda request, raw, key: "x" * 165 + f" {row(request)}"),
    "400-escaped": refusing(400, lambda request, raw, key: f"input was {json.dumps(row(request))}"),
    "400-repr": refusing(400, lambda request, raw, key: f"got {request['messages'][-1:]!r}"),
    "401-the-key": refusing(401, lambda request, raw, key: f"wrong key {key} for {row(request)}"),
    "404-the-body": refusing(404, lambda request, raw, key: f"no route for {raw.decode()} {key}"),
    "413-the-body": refusing(413, lambda request, raw, key: f"context length: {raw.decode()} {key}"),
    "200-no-json": lambda request, raw, key: (200, b"echo: " + raw + key.encode()),
}


@pytest.mark.parametrize("case", list(ECHOES))
def test_an_endpoint_that_repeats_everything_in_its_errors(
    case: str, echo: Echo, path: Path, tmp_path: Path
) -> None:
    echo.fault = ECHOES[case]
    done = run(path, tmp_path / "out", **LOUD)
    assert done.returncode == 5, done.stdout + done.stderr
    is_private(done, tmp_path / "out", echo)
    reason = result_of(tmp_path / "out")["reason"]
    assert reason and reason[:30] in " ".join(done.stdout.split())
    print(reason)


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["plain", "json"])
def test_a_whole_run_with_failures_on_the_way(
    flags: list[str], echo: Echo, path: Path, tmp_path: Path
) -> None:
    counted = iter(range(1 << 30))
    flaky = refusing(500, lambda request, raw, key: f"engine died on {raw.decode()} of {key}")
    echo.fault = lambda request, raw, key: None if next(counted) % 9 else flaky(request, raw, key)
    out = tmp_path / "out"
    done = run(path, out, *flags, **LOUD)
    assert done.returncode in ENDED, done.stderr
    is_private(done, out, echo)
    blobs = b"".join(file.read_bytes() for file in (out / "store").rglob("*") if file.is_file())
    assert MARK.encode() in blobs, "the test looks for a mark that never came"
    assert result_of(out)["entries"], "nothing was learned: the test saw no playbook"
    learned = {entry["text"] for entry in result_of(out)["entries"]}
    for line in (out / "prompt.md").read_text().splitlines():
        if " :: " in line:
            assert line.partition(" :: ")[2] in learned
    if flags:
        assert all(json.loads(line)["event"] for line in done.stdout.splitlines())


def test_a_model_that_answers_with_its_prompt(echo: Echo, path: Path, tmp_path: Path) -> None:
    def parrot(request: dict[str, Any], raw: bytes, key: str) -> tuple[int, bytes]:
        choice = {"index": 0, "message": {"role": "assistant", "content": asked(request)}}
        return 200, json.dumps({"choices": [choice | {"finish_reason": "stop"}]}).encode()

    echo.fault = parrot
    done = run(path, tmp_path / "out", **LOUD)
    assert done.returncode in (3, 5), done.stderr
    is_private(done, tmp_path / "out", echo)


def test_a_preflight_that_repeats_the_key(echo: Echo, path: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(
        _Handler, "_ask", lambda self, body: (400, f"bad {self.headers['Authorization']}".encode())
    )
    done = run(path, tmp_path / "out", **LOUD)
    assert done.returncode == 2 and not (tmp_path / "out").exists()
    is_private(done, tmp_path / "out", echo)


@pytest.mark.parametrize(
    "mark", [b'"context": 7, ', b'"context": "", ', b"not json "], ids=["type", "empty", "json"]
)
def test_a_refused_row_is_not_quoted(mark: bytes, echo: Echo, path: Path, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_bytes(b"{" + mark + f'"x": {json.dumps(ROW)}}}\n'.encode())
    done = run(path, tmp_path / "out", **LOUD)
    assert done.returncode == 2 and not (tmp_path / "out").exists()
    is_private(done, tmp_path / "out", echo)


def test_without_a_terminal_there_are_no_escape_codes(echo: Echo, path: Path, tmp_path: Path) -> None:
    words = [*COMBEE, "run", "-f", path, "-o", tmp_path / "out", "--secret", "llm/token=env:COMBEE_TEST_KEY"]
    ascii_only = {"TERM": "dumb", "NO_COLOR": "1", "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    # Python reads these as it starts.
    done = subprocess.run(
        words, env=environment(COMBEE_TEST_KEY=KEY, **ascii_only), capture_output=True, text=True, timeout=500
    )
    assert done.returncode in ENDED and done.stderr == "", done.stderr
    assert "\x1b" not in done.stdout and "\r" not in done.stdout and done.stdout.isascii()
    is_private(done, tmp_path / "out", echo)


def test_on_a_dumb_terminal_there_are_no_escape_codes(echo: Echo, path: Path, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    arguments = [
        "run",
        "-f",
        str(path),
        "-o",
        str(tmp_path / "out"),
        "--secret",
        "llm/token=env:COMBEE_TEST_KEY",
    ]
    process = subprocess.Popen(
        [*COMBEE, *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment(TERM="dumb", COMBEE_TEST_KEY=KEY),
    )
    os.close(follower)
    shown = b""
    try:
        while piece := os.read(leader, 1 << 16):
            shown += piece
    except OSError:
        assert sys.platform == "linux"  # EIO is how a terminal ends here
    os.close(leader)
    assert process.wait(300) in ENDED, shown
    assert b"\x1b" not in shown
    done = subprocess.CompletedProcess(arguments, process.returncode, shown.decode(), "")
    is_private(done, tmp_path / "out", echo)
