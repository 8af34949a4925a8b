"""``combee playbook why`` of an entry: its life, from a folder on this machine or from a published ledger."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from combee.cli.errors import guarded, write
from combee.errors import UserError
from combee.methods.life import Event, Life
from combee.names import ARTIFACT_KEY, PROMPT_KEY
from combee.report.entries import LEFT_OUT, kept_text
from combee.report.text import visible, visible_lines

LABEL = 10
SOURCES_SHOWN = 20


def is_folder(name: str) -> bool:
    """Return whether a name is that of a run's folder on this machine: a path with a slash, which no
    Playbook's name has, whatever folders are here."""
    return "/" in name and (Path(name) / "result.json").is_file()


def run_life_here(folder: Path, entry: str, *, as_json: bool) -> int:
    """Print the life of an entry of the run in ``folder``."""

    def work() -> int:
        from combee.methods.registry import life_of
        from combee.report.result import read_result

        result = read_result((folder / "result.json").read_bytes(), where=str(folder / "result.json"))
        history = _history(folder)
        file, prompt = folder / ARTIFACT_KEY, folder / PROMPT_KEY
        if not history and not file.is_file():
            raise UserError(
                f"neither a store nor {ARTIFACT_KEY} is there",
                where=str(folder),
                fix="Give the folder of a run that a release with ledgers made",
            )
        artifact = history[-1] if history else file.read_bytes()
        shown = prompt.read_text(encoding="utf-8") if prompt.is_file() else ""
        method = result.setup.method if result.setup is not None else ""
        life = life_of(artifact, entry, method=method, shown=shown, history=history)
        show(checked(life, entry, str(folder)), as_json=as_json)
        return 0

    return guarded(work, as_json=as_json)


def _history(folder: Path) -> list[bytes]:
    """Return the artifact after each iteration, in order; nothing where the store is gone."""
    from combee.assembly.folder import read_summaries
    from combee.clients.store.store import Store
    from combee.steps import kind_of

    if not (folder / "store").is_dir():
        return []
    store = Store.open(str(folder / "store"))
    done = [one for one in read_summaries(Store.open(str(folder))).values() if kind_of(one.kind).sums_up]
    done = sorted((one for one in done if not one.error), key=lambda one: one.counts["iteration"])
    return [store.get_blob(one.outputs["artifact"]) for one in done]


def checked(life: Life | None, entry: str, where: str) -> Life:
    """Return the life, with no text that nobody may read. Raises UserError where there is none."""
    if life is None:
        raise UserError(
            f"no entry {entry!r}, or more than one",
            where=where,
            fix="Give the id in brackets of prompt.md or lessons.md, or the first digits of a digest",
        )
    return replace(life, text=kept_text(life.text, life.left_out))


def show(life: Life, *, as_json: bool) -> None:
    """Print a life in words, or as one JSON object."""
    text = json.dumps(asdict(life), ensure_ascii=False) if as_json else "\n".join(lines(life))
    write(sys.stdout, f"{text}\n")


def lines(life: Life, width: int = 110) -> Iterator[str]:
    """Yield a life in words."""
    yield f"{visible(life.id)}  {'in the playbook' if life.shown else 'not in the playbook'}"
    for label, text in _facts(life):
        body = textwrap.wrap(visible(text), width - 2 - LABEL) or [""]
        body = visible_lines(text) if "\n" in text else body
        yield from (f"  {'' if number else label:<{LABEL}}{line}" for number, line in enumerate(body))


def _facts(life: Life) -> Iterator[tuple[str, str]]:
    yield "says", life.text
    if life.left_out:
        yield "left out", LEFT_OUT.get(life.left_out, life.left_out)
    more = len(life.sources) - SOURCES_SHOWN
    yield "sources", ", ".join(life.sources[:SOURCES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    yield "replays", f"{life.won} won, {life.lost} lost"
    yield "votes", f"{life.helpful} found it helpful, {life.harmful} harmful"
    if life.wordings:
        yield "wordings", f"{', '.join(life.wordings)} say the same, and are counted with it"
    for event in life.events:
        yield event.what, f"{_when(event)}: {event.words}"
    yield "digest", life.digest


def _when(event: Event) -> str:
    run = f"run {event.run}" if event.run else "this run"
    return run if event.iteration is None else f"{run}, iteration {event.iteration}"
