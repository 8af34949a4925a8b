"""Reports built in a process of their own: drawing needs memory that a run should not hold.

``python -m combee.report.child`` reads a result.json on stdin and writes the three texts as
one JSON object on stdout.
"""

from __future__ import annotations

import asyncio
import json
import sys

from combee.errors import BugError
from combee.report.build import Report, build_report, lessons_markdown
from combee.report.result import Result, read_result, to_bytes

DEADLINE_SECONDS = 120.0


async def build_apart(result: Result) -> tuple[str, Report]:
    """Return (lessons.md, the reports) of a result. Raises BugError with the last line of a failed child."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "combee.report.child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            out, errors = await child.communicate(to_bytes(result))
    except TimeoutError:
        child.kill()
        await child.wait()
        raise BugError(f"the report was not built in {DEADLINE_SECONDS:.0f} s") from None
    if child.returncode != 0:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise BugError(f"the report could not be built ({last[:300]})")
    texts = json.loads(out)
    return texts["lessons"], Report(markdown=texts["markdown"], html=texts["html"])


def main() -> None:
    """Read the result and write the texts, as the child."""
    result = read_result(sys.stdin.buffer.read())
    lessons = lessons_markdown(result)
    report = build_report(result, lessons_markdown=lessons)
    texts = {"lessons": lessons, "markdown": report.markdown, "html": report.html}
    sys.stdout.write(json.dumps(texts))


if __name__ == "__main__":
    main()
