"""Why pods do not run, from what the cluster says of them; and docs/troubleshooting.md has all of it."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cluster_bench import GPUS, LEARNING, memory, run_of, seen

from combee.api.conditions import TABLE, ConditionType, Reason
from combee.cli.cluster import why_text
from combee.plan.cluster import accept, diagnose, standing
from combee.plan.cluster.decide import decide_cluster
from combee.plan.cluster.engines import FETCH_SECONDS
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import EngineSeen, Trouble
from combee.plan.playbook.conditions import READY
from combee.plan.playbook.conditions import TABLE as OF_PLAYBOOKS
from combee.plan.types import Outcome

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "troubleshooting.md").read_text()
TEXT = " ".join(PAGE.replace("  - ", " ").split())
PLACED = [{"type": "PodScheduled", "status": "True"}]


def pod(name: str = "p", phase: str = "Pending", conditions: Any = PLACED, **state: Any) -> dict[str, Any]:
    containers = [{"name": "worker", "image": "i:1", "state": state}] if state else []
    status = {"phase": phase, "conditions": conditions, "containerStatuses": containers}
    return {"metadata": {"name": name, "uid": f"u-{name}"}, "status": status}


def event(reason: str, message: str, about: str = "p", at: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    return {"reason": reason, "message": message, "lastTimestamp": at, "involvedObject": {"name": about}}


def unplaced(message: str, reason: str = "Unschedulable") -> dict[str, Any]:
    return pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}])


CREATING = {"waiting": {"reason": "ContainerCreating"}}
CASES: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]], tuple[str, str] | None]] = [
    ("fine", [pod(phase="Running", running={})], [], None),
    ("gpu", [unplaced("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")], [], ("Unschedulable",
     "ask for fewer")),
    ("claim", [unplaced('persistentvolumeclaim "store" not found')], [], ("Unschedulable",
     "Create the claim")),
    ("gate", [unplaced("gated", "SchedulingGated")], [], ("WaitingForQuota",
     "held back by a queue that the cluster put it into: gated")),
    ("image", [pod(waiting={"reason": "ErrImagePull", "message": "no such host"})], [], ("ImagePullFailed",
     "i:1")),
    ("config", [pod(waiting={"reason": "CreateContainerConfigError", "message": "secret"})], [],
     ("Unschedulable", "set up: secret.")),
    ("loop", [pod(waiting={"reason": "CrashLoopBackOff"})], [], ("Crashing", "keeps ending")),
    ("memory", [pod(phase="Failed", terminated={"exitCode": 137, "reason": "OOMKilled"})], [], ("Crashing",
     "raise its memory")),
    ("died", [pod(phase="Failed", terminated={"exitCode": 70})], [], ("Crashing", "exit code 70")),
    ("setting up", [pod(**CREATING)], [], None),
    (
        "no configmap",
        [pod(**CREATING)],
        [event("FailedMount", 'volume "run": configmap "rows" not found')],
        ("Unschedulable", ('pod p cannot be set up: volume "run": configmap "rows" not found. Create what '
                          'it names')),
    ),
    (
        "a kubelet that has not read it yet",
        [pod(**CREATING)],
        [event("FailedMount", 'MountVolume.SetUp failed for volume "run" : failed to sync configmap cache: '
               "timed out waiting for the condition")],
        None,
    ),
    (
        "and one that found nothing before",
        [pod(**CREATING)],
        [event("FailedMount", 'volume "run": configmap "rows" not found'),
         event("FailedMount", "failed to sync secret cache: timed out", at="2026-01-01T00:00:09Z")],
        ("Unschedulable", 'configmap "rows" not found'),
    ),
    (
        "a quota of limits",
        [],
        [event("FailedCreate", 'pods "p" is forbidden: failed quota: q: must specify limits.cpu for: vllm')],
        ("Unschedulable", "or in the chart: failed quota: q: must specify limits.cpu for: vllm"),
    ),
    (
        "the latest word counts",
        [pod()],
        [
            event("FailedMount", "the second", at="2026-01-01T00:00:09Z"),
            event("FailedMount", "the first"),
            event("Scheduled", "later, no trouble", at="2026-01-01T00:00:10Z"),
        ],
        ("Unschedulable", "the second"),
    ),
    ("another pod's", [pod(**CREATING)], [event("FailedMount", "x", about="q")], None),
    ("got over it", [pod(phase="Running", running={})], [event("FailedMount", "x")], None),
    ("quota", [], [event("FailedCreate", "pods is forbidden: exceeded quota: q")], ("WaitingForQuota",
     "exceeded quota: q")),
    ("security", [], [event("FailedCreate", 'violates PodSecurity "restricted"')], ("Unschedulable",
     "pod security")),
    ("account", [], [event("FailedCreate", "serviceaccount x not found")], ("Unschedulable",
     "serviceaccount x")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("pods", "events", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_what_is_said_of_pods_in_trouble(
    pods: list[dict[str, Any]], events: list[dict[str, Any]], expected: tuple[str, str] | None
) -> None:
    found = diagnose.diagnose(pods, events)
    assert (found is not None) == (expected is not None), found
    if found is not None and expected is not None:
        assert found.reason == expected[0] and expected[1] in found.message, found


FAILED, ERRORED = "Startup probe failed: ", "Startup probe errored and resulted in unknown state: "


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], ""),
        ([event("Unhealthy", "Readiness probe failed: /health"), event("BackOff", f"{FAILED}x")], ""),
        ([event("Unhealthy", f"{FAILED}/v1/models does not answer\n")], "/v1/models does not answer"),
        ([event("Unhealthy", f"{ERRORED}python3: not found")], "python3: not found"),
        (
            [
                event("Unhealthy", f"{FAILED}500", at="2026-01-01T00:01:00Z"),
                event("Unhealthy", f"{FAILED}first"),
            ],
            "500",
        ),
    ],
    ids=["nothing", "another probe", "failed", "could not run", "the latest"],
)
def test_what_a_startup_probe_said_last(events: list[dict[str, Any]], said: str) -> None:
    assert diagnose.probed(events) == said


@pytest.mark.parametrize(
    ("engine", "reason", "message"),
    [
        (EngineSeen("main", 2), "Starting", "engine main: its servers load the model"),
        (
            EngineSeen("main", 2, probed="/v1/chat/completions answers 500: no"),
            "Starting",
            (
                "engine main: its servers load the model; their startup probe says: /v1/chat/completions "
                "answers 500: no"
            ),
        ),
        (
            EngineSeen(
                "main", 2, trouble=Trouble("Crashing", "pod p died: why"), probed="it does not answer"
            ),
            "Crashing",
            "engine main: pod p died: why",
        ),
        (EngineSeen("main", 2, 1, probed="of the other"), "Serving", "servers ready: main 1/2"),
    ],
    ids=["loads", "answers nothing", "dies", "one serves"],
)
def test_the_condition_says_why_no_server_of_an_engine_has_started(
    engine: EngineSeen, reason: str, message: str
) -> None:
    run, facts = run_of(**GPUS), seen(engines={"main": engine})
    plan = decide_cluster(run, Memory(), facts)
    end = standing.standing(plan.memory, plan, facts)
    told = standing.conditions(run.spec, plan.memory, plan, facts, end)
    said = next(c for c in told if c.type is ConditionType.ENGINES_READY)
    assert (said.reason.value, said.message) == (reason, message)


@pytest.mark.parametrize("name", ["Learned", "Unsure", "NothingBetter"])
def test_a_run_that_came_to_its_own_end_is_ready_with_the_word_of_its_outcome(name: str) -> None:
    run, over = run_of(), replace(LEARNING, phase="Complete", outcome=Outcome(name, "because"))
    facts = seen()
    plan = decide_cluster(run, memory(over, ended=facts.now), facts)
    end = standing.standing(plan.memory, plan, facts)
    told = {c.type: c for c in standing.conditions(run.spec, plan.memory, plan, facts, end)}
    assert (end.phase.value, end.reason.value) == (name, name)
    for type in (ConditionType.READY, ConditionType.COMPLETE):
        assert (told[type].status, told[type].reason.value) == ("True", name)
    for type in (ConditionType.RECONCILING, ConditionType.STALLED, ConditionType.FAILED):
        assert (told[type].status, told[type].reason.value) == ("False", name)


@pytest.mark.parametrize(
    ("failed", "trouble", "reason", "says"),
    [
        (None, None, "Starting", "being fetched by Job j"),
        (None, Trouble("Unschedulable", "no node"), "Starting", "Job j: no node"),
        (None, Trouble("Crashing", "exit code 1"), "Crashing", "cannot be fetched yet: exit code 1"),
        ({"message": "limit"}, Trouble("Crashing", "pod p died"), "LoadFailed", "pod p died"),
        ({"message": "it has reached the limit"}, None, "LoadFailed", "delete Job j"),
    ],
)
def test_how_the_fetching_of_weights_stands(failed: Any, trouble: Any, reason: str, says: str) -> None:
    found = diagnose.fetch_trouble("j", failed, trouble)
    assert found.reason == reason and says in found.message
    assert Reason(reason) in TABLE[ConditionType.ENGINES_READY, "False"]


@pytest.mark.parametrize(("reason", "wakes"), [("Starting", True), ("Crashing", True), ("LoadFailed", False)])
def test_a_run_looks_again_at_a_fetch_whose_pod_tells_nobody(reason: str, wakes: bool) -> None:
    run = run_of(**GPUS)
    facts = seen(fetching={"main": Trouble(reason, "said")})
    woken = decide_cluster(run, Memory(), facts).wake_after_seconds
    assert (woken is not None and woken <= FETCH_SECONDS) == wakes


# -- the page -----------------------------------------------------------------------------------------


HEADS = set(re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE))


def test_every_reason_that_is_not_good_has_a_place_on_the_page() -> None:
    good = {Reason.PENDING, Reason.PREPARING, Reason.LEARNING, Reason.FINISHING}
    bad = {
        *TABLE[ConditionType.READY, "False"],
        *(r for (type, status), found in TABLE.items() if status == "False" for r in found
          if type in (ConditionType.PLAN_ACCEPTED, ConditionType.QUOTA_RESERVED, ConditionType.PODS_PLACED,
                      ConditionType.ENGINES_READY, ConditionType.CONVERGING)),
    }  # fmt: skip
    assert {reason.value for reason in bad - good} <= HEADS
    assert {reason.value for reason in standing.ERRORS.values()} <= HEADS
    for reason in (*TABLE[ConditionType.BUDGET_EXHAUSTED, "True"], *why_text.TO_DO):
        assert f"`{reason.value}`" in PAGE, reason


GOOD = set(OF_PLAYBOOKS[READY, "True"])
"""What nobody needs to do anything about, though something else is False with it."""


@pytest.mark.parametrize(
    "reason",
    sorted({r for (_, status), found in OF_PLAYBOOKS.items() if status != "True" for r in found} - GOOD),
)
def test_every_reason_of_a_playbook_that_is_not_good_has_a_row_or_a_head(reason: str) -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE, re.MULTILINE)
    assert reason in HEADS | {word for row in rows for word in re.findall(r"\w+", row)}


def test_no_head_is_a_reason_that_is_not_there() -> None:
    of_playbooks = {reason for reasons in OF_PLAYBOOKS.values() for reason in reasons}
    assert {reason.value for reason in Reason} | of_playbooks >= HEADS


def said_by(module: Any, *calls: str) -> list[str]:
    """The fixed parts of every sentence that is built in calls of these names."""
    found: list[str] = []
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in calls:
            words = [
                n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            ]
            found += [word.strip(" :.(){}") for word in words]
    return [word for word in found if len(word) > 9 and " " in word]


SENTENCES = [
    *said_by(diagnose, "Trouble"),
    *said_by(accept, "RefusedError"),
    *(fix for _, fix in diagnose._ADVICE),
]


def test_sentences_are_found() -> None:
    assert len(SENTENCES) > 18


@pytest.mark.parametrize("words", SENTENCES)
def test_every_sentence_of_a_diagnosis_is_on_the_page(words: str) -> None:
    assert " ".join(words.split()) in TEXT


@pytest.mark.parametrize(("at", "passes"), [("2026-01-01T00:01:30Z", True), ("2026-01-01T00:03:00Z", False)])
def test_what_a_kubelet_still_says_after_minutes_does_not_pass(at: str, passes: bool) -> None:
    beginning = pod(**CREATING)
    beginning["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    said = event("FailedMount", 'secret "s" not registered', at=at)
    assert (diagnose.diagnose([beginning], [said]) is None) is passes
