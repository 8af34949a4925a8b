"""Traces at full size: how much memory and time it takes to read 10,000 of 200 KB, and to go through them.

    python -m bench.traces [TRACES] [KILOBYTES]

Reading is what each pod of a run does first. Going through them is what the map does around its model calls:
bring a recording back, build the prompt of each part. Last comes what an iteration of ``BATCH`` holds its new
entries against: the rare passages of the recordings that it read. No model is asked."""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from combee.assembly.splits import read_split
from combee.methods.ace import AceMethod
from combee.tasks.dataset import Dataset
from combee.tasks.traces import TracesTask, decode, trajectories
from combee.work.passages import checked

WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("ana", "elo", "iro", "ota", "unu", "ast", "ern", "ilk")]
LIMIT_MB = 500
BATCH = 200


def trace(number: int, kilobytes: int, words: random.Random) -> bytes:
    """One conversation of about that size: results of tools, and what an agent says of them."""
    messages: list[dict[str, object]] = [{"role": "user", "content": f"Task {number}: tidy the folder."}]
    for turn in range(max(1, kilobytes // 4)):
        call = {
            "id": f"c{turn}",
            "type": "function",
            "function": {"name": "read", "arguments": f'{{"n": {turn}}}'},
        }
        said = " ".join(words.choices(WORDS, k=900))
        messages.append({"role": "assistant", "content": f"File {turn}.", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": said})
    messages.append({"role": "assistant", "content": "Done."})
    return json.dumps(
        {"id": f"t{number}", "messages": messages, "outcome": {"success": number % 3 == 0}}
    ).encode()


def through(rows: Dataset) -> int:
    """Every part of every recording as a prompt, one after the other; how many there are."""
    method, parts = AceMethod(), 0
    for example in rows.examples:
        recording = decode(rows.recordings[example.id]())
        for part in trajectories(example, recording, 0):
            method.reflect_prompt("", part, 1, None)
            parts += 1
    return parts


def peak_mb() -> float:
    """The most memory that this process ever had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main(traces: int = 10_000, kilobytes: int = 200) -> int:
    """Print one row; 1 when it took more memory than it may."""
    with tempfile.TemporaryDirectory() as folder:
        path, words = Path(folder) / "traces.jsonl", random.Random(7)
        with path.open("wb") as file:
            for number in range(traces):
                file.write(trace(number, kilobytes, words) + b"\n")
        size = path.stat().st_size / 1e6
        began = time.monotonic()
        rows = read_split(TracesTask(), str(path))
        read = time.monotonic() - began
        parts = through(rows)
        done = time.monotonic() - began - read
        method, read_by_one = AceMethod(), [example.id for example in rows.examples[:BATCH]]
        checked(method, method.empty(), [], rows, read_by_one)
        held = time.monotonic() - began - read - done
    print(f"{len(rows.examples):,} traces, {size:,.0f} MB, {parts:,} parts")
    print(
        f"read in {read:.1f} s, gone through in {done:.1f} s, {len(read_by_one)} held against new entries "
        f"in {held:.1f} s, "
        f"at most {peak_mb():,.0f} MB of memory (limit {LIMIT_MB})"
    )
    return int(peak_mb() > LIMIT_MB)


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:3])))
