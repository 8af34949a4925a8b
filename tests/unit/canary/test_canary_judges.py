"""The operator's part: one Job a test, no Secret that nobody asked about, and why nothing is judged."""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from combee import names
from combee.algo.tally import LeftOut, Pair, Tally
from combee.api.playbook import PlaybookSpec
from combee.api.playbook_status import PlaybookStatus, TrafficComparison, VersionStatus
from combee.objects.types import Settings
from combee.observe.judged import Judged
from combee.observe.playbooks import Observed
from combee.operator.playbooks.judges import Judges
from combee.plan.playbook.judges import JudgesSeen
from combee.plan.playbook.judging import JudgeTask
from combee.plan.playbook.memory import VersionMemory
from combee.plan.playbook.readings import Reading, Trouble
from combee.plan.playbook.types import CanaryWish, Delivery, PlaybookPlan, PlaybookSeen
from combee.records import Owner

NOW = 1_800_000_000.0
TEST = "bbbb-aaaa-12345678-p0"
TESTED, AGAINST = "b" * 64, "a" * 64
OWNER = Owner("formula", "team", "u-1")
KEYED = {"url": "https://judge/v1", "model": "j", "apiKeySecretRef": {"name": "judge", "key": "token"}}


def spec(mode: str = "Shadow", evaluator: dict[str, Any] = KEYED) -> PlaybookSpec:
    replay = {"requests": {"configMap": {"name": "asked", "key": "r.jsonl"}}}
    return PlaybookSpec.model_validate(
        {
            "canary": {"mode": mode, "evaluator": evaluator, "replay": replay if mode == "Replay" else {}},
            "delivery": {"gateway": {"enabled": True, "upstream": {"url": "http://llm/v1"}}},
        }
    )


@dataclass
class Kube:
    """Jobs, pods and events of a namespace."""

    now: float = NOW
    objects: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    known: dict[str, list[str]] = field(default_factory=dict)
    """version -> uids of the Jobs whose pairs count."""

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        return self.objects.setdefault(kind, {})

    async def list(self, kind: str, namespace: str, *, labels: str = "", fields: str = "") -> Any:
        assert labels or fields
        return copy.deepcopy(list(self.of(kind).values()))

    async def create(self, body: dict[str, Any]) -> dict[str, Any] | None:
        there, name = self.of(body["kind"]), body["metadata"]["name"]
        if name in there:
            return None
        made = copy.deepcopy(body)
        moment = datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        made["metadata"] |= {"creationTimestamp": moment, "uid": f"uid-{name}"}
        there[name] = made
        return made

    async def patch(self, kind: str, namespace: str, name: str, body: dict[str, Any], *, part: str) -> None:
        assert (kind, part) == (names.PLAYBOOK_VERSION_KIND, "status")
        self.known[name] = body["status"]["state"]["judges"]

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> bool:
        assert self.of(kind)[name]["metadata"]["uid"] == uid
        del self.of(kind)[name]
        return True

    def end(self, word: str, message: str = "") -> None:
        """Every Job that runs comes to its end."""
        for job in self.of("Job").values():
            if not job.get("status"):
                job["status"] = {"conditions": [{"type": word, "status": "True", "message": message}]}


@dataclass
class Scene:
    kube: Kube = field(default_factory=Kube)
    spec: PlaybookSpec = field(default_factory=spec)
    tally: Tally = field(default_factory=Tally)
    versions: tuple[str, ...] = (TESTED, AGAINST)
    tests: tuple[str, ...] = (TEST,)
    secret_policy: bool = True
    since: float = 0.0
    reading: Reading | None = None
    job_uids: tuple[str, ...] = ()
    judges: Judges = field(init=False)

    def __post_init__(self) -> None:
        self.judges = Judges(
            self.kube,  # type: ignore[arg-type]
            Settings(worker_image="combee/worker:1", make_accounts=True, secret_policy=self.secret_policy),
        )

    def tick(self, seconds: float = 1.0) -> tuple[JudgesSeen, float | None]:
        self.kube.now += seconds
        assert self.spec.canary is not None
        mode = self.spec.canary.mode
        state = VersionMemory(
            since=self.since, tally=self.tally, reading=self.reading, job_uids=self.job_uids
        ).to_json()
        plan = PlaybookPlan(
            status=PlaybookStatus(),
            versions={"formula-b": VersionStatus(state=state)},
            deliver=Delivery("formula-playbook", AGAINST, "formula-a", current=True),
            canaries=tuple(
                CanaryWish(
                    TESTED,
                    "formula-b",
                    TrafficComparison(id=test, kind="Promotion", mode=mode, against=AGAINST),
                    self.tally.pairs,
                    None,
                )
                for test in self.tests
            ),
        )
        raw = {
            digest: {"spec": {"digest": digest, "configMapName": f"formula-{digest[:12]}"}}
            for digest in self.versions
        }
        there = Observed(PlaybookSeen(now=self.kube.now), raw, None)

        async def both() -> tuple[JudgesSeen, float | None]:
            at_work = await self.judges.look(OWNER, self.spec, self.kube.now)
            return at_work, await self.judges.keep(OWNER, self.spec, plan, there, at_work)

        return asyncio.run(both())

    @property
    def jobs(self) -> list[str]:
        return sorted(self.kube.of("Job"))


