"""Who is signed in: what a browser keeps instead of a key, since it cannot send a bearer token by itself.

A cookie that no script can read and no other site can make the browser send. For a key of a Secret it holds a
seal, made with the key over the time that it ends: any of the gateway's pods can check it (all have the Secret, and
nothing is stored), a stolen one does not tell the key and opens the page only, and a key that is removed from the
Secret ends all that was made with it. A service account's token cannot be checked without it, so the cookie holds
the token itself: it is short-lived and made for the gateway's audience alone, and is asked about like any other.

Its name holds the namespace because browsers share cookies between the ports of one host, and gateways of two
namespaces are forwarded side by side. It names no path: the browser takes that of the page, whatever an ingress
puts before it.
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
"""Clocks of the gateway's pods may differ by so much."""
MOST_COOKIE = 3800
"""characters: browsers drop larger cookies without a word."""
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
_SEALED = re.compile(r"s\.(\d{1,12})\.([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a request shows to be let in: a key or token, or a seal and until when it holds."""

    token: str = ""
    until: int = 0
    seal: bytes = b""

    def __repr__(self) -> str:
        return "Shown()"


NOTHING_SHOWN = Shown()


def cookie_name(namespace: str) -> str:
    """Of the cookie of a namespace's gateway."""
    return f"combee-page-{namespace}"


def from_cookies(header: str, name: str) -> Shown:
    """What the cookie called ``name`` in a Cookie header shows.

    >>> from_cookies("a=1; combee-page-x=t.aaa.bbb.ccc", "combee-page-x").token
    'aaa.bbb.ccc'
    """
    pairs = (one.strip().partition("=") for one in header.split(";"))
    value = next((value for called, _, value in pairs if called == name), "")
    if value.startswith("t."):
        return Shown(token=value[2:])
    if found := _SEALED.fullmatch(value):
        try:
            return Shown(until=int(found[1]), seal=base64.urlsafe_b64decode(found[2] + "="))
        except binascii.Error:
            return NOTHING_SHOWN
    return NOTHING_SHOWN


async def opens(shown: Shown, check: Check, namespace: str, now: float) -> bool:
    """Whether what is shown is good where ``check`` decides. ClusterError when nobody can say."""
    if shown.token:
        return len(shown.token) < MOST_CHARACTERS and await check(shown.token)
    if not shown.seal or not now < shown.until <= now + SESSION_SECONDS + SKEW_SECONDS:
        return False
    return isinstance(check, SecretKeys) and check.sealed(_message(namespace, shown.until), shown.seal)


def cookie_value(token: str, *, of_secret: bool, namespace: str, now: float) -> str | None:
    """What the browser is to keep for a key or token that was let in; None when it would not keep it."""
    if of_secret:
        until = int(now) + SESSION_SECONDS
        seal = base64.urlsafe_b64encode(seal_of(token, _message(namespace, until))).decode()
        return f"s.{until}.{seal.rstrip('=')}"
    return f"t.{token}" if len(token) < MOST_COOKIE and _TOKEN.fullmatch(token) else None


def set_cookie(name: str, value: str, *, secure: bool) -> str:
    """The Set-Cookie header; an empty value takes the cookie away. ``secure``: it came over TLS."""
    seconds = SESSION_SECONDS if value else 0
    return f"{name}={value}; Max-Age={seconds}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"


def _message(namespace: str, until: int) -> bytes:
    return f"{namespace}\n{until}".encode()
