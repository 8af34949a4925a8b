"""A container's rollouts in the accounts: good ones remembered, bad ones counted, dead ones tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from combee.algo.budget import Limits, Spend
from combee.api.sampling import Sampling
from combee.api.tasks import CustomContainer
from combee.assembly.guard import BudgetGuard
from combee.clients.model.agents import AGENT
from combee.clients.model.chat import ChatClient, ConnectionPool, Endpoint
from combee.clients.model.limits import RunLimits
from combee.clients.model.memo import Memo
from combee.clients.model.proxy import ModelProxy
from combee.clients.store.store import Store
from combee.errors import BudgetExhaustedError, CombeeError, EndpointError, RolloutError, TransientError
from combee.records import Shown
from combee.tasks.container import ContainerTask, Ended, Fault
from combee.tasks.traces import Recording
from combee.work.asker import Asker
from combee.work.container import ContainerRunner
from combee.work.context import Accounts
from combee.work.happened import happened

GOOD = Ended(
    0,
    2.0,
    files={
        "reward.json": b'{"reward": 1}',
        "trajectory.jsonl": b'{"role": "assistant", "content": "done"}\n',
    },
)
CRASH = replace(GOOD, code=3, files={})
HANG = replace(GOOD, code=137, stopped=Fault.TIMEOUT, files={})
(EXAMPLE,) = ContainerTask().read_rows([b'{"plant": "fern"}'], "t").examples
Act = Callable[[ModelProxy], None]


class Silent:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def begin(self, stage: str, total: int) -> None: ...

    def advance(self, units: int = 1) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


@dataclass
class Scripted:
    """Ends as told, one after the other."""

    ends: list[Ended]
    act: Act | None = None
    proxy: ModelProxy | None = None
    given: list[Mapping[str, bytes]] = field(default_factory=list)
    envs: list[Mapping[str, str]] = field(default_factory=list)
    together: int = 1
    """how many run at once before the first of them ends."""
    at_once: int = 0
    most: int = 0
    met: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(
        self,
        files: Mapping[str, bytes],
        env: Mapping[str, str],
        left: Mapping[str, int],
        stop: asyncio.Future[CombeeError],
    ) -> Ended:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self.given.append(files)
        self.envs.append(env)
        if self.act is not None and self.proxy is not None:
            self.act(self.proxy)
        if self.at_once >= self.together:
            self.met.set()
        await self.met.wait()
        await asyncio.sleep(0)
        self.at_once -= 1
        return self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]


@dataclass
class Bench:
    runner: ContainerRunner
    executor: Scripted
    asker: Asker
    guard: BudgetGuard
    progress: Silent

    async def run(self, text: str = "# Playbook", ordinal: int = 0, chain: int = 0) -> Recording:
        return await self.runner.run(
            self.asker, EXAMPLE, Shown(text), stage="map", chain=chain, ordinal=ordinal
        )


def bench(
    folder: Path, *ends: Ended, act: Act | None = None, rollouts: int | None = None, attempts: int = 2
) -> Bench:
    store, guard, progress = (
        Store.open(str(folder)),
        BudgetGuard(Limits(rollouts=rollouts), lambda: 0.0),
        Silent(),
    )
    endpoint = Endpoint("http://127.0.0.1:1/v1", "m")
    client = ChatClient(
        endpoint, AGENT, Memo(store), RunLimits(1), pool=ConnectionPool(), on_call=guard.settle
    )
    proxy, executor = ModelProxy(client), Scripted(list(ends), act)
    executor.proxy = proxy
    runner = ContainerRunner(
        container=CustomContainer.model_validate({"image": "i", "attempts": attempts, "concurrency": 3}),
        endpoint=endpoint,
        sampling=Sampling(),
        executor=executor,
        proxy=proxy,
        accounts=Accounts(store, "runs/r-1", guard.settle, guard, progress, Memo(store)),
    )
    return Bench(runner, executor, Asker({}, {}), guard, progress)


def visited(proxy: ModelProxy, change: Callable[..., None]) -> None:
    (visit,) = proxy._visits.values()
    change(visit)


def tokens(proxy: ModelProxy) -> None:
    def use(visit) -> None:
        visit.prompt_tokens, visit.completion_tokens = 70, 30

    visited(proxy, use)


def test_a_good_one_is_one_call_of_the_task_model_and_remembered(tmp_path: Path) -> None:
    first, again = bench(tmp_path, GOOD, act=tokens), bench(tmp_path, HANG)
    found = asyncio.run(first.run())
    assert (found.answer, found.score) == ("done", 1.0)
    assert asyncio.run(again.run()) == found
    for one, hits in ((first, 0), (again, 1)):
        assert one.asker.rollouts() == 1
        usage = one.asker.usage()["task"]
        assert (usage.calls, usage.hits, usage.prompt_tokens, usage.completion_tokens) == (1, hits, 70, 30)
        assert one.guard.rollouts == 1
    assert again.guard.tokens == 100
    assert again.executor.given == []
    assert set(first.executor.given[0]) == {"example.json", "artifact.md"}


@pytest.mark.parametrize(("text", "ordinal"), [("# Another", 0), ("# Playbook", 1)])
def test_another_artifact_or_repeat_is_another_rollout(tmp_path: Path, text: str, ordinal: int) -> None:
    one = bench(tmp_path, GOOD)

    async def both() -> None:
        await one.run()
        await one.run(text, ordinal)

    asyncio.run(both())
    assert len(one.executor.given) == 2
    assert one.executor.envs[1]["COMBEE_ORDINAL"] == str(ordinal)


@pytest.mark.parametrize("end", [HANG, replace(GOOD, files={}), replace(GOOD, stopped=Fault.WROTE_TOO_MUCH)])
def test_what_it_did_to_its_end_is_not_tried_again_nor_remembered(tmp_path: Path, end: Ended) -> None:
    one = bench(tmp_path, end, act=tokens)
    with pytest.raises(RolloutError) as caught:
        asyncio.run(one.run())
    assert len(one.executor.given) == 1
    assert one.asker.lost.total() == 1
    assert one.asker.usage()["task"].prompt_tokens == 70
    assert one.guard.rollouts == one.asker.rollouts() == 1
    record = happened({"map": one.asker.rows}, 4)
    assert record["rolloutFaults"] == {caught.value.code: 1}
    assert record["faults"] == {}
    (note,) = one.progress.notes
    assert note.startswith(f"a rollout failed ({caught.value.code}): {caught.value.fix}; ")
    assert one.guard.held == Spend()
    assert asyncio.run(bench(tmp_path, GOOD).run()).score == 1.0


def test_one_that_died_is_tried_again_and_that_is_counted(tmp_path: Path) -> None:
    one = bench(tmp_path, CRASH, GOOD, act=tokens)
    assert asyncio.run(one.run()).score == 1.0
    assert len({env["OPENAI_API_KEY"] for env in one.executor.envs}) == 2
    assert happened({"map": one.asker.rows}, 4)["rolloutFaults"] == {"TaskCrashed": 1}
    assert one.asker.usage()["task"].prompt_tokens == 140
    dead = bench(tmp_path / "b", CRASH, attempts=3)
    with pytest.raises(RolloutError, match="exit code 3"):
        asyncio.run(dead.run())
    assert len(dead.executor.given) == 3


def test_a_lost_call_loses_the_rollout_whatever_it_left(tmp_path: Path) -> None:
    def lose(proxy: ModelProxy) -> None:
        visited(proxy, lambda visit: setattr(visit, "lost", TransientError("no answer")))

    with pytest.raises(TransientError):
        asyncio.run(bench(tmp_path, GOOD, act=lose).run())
    assert asyncio.run(bench(tmp_path, GOOD).run()).score == 1.0


def test_what_ends_the_run_is_not_the_containers_fault(tmp_path: Path) -> None:
    def end(proxy: ModelProxy) -> None:
        visited(proxy, lambda visit: visit.fatal.set_result(EndpointError("the API key is refused")))

    with pytest.raises(EndpointError):
        asyncio.run(bench(tmp_path, CRASH, act=end).run())


def test_a_spent_budget_starts_no_container(tmp_path: Path) -> None:
    one = bench(tmp_path, GOOD, rollouts=1)

    async def two() -> None:
        await one.run()
        await one.run(ordinal=1)

    with pytest.raises(BudgetExhaustedError):
        asyncio.run(two())
    assert len(one.executor.given) == 1


def test_no_more_run_at_once_than_the_manifest_says(tmp_path: Path) -> None:
    one = bench(tmp_path, GOOD)
    one.executor.together = 3

    async def many() -> None:
        await asyncio.gather(*(one.run(ordinal=n, chain=n) for n in range(12)))

    asyncio.run(many())
    assert one.executor.most == 3


def test_nothing_that_an_example_says_is_in_a_note(tmp_path: Path) -> None:
    one = bench(tmp_path, replace(CRASH, output="the customer's name is Ada"))
    with pytest.raises(RolloutError, match="Ada"):
        asyncio.run(one.run())
    (note,) = one.progress.notes
    assert "Ada" not in note
    kept = tmp_path / note.rpartition("store/")[2]
    assert "Ada" in kept.read_text()


def test_comparing_it_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    from combee.compare.run import Request, prepare_cells
    from combee.compare.strategies import parse_strategies
    from combee.errors import NotAvailableError

    example = Path(__file__).parents[3] / "examples" / "container.yaml"
    out, engines = tmp_path / "out", {"main": ["http://127.0.0.1:1/v1"]}
    request = Request([example], parse_strategies("Naive", [10]), [1], out, engines, evaluate_every=10)
    with pytest.raises(NotAvailableError, match="comparing a task in a container"):
        prepare_cells(request)
    assert not (tmp_path / "out").exists()
