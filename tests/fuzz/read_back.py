"""Readers of what another process, an earlier version or a user left. Each names the errors that it may
raise; nothing else may come of any bytes."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from combee.assembly.folder import RunFolder
from combee.clients.model.memo import _decoded, _encoded
from combee.clients.model.wire import Completion
from combee.errors import DataError, UserError
from combee.methods.ace.parse import parse_playbook
from combee.plan.gatescores import GateScores
from combee.plan.playbook.judging import LeftOut, Pair, read_left_out, read_pairs, write_pairs
from combee.plan.playbook.readings import Reading, Trouble, read_reading
from combee.plan.sweep import Memory, remembered
from combee.plan.types import Clocks, IterationPlan, RoleUsage, StepSummary
from combee.tasks.clusters import read_clustered
from combee.tasks.dataset import Fields, read_jsonl
from combee.tasks.reply import ReplyTask
from combee.tasks.traces.read import read_traces
from combee.tasks.traces.recording import decode
from combee.work.context import decoded_receipt, encoded_receipt
from combee.work.traffic.record import request_record
from sample_plan import PLAN

COMPLETION = Completion("42", 11, 7, 0, 0.5, "stop", 2, True, ("timeout",), 18)
SUMMARY = StepSummary(
    "mine-3fa9c1d2-i000-map-a0",
    "map",
    outputs={"calls": "a" * 64},
    counts={"rollouts": 8},
    scores={"select": 0.5},
    usage={"task": RoleUsage(8, 1, 88, 56, 0, 18)},
    seconds={"wall": 1.5},
    observations=((8, 1.25),),
)
RECEIPT = f"receipts/{SUMMARY.step}/0.json"
CHAT = (
    b'{"id": "c-1", "messages": [{"role": "system", "content": "You tidy."}, {"role": "user", "content": '
    b'[{"type": "text", "text": "Tidy a."}, {"type": "image_url", "image_url": {}}]}, {"role": "assistant", '
    b'"tool_calls": [{"id": "c1", "function": {"name": "read", "arguments": "{}"}}], "reasoning_content": '
    b'"I read."}, {"role": "tool", "tool_call_id": "c1", "content": "old"}], "outcome": {"success": false, '
    b'"feedback": "gone"}, "seed": 7, "temperature": 0.5}'
)
ATIF = (
    b'{"schema_version": "ATIF-v1.4", "session_id": "s-1", "steps": [{"source": "user", "message": "Tidy."}, '
    b'{"source": "agent", "message": "Done.", "tool_calls": [{"tool_call_id": "c1", "function_name": "read", '
    b'"arguments": {"path": "a"}}], "observation": {"results": [{"source_call_id": "c1", "content": "old"}]}'
    b'}], "extra": {"reward": 1.0}}'
)
ROW = b'{"id": "a", "context": "1+1?", "target": "2", "answer": "3", "label": 0.5, "team": "x"}\n'
SWEEP = b'{"store": {"uri": "s3://bucket/a"}, "kept": [["formula", 3600, 0, true]]}'


@dataclass(frozen=True, slots=True)
class Reader:
    """``read`` takes any bytes; ``seeds`` are bytes that it understands."""

    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    words: tuple[str, ...] = ()


def raising(*errors: type[Exception]) -> Callable[[Callable[[bytes], object]], Callable[[bytes], object]]:
    """Make a reader of one that may raise these errors."""

    def make(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
        def reader(data: bytes) -> None:
            with contextlib.suppress(*errors):
                read(data)

        return reader

    return make


class Files(dict[str, bytes]):
    """A run's folder of one file, whatever its name."""

    def list(self, prefix: str) -> list[str]:
        return []


def memo(data: bytes) -> None:
    """A record as it is; and a completion that somebody wrote with its checksum."""
    _decoded("k", data)
    with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
        one = Completion.from_json(json.loads(data))
        assert _decoded("k", _encoded("k", one)) == one


