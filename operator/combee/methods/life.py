"""The life of an entry, as people are told it: where it comes from, what was tried, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to an entry."""

    what: str
    """added, backed, replayed, changed or retired."""
    words: str
    run: str = ""
    """the earlier run in which it happened; empty: the last one."""
    iteration: int | None = None
    """of that run, from 1; None where the artifact does not say."""
    example: str = ""


@dataclass(frozen=True, slots=True)
class Life:
    """An entry, and its events in the order of runs and iterations; numbers are of distinct examples."""

    id: str
    digest: str
    section: str
    text: str
    shown: bool
    """whether it is in the playbook."""
    left_out: str
    """why not, in one word."""
    sources: tuple[str, ...]
    won: int
    lost: int
    helpful: int
    harmful: int
    wordings: tuple[str, ...]
    """ids of other entries that say the same: their sources, votes and replays are counted with its own."""
    events: tuple[Event, ...]
