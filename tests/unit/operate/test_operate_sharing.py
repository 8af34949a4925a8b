"""An engine that runs share is there exactly as long as one needs it, whoever comes, leaves or is deleted."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee import names
from combee.api.load import parse_run
from combee.api.run import PromptLearningRun
from combee.errors import ClusterError
from combee.objects.engines import engine_deployment
from combee.objects.meta import owner_reference
from combee.objects.types import Settings
from combee.observe.complaints import Complaints
from combee.observe.runs import Observer
from combee.operator.apply import Executor
from combee.operator.sharing import ChangedError
from combee.operator.watch import registry, settings
from combee.plan.cluster.decide import ClusterPlan, Run
from combee.plan.cluster.engines import EngineWish
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import Seen
from combee.plan.decide import Identity
from combee.records import Owner

Object = dict[str, Any]
NOW = 1767225700.0
SETTINGS = Settings("combee/worker:1.2.3", "vllm/vllm-openai:v1")
ENGINE = {"name": "main", "vllm": {"model": "example/tiny", "gpusPerReplica": 0}, "shared": True}


def run_with(engine: Object) -> PromptLearningRun:
    """A run with this engine."""
    data = {"train": {"uri": "s3://b/t"}, "heldOut": {"uri": "s3://b/h"}}
    models = {role: {"engineRef": {"name": "main"}} for role in ("task", "proposer")}
    spec = {"task": {"type": "Formula", "data": data}, "method": {"type": "ACE"}, "models": models}
    head = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": {"name": "formula"}}
    return parse_run({**head, "spec": {**spec, "engines": [engine]}}, "test")


RUN = run_with(ENGINE)
RUNS = [Owner(name, "team-a", f"{uid}-uid") for uid, name in enumerate(("ant", "bee", "cat"))]


class Api:
    """Keeps objects with their versions, refuses what is out of date, and collects garbage when asked."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.numbers = itertools.count(1)
        self.between: Any = None
        """what somebody else does between a reading and the next write, once."""

    def stored(self, body: Object) -> Object:
        meta = {**body["metadata"], "resourceVersion": str(next(self.numbers))}
        return {**body, "metadata": meta}

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        return json.loads(json.dumps(self.objects.get((kind, name))))

    async def list(self, kind: str, namespace: str, **_: Any) -> list[Object]:
        return []

    async def create(self, body: Object) -> Object | None:
        key = body["kind"], body["metadata"]["name"]
        if key in self.objects:
            return None
        meta = {"uid": f"u{next(self.numbers)}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        self.objects[key] = self.stored({**body, "metadata": {**body["metadata"], **meta}})
        return self.objects[key]

    async def patch(
        self, kind: str, namespace: str, name: str, body: Object, *, part: str = ""
    ) -> Object | None:
        if self.between is not None:
            between, self.between = self.between, None
            await between()
        if (old := self.objects.get((kind, name))) is None:
            return None
        if body["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise ClusterError("the object has been modified", status=409)
        self.objects[kind, name] = self.stored({**old, "metadata": {**old["metadata"], **body["metadata"]}})
        return self.objects[kind, name]

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "", version: str = "") -> bool:
        if self.between is not None:
            between, self.between = self.between, None
            await between()
        old = self.objects.get((kind, name))
        if old is None or (version and old["metadata"]["resourceVersion"] != version):
            return False
        del self.objects[kind, name]
        return True

    def collect_garbage(self, alive: set[str]) -> None:
        """Take the references of what is gone away, and what has no owner left. ``alive``: uids of runs."""
        for _ in range(2):
            there = alive | {one["metadata"]["uid"] for one in self.objects.values()}
            for key, one in list(self.objects.items()):
                owners = [ref for ref in one["metadata"]["ownerReferences"] if ref["uid"] in there]
                if not owners:
                    del self.objects[key]
                elif owners != one["metadata"]["ownerReferences"]:
                    self.objects[key] = self.stored(
                        {**one, "metadata": {**one["metadata"], "ownerReferences": owners}}
                    )

    @property
    def owners(self) -> list[str]:
        """The runs that use the engine."""
        refs = [
            one["metadata"]["ownerReferences"]
            for (kind, _), one in self.objects.items()
            if kind == "Deployment"
        ]
        return sorted(ref["name"] for ref in itertools.chain(*refs))

    def kinds(self) -> list[str]:
        return sorted(kind for kind, _ in self.objects)


async def seen_by(api: Api, owner: Owner) -> Seen:
    """What a tick of the run sees."""
    run = Run(Identity(owner.name, owner.uid[:8]), RUN.spec)
    observer = Observer(api, Complaints(api))  # type: ignore[arg-type]
    return await observer.see(run, owner, Memory(), SETTINGS, suspend=False, now=NOW)


async def tick(api: Api, owner: Owner, *, needs: bool, remove: bool = False) -> None:
    """One tick of a run that needs the engine, or does not."""
    seen = await seen_by(api, owner)
    plan = ClusterPlan(Memory(), engines={"main": EngineWish(1 if needs else 0, remove)})
    executor = Executor(api)  # type: ignore[arg-type]
    await executor.follow(plan, RUN, owner, SETTINGS, seen)


async def test_runs_that_declare_the_same_engine_own_it_together_and_none_controls_it() -> None:
    api = Api()
    for run in RUNS:
        await tick(api, run, needs=True)
        await tick(api, run, needs=True)
    assert api.kinds() == ["Deployment", "Service"] and api.owners == ["ant", "bee", "cat"]
    (deployment,) = (one for (kind, _), one in api.objects.items() if kind == "Deployment")
    assert not any(ref["controller"] for ref in deployment["metadata"]["ownerReferences"])
    engines = [(await seen_by(api, run)).engines["main"] for run in RUNS]
    assert [(one.users, one.place) for one in engines] == [(3, 0), (3, 1), (3, 2)]


async def test_the_last_run_that_leaves_takes_it_down_with_its_service() -> None:
    api = Api()
    for run in RUNS:
        await tick(api, run, needs=True)
    for number, run in enumerate(RUNS):
        await tick(api, run, needs=False, remove=number == 0)
        await tick(api, run, needs=False)
        assert "main" not in (await seen_by(api, run)).engines
        api.collect_garbage({run.uid for run in RUNS})
        assert api.owners == [one.name for one in RUNS[number + 1 :]]
    assert api.objects == {}, "no owner, no Deployment; no Deployment, no Service"


async def test_a_run_that_was_deleted_holds_nothing_up_with_the_operator_down() -> None:
    api = Api()
    await tick(api, RUNS[0], needs=True)
    await tick(api, RUNS[1], needs=True)
    api.collect_garbage({RUNS[1].uid})
    assert api.owners == ["bee"]
    assert (await seen_by(api, RUNS[1])).engines["main"].users == 1
    api.collect_garbage(set())
    assert api.objects == {}


async def test_only_an_engine_with_the_same_digest_is_joined() -> None:
    api = Api()
    await tick(api, RUNS[0], needs=True)
    for one in api.objects.values():
        one["metadata"]["labels"][names.LABEL_SHARED] = "another"
    with pytest.raises(ClusterError, match="of no shared engine of this kind"):
        await tick(api, RUNS[1], needs=True)
    assert api.owners == ["ant"]


async def test_of_two_that_write_at_once_one_looks_again() -> None:
    api = Api()
    await tick(api, RUNS[0], needs=True)
    api.between = lambda: tick(api, RUNS[1], needs=True)
    with pytest.raises(ChangedError):
        await tick(api, RUNS[2], needs=True)
    await tick(api, RUNS[2], needs=True)
    assert api.owners == ["ant", "bee", "cat"], "neither is lost"


async def test_the_last_one_does_not_delete_what_another_has_just_joined() -> None:
    api = Api()
    await tick(api, RUNS[0], needs=True)
    api.between = lambda: tick(api, RUNS[1], needs=True)
    with pytest.raises(ChangedError):
        await tick(api, RUNS[0], needs=False)
    await tick(api, RUNS[0], needs=False)
    assert api.owners == ["bee"]


async def test_an_engine_whose_service_was_not_made_is_not_ready_and_can_be_left() -> None:
    """An operator that ends between the two writes leaves a Deployment alone."""
    api = Api()
    for needs in (True, False):
        await tick(api, RUNS[0], needs=True)
        (name,) = (name for kind, name in api.objects if kind == "Service")
        del api.objects["Service", name]
        api.objects["Deployment", name]["status"] = {"readyReplicas": 1}
        engine = (await seen_by(api, RUNS[0])).engines["main"]
        assert (engine.ready, engine.reachable) == (0, False)
        await tick(api, RUNS[0], needs=needs)
        assert api.kinds() == (["Deployment", "Service"] if needs else [])
        if needs:
            engine = (await seen_by(api, RUNS[0])).engines["main"]
            assert (engine.ready, engine.reachable) == (1, True)


async def test_the_service_of_an_earlier_deployment_is_waited_out() -> None:
    api = Api()
    await tick(api, RUNS[0], needs=True)
    await tick(api, RUNS[0], needs=False)
    assert api.kinds() == ["Service"]
    with pytest.raises(ChangedError):
        await tick(api, RUNS[1], needs=True)
    api.collect_garbage({RUNS[1].uid})
    await tick(api, RUNS[1], needs=True)
    assert "main" in (await seen_by(api, RUNS[1])).engines


@pytest.mark.parametrize(
    ("meta", "error"),
    [
        ({}, "Service team-a/.*Delete or rename it"),
        ({"ownerReferences": [{"kind": "Gateway", "name": "x", "uid": "1"}]}, "a Service of this name"),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "came or left"),
    ],
)
async def test_a_service_of_somebody_else_is_named_and_not_waited_for(meta: Object, error: str) -> None:
    api = Api()
    await tick(api, RUNS[0], needs=True)
    ((key, service),) = ((key, one) for key, one in api.objects.items() if key[0] == "Service")
    api.objects[key] = {**service, "metadata": {"name": key[1], "namespace": "team-a", **meta}}
    with pytest.raises(ClusterError, match=error) as caught:
        await tick(api, RUNS[1], needs=True)
    assert isinstance(caught.value, ChangedError) == ("deletionTimestamp" in meta)


