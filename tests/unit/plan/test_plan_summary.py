"""Summaries of steps: an earlier version's are read, and an earlier version reads these."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.errors import BugError
from combee.plan.types import RoleUsage, StepSummary

A, C = "a" * 64, "c" * 64
RECORDED = (
    b'465 098e23d850914560 {"counts":{"examples":50,"rendered":7,"rollouts":120},"error":"","kind":"finish",'
    b'"message":"","observations":[[50,31.25]],"outputs":{"artifact":"' + A.encode() + b'","calls":"'
    b"" + C.encode() + b'"},"scores":{"select":0.5},"seconds":{"wall":12.5},"step":"formula-0123abcd-i003-'
    b'finish","usage":{"proposer":[60,2,90000,8000,40000],"task":[120,3,200000,18000,150000]},"version":1}'
)
"""As a version wrote it that knew no lost tokens."""
SUMMARY = StepSummary(
    "formula-0123abcd-i003-finish",
    "finish",
    outputs={"artifact": A, "calls": C},
    counts={"rollouts": 120, "examples": 50, "rendered": 7},
    scores={"select": 0.5},
    usage={
        "proposer": RoleUsage(60, 2, 90000, 8000, 40000),
        "task": RoleUsage(120, 3, 200000, 18000, 150000),
    },
    seconds={"wall": 12.5},
    observations=((50, 31.25),),
)
WITH_LOST = replace(SUMMARY, usage={**SUMMARY.usage, "task": replace(SUMMARY.usage["task"], lost_tokens=900)})


@dataclass(frozen=True)
class EarlierUsage:
    """Usage as the version before read it: with a further cell or name it took the summary for missing."""

    calls: int = 0
    hits: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


def test_a_recorded_summary_of_an_earlier_version_is_read_and_written_as_it_was() -> None:
    assert StepSummary.decode(RECORDED) == SUMMARY
    assert SUMMARY.encode() == RECORDED


@pytest.mark.parametrize("summary", [SUMMARY, WITH_LOST])
def test_an_earlier_version_reads_what_is_written_now(summary: StepSummary) -> None:
    message = json.loads(summary.encode().split(b" ", 2)[2])
    receipt = json.loads(json.dumps(summary.to_plain()))
    for raw in (message, receipt):
        assert raw.keys() == json.loads(RECORDED.split(b" ", 2)[2]).keys() and raw["version"] == 1
        assert all(isinstance(number, int) for number in raw["counts"].values())
    for role, used in summary.usage.items():
        known = EarlierUsage(
            used.calls, used.hits, used.prompt_tokens, used.completion_tokens, used.cached_tokens
        )
        assert EarlierUsage(*message["usage"][role]) == EarlierUsage(**receipt["usage"][role]) == known


def test_a_summary_with_the_lost_tokens_in_its_usage_is_read() -> None:
    """As they were written for a while."""
    raw = json.loads(RECORDED.split(b" ", 2)[2])
    for role, used in WITH_LOST.usage.items():
        raw["usage"][role].append(used.lost_tokens)
    data = json.dumps(raw).encode()
    head = f"{len(data)} {hashlib.sha256(data).hexdigest()[:16]} ".encode()
    assert StepSummary.decode(head + data) == WITH_LOST
    raw["usage"] = {role: vars_of(used) for role, used in WITH_LOST.usage.items()}
    assert StepSummary.from_plain(raw) == WITH_LOST


def vars_of(used: RoleUsage) -> dict[str, int]:
    return {name: getattr(used, name) for name in RoleUsage.__dataclass_fields__}


usages = st.dictionaries(
    st.sampled_from(["task", "proposer", "embedder"]),
    st.builds(RoleUsage, *[st.integers(0, 10**9)] * 6),
)


@given(usages, st.dictionaries(st.sampled_from(["rollouts", "examples"]), st.integers(0, 10**6)))
def test_what_is_written_is_read(usage: dict[str, RoleUsage], counts: dict[str, int]) -> None:
    summary = replace(SUMMARY, usage=usage, counts=counts)
    assert StepSummary.decode(summary.encode()) == summary
    assert StepSummary.from_plain(json.loads(json.dumps(summary.to_plain()))) == summary


@given(st.integers(600, 2048), st.text(max_size=3000))
def test_a_summary_fits_what_the_pods_containers_leave_it_and_is_read(limit: int, message: str) -> None:
    summary = replace(SUMMARY, error="Endpoint", message=message)
    written = summary.encode(limit)
    read = StepSummary.decode(written)
    assert len(written) <= limit and read is not None
    assert replace(read, message="") == replace(summary, message="") and message.startswith(read.message)


def test_a_summary_that_cannot_be_cut_to_its_part_is_no_summary() -> None:
    with pytest.raises(BugError, match="The limit is 100"):
        replace(SUMMARY, message="why").encode(100)
