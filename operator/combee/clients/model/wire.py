"""Requests, answers and records of model calls: plain data, no I/O.

``CanonicalRequest.key`` names a call. It covers everything that can change the answer and nothing
else (not the URL, not the role), so that runs of one namespace share the answers they paid for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from pydantic import SecretStr

from combee.api.sampling import DEFAULT, Sampling
from combee.clients.model.adaptive import LimitChange
from combee.clients.model.looks import Look
from combee.errors import ManifestError
from combee.records import Prompt


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model behind an OpenAI-compatible URL (``https://host/v1``). ``repr`` hides the key.

    ``revision`` and ``engine_args`` name the weights and how they are served; they are part of a
    call's key. ``key_source`` says in the user's words where the API key comes from (a flag, a
    secret's name); messages about a refused key quote it and never the key. ``balanced``: the host's
    name stands for several equal servers, and calls are shared out over all of its addresses.
    """

    url: str
    model: str
    api_key: SecretStr = field(default_factory=lambda: SecretStr(""))
    revision: str = ""
    engine_args: tuple[str, ...] = ()
    key_source: str = ""
    balanced: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    """sent with each request; they say how soon it is answered and never what, so no key covers them."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ManifestError(
                "the endpoint's URL must be http:// or https:// with a host",
                where="endpoint.url",
                fix="Write it like https://host/v1.",
            )
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ManifestError(
                "the endpoint's URL holds credentials, a query or a fragment",
                where="endpoint.url",
                fix="Give the key as a secret (apiKeySecretRef, --secret or --engine-key) and keep the URL "
                "plain.",
            )

    @property
    def host(self) -> str:
        """``host:port`` as shown to people."""
        return urlsplit(self.url).netloc


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One call. ``ordinal`` numbers repeats of an otherwise equal request and is sent as ``seed``. The answer
    has the room that the prompt gives it."""

    prompt: Prompt
    sampling: Sampling = DEFAULT
    ordinal: int = 0
    anew: str = ""
    """Why it is asked though it may have been answered before: a part of the key, which is sent to nobody."""

    @property
    def output_tokens(self) -> int:
        """The most tokens of the reply: the answer's, and those of the thinking before it."""
        return self.sampling.output_tokens(self.prompt.max_output_tokens)


