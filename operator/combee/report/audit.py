"""``audit.json`` version 1: what ``combee audit`` found of the claims of a result, as frozen models.

As of ``result``: the models are the contract, from which ``audit.schema.json`` and ``docs/audit.md`` are
generated. It holds no prompt and no digest of one that a seed learned: these were looked at on gate, and to
choose among them would be to select on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from combee.errors import DataError
from combee.report.parts import Amount, Count, Model, first_wrong
from combee.report.result import Outcome, Paired, Result
from combee.report.text import Table

AUDIT_FOLDER, AUDIT_FILE = "audit", "audit.json"
Claim = Literal[
    "gain shown on gate",
    "better than the untouched prompt",
    "faster than the serial baseline",
    "budget kept",
    "replay equal",
]
Stamped = Literal["survived", "failed", "not shown"]
SURVIVED: Stamped = "survived"
FAILED: Stamped = "failed"
NOT_SHOWN: Stamped = "not shown"


class Stamp(Model):
    """One claim of the result, and what became of it."""

    claim: Claim
    stamp: Stamped
    """``failed``: the audit looked and it does not hold. ``not shown``: the result does not claim it, or
    nothing looked at it."""
    words: str
    """The numbers behind it, or why there are none."""


class AuditedRun(Model):
    """The run's manifest done anew, with another seed or on another engine."""

    seed: Count
    engine: str = ""
    """The second engine's host; empty where it was the run's own class."""
    outcome: Outcome
    gate: Paired | None = None
    """null where nothing was better than the untouched prompt on select, so that gate was not looked at."""
    speed_up: Amount | None = None
    """As ``diagnosis.speedUp`` of its result."""
    over_budget: tuple[str, ...] = ()
    """Limits that it overran by more than its calls in flight."""
    simulated: bool = False
    """Whether any of its roles was answered by a simulated model."""
    rollouts: Count = 0
    tokens: Count = 0
    """Answers from the shared memo included, as everywhere."""
    wall_seconds: Amount = 0.0


class OtherClass(Model):
    """A second class of hardware: another latency law for the recorded calls, another engine, or both."""

    law: tuple[Amount, ...] = ()
    """Seconds to decode a token, seconds more for each call beside, seconds to read one; empty without."""
    law_speed_up: Amount | None = None
    """Serial seconds over this run's, an example, both by the law; null where there is nothing to time."""
    run: AuditedRun | None = None
    """The run on the second engine; null without one."""


class Audit(Model):
    """The whole of audit.json."""

    version: Literal[1] = 1
    run: str
    manifest_digest: str
    playbook: str = ""
    """Digest of the playbook that was audited; empty where the run has none."""
    simulated: bool = False
    """Whether a simulated model answered anything, in the run or in its audit."""
    stamps: tuple[Stamp, ...]
    """One for each claim."""
    rescored_on: Literal["gate", "test"] | None = None
    """The split that was scored again: test where there is one, else the gate half."""
    rescored: Paired | None = None
    """Before and after by fresh answers to every row, with a repeat ordinal that no run uses."""
    seeds: tuple[AuditedRun, ...] = ()
    pooled: Paired | None = None
    """All seeds together: the mean over seeds of each row, or of each cluster where rows have one, paired by
    it. null where no seed looked at gate, or none was run."""
    other: OtherClass | None = None
    differences: Count | None = None
    """Values that came out otherwise in the replay; null where it could not be made."""
    release: str = ""
    """The version of combee that audited."""

    @property
    def survived(self) -> bool:
        """Whether every claim survived."""
        return all(one.stamp == SURVIVED for one in self.stamps)

    @property
    def failed(self) -> bool:
        """Whether a claim failed."""
        return any(one.stamp == FAILED for one in self.stamps)


def to_bytes(audit: Audit) -> bytes:
    """Return the file's bytes, as those of result.json are made."""
    return (audit.model_dump_json(indent=2) + "\n").encode()


def read_audit(path: Path) -> Audit:
    """Read an audit.json. Raises DataError naming the first wrong field."""
    try:
        return Audit.model_validate_json(path.read_bytes(), strict=True)
    except ValidationError as error:
        fix = "Run combee audit again, which writes it anew"
        raise DataError(first_wrong(error), where=str(path), fix=fix) from None


def audit_beside(folder: Path, result: Result) -> Audit | None:
    """Return the audit of this very result in a run's folder; None where there is none, or it is of another
    manifest or playbook."""
    path = folder / AUDIT_FOLDER / AUDIT_FILE
    if not path.is_file():
        return None
    audit = read_audit(path)
    same = (audit.manifest_digest, audit.playbook) == (result.manifest_digest, playbook_digest(result))
    return audit if same else None


def playbook_digest(result: Result) -> str:
    """Return the digest of a result's playbook; empty where it has none."""
    return result.playbook.digest if result.playbook else ""


def audit_table(audit: Audit | None) -> Table:
    """Return the stamps, a row for each claim."""
    rows = tuple((one.claim, one.stamp, one.words) for one in audit.stamps) if audit else ()
    return Table(
        "audit",
        "Audit",
        ("claim", "stamp", "what was seen"),
        rows,
        "Not audited: combee audit runs other seeds, fresh answers and a second class of hardware.",
    )
