"""``combee preview``."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path

from combee.api.local import lacking
from combee.cli.errors import guarded
from combee.local.flags import StandInFlags
from combee.local.session import Prepared, data_shape, prepare
from combee.local.sources import parse_stand_ins
from combee.plan.preview import preview


def run_preview(path: Path, flags: StandInFlags, *, as_json: bool) -> int:
    """Print what the run would do."""

    def work() -> int:
        prepared = prepare(path, parse_stand_ins(flags), for_preview=True)
        shown = preview(prepared.run.spec, data_shape(prepared))
        if as_json:
            print(json.dumps(asdict(shown), indent=1))  # noqa: T201
        else:
            from combee.cli.preview_text import preview_text

            print(preview_text(prepared.run.name, next_command(path, flags, prepared), shown))  # noqa: T201
        return 0

    return guarded(work, as_json=as_json)


def next_command(path: Path, flags: StandInFlags, prepared: Prepared) -> str:
    """What starts this run: the flags given, and those that it lacks. A suspended one only a cluster takes."""
    if prepared.run.spec.suspend:
        return shlex.join(["kubectl", "apply", "-f", str(path)])
    more = lacking(prepared.run, parse_stand_ins(flags).names())
    return shlex.join(["combee", "run", "-f", str(path), "-o", "out", *flags.words(), *more])
