"""The ledger: an append-only set of facts about entries. Joining two ledgers is set union.

Nothing is ever changed or taken away, so copies of one reflection are one source, late results can
join later, and order never matters: ``join`` is commutative, associative and idempotent. What a
reader sees (which entry stands, which is contested) is *derived* from the facts by ``resolve``.

| fact | says |
|---|---|
| Entry | a text exists |
| Support | a source backs an entry, in a section |
| Vote | a source found an entry helpful or harmful |
| Change | a source wants ``base`` replaced by ``result`` (UPDATE, MERGE) or gone (DELETE) |
| Verdict | what a replay of an entry showed |
| Refusal | why an entry may not be rendered |
| initial | a playbook text that the user gave, kept byte for byte |
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any, Literal

from combee.errors import DataError
from combee.methods.ace.entries import entry_digest
from combee.methods.protocol import Refusal, Verdict

VERSION = 1
"""A difference is looked for in everything, however long."""


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """A text under its digest."""

    digest: str
    text: str


@dataclass(frozen=True, slots=True, order=True)
class Support:
    """``source`` (a trajectory id, or ``initial``) backs ``entry``; seen in ``iteration``."""

    entry: str
    source: str
    section: str
    iteration: int


@dataclass(frozen=True, slots=True, order=True)
class Vote:
    """``source`` read ``entry`` and found it ``helpful`` or ``harmful``."""

    entry: str
    source: str
    verdict: Literal["helpful", "harmful"]


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """``source`` proposes to replace ``base`` by ``result``; ``result`` is empty for DELETE."""

    op: Literal["UPDATE", "MERGE", "DELETE"]
    base: str
    result: str
    source: str


@dataclass(frozen=True, eq=False)
class Ledger:
    """Grow-only sets of facts. Equal when their canonical JSON is equal."""

    entries: frozenset[Entry] = frozenset()
    supports: frozenset[Support] = frozenset()
    votes: frozenset[Vote] = frozenset()
    changes: frozenset[Change] = frozenset()
    verdicts: frozenset[Verdict] = frozenset()
    refusals: frozenset[Refusal] = frozenset()
    initial: frozenset[str] = frozenset()

    @cached_property
    def digest(self) -> str:
        """sha256 hex of ``to_json()``."""
        return hashlib.sha256(self.to_json()).hexdigest()

    @cached_property
    def texts(self) -> dict[str, str]:
        """digest -> text, in digest order. Do not change it."""
        return {entry.digest: entry.text for entry in sorted(self.entries)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def join(self, other: Ledger) -> Ledger:
        """Everything either knows: set union, fact by fact."""
        return join(self, other)

    def to_json(self) -> bytes:
        """Canonical JSON: sorted facts, sorted keys, ASCII, no blanks."""
        facts = {
            name: partial(_rows, getattr(self, name))
            for name in ("supports", "votes", "changes", "verdicts", "refusals")
        }
        body: dict[str, Callable[[], Any]] = {
            "version": lambda: VERSION,
            "entries": lambda: [entry.text for entry in sorted(self.entries)],
            "initial": lambda: sorted(self.initial),
            **facts,
        }
        # Part by part: whole, the lists, their text and its bytes would all be held at once.
        parts = (f'"{name}":{_dumps(body[name]())}'.encode("ascii") for name in sorted(body))
        return b"{" + b",".join(parts) + b"}"


_dumps = partial(json.dumps, ensure_ascii=True, separators=(",", ":"))


def _rows(facts: Iterable[Any]) -> list[list[Any]]:
    """Each fact's fields, in order. Not ``astuple``: it would deep-copy every one of them."""
    return [[getattr(fact, field.name) for field in fields(fact)] for fact in sorted(facts)]


def from_json(data: bytes) -> Ledger:
    """The ledger whose ``to_json()`` is ``data``; DataError when it is none of ours."""
    try:
        body = json.loads(data)
        version = body["version"]
        if version != VERSION:
            raise DataError(
                f"the ledger has version {version}, this program reads {VERSION}",
                fix="Use the program that wrote it.",
            )
        return Ledger(
            entries=frozenset(Entry(entry_digest(text), text) for text in body["entries"]),
            supports=frozenset(Support(*row) for row in body["supports"]),
            votes=frozenset(Vote(*row) for row in body["votes"]),
            changes=frozenset(Change(*row) for row in body["changes"]),
            verdicts=frozenset(Verdict(e, s, f, h, tuple(c)) for e, s, f, h, c in body["verdicts"]),
            refusals=frozenset(Refusal(*row) for row in body["refusals"]),
            initial=frozenset(body["initial"]),
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataError(
            f"not a ledger ({type(error).__name__})", fix="Give the file that a run wrote, unchanged."
        ) from error


def join(a: Ledger, b: Ledger) -> Ledger:
    """Everything ``a`` or ``b`` knows: set union, fact by fact."""
    return Ledger(
        entries=a.entries | b.entries,
        supports=a.supports | b.supports,
        votes=a.votes | b.votes,
        changes=a.changes | b.changes,
        verdicts=a.verdicts | b.verdicts,
        refusals=a.refusals | b.refusals,
        initial=a.initial | b.initial,
    )
