"""The gateway in a process of its own: what passes, what is put in, how it switches, what it never says."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from gateway_parts import (
    ApiServer,
    Running,
    Upstream,
    content,
    gateway,
    playbook,
    secret,
    version,
)

from waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.e2e
A, B, C = (letter * 64 for letter in "abc")
KEY, UPSTREAM_KEY = "key-of-the-client", "key-of-the-upstream"
QUESTION = "the client's own words, PIN-4711"
CHAT = "/formula/v1/chat/completions"


@dataclass
class Scene:
    """A gateway with one Playbook, versions A (active) and B."""

    api: ApiServer
    upstream: Upstream
    gateway: Running

    def ask(
        self,
        path: str = CHAT,
        body: bytes | None = None,
        method: str = "POST",
        key: str = KEY,
        **headers: str,
    ) -> Answer:
        """One request on a connection of its own."""
        parts = urlsplit(self.gateway.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_SECONDS)
        sent = {"Authorization": f"Bearer {key}"} if key else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        if body is None and method == "POST":
            body = chat()
        try:
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def takes_connections(self) -> bool:
        """Whether somebody listens at the gateway's port."""
        parts = urlsplit(self.gateway.url)
        with socket.socket() as link:
            return link.connect_ex((parts.hostname or "", parts.port or 0)) == 0

    def becomes(self, digest: str) -> None:
        """Wait until requests get that version."""
        wait_until(f"requests get {digest[:4]}", lambda: self.ask().digest == digest)

    def catch_up(self, turn: int) -> None:
        """Wait until the gateway knows all that was changed so far: it does once it knows what came later."""
        digest = f"{turn:x}" * 64
        self.api.put("configmaps", content("later", digest, rule(digest)))
        self.api.put("playbookversions", version("later", digest))
        made = playbook("later", self.upstream.url, active=digest, keys={"secretRef": {"name": "keys"}})
        self.api.put("playbooks", made)
        path = CHAT.replace("formula", "later")
        wait_until("the change that came later", lambda: self.ask(path).digest == digest)

    def refuses(self, status: int, key: str = KEY) -> Answer:
        """The first answer with that status: until the gateway hears of a change, it answers as before."""

        def answered() -> Answer | None:
            got = self.ask(key=key)
            return got if got.status == status else None

        got: Answer = wait_until(f"requests are answered with {status}", answered)
        return got

    def counts(self, code: str) -> None:
        """Wait until a request is counted with that code: it is once its answer is sent."""
        line = f'combee_gateway_requests_total{{code="{code}",playbook="formula"}}'
        wait_until(line, lambda: line in self.gateway.metrics())


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        self.digest = self.headers.get("x-combee-digest", "")


