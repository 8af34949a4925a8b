"""The record that ``combee audit`` and ``combee replay`` read: a folder's, or that of a run on a cluster."""

from __future__ import annotations

import hashlib
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
FETCHED = "fetched.txt"
"""The file of a fetched folder that is empty while files are written."""
_RUN = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def record_folder(name: str, store: str, place: Place, *, wait_seconds: float, as_json: bool) -> Path:
    """Return the folder of a record. A run on a cluster is fetched first, unless all of it is there.

    Raises typer.Exit where it cannot be fetched, which was told then.
    """
    folder = Path(name)
    if not _RUN.fullmatch(name) or (folder.exists() and not _lacks_something(folder, store)):
        if (folder / FETCHED).is_file():
            write(
                sys.stderr,
                f"the record in {name} is read as fetched: delete it to fetch the run anew\n",
            )
        return folder
    from combee.cli.cluster.report import fetch_record

    write(sys.stderr, f"no whole record lies in {name}: the run of that name is fetched\n")
    missing = not folder.exists()
    if code := fetch_record(name, folder, place, wait_seconds=wait_seconds, as_json=as_json, store=store):
        if missing:
            write(sys.stderr, f"nor is there a folder {name} in {Path.cwd()}, should you mean one\n")
        raise typer.Exit(code)
    return folder


def _lacks_something(folder: Path, store: str) -> bool:
    """Return whether a folder has what was fetched of a run that was not over, or without its store, or is
    what a fetch left that was cut off."""
    result, fetched = folder / "result.json", folder / FETCHED
    if (folder / "run.json").is_file():
        return False
    mark = fetched.read_bytes() if fetched.is_file() else None
    if mark == b"" or not result.is_file():
        return mark is not None or (folder.is_dir() and not any(folder.iterdir()))
    data = result.read_bytes()
    try:
        unfinished = json.loads(data)["outcome"] == "Stopped"
    except (ValueError, KeyError, TypeError):
        return True
    of_this = mark in (None, hashlib.sha256(data).hexdigest().encode())
    return unfinished or not (store or (of_this and (folder / "store").is_dir()))
