"""Splits and the initial playbook, read and checked the same way on a laptop and in a pod."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO

from combee.algo.membership import split_select_gate
from combee.api.parts import Task as TaskSpec
from combee.clients.data.rows import read_lines
from combee.clients.data.spool import Spool
from combee.errors import DataError, DataOverlapError, HeldOutMovedError, HeldOutTooSmallError
from combee.names import COMPONENTS_KEY, LESSONS_FILE, LESSONS_MARK, PROMPT_KEY
from combee.plan.state import DataFacts
from combee.tasks.clusters import clusters_of, read_clustered
from combee.tasks.dataset import MAX_ROW_BYTES, Dataset, overlap, without
from combee.tasks.protocol import Task
from combee.tasks.traces import MAX_TRACE_BYTES, TracesTask

MAX_PLAYBOOK_BYTES = 1 << 20

Secret = Mapping[str, str]
"""The keys and values of the Secret that goes with an address."""


def read_split(
    task: Task,
    uri: str,
    secret: Secret | None = None,
    *,
    text: str | None = None,
    cluster_by: str = "",
    forgotten: Sequence[str] = (),
) -> Dataset:
    """Return the rows of a file, ``without`` those that are forgotten, with the clusters that the field
    ``cluster_by`` names where it is given.

    Raises DataError, NotAvailableError or TransientError with the reason.
    ``text``: what is in it, where that is known already; ``uri`` is only its name then. Recorded
    trajectories are kept on the disk, since they may be larger than the memory.
    """
    if isinstance(task, TracesTask):
        lines = _lines(uri, MAX_TRACE_BYTES + 1, secret, text)
        return without(task.read_recorded(lines, uri, Spool().keep), forgotten, uri)
    lines = _lines(uri, MAX_ROW_BYTES, secret, text)
    if cluster_by:
        return read_clustered(task, cluster_by, lines, uri, forgotten)
    return without(task.read_rows(lines, uri), forgotten, uri)


def cluster_field(spec: TaskSpec, split: str) -> str:
    """Return the field that names the clusters of a split's rows; empty for train, of which nothing is
    claimed, and where the manifest has none."""
    return spec.cluster_by or "" if split != "train" else ""


def _lines(uri: str, max_bytes: int, secret: Secret | None, text: str | None) -> Iterable[bytes]:
    return read_lines(uri, max_bytes=max_bytes, secret=secret) if text is None else BytesIO(text.encode())


def read_playbook(uri: str, *, sha256: str | None = None, text: str | None = None) -> str:
    """Return the text of an initial playbook. Raises DataError when it is too long, another one than
    ``sha256`` says, not UTF-8, or notes for people. ``text``: as for ``read_split``."""
    data = b"".join(_lines(uri, MAX_PLAYBOOK_BYTES, None, text))
    if len(data) > MAX_PLAYBOOK_BYTES:
        raise DataError(
            f"{len(data):,} bytes", where=uri, fix=f"A playbook has at most {MAX_PLAYBOOK_BYTES:,} bytes"
        )
    if sha256 is not None and (digest := hashlib.sha256(data).hexdigest()) != sha256:
        raise DataError(
            f"this is another text: its SHA-256 is {digest[:12]}, and {sha256[:12]} is to be started from",
            where=uri,
            fix="See who replaced it; a published one is restored by the operator where it can",
        )
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise DataError("not UTF-8", where=uri, fix="Save the playbook as UTF-8 text") from None
    if LESSONS_MARK in text:
        raise DataError(
            f"this is {LESSONS_FILE}: its notes would be shown to the model with every call",
            where=uri,
            fix=f"Give {PROMPT_KEY} of the same run, or {COMPONENTS_KEY} where it has one",
        )
    return text


def data_facts(splits: Mapping[str, Dataset], repeats: int = 1) -> DataFacts:
    """Return the counts and digests of the data. ``repeats``: how often the closing look rolls a row out."""
    held_out = splits.get("heldOut")
    clusters = clusters_of(held_out) if held_out is not None else {}
    select, gate = (
        split_select_gate([example.id for example in held_out.examples], held_out.digest, clusters)
        if held_out is not None
        else ([], [])
    )
    test = splits.get("test")
    return DataFacts(
        train_rows=splits["train"].places,
        select_rows=len(select),
        gate_rows=len(gate),
        test_rows=len(test.examples) if test else 0,
        digests={name: split.digest for name, split in splits.items()},
        gate_clusters=len({clusters[example] for example in gate}) if clusters else 0,
        repeats=repeats,
    )


def refuse_overlap(splits: Mapping[str, Dataset]) -> None:
    """Raise DataOverlapError when heldOut or test shares a row with train."""
    for name in ("heldOut", "test"):
        if name not in splits:
            continue
        shared = overlap(splits["train"], splits[name])
        if shared:
            raise DataOverlapError(
                f"{len(shared)} of {len(splits[name].examples)} rows are in train too: "
                "scores on them would show memory, not learning",
                where=f"spec.task.data.{name}",
                fix=f"Remove them from train or from {name}; the first is {name} row {shared[0]}",
            )


def refuse_too_small(splits: Mapping[str, Dataset]) -> None:
    """Raise HeldOutTooSmallError when heldOut is too small to judge anything; do nothing without heldOut."""
    if "heldOut" not in splits:
        return
    if refused := data_facts(splits).refusal:
        raise HeldOutTooSmallError(refused, where="spec.task.data.heldOut")


def refuse_moved(name: str, split: Dataset, pinned: str | None) -> None:
    """Raise DataError or HeldOutMovedError when a split has changed since the run started. ``pinned``: its
    digest at the start; None where it is unknown."""
    if pinned is None or split.digest == pinned:
        return
    kind = DataError if name == "train" else HeldOutMovedError
    raise kind(
        f"the data of {name} is not what this run started with ({split.digest[:12]}, it was {pinned[:12]})",
        where=f"spec.task.data.{name}",
        fix="Restore the data, or start a new run",
    )