@dataclass(frozen=True, slots=True)
class CanonicalRequest:
    """A request together with the identity of the model that answers it."""

    endpoint: Endpoint
    request: ChatRequest

    @property
    def key(self) -> str:
        """sha256 hex of the canonical JSON; the same in every process and version of Python."""
        prompt, sampling = self.request.prompt, self.request.sampling
        content = {
            "v": 1,
            "model": self.endpoint.model,
            "revision": self.endpoint.revision,
            "engine": self.endpoint.engine_args,
            "decoding": {
                "temperature": float(sampling.temperature),
                "top_p": float(sampling.top_p),
                **sampling.stated,
                "max_tokens": prompt.max_output_tokens,
            },
            "messages": [[message.role, message.content] for message in prompt.messages],
            "schema": [prompt.schema_name, prompt.schema],
            "ordinal": self.request.ordinal,
        }
        if self.request.anew:
            content["anew"] = self.request.anew
        return canonical_digest(content)


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer. Tokens are the server's own counts, or estimates when it sent none.

    ``latency_seconds`` is that of the attempt which succeeded, without any wait before it.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    latency_seconds: float
    finish_reason: str
    attempts: int
    hedged: bool = False
    """Whether a second request raced the first; the latency then counts from the first."""
    retried_for: tuple[str, ...] = ()
    """Why each failed attempt was repeated, in one word: an HTTP status, ``timeout``, ``reset``, ..."""
    lost_tokens: int = 0
    """Tokens of its other requests that a server may have worked on, whose answers came to nothing: they ran
    into a deadline, broke off, could not be read, or lost a race. No server says what it used for them, so
    each counts like the answer."""

    @property
    def tokens(self) -> int:
        """Return the tokens of the answer, in and out."""
        return self.prompt_tokens + self.completion_tokens

    def to_json(self) -> dict[str, Any]:
        """Return the completion as plain JSON; ``from_json`` reads it back."""
        return {
            "text": self.text,
            "promptTokens": self.prompt_tokens,
            "completionTokens": self.completion_tokens,
            "cachedTokens": self.cached_tokens,
            "latencySeconds": self.latency_seconds,
            "finishReason": self.finish_reason,
            "attempts": self.attempts,
            **({"hedged": True} if self.hedged else {}),
            **({"retriedFor": list(self.retried_for)} if self.retried_for else {}),
            **({"lostTokens": self.lost_tokens} if self.lost_tokens else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Completion:
        """Read what ``to_json`` wrote. Raises KeyError, TypeError, ValueError or OverflowError for other
        data, and for numbers that no call and no rollout can have: an earlier version took any of a
        server."""
        if not isinstance(data["text"], str):
            raise TypeError("text is not a string")
        return cls(
            text=data["text"],
            prompt_tokens=_count(data["promptTokens"]),
            completion_tokens=_count(data["completionTokens"]),
            cached_tokens=_count(data["cachedTokens"]),
            latency_seconds=_seconds(data["latencySeconds"]),
            finish_reason=str(data["finishReason"]),
            attempts=_count(data["attempts"]),
            hedged=bool(data.get("hedged", False)),
            retried_for=tuple(str(reason) for reason in data.get("retriedFor", ())),
            lost_tokens=_count(data.get("lostTokens", 0)),
        )


@dataclass(frozen=True, slots=True)
class Answered:
    """A completion, and how it came. ``hit``: the memo (or an equal call in flight) answered, and no
    request was made. ``limit_changes``: the changes of the server's limit since the previous answer;
    they are never part of the memo, and no more is ``look``: what the server was seen to do after it, or
    ``in_flight``: this process's calls at the server when it went, itself included."""

    completion: Completion
    hit: bool
    limit_changes: tuple[LimitChange, ...] = ()
    look: Look | None = None
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One ``ask``, for the call graph and the usage totals. Times are in seconds.

    ``started`` is the offset, on the connection pool's clock, at which the attempt that succeeded
    was sent (a hit: at which the memo was asked). ``seconds`` is that attempt's latency; a hit
    carries the recorded one. ``queued_seconds`` is the wait for a slot and for the rate limits.
    ``error`` is the error's code when the call failed; the token counts but ``lost_tokens`` are then 0.
    Those of one that was cancelled ("Cancelled") are the most that its requests may have used.
    """

    role: str
    started: float
    seconds: float
    queued_seconds: float
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    hit: bool
    attempts: int
    retried_for: tuple[str, ...] = ()
    error: str = ""
    hedged: bool = False
    lost_tokens: int = 0
    sent: bool = True
    """whether a server, or a user's program, may have worked on it: otherwise it costs nothing."""

    @classmethod
    def of(cls, role: str, done: Completion | None, *, hit: bool, error: str = "") -> CallRecord:
        """Return the record of one attempt that ended with ``done``, or with an error where there is none."""
        if done is None:
            return cls(role, 0.0, 0.0, 0.0, 0, 0, 0, hit, 1, error=error, sent=not error)
        tokens = done.prompt_tokens, done.completion_tokens, done.cached_tokens
        hedged = done.hedged and not hit
        return cls(
            role,
            0.0,
            done.latency_seconds,
            0.0,
            *tokens,
            hit,
            1,
            hedged=hedged,
            lost_tokens=done.lost_tokens,
        )


OnCall = Callable[[CallRecord], None]


class Hold(Protocol):
    """What a request that is under way may use at most."""

    def release(self) -> None:
        """Give it back: the request is over, and what it used is charged by its record."""


class Budget(Protocol):
    """The run's budget. Both methods raise BudgetExhaustedError."""

    def hold(self, role: str, prompt_tokens: int, output_tokens: int, *, again: bool = False) -> Hold:
        """Hold the most that one request can use, just before it is made. ``again``: it repeats a request of
        the same call, which counts as one rollout."""
        ...

    def recall(self, role: str) -> None:
        """Check that something is left for an answer from the memo, which is charged like any other."""
        ...


MOST_COUNTED = 10**12
"""No call has so many tokens, and no rollout of many calls: sums of such counts stay exact as floats."""


def _count(value: Any) -> int:
    if not 0 <= (count := int(value)) <= MOST_COUNTED:
        raise ValueError("a count is out of range")
    return count


def _seconds(value: Any) -> float:
    if not 0 <= (seconds := float(value)) <= MOST_COUNTED:
        raise ValueError("a latency is out of range")
    return seconds


def canonical_digest(content: object) -> str:
    """Return the sha256 hex digest of ``canonical_json``."""
    return hashlib.sha256(canonical_json(content)).hexdigest()


def canonical_json(content: object) -> bytes:
    """Return ASCII JSON with sorted keys and no spaces. Raises ValueError for NaN and infinities."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
