"""What an endpoint's error means: try again, say it differently, or give up with the reason. Pure.

A server's own words are shown only after they are cleaned: no key, no piece of the prompt, 200
characters at most. Where the key itself was refused they are not shown at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from combee.clients.backoff import retry_after_seconds
from combee.clients.model.body import MAX_TOKENS, RESPONSE_FORMAT, SEED
from combee.clients.model.failures import StatusError
from combee.clients.model.wire import Endpoint
from combee.errors import ContextLengthError, EndpointError
from combee.records import Prompt

_SHOWN = 200
_ECHO = 20
"""A stretch of the prompt this long in an error message is the prompt being echoed."""
_ECHO_CUT = 8
"""Enough of it at the very end of a message, where the server itself may have cut the echo."""
_ESCAPE = re.compile(r"\\+([nrtbf\"'/])")
_UNICODE = re.compile(r"\\+u([0-9a-fA-F]{4})")

_PASSING = frozenset({408, 409, 425, 429})
_CONTEXT = (
    "context_length_exceeded",
    "maximum context length",
    "context length",
    "context window",
    "max_model_len",
    "maximum input length",
    "prompt is too long",
    "too many tokens",
    "reduce the length",
)
_QUOTA = ("insufficient_quota", "insufficient balance", "exceeded your current quota", "billing")
_FORMAT = ("response_format", "json_schema", "guided", "structured output", "structured_output")


@dataclass(frozen=True, slots=True)
class Again:
    """Worth another try. ``reason`` is one word for records; ``after`` what the server asked for, s."""

    reason: str
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Quirk:
    """The server does not take this parameter: learn it, and ask without."""

    name: str


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asked what, as far as an error message needs it."""

    endpoint: Endpoint
    role: str
    prompt: Prompt | None = None

    @property
    def where(self) -> str:
        """``models.task (llm.example.com)``"""
        role = "task" if self.role == "agent" else self.role
        return f"models.{role} ({self.endpoint.host})"


def judge(error: StatusError, asked: Asked, now: float) -> Again | Quirk | EndpointError:
    """The meaning of an HTTP status of 300 or above. ``now``: Unix seconds, for dates in headers.

    An unknown model is for the caller to name, who can ask the server what it serves.
    """
    status = error.status_code
    said = f"{error.code or ''} {error.type or ''} {error.message}".lower()
    if status in (401, 403):
        return refused_key(status, asked)
    if status == 402 or (status == 429 and any(word in said for word in _QUOTA)):
        return EndpointError(
            f"the account has no credit left ({status})",
            where=asked.where,
            fix="Top it up, or use another key.",
        )
    if status in _PASSING or (status >= 500 and status not in (501, 505)):
        return Again(str(status), retry_after_seconds(error.response.headers, now))
    if status == 413 or (status in (400, 422) and any(word in said for word in _CONTEXT)):
        return ContextLengthError(
            f"the request is longer than the model's context ({status}): {shown(error.message, asked)}",
            where=asked.where,
            fix="Lower aggregation.maxInputTokens or renderTokenBudget, or serve the model with a longer context.",
        )
    if status in (400, 404, 422) and (quirk := _quirk(error, said)):
        return Quirk(quirk)
    if 300 <= status < 400:
        return EndpointError(
            f"the server redirects to another URL ({status})",
            where=asked.where,
            fix="Write the URL it redirects to in the endpoint.",
        )
    return EndpointError(
        f"the server refuses the request ({status}): {shown(error.message, asked)}",
        where=asked.where,
        fix="Check the endpoint's URL, model and parameters.",
    )


def is_about_the_model(error: StatusError) -> bool:
    """Does it say that there is no such model? A 404 may also mean a wrong path."""
    said = f"{error.code or ''} {error.message}".lower()
    return error.status_code == 404 or (
        error.status_code == 400 and any(word in said for word in ("model_not_found", "model not exist"))
    )


def refused_key(status: int, asked: Asked) -> EndpointError:
    """401 and 403, without a word of what the server said: it may repeat the key."""
    source = asked.endpoint.key_source
    what = "the API key is refused" if asked.endpoint.api_key.get_secret_value() else "an API key is needed"
    fix = (
        f"Check the key from {source}."
        if source
        else "Give one by apiKeySecretRef and --secret NAME/KEY=env:VAR, or for an engine by --engine-key NAME=env:VAR."
    )
    return EndpointError(f"{what} ({status})", where=asked.where, fix=fix)


def unknown_model(asked: Asked, served: tuple[str, ...] | None) -> EndpointError:
    """The model is not among ``served`` (None: the server could not say)."""
    what = f"the model {asked.endpoint.model!r} is not served there"
    if not served:
        return EndpointError(
            what, where=asked.where, fix="Check the URL (does it end in /v1?) and the model's name."
        )
    names = ", ".join(served[:10]) + (f" and {len(served) - 10} more" if len(served) > 10 else "")
    return EndpointError(what, where=asked.where, fix=f"It serves: {names}.")


def shown(message: str, asked: Asked) -> str:
    """A server's message, fit for a log: one line, no key, nothing of the prompt."""
    key = asked.endpoint.api_key.get_secret_value()
    text = _flat(message.replace(key, "***") if key else message)
    if asked.prompt is not None:
        prompt = _flat(" ".join(part.content for part in asked.prompt.messages))
        for start in range(min(len(text), _SHOWN)):
            stretch = text[start : start + _ECHO]
            if len(stretch) >= _ECHO_CUT and stretch in prompt:
                return f"{text[:start]}[...]"
    return text[:_SHOWN]


def _flat(text: str) -> str:
    """One line, with what JSON and Python escape written plainly: an echo often comes escaped."""
    text = _UNICODE.sub(_character, text)
    return " ".join(_ESCAPE.sub(lambda found: found[1] if found[1] in "\"'/" else " ", text).split())


def _character(found: re.Match[str]) -> str:
    code = int(found[1], 16)
    return "?" if 0xD800 <= code < 0xE000 else chr(code)


def _quirk(error: StatusError, said: str) -> str | None:
    """The optional parameter that the message complains about, if it is one we can do without."""
    if error.param == RESPONSE_FORMAT or any(word in said for word in _FORMAT):
        return RESPONSE_FORMAT
    if "max_completion_tokens" in said or (error.param == MAX_TOKENS and "unsupported" in said):
        return MAX_TOKENS
    unwelcome = any(
        word in said for word in ("unsupported", "not supported", "unknown", "extra", "unrecognized")
    )
    if error.param == SEED or (unwelcome and "seed" in said.replace("_", " ").split()):
        return SEED
    return None
