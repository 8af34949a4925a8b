"""What GitOps tools read from the status of a run and a Playbook, by the tools' own libraries."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_tools import REPOSITORY
from neighbours import go
from runs import quickstart

from combee.api.conditions import TABLE, ConditionType, Reason
from combee.api.load import parse_run
from combee.api.playbook_status import PlaybookStatus, VersionPhase
from combee.api.status import RunStatus
from combee.plan.cluster.decide import ClusterPlan
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import JobSeen, Seen, Trouble
from combee.plan.cluster.status import About, refused_status, run_status
from combee.plan.playbook.conditions import READY, Statement, merge
from combee.plan.state import RunState
from combee.plan.types import Outcome, RoleUsage

sys.path.insert(0, str(REPOSITORY / "tests/unit/plan"))
from playbook_bench import CANARY, World

pytestmark = pytest.mark.timeout(900, func_only=True)
PAGE = (REPOSITORY / "docs" / "gitops.md").read_text()
SOURCE = Path(__file__).with_name("gitops")
NOW = 1_000_000.0
Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[Manifest]], list[dict[str, str]]]:
    """What each tool says of objects."""
    program = tmp_path_factory.mktemp("gitops") / "health"
    built = subprocess.run([go(), "build", "-o", program, "."], cwd=SOURCE, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr

    def ask(objects: list[Manifest]) -> list[dict[str, str]]:
        question = {"lua": _scripts(), "flux": _expressions(), "objects": objects}
        done = subprocess.run(
            [program], input=json.dumps(question), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        answers: list[dict[str, str]] = json.loads(done.stdout)
        return answers

    return ask


def _scripts() -> dict[str, str]:
    """Argo CD's ConfigMap: kind -> Lua."""
    data = yaml.safe_load((REPOSITORY / "examples/argocd/health.yaml").read_text())["data"]
    return {key.rpartition("_")[2]: script for key, script in data.items()}


def _expressions() -> dict[str, dict[str, str]]:
    """Flux's Kustomization: kind -> expressions."""
    objects = yaml.safe_load_all((REPOSITORY / "examples/flux/kustomization.yaml").read_text())
    spec = next(o for o in objects if o["kind"] == "Kustomization")["spec"]
    return {check["kind"]: check for check in spec["healthCheckExprs"]}


def table(head: str) -> dict[str, tuple[str, ...]]:
    """A table of the page whose first column has this head: first cell -> the others."""
    found = re.search(rf"\| {head} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE)
    assert found, head
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]
    return {row[0]: tuple(row[1:]) for row in rows}


SPEC = parse_run(next(o for o in quickstart() if o["kind"] == "PromptLearningRun"), "").spec


def status_of(memory: Memory, *jobs: JobSeen, suspend: bool = False) -> RunStatus:
    """The status that the operator writes after a tick."""
    about = About(SPEC, 1, "m", "image", "1", lambda seconds: "2026-01-01T00:00:00Z" if seconds else "")
    seen = Seen(NOW, suspend=suspend, jobs={job.name: job for job in jobs})
    return run_status(about, RunStatus(), ClusterPlan(memory), seen)


def over(name: str, error: str = "", **run: Any) -> RunStatus:
    """The status of a run that ended so."""
    memory = Memory(started=NOW, ended=NOW, error=error)
    return status_of(replace(memory, run=RunState(phase="Complete", outcome=Outcome(name, "because"), **run)))


def learning() -> Memory:
    return Memory(run=RunState(phase="Learning"), started=NOW)


STUCK = JobSeen("j", "j", "map", trouble=Trouble("Unschedulable", "pod j finds no node"))
RUNS: dict[str, RunStatus | None] = {
    "was applied a moment ago": None,
    "was changed a moment ago": over("Learned").model_copy(update={"observed_generation": 0}),
    "waits for a queue, a quota, a node or an engine": status_of(learning(), STUCK),
    "learns": status_of(learning(), JobSeen("j", "j", "map", ready=1)),
    "is suspended": status_of(learning(), suspend=True),
    "has a plan that is refused": refused_status(
        RunStatus(), 1, Reason.SECRET_NOT_ALLOWED, "no", "2026-01-01T00:00:00Z"
    ),
    "failed": over("Failed", "Store"),
    "spent its budget, with the best until then": over("BudgetExhausted"),
    "learned something better": over("Learned"),
    "is unsure: chance could have made its gain": over("Unsure"),
    "found nothing better than the start": over("NothingBetter", usage={"task": RoleUsage(calls=1)}),
}


def with_status(name: str, status: dict[str, Any] | None, kind: str = "PromptLearningRun") -> Manifest:
    made = {"apiVersion": "combee.dev/v1alpha1", "kind": kind, "metadata": {"name": name, "generation": 1}}
    return {**made, "spec": {}, **({} if status is None else {"status": status})}


