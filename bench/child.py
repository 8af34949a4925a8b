"""Run one `combee` command in this process and write down what it cost.

    python -m bench.child MEASURED.json run -f run.yaml -o DIR ...

Memory: resident after importing ``combee.cli.run`` and ``combee.local.session`` (that is all a run
imports before it works: openai, httpx2, pydantic, numpy, yaml, typer) and ``scipy.special`` (which a run
imports for its first interval), then the kernel's own high-water mark at the end. Time: the moment at
which each stage began, taken where the product tells its screen.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def memory_mib(field: str) -> float:
    """``VmRSS`` or ``VmHWM`` of this process, MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


def _traced(marks: list[list[Any]]) -> None:
    """Have the meter note (seconds, CPU seconds, RSS, kind, name, units) of what it is told."""
    from combee.local.meter import Meter
    from combee.report import bundle

    def mark(kind: str, name: str, units: int) -> None:
        marks.append(
            [time.monotonic(), time.process_time(), round(memory_mib("VmRSS"), 1), kind, name, units]
        )

    begin, planned, moved = Meter.begin, Meter.planned, Meter.moved
    build = vars(bundle)["build_apart"]

    def traced_begin(self: Meter, stage: str, total: int) -> None:
        mark("stage", stage, total)
        begin(self, stage, total)

    def traced_planned(self: Meter, plan: Any, state: Any) -> None:
        mark("planned", str(plan.iteration), plan.batch_size)
        planned(self, plan, state)

    def traced_moved(self: Meter, before: Any, after: Any, *rest: Any) -> None:
        if after.iteration > before.iteration:
            mark("finished", str(before.iteration), 0)
        moved(self, before, after, *rest)

    def traced_build(*args: Any, **keywords: Any) -> Any:
        mark("report", "report", 0)
        return build(*args, **keywords)

    Meter.begin, Meter.planned, Meter.moved = traced_begin, traced_planned, traced_moved  # type: ignore[method-assign]
    vars(bundle)["build_apart"] = traced_build


def main() -> None:
    """See the module."""
    measured, arguments = Path(sys.argv[1]), sys.argv[2:]
    import scipy.special  # noqa: F401 - for its size

    import combee.cli.main
    import combee.cli.run
    import combee.local.session

    base = memory_mib("VmRSS")
    marks: list[list[Any]] = []
    _traced(marks)
    sys.argv = ["combee", *arguments]
    started, cpu = time.monotonic(), time.process_time()
    code: object = 0
    try:
        combee.cli.main.main()
    except SystemExit as done:
        code = done.code
    figures = {
        "exit": code,
        "imported_mib": round(base, 1),
        "peak_mib": round(memory_mib("VmHWM"), 1),
        "seconds": round(time.monotonic() - started, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "marks": marks,
    }
    measured.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
