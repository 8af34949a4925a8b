"""The official clients, unchanged, against the gateway: streaming, tools, structured output, embeddings,
errors.

The upstream is the simulated model for plain calls; tools and structured output, which it does not model, are
answered by an upstream that says what OpenAI's documentation says.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from e2e_support import MODEL, ROOT, Sims
from gateway_parts import ApiServer, Upstream, content, gateway, playbook, secret, version
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

pytestmark = pytest.mark.e2e
A, KEY = "a" * 64, "key-of-the-client"
MESSAGES: list[Any] = [{"role": "user", "content": "What is 2+2?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}


class Sum(BaseModel):
    """What is asked for."""

    total: int


class Scripted(Upstream):
    """Calls the tool where there is one, answers by the schema where there is one, streams where asked."""

    def respond(self, body: bytes) -> bytes:
        asked = json.loads(body)
        message: dict[str, Any] = {"role": "assistant", "content": "four"}
        if asked.get("tools") and asked["messages"][-1]["role"] != "tool":
            call = {
                "id": "call_1",
                "type": "function",
                "function": {"name": "add", "arguments": '{"a":2,"b":2}'},
            }
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        elif asked.get("response_format"):
            message["content"] = '{"total":4}'
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        head = {"id": "chatcmpl-1", "created": 1, "model": "m"}
        if not asked.get("stream"):
            self.headers = {"Content-Type": "application/json"}
            choice = {"index": 0, "message": message, "finish_reason": finish}
            return json.dumps({**head, "object": "chat.completion", "choices": [choice]}).encode()
        self.headers = {"Content-Type": "text/event-stream"}
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        for call in message.get("tool_calls", ()):
            first = {**call, "index": 0, "function": {"name": "add", "arguments": ""}}
            pieces = re.findall("..?.?", call["function"]["arguments"])
            deltas.append({"tool_calls": [first]})
            deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
        deltas += [{"content": piece} for piece in re.findall("..?", message["content"] or "")]
        choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
        choices.append({"index": 0, "delta": {}, "finish_reason": finish})
        rows = [{**head, "object": "chat.completion.chunk", "choices": [choice]} for choice in choices]
        return ("".join(f"data: {json.dumps(row)}\n\n" for row in rows) + "data: [DONE]\n\n").encode()


@dataclass
class Scene:
    """A gateway; ``url`` is the base URL of its clients, ``sim`` that of the simulated model behind it."""

    url: str
    sim: str
    upstream: Scripted


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("clients")
    sims = Sims(folder)
    sim = sims.start("--time-scale", "0")
    with ApiServer() as api, Scripted() as upstream:
        for name, url in (("formula", upstream.url), ("simulated", sim.url)):
            secret(folder, "keys", name, key=KEY)
            api.put("playbooks", playbook(name, url, active=A, keys={"secretRef": {"name": "keys"}}))
            api.put("playbookversions", version(name, A))
            api.put("configmaps", content(name, A, "- [r-1] the rule of A"))
        with gateway(api, folder) as running:
            yield Scene(f"{running.url}/formula/v1", f"{running.url}/simulated/v1", upstream)
    sim.stop()


@pytest.fixture
def client(scene: Scene) -> openai.OpenAI:
    return openai.OpenAI(base_url=scene.url, api_key=KEY, max_retries=0)


@pytest.fixture
def simulated(scene: Scene) -> openai.OpenAI:
    return openai.OpenAI(base_url=scene.sim, api_key=KEY, max_retries=0)


def told(scene: Scene) -> str:
    """What the model was told first, in the last request."""
    first = scene.upstream.messages()[0]
    assert first["role"] == "system"
    return str(first["content"])


def test_openai_whole_and_streamed_with_the_simulated_model(simulated: openai.OpenAI) -> None:
    whole = simulated.chat.completions.create(model=MODEL, messages=MESSAGES)
    stream = simulated.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert whole.usage is not None
    usage = chunks[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (
        whole.usage.prompt_tokens,
        whole.usage.completion_tokens,
    )


def test_openai_models_and_embeddings(simulated: openai.OpenAI) -> None:
    assert [model.id for model in simulated.models.list()] == [MODEL]
    made = simulated.embeddings.create(model=MODEL, input=["one", "two"])
    assert [row.index for row in made.data] == [0, 1]


def test_openai_errors_are_those_of_the_upstream_and_of_the_gateway(
    scene: Scene, simulated: openai.OpenAI
) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        simulated.chat.completions.create(model="another", messages=MESSAGES)
    with pytest.raises(openai.AuthenticationError, match="Send a key of this gateway"):
        openai.OpenAI(base_url=scene.url, api_key="guess").chat.completions.create(
            model="m", messages=MESSAGES
        )


def test_openai_tools(scene: Scene, client: openai.OpenAI) -> None:
    tools: list[Any] = [TOOL]
    first = client.chat.completions.create(model="m", messages=MESSAGES, tools=tools).choices[0]
    assert first.finish_reason == "tool_calls"
    (call,) = first.message.tool_calls or ()
    assert call.type == "function"
    assert json.loads(call.function.arguments) == {"a": 2, "b": 2}
    answers: list[Any] = [*MESSAGES, first.message, {"role": "tool", "tool_call_id": call.id, "content": "4"}]
    second = client.chat.completions.create(model="m", messages=answers, tools=tools)
    assert second.choices[0].message.content == "four"
    assert told(scene).endswith("the rule of A")
    sent = scene.upstream.messages()[1:]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a":2,"b":2}'}


def test_openai_streamed_tools(client: openai.OpenAI) -> None:
    tools: list[Any] = [TOOL]
    with client.chat.completions.stream(model="m", messages=MESSAGES, tools=tools) as stream:
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or ()
    assert json.loads(call.function.arguments) == {"a": 2, "b": 2}


def test_openai_structured_output(scene: Scene, client: openai.OpenAI) -> None:
    made = client.chat.completions.parse(
        model="m", messages=[{"role": "system", "content": "Be brief."}, *MESSAGES], response_format=Sum
    )
    assert made.choices[0].message.parsed == Sum(total=4)
    assert told(scene).endswith("the rule of A\n\nBe brief.")
    assert json.loads(scene.upstream.seen[-1][2])["response_format"]["json_schema"]["name"] == "Sum"


def test_langchain_invoke_stream_tools_and_structured_output(scene: Scene) -> None:
    model = ChatOpenAI(base_url=scene.url, api_key=SecretStr(KEY), model="m", max_retries=0)
    assert model.invoke("What is 2+2?").content == "four"
    assert "".join(chunk.content for chunk in model.stream("What is 2+2?")) == "four"
    called = model.bind_tools([TOOL]).invoke("What is 2+2?").tool_calls
    assert [(call["name"], call["args"]) for call in called] == [("add", {"a": 2, "b": 2})]
    assert model.with_structured_output(Sum).invoke("What is 2+2?") == Sum(total=4)
    assert told(scene).endswith("the rule of A")


async def test_langchain_streams_without_waiting(scene: Scene) -> None:
    model = ChatOpenAI(base_url=scene.url, api_key=SecretStr(KEY), model="m", max_retries=0)
    pieces = [chunk.content async for chunk in model.astream("What is 2+2?")]
    assert "".join(pieces) == "four"
    assert len(pieces) > 2


def test_the_example_of_the_documentation_runs_as_it_stands(scene: Scene) -> None:
    page = (ROOT / "docs" / "gateway.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    code = example.replace("http://combee-gateway/formula/v1", scene.url)
    assert code != example
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={"GATEWAY_KEY": KEY, "PATH": "/usr/bin"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"four\nanswered with playbook {A[:12]}\n"
    assert told(scene).endswith("the rule of A")
