"""``combee status``: one run live, or all of a namespace."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from combee.api.run import Budget
from combee.cli.cluster.place import Here, LiveRun, find, found_in, note, on_cluster, say
from combee.cli.cluster.status_text import Line, Shown, next_command, overview, text, view, wrapped
from combee.cli.where import Place
from combee.errors import ClusterError
from combee.names import RUN_KIND

if TYPE_CHECKING:
    from rich.console import Group

LOOK_SECONDS = 1.0
LOST_SECONDS = 60.0
"""A watch ends when the API server does not answer for longer than this."""


def run_status(name: str | None, place: Place, *, watch: bool | None, as_json: bool) -> int:
    """Show a run once, or until it is over. ``watch`` None: until then on a terminal, once elsewhere."""

    async def work(here: Here) -> int:
        if as_json and not watch:
            say(json.dumps(await _objects(here, name), indent=1))
            return 0
        if name is None:
            return await _all(here, watch=bool(watch))
        run = await find(here, name)
        live = sys.stdout.isatty() if watch is None else watch
        if not live or (run.status.phase.over and not watch):
            _once(here, run)
            return 0
        return await _watch(here, run, as_json=as_json)

    return on_cluster(place, work, quiet_stop=True)


async def _objects(here: Here, name: str | None) -> Any:
    """Return what ``-o json`` prints: name, phase and status, without the operator's own memory."""
    if name is not None:
        return _plain((await find(here, name)).raw)
    return [_plain(raw) for raw in await here.kube.list(RUN_KIND, here.namespace)]


def _plain(raw: dict[str, Any]) -> dict[str, Any]:
    status = {key: value for key, value in (raw.get("status") or {}).items() if key != "state"}
    meta = raw["metadata"]
    return {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"], "status": status}


def shown(run: LiveRun) -> Shown:
    """Return the facts of the view. A budget that cannot be read is shown as none."""
    spec = run.raw.get("spec") or {}
    try:
        budget = Budget.model_validate(spec.get("budget") or {})
    except ValueError:
        budget = Budget()
    return Shown(
        name=run.name,
        namespace=str(run.raw["metadata"]["namespace"]),
        status=run.status,
        budget=budget,
        now=time.time(),
        suspend=spec.get("suspend") is True,
    )


def _once(here: Here, run: LiveRun) -> None:
    seen = shown(run)
    say(text(view(seen, ascii_only=_ascii()), shutil.get_terminal_size((110, 24)).columns))
    say(f"\nNext: {here.command(next_command(seen))}")


async def _all(here: Here, *, watch: bool) -> int:
    before = ""
    while True:
        runs = [found_in(raw) for raw in await here.kube.list(RUN_KIND, here.namespace)]
        table = overview([shown(one) for one in runs], namespaces=False)
        if table != before:
            say(
                table
                if runs
                else f"no runs in the namespace {here.namespace}. Start one: kubectl apply -f run.yaml"
            )
        before = table
        if not watch:
            return 0
        await asyncio.sleep(LOOK_SECONDS)


async def _watch(here: Here, run: LiveRun, *, as_json: bool) -> int:
    """Show the run until it is over: a live view on a terminal, elsewhere a line at each change."""
    if as_json or not sys.stdout.isatty():
        before: Any = None
        async for one in _looks(here, run):
            now = _plain(one.raw)
            if now != before:
                say(json.dumps(now) if as_json else _line(one))
            before = now
        return 0
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False, emoji=False)
    latest = run
    with Live(console=console, auto_refresh=False, transient=True) as live:
        async for latest in _looks(here, run):
            live.update(_drawn(view(shown(latest), ascii_only=_ascii()), console.width), refresh=True)
    _once(here, latest)
    return 0


async def _looks(here: Here, run: LiveRun) -> AsyncIterator[LiveRun]:
    """Yield the run as it is now, again and again, the last time when it is over."""
    answered = time.monotonic()
    while True:
        yield run
        if run.status.phase.over:
            return
        await asyncio.sleep(LOOK_SECONDS)
        try:
            run = await find(here, run.name)
            answered = time.monotonic()
        except ClusterError as error:
            if error.status not in (0, 429, 500, 502, 503, 504) or time.monotonic() - answered > LOST_SECONDS:
                raise
            note(f"the cluster does not answer, trying again ({error.what})")


def _line(run: LiveRun) -> str:
    status = run.status
    best = (
        f" · held-out {status.shown.held_out} {status.shown.gain}".rstrip() if status.shown.held_out else ""
    )
    return f"{run.name} · {status.phase.value} · {status.shown.iteration or '-'}{best} · {status.message}"


def _drawn(lines: list[Line], width: int) -> Group:
    from rich.console import Group
    from rich.text import Text

    drawn = []
    for line in lines:
        style = "" if line.style == "table" else line.style
        drawn += [Text(row, style=style, no_wrap=True, overflow="ellipsis") for row in wrapped(line, width)]
    return Group(*drawn)


def _ascii() -> bool:
    return not (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
