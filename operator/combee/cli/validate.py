"""``combee validate``."""

from __future__ import annotations

from pathlib import Path

from combee.api.load import parse_runs, problems_in
from combee.cli.errors import USER_ERROR, guarded, say
from combee.runtime.manifest import read_manifest_text


def run_validate(path: Path, *, as_json: bool) -> int:
    """Print every problem of the manifest, or that there is none."""

    def work() -> int:
        text = read_manifest_text(path)
        problems = problems_in(text, str(path))
        for problem in problems:
            say(problem, as_json=as_json)
        if problems:
            return USER_ERROR
        names = ", ".join(run.name for run in parse_runs(text, str(path)))
        print(f"{path}: valid ({names}). Next: combee preview -f {path}")  # noqa: T201
        return 0

    return guarded(work, as_json=as_json)
