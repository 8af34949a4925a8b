"""What an endpoint's error means: retry, leave a parameter out, or give up with the reason. Pure.

A server's message is shown only after it is cleaned: no key, no piece of the prompt, at most 200
characters. Where the key itself was refused it is not shown at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from combee.clients.backoff import retry_after_seconds
from combee.clients.model.body import BOUNDS, EFFORT, MAX_TOKENS, RESPONSE_FORMAT, SEED, THINKING
from combee.clients.model.failures import NoAnswerError, StatusError
from combee.clients.model.wire import Endpoint
from combee.errors import ContextLengthError, EndpointError, TransientError, UnreachableError
from combee.records import Prompt

_SHOWN = 200
_ECHO = 20
"""An error message that holds so many characters of the prompt in a row echoes the prompt."""
_ECHO_CUT = 8
"""So many suffice at the very end of a message, where the server may have cut the echo."""
# From the first backslash of a run only: a page of backslashes would else be read once from each of them.
_ESCAPE = re.compile(r"(?<!\\)\\+([nrtbf\"'/])")
_UNICODE = re.compile(r"(?<!\\)\\+u([0-9a-fA-F]{4})")

_PASSING = frozenset({408, 409, 425, 429})
_CONTEXT = (
    "context_length_exceeded",
    "maximum context length",
    "context length",
    "context window",
    "context size",
    "max_model_len",
    "maximum input length",
    "prompt is too long",
    "too many tokens",
    "reduce the length",
)
_OUTPUT = ("fewer output tokens", "max_tokens is too large", "max_completion_tokens is too large")
"""Here the prompt may be as short as it likes: it is the answer's room that is too large."""
_SEED = re.compile(r"(?<![a-z])seed(?![a-z])")
_QUOTA = ("insufficient_quota", "insufficient balance", "exceeded your current quota", "billing")
_FORMAT = ("response_format", "json_schema", "guided", "structured output", "structured_output")


@dataclass(frozen=True, slots=True)
class Again:
    """The request is worth another attempt. ``reason`` is one word for the records; ``after`` is the wait
    that the server asked for, in seconds."""

    reason: str
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Quirk:
    """The server refuses this parameter: remember that, and ask without it."""

    name: str


@dataclass(frozen=True, slots=True)
class Query:
    """The endpoint, role and prompt of a call, for error messages."""

    endpoint: Endpoint
    role: str
    prompt: Prompt | None = None

    @property
    def where(self) -> str:
        """The field of the manifest and the host, such as ``models.task (llm.example.com)``."""
        role = "task" if self.role == "agent" else self.role
        return f"models.{role} ({self.endpoint.host})"


def meaning_of(error: StatusError, question: Query, now: float) -> Again | Quirk | EndpointError:
    """Return the meaning of an HTTP status of 300 or above. ``now``: Unix seconds, for dates in headers.

    The caller detects an unknown model, since it can ask the server which models it serves.
    """
    status = error.status_code
    text = f"{error.code or ''} {error.type or ''} {error.message}".lower()
    if status in (401, 403):
        return refused_key(status, question)
    if status == 402 or (status == 429 and any(word in text for word in _QUOTA)):
        return EndpointError(
            f"the account has no credit left ({status})",
            where=question.where,
            fix="Top it up, or use another key.",
        )
    if status in _PASSING or (status >= 500 and status not in (501, 505)):
        return Again(str(status), retry_after_seconds(error.response.headers, now))
    if status in (400, 422) and any(word in text for word in _OUTPUT):
        return ContextLengthError(
            f"a reply may not have so many tokens ({status}): {shown(error.message, question)}",
            where=question.where,
            fix="Lower sampling.maxTokens or sampling.reasoningTokens, "
            "or serve the model with a longer context.",
        )
    if status == 413 or (status in (400, 422) and any(word in text for word in _CONTEXT)):
        return ContextLengthError(
            f"the request is longer than the model's context ({status}): {shown(error.message, question)}",
            where=question.where,
            fix="Lower aggregation.maxInputTokens or renderTokenBudget, "
            "or serve the model with a longer context.",
        )
    if status in (400, 404, 422) and (quirk := _quirk(error, text)):
        return Quirk(quirk)
    if 300 <= status < 400:
        return EndpointError(
            f"the server redirects to another URL ({status})",
            where=question.where,
            fix="Write the URL it redirects to in the endpoint.",
        )
    return EndpointError(
        f"the server refuses the request ({status}): {shown(error.message, question)}",
        where=question.where,
        fix="Check the endpoint's URL, model and parameters.",
    )


