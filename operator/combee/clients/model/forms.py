"""The kinds of call a client can make, each with its path, key, body, reader, and what its errors mean."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from combee.clients.model.agents import AGENT, agent_body, agent_key, agent_meaning, read_agent_reply
from combee.clients.model.body import Reply, read_reply, request_body
from combee.clients.model.embedding import (
    PATH,
    embedding_body,
    embedding_key,
    embeddings_meaning,
    read_embeddings,
)
from combee.clients.model.failures import StatusError
from combee.clients.model.refusals import Again, Query, Quirk, meaning_of
from combee.clients.model.wire import CanonicalRequest, ChatRequest
from combee.errors import EndpointError
from combee.records import Prompt

EMBEDDER = "embedder"
"""The role whose calls are embeddings. An agent's calls are passed on as they are; all others are chats."""


@dataclass(frozen=True, slots=True)
class Form:
    """One kind of call. Its four functions are pure."""

    path: str
    key: Callable[[CanonicalRequest], str]
    body: Callable[[str, ChatRequest, Collection[str]], bytes]
    """(model, request, quirks) -> the body to send."""
    read: Callable[[bytes, Prompt], Reply | str]
    """(body, prompt) -> the reply, or one word for why there is none."""
    meaning: Callable[[StatusError, Query, float], Again | Quirk | EndpointError]
    """(error, question, now) -> the meaning of a status of 300 or above."""


CHAT = Form("/chat/completions", lambda canonical: canonical.key, request_body, read_reply, meaning_of)
EMBEDDINGS = Form(PATH, embedding_key, embedding_body, read_embeddings, embeddings_meaning)
AGENTS = Form(CHAT.path, agent_key, agent_body, read_agent_reply, agent_meaning)
_FORMS = {EMBEDDER: EMBEDDINGS, AGENT: AGENTS}


def form_of(role: str) -> Form:
    """Return the kind of call that a role makes."""
    return _FORMS.get(role, CHAT)
