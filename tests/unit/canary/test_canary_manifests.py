"""The Job that judges a canary, whole, and what it may see."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from combee.api.playbook import PlaybookSpec
from combee.api.playbook_status import TrafficComparison
from combee.objects.judge import MADE_OF, judge_job
from combee.objects.types import Object, Settings
from combee.plan.playbook.judges import SLOT_SECONDS, JudgeWish, VersionContent
from combee.plan.playbook.judging import JudgeTask
from combee.records import Owner

sys.path.insert(0, str(Path(__file__).parents[1] / "objects"))
from pod_security import violations

GOLDEN = Path(__file__).parent / "golden"
SETTINGS = Settings(worker_image="combee/worker:1", image_pull_secrets=("registry",))
OWNER = Owner("formula", "team-a", "3fa9c1d2-6d1e-4c0e-9a51-7b2f0c9d8e11")
TESTED, AGAINST = "b" * 64, "a" * 64
NOW = 1_800_000_007.0
KEYED = {
    "url": "https://llm.example.com/v1",
    "model": "judge",
    "apiKeySecretRef": {"name": "judge", "key": "token"},
}
UPSTREAM = {"url": "https://llm.example.com/v1", "apiKeySecretRef": {"name": "llm", "key": "token"}}
S3 = {"uri": "s3://traffic/here", "secretRef": {"name": "s3"}}
SPECS: dict[str, dict[str, Any]] = {
    "shadow": {
        "canary": {"mode": "Shadow", "evaluator": KEYED},
        "delivery": {
            "gateway": {"enabled": True, "upstream": UPSTREAM, "keys": {"secretRef": {"name": "clients"}}}
        },
    },
    "replay": {
        "canary": {
            "mode": "Replay",
            "evaluator": KEYED,
            "replay": {"requests": {"uri": "s3://data/requests.jsonl", "secretRef": {"name": "requests"}}},
        },
        "delivery": {"gateway": {"upstream": UPSTREAM, "capture": {"store": S3}}},
    },
    "claim": {
        "canary": {
            "mode": "Replay",
            "evaluator": {"url": "http://judge/v1", "model": "judge"},
            "replay": {"requests": {"pvc": {"claimName": "combee-store", "path": "in/requests.jsonl"}}},
        },
        "delivery": {"gateway": {"upstream": {"url": "http://llm/v1"}}},
    },
    "config": {
        "canary": {
            "mode": "Replay",
            "evaluator": {"url": "http://judge/v1", "model": "judge"},
            "replay": {"requests": {"configMap": {"name": "asked", "key": "requests.jsonl"}}},
        },
        "delivery": {"gateway": {"upstream": {"url": "http://llm/v1"}}},
    },
    "prometheus": {
        "canary": {
            "mode": "Prometheus",
            "evaluator": KEYED,
            "prometheus": {
                "url": "https://prometheus.example.com",
                "tokenSecretRef": {"name": "prometheus", "key": "token"},
                "score": {"query": 'answers:good:ratio1m{version="$(version)"}', "unit": "Ratio"},
            },
        },
        "delivery": {
            "gateway": {"enabled": True, "upstream": UPSTREAM, "capture": {"store": S3}},
        },
    },
}


def wish(way: str) -> JudgeWish:
    spec = PlaybookSpec.model_validate(SPECS[way])
    assert spec.canary is not None
    comparison = TrafficComparison(
        id="bbbb-aaaa-12345678-p0", kind="Promotion", mode=spec.canary.mode, against=AGAINST
    )
    return JudgeWish(
        owner=OWNER,
        canary=spec.canary,
        gateway=spec.delivery.gateway,
        comparison=comparison,
        digest=TESTED,
        contents={
            TESTED: VersionContent("formula-bbbbbbbbbbbb", {"prompt.md": "1" * 64}),
            AGAINST: VersionContent("formula-aaaaaaaaaaaa"),
        },
        done={"replay": ((0, 41), (43, 50))},
        pairs=50,
        begins=1_800_000_000,
        first=7,
    )


MADE = {way: judge_job(wish(way), NOW, SETTINGS) for way in SPECS}


def pod(way: str) -> Object:
    made: Object = MADE[way]["spec"]["template"]["spec"]
    return made


def mounted(way: str) -> set[str]:
    return {mount["mountPath"] for mount in pod(way)["containers"][0]["volumeMounts"]}


@pytest.mark.parametrize("way", SPECS)
def test_a_job_is_as_reviewed(way: str, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / f"{way}.yaml"
    made = yaml.safe_dump(copy.deepcopy(MADE[way]), sort_keys=False, width=110)
    if request.config.getoption("--update-golden", default=False):
        path.parent.mkdir(exist_ok=True)
        path.write_text(made, encoding="utf-8")
    assert made == path.read_text(encoding="utf-8"), "review with --update-golden and git diff"


@pytest.mark.parametrize("way", SPECS)
def test_pods_are_restricted_and_end(way: str) -> None:
    assert list(violations(MADE[way]["spec"]["template"])) == []
    spec = MADE[way]["spec"]
    assert spec["activeDeadlineSeconds"] > 0 and spec["ttlSecondsAfterFinished"] > 0
    assert "podFailurePolicy" not in spec and pod(way)["containers"][0]["resources"]["limits"]


def test_each_mode_sees_what_it_needs_and_no_more() -> None:
    secrets = "/etc/combee/secrets"
    assert mounted("shadow") == {"/tmp", "/store", f"{secrets}/evaluator"}
    playbooks = {"/etc/combee/playbooks/tested", "/etc/combee/playbooks/against"}
    uses = {f"{secrets}/{use}" for use in ("evaluator", "store", "upstream", "requests")}
    assert mounted("replay") == {"/tmp", *playbooks, *uses}
    assert mounted("claim") == {"/tmp", "/store", "/data/requests", *playbooks}
    assert mounted("config") == {"/tmp", "/store", "/data/requests", *playbooks}
    assert mounted("prometheus") == {"/tmp", f"{secrets}/prometheus"}
    for way in SPECS:
        assert "clients" not in json.dumps(MADE[way]), "the gateway's keys are not its business"
        names = [volume["name"] for volume in pod(way)["volumes"]]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("way", SPECS)
def test_the_pod_reads_what_it_is_told(way: str) -> None:
    (told,) = (one["value"] for one in pod(way)["containers"][0]["env"] if one["name"] == "COMBEE_JUDGE")
    task = JudgeTask.model_validate_json(told.replace("$$", "$"))
    assert task == wish(way).task()
    if way == "prometheus":
        assert task.prometheus is not None and task.prometheus.score.query.endswith('"$(version)"}')
        assert (task.begins, task.first, task.evaluator) == (1_800_000_000, 7, None)
        return
    assert task.has("replay", 41) and not task.has("replay", 42) and not task.has("other", 1)
    assert (task.upstream is None) == (way == "shadow")


def test_a_name_is_one_for_a_stretch_of_time_and_what_is_done_changes_nothing_else() -> None:
    one = wish("shadow")
    name = MADE["shadow"]["metadata"]["name"]
    assert judge_job(one, NOW + SLOT_SECONDS - 8, SETTINGS)["metadata"]["name"] == name
    assert judge_job(one, NOW + SLOT_SECONDS, SETTINGS)["metadata"]["name"] != name
    assert len(name) <= 63
    other = replace(one, owner=Owner("x" * 63, "team-a", "u"))
    assert len(judge_job(other, NOW, SETTINGS)["metadata"]["name"]) <= 63 - len("-xxxxx")
    assert replace(one, done={}, pairs=7).made_of() == MADE["shadow"]["metadata"]["annotations"][MADE_OF]
    mended = one.canary.model_copy(update={"evaluator": wish("claim").canary.evaluator})
    assert replace(one, canary=mended).made_of() != one.made_of()
