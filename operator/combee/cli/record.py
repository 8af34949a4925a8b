"""The record that ``combee audit`` and ``combee replay`` read: a folder's, or that of a run on a cluster."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from combee.cli.errors import write
from combee.cli.where import Place

RecordName = Annotated[
    str,
    typer.Argument(
        metavar="NAME|DIR",
        help="A run on a cluster, which is fetched into a folder called NAME, or a folder that `combee run` "
        "or `kubectl combee report` left.",
    ),
]
RecordStore = Annotated[
    str, typer.Option("--store", metavar="PATH|URI", help="The run's store, only read; absent: DIR/store.")
]
RecordPlans = Annotated[
    Path | None, typer.Option("--plans", metavar="DIR", help="The plans that the run was given, if any.")
]
_RUN = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def record_folder(name: str, store: str, place: Place, *, wait_seconds: float, as_json: bool) -> Path:
    """Return the folder of a record. A run on a cluster is fetched first, unless all of it is there.

    Raises typer.Exit where it cannot be fetched, which was told then.
    """
    folder = Path(name)
    if not _RUN.fullmatch(name) or (folder.exists() and not _lacks_something(folder, store)):
        return folder
    from combee.cli.cluster.report import fetch_record

    write(sys.stderr, f"no whole record lies in {name}: the run of that name is fetched\n")
    if code := fetch_record(name, folder, place, wait_seconds=wait_seconds, as_json=as_json, store=store):
        raise typer.Exit(code)
    return folder


def _lacks_something(folder: Path, store: str) -> bool:
    """Return whether a folder has what was fetched of a run that was not over, or without its store."""
    result = folder / "result.json"
    if not result.is_file() or (folder / "run.json").is_file():
        return False
    try:
        unfinished = json.loads(result.read_bytes())["outcome"] == "Stopped"
    except (ValueError, KeyError, TypeError):
        return True
    return unfinished or not (store or (folder / "store").is_dir())
