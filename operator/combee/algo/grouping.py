"""Things by what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def grouped(items: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """The items of each key, in their order; keys in the order in which they first come.

    >>> grouped(["ab", "c", "ad"], key=lambda text: text[0])
    {'a': ['ab', 'ad'], 'c': ['c']}
    """
    groups: dict[K, list[V]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
