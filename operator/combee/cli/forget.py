"""``combee playbook forget``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from combee.cli.errors import OUR_ERROR, guarded, write
from combee.local.flags import StandInFlags

if TYPE_CHECKING:
    from combee.local.forget import Forgetting, Proof

SHORT = 12


def run_forget(
    folder: Path,
    source: str,
    manifest: Path,
    out: Path | None,
    given: StandInFlags,
    store: str,
    *,
    task_user: str,
    dry_run: bool,
) -> int:
    """Learn anew without a row, prove it, and say what changed; return 0 where it is proven, else 5, or the
    exit code of a run that did not come to its end."""

    def work() -> int:
        from combee.cli.run import work as run
        from combee.local.forget import begin, forgetting, proof
        from combee.local.session import OVER
        from combee.local.sources import parse_stand_ins
        from combee.report.bundle import RESULT_FILE
        from combee.report.result import read_result

        what = forgetting(manifest, folder, source, parse_stand_ins(given, task_user), store)
        anew = out or what.folder(folder)
        _say(beforehand(what, str(anew)))
        if dry_run:
            return 0
        begin(what, anew)
        code = run(what.prepared, anew, as_json=False)
        file = anew / RESULT_FILE
        if not file.is_file() or read_result(file.read_bytes(), where=str(file)).outcome not in OVER:
            return code
        proven = asyncio.run(proof(what, anew))
        _say(afterwards(what, proven))
        return OUR_ERROR if proven.differences else 0

    return guarded(work)


def _say(lines: Iterator[str]) -> None:
    write(sys.stdout, "".join(f"{line}\n" for line in lines))


def beforehand(what: Forgetting, out: str) -> Iterator[str]:
    """Yield what forgetting takes."""
    from combee.report.text import count, visible

    plans = len(what.before.plans)
    when = f"iteration {what.iteration + 1} of {plans}" if what.iteration is not None else "no iteration"
    yield f"row {visible(what.row)} of {what.split}: {when} is the first that may come from it"
    yield (
        f"learning without it in {visible(out)}: {count(what.answered, 'call')} before that are answered "
        f"already, up to about {count(what.most_asked, 'call')} may be asked anew, within spec.budget"
    )


def afterwards(what: Forgetting, proven: Proof) -> Iterator[str]:
    """Yield whether it is proven, and what changed."""
    from combee.cli.cluster.versions_text import difference
    from combee.methods.registry import diff_texts
    from combee.report.text import count, visible

    method = what.prepared.run.spec.method.type
    if proven.differences:
        first = proven.differences[0]
        yield f"not proven: done again without the row, {first.field} of {first.step} comes out otherwise"
        return
    yield (
        f"proven: done again without the row, from these answers alone ({count(proven.answers, 'answer')}; "
        f"{proven.new_answers:,} asked anew), it is identical to the byte"
    )
    for name, (had, has) in proven.digests.items():
        change = "as before" if had == has else f"it was {had[:SHORT] or 'none'}"
        yield f"  {name:<12}{has[:SHORT]}  {change}"
    yield from difference(diff_texts(*proven.texts, (method, method)), "with the row", "without it")
    names = ", ".join(f'"{visible(one)}"' for one in what.forgotten)
    yield f"Keep to it: add `forgotten: [{names}]` to spec.task.data.{what.split} of the manifest"
