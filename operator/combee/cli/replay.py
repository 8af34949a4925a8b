"""``combee replay``."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from combee.cli.errors import OUR_ERROR, guarded
from combee.local.flags import StandInFlags

if TYPE_CHECKING:
    from combee.local.replay import Replayed

MOST_SHOWN = 20
"""Differences that are printed; --json has them all."""


def run_replay(
    folder: Path,
    manifest: Path,
    given: StandInFlags,
    plans: Path | None,
    store: str,
    *,
    task_user: str,
    as_json: bool,
) -> int:
    """Replay the record in ``folder`` and say what differs; return 0 where nothing does, else 5."""

    def work() -> int:
        from combee.local.record import read_record
        from combee.local.replay import replay
        from combee.local.session import prepare
        from combee.local.sources import parse_stand_ins

        prepared = prepare(manifest, parse_stand_ins(given, task_user), plans, recorded=True)
        replayed = asyncio.run(replay(prepared, read_record(folder, store, prepared)))
        print(_json(replayed) if as_json else _text(replayed, str(folder)))  # noqa: T201
        return OUR_ERROR if replayed.differences else 0

    return guarded(work, as_json=as_json)


def _json(replayed: Replayed) -> str:
    fields = {"run": replayed.run, "plans": replayed.plans, "steps": replayed.steps}
    more = {"answers": replayed.answers, "end": replayed.end, "identical": not replayed.differences}
    return json.dumps(fields | more | {"differences": [asdict(one) for one in replayed.differences]})


def _text(replayed: Replayed, folder: str) -> str:
    from combee.report.text import count, visible

    done = (
        f"{folder}: {count(replayed.plans, 'plan')} made again, {count(replayed.steps, 'step')} done again, "
        f"{count(replayed.answers, 'answer')} from the memo, no model asked; {replayed.end}"
    )
    if not replayed.differences:
        if replayed.ended_early:
            return f"{done}\nidentical up to there"
        return f"{done}\nidentical: every plan, what every step left, the outcome and what was learned"
    lines = [
        f"differs: {one.step}: {one.field}: recorded {visible(one.recorded)}, now {visible(one.now)}"
        for one in replayed.differences[:MOST_SHOWN]
    ]
    hidden = len(replayed.differences) - len(lines)
    return "\n".join([done, *lines, *([f"and {hidden} more: --json shows them"] if hidden else [])])
