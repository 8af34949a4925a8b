"""The start of a cell that found nothing better is scored on gate as the cell itself would."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from combee.compare import gate
from combee.local.flags import StandInFlags
from combee.methods.gepa import GepaMethod
from combee.records import Example, Shown
from combee.tasks.traces.recording import Recording
from combee.work.asker import Asker


class Runner:
    """Rolls out, and keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[Shown] = []

    async def run(self, asker: Asker, example: Example, shown: Shown, **_: Any) -> Recording:
        self.shown.append(shown)
        return Recording("asked", "answered", 1.0, "", ("said",))


async def test_the_start_is_shown_with_its_components(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner()
    context = SimpleNamespace(
        method=GepaMethod(),
        spec=SimpleNamespace(
            method=SimpleNamespace(render_token_budget=8000, programs=None),
            verify="Off",
            task=SimpleNamespace(pass_k=None, data=SimpleNamespace(forgotten=())),
        ),
        initial_playbook='{"ask": "Ask.", "check": "Check."}',
        task=SimpleNamespace(model_input=lambda example: example.input),
        shown_for=lambda shown, example: replace(shown, text=f"of {example.id}"),
        runner=runner,
        concurrency=2,
        asker=lambda: Asker({}, {}),
        progress=SimpleNamespace(begin=lambda *_: None, advance=lambda *_: None),
    )

    @asynccontextmanager
    async def context_on(*_: object) -> AsyncIterator[SimpleNamespace]:
        yield context

    async def split(_: object) -> tuple[list[Example], list[Example]]:
        return [], [Example("1", "one", "", "d1"), Example("2", "two", "", "d2")]

    prepared = SimpleNamespace(facts=SimpleNamespace(digests={"train": "ab" * 32}))
    monkeypatch.setattr(gate, "prepare", lambda *_: prepared)
    monkeypatch.setattr(gate, "context_on", context_on)
    monkeypatch.setattr(gate, "held_out_split", split)
    cell: Any = SimpleNamespace(
        folder=tmp_path / "cell", manifest=tmp_path / "run.yaml", flags=lambda given: given
    )
    await gate.score_start(cell, StandInFlags())
    assert json.loads(gate.start_file(cell).read_text())["baseline"] == {"1": 1.0, "2": 1.0}
    assert {shown.text for shown in runner.shown} == {"of 1", "of 2"}, "a runner gets what is chosen"
    assert {shown.components for shown in runner.shown} == {(("ask", "Ask."), ("check", "Check."))}
