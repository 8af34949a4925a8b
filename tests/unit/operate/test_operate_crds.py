"""The operator begins to watch when there is something to watch: kopf asks for the CRDs only once."""

from __future__ import annotations

from typing import Any, cast

import pytest

from combee.clients.kubernetes.kube import Answer, Kube
from combee.operator.main import runs_served

OTHERS = {"resources": [{"name": "playbooks"}, {"name": "promptlearningruns/status"}]}
ALL = {"resources": [*OTHERS["resources"], {"name": "promptlearningruns"}]}


class Server:
    """Gives one answer after the other."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def request(self, method: str, path: str, *, quiet: tuple[int, ...] = ()) -> Answer:
        answer = self.answers.pop(0)
        assert answer.status < 300 or answer.status in quiet
        self.asked.append(f"{method} {path}")
        return answer


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the project itself logged; other tests' leftovers may be told of at any moment."""
    return [record.message for record in caplog.records if record.name.startswith("combee.")]


async def test_waits_until_runs_are_served(caplog: pytest.LogCaptureFixture) -> None:
    missing: dict[str, Any] = {"message": "not found"}
    server = Server(Answer(404, missing), Answer(404, missing), Answer(200, OTHERS), Answer(200, ALL))
    await runs_served(cast("Kube", server), every_seconds=0)
    assert server.asked == ["GET /apis/combee.dev/v1alpha1"] * 4
    assert messages(caplog) == ["waiting for the CustomResourceDefinitions"]


async def test_says_nothing_where_they_are_there(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(Answer(200, ALL))
    await runs_served(cast("Kube", server))
    assert not messages(caplog) and not server.answers
