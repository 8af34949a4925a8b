"""``combee preview``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from combee.cli.errors import guarded


def run_preview(path: Path, data: list[str], *, as_json: bool) -> int:
    """Print what the run would do."""

    def work() -> int:
        from combee.local.session import data_shape, prepare
        from combee.local.sources import parse_stand_ins
        from combee.plan.preview import preview

        prepared = prepare(path, parse_stand_ins([], [], data), for_preview=True)
        shown = preview(prepared.run.spec, data_shape(prepared))
        if as_json:
            print(json.dumps(asdict(shown), indent=1))  # noqa: T201
        else:
            from combee.cli.preview_text import preview_text

            print(preview_text(prepared.run.name, f"combee run -f {path} -o out", shown))  # noqa: T201
        return 0

    return guarded(work, as_json=as_json)
