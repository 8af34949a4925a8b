"""`python -m bench [ROW ...] [--json PATH]`: measure, print a table, write JSON. Nothing fails for being slow."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.core import ROWS
from bench.harness import Row

VERDICTS = {True: "met", False: "NOT MET", None: ""}


def main() -> int:
    """Exit code 1 only when a row could not be measured at all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help=f"which ones: {', '.join(ROWS)} (default: all)"
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures here, too")
    asked = parser.parse_args()
    unknown = sorted(set(asked.rows) - set(ROWS))
    if unknown:
        parser.error(f"no row {unknown[0]}; there are {', '.join(ROWS)}")
    rows, failed = measure(asked.rows or list(ROWS))
    print_table(rows)
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(document(rows, failed), indent=1) + "\n")
    return 1 if failed else 0


def measure(names: list[str]) -> tuple[list[Row], list[str]]:
    """The rows that were measured, and the names of those that could not be."""
    rows, failed = [], []
    for name in names:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="combee-bench-") as folder:
            try:
                rows.append(ROWS[name](Path(folder)))
                word = "measured"
            except (RuntimeError, OSError, KeyError, StopIteration) as error:
                print(f"{name}: {error!r}", file=sys.stderr)
                failed.append(name)
                word = "could not be measured"
        print(f"{name}: {word} in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return rows, failed


def print_table(rows: list[Row]) -> None:
    """The figures, and below each what it is made of."""
    width = max((len(row.name) for row in rows), default=0)
    print(f"{'what':<{width}}  {'figure':>16}  {'target':<24}")
    for row in rows:
        figure = f"{row.figure:g} {row.unit}"
        print(f"{row.name:<{width}}  {figure:>16}  {row.target:<24}{VERDICTS[row.met]}")
    for row in rows:
        print(f"\n{row.name}\n  {row.how}")
        for key, value in row.detail.items():
            if isinstance(value, dict):
                print(f"  {key}:")
                for part, numbers in value.items() if key == "stages" else [("", value)]:
                    print(f"    {part:<16} {shown(numbers)}")
            else:
                print(f"  {key}: {value}")


def shown(numbers: dict[str, Any]) -> str:
    """``{"a": 1}`` as ``a 1``."""
    return ", ".join(f"{key} {value}" for key, value in numbers.items())


def document(rows: list[Row], failed: list[str]) -> dict[str, Any]:
    """What ``--json`` writes."""
    return {
        "version": 1,
        "machine": {"cores": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version()},
        "rows": [row.as_dict() for row in rows],
        "failed": failed,
    }


if __name__ == "__main__":
    sys.exit(main())