def test_each_state_of_a_run_reads_as_the_page_says(judge: Callable[..., list[dict[str, str]]]) -> None:
    expected = table("a run that")
    assert set(expected) == set(RUNS)
    objects = [
        with_status(name, {k: v for k, v in status.dump().items() if v != ""} if status else None)
        for name, status in RUNS.items()
    ]
    for name, seen in zip(RUNS, judge(objects), strict=True):
        assert (seen["kstatus"], seen["flux"], seen["argo"]) == expected[name], (name, seen)
        assert seen["message"], name


def conditions(**given: str) -> list[dict[str, str]]:
    return [{"type": type, "status": status, "message": "m", "reason": "R"} for type, status in given.items()]


def test_every_reason_of_the_table_reads_as_its_ready_and_stalled_say(
    judge: Callable[..., list[dict[str, str]]],
) -> None:
    """No reason leaves a run in progress for ever, or healthy while it is stalled."""
    T = ConditionType
    cases = {
        **dict.fromkeys(TABLE[T.READY, "True"], ("True", "False", "False")),
        **dict.fromkeys(TABLE[T.RECONCILING, "True"], ("False", "True", "False")),
        **dict.fromkeys(TABLE[T.STALLED, "True"], ("False", "False", "True")),
    }
    assert set(TABLE[T.READY, "False"]) | set(TABLE[T.READY, "True"]) == {*cases, Reason.SUSPENDED}
    objects = [
        with_status(
            reason,
            {
                "observedGeneration": 1,
                "conditions": conditions(Ready=ready, Reconciling=going, Stalled=stalled),
            },
        )
        for reason, (ready, going, stalled) in cases.items()
    ]
    said = {"True": "Healthy", "False": "Degraded"}
    for made, seen in zip(objects, judge(objects), strict=True):
        ready, going, _ = cases[Reason(made["metadata"]["name"])]
        wanted = "Progressing" if going == "True" else said[ready]
        same = {"Healthy": "Current", "Degraded": "Failed", "Progressing": "InProgress"}[wanted]
        assert (seen["kstatus"], seen["flux"], seen["argo"]) == (same, same, wanted), made


def blocked() -> PlaybookStatus:
    world = World(blocked="a ConfigMap of this name is there that is not ours", delivered="").add("a")
    world.tick()
    return world.status


def unreadable() -> PlaybookStatus:
    """As the operator writes it over what it wrote before."""
    before = World().add("a").settle().status
    said = (Statement(READY, "InvalidManifest", "spec.canary is none"),)
    return before.model_copy(update={"conditions": merge(before.conditions, said, 1, "t")})


def delivering() -> PlaybookStatus:
    world = World().add("a")
    world.tick()
    return world.status


CANDIDATE = World().add("a").settle().change(canary=CANARY).add("b", parent="a").settle()
PLAYBOOKS: dict[str, PlaybookStatus | None] = {
    "was applied a moment ago": None,
    "was changed a moment ago": World()
    .add("a")
    .settle()
    .status.model_copy(update={"observed_generation": 0}),
    "has nothing active": World().settle().status,
    "delivers its active version": delivering(),
    "has delivered it": World().add("a").settle().status,
    "has delivered it and compares a candidate": CANDIDATE.status,
    "may not deliver it": blocked(),
    "cannot be read": unreadable(),
}


def test_each_state_of_a_playbook_reads_as_the_page_says(judge: Callable[..., list[dict[str, str]]]) -> None:
    expected = table("a Playbook that")
    assert set(expected) == set(PLAYBOOKS) and CANDIDATE.status.candidate_digest
    objects = []
    for name, status in PLAYBOOKS.items():
        dumped = {k: v for k, v in status.dump().items() if v != ""} if status else None
        objects.append(with_status(name, dumped, "Playbook"))
    for made in objects[2:]:
        made["metadata"]["generation"] = made["status"]["observedGeneration"]
    for name, seen in zip(PLAYBOOKS, judge(objects), strict=True):
        assert (seen["kstatus"], seen["flux"], seen["argo"]) == expected[name], (name, seen)
        assert seen["message"], name


def test_each_phase_of_a_version_reads_as_the_page_says(judge: Callable[..., list[dict[str, str]]]) -> None:
    expected = table("a PlaybookVersion that is")
    assert set(VersionPhase) <= set(expected)
    objects = [
        with_status(
            phase.lower(), {"phase": phase, "observedGeneration": 1, "message": "m"}, "PlaybookVersion"
        )
        for phase in expected
    ]
    assert [(seen["argo"],) for seen in judge(objects)] == list(expected.values())
