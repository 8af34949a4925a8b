"""The bodies of an embeddings call: what is sent, and what is read out of the answer. Pure.

A request is a prompt whose messages are the texts, and what is kept of the answer is text again, so the
memo, the limits, the budget, the retries and the records are those of every call.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from combee.clients.model.body import Reply, counted, prompt_tokens
from combee.clients.model.failures import StatusError
from combee.clients.model.refusals import Again, Asked, Quirk, judge
from combee.clients.model.wire import CanonicalRequest, ChatRequest, canonical_digest
from combee.errors import ContextLengthError, EndpointError
from combee.records import Message, Prompt

PATH = "/embeddings"
MAX_TEXTS = 32
"""Texts of one call: what the strictest of the usual servers take."""
MAX_TOKENS = 8192
"""Estimated tokens of one call; a single longer text is sent by itself."""
MAX_DIMENSIONS = 65_536
_NOT_SERVED = (404, 405, 501)
_FIX = "Serve an embedding model there, or name an endpoint that has one as spec.models.embedder."


def embedding_prompt(texts: Sequence[str]) -> Prompt:
    """The texts as what a client is asked: none of them empty."""
    messages = tuple(Message("input", text) for text in texts)
    return Prompt(messages, schema_name="embeddings", max_output_tokens=0)


PROBE = embedding_prompt(["ready"])
"""The least that shows whether an endpoint embeds."""


def embedding_key(canonical: CanonicalRequest) -> str:
    """The name of the call: the model and the texts, and nothing of sampling."""
    endpoint = canonical.endpoint
    return canonical_digest(
        {
            "v": 1,
            "kind": "embeddings",
            "model": endpoint.model,
            "revision": endpoint.revision,
            "engine": endpoint.engine_args,
            "input": [message.content for message in canonical.request.prompt.messages],
        }
    )


def embedding_body(model: str, request: ChatRequest, quirks: Collection[str]) -> bytes:
    """The JSON to send; floats are the interface's default, and asking for them by name is refused by some."""
    texts = [message.content for message in request.prompt.messages]
    return json.dumps({"model": model, "input": texts}, separators=(",", ":")).encode("ascii")


def read_embeddings(content: bytes, prompt: Prompt) -> Reply | str:
    """The reply, or in one word why this body is none: ``malformed``, ``count`` (a text without a vector,
    or more vectors than texts), ``dimension`` (they differ), ``nonfinite``."""
    try:
        data = json.loads(content)
        count = len(data["data"])
        rows = {_index(row, place): _vector(row["embedding"]) for place, row in enumerate(data["data"])}
        used = data.get("usage") or {}
        tokens = used.get("prompt_tokens", used.get("total_tokens"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return "malformed"
    texts = len(prompt.messages)
    if count != texts or set(rows) != set(range(texts)):
        return "count"
    vectors = [rows[index] for index in range(texts)]
    if len({vector.size for vector in vectors}) != 1 or not 0 < vectors[0].size <= MAX_DIMENSIONS:
        return "dimension"
    if not all(np.isfinite(vector).all() for vector in vectors):
        return "nonfinite"
    return Reply(encoded(vectors), counted(tokens, prompt_tokens(prompt)), 0, 0, "stop")


def vectors_of(text: str) -> NDArray[np.float32]:
    """The vectors of a kept answer, shape (texts, dimension), float32, finite; ValueError for another text."""
    kept = json.loads(text)
    rows = [np.frombuffer(base64.b64decode(row), dtype="<f4") for row in kept["vectors"]]
    return np.stack(rows).astype(np.float32).reshape(len(rows), int(kept["dimension"]))


def judge_embeddings(error: StatusError, asked: Asked, now: float) -> Again | Quirk | EndpointError:
    """As ``judge``, and says what to do about a server that does not embed."""
    verdict = judge(error, asked, now)
    if isinstance(verdict, Again) or error.status_code in (401, 402, 403):
        return verdict
    if isinstance(verdict, ContextLengthError):
        return ContextLengthError(
            verdict.what, where=verdict.where, fix="Use an embedding model with a longer context."
        )
    said = error.message.lower()
    if error.status_code in _NOT_SERVED or ("embedding" in said and "support" in said):
        return EndpointError(
            f"the server gives no embeddings at {PATH} ({error.status_code})", where=asked.where, fix=_FIX
        )
    return verdict


def _index(row: dict[str, Any], place: int) -> int:
    """Which text a vector is of; some servers leave that to the order."""
    index = row.get("index", place)
    if not isinstance(index, int) or isinstance(index, bool):
        raise TypeError("an index is no number")
    return index


def _vector(given: object) -> NDArray[np.float32]:
    """A list of numbers, or base64 of little-endian float32."""
    if isinstance(given, str):
        return np.frombuffer(base64.b64decode(given, validate=True), dtype="<f4").astype(np.float32)
    if not isinstance(given, list) or not all(type(value) in (int, float) for value in given):
        raise TypeError("a vector is no list of numbers")
    with np.errstate(over="ignore"):
        return np.asarray(given, dtype=np.float64).astype(np.float32)


def encoded(vectors: Sequence[NDArray[np.float32]]) -> str:
    """Vectors of one dimension as the text that is kept; ``vectors_of`` reads it."""
    rows = [base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii") for vector in vectors]
    return json.dumps({"dimension": int(vectors[0].size), "vectors": rows}, separators=(",", ":"))
