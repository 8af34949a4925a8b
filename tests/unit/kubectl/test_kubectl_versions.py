"""What people read of a Playbook's versions, and how they name one."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from combee.api.playbook import VersionSpec
from combee.api.playbook_status import HistoryLine, PlaybookStatus, Trail, VersionStatus
from combee.cli.cluster import versions
from combee.cli.cluster.place import Here
from combee.cli.cluster.versions import Known, content
from combee.cli.cluster.versions_text import VersionShown, difference, history, why
from combee.cli.where import Place
from combee.errors import UserError
from combee.methods.ace import AceMethod
from combee.methods.ace.diff import diff_playbooks
from combee.methods.protocol import Update
from combee.plan.playbook.trail import FiledLine, appended, filed

A, B, C = "a" * 64, "b" * 64, "ab" * 32
HISTORY = {"time": "t1", "event": "Promoted", "digest": A}
HERE = Here(kube=None, namespace="team", place=Place())  # type: ignore[arg-type]


def version(
    digest: str, *, decision: str = "Auto", phase: str = "Candidate", **status: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": f"formula-{digest[:12]}", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "playbookRef": {"name": "formula"},
            "digest": digest,
            "configMapName": f"formula-{digest[:12]}",
            "decision": decision,
            "runRef": {"name": "formula-ace", "uid": "1"},
            "origin": {"iteration": 2, "method": "ACE", "models": {"task": "m"}, "seed": 7, "rollouts": 312},
            "scores": {"gate": {"baseline": 0.64, "best": 0.861, "low": 0.18, "high": 0.26, "rows": 300}},
        },
        "status": {"phase": phase, **status},
    }


def known(*versions: dict[str, Any], **status: str) -> Known:
    return Known("formula", {"spec": {}, "status": status}, versions)


def shown(raw: dict[str, Any]) -> VersionShown:
    return VersionShown(
        VersionSpec.model_validate(raw["spec"]),
        VersionStatus.model_validate(raw["status"]),
        raw["metadata"]["creationTimestamp"],
    )


def test_a_version_is_named_by_digits_by_its_name_or_by_where_it_stands() -> None:
    there = known(version(A, phase="Active"), version(B), version(C), activeDigest=A, candidateDigest=B)
    for said, digest in ((A[:12], A), ("bbbb", B), (f"formula-{B[:12]}", B), ("active", A), ("candidate", B)):
        assert there.version(HERE, said)["spec"]["digest"] == digest


@pytest.mark.parametrize(
    ("said", "words"), [("a", "no version"), ("cccc", "no version"), ("previous", "no previous")]
)
def test_a_name_that_says_nothing_is_refused_with_the_next_command(said: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        known(version(A), version(C)).version(HERE, said)
    assert "kubectl combee playbook history formula -n team" in str(caught.value)


def test_two_versions_that_begin_alike_need_more_digits() -> None:
    other = "abab" + "0" * 60
    with pytest.raises(UserError, match="could be 2 versions"):
        known(version(C), version(other)).version(HERE, "abab")


def test_a_rollback_says_what_is_served_then() -> None:
    there = known(version(A, phase="Active"), version(B, phase="Previous"), activeDigest=A, previousDigest=B)
    assert (there.active, there.after(A, "Refuse"), there.after(B, "Promote")) == (A, B, B)
    alone = known(version(A, phase="Active"), activeDigest=A)
    assert alone.after(A, "Refuse") == ""


def test_only_one_version_is_promoted_by_name_at_a_time() -> None:
    later = version(B, decision="Promote")
    later["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    there = known(version(A), later, activeDigest=B)
    assert there.active == B and there.after(A, "Promote") == A
    assert there.promoted_besides(f"formula-{A[:12]}") == (f"formula-{B[:12]}",)


TRAIL = appended(
    Trail(),
    HistoryLine(
        time="2026-01-01T00:01:00Z",
        event="Promoted",
        digest=A,
        by="Gates",
        policy="Automatic; no canary",
        message="0.861",
    ),
    HistoryLine(
        time="2026-01-01T00:02:00Z",
        event="Refused",
        digest=A,
        by="Decision",
        who="kubectl at t1",
        message="re\x1bfused",
    ),
)
LINES = (*map(filed, TRAIL.pending), FiledLine(3, "{"))


class Listing:
    """A cluster with a Playbook, its ConfigMaps, and no versions."""

    def __init__(self, status: dict[str, Any] | None, lines: Sequence[FiledLine]) -> None:
        self.status, self.lines = status, lines

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return None if self.status is None else {"spec": {}, "status": self.status}

    async def list(self, kind: str, namespace: str, **_: str) -> list[dict[str, Any]]:
        if kind != "ConfigMap":
            return []
        return [
            {"metadata": {"name": f"formula-history-{one.number:06d}"}, "data": {"line.json": one.text}}
            for one in self.lines
        ] + [{"metadata": {"name": "formula-history-and-more-history-000009"}, "data": {}}]


@pytest.mark.parametrize(
    ("status", "lines", "code", "words"),
    [
        ({"trail": {**TRAIL.dump(), "pending": []}}, LINES[:2], 0, "the history is whole: 2 lines"),
        ({"trail": TRAIL.dump()}, (), 0, "the history is whole: 2 lines"),
        ({"trail": {**TRAIL.dump(), "pending": []}}, LINES[:1], 5, "wrong: line 2 is gone"),
        ({"trail": {**TRAIL.dump(), "pending": []}}, LINES[1:2], 5, "wrong: line 1 is gone"),
        (None, LINES[:2], 0, "the Playbook is gone, so lines may be missing at the end"),
        ({"history": [HISTORY]}, (), 0, "no line of the history is written yet"),
    ],
)
def test_verify_says_which_line_is_gone(
    status: dict[str, Any] | None,
    lines: Sequence[FiledLine],
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = Here(kube=Listing(status, lines), namespace="team", place=Place())  # type: ignore[arg-type]
    monkeypatch.setattr(versions, "on_cluster", lambda place, work: asyncio.run(work(here)))
    assert versions.run_history("formula", Place(), verify=True) == code
    text = capsys.readouterr().out
    assert words in text


def test_the_history_is_a_table_and_what_happened() -> None:
    left = {
        "heldOutDigest": C,
        "looks": 6,
        "spent": 0.043,
        "left": 0.007,
        "message": "6 looks at this heldOut",
    }
    status = PlaybookStatus.model_validate({"errorBudget": left})
    raw = version(A, phase="Active", look={"heldOutDigest": C, "number": 4}, heldOut={"shrunkGain": 0.183})
    lines = [line.split() for line in history("formula", status, [shown(raw)], LINES).splitlines()]
    assert lines[0][3:7] == ["LOOK", "SCORE", "GAIN", "CORRECTED"]
    assert lines[1][3:10] == ["4", "0.861", "+0.221", "[0.180,", "0.260]", "+0.183", "-"]
    text = history("formula", status, [shown(raw)], LINES)
    assert "heldOut abababababab: 6 looks at this heldOut" in text
    assert "error budget: 0.7 of 5 % left for all that come" in text
    assert "error budget" not in history("formula", PlaybookStatus(), [shown(version(A))], ())
    assert text.splitlines()[-4:] == [
        "  under Automatic; no canary:",
        f"  1  2026-01-01T00:01:00Z  {A[:12]}  Promoted by gates: 0.861",
        f"  2  2026-01-01T00:02:00Z  {A[:12]}  Refused by decision (kubectl at t1): re\\u{{1b}}fused",
        "  3  cannot be read",
    ]
    gone = history("formula", PlaybookStatus(), [], LINES)
    assert gone.startswith("formula has no versions any more\n")
    assert "has no versions yet" in history("formula", PlaybookStatus(), [], ())


def test_a_waived_canary_is_told_with_its_reason() -> None:
    canary = {"outcome": "Waived", "reason": "CanaryWaived", "message": "the canary is waived: a demo"}
    one = shown(version(A, phase="Active", canary=canary))
    assert "  Waived  " in history("formula", PlaybookStatus(), [one], ())
    assert "canary         Waived: the canary is waived: a demo" in why(one, 100)


def test_why_tells_each_gate_with_its_numbers_and_the_origin() -> None:
    raw = version(
        B,
        message="refused by heldOut",
        phase="Refused",
        heldOut={"outcome": "Failed", "message": "-0.100 [-0.15, -0.05] vs active, n=300", "score": 0.76},
        conditions=[
            {"type": "HeldOutPassed", "status": "False", "reason": "Worse", "message": "it is worse"}
        ],
    )
    text = why(shown(raw), 100)
    for part in (
        "Refused",
        "refused by heldOut",
        "Failed: -0.100 [-0.15, -0.05] vs active, n=300",
        "run formula-ace",
    ):
        assert part in text
    assert "iteration 3" in text and "312 rollouts" in text and "HeldOutPassed" in text
    assert max(map(len, text.splitlines())) <= 100


def test_why_tells_who_keeps_heldout_and_what_an_error_costs() -> None:
    raw = version(B)
    assert "known" not in why(shown(raw), 100)
    raw["spec"]["origin"] |= {
        "steward": "data-platform",
        "usedForTuning": True,
        "failureCost": "A wrong figure",
    }
    lines = [line.split(maxsplit=1) for line in why(shown(raw), 110).splitlines()]
    assert [said for label, said in lines if label == "known"] == [
        "data-platform keeps heldOut",
        "heldOut was used for tuning before, so its scores can be too good",
        "a wrong answer costs: A wrong figure",
    ]


def test_a_difference_cannot_drive_a_terminal() -> None:
    old = "[x-1] helpful=0 harmful=0 :: Round."
    new = "[x-1] helpful=0 harmful=0 :: Round\x1b[2J late."
    lines = list(difference(diff_playbooks(old, new), "a", "b"))
    assert lines[0] == "from a to b: 0 came, 0 went, 1 changed, 0 stayed"
    assert any(line.startswith("~ [x-1] Round.") for line in lines)
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("fits", [True, False])
async def test_a_text_that_was_replaced_is_not_shown(fits: bool) -> None:
    async def get(kind: str, namespace: str, name: str) -> dict[str, Any]:
        return {"data": {"prompt.md": "Be brief."}}

    published = hashlib.sha256(b"Be brief." if fits else b"Be kind.").hexdigest()
    spec = {"configMapName": "formula-1", "contentDigests": {"prompt.md": published}}
    here = cast(Here, SimpleNamespace(kube=SimpleNamespace(get=get), namespace="team"))
    if fits:
        assert (await content(here, {"spec": spec})).text == "Be brief."
    else:
        with pytest.raises(UserError, match=r"prompt\.md was replaced"):
            await content(here, {"spec": spec})


@pytest.mark.parametrize(
    ("said", "is_entry"),
    [
        ("stra-1b2c3d", True),
        ("calc-00001", True),
        ("candidate", False),
        (A[:12], False),
        (f"form-{A[:12]}", False),
    ],
)
def test_an_entry_is_told_from_a_version(said: str, is_entry: bool) -> None:
    raw = version(A)
    raw["metadata"]["name"] = f"form-{A[:12]}"
    assert known(raw, activeDigest=A).is_entry(said) == is_entry


@pytest.mark.parametrize("as_json", [True, False])
async def test_an_entry_of_the_active_version_has_its_life(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    method = AceMethod()
    update = Update("ADD", "strategies", "Use net sales.", frozenset({"order-17@0", "order-9@0"}))
    ledger = method.apply(method.empty(), [update], [], iteration=0)
    rendered = method.render(ledger, budget_tokens=1000, verify="Replay")
    (entry,) = rendered.ids
    published = {
        "prompt.md": rendered.shown.text,
        "artifact.json": method.handed_on(ledger, rendered, by="formula-1", train="ab" * 32).decode(),
    }

    async def get(kind: str, namespace: str, name: str) -> dict[str, Any]:
        return {"data": published}

    here = cast(Here, SimpleNamespace(kube=SimpleNamespace(get=get), namespace="team"))
    book = known(version(A, phase="Active"), activeDigest=A)
    await versions._tell_life(here, book, entry, as_json=as_json)
    out = capsys.readouterr().out
    if as_json:
        life = json.loads(out)
        assert (life["id"], life["shown"], life["sources"]) == (entry, True, ["order-17@0", "order-9@0"])
        assert [(one["what"], one["run"], one["iteration"]) for one in life["events"]] == [
            ("added", "formula-1", 1),
            ("backed", "formula-1", 1),
        ]
    else:
        assert out.startswith(f"{entry}  in the playbook\n  says      Use net sales.\n")
        assert "added     run formula-1, iteration 1: learned from example order-17" in out
        assert "replays   0 won, 0 lost" in out
    with pytest.raises(UserError, match="no entry 'stra-000000'"):
        await versions._tell_life(here, book, "stra-000000", as_json=as_json)
    del published["artifact.json"]
    with pytest.raises(UserError, match=r"holds no artifact\.json"):
        await versions._tell_life(here, book, entry, as_json=as_json)
