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
| Harm | an entry spoilt an example of select |
| initial | a playbook text that the user gave, kept byte for byte |
| Run | an earlier run, which facts name by its number; those of this run name none ([inherit](inherit.py)) |
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

from combee.methods.ace.entries import entry_digest
from combee.methods.factset import FactSet, read_facts, rows_of
from combee.methods.protocol import Refusal, Verdict

VERSION = 1


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """A text under its digest."""

    digest: str
    text: str


@dataclass(frozen=True, slots=True, order=True)
class Support:
    """The fact that ``source`` (a trajectory id, or ``initial``) backed ``entry`` in ``iteration``."""

    entry: str
    source: str
    section: str
    iteration: int
    run: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Vote:
    """The fact that ``source`` read ``entry`` and found it ``helpful`` or ``harmful``."""

    entry: str
    source: str
    verdict: Literal["helpful", "harmful"]
    run: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """The fact that ``source`` proposes to replace ``base`` by ``result``, which is empty for a DELETE."""

    op: Literal["UPDATE", "MERGE", "DELETE"]
    base: str
    result: str
    source: str
    run: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Harm:
    """The fact that ``entry`` spoilt an example of select that came right again without it."""

    entry: str
    example: str
    run: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """An earlier run: its number from 1, later ones higher; its name; the digest of its train split; the task
    model by which its verdicts came to be, as its endpoint names it, empty where that is not known."""

    number: int
    name: str
    train: str
    model: str = ""


@dataclass(frozen=True, eq=False)
class Ledger(FactSet):
    """An artifact made of sets of facts about entries."""

    entries: frozenset[Entry] = frozenset()
    supports: frozenset[Support] = frozenset()
    votes: frozenset[Vote] = frozenset()
    changes: frozenset[Change] = frozenset()
    verdicts: frozenset[Verdict] = frozenset()
    refusals: frozenset[Refusal] = frozenset()
    initial: frozenset[str] = frozenset()
    harms: frozenset[Harm] = frozenset()
    runs: frozenset[Run] = frozenset()
    forgotten: frozenset[str] = frozenset()
    """what all of these runs learned without."""

    @cached_property
    def texts(self) -> dict[str, str]:
        """The texts by digest, in digest order. Do not change the mapping."""
        return {entry.digest: entry.text for entry in sorted(self.entries)}

    def to_json(self) -> bytes:
        """Return canonical JSON: sorted facts, sorted keys, ASCII, no blanks."""
        facts = {
            name: partial(rows_of, getattr(self, name))
            for name in ("supports", "votes", "changes", "verdicts", "refusals")
        }
        body: dict[str, Callable[[], Any]] = {
            "version": lambda: VERSION,
            "entries": lambda: [entry.text for entry in sorted(self.entries)],
            "initial": lambda: sorted(self.initial),
            **facts,
        }
        runs = sorted(self.runs)
        later: dict[str, list[Any]] = {
            "harms": rows_of(self.harms),
            "runs": [[run.number, run.name, run.train] for run in runs],
            "models": [[run.number, run.model] for run in runs if run.model],
            "forgotten": sorted(self.forgotten),
        }
        # Ledgers without any of these keep the bytes and the digest that they always had; an earlier release
        # reads past those that it does not know.
        body |= {name: partial(list, rows) for name, rows in later.items() if rows}
        # Part by part: whole, the lists, their text and its bytes would all be held at once.
        parts = (f'"{name}":{_dumps(body[name]())}'.encode("ascii") for name in sorted(body))
        return b"{" + b",".join(parts) + b"}"


_dumps = partial(json.dumps, ensure_ascii=True, separators=(",", ":"))


def from_json(data: bytes) -> Ledger:
    """Return the ledger whose ``to_json()`` is ``data``. Raises DataError when it is none of ours."""
    return read_facts(data, "ledger", VERSION, _ledger)


def _ledger(body: dict[str, Any]) -> Ledger:
    models = dict(body.get("models", ()))
    return Ledger(
        entries=frozenset(Entry(entry_digest(text), text) for text in body["entries"]),
        supports=frozenset(Support(*row) for row in body["supports"]),
        votes=frozenset(Vote(*row) for row in body["votes"]),
        changes=frozenset(Change(*row) for row in body["changes"]),
        verdicts=frozenset(Verdict(e, s, f, h, tuple(c), *run) for e, s, f, h, c, *run in body["verdicts"]),
        refusals=frozenset(Refusal(*row) for row in body["refusals"]),
        initial=frozenset(body["initial"]),
        harms=frozenset(Harm(*row) for row in body.get("harms", ())),
        runs=frozenset(Run(n, by, train, models.get(n, "")) for n, by, train in body.get("runs", ())),
        forgotten=frozenset(body.get("forgotten", ())),
    )