def chat(**more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": QUESTION}], **more}).encode()


def rule(digest: str) -> str:
    return f"- [{digest[:1]}-1] the rule of {digest[:4]}"


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """For tests that change nothing at the gateway: one for all of them."""
    with started(tmp_path_factory.mktemp("steady")) as made:
        yield made


@pytest.fixture
def shared(steady: Scene) -> Scene:
    """The steady one, its upstream as new."""
    fresh = Upstream()
    for name in ("status", "headers", "answer", "pieces", "pause", "onward", "cut", "hold"):
        setattr(steady.upstream, name, getattr(fresh, name))
    steady.upstream.seen.clear()
    steady.upstream.gone.clear()
    return steady


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """One of the test's own."""
    with started(tmp_path) as made:
        yield made


@contextmanager
def started(tmp_path: Path, deadline_seconds: int = 600) -> Iterator[Scene]:
    secret(tmp_path, "keys", "formula", first=KEY, second="another-key\n")
    secret(tmp_path, "keys", "later", first=KEY)
    secret(tmp_path, "upstream", "formula", token=UPSTREAM_KEY)
    with ApiServer() as api, Upstream() as upstream:
        ways = {
            "keys": {"secretRef": {"name": "keys"}},
            "limits": {"maxRequestBytes": 5000, "deadlineSeconds": deadline_seconds},
        }
        made = playbook("formula", upstream.url, active=A, **ways)
        made["spec"]["delivery"]["gateway"]["upstream"]["apiKeySecretRef"] = {"name": "llm", "key": "token"}
        api.put("playbooks", made)
        for second, digest in enumerate((A, B)):
            api.put("configmaps", content("formula", digest, rule(digest)))
            api.put("playbookversions", version("formula", digest, created=second))
        with gateway(api, tmp_path) as running:
            yield Scene(api, upstream, running)


def test_the_active_playbook_comes_first_and_the_rest_passes_untouched(shared: Scene) -> None:
    shared.upstream.headers = {
        "Content-Type": "application/json",
        "x-request-id": "up-1",
        "x-ratelimit-left": "9",
    }
    shared.upstream.answer = b'{"exactly":  "these bytes"}'
    got = shared.ask(
        body=chat(seed=1.50),
        OpenAI_Beta="x=1",
        Cookie="secret",
        Accept_Encoding="gzip",
        X_Combee_Cluster="c-7",
    )
    assert (got.status, got.body, got.digest) == (200, shared.upstream.answer, A)
    assert (got.headers["x-request-id"], got.headers["x-ratelimit-left"]) == ("up-1", "9")
    assert got.headers["x-combee-playbook"] == "formula"
    path, headers, body = shared.upstream.seen[-1]
    assert path == "/v1/chat/completions"
    assert b'"seed": 1.5}' in body
    first, second = json.loads(body)["messages"]
    assert first["role"] == "system"
    assert first["content"].endswith(rule(A))
    assert second == {"role": "user", "content": QUESTION}
    assert headers["Authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert headers["openai-beta"] == "x=1"
    assert not {"cookie", "accept-encoding", "x-combee-cluster"} & {name.lower() for name in headers}


def test_a_version_with_budgets_is_served_as_far_as_the_last_question_asks_for_it(scene: Scene) -> None:
    rules = "\n".join(f"[b-{k}] helpful={k} harmful=0 :: For P-{k:04d} add {k}" for k in range(90))
    made = content("formula", C, rules)
    made["data"]["retrieval.json"] = '{"coreTokens": 30, "tailTokens": 50}'
    scene.api.put("configmaps", made)
    scene.api.put("playbookversions", version("formula", C, created=2))
    scene.api.edit("playbooks", "formula", lambda body: body["status"].update(activeDigest=C))
    scene.becomes(C)
    heads = set()
    for number in (7, 12):
        messages = [
            {"role": "user", "content": "P-0055?"},
            {"role": "assistant", "content": "It adds 55."},
            {"role": "user", "content": f"And P-{number:04d}?"},
        ]
        got = scene.ask(body=chat(messages=messages))
        assert (got.status, got.digest) == (200, C)
        first, *rest = scene.upstream.messages()
        assert rest == messages
        assert f"For P-{number:04d}" in first["content"] and "P-0055" not in first["content"]
        heads.add(first["content"].partition("# PLAYBOOK\n\n")[2].partition("\n\n")[0])
    assert len(heads) == 1 and "For P-0089" in heads.pop(), "both begin with the same core"


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("POST", "/v1/completions", ""),
        ("POST", "/v1/embeddings", "?api-version=2"),
        ("GET", "/v1/models", ""),
        ("GET", "/v1/models/openai/gpt-oss-120b", ""),
    ],
)
def test_other_calls_pass_without_the_playbook(shared: Scene, method: str, path: str, query: str) -> None:
    body = b'{"input": "not even chat"' if method == "POST" else None
    got = shared.ask(f"/formula{path}{query}", body, method)
    assert (got.status, got.digest) == (200, "none")
    assert (shared.upstream.seen[-1][0], shared.upstream.seen[-1][2]) == (path + query, body or b"")


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_errors_of_the_upstream_are_the_clients(shared: Scene, status: int) -> None:
    shared.upstream.status, shared.upstream.answer = status, b'{"error": {"message": "no", "code": "x"}}'
    shared.upstream.headers = {"Content-Type": "application/json", "Retry-After": "7"}
    got = shared.ask()
    assert (got.status, got.body, got.headers["retry-after"]) == (status, shared.upstream.answer, "7")
    assert len(shared.upstream.seen) == 1


