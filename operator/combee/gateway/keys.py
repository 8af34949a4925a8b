"""Decides who may send requests: holders of a Secret's key, or service accounts the API server knows."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from combee.clients.kubernetes.kube import Answer
from combee.errors import ClusterError

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
KNOWN_SECONDS = 60.0
"""how long the API server's verdict on an accepted token is trusted."""
REFUSED_SECONDS = 10.0
MOST_KNOWN = 10_000
"""most accepted tokens remembered, and most refused ones: strangers cannot push out accepted tokens."""
MOST_AT_ONCE = 8
"""Most reviews under way: strangers must not make the API server busy."""
MOST_WAITING = 64
"""Most reviews under way or waiting, so that a good token does not wait behind all of strangers'."""
MOST_CHARACTERS = 16_384
"""Tokens are shorter than this; anything longer is not looked at."""


class Asks(Protocol):
    """The part of ``clients.kubernetes.kube.Kube`` that a review needs."""

    async def request(self, method: str, path: str, *, body: Any = None) -> Answer:
        """Send one request and return its answer."""


def bearer(header: str) -> str:
    """Return the token of an Authorization header, or an empty string when there is none."""
    kind, _, token = header.partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


class SecretKeys:
    """The keys of a Secret, compared by digest and in constant time."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys if key]

    async def __call__(self, token: str) -> str:
        """Return a name for ``token`` when it is one of the keys, and otherwise an empty string."""
        digest = _digest(token)
        matches = [hmac.compare_digest(digest, key_digest) for key_digest in self._digests]
        return digest.hex() if any(matches) else ""

    def sealed(self, message: bytes, seal: bytes) -> bool:
        """Return whether ``seal`` is the ``seal_of`` one of the keys and ``message``. Takes constant time."""
        matches = [hmac.compare_digest(seal, _sealed(key_digest, message)) for key_digest in self._digests]
        return any(matches)


def seal_of(key: str, message: bytes) -> bytes:
    """Return a seal of ``message`` that needs ``key`` to make and does not reveal it."""
    return _sealed(_digest(key), message)


@dataclass(slots=True)
class Reviewed:
    """Checks service accounts' tokens with the API server and remembers the verdicts for a minute."""

    kube: Asks
    audiences: tuple[str, ...]
    accounts: Collection[str]
    """accounts that are let in, as namespace/name."""
    namespace: str
    """the namespace whose accounts are all let in when ``accounts`` is empty."""
    clock: Callable[[], float] = time.monotonic
    _known: dict[bool, dict[bytes, tuple[float, str]]] = field(default_factory=lambda: {True: {}, False: {}})
    """verdict -> digest of a token -> when the verdict expires, and whose token it is; oldest first."""
    _reviews: dict[bytes, asyncio.Task[str]] = field(default_factory=dict)
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))

    async def __call__(self, token: str) -> str:
        """Return the account that ``token`` belongs to when it is let in, otherwise an empty string. Raises
        ClusterError if unknown.

        One token has at most one review under way, and a token that cannot be a service account's has none.
        """
        if token.count(".") != 2:
            return ""
        key, now = _digest(token), self.clock()
        for known in self._known.values():
            expires, account = known.get(key, (0.0, ""))
            if expires > now:
                if account and expires < now + KNOWN_SECONDS / 2 and len(self._reviews) < MOST_WAITING:
                    self._review(token, key)  # it is let in meanwhile, whoever waits before it
                return account
        if key not in self._reviews and len(self._reviews) >= MOST_WAITING:
            raise ClusterError("too many tokens wait to be reviewed")
        review = self._review(token, key)
        # A client that goes away must not cancel the review for the others that wait for it.
        return await asyncio.shield(review)

    def _review(self, token: str, key: bytes) -> asyncio.Task[str]:
        if (review := self._reviews.get(key)) is None:
            review = self._reviews[key] = asyncio.create_task(self._ask(token, key))
            review.add_done_callback(
                lambda done: (self._reviews.pop(key), done.cancelled() or done.exception())
            )
        return review

    async def _ask(self, token: str, key: bytes) -> str:
        spec = {"token": token, "audiences": list(self.audiences)}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        async with self._turn:
            answer = await self.kube.request("POST", REVIEWS, body=body)
        account = self._accepted(answer.body.get("status") or {})
        known = self._known[bool(account)]
        known.pop(key, None)
        while len(known) >= MOST_KNOWN:
            known.pop(next(iter(known)))
        known[key] = self.clock() + (KNOWN_SECONDS if account else REFUSED_SECONDS), account
        self._known[not account].pop(key, None)
        return account

    def _accepted(self, status: dict[str, Any]) -> str:
        """Return the account as namespace/name; empty when it is not let in."""
        if not status.get("authenticated") or not set(status.get("audiences") or ()) & set(self.audiences):
            return ""
        name = str((status.get("user") or {}).get("username") or "")
        head, _, account = name.partition("system:serviceaccount:")
        namespace, _, account_name = account.partition(":")
        named = f"{namespace}/{account_name}"
        let_in = named in self.accounts if self.accounts else namespace == self.namespace
        return named if account and not head and let_in else ""


def _sealed(digest: bytes, message: bytes) -> bytes:
    return hmac.digest(digest, b"combee-gateway page\n" + message, "sha256")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
