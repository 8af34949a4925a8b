"""Mirrored requests: both answers are kept, users get one, and nobody waits."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gateway_parts import (
    ApiServer,
    Running,
    Upstream,
    content,
    gateway,
    playbook,
    secret,
    under_test,
    version,
)

from waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.e2e
A, B = "a" * 64, "b" * 64
KEY = "key-of-the-client"


class Telling(Upstream):
    """Answers with the rule that it was shown; holds answers to B where it is told to."""

    held: threading.Event | None = None

    def respond(self, body: bytes) -> bytes:
        rule = "B" if b"the rule of B" in body else "A"
        if rule == "B" and self.held is not None:
            self.held.wait(2 * PATIENCE_SECONDS)
        choice = {"message": {"role": "assistant", "content": f"by {rule}, to x@example.com"}}
        return json.dumps({"choices": [{"index": 0, "finish_reason": "stop", **choice}]}).encode()


@dataclass
class Scene:
    """A gateway that serves A, with a canary of B on all traffic."""

    api: ApiServer
    upstream: Telling
    gateway: Running
    folder: Path

    def ask(self, question: str = "what?", cluster: str = "") -> str:
        """The answer's content."""
        body = {"model": "m", "user": "jane", "messages": [{"role": "user", "content": question}]}
        request = urllib.request.Request(
            f"{self.gateway.url}/formula/v1/chat/completions",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
            | ({"x-combee-cluster": cluster} if cluster else {}),
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return str(json.loads(answer.read())["choices"][0]["message"]["content"])

    def sampled(self, question: str = "what?", cluster: str = "") -> str:
        """The same, of a request that was kept: what a busy machine left out is asked again."""
        while True:
            kept, over = self.count("Kept"), self.count("Kept") + self.count("Shed")
            said = self.ask(question, cluster)
            wait_until("its count", lambda: self.count("Kept") + self.count("Shed") > over)  # noqa: B023
            if self.count("Kept") > kept:
                return said

    def count(self, outcome: str) -> float:
        """Of combee_gateway_mirrored_total."""
        head = f'combee_gateway_mirrored_total{{outcome="{outcome}",playbook="formula"}} '
        return sum(
            float(line[len(head) :]) for line in self.gateway.metrics().splitlines() if line.startswith(head)
        )

    def kept(self, folder: str, count: int) -> list[dict[str, Any]]:
        """Records of a folder, once there are so many."""

        def rows() -> list[dict[str, Any]]:
            files = sorted((self.folder / "traffic/formula/traffic/formula" / folder).glob("*.jsonl"))
            return [json.loads(line) for file in files for line in file.read_text().splitlines()]

        wait_until(f"{count} records", lambda: len(rows()) >= count)
        return rows()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    secret(tmp_path, "keys", "formula", first=KEY)
    with ApiServer() as api, Telling() as upstream:
        ways: dict[str, Any] = {
            "keys": {"secretRef": {"name": "keys"}},
            "shadow": {"concurrency": 1, "queue": 2},
        }
        made = playbook("formula", upstream.url, active=A, **ways)
        made["spec"]["canary"] = {"mode": "Shadow"}
        api.put("playbooks", made)
        for digest, name in ((A, "A"), (B, "B")):
            api.put("configmaps", content("formula", digest, f"- [r-1] the rule of {name}"))
        api.put("playbookversions", version("formula", A))
        api.put("playbookversions", under_test(version("formula", B), A))
        with gateway(api, tmp_path) as running:
            yield Scene(api, upstream, running, tmp_path)


def test_requests_of_a_cluster_are_kept_as_such_and_its_name_is_not(scene: Scene) -> None:
    for question, cluster in {"one": "jane@example.com", "two": "jane@example.com", "three": "7"}.items():
        scene.sampled(question, cluster)
    rows = scene.kept("pairs/test-1", 3)
    first, second, third = (row["request"]["cluster"] for row in rows)
    assert first == second != third and len(first) == 16
    assert b"jane" not in b"".join(file.read_bytes() for file in scene.folder.rglob("*.jsonl"))
    told = [{name.lower() for name in headers} for _, headers, _ in scene.upstream.seen]
    assert told and not any("x-combee-cluster" in names for names in told)


def test_both_answers_are_kept_and_users_get_the_active_one(scene: Scene) -> None:
    for number in range(4):
        assert scene.sampled(f"question {number} of a@example.com") == "by A, to x@example.com"
    rows = scene.kept("pairs/test-1", 4)
    assert len(rows) == 4
    assert {row["stream"] for row in rows} == {rows[0]["stream"]}
    assert [row["number"] for row in rows] == [0, 1, 2, 3]
    for number, row in enumerate(rows):
        assert row["test"] == "test-1"
        assert row["request"] == {
            "model": "m",
            "messages": [{"role": "user", "content": f"question {number} of [an e-mail address]"}],
        }
        assert (row["tested"]["digest"], row["against"]["digest"]) == (B, A)
        assert row["tested"]["answer"]["content"] == "by B, to [an e-mail address]"
        assert row["against"]["answer"]["content"] == "by A, to [an e-mail address]"
        assert min(row["tested"]["seconds"], row["against"]["seconds"]) > 0
    assert "x@example.com" not in (scene.gateway.log.read_text() + scene.gateway.metrics())


def test_active_requests_do_not_wait_for_a_candidate_that_hangs(scene: Scene) -> None:
    scene.upstream.held = threading.Event()
    # None of them has its answer where it waits for the candidate, which has none before all are asked.
    assert [scene.ask() for _ in range(20)] == ["by A, to x@example.com"] * 20
    # One is under way and two wait; the others are left out and counted, and more on a busy machine.
    wait_until("the others are left out", lambda: scene.count("Shed") >= 17)
    assert scene.count("Kept") == 0
    scene.upstream.held.set()
    wait_until("all are counted", lambda: scene.count("Shed") + scene.count("Kept") == 20)
    left_out = int(scene.count("Shed"))
    assert len(scene.kept("pairs/test-1", 20 - left_out)) == 20 - left_out


def test_what_was_kept_survives_a_restart_and_numbers_go_on_under_another_name(
    scene: Scene, tmp_path: Path
) -> None:
    scene.sampled()
    assert scene.gateway.stop() == 0
    assert len(scene.kept("pairs/test-1", 1)) == 1
    with gateway(scene.api, tmp_path) as running:
        again = Scene(scene.api, scene.upstream, running, tmp_path)
        again.sampled()
        rows = again.kept("pairs/test-1", 2)
        assert len({(row["stream"], row["number"]) for row in rows}) == 2


def test_nothing_is_kept_unless_it_is_asked_for(scene: Scene, tmp_path: Path) -> None:
    scene.api.edit("playbookversions", f"formula-{B[:12]}", lambda body: body.pop("status"))
    assert scene.gateway.stop() == 0
    with gateway(scene.api, tmp_path) as running:  # one that knows it from the beginning
        scene = Scene(scene.api, scene.upstream, running, tmp_path)
        scene.ask()
        assert (scene.count("Kept"), scene.kept("requests", 0)) == (0, [])
        scene.api.edit(
            "playbooks",
            "formula",
            lambda body: body["spec"]["delivery"]["gateway"].update(
                capture={"enabled": True, "percent": 100}
            ),
        )
        # Requests from before it hears of it are not kept.
        wait_until("a request is kept", lambda: scene.ask() and scene.count("Kept"))
        rows = scene.kept("requests", 1)
        assert {row["active"]["answer"]["content"] for row in rows} == {"by A, to [an e-mail address]"}
        assert scene.kept("pairs/test-1", 0) == []
