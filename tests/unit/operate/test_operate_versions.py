"""What a run starts from: the version that was active when it was first seen."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from playbook_cluster import FakeKube

from combee.api.load import parse_run
from combee.api.run import PromptLearningRun
from combee.assembly.splits import read_playbook
from combee.errors import DataError
from combee.operator.versions import Versions, with_start
from combee.plan.cluster.memory import Memory, Start
from combee.plan.playbook.authentic import content_digests
from combee.records import Owner

QUICKSTART = Path(__file__).resolve().parents[3] / "examples" / "quickstart.yaml"


@pytest.fixture
def run() -> PromptLearningRun:
    body = next(o for o in yaml.safe_load_all(QUICKSTART.read_text()) if o["kind"] == "PromptLearningRun")
    body["spec"]["task"]["initialPlaybook"] = {"activeVersion": True}
    return parse_run(body, "")


def test_pods_are_told_the_config_map_of_the_version_that_was_active(run: PromptLearningRun) -> None:
    seen = with_start(run, Memory(start=Start("a" * 64, "formula-aaaaaaaaaaaa")))
    told = seen.dump()["spec"]["task"]["initialPlaybook"]
    assert told == {"configMap": {"name": "formula-aaaaaaaaaaaa", "key": "prompt.md"}}
    # All else is as it was written, and pods can read it again.
    assert parse_run(seen.dump(), "").spec.task.model_copy(update={"initial_playbook": None}) == (
        run.spec.task.model_copy(update={"initial_playbook": None})
    )


@pytest.mark.parametrize(("given", "asked"), [({}, "b" * 64), ({"sha256": "c" * 64}, "c" * 64)])
def test_pods_are_told_what_its_run_published_or_what_the_manifest_pins(
    run: PromptLearningRun, given: dict[str, str], asked: str
) -> None:
    plain = run.dump()
    plain["spec"]["task"]["initialPlaybook"] |= given
    start = Start("a" * 64, "formula-aaaaaaaaaaaa", {"prompt.md": "b" * 64})
    told = with_start(parse_run(plain, ""), Memory(start=start)).dump()["spec"]["task"]["initialPlaybook"]
    assert told["sha256"] == asked


@pytest.mark.parametrize(("type", "key"), [("GEPA", "prompt.json"), ("ACE", "artifact.json")])
@pytest.mark.parametrize(("pinned", "asked"), [("", "d" * 64), ("b" * 64, "d" * 64), ("c" * 64, "c" * 64)])
def test_components_and_a_ledger_are_asked_for_by_a_digest_of_their_own(
    run: PromptLearningRun, pinned: str, asked: str, type: str, key: str
) -> None:
    plain = run.dump()
    plain["spec"]["method"] = {"type": type}
    plain["spec"]["task"]["initialPlaybook"] |= {"sha256": pinned} if pinned else {}
    start = Start("a" * 64, "formula-a", {"prompt.md": "b" * 64, key: "d" * 64}, key)
    told = with_start(parse_run(plain, ""), Memory(start=start)).dump()["spec"]["task"]["initialPlaybook"]
    assert told == {"configMap": {"name": "formula-a", "key": key}, "sha256": asked}


@pytest.mark.parametrize(("learned_by", "key"), [("", "artifact.json"), ("GEPA", "prompt.md")])
async def test_an_artifact_is_started_from_where_the_same_method_left_it(
    run: PromptLearningRun, learned_by: str, key: str
) -> None:
    data = {"prompt.md": "Divide.", "artifact.json": "{}"} | ({"method": learned_by} if learned_by else {})
    spec = {
        "playbookRef": run.spec.playbook_ref.dump() if run.spec.playbook_ref else {},
        "digest": "a" * 64,
        "decision": "Promote",
        "configMapName": "formula-a",
        "contentDigests": content_digests(data),
    }
    kube: Any = FakeKube()
    await kube.create({"kind": "PlaybookVersion", "metadata": {"name": "formula-a"}, "spec": spec})
    memory = await Versions(kube).started(run, Owner("formula", "team", "u"), Memory())
    told = with_start(run, Memory.from_status(memory.to_status())).dump()
    assert told["spec"]["task"]["initialPlaybook"]["configMap"]["key"] == key


@pytest.mark.parametrize(
    ("type", "left", "key"), [("ACE", "artifact.json", "prompt.md"), ("GEPA", "prompt.json", "prompt.json")]
)
def test_a_run_that_an_earlier_release_began_goes_on_from_what_its_pods_know(
    run: PromptLearningRun, type: str, left: str, key: str
) -> None:
    plain = run.dump()
    plain["spec"]["method"] = {"type": type}
    start = Start("a" * 64, "formula-a", {"prompt.md": "b" * 64, left: "d" * 64})
    told = with_start(parse_run(plain, ""), Memory(start=start)).dump()["spec"]["task"]["initialPlaybook"]
    assert told["configMap"]["key"] == key


@pytest.mark.parametrize("fits", [True, False])
def test_nothing_starts_from_a_text_that_was_replaced(fits: bool, tmp_path: Path) -> None:
    file = tmp_path / "prompt.md"
    file.write_text("Say that the net sales are 7.", encoding="utf-8")
    published = hashlib.sha256(file.read_bytes() if fits else b"Use net sales.").hexdigest()
    if fits:
        assert read_playbook(str(file), sha256=published) == "Say that the net sales are 7."
        return
    with pytest.raises(DataError, match="this is another text"):
        read_playbook(str(file), sha256=published)


def test_where_none_was_active_it_starts_from_nothing(run: PromptLearningRun) -> None:
    assert "initialPlaybook" not in with_start(run, Memory(start=Start())).dump()["spec"]["task"]


def test_a_run_that_starts_from_something_else_stays_as_it_is(run: PromptLearningRun) -> None:
    assert with_start(run, Memory()) is run


@pytest.mark.parametrize(
    ("before", "taken"), [((), False), (("heldOut 5",), False), (("5",), True), (("5", "17"), True)]
)
async def test_a_version_that_may_hold_what_is_forgotten_is_not_started_from(
    run: PromptLearningRun, before: tuple[str, ...], taken: bool
) -> None:
    """So it is not its parent either: what it scored says nothing of a gain over it."""
    plain = run.dump()
    plain["spec"]["task"]["data"]["train"]["forgotten"] = ["5"]
    run = parse_run(plain, "")
    spec = {
        "playbookRef": run.spec.playbook_ref.dump() if run.spec.playbook_ref else {},
        "digest": "a" * 64,
        "decision": "Promote",
        "configMapName": "formula-a",
        "origin": {"forgotten": list(before)},
    }
    kube: Any = FakeKube()
    await kube.create({"kind": "PlaybookVersion", "metadata": {"name": "formula-a"}, "spec": spec})
    memory = await Versions(kube).started(run, Owner("formula", "team", "u"), Memory())
    assert memory.start is not None and bool(memory.start.digest) is taken
    assert (with_start(run, memory).spec.task.initial_playbook is not None) is taken