def receipt(data: bytes) -> None:
    summary = decoded_receipt(data, RECEIPT)
    if summary is not None:
        assert decoded_receipt(encoded_receipt(summary, RECEIPT), RECEIPT) is not None
    length = f"{len(data)} ".encode()
    StepSummary.decode(data)
    StepSummary.decode(length + data)


@raising(UserError)
def clock(data: bytes) -> None:
    """The files of a run's folder that say which run it is, and how long it was at work."""
    folder: Any = RunFolder.__new__(RunFolder)
    folder.store = Files({"clock.json": data})
    math.floor(folder.seconds()[0])
    Clocks.from_json(data, where="f")


@raising(DataError)
def traces(data: bytes) -> None:
    kept: list[bytes] = []

    def keep(one: bytes) -> Callable[[], bytes]:
        kept.append(one)
        return lambda: one

    rows = read_traces(data.splitlines(keepends=True), where="f", format="Auto", part_tokens=50, keep=keep)
    for one in kept:
        decode(one)
    json.dumps([asdict(example) for example in rows.examples], allow_nan=False).encode()


@raising(DataError)
def rows(data: bytes) -> None:
    lines = data.splitlines(keepends=True)
    for labels in (False, True):
        read = read_jsonl(lines, where="f", fields=Fields("context"), with_labels=labels)
        json.dumps([asdict(example) for example in read.examples], ensure_ascii=False).encode()
    read_clustered(ReplyTask(), "team", lines, "f")


def traffic(data: bytes) -> None:
    """A request as it is written down."""
    json.dumps(request_record(data), ensure_ascii=False).encode()


def judged(data: bytes) -> None:
    """What a ConfigMap says of a canary."""
    text = data.decode(errors="replace")
    write_pairs(read_pairs(text), read_left_out(text))
    if (reading := read_reading(text)) is not None:
        json.dumps(reading.to_json(), allow_nan=False)


def sweeping(data: bytes) -> None:
    memory = Memory.from_json(data.decode(errors="replace"))
    if memory is not None:
        remembered(memory.kept, (), (), 1e9, 0.0)


def playbook(data: bytes) -> None:
    """A playbook that a user wrote."""
    text = data.decode(errors="replace")
    assert parse_playbook(text).text == text


PAIRS = write_pairs([Pair("a", 1, 0.5, 1.5, "", 1.0, 2.0)], [LeftOut("a", 2, 500)])
READING = Reading(0, 3, 1.0, 2, Trouble("Empty", "score", "active", "x"), (0.5, 0.25)).to_json()
READERS = (
    Reader(memo, (_encoded("k", COMPLETION), json.dumps(COMPLETION.to_json()).encode())),
    Reader(
        receipt,
        (encoded_receipt(SUMMARY, RECEIPT), SUMMARY.encode()),
        ("outputs", "lostTokens.task", "sha256:"),
    ),
    Reader(
        raising(UserError)(lambda data: IterationPlan.from_json(data, where="f")),
        (PLAN.to_json(),),
        ("version", "diversity", "scored_by"),
    ),
    Reader(clock, (b'{"seconds": 1.5, "ended": true}', Clocks(1.0, 2.0).to_json())),
    Reader(traces, (CHAT, ATIF, CHAT + b"\n" + ATIF + b"\n{}"), ("role", "assistant", "reward", "score")),
    Reader(rows, (ROW, ROW + ROW.replace(b"0.5", b"1e999")), ("context", "target", "label", "team")),
    Reader(traffic, (CHAT,), ("seed", "temperature")),
    Reader(judged, (PAIRS.encode(), json.dumps(READING).encode()), ("pairs", "times", "costs", "leftOut")),
    Reader(
        raising(UserError)(lambda data: GateScores.from_json(data.decode(errors="replace"))),
        (GateScores("a" * 64, {"e": 0.5}, {"e": 1.0}).to_json().encode(),),
        ("heldOut", "scores"),
    ),
    Reader(sweeping, (SWEEP,), ("uri", "kept", "pvc")),
    Reader(
        playbook, (b"## Rules\n[r-1] helpful=2 harmful=0 :: Do b. (contested: 2 sources say otherwise)\n",)
    ),
)
