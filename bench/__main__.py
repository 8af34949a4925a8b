"""`python -m bench [ROW ...] [--json PATH] [--peer NAME=DIR ...]`: measure, print a table, write JSON.

Nothing fails for being slow. Without rows named, all but those of memory and of
worlds, which take minutes; ``worlds`` names all of the latter."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.core import BY_NAME_ONLY, GROUPS, NO_CLOCK, ROWS
from bench.harness import Row
from bench.peers import rows as peer_rows

Rows = Mapping[str, Callable[[Path], Row]]
LOAD_ALLOWED = 1.5
"""Per core; our own work stays below."""
VERDICTS = {True: "met", False: "NOT MET", None: ""}


def main() -> int:
    """Exit code 1 only when a row could not be measured at all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help="which ones (default: all but those that take minutes)"
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures here, too")
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME=DIR", help="ace or gepa: a checkout"
    )
    parser.add_argument("--peer-python", metavar="PATH", help="the Python that runs them (default: this one)")
    asked = parser.parse_args()
    try:
        given = peer_rows.from_arguments(asked.peer, asked.peer_python or None)
    except ValueError as error:
        parser.error(str(error))
    rows = {**ROWS, **peer_rows.rows(given)}
    wanted = [row for name in asked.rows for row in GROUPS.get(name, (name,))]
    unknown = sorted(set(wanted) - set(rows))
    if unknown:
        parser.error(f"no row {unknown[0]}; there are {', '.join([*rows, *GROUPS])}")
    names = wanted or [name for name in rows if name not in BY_NAME_ONLY]
    started = time.monotonic()
    found, failed = measure({name: rows[name] for name in names})
    seconds = round(time.monotonic() - started)
    print_table(found)
    print(f"\n{len(found)} rows in {seconds} s" + (f"; not measured: {', '.join(failed)}" if failed else ""))
    if os.getloadavg()[1] > LOAD_ALLOWED * (os.cpu_count() or 1):
        print(
            f"Load average {os.getloadavg()[1]:.1f} over five minutes: others used this machine, so every "
            f"figure "
            "with a clock in it is too high."
        )
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(document(found, failed, seconds), indent=1) + "\n")
    return 1 if failed else 0


def measure(rows: Rows) -> tuple[list[Row], list[str]]:
    """The rows that were measured, and the names of those that could not be.

    Rows with a clock in them run alone, one after the other; the longest of them, faults, is two runs that
    mostly wait, so rows without a clock run beside it, at a lower priority."""
    beside = [name for name in rows if name in NO_CLOCK or name.startswith("peer-")]
    alone = [name for name in rows if name not in beside and name != "faults"]
    found = {name: measured(name, rows[name]) for name in alone}
    with ThreadPoolExecutor(1, initializer=os.nice, initargs=(10,)) as pool:
        later = {name: pool.submit(measured, name, rows[name]) for name in beside}
        if "faults" in rows:
            found["faults"] = measured("faults", rows["faults"])
        found |= {name: future.result() for name, future in later.items()}
    kept = [row for name in rows if (row := found[name]) is not None]
    return kept, [name for name in rows if found[name] is None]


def measured(name: str, row: Callable[[Path], Row]) -> Row | None:
    """One row, with word of it on stderr; None when it could not be measured."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    started = time.monotonic()
    made = None
    with tempfile.TemporaryDirectory(prefix="combee-bench-") as folder:
        try:
            found = row(Path(folder))
            json.dumps(found.as_dict())  # what cannot be written must not take the other rows' file with it
            made = found
        except Exception as error:  # whatever it is, the other rows are worth their minutes
            print(f"{name}: {error!r}", file=sys.stderr)
    word = "could not be measured" if made is None else "done"
    print(f"{name}: {word}, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return made


def print_table(rows: list[Row]) -> None:
    """The figures, and below each what it is made of."""
    width = max((len(row.name) for row in rows), default=0)
    target = max((len(row.target) for row in rows), default=0)
    print(f"{'what':<{width}}  {'figure':>16}  target")
    for row in rows:
        figure = "not run" if row.figure is None else f"{row.figure:g} {row.unit}"
        print(f"{row.name:<{width}}  {figure:>16}  {row.target:<{target}}  {VERDICTS[row.met]}".rstrip())
    for row in rows:
        print(f"\n{row.name}\n  {row.how}")
        for key, value in row.detail.items():
            if isinstance(value, dict):
                print(f"  {key}:")
                nested = value and all(isinstance(one, dict) for one in value.values())
                for part, numbers in value.items() if nested else [("", value)]:
                    print(f"    {part:<16} {shown(numbers)}")
            else:
                print(f"  {key}: {value}")


def shown(numbers: dict[str, Any]) -> str:
    """``{"a": 1}`` as ``a 1``."""
    return ", ".join(f"{key} {value}" for key, value in numbers.items())


def document(rows: list[Row], failed: list[str], seconds: int) -> dict[str, Any]:
    """What ``--json`` writes."""
    return {
        "version": 1,
        "machine": {"cores": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version()},
        "seconds": seconds,
        "rows": [row.as_dict() for row in rows],
        "failed": failed,
    }


if __name__ == "__main__":
    sys.exit(main())
