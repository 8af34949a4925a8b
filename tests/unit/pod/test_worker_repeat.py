"""Requests that the upstream refuses are left out, reported and never asked again; and a refusal of all."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from answering import Reply, Request, answering
from combee.algo.tally import LeftOut, Tally
from combee.clients.store.store import Store
from combee.errors import EndpointError, TransientError, UserError
from combee.methods.registry import served_text
from combee.plan.playbook.judging import JudgeTask, read_left_out, read_pairs, write_pairs
from combee.pod import repeat as module
from combee.pod.judge import config_map
from combee.pod.repeat import Repeat
from combee.settings import JudgeSettings
from combee.work.judge import in_hash_order, read_samples

FINE = json.dumps(
    {"choices": [{"message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}]}
).encode()


def answered(refused: dict[str, int]) -> Callable[[Request], Reply]:
    """Answers, but for questions that hold a word of ``refused``."""

    def answer(request: Request) -> Reply:
        said = request.body.decode()
        status = next((status for word, status in refused.items() if word in said), 200)
        return status, {}, FINE if status == 200 else b'{"error": {"message": "no"}}'

    return answer


@dataclass
class Scene:
    """Jobs of one canary; what they leave out goes into the tally, as the operator does it."""

    root: Path
    questions: list[str]
    tally: Tally = field(default_factory=Tally)
    asked: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = [{"model": "m", "messages": [{"role": "user", "content": said}]} for said in self.questions]
        files = {
            "data/requests/asked.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
            "etc/combee/playbooks/tested/prompt.md": "the tested rule",
            "etc/combee/playbooks/against/prompt.md": "the against rule",
        }
        for path, text in files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)

    def job(self, answer: Callable[[Request], Reply], **told: Any) -> Scene:
        with answering(answer) as upstream:
            task = JudgeTask.model_validate(
                {
                    "playbook": "formula",
                    "namespace": "team",
                    "uid": "u-1",
                    "test": "test-1",
                    "mode": "Replay",
                    "evaluator": {"url": "http://judge/v1", "model": "judge"},
                    "store": "/store",
                    "upstream": {"url": upstream.url},
                    "tested": "b" * 64,
                    "against": "a" * 64,
                    "requests": {"configMap": {"name": "asked", "key": "asked.jsonl"}},
                    "done": {s: [list(span) for span in spans] for s, spans in self.tally.spans.items()},
                    **told,
                }
            )
            store = Store.open(str(self.root / "store"))
            try:
                left_out = asyncio.run(self._run(task, store))
            finally:
                store.close()
                self.asked = [self._question(request) for request in upstream.asked]
        data = config_map(task, "job-1", (), left_out)["data"]["pairs.json"]
        self.tally = self.tally.with_left_out(read_left_out(data))
        return self

    async def _run(self, task: JudgeTask, store: Store) -> list[LeftOut]:
        async with Repeat(JudgeSettings(self.root, "INFO", "", "", "job-1"), task, store) as replay:
            try:
                while await replay.once():
                    pass
                return replay.taken()
            finally:
                self.counts = dict(replay.counts)

    def _question(self, request: Request) -> str:
        said: list[Any] = json.loads(request.body)["messages"]
        return str(said[-1]["content"])


@pytest.mark.parametrize("status", [400, 403, 404, 413, 422])
def test_a_request_that_is_refused_is_left_out_told_and_not_asked_again(tmp_path: Path, status: int) -> None:
    scene = Scene(tmp_path, ["one", "bad", "two"])
    scene.job(answered({"bad": status}))
    assert scene.tally.left_out == {status: 1} and scene.tally.spans == {"replay": ((2, 2),)}
    assert scene.counts["refused"] == 1 and scene.counts["replayed"] == 2
    assert scene.asked.count("bad") == 2, "what one version is refused the other may be answered"
    # The two others wait in the spool, and nothing is left to ask.
    assert scene.job(answered({"bad": status})).asked == []


@pytest.mark.parametrize("side", ["tested", "against"])
@pytest.mark.parametrize("status", [400, 403, 413, 500, 200])
def test_what_one_version_alone_does_not_answer_is_a_pair_that_it_has_lost(
    tmp_path: Path, status: int, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "wait_seconds", lambda *_: 0.0)

    def answer(request: Request) -> Reply:
        lost = b"bad" in request.body and f"the {side} rule".encode() in request.body
        return (status, {}, b"{}") if lost else (200, {}, FINE)

    scene = Scene(tmp_path, ["one", "bad"]).job(answer)
    assert scene.tally == Tally() and scene.counts["replayed"] == 2
    lines = [
        line for file in tmp_path.glob("store/traffic/**/*.jsonl") for line in file.read_bytes().splitlines()
    ]
    samples, unreadable = read_samples(b"\n".join(lines), "test-1")
    lost = {sample.number: sample.failed for sample in samples if sample.failed}
    assert unreadable == 0 and len(samples) == 2
    assert lost == {1: {side: "no answer" if status == 200 else str(status)}}


def test_a_version_whose_answers_do_not_come_in_time_has_lost_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, patience = threading.Event(), list[Any]()

    class Client(httpx2.AsyncClient):
        """Waits a short time for the answers that will not come, and as long as it takes for the others."""

        async def post(self, url: Any, *, content: Any, **more: Any) -> httpx2.Response:
            patience.append(self.timeout.read)
            short = {"timeout": httpx2.Timeout(None, read=0.05)} if b"the tested rule" in content else {}
            return await super().post(url, content=content, **more, **short)

    monkeypatch.setattr(module.httpx2, "AsyncClient", Client)

    def answer(request: Request) -> Reply:
        if b"the tested rule" in request.body:
            over.wait(60)
        return 200, {}, FINE

    scene = Scene(tmp_path, ["slow"]).job(answer)
    over.set()
    (file,) = tmp_path.glob("store/traffic/**/*.jsonl")
    ((sample,), _) = read_samples(file.read_bytes(), "test-1")
    assert scene.asked.count("slow") == 2 and sample.failed == {"tested": "timeout"}
    assert patience == [module.ANSWER_SECONDS] * 2
    assert sample.latency_ratio is not None and sample.latency_ratio > 1


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_what_may_pass_is_not_left_out(tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "wait_seconds", lambda *_: 0.0)
    scene = Scene(tmp_path, ["one", "later"])
    scene.job(answered({"later": status}))
    assert scene.tally == Tally() and scene.counts["unanswered"] == 1
    assert scene.job(answered({})).asked == ["later", "later"]


def test_an_answer_that_is_none_is_left_out(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        return 200, {}, b"<html>" if b"odd" in request.body else FINE

    assert Scene(tmp_path, ["one", "odd"]).job(answer).tally.left_out == {200: 1}


def test_a_refusal_of_all_is_an_error_and_nothing_is_left_out(tmp_path: Path) -> None:
    scene = Scene(tmp_path, [f"question {n}" for n in range(40)])
    for status in (403, 404, 405, 307):
        with pytest.raises(EndpointError, match=f"the upstream answers {status}"):
            scene.job(answered({"question": status}))
        assert scene.tally == Tally() and len(scene.asked) <= 32
    with pytest.raises(EndpointError, match="the key is refused"):
        scene.job(answered({"question 7": 401}))


def test_the_last_request_may_be_refused_by_itself_which_one_that_was_answered_shows(tmp_path: Path) -> None:
    scene = Scene(tmp_path, ["one", "two", "bad"], Tally().with_left_out([]))
    scene.tally = Tally(spans={"replay": ((0, 1),)})
    assert scene.job(answered({"bad": 404})).tally.left_out == {404: 1}
    assert scene.asked == ["bad", "bad", "two"], (
        "one that was answered before is asked to see whether all are refused"
    )
    # An upstream that refuses that one, too, refuses all.
    other = Scene(tmp_path, ["one", "two", "bad"])
    other.tally = Tally(spans={"replay": ((0, 1),)})
    with pytest.raises(EndpointError, match="404"):
        other.job(answered({"": 404}))
    assert other.tally.left_out == {}


def test_requests_that_are_wrong_in_themselves_are_left_out_though_all_are(tmp_path: Path) -> None:
    scene = Scene(tmp_path, [f"question {n}" for n in range(20)])
    assert scene.job(answered({"question": 400})).tally.left_out == {400: 20}
    assert scene.job(answered({})).asked == []


def test_nobody_who_answers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "wait_seconds", lambda *_: 0.0)
    with pytest.raises(TransientError, match="answers 503"):
        Scene(tmp_path, [f"question {n}" for n in range(20)]).job(answered({"question": 503}))


def test_what_is_left_out_is_written_and_read_and_strange_rows_are_none() -> None:
    gone = [LeftOut("r", 2, 413), LeftOut("r", 1, 400)]
    text = write_pairs((), gone)
    assert read_left_out(text) == (LeftOut("r", 1, 400), LeftOut("r", 2, 413)) and read_pairs(text) == ()
    assert "leftOut" not in write_pairs(())
    for rows in ("7", "[7]", '[["r", -1, 400]]', '[["r", true, 400]]', '[["", 1, 400]]', '[["r", 1, 503]]'):
        assert read_left_out(f'{{"version": 1, "pairs": [], "leftOut": {rows}}}') == ()
    assert read_left_out("[]") == read_left_out("{") == ()


def test_given_requests_are_asked_in_an_order_of_their_own_and_one_of_each_conversation() -> None:
    rows: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": f"question {n % 30}"}], "seed": n} for n in range(40)
    ]
    rows.append({"messages": [{"role": "system", "content": "no user at all"}]})
    ordered = in_hash_order("test-1", rows)
    assert [repeated for _, repeated in ordered] == [False] * 31 + [True] * 10
    assert [row["seed"] for row, repeated in ordered if repeated] == list(range(30, 40))
    shown = [row["messages"][0]["content"] for row, repeated in ordered if not repeated]
    assert sorted(shown) == sorted({row["messages"][0]["content"] for row in rows})
    assert (
        shown != [row["messages"][0]["content"] for row in rows[:30]]
        and in_hash_order("test-1", rows) == ordered
    )
    assert in_hash_order("test-2", rows) != ordered


def test_what_begins_with_the_same_words_is_asked_once_and_told(tmp_path: Path) -> None:
    scene = Scene(tmp_path, ["one", "two", "one", "one"]).job(answered({}))
    assert sorted(scene.asked) == ["one", "one", "two", "two"]
    assert scene.tally.left_out == {0: 2} and scene.tally.spans == {"replay": ((2, 3),)}


def test_of_a_cluster_one_request_is_asked_and_its_name_goes_to_nobody(tmp_path: Path) -> None:
    scene = Scene(tmp_path, ["one", "two", "three"])
    path = tmp_path / "data/requests/asked.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row, cluster in zip(rows, ("customer-7", "customer-7", "customer-8"), strict=True):
        row["cluster"] = cluster
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bodies: list[bytes] = []

    def answer(request: Request) -> Reply:
        bodies.append(request.body)
        return 200, {}, FINE

    scene.job(answer)
    assert len(set(scene.asked)) == 2 and "three" in scene.asked and scene.tally.left_out == {0: 1}
    kept = b"".join(file.read_bytes() for file in (tmp_path / "store").rglob("*.jsonl"))
    assert kept.count(b'"cluster"') == 2 and b"customer" not in kept
    assert not any(b"cluster" in body or b"customer" in body for body in bodies)


def test_each_version_is_put_in_front_as_its_method_says(tmp_path: Path) -> None:
    scene, said = Scene(tmp_path, ["one"]), list[str]()

    def answer(request: Request) -> Reply:
        said.append(json.loads(request.body)["messages"][0]["content"])
        return 200, {}, FINE

    (tmp_path / "etc/combee/playbooks/tested/method").write_text("GEPA")
    scene.job(answer)
    rule = "the against rule"
    assert sorted(said) == sorted(["the tested rule", served_text(rule)]) and served_text(rule) != rule


def test_a_version_with_budgets_is_put_in_front_as_far_as_a_request_asks_for_it(tmp_path: Path) -> None:
    scene, said = Scene(tmp_path, ["what of P-0042"]), list[str]()

    def answer(request: Request) -> Reply:
        said.append(json.loads(request.body)["messages"][0]["content"])
        return 200, {}, FINE

    folder = tmp_path / "etc/combee/playbooks/tested"
    lines = [f"[b-{k}] helpful=0 harmful=0 :: For P-{k:04d} add {k}" for k in range(90)]
    (folder / "prompt.md").write_text("\n".join(lines))
    (folder / "retrieval.json").write_text('{"coreTokens": 0, "tailTokens": 50}')
    scene.job(answer)
    (tested,) = [text for text in said if "P-0042" in text]
    assert "P-0041" not in tested and served_text("the against rule") in said


def test_no_request_is_asked_with_a_playbook_that_was_replaced(tmp_path: Path) -> None:
    scene = Scene(tmp_path, ["one"])
    published = {"tested": {"prompt.md": hashlib.sha256(b"another rule").hexdigest()}}
    with pytest.raises(UserError, match=r"prompt\.md was replaced"):
        scene.job(answered({}), published=published)
    published["tested"]["prompt.md"] = hashlib.sha256(b"the tested rule").hexdigest()
    assert scene.job(answered({}), published=published).counts["replayed"] == 1
