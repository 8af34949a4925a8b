"""A task model, and what drives adapters in front of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from adapter_bench import Drive, Upstream, drive_in

from answering import Reply, Request, answering

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def doubles_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [HERE, HERE / "stand_ins", os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    served = Upstream()

    def answer(request: Request) -> Reply:
        served.bodies.append(json.loads(request.body))
        message = {"role": "assistant", "content": served.said}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        good = {"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
        reply = good if served.status == 200 else {"error": {"message": "no"}}
        return served.status, {}, json.dumps(reply).encode()

    with answering(answer) as server:
        served.url = f"{server.url}/v1"
        yield served


@pytest.fixture
def drive(upstream: Upstream, tmp_path: Path) -> Drive:
    return drive_in(tmp_path / "store", upstream)