def test_pieces_arrive_as_they_are_sent(shared: Scene) -> None:
    shared.upstream.pieces = [b"data: %d\n\n" % number for number in range(5)] + [b"data: [DONE]\n\n"]
    shared.upstream.onward = threading.Event()
    shared.upstream.headers = {"Content-Type": "text/event-stream"}
    parts = urlsplit(shared.gateway.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_SECONDS)
    connection.request("POST", CHAT, chat(stream=True), {"Authorization": f"Bearer {KEY}"})
    answer = connection.getresponse()
    assert answer.read1(100) == b"data: 0\n\n"
    assert len(shared.upstream.seen) == 1
    shared.upstream.onward.set()
    assert answer.read() == b"".join(shared.upstream.pieces[1:])


REFUSED = {
    "no key": ({"key": ""}, 401, "invalid_api_key"),
    "another key": ({"key": "guess"}, 401, "invalid_api_key"),
    "the upstream's key": ({"key": UPSTREAM_KEY}, 401, "invalid_api_key"),
    "an unknown Playbook": ({"path": "/other/v1/chat/completions"}, 404, "playbook_not_found"),
    "nothing": ({"path": "/", "method": "GET"}, 404, "playbook_not_found"),
    "a path that is not passed on": ({"path": "/formula/v1/files"}, 404, "not_found"),
    "another method": ({"path": "/formula/v1/chat/completions", "method": "GET"}, 404, "not_found"),
    "a way out": ({"path": "/formula/v1/models/../files", "method": "GET"}, 404, "not_found"),
    "a coded way out": ({"path": "/formula/v1/models/%2e%2e/files", "method": "GET"}, 404, "not_found"),
    "no JSON": ({"body": b"{no"}, 400, "invalid_json"),
    "too large": ({"body": chat(pad="x" * 6000)}, 413, "too_large"),
    "a cluster of other characters": ({"X_Combee_Cluster": "jane doe"}, 400, "invalid_cluster"),
    "an empty cluster": ({"X_Combee_Cluster": ""}, 400, "invalid_cluster"),
    "a long cluster": ({"X_Combee_Cluster": "x" * 129}, 400, "invalid_cluster"),
    "two clusters": ({"X_Combee_Cluster": "a", "x_combee_cluster": "b"}, 400, "invalid_cluster"),
    "packed": ({"Content_Encoding": "gzip"}, 415, "content_encoding"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_is_refused_never_reaches_the_upstream(
    shared: Scene, case: tuple[dict[str, Any], int, str]
) -> None:
    request, status, code = case
    got = shared.ask(**request)
    assert (got.status, json.loads(got.body)["error"]["code"]) == (status, code)
    assert shared.upstream.seen == []


def test_only_the_stated_model_is_asked_once_a_model_is_stated(scene: Scene) -> None:
    def state(body: dict[str, Any]) -> None:
        body["spec"]["delivery"]["gateway"]["upstream"]["model"] = "small"

    scene.api.edit("playbooks", "formula", state)
    got = scene.refuses(400)
    assert json.loads(got.body)["error"]["code"] == "another_model" and b"small" in got.body
    asked = len(scene.upstream.seen)
    assert scene.ask(body=b"{}").status == scene.ask(body=chat(model=None)).status == 400
    assert len(scene.upstream.seen) == asked
    assert scene.ask(body=chat(model="small")).digest == A
    # No playbook is put in front of these, so nothing that was learned is at stake.
    assert scene.ask(path="/formula/v1/embeddings").status == 200


def test_a_large_body_without_a_length_is_refused_too(shared: Scene) -> None:
    parts = urlsplit(shared.gateway.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_SECONDS)
    pieces = (b"x" * 1000 for _ in range(10))
    # Whoever sends on after the refusal may meet a closed connection before he reads it.
    with contextlib.suppress(ConnectionError):
        connection.request("POST", CHAT, pieces, {"Authorization": f"Bearer {KEY}"}, encode_chunked=True)
        assert connection.getresponse().status == 413
    shared.counts("413")
    assert shared.upstream.seen == []


def test_a_client_that_leaves_ends_the_request_upstream(shared: Scene) -> None:
    shared.upstream.pieces, shared.upstream.pause = [b"data: x\n\n"] * 20_000, 0.02
    parts = urlsplit(shared.gateway.url)
    with socket.create_connection((parts.hostname, parts.port)) as client:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: "
        client.sendall(f"{head}{len(chat())}\r\n\r\n".encode() + chat())
        assert client.recv(100).startswith(b"HTTP/1.1 200")
    assert shared.upstream.gone.wait(PATIENCE_SECONDS)


def test_an_upstream_that_hangs_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    with started(tmp_path, deadline_seconds=3) as scene:
        scene.upstream.hold = threading.Event()
        began = time.monotonic()
        got = scene.ask()
        assert (got.status, json.loads(got.body)["error"]["code"]) == (504, "deadline")
        assert time.monotonic() - began >= 2.9
        scene.upstream.hold.set()


def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(shared: Scene) -> None:
    shared.upstream.pieces, shared.upstream.cut = [b"data: half\n\n"], True
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        shared.ask()
    shared.counts("599")


def test_an_upstream_that_is_not_there_is_said_to_be_so(scene: Scene) -> None:
    scene.api.edit(
        "playbooks",
        "formula",
        lambda b: b["spec"]["delivery"]["gateway"]["upstream"].update(url="http://127.0.0.1:9/v1"),
    )
    assert json.loads(scene.refuses(502).body)["error"]["code"] == "no_answer"


def test_switches_follow_the_record_the_pin_and_the_refusal(scene: Scene) -> None:
    record = scene.api.edit
    assert scene.ask().digest == A
    record("playbooks", "formula", lambda b: b.update(status={"activeDigest": B, "previousDigest": A}))
    scene.becomes(B)
    name = f"formula-{B[:12]}"
    record("playbookversions", name, lambda b: b["spec"].update(decision="Refuse"))
    scene.becomes(A)
    record("playbooks", "formula", lambda b: b["spec"].update(version={"pinnedDigest": B}))
    scene.catch_up(1)
    assert scene.ask().digest == A
    record("playbookversions", name, lambda b: b["spec"].update(decision="Auto"))
    scene.becomes(B)
    assert 'combee_gateway_active{digest="' + B in scene.gateway.metrics()
    assert 'combee_gateway_switches_total{playbook="formula"} 4.0' in scene.gateway.metrics()


def test_a_version_whose_content_cannot_be_read_yet_takes_nothing_away(scene: Scene) -> None:
    scene.api.put("playbookversions", version("formula", C))
    scene.api.edit("playbooks", "formula", lambda b: b["status"].update(activeDigest=C))
    scene.catch_up(1)
    assert scene.ask().digest == A
    scene.api.put("configmaps", content("formula", C, rule(C)))
    scene.becomes(C)


def test_no_active_version_means_requests_pass_as_they_are(scene: Scene) -> None:
    for digest in (A, B):
        scene.api.edit(
            "playbookversions", f"formula-{digest[:12]}", lambda b: b["spec"].update(decision="Refuse")
        )
    scene.becomes("none")
    scene.ask()
    assert scene.upstream.seen[-1][2] == chat()


def test_each_request_sees_one_version_and_none_is_lost_while_it_switches(scene: Scene) -> None:
    stop = threading.Event()
    answers: list[tuple[int, str]] = []

    def ask() -> None:
        while not stop.is_set():
            got = scene.ask()
            answers.append((got.status, got.digest))

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        for turn in range(20):
            digest = (B, A)[turn % 2]
            seen = len(answers)
            scene.api.edit("playbooks", "formula", lambda b, d=digest: b["status"].update(activeDigest=d))
            wait_until(
                "an answer with it",
                lambda d=digest, at=seen: (
                    any(one.done() for one in asking) or d in {got for _, got in answers[at:]}
                ),
            )
        stop.set()
        for one in asking:
            one.result()
    assert {status for status, _ in answers} == {200}
    assert {digest for _, digest in answers} == {A, B}
    # What was put in is what the header says, request by request (answers come in another order).
    put_in = [next(d for d in (A, B) if rule(d).encode() in body) for _, _, body in scene.upstream.seen]
    assert sorted(put_in) == sorted(digest for _, digest in answers)


def test_it_serves_on_while_the_api_server_is_away_and_hears_of_what_it_missed(scene: Scene) -> None:
    scene.api.stop()
    wait_until("a word about it", lambda: "no watch" in scene.gateway.log.read_text())
    assert (scene.ask().status, scene.ask().digest) == (200, A)
    scene.api.start()
    scene.api.edit("playbooks", "formula", lambda b: b["status"].update(activeDigest=B))
    scene.becomes(B)


def test_a_playbook_that_goes_or_is_disabled_is_not_served(scene: Scene) -> None:
    scene.api.edit("playbooks", "formula", lambda b: b["spec"]["delivery"]["gateway"].update(enabled=False))
    scene.refuses(404)
    scene.api.edit("playbooks", "formula", lambda b: b["spec"]["delivery"]["gateway"].update(enabled=True))
    scene.becomes(A)
    scene.api.drop("playbooks", "formula")
    scene.refuses(404)


def test_tokens_of_service_accounts_are_reviewed(scene: Scene) -> None:
    user = {"username": "system:serviceaccount:team-a:app"}
    scene.api.tokens["a.good.token"] = {"authenticated": True, "audiences": ["combee-gateway"], "user": user}
    scene.api.edit("playbooks", "formula", lambda b: b["spec"]["delivery"]["gateway"].pop("keys"))
    scene.refuses(401, KEY)
    assert [scene.ask(key=key).status for key in ("a.good.token", "a.good.token", "a.bad.one", KEY)] == [
        200,
        200,
        401,
        401,
    ]
    # Once about each that may be one; the key cannot be.
    assert scene.api.reviews == 2


def test_a_missing_upstream_key_is_said_in_the_log_and_not_to_clients(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "secrets" / "upstream" / "formula" / "token").unlink()
    scene.api.edit("playbooks", "formula", lambda b: b["status"].update(activeDigest=B))
    got = scene.refuses(503)
    assert json.loads(got.body)["error"]["code"] == "not_ready"
    assert b"llm" not in got.body
    said = "the Secret llm with the upstream's key is not there"
    wait_until(said, lambda: said in scene.gateway.log.read_text())


def test_requests_under_way_end_when_it_is_told_to_stop(scene: Scene) -> None:
    scene.upstream.pieces, scene.upstream.pause = [b"data: x\n\n"] * 5, 0.2
    scene.upstream.onward = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(scene.ask)
        wait_until("the request", lambda: scene.upstream.seen)
        stopped = pool.submit(scene.gateway.stop)
        wait_until("the end of its taking connections", lambda: not scene.takes_connections())
        assert not asked.done() and not stopped.done()
        scene.upstream.onward.set()
        assert asked.result().body == b"data: x\n\n" * 5
        assert stopped.result() == 0


def test_no_request_on_a_kept_connection_is_lost_when_it_is_told_to_stop(scene: Scene) -> None:
    parts, answered = urlsplit(scene.gateway.url), threading.Semaphore(0)
    scene.upstream.pieces = [b"data: x\n\n"] * 3

    def ask_on() -> list[tuple[int, bytes]]:
        """Ask on one connection until an answer ends it."""
        answers = []
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_SECONDS)
        connection.connect()
        connection.auto_open = 0
        while connection.sock is not None:
            connection.request("POST", CHAT, chat(stream=True), {"Authorization": f"Bearer {KEY}"})
            answer = connection.getresponse()
            answers.append((answer.status, answer.read()))
            answered.release()
        return answers

    with ThreadPoolExecutor(21) as pool:
        asking = [pool.submit(ask_on) for _ in range(20)]
        for _ in range(200):
            assert answered.acquire(timeout=PATIENCE_SECONDS)
        assert scene.gateway.stop() == 0
        answers = [answer for one in asking for answer in one.result()]
    assert set(answers) == {(200, b"data: x\n\n" * 3)}
    assert len(answers) == len(scene.upstream.seen)


def test_nothing_of_a_body_or_a_key_reaches_logs_metrics_or_errors(scene: Scene) -> None:
    secrets = [QUESTION, "PIN-4711", "the answer's words", KEY, UPSTREAM_KEY, "guess-of-a-key"]
    scene.upstream.answer = b'{"said": "the answer\'s words"}'
    scene.ask()
    errors = [
        scene.ask(key="guess-of-a-key"),
        scene.ask(body=chat()[:-1]),
        scene.ask(body=chat(pad="x" * 6000)),
        scene.ask(path=f"/{QUESTION.replace(' ', '%20')}/v1/x"),
    ]
    scene.upstream.pieces, scene.upstream.cut = [b"data: the answer's words\n\n"], True
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        scene.ask()
    said = scene.gateway.metrics() + scene.gateway.log.read_text() + "".join(e.body.decode() for e in errors)
    assert [word for word in secrets if word in said] == []
    assert "formula" in said
