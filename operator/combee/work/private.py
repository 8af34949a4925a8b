"""What is kept of a run's trajectories: no row, and nothing else that looks private.

They are kept for people: no later step reads their texts. So a row stays where the data are, and what the
agent said and was told passes the redactor before it is written.
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from typing import Any

from combee.records import Trajectory
from combee.work.context import json_line
from combee.work.traffic.record import redacted


def trajectory_line(trajectory: Trajectory) -> bytes:
    """Return a trajectory as it is kept, one line of JSON: without its row, and without a recording's text,
    which the data or the memo have; its other texts are redacted."""
    return json_line(_kept(asdict(trajectory)))


def kept_anew(data: bytes) -> bytes:
    """Return the lines of trajectories that an earlier release kept whole as they are kept now."""
    return b"".join(json_line(_kept(json.loads(line))) for line in io.BytesIO(data) if line.strip())


def _kept(fields: dict[str, Any]) -> dict[str, Any]:
    output = "" if fields.get("recorded") is not None else fields["output"]
    records = [list(pair) for pair in fields.get("records") or ()]
    return fields | {
        "input": "",
        "output": redacted(output),
        "answer": redacted(fields["answer"]),
        "feedback": redacted(fields["feedback"]),
        **({"records": redacted(records)} if records else {}),
    }
