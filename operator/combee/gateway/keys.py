"""Who may send requests: keys of a mounted Secret, or service accounts that the API server knows."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from combee.clients.kubernetes.kube import Answer

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
KNOWN_SECONDS = 60.0
"""how long the API server's word on a token is trusted."""
REFUSED_SECONDS = 10.0
MOST_KNOWN = 10_000
"""of those let in, and of those refused: strangers push nobody out that is let in."""
MOST_AT_ONCE = 8
"""Reviews under way: strangers must not make the API server busy."""
MOST_CHARACTERS = 16_384
"""A token has fewer; nothing longer is looked at."""


class Asks(Protocol):
    """The part of ``clients.kubernetes.kube.Kube`` that a review needs."""

    async def request(self, method: str, path: str, *, body: Any = None) -> Answer:
        """One request."""


def bearer(header: str) -> str:
    """The token of an Authorization header; empty when there is none."""
    kind, _, token = header.partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


class SecretKeys:
    """The values of a Secret. Compared by digest and in constant time."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys if key]

    async def __call__(self, token: str) -> bool:
        """Whether ``token`` is one of them."""
        given = _digest(token)
        fits = [hmac.compare_digest(given, one) for one in self._digests]
        return any(fits)

    def sealed(self, message: bytes, seal: bytes) -> bool:
        """Whether ``seal`` is ``seal_of`` one of them and ``message``. In constant time, as above."""
        fits = [hmac.compare_digest(seal, _sealed(one, message)) for one in self._digests]
        return any(fits)


def seal_of(key: str, message: bytes) -> bytes:
    """What only who knows ``key`` could have made of ``message``; it does not tell the key."""
    return _sealed(_digest(key), message)


@dataclass(slots=True)
class Reviewed:
    """Tokens of service accounts, judged by the API server and remembered for a minute."""

    kube: Asks
    audiences: tuple[str, ...]
    accounts: Collection[str]
    """those let in, as namespace/name."""
    namespace: str
    """of which all are let in where ``accounts`` is empty."""
    clock: Callable[[], float] = time.monotonic
    _known: dict[bool, dict[bytes, float]] = field(default_factory=lambda: {True: {}, False: {}})
    """verdict -> token's digest -> until when it holds, oldest first."""
    _asked: dict[bytes, asyncio.Task[bool]] = field(default_factory=dict)
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))

    async def __call__(self, token: str) -> bool:
        """Whether ``token`` is of an account that is let in. ClusterError when nobody can say.

        One question at a time about one token, and none about what cannot be a service account's.
        """
        if token.count(".") != 2:
            return False
        key, now = _digest(token), self.clock()
        for verdict, known in self._known.items():
            if known.get(key, 0.0) > now:
                return verdict
        if (asked := self._asked.get(key)) is None:
            asked = self._asked[key] = asyncio.create_task(self._ask(token, key))
            asked.add_done_callback(lambda _: self._asked.pop(key, None))
        # Whoever goes away does not take the answer from the others that wait for it.
        return await asyncio.shield(asked)

    async def _ask(self, token: str, key: bytes) -> bool:
        spec = {"token": token, "audiences": list(self.audiences)}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        async with self._turn:
            answer = await self.kube.request("POST", REVIEWS, body=body)
        fits = self._fits(answer.body.get("status") or {})
        known = self._known[fits]
        known.pop(key, None)
        while len(known) >= MOST_KNOWN:
            known.pop(next(iter(known)))
        known[key] = self.clock() + (KNOWN_SECONDS if fits else REFUSED_SECONDS)
        self._known[not fits].pop(key, None)
        return fits

    def _fits(self, status: dict[str, Any]) -> bool:
        if not status.get("authenticated") or not set(status.get("audiences") or ()) & set(self.audiences):
            return False
        name = str((status.get("user") or {}).get("username") or "")
        head, _, account = name.partition("system:serviceaccount:")
        if head or not account:
            return False
        namespace, _, called = account.partition(":")
        if self.accounts:
            return f"{namespace}/{called}" in self.accounts
        return namespace == self.namespace


def _sealed(digest: bytes, message: bytes) -> bytes:
    return hmac.digest(digest, b"combee-gateway page\n" + message, "sha256")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
