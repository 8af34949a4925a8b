"""What keeps the pods of a user's image apart is there before the first of them."""

from __future__ import annotations

from typing import Any

import pytest
from playbook_cluster import FakeKube, Object

from combee.api.load import parse_run
from combee.objects.accounts import DESKS, ROLLOUTS, isolation
from combee.objects.types import Settings
from combee.operator.apply import Executor
from combee.plan.cluster.decide import ClusterPlan
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.rollouts import RolloutsWish
from combee.plan.cluster.seen import RolloutsSeen, Seen
from combee.records import Owner

ENDPOINT = {"endpoint": {"url": "http://models.example.com/v1", "model": "m"}}
RUN = parse_run(
    {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": "garden"},
        "spec": {
            "task": {
                "type": "Custom",
                "custom": {"container": {"image": "garden:1", "command": ["care"]}},
                "data": {"train": {"uri": "t.jsonl"}, "heldOut": {"uri": "h.jsonl"}},
            },
            "method": {"type": "ACE"},
            "models": {"task": ENDPOINT, "proposer": ENDPOINT},
        },
    },
    "test",
)
OWNER = Owner("garden", "team", "3fa9c1d2-6d1e-4c0e-9a51-7b2f0c9d8e11")


class Server(FakeKube):
    """Gives each Service an address, and notes in which order objects were made."""

    async def create(self, body: Object) -> Object | None:
        address = {"spec": {**body.get("spec", {}), "clusterIP": "10.96.7.7"}}
        made = await super().create({**body, **address} if body["kind"] == "Service" else body)
        if made is not None:
            order.append((body["kind"], body["metadata"]["name"]))
        return made


order: list[tuple[str, str]] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    order.clear()


async def follow(kube: Server, *attempts: int, **more: Any) -> None:
    seen = Seen(now=0.0, rollouts=more.pop("rollouts", {}), pool=more.pop("seen_pool", False))
    plan = ClusterPlan(memory=Memory(), rollouts=RolloutsWish(attempts, **more))
    executor = Executor(kube)  # type: ignore[arg-type]
    await executor.follow(plan, RUN, OWNER, Settings(worker_image="worker:1"), seen)


async def test_both_policies_come_before_the_first_pod_of_the_users_image() -> None:
    await follow(Server(), 0)
    assert order[:2] == [("NetworkPolicy", ROLLOUTS), ("NetworkPolicy", DESKS)]
    assert [kind for kind, _ in order[2:]] == ["Service", "Job"]


async def test_a_warm_pool_comes_after_them_and_before_its_claims_and_all_go_together() -> None:
    kube = Server()
    await follow(kube, 0, 1, kind="SandboxClaim", pool=True)
    pool = ["Service", "SandboxTemplate", "SandboxWarmPool"]
    assert [kind for kind, _ in order] == ["NetworkPolicy"] * 2 + pool + ["SandboxClaim"] * 2
    (first, second) = sorted(kube.of("SandboxClaim"))
    order.clear()
    there = {first: RolloutsSeen(first, 0, "SandboxClaim"), second: RolloutsSeen(second, 1, "SandboxClaim")}
    warm: dict[str, Any] = {"kind": "SandboxClaim", "pool": True, "rollouts": there, "seen_pool": True}
    await follow(kube, 1, 2, delete=(first,), **warm)
    assert [kind for kind, _ in order] == ["SandboxClaim"]
    assert sorted(kube.of("SandboxClaim")) == [second, first.removesuffix("c0") + "c2"]
    await follow(kube, delete=(second,), remove=True, rollouts=there, seen_pool=True)
    assert [len(kube.of(kind)) for kind in pool] == [0, 0, 0]


async def test_a_run_without_rollouts_makes_none() -> None:
    await follow(Server())
    assert order == []


async def test_a_policy_that_is_there_stays_as_it_is() -> None:
    theirs: dict[str, Any] = {**isolation("team")[0], "spec": {"podSelector": {}}}
    kube = Server()
    await kube.create(theirs)
    await follow(kube, 0)
    assert kube.of("NetworkPolicy")[ROLLOUTS]["spec"] == {"podSelector": {}}
    assert [kind for kind, _ in order] == ["NetworkPolicy", "NetworkPolicy", "Service", "Job"]
