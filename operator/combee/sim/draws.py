"""Stateless random draws: each is the SHA-256 of (seed, purpose, key), the same in every process."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_SCALE = 1.0 / (1 << 53)


def digest(text: str) -> str:
    """Return the sha256 hex of the text's UTF-8 bytes (lone surrogates unchanged)."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def number(*key: str | int) -> int:
    """Return a 64-bit number that depends on the key only."""
    joined = "\x1f".join(map(str, key)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(joined).digest()[:8], "big")


def unit(*key: str | int) -> float:
    """Return a number in [0, 1) that depends on the key only.

    >>> unit(7, "answer", "17") == unit(7, "answer", "17")
    True
    """
    return (number(*key) >> 11) * _SCALE


def pick(options: Sequence[T], *key: str | int) -> T:
    """Return one of the options, chosen by the key."""
    return options[number(*key) % len(options)]


def race(weight: float, *key: str | int) -> float:
    """Return an exponential time of rate ``weight`` > 0.

    The n smallest of several are a draw of n without replacement, one after the other, with probability
    proportional to weight.
    """
    return -math.log(1.0 - unit(*key)) / weight
