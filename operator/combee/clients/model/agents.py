"""The calls of a user's agent, passed on and recorded as the agent wrote them, with their tools. Pure.

A request becomes a prompt whose only message is the request's JSON, and the recorded answer is the JSON of
its message. So memo, limits, budget, retries and records work as for every other call.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from combee.algo.tokens import estimate_tokens
from combee.api.sampling import Sampling
from combee.clients.model.body import (
    LEFT_OUT,
    MAX_TOKENS,
    Reply,
    counted,
    prompt_tokens,
    read_reply,
    thinking,
)
from combee.clients.model.failures import StatusError
from combee.clients.model.refusals import Again, Query, Quirk, meaning_of, shown
from combee.clients.model.wire import CanonicalRequest, ChatRequest, canonical_digest
from combee.errors import ContextLengthError, EndpointError
from combee.jsonread import MALFORMED, read_json
from combee.records import Message, Prompt

AGENT = "agent"
"""The role of the calls that a user's own agent makes of the task model."""
DEFAULT_OUTPUT_TOKENS = 4096
"""The limit of a request that names none: without a limit no budget could hold."""
_OWN_FIELDS = ("model", "stream", "stream_options", "user", "store", "metadata", "max_completion_tokens", "n")
_MESSAGE_FIELDS = ("role", "content", "tool_calls", "refusal", "reasoning_content")
_KEYS_STATUS = (401, 402, 403)


class AgentRequestError(EndpointError):
    """The server refuses the agent's request; the agent is told, and the run goes on."""

    code = "AgentRequest"


def agent_prompt(body: Mapping[str, Any], sampling: Sampling) -> Prompt:
    """Return an agent's request as a prompt; its own settings win over those of ``sampling``.

    Raises ValueError with a short phrase when the request cannot be passed on.
    """
    messages = body.get("messages")
    if (
        not isinstance(messages, list)
        or not messages
        or not all(isinstance(message, dict) for message in messages)
    ):
        raise ValueError("messages is no list of messages")
    if body.get("n") not in (None, 1):
        raise ValueError("n must be 1")
    ours = sampling.output_tokens(sampling.max_tokens or DEFAULT_OUTPUT_TOKENS)
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or ours
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise ValueError("max_tokens is no number of tokens")
    fields = {key: value for key, value in body.items() if key not in _OWN_FIELDS}
    decoding = {"temperature": sampling.temperature, "top_p": sampling.top_p, **thinking(sampling)}
    fields = {**decoding, **fields, "max_tokens": limit}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return Prompt((Message("request", text),), schema_name=AGENT, max_output_tokens=limit)


def agent_key(canonical: CanonicalRequest) -> str:
    """Return the call's key: a digest of the model, the whole request and the repeat's ordinal."""
    endpoint, request = canonical.endpoint, canonical.request
    return canonical_digest(
        {
            "v": 1,
            "kind": "agent",
            "model": endpoint.model,
            "revision": endpoint.revision,
            "engine": endpoint.engine_args,
            "body": _body(request.prompt),
            "ordinal": request.ordinal,
        }
    )


def agent_body(model: str, request: ChatRequest, quirks: Collection[str]) -> bytes:
    """Return the JSON to send to a server with these quirks."""
    body = {"model": model, "seed": request.ordinal, **_body(request.prompt)}
    if MAX_TOKENS in quirks:
        body["max_completion_tokens"] = body.pop("max_tokens")
    for name in LEFT_OUT.intersection(quirks):
        body.pop(name, None)
    return json.dumps(body, separators=(",", ":")).encode("ascii")


def read_agent_reply(content: bytes, prompt: Prompt) -> Reply | str:
    """Return the reply with its message as JSON, or one word for why there is none."""
    try:
        data = read_json(content)
        message = data["choices"][0]["message"]
        fields = {key: message[key] for key in _MESSAGE_FIELDS if message.get(key) is not None}
        if not all(isinstance(call, dict) for call in fields.get("tool_calls", ())):
            raise TypeError("a call of a tool is no object")
    except MALFORMED:
        return "malformed"
    reply = read_reply(content, prompt)
    if isinstance(reply, str):
        return reply
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    usage = data.get("usage") if isinstance(data.get("usage"), dict) else {}
    return Reply(
        text,
        counted(usage.get("prompt_tokens"), prompt_tokens(prompt)),
        counted(usage.get("completion_tokens"), estimate_tokens(text)),
        reply.cached_tokens,
        reply.finish_reason or "stop",
    )


def agent_meaning(error: StatusError, question: Query, now: float) -> Again | Quirk | EndpointError:
    """Like ``meaning_of``, but leave a wrong request for the agent to correct."""
    meaning = meaning_of(error, question, now)
    if isinstance(meaning, Again | ContextLengthError) or error.status_code in _KEYS_STATUS:
        return meaning
    if isinstance(meaning, Quirk) and meaning.name in {MAX_TOKENS, *LEFT_OUT}:
        return meaning
    if error.status_code in (400, 422):
        message = shown(error.message, question)
        return AgentRequestError(
            f"the server refuses the request ({error.status_code}): {message}", where=question.where
        )
    return (
        EndpointError("the server refuses the request", where=question.where)
        if isinstance(meaning, Quirk)
        else meaning
    )


def _body(prompt: Prompt) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(prompt.messages[0].content)
    return body
