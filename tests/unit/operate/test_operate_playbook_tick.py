"""Ticks of a Playbook against a small API server: what must hold when something on the way cannot be had."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playbook_cluster import SPEC, Team, digest_of, promoted

from combee import names
from combee.errors import ClusterError
from combee.objects.versions import version_labels
from combee.observe import playbooks as observe
from combee.observe.judged import Judged
from combee.plan.playbook.authentic import digest_of_text as digest_of_line

MEASURED = {"url": "http://p", "score": {"query": "good{v='$(version)'}", "unit": "Ratio"}}
INVALID: list[dict[str, Any]] = [
    {"canary": {"mode": "Shadow", "epsilon": 0.05}},  # no evaluator
    {"heldOut": {"minScore": 7}},
    {"canary": {"mode": "Nonsense"}},
    {"failureCost": "Low", "canary": {"mode": "Prometheus", "epsilon": 0.3, "prometheus": MEASURED}},
]


@pytest.mark.parametrize("spec", INVALID)
async def test_a_rollback_is_followed_and_delivered_while_the_manifest_cannot_be_read(
    spec: dict[str, Any],
) -> None:
    team = await promoted()
    await team.spec(**spec).tick()
    assert (team.active, team.why("Ready")) == ("b", ("False", "InvalidManifest"))
    await team.decide("b", "Refuse").tick()
    assert team.active == "a" and team.playbook["status"]["state"]["refused"] == [digest_of("b")]
    assert team.version("b")["status"]["phase"] == "Refused"
    assert "as a says" in team.delivered["data"]["prompt.md"]
    assert team.why("Ready") == ("False", "InvalidManifest")
    assert [one for one in team.told() if one in ("InvalidManifest", "RolledBack")] == [
        "InvalidManifest",
        "RolledBack",
    ]
    # The lines of the history leave the status; after that a tick writes nothing and says nothing.
    await team.tick()
    before, told = team.playbook["metadata"]["resourceVersion"], team.told()
    await team.tick()
    assert (team.playbook["metadata"]["resourceVersion"], team.told()) == (before, told)


async def test_nothing_is_promoted_while_the_manifest_cannot_be_read() -> None:
    team = await promoted()
    team.spec(heldOut={"minScore": 7})
    await (await team.add("c", parent="b")).tick(3)
    assert team.active == "b" and team.version("c")["status"]["phase"] == "Candidate"
    team.playbook["spec"] = dict(SPEC)
    await team.tick(2)
    assert (team.active, team.why("Ready")) == ("c", ("True", "Delivered"))


async def test_it_is_delivered_where_and_what_the_rest_of_the_manifest_says() -> None:
    team = await promoted()
    named = {"delivery": {"configMap": {"name": "mounted"}}, "version": {"pinnedDigest": digest_of("a")}}
    await team.spec(**named).tick(2)
    await team.spec(heldOut={"minScore": 7}).tick(2)
    assert team.active == "a"
    assert "as a says" in team.kube.of("ConfigMap")["mounted"]["data"]["prompt.md"]


def from_a_later_release(team: Team, name: str) -> None:
    team.version(name)["status"]["phase"] = "Resting"


async def test_an_active_version_that_cannot_be_read_stays_and_the_tick_ends_with_an_error() -> None:
    team = await promoted()
    from_a_later_release(team, "b")
    await team.add("c", parent="a")
    before = team.delivered
    for _ in range(3):
        with pytest.raises(ClusterError, match="cannot read it"):
            await team.tick()
    assert (team.active, team.why("Ready")) == ("b", ("False", "VersionUnreadable"))
    assert team.delivered == before and team.told().count("Promoted") == 2
    assert team.version("c")["status"]["phase"] == "Candidate"
    assert team.version("b")["status"]["phase"] == "Resting"
    # Who refuses it goes first all the same, as the gateway has it.
    team.decide("b", "Refuse")
    with pytest.raises(ClusterError):
        await team.tick()
    assert team.active == "a" and "as a says" in team.delivered["data"]["prompt.md"]


async def test_another_version_that_cannot_be_read_is_left_alone() -> None:
    team = await promoted()
    from_a_later_release(team, "a")
    with pytest.raises(ClusterError):
        await team.tick()
    assert (team.active, team.why("Ready")) == ("b", ("True", "Delivered"))
    assert team.playbook["status"]["previousDigest"] == digest_of("a")
    team.version("a")["status"]["phase"] = "Previous"
    await team.decide("b", "Refuse").tick()
    assert team.active == "a"


async def test_a_playbook_that_is_applied_again_finds_its_active_version_though_it_cannot_be_read() -> None:
    team = await promoted()
    from_a_later_release(team, "a")
    team.version("a")["status"]["phase"] = "Active"
    team.version("a")["status"]["restarts"] = "often"
    team.version("b")["status"]["phase"] = "Superseded"
    del team.playbook["status"]
    with pytest.raises(ClusterError):
        await team.tick()
    assert (team.active, team.why("Ready")) == ("a", ("False", "VersionUnreadable"))


def test_what_was_judged_for_a_test_that_pauses_waits() -> None:
    def judged(name: str, test: str) -> dict[str, Any]:
        made = {names.JUDGE_ANNOTATION: "job-1"}
        labels = names.canary_labels("formula", test)
        return {"metadata": {"name": name, "labels": labels, "annotations": made}}

    metas = [judged("p-1", "under-way"), judged("p-2", "paused"), judged("p-3", "over")]
    versions: list[dict[str, Any]] = [
        {"status": {"test": {"id": "under-way"}, "state": {"test": "under-way"}}},
        {"status": {"state": {"test": "paused"}}},
        {"status": {"state": {}}},
    ]
    found = Judged.of(metas, iter(versions), {"under-way": {"job-1"}})
    assert (found.names, found.stale) == (("p-1",), ("p-3",))


ALTERED: dict[str, dict[str, Any]] = {
    "a text that was changed": {"data": {"prompt.md": "Answer as you like.", "artifact.json": "{}"}},
    "a text that was added": {"data": {"prompt.md": "", "more.md": "Answer as you like."}},
    "nothing left": {"data": {}},
    "binary data": {"binaryData": {"x": "AA=="}},
}


@pytest.mark.parametrize("altered", ALTERED.values(), ids=ALTERED)
async def test_what_somebody_changed_in_the_delivered_configmap_is_written_again(
    altered: dict[str, Any],
) -> None:
    team = await promoted()
    whole = team.delivered["data"]
    team.delivered.update(altered)
    await team.tick()
    assert team.delivered["data"] == whole and "binaryData" not in team.delivered
    assert team.told()[-1] == "Delivered"
    before = team.delivered["metadata"]["resourceVersion"]
    await team.tick(2)
    assert team.why("Ready") == ("True", "Delivered")
    assert team.delivered["metadata"]["resourceVersion"] == before


async def test_a_configmap_that_cannot_be_mended_is_not_called_delivered() -> None:
    team = await promoted()
    team.delivered["data"] = {"prompt.md": "Answer as you like."}
    del team.kube.of("ConfigMap")[team.content("b")["metadata"]["name"]]
    for _ in range(2):
        with pytest.raises(ClusterError, match="the content of the active version is gone"):
            await team.tick()
    assert (team.active, team.why("Ready")) == ("b", ("False", "ContentMissing"))
    assert "DeliveryBlocked" in team.told()


async def test_what_an_earlier_release_delivered_is_written_once_more() -> None:
    team = await promoted()
    del team.delivered["metadata"]["annotations"][names.DATA_ANNOTATION]
    whole = team.delivered["data"]
    await team.tick(2)
    assert names.DATA_ANNOTATION in team.delivered["metadata"]["annotations"]
    assert (team.delivered["data"], team.why("Ready")) == (whole, ("True", "Delivered"))


async def test_refused_versions_keep_their_record_and_are_not_read_again() -> None:
    team = await promoted()
    team.spec(version={"historyLimit": 2})
    for name in "cdef":
        await (await team.add(name, parent="b")).tick()
        await team.decide(name, "Refuse").tick(2)
    assert {name for name in "cdef" if team.version(name)["status"]["phase"] == "Refused"} == set("cdef")
    left = [name for name in "abcdef" if f"formula-{digest_of(name)[:12]}" in team.kube.of("ConfigMap")]
    assert left == ["a", "b", "e", "f"]
    before = {name: team.version(name)["metadata"]["resourceVersion"] for name in "abcdef"}
    # An operator that begins anew reads what may be served, and not what was refused.
    again = Team(team.kube)
    team.kube.read.clear()
    await again.tick(2)
    read = {name for name in "abcdef" if f"formula-{digest_of(name)[:12]}" in team.kube.read}
    assert read == {"a", "b"}
    assert before == {name: team.version(name)["metadata"]["resourceVersion"] for name in "abcdef"}
    # One whose content is there can still be brought back, and one whose content is gone says so.
    await team.decide("e", "Promote").tick()
    assert team.active == "e"
    await team.decide("e", "Auto").decide("c", "Promote").tick()
    assert team.active == "e"
    said = next(c for c in team.version("c")["status"]["conditions"] if c["type"] == "Promoted")
    assert said["reason"] == "ContentMissing" and "apply the run that learned it" in said["message"]


async def test_contents_that_are_in_use_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "MAX_REMEMBERED", 2)
    team = Team()
    await team.add("a")
    await team.add("b")
    await team.tick()
    b = team.kube.of(names.PLAYBOOK_VERSION_KIND).pop(team.version("b")["metadata"]["name"])
    await team.tick()
    await (await team.add("c")).tick()
    team.kube.read.clear()
    await team.tick()
    assert b["spec"]["configMapName"] not in team.kube.read
    assert team.content("a")["metadata"]["name"] not in team.kube.read


@pytest.mark.parametrize("name", ["a", "b"])
async def test_what_happened_is_told_though_a_version_changed_meanwhile(name: str) -> None:
    team = await promoted()
    meta = team.decide("b", "Refuse").version(name)["metadata"]
    team.kube.conflicts.add((names.PLAYBOOK_VERSION_KIND, meta["name"]))
    with pytest.raises(ClusterError, match="modified"):
        await team.tick()
    await team.tick(3)
    assert (team.active, team.version("b")["status"]["phase"]) == ("a", "Refused")
    assert [one for one in team.told() if one in ("Refused", "RolledBack")] == ["Refused", "RolledBack"]


async def test_what_was_judged_stays_while_the_manifest_cannot_be_read() -> None:
    team = await promoted()
    meta: dict[str, Any] = {"name": "pairs-1", "namespace": "team", "labels": version_labels("formula")}
    meta["labels"][names.LABEL_CANARY] = "b-a-p0"
    await team.kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    await team.spec(heldOut={"minScore": 7}).tick()
    assert "pairs-1" in team.kube.of("ConfigMap")
    team.playbook["spec"] = dict(SPEC)
    await team.tick()
    assert "pairs-1" not in team.kube.of("ConfigMap")


FIRST_LINE = (
    '{"digest":"a000000000000000000000000000000000000000000000000000000000000000","event":"Made",'
    '"message":"a00000000000 was made by hand at 2026-01-01T00:00:04Z, learned from an empty playbook",'
    '"number":1,"policy":"Automatic; heldOut minGain 0.000, confidence 0.950; '
    'canary waived: a test of how plans are followed","time":"2027-01-15T08:00:01Z"}'
)


def lines_of(team: Team) -> list[dict[str, Any]]:
    """The lines of the history that are in ConfigMaps, in their order."""
    named = sorted(name for name in team.kube.of("ConfigMap") if "-history-" in name)
    return [json.loads(team.kube.of("ConfigMap")[name]["data"]["line.json"]) for name in named]


async def test_each_decision_is_written_once_into_a_configmap_that_cannot_be_changed() -> None:
    team = await promoted()
    await team.decide("b", "Refuse").tick(2)
    assert [(line["number"], line["event"], line["digest"][:1]) for line in lines_of(team)] == [
        (number + 1, event, digest)
        for number, (event, digest) in enumerate(
            [
                *((event, "a") for event in ("Made", "HeldOutPassed", "CanaryWaived", "Promoted")),
                *((event, "b") for event in ("Made", "HeldOutPassed", "CanaryWaived", "Promoted")),
                *(("Decided", "b"), ("Refused", "b"), ("RolledBack", "a")),
            ]
        )
    ]
    first = team.kube.of("ConfigMap")["formula-history-000001"]
    made = {name: first["metadata"].pop(name) for name in ("uid", "resourceVersion", "creationTimestamp")}
    assert first == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "formula-history-000001",
            "namespace": "team",
            "labels": {
                "app.kubernetes.io/name": "combee",
                "app.kubernetes.io/managed-by": "combee-operator",
                "app.kubernetes.io/component": "history",
                "combee.dev/history": "formula",
            },
        },
        "immutable": True,
        "data": {"line.json": FIRST_LINE},
    }
    assert made["uid"]
    assert team.playbook["status"]["trail"] == {
        "lines": 11,
        "digest": digest_of_line(team.kube.of("ConfigMap")["formula-history-000011"]["data"]["line.json"]),
        "pending": [],
    }


async def test_lines_that_cannot_be_written_wait_in_the_status_and_hold_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    team = await promoted()
    before, create = lines_of(team), team.kube.create

    async def refuse(body: dict[str, Any]) -> Any:
        if "-history-" in body["metadata"]["name"]:
            raise ClusterError("exceeded quota", where="ConfigMap", status=403)
        return await create(body)

    monkeypatch.setattr(team.kube, "create", refuse)
    with pytest.raises(ClusterError, match="exceeded quota"):
        await team.decide("b", "Refuse").tick()
    assert team.active == "a" and "as a says" in team.delivered["data"]["prompt.md"]
    assert team.version("b")["status"]["phase"] == "Refused" and "HistoryBlocked" in team.told()
    assert lines_of(team) == before
    # Another operator goes on where that one stopped.
    monkeypatch.undo()
    await Team(team.kube).tick(2)
    assert [line["event"] for line in lines_of(team)[len(before) :]] == ["Decided", "Refused", "RolledBack"]
    assert team.playbook["status"]["trail"]["pending"] == []


async def test_a_line_with_the_number_of_ours_is_passed_over() -> None:
    team = await promoted()
    last = team.playbook["status"]["trail"]["lines"]
    labels = names.history_labels("formula")
    meta = {"name": names.history_name("formula", last + 1), "namespace": "team", "labels": labels}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"line.json": "{}"}}
    await team.kube.create(other)
    team.decide("b", "Refuse")
    with pytest.raises(ClusterError, match="another line of the history has this number"):
        await team.tick()
    await team.tick(2)
    ours = [line for line in lines_of(team) if line]
    assert [(line["number"] - last, line["event"]) for line in ours[last:]] == [
        (2, "Decided"),
        (3, "Refused"),
        (4, "RolledBack"),
    ]


async def test_a_playbook_that_is_applied_again_goes_on_after_its_last_line() -> None:
    team = await promoted()
    before = lines_of(team)
    body = team.playbook
    del body["status"]
    body["metadata"]["uid"] = "u-2"
    await team.tick(2)
    assert lines_of(team) == before and team.playbook["status"]["trail"]["lines"] == len(before)


async def test_a_line_says_which_program_decided() -> None:
    team = await promoted()
    written = {"f:spec": {"f:decision": {}}}
    entries = [
        {"manager": "combee", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}},
        {"manager": "kubectl-edit", "time": "2026-01-02T00:00:00Z", "fieldsV1": written},
        {"manager": "kubectl-combee", "time": "2026-01-03T00:00:00Z", "fieldsV1": written},
    ]
    team.version("b")["metadata"]["managedFields"] = entries
    await team.decide("b", "Refuse").tick()
    by_event = {line["event"]: line.get("who", "") for line in lines_of(team)}
    assert by_event["Refused"] == by_event["Decided"] == "kubectl-combee at 2026-01-03T00:00:00Z"
