"""What a Playbook would do with another spec, before anybody applies it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from combee.cli.cluster import place as places
from combee.cli.cluster.playbook_preview import run_playbook_preview
from combee.cli.where import Place
from combee.clients.kubernetes.kube import Object
from combee.names import API_VERSION, DIGEST_ANNOTATION, GATE_KEY, PROMPT_KEY

sys.path.insert(0, str(Path(__file__).parents[1] / "plan"))
from playbook_bench import CANARY, GATEWAY, WAIVED, World, gate


class Api:
    """A cluster that can be read. Whatever else is asked of it is missing, and fails the test."""

    namespace = "team"

    def __init__(self, world: World, spec: dict[str, Any]) -> None:
        meta = {"name": "formula", "namespace": "team", "uid": "u-1", "generation": world.generation}
        self.playbook: Object = {"metadata": meta, "spec": spec, "status": world.status.dump()}
        self.versions = [
            {
                "metadata": {
                    "name": one.name,
                    "namespace": "team",
                    "uid": one.name,
                    "generation": 1,
                    "creationTimestamp": f"2026-01-01T00:00:0{at}Z",
                },
                "spec": one.spec.dump(),
                "status": one.status.dump(),
            }
            for at, one in enumerate(world.versions.values())
        ]
        self.maps: dict[str, Object] = {
            one.name: {
                "metadata": {
                    "name": one.name,
                    "namespace": "team",
                    "uid": one.name,
                    "annotations": {DIGEST_ANNOTATION: one.digest},
                },
                "immutable": True,
                "data": {
                    PROMPT_KEY: "- [x-1] Use net sales.",
                    **({GATE_KEY: one.gate.to_json()} if one.gate else {}),
                },
            }
            for one in world.versions.values()
        }

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        assert namespace == "team"
        return self.playbook if kind == "Playbook" and name == "formula" else self.maps.get(name)

    async def list(self, kind: str, namespace: str, **_: Any) -> list[Object]:
        return {"PlaybookVersion": self.versions, "ConfigMap": list(self.maps.values())}.get(kind, [])

    async def aclose(self) -> None:
        """Nothing to close."""


def shown(
    world: World, new: dict[str, Any] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> tuple[int, str, str]:
    old: dict[str, Any] = {"failureCost": "Low", "canary": WAIVED, "delivery": GATEWAY, **world.spec}
    api = Api(world, old)
    before = json.dumps([api.playbook, api.versions, api.maps], sort_keys=True)

    async def connected(_: Place) -> Any:
        return api

    monkeypatch.setattr(places, "_connected", connected)
    path = None
    if new is not None:
        path = tmp_path / "new.yaml"
        made = {"apiVersion": API_VERSION, "kind": "Playbook", "metadata": {"name": "formula"}}
        path.write_text(yaml.safe_dump({**made, "spec": {**old, **new}}))
    code = run_playbook_preview("formula", path, Place(namespace="team"))
    assert json.dumps([api.playbook, api.versions, api.maps], sort_keys=True) == before
    said = capsys.readouterr()
    return code, said.out, said.err


def waiting() -> World:
    """``a`` is active; ``b`` passed heldOut and waits for a person."""
    world = World().add("a").settle().change(version={"policy": "Manual"})
    return world.add("b", parent="a", scores=gate(0.2, base=0.7)).settle()


def test_it_says_what_is_there_without_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    code, out, _ = shown(waiting(), None, tmp_path, monkeypatch, capsys)
    assert code == 0 and out.startswith("active: a00000000000 (as it is)\nb00000000000: Candidate\n")
    assert "Promoted=False/WaitingForDecision" in out and out.endswith("nothing was written\n")


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (
            {"version": {"policy": "Automatic"}},
            ("active: b00000000000 (now: a00000000000)", "Promoted: b0000"),
        ),
        (
            {"heldOut": {"minGain": 0.5}},
            (
                "active: a00000000000 (as it is)",
                "Candidate -> Refused",
                "HeldOutPassed=False/NotBetter",
                "[0.",
            ),
        ),
        ({"canary": CANARY}, ("CanaryPassed=Unknown/NoTraffic", "would happen: Restarted", "takes its time")),
        ({"canary": {**CANARY, "epsilon": 0.001}}, ("warning: canary.epsilon 0.001",)),
    ],
    ids=["policy", "minGain", "canary", "epsilon"],
)
def test_another_spec_is_decided_and_not_applied(
    new: dict[str, Any],
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    code, out, _ = shown(waiting(), new, tmp_path, monkeypatch, capsys)
    assert code == 0
    for said in words:
        assert said in out, out


def test_a_waiver_that_the_operator_does_not_allow_is_not_taken_for_one_that_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The preview cannot see the operator's settings; what the operator wrote says enough."""
    world = World(allow_waived=False).add("a").settle()
    code, out, _ = shown(world, {"heldOut": {"minScore": 0.1}}, tmp_path, monkeypatch, capsys)
    assert code == 0 and out.startswith("active: none (as it is)")
    assert "CanaryPassed=Unknown/WaiverNotAllowed" in out


def test_a_manifest_that_is_none_or_anothers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    code, out, err = shown(waiting(), {"heldOut": {"confidence": 7}}, tmp_path, monkeypatch, capsys)
    assert (code, out) == (2, "") and "confidence" in err
    path = tmp_path / "other.yaml"
    made = {
        "apiVersion": API_VERSION,
        "kind": "Playbook",
        "metadata": {"name": "other"},
        "spec": {"delivery": GATEWAY},
    }
    path.write_text(yaml.safe_dump(made))
    assert run_playbook_preview("formula", path, Place(namespace="team")) == 2
    assert "It has: other" in capsys.readouterr().err


def test_the_example_is_previewed_from_a_file_and_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    example = Path(__file__).resolve().parents[3] / "examples" / "playbook.yaml"
    api = Api(World().add("a").settle(), {"delivery": GATEWAY})

    async def connected(_: Place) -> Any:
        return api

    monkeypatch.setattr(places, "_connected", connected)
    printed = []
    for path in (example, Path("-")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(example.read_bytes())))
        assert run_playbook_preview("formula", path, Place(namespace="team")) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and printed[0].startswith("active: a00000000000 (as it is)\n")
    assert printed[0].endswith("nothing was written\n")