def test_one_job_at_a_time_and_another_once_it_has_ended() -> None:
    scene = Scene()
    assert scene.tick()[1] == 10.0
    assert len(scene.jobs) == 1 and len(scene.kube.of("ServiceAccount")) == 2
    before = copy.deepcopy({kind: scene.kube.of(kind) for kind in scene.kube.objects})
    for _ in range(5):
        assert scene.tick()[1] == 10.0
    assert {kind: scene.kube.of(kind) for kind in before} == before, (
        "a tick writes nothing while a Job is at work"
    )
    scene.kube.end("Complete")
    wait = scene.tick()[1]
    assert wait is not None and 0 < wait <= 20 and len(scene.jobs) == 1
    scene.tick(wait)
    assert len(scene.jobs) == 2


def test_a_job_is_remembered_in_the_tick_that_makes_it() -> None:
    """The operator may be away until the Job is gone: its pairs are own ones then, too."""
    scene = Scene(job_uids=("before",))
    scene.tick()
    assert scene.kube.known == {"formula-b": ["before", f"uid-{scene.jobs[0]}"]}
    state = {"test": TEST, "judges": scene.kube.known["formula-b"]}
    left = {"labels": {names.LABEL_CANARY: TEST, names.LABEL_MANAGED_BY: names.MANAGED_BY}}
    left |= {"name": "pairs", "annotations": {names.JUDGE_ANNOTATION: f"uid-{scene.jobs[0]}"}}  # type: ignore[dict-item]
    found = Judged.of([{"metadata": left}], [{"status": {"test": {"id": TEST}, "state": state}}], {})
    assert found.names == ("pairs",) and not found.foreign


def test_a_test_that_is_over_has_no_job_left_at_work() -> None:
    scene = Scene()
    scene.tick()
    scene.tests = ()
    assert scene.tick()[1] is None and scene.jobs == []


def test_a_job_knows_what_is_judged_already() -> None:
    scene = Scene(spec=spec("Replay"), tally=Tally({0: 3}, {"replay": ((0, 2),)}))
    scene.tick()
    (job,) = scene.kube.of("Job").values()
    (told,) = (
        one["value"]
        for one in job["spec"]["template"]["spec"]["containers"][0]["env"]
        if one["name"] == "COMBEE_JUDGE"
    )
    assert '"done":{"replay":[[0,2]]}' in told
    assert job["metadata"]["annotations"]["combee.dev/pairs-before"] == "3"


METERED: dict[str, Any] = {
    "mode": "Prometheus",
    "prometheus": {
        "url": "https://prometheus.example.com",
        "tokenSecretRef": {"name": "prometheus", "key": "token"},
        "score": {"query": 'good{version="$(version)"}', "unit": "Ratio"},
        "windowSeconds": 60,
        "delaySeconds": 30,
    },
}


def metered(**scene: Any) -> Scene:
    return Scene(spec=PlaybookSpec.model_validate({"canary": METERED}), since=NOW, **scene)


def told_to(scene: Scene) -> list[JudgeTask]:
    """What the Jobs are told, the first one first."""
    jobs = sorted(scene.kube.of("Job").values(), key=lambda job: str(job["metadata"]["creationTimestamp"]))
    envs = [job["spec"]["template"]["spec"]["containers"][0]["env"] for job in jobs]
    said = [one["value"] for env in envs for one in env if one["name"] == "COMBEE_JUDGE"]
    return [JudgeTask.model_validate_json(one.replace("$$", "$")) for one in said]


def test_prometheus_is_asked_once_a_window_is_over_and_then_every_few_windows() -> None:
    scene = metered()
    wait = scene.tick(0)[1]
    assert wait == pytest.approx(90) and scene.jobs == [], "no window is over before"
    assert scene.tick(90)[1] == 10.0 and len(scene.jobs) == 1
    scene.kube.end("Complete")
    scene.reading, scene.tally = Reading(0, 0, NOW + 90, 1), Tally({0: 1}, {"prometheus": ((0, 0),)})
    wait = scene.tick()[1]
    assert wait is not None and 250 < wait < 300 and len(scene.jobs) == 1
    scene.tick(wait)
    first, second = told_to(scene)
    assert (first.begins, first.first, second.begins, second.first) == (NOW, 0, NOW, 1)
    assert second.prometheus is not None and second.prometheus.score.query == 'good{version="$(version)"}'


