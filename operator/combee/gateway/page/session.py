"""The page's sign-in cookie: a browser cannot send a bearer token by itself.

No script can read the cookie and no other site can make the browser send it. For a key of a Secret it holds a
seal, made with the key over the session's end. Any of the gateway's pods can check the seal (all have the
Secret, and nothing is stored), a stolen seal does not reveal the key and opens only the page, and removing
the key from the Secret ends its sessions. A service account's token cannot be checked without the token, so
the cookie holds the token itself, which is short-lived and made for the gateway's audience alone.

The cookie's name holds the namespace because browsers share cookies between the ports of one host, and people
forward gateways of two namespaces side by side. It names no path: the browser takes that of the page,
whatever an ingress puts before it.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from combee.gateway.keys import MOST_CHARACTERS, SecretKeys, seal_of
from combee.gateway.table import Check

SESSION_SECONDS = 4 * 3600
SKEW_SECONDS = 300
"""Clocks of the gateway's pods may differ by this much."""
MOST_COOKIE = 3800
"""characters: browsers silently drop larger cookies."""
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
_SEALED = re.compile(r"s\.(\d{1,12})\.([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a request presents to be let in: a key or token, or a seal and the time it ends."""

    token: str = ""
    until: int = 0
    seal: bytes = b""

    def __repr__(self) -> str:
        return "Shown()"


NOTHING_SHOWN = Shown()


def cookie_name(namespace: str) -> str:
    """Return the name of the cookie of a namespace's gateway."""
    return f"combee-page-{namespace}"


def from_cookies(header: str, name: str) -> Shown:
    """Return what the cookie called ``name`` in a Cookie header presents.

    >>> from_cookies("a=1; combee-page-x=t.aaa.bbb.ccc", "combee-page-x").token
    'aaa.bbb.ccc'
    """
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    value = next((value for key, _, value in pairs if key == name), "")
    if value.startswith("t."):
        return Shown(token=value[2:])
    if match := _SEALED.fullmatch(value):
        try:
            return Shown(until=int(match[1]), seal=base64.urlsafe_b64decode(match[2] + "="))
        except binascii.Error:
            return NOTHING_SHOWN
    return NOTHING_SHOWN


async def opens(shown: Shown, check: Check, namespace: str, now: float) -> bool:
    """Return whether ``check`` accepts what is shown. Raises ClusterError when nobody can say."""
    if shown.token:
        return len(shown.token) < MOST_CHARACTERS and bool(await check(shown.token))
    if not shown.seal or not now < shown.until <= now + SESSION_SECONDS + SKEW_SECONDS:
        return False
    return isinstance(check, SecretKeys) and check.sealed(_message(namespace, shown.until), shown.seal)


def cookie_value(token: str, *, of_secret: bool, namespace: str, now: float) -> str | None:
    """Return the cookie for an accepted key or token; None when a browser would not keep it."""
    if of_secret:
        until = int(now) + SESSION_SECONDS
        seal = base64.urlsafe_b64encode(seal_of(token, _message(namespace, until))).decode()
        return f"s.{until}.{seal.rstrip('=')}"
    return f"t.{token}" if len(token) < MOST_COOKIE and _TOKEN.fullmatch(token) else None


def set_cookie(name: str, value: str, *, secure: bool) -> str:
    """Return the Set-Cookie header. An empty value removes the cookie; ``secure``: the request used TLS."""
    seconds = SESSION_SECONDS if value else 0
    return f"{name}={value}; Max-Age={seconds}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"


def _message(namespace: str, until: int) -> bytes:
    return f"{namespace}\n{until}".encode()
