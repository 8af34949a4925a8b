"""A task model, and what drives adapters in front of it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from adapter_bench import Drive, Upstream, drive_in

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def doubles_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [HERE, HERE / "stand_ins", os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    served = Upstream()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            served.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            message = {"role": "assistant", "content": served.said}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            good = {"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
            data = json.dumps(good if served.status == 200 else {"error": {"message": "no"}}).encode()
            self.send_response(served.status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}/v1"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield served
    server.shutdown()
    server.server_close()


@pytest.fixture
def drive(upstream: Upstream, tmp_path: Path) -> Drive:
    return drive_in(tmp_path / "store", upstream)
