"""`make bench ROWS=worlds`: worlds in which a naive rule learns, claims or promotes what is not so.
docs/trust.md has their figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from bench.harness import Row
from bench.worlds.batches import batches
from bench.worlds.canaries import canaries
from bench.worlds.diagnosis import diagnosis
from bench.worlds.diversity import diversity
from bench.worlds.drift import drift
from bench.worlds.headroom import headroom
from bench.worlds.lessons import lessons
from bench.worlds.lifetimes import lifetimes
from bench.worlds.outcomes import outcomes
from bench.worlds.plateaus import plateaus
from bench.worlds.watches import watches
from bench.worlds.weak import weak

WORLDS: Mapping[str, Callable[[Path], Row]] = {
    "worlds-batches": batches,
    "worlds-outcomes": outcomes,
    "worlds-lessons": lessons,
    "worlds-canaries": canaries,
    "worlds-watch": watches,
    "worlds-lifetimes": lifetimes,
    "worlds-weak": weak,
    "worlds-diversity": diversity,
    "worlds-drift": drift,
    "worlds-headroom": headroom,
    "worlds-plateaus": plateaus,
    "worlds-diagnosis": diagnosis,
}
"""Name on the command line -> row."""
