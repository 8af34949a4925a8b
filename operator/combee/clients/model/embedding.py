"""The bodies of an embeddings call: how a request is written and how its answer is read. Pure.

A request is a prompt whose messages are the texts, and the recorded answer is text as well, so memo,
limits, budget, retries and records work as for every other call.
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
from combee.clients.model.refusals import Again, Query, Quirk, meaning_of
from combee.clients.model.wire import CanonicalRequest, ChatRequest, canonical_digest
from combee.errors import ContextLengthError, EndpointError
from combee.jsonread import MALFORMED
from combee.records import Message, Prompt

PATH = "/embeddings"
MAX_TEXTS = 32
"""The most texts of one call: the limit of the strictest common server."""
MAX_TOKENS = 8192
"""The most estimated tokens of one call; a single longer text is sent by itself."""
MAX_DIMENSIONS = 65_536
_NOT_SERVED = (404, 405, 501)
_FIX = "Serve an embedding model there, or name an endpoint that has one as spec.models.embedder."


def embedding_prompt(texts: Sequence[str]) -> Prompt:
    """Return a prompt whose messages are the texts, none of which may be empty."""
    messages = tuple(Message("input", text) for text in texts)
    return Prompt(messages, schema_name="embeddings", max_output_tokens=0)


PROBE = embedding_prompt(["ready"])
"""The smallest request that shows whether an endpoint serves embeddings."""


def embedding_key(canonical: CanonicalRequest) -> str:
    """Return the call's key: a digest of the model and the texts, without sampling settings."""
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
    """Return the JSON to send. It names no encoding: floats are the default, and some servers refuse
    the parameter."""
    texts = [message.content for message in request.prompt.messages]
    return json.dumps({"model": model, "input": texts}, separators=(",", ":")).encode("ascii")


def read_embeddings(content: bytes, prompt: Prompt) -> Reply | str:
    """Return the reply, or one word for why this body holds none: ``malformed``, ``count`` (not one
    vector for each text), ``dimension`` (the vectors' dimensions differ) or ``nonfinite``."""
    try:
        data = json.loads(content)
        count = len(data["data"])
        rows = {_index(row, place): _vector(row["embedding"]) for place, row in enumerate(data["data"])}
        usage = data.get("usage") or {}
        tokens = usage.get("prompt_tokens", usage.get("total_tokens"))
    except (*MALFORMED, RecursionError):
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
    """Return the finite float32 vectors of a recorded answer, shape (texts, dimension).

    Raises ValueError for any other text.
    """
    record = json.loads(text)
    rows = [np.frombuffer(base64.b64decode(row), dtype="<f4") for row in record["vectors"]]
    return np.stack(rows).astype(np.float32).reshape(len(rows), int(record["dimension"]))


def embeddings_meaning(error: StatusError, question: Query, now: float) -> Again | Quirk | EndpointError:
    """Like ``meaning_of``, and name the fix for a server that serves no embeddings."""
    meaning = meaning_of(error, question, now)
    if isinstance(meaning, Again) or error.status_code in (401, 402, 403):
        return meaning
    if isinstance(meaning, ContextLengthError):
        return ContextLengthError(
            meaning.what, where=meaning.where, fix="Use an embedding model with a longer context."
        )
    message = error.message.lower()
    if error.status_code in _NOT_SERVED or ("embedding" in message and "support" in message):
        return EndpointError(
            f"the server gives no embeddings at {PATH} ({error.status_code})", where=question.where, fix=_FIX
        )
    return meaning


def _index(row: dict[str, Any], place: int) -> int:
    """Return the index of the vector's text; some servers give it only by the order of the rows."""
    index = row.get("index", place)
    if not isinstance(index, int) or isinstance(index, bool):
        raise TypeError("an index is no number")
    return index


def _vector(embedding: object) -> NDArray[np.float32]:
    """Return the float32 vector of a list of numbers, or of base64 of little-endian float32."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float32)
    if not isinstance(embedding, list) or not all(type(value) in (int, float) for value in embedding):
        raise TypeError("a vector is no list of numbers")
    with np.errstate(over="ignore"):
        return np.asarray(embedding, dtype=np.float64).astype(np.float32)


def encoded(vectors: Sequence[NDArray[np.float32]]) -> str:
    """Return vectors of one dimension as the text that the memo records; ``vectors_of`` reads it."""
    rows = [base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii") for vector in vectors]
    return json.dumps({"dimension": int(vectors[0].size), "vectors": rows}, separators=(",", ":"))
