"""What the artifacts of methods have in common that are sets of facts, which only grow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self, TypeVar

from combee.errors import DataError

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class FactSet:
    """A value whose fields are sets of facts, and counts that only rise; equal when its canonical JSON is."""

    @cached_property
    def digest(self) -> str:
        """The sha256 hex of ``to_json()``."""
        return hashlib.sha256(self.to_json()).hexdigest()

    def to_json(self) -> bytes:
        """Return canonical JSON."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def join(self, other: Self) -> Self:
        """Return everything that either knows: the union of each set, the higher of each count."""
        pairs = {
            field.name: (getattr(self, field.name), getattr(other, field.name)) for field in fields(self)
        }
        return type(self)(
            **{k: a | b if isinstance(a, frozenset) else max(a, b) for k, (a, b) in pairs.items()}
        )


def rows_of(facts: Iterable[Any]) -> list[list[Any]]:
    """Return each fact's fields, in order, without the ``run`` of this run's own facts. Not ``astuple``: it
    would deep-copy every one of them."""
    return [
        [value for field in fields(fact) if (value := getattr(fact, field.name)) or field.name != "run"]
        for fact in sorted(facts)
    ]


def read_facts(data: bytes, what: str, version: int, made: Callable[[dict[str, Any]], T]) -> T:
    """Return ``made`` of the JSON ``data`` of a ``version``. Raises DataError when it is none of ours."""
    try:
        body = json.loads(data)
        if body["version"] != version:
            raise DataError(
                f"the {what.split()[0]} has version {body['version']}, this program reads {version}",
                fix="Use the program that wrote it.",
            )
        return made(body)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataError(
            f"not a {what} ({type(error).__name__})", fix="Give the file that a run wrote, unchanged."
        ) from error