DEEDS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(("needs", "leaves", "deleted"))), max_size=12)


@given(deeds=DEEDS)
async def test_it_is_there_exactly_while_a_run_that_exists_needs_it(deeds: list[tuple[int, str]]) -> None:
    api, alive, needing = Api(), {run.uid for run in RUNS}, set[str]()
    for number, deed in deeds:
        run = RUNS[number]
        if run.uid not in alive:
            continue
        if deed == "deleted":
            alive.discard(run.uid)
            needing.discard(run.name)
        else:
            await tick(api, run, needs=deed == "needs")
            needing = needing | {run.name} if deed == "needs" else needing - {run.name}
        api.collect_garbage(alive)
        assert api.owners == sorted(needing)
        assert api.kinds() == (["Deployment", "Service"] if needing else [])


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"hardware": "one CPU"}, True),
        ({"idleTimeoutSeconds": 60}, True),
        ({"vllm": {"model": "example/tiny", "gpusPerReplica": 0, "replicas": 1}}, True),
        ({"vllm": {"model": "example/tiny", "gpusPerReplica": 0, "replicas": 2}}, False),
        ({"vllm": {"model": "example/tiny", "gpusPerReplica": 0, "args": ["--seed=1"]}}, False),
        ({"template": {"spec": {"nodeSelector": {"pool": "gpu"}}}}, False),
    ],
)
def test_what_makes_two_entries_the_same(changes: Object, same: bool) -> None:
    other = run_with({**ENGINE, **changes})
    first, second = (
        engine_deployment(run, owner, 0, SETTINGS)["metadata"]["name"]
        for run, owner in ((RUN, RUNS[0]), (other, RUNS[1]))
    )
    assert (first == second) is same


def test_the_events_of_an_engine_wake_all_runs_that_use_it() -> None:
    woken: list[tuple[str, str]] = []
    handlers = registry(woken.append, lambda playbook: None, lambda namespace: None, children=())
    (told,) = (one.fn for one in handlers._watching._handlers if one.fn.__name__ == "engine_changed")
    owners = [owner_reference(run, controller=False) for run in RUNS[:2]]
    gateway = {"apiVersion": "v1", "kind": "Other", "name": "x", "uid": "1"}
    told(namespace="team-a", meta={"ownerReferences": [*owners, gateway]})
    told(namespace="team-a", meta={})
    assert woken == [("team-a", "ant"), ("team-a", "bee")]
    chosen = settings().watching.label_selectors["apps", "v1", "deployments"]
    for run in (RUN, run_with({**ENGINE, "shared": None})):
        labels = engine_deployment(run, RUNS[0], 0, SETTINGS)["metadata"]["labels"]
        assert all(
            f"{name}={value}" in [f"{n}={v}" for n, v in labels.items()]
            for name, value in (part.split("=") for part in chosen.split(","))
        )
