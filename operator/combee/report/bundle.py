"""What a run leaves: result.json, the reports, what was learned, its rollouts, its plans and summaries.

``texts`` makes the files, on a laptop and in a pod alike. From a pod they travel through its log, as a
gzipped tar in base64 between two lines, the last of which says length and digest: a log that was cut is
noticed, and lines of somebody else between them do no harm.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping

from combee.errors import TransientError
from combee.names import ARTIFACT_KEY, COMPONENTS_KEY, LESSONS_FILE, PROMPT_KEY
from combee.report.child import build_apart
from combee.report.outcome import result_of
from combee.report.result import PlaybookInfo, Result, to_bytes
from combee.report.rollouts import ROLLOUTS_FILE, read_graphs, rollouts_of
from combee.report.session import Session
from combee.work.steps import load_artifact

RESULT_FILE = "result.json"
GATE_FILE = "gate.json"
"""The file of the gate half's scores by example, ``baseline`` and ``best``; only comparisons ask for it."""
BEGIN = "-----BEGIN COMBEE RESULTS-----"
_END = re.compile(r"-----END COMBEE RESULTS (\d{1,12}) ([0-9a-f]{64})-----")
_LINE = 4096
"""characters in a line; a container runtime cuts lines longer than 16 KiB."""
MAX_BYTES = 1 << 30
_NAME = re.compile(
    r"(?:plans|clocks|steps)/[a-z0-9][a-z0-9.-]{0,120}\.json|store(?:/[A-Za-z0-9][A-Za-z0-9.-]{0,254}){2,9}|calls/[a-z0-9][a-z0-9.-]{0,120}\.jsonl|gate\.json|rollouts\.jsonl|result\.json|report\.(?:md|html)|lessons\.md|prompt\.(?:md|json)|artifact\.json"
)

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
"""Of a file that leaves no folder: one that a later release adds is left out."""


def store_file(path: str) -> str:
    """Return the file of an object of the store; only audits and replays ask for it."""
    return f"store/{path}"


def calls_file(step: str) -> str:
    """Return the file of a step's calls, as ``work.asker`` records them; only comparisons ask for it."""
    return f"calls/{step}.jsonl"


async def texts(session: Session) -> tuple[Result, dict[str, bytes]]:
    """Return the result and the files made from it. result.json is last: where it is, the rest is too."""
    graphs = await read_graphs(session)
    result = await result_of(session, graphs)
    lessons, report = await build_apart(result)
    rollouts = rollouts_of(session, graphs)
    return result, {
        **({ROLLOUTS_FILE: rollouts} if rollouts else {}),
        **await _handed_on(session),
        **prompt_files(result.playbook),
        LESSONS_FILE: lessons.encode(),
        "report.md": report.markdown.encode(),
        "report.html": report.html.encode(),
        RESULT_FILE: to_bytes(result),
    }


async def _handed_on(session: Session) -> dict[str, bytes]:
    """Return what another run may start from; nothing before a run has an artifact."""
    context, facts = session.context, session.state.facts
    if session.state.best is None or facts is None:
        return {}
    artifact = await load_artifact(context, session.state.best.artifact)
    by, train = context.prefix.rpartition("/")[2], facts.digests["train"]
    data = context.method.handed_on(artifact, context.rendered(artifact), by=by, train=train)
    return {ARTIFACT_KEY: data} if data else {}


def prompt_files(book: PlaybookInfo | None) -> dict[str, bytes]:
    """Return what models are shown, and its components where it has any; nothing before a run has a
    playbook."""
    if book is None:
        return {}
    parts = json.dumps(book.components, indent=1, ensure_ascii=False) + "\n" if book.components else ""
    return {PROMPT_KEY: book.text.encode()} | ({COMPONENTS_KEY: parts.encode()} if parts else {})


def packed(files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield ``files`` as lines of text. Equal files give equal lines.

    >>> unpacked(packed({"result.json": b"{}"}))
    {'result.json': b'{}'}
    """
    held = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=held, mode="wb", mtime=0) as shrunk,
        tarfile.open(fileobj=shrunk, mode="w") as tar,
    ):
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    raw = held.getvalue()
    text = base64.b64encode(raw).decode("ascii")
    yield BEGIN
    yield from (text[at : at + _LINE] for at in range(0, len(text), _LINE))
    yield f"-----END COMBEE RESULTS {len(raw)} {hashlib.sha256(raw).hexdigest()}-----"


def unpacked(lines: Iterable[str]) -> dict[str, bytes]:
    """Return the files in a log. Raises TransientError when some are missing or damaged."""
    kept: list[str] | None = None
    for line in lines:
        line = line.strip()
        if line == BEGIN:
            kept = []
        elif kept is not None and (end := _END.fullmatch(line)):
            return _untarred("".join(kept), int(end[1]), end[2])
        elif kept is not None and not line.startswith("{"):
            kept.append(line)
    raise _damaged("its end is missing" if kept is not None else "there are none")


def _untarred(text: str, length: int, digest: str) -> dict[str, bytes]:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _damaged("not base64") from None
    if len(raw) != length or hashlib.sha256(raw).hexdigest() != digest:
        raise _damaged(f"{len(raw):,} of {length:,} bytes, or not the same ones")
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:gz") as tar:
        for entry in tar:
            held = tar.extractfile(entry) if entry.isreg() and entry.size <= MAX_BYTES else None
            known = _NAME.fullmatch(entry.name)
            if held is None or not (known or _PLAIN_NAME.fullmatch(entry.name)):
                raise _damaged(f"an entry {entry.name[:80]!r} has no place in them")
            if known:
                files[entry.name] = held.read()
    return files


def _damaged(why: str) -> TransientError:
    return TransientError(f"the results in the log cannot be read ({why})", fix="Run the command again")