def about_model(error: StatusError) -> bool:
    """Return whether the error may mean an unknown model. A 404 may also mean a wrong path."""
    text = f"{error.code or ''} {error.message}".lower()
    return error.status_code == 404 or (
        error.status_code == 400 and any(word in text for word in ("model_not_found", "model not exist"))
    )


def refused_key(status: int, question: Query) -> EndpointError:
    """Return the error for 401 and 403. It leaves the server's message out, which may repeat the key."""
    source = question.endpoint.key_source
    problem = (
        "the API key is refused" if question.endpoint.api_key.get_secret_value() else "an API key is needed"
    )
    fix = (
        f"Check the key from {source}."
        if source
        else "Give one by apiKeySecretRef and --secret NAME/KEY=env:VAR, or for an engine by --engine-key "
        "NAME=env:VAR."
    )
    return EndpointError(f"{problem} ({status})", where=question.where, fix=fix)


def unknown_model(question: Query, served: tuple[str, ...] | None) -> EndpointError:
    """Return the error for a model that is not among ``served`` (None: the server could not say)."""
    problem = f"the model {question.endpoint.model!r} is not served there"
    if not served:
        return EndpointError(
            problem, where=question.where, fix="Check the URL (does it end in /v1?) and the model's name."
        )
    names = ", ".join(_flat(name)[:_SHOWN] for name in served[:10]) + (
        f" and {len(served) - 10} more" if len(served) > 10 else ""
    )
    return EndpointError(problem, where=question.where, fix=f"It serves: {names}.")


def shown(message: str, question: Query) -> str:
    """Return a server's message, cleaned for a log: one line without the key or parts of the prompt."""
    key = question.endpoint.api_key.get_secret_value()
    text = _flat(message.replace(key, "***") if key else message)
    if question.prompt is not None:
        prompt = _flat(" ".join(part.content for part in question.prompt.messages))
        for start in range(min(len(text), _SHOWN)):
            stretch = text[start : start + _ECHO]
            if len(stretch) >= _ECHO_CUT and stretch in prompt:
                return f"{text[:start]}[...]"
    return text[:_SHOWN]


def _flat(text: str) -> str:
    """Return the text on one line with its JSON and Python escapes resolved, since an echo is often escaped,
    and without what a terminal would obey."""
    text = _UNICODE.sub(_character, text)
    text = " ".join(_ESCAPE.sub(lambda match: match[1] if match[1] in "\"'/" else " ", text).split())
    return text if text.isprintable() else "".join(one if one.isprintable() else "?" for one in text)


def _character(match: re.Match[str]) -> str:
    code = int(match[1], 16)
    return "?" if 0xD800 <= code < 0xE000 else chr(code)


def _quirk(error: StatusError, text: str) -> str | None:
    """Return the optional parameter that the message complains about, if requests can leave it out."""
    if any(word in text for word in ("maxlength", "maxitems")):
        return BOUNDS
    if error.param == RESPONSE_FORMAT or any(word in text for word in _FORMAT):
        return RESPONSE_FORMAT
    if "max_completion_tokens" in text or (error.param == MAX_TOKENS and "unsupported" in text):
        return MAX_TOKENS
    unwelcome = any(
        word in text for word in ("unsupported", "not supported", "unknown", "extra", "unrecognized")
    )
    if error.param == SEED or (unwelcome and _SEED.search(text)):
        return SEED
    return next((name for name in (EFFORT, THINKING) if error.param == name or name in text), None)


def spent(question: Query, reasons: list[str]) -> TransientError:
    """Return that no attempt brought an answer, and why each did not."""
    return TransientError(
        f"no answer after {len(reasons)} attempt{'s' * (len(reasons) > 1)} ({', '.join(reasons)})",
        where=question.where,
        fix="See the server's log; lower workers.concurrency if it is overloaded.",
    )


def unreachable(question: Query, error: NoAnswerError) -> UnreachableError:
    """Return that nobody answers at the endpoint's address."""
    cause = type(error.__cause__).__name__ if error.__cause__ else type(error).__name__
    return UnreachableError(
        f"the endpoint cannot be reached ({cause})",
        where=question.where,
        fix=f"Is a server listening at {question.endpoint.url}?",
    )


def final(meaning: EndpointError | Quirk, error: StatusError, question: Query) -> EndpointError:
    """Return the error that ends a call whose quirk was already left out, or that no attempt mends."""
    if isinstance(meaning, EndpointError):
        return meaning
    return EndpointError(
        f"the server refuses the request even without {meaning.name} ({error.status_code}): "
        f"{shown(error.message, question)}",
        where=question.where,
        fix="Check the endpoint's URL, model and parameters.",
    )