def test_a_reading_without_pairs_goes_on_and_ever_more_seldom() -> None:
    scene, gaps = metered(), []
    scene.tick(90)
    for _ in range(5):
        scene.kube.end("Complete")
        last = int((scene.kube.now - NOW - 30) // 60) - 1
        scene.reading = Reading(0, last, scene.kube.now, 0, Trouble("Empty", "score", "candidate"))
        began, jobs, wait = scene.kube.now, len(scene.jobs), 0.0
        while len(scene.jobs) == jobs:
            again = scene.tick(wait)[1]
            assert again is not None and 0 < again <= 600
            wait = again
        gaps.append(scene.kube.now - began)
        assert told_to(scene)[-1].first == last + 1
    assert gaps == sorted(gaps) and gaps[0] == pytest.approx(300) and gaps[-1] == pytest.approx(600)


def test_no_token_is_mounted_without_the_policy() -> None:
    scene = metered(secret_policy=False)
    at_work, _ = scene.tick(90)
    assert scene.jobs == [] and "prometheus is not mounted" in at_work.refused


def test_nothing_is_replayed_while_a_versions_content_is_unknown() -> None:
    scene = Scene(spec=spec("Replay"), versions=(TESTED,))
    scene.tick()
    assert scene.jobs == []


def test_without_the_policy_no_secret_is_mounted_and_that_is_told() -> None:
    scene = Scene(secret_policy=False)
    at_work, _ = scene.tick()
    assert scene.jobs == [] and at_work.why([TEST]).keys() == {TEST}
    assert "SecretNotAllowed" in at_work.refused and "judge" in at_work.refused
    open_one = {"url": "http://judge/v1", "model": "j"}
    keyless = Scene(secret_policy=False, spec=spec(evaluator=open_one))
    assert keyless.tick()[0].refused == "" and len(keyless.jobs) == 1


def test_why_a_job_failed_is_told_until_another_one_has_ended_well() -> None:
    scene = Scene()
    scene.tick()
    said = "spec.canary.evaluator: the API key is refused (401)"
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": said}}
    pod = {"metadata": {"name": "p", "uid": "p"}, "status": {"phase": "Failed"}}
    pod["status"]["containerStatuses"] = [{"name": "worker", "state": ended}]  # type: ignore[assignment]
    scene.kube.of("Pod")["p"] = pod
    scene.kube.end("Failed", "BackoffLimitExceeded")
    assert said in scene.tick()[0].why([TEST, "other"])[TEST]
    assert "other" not in scene.tick()[0].why([TEST, "other"])
    scene.tick(30)
    assert len(scene.jobs) == 2
    # The next one is at work: nobody knows yet whether it fares better.
    assert said in scene.tick()[0].why([TEST])[TEST]
    scene.kube.end("Complete")
    assert scene.tick()[0].why([TEST]) == {}


def test_a_pod_that_cannot_start_is_told_after_a_while() -> None:
    scene = Scene()
    scene.tick()
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "worker", "state": waiting}]}
    scene.kube.of("Pod")["p"] = {"metadata": {"name": "p", "uid": "p"}, "status": status}
    assert scene.tick(1)[0].why([TEST]) == {}
    assert "no such image" in scene.tick(10)[0].why([TEST])[TEST]


@pytest.mark.parametrize("canary", [None, {"mode": "Manual"}])
def test_a_playbook_without_such_a_canary_asks_for_nothing(canary: dict[str, Any] | None) -> None:
    scene = Scene()
    asked = PlaybookSpec.model_validate({"canary": canary} if canary else {})
    assert asyncio.run(scene.judges.look(OWNER, asked, NOW)) == JudgesSeen()


def test_pairs_of_tests_that_are_over_go_and_the_others_are_read_a_few_at_a_time() -> None:
    def meta(name: str, **labels: str) -> dict[str, Any]:
        made = {names.JUDGE_ANNOTATION: "job-1"}
        ours = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
        return {"metadata": {"name": name, "labels": labels | ours, "annotations": made}}

    metas = [meta(f"pairs-{n:02d}", **{"combee.dev/canary": TEST}) for n in range(11)]
    metas += [meta("old", **{"combee.dev/canary": "gone"}), meta("formula-aaaa"), meta("formula-playbook")]
    versions = [{"status": {"test": {"id": TEST}}}, {"status": {}}, {}]
    found = Judged.of(metas, versions, {TEST: {"job-1"}})
    assert found.names == tuple(f"pairs-{n:02d}" for n in range(8))
    assert found.stale == ("old",) and found.more
    assert not Judged.of(metas[:3], versions, {TEST: {"job-1"}}).more


def test_what_a_configmap_says_is_read_and_what_cannot_be_counts_as_nothing() -> None:
    reading = {"first": 0, "last": 4, "at": NOW, "compared": 5}
    held = {
        "a": {"pairs.json": '{"version":1,"pairs":[["r",0,0.5,null]],"leftOut":[["r",1,400]]}'},
        "b": {"pairs.json": '{"version":1,"pairs":[]}', "reading.json": json.dumps(reading)},
        "c": {"reading.json": "[]", "pairs.json": "{"},
        "d": {},
    }

    @dataclass
    class ConfigMaps:
        async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
            return {"data": held[name]} if name in held else None

    found = Judged(dict.fromkeys(["a", "b", "c", "d", "gone"], TEST))
    brought = asyncio.run(found.read(ConfigMaps(), "team"))  # type: ignore[arg-type]
    assert brought.pairs[TEST] == (Pair("r", 0, 0.5),)
    assert brought.left_out[TEST] == (LeftOut("r", 1, 400),)
    assert brought.readings[TEST] == (Reading(0, 4, NOW, 5),)
