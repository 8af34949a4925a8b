"""What a call costs, keeps and records, against a real server that behaves."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from adapters_bench import KEY, LATE, Bench, answer, ask, refuse, reply, slow
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from combee.algo.budget import Limits, Spend
from combee.api.sampling import Sampling
from combee.assembly.guard import BudgetGuard
from combee.clients.model.chat import ChatClient, ConnectionPool, Endpoint
from combee.clients.model.limits import RunLimits
from combee.clients.model.memo import Memo
from combee.clients.model.underway import Call
from combee.clients.store.store import Store
from combee.errors import BudgetExhaustedError, BugError, EndpointError, ManifestError, TransientError
from noted_budget import NotedBudget
from waiting import until


async def test_an_answer_carries_text_tokens_and_latency(bench: Bench) -> None:
    sampling = Sampling(temperature=0.7, topP=0.9)
    answered = await bench.client().ask(ask("hello", ordinal=3, sampling=sampling))
    assert (answered.hit, answered.completion.text, answered.completion.finish_reason) == (
        False,
        "hello",
        "stop",
    )
    done = answered.completion
    assert (done.prompt_tokens, done.completion_tokens, done.cached_tokens, done.attempts) == (11, 7, 5, 1)
    assert done.latency_seconds > 0
    (sent,) = bench.server.asked
    assert (sent["model"], sent["seed"], sent["temperature"], sent["top_p"]) == ("m", 3, 0.7, 0.9)
    assert sent["max_tokens"] == 1024 and "response_format" not in sent
    assert bench.server.authorization == [f"Bearer {KEY}"]


async def test_a_schema_is_sent_as_response_format(bench: Bench) -> None:
    await bench.client().ask(ask(schema=True))
    wanted = bench.server.asked[0]["response_format"]
    assert wanted["type"] == "json_schema" and wanted["json_schema"]["name"] == "answer"


async def test_a_hit_costs_no_request_and_gives_what_was_recorded(bench: Bench) -> None:
    first = await bench.client().ask(ask())
    again = await bench.client(memo=Memo(bench.store)).ask(ask())
    assert again.hit and again.completion == first.completion
    assert len(bench.server.asked) == 1
    hit = bench.calls[1]
    assert (hit.hit, hit.seconds, hit.prompt_tokens) == (True, first.completion.latency_seconds, 11)
    assert (hit.attempts, hit.queued_seconds) == (0, 0.0)


async def test_repeats_are_calls_of_their_own(bench: Bench) -> None:
    client = bench.client()
    for ordinal in (0, 1, 0):
        await client.ask(ask(ordinal=ordinal))
    assert [sent["seed"] for sent in bench.server.asked] == [0, 1]


async def test_equal_requests_at_once_make_one_call(bench: Bench) -> None:
    bench.server.always = slow(0.05)
    client = bench.client()
    answers = await asyncio.gather(*(client.ask(ask()) for _ in range(20)))
    assert len(bench.server.asked) == 1
    assert sorted(a.hit for a in answers) == [False] + [True] * 19


async def test_the_record_tells_queue_from_latency(bench: Bench) -> None:
    bench.server.always = slow(0.02)
    client = bench.client(limits=RunLimits(1), role="proposer")
    await asyncio.gather(client.ask(ask("a")), client.ask(ask("b")))
    first, second = sorted(bench.calls, key=lambda call: call.started)
    assert first.role == second.role == "proposer"
    assert second.queued_seconds > first.queued_seconds
    assert second.started >= first.started + first.seconds


async def test_concurrency_is_never_exceeded(bench: Bench) -> None:
    together = asyncio.Event()

    async def meet(_: Request, body: dict[str, Any]) -> Response:
        """Answer once three have been there at a time, however far apart they come."""
        if bench.server.most_in_flight >= 3:
            together.set()
        async with asyncio.timeout(60):
            await together.wait()
        return JSONResponse(answer(body["messages"][-1]["content"]))

    bench.server.always = meet
    limits = RunLimits(3)
    task, proposer = bench.client(limits=limits), bench.client("proposer", limits=limits)
    asks = [(task if i % 2 else proposer).ask(ask(str(i))) for i in range(30)]
    await asyncio.gather(*asks)
    assert bench.server.most_in_flight == 3
    assert limits.in_flight == 0


async def test_there_are_never_more_sockets_than_calls_in_flight(bench: Bench) -> None:
    from combee.clients.model.lanes import LaneTransport

    client = bench.client(limits=RunLimits(3))
    await asyncio.gather(*(client.ask(ask(str(i))) for i in range(30)))
    bench.server.script = [slow(LATE)] * 3
    tasks = [asyncio.create_task(client.ask(ask(f"cancelled {i}"))) for i in range(3)]
    await until(lambda: len(bench.server.asked) == 33)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*(client.ask(ask(f"later {i}")) for i in range(30)))
    transport = client._connection._client._transport
    assert isinstance(transport, LaneTransport)
    assert len(transport._lanes) == len(transport._idle["http"]) == 3


async def test_a_connection_that_idled_is_not_trusted_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server hangs up on idle connections, and a request that crosses the goodbye is lost."""
    monkeypatch.setattr("combee.clients.model.lanes.IDLE_SECONDS", 600.0)
    client = bench.client()
    ports: list[object] = []

    async def note(request: Request, body: dict[str, Any]) -> Response:
        assert request.client is not None
        ports.append(request.client.port)
        return JSONResponse(answer("well"))

    bench.server.always = note
    await client.ask(ask("first"))
    await client.ask(ask("at once"))
    monkeypatch.setattr("combee.clients.model.lanes.IDLE_SECONDS", 0.05)
    later = bench.client()
    await later.ask(ask("of another client"))
    await asyncio.sleep(0.2)
    await later.ask(ask("after a while"))
    assert ports[0] == ports[1]
    assert ports[2] != ports[3]


async def test_an_endless_body_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("combee.clients.model.lanes.MAX_BODY_BYTES", 1000)
    bench.server.script = [reply("x" * 2000)]
    assert (await bench.client().ask(ask())).completion.attempts == 2


async def test_the_budget_is_asked_before_each_request_and_lets_hits_pass_while_it_lasts(
    bench: Bench,
) -> None:
    budget = NotedBudget()
    task, proposer = bench.client(budget=budget), bench.client("proposer", budget=budget)
    await task.ask(ask("a"))
    await task.ask(ask("a"))
    await proposer.ask(ask("b"))
    assert [(role, again) for role, _, _, again in budget.asked] == [("task", False), ("proposer", False)]
    assert all(tokens >= 1024 for _, _, tokens, _ in budget.asked)
    assert (budget.recalled, budget.held) == (["task"], 0)


async def test_a_retry_is_a_request_and_what_a_server_refused_holds_nothing(bench: Bench) -> None:
    budget = NotedBudget()
    bench.server.script = [refuse(429), refuse(500), reply("no JSON")]
    done = (await bench.client(budget=budget).ask(ask())).completion
    assert [again for _, _, _, again in budget.asked] == [False, False, False, True]
    assert budget.held == 0, "all is given back once the call is over"
    assert done.lost_tokens == done.tokens, "what could not be read was worked on"
    assert bench.calls[-1].lost_tokens == done.tokens


async def test_a_call_that_fails_for_good_is_charged_once_what_its_requests_may_have_used(
    bench: Bench,
) -> None:
    budget, lost = NotedBudget(), list[int]()
    bench.server.script = [refuse(500), *[reply("no JSON")] * 5]
    client, request = bench.client(budget=budget), ask()
    asks = (client.ask(request, lost.append) for _ in range(3))
    failed = await asyncio.gather(*asks, return_exceptions=True)
    assert [type(error) for error in failed] == [TransientError] * 3
    ((_, prompt, output, _), *_) = budget.asked
    assert lost == [5 * (prompt + output)], "all but the one that was refused, and nobody else's"
    assert budget.held == 0 and sorted(call.lost_tokens for call in bench.calls) == [0, 0, *lost]
    assert [call.sent for call in bench.calls if call.lost_tokens] == [True]
    assert sum(call.sent for call in bench.calls) == 1


async def test_a_call_that_no_server_worked_on_costs_nothing(bench: Bench) -> None:
    lost: list[int] = []
    bench.server.script = [refuse(500)] * 6
    with pytest.raises(TransientError):
        await bench.client().ask(ask(), lost.append)
    assert (lost, bench.calls[-1].lost_tokens, bench.calls[-1].sent) == ([], 0, False)


async def test_a_bug_in_a_call_leaves_nothing_held(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    budget, limits = NotedBudget(), RunLimits(1)
    client = bench.client(budget=budget, limits=limits)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(client._connection, "weigh_schema", broken)
    with pytest.raises(ZeroDivisionError):
        await client.ask(ask())
    assert (len(budget.asked), budget.held, limits.in_flight) == (1, 0, 0)
    assert [call.error for call in bench.calls] == [BugError.code]


def test_a_request_that_was_refused_leaves_the_rollout_with_its_rival() -> None:
    guard = BudgetGuard(Limits(rollouts=1), lambda: 0.0)
    call = Call(started=0.0)
    first, rival = (guard.hold("task", 10, 10, again=again) for again in (False, True))
    call.sent(first)
    call.sent(rival)
    call.refused(first)
    with pytest.raises(BudgetExhaustedError):
        guard.hold("task", 10, 10)
    call.over()
    assert guard.held == Spend()


async def test_a_wall_that_is_reached_while_a_call_is_tried_again_ends_it(bench: Bench) -> None:
    class Once(NotedBudget):
        def hold(self, *words: Any, **more: Any) -> NotedBudget:
            self.refuses = len(self.asked) == 1
            return super().hold(*words, **more)

    budget, bench.server.script = Once(), [refuse(500)]
    with pytest.raises(BudgetExhaustedError):
        await bench.client(budget=budget).ask(ask())
    assert len(bench.server.asked) == 1 and budget.held == 0


async def test_a_spent_budget_stops_the_call_before_the_request(bench: Bench) -> None:
    limits = RunLimits(1)
    client = bench.client(budget=NotedBudget(refuses=True), limits=limits)
    with pytest.raises(BudgetExhaustedError):
        await client.ask(ask())
    assert bench.server.asked == [] and limits.in_flight == 0
    assert bench.calls[0].error == "BudgetExhausted"
    await bench.client(limits=limits).ask(ask())  # nothing was cached


async def test_cancellation_leaves_nothing_stuck(bench: Bench) -> None:
    bench.server.always = slow(LATE)
    limits = RunLimits(2)
    client = bench.client(limits=limits)
    tasks = [asyncio.create_task(client.ask(ask(str(i)))) for i in range(6)]
    await until(lambda: len(bench.server.asked) == 2)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert limits.in_flight == 0 and not bench.memo._flights
    assert [call.error for call in bench.calls] == ["Cancelled"] * 6
    bench.server.always = None
    assert (await client.ask(ask("0"))).completion.text == "0"


async def test_when_the_caller_is_cancelled_a_waiting_one_takes_over(bench: Bench) -> None:
    bench.server.script = [slow(LATE)]
    client = bench.client()
    leader = asyncio.create_task(client.ask(ask()))
    await until(lambda: len(bench.server.asked) == 1)
    follower = asyncio.create_task(client.ask(ask()))
    await asyncio.sleep(0)
    leader.cancel()
    assert (await follower).hit is False
    assert len(bench.server.asked) == 2


async def test_nothing_is_kept_per_call(bench: Bench) -> None:
    import gc
    import sys
    from itertools import pairwise

    client = ChatClient(bench.endpoint(), "task", bench.memo, RunLimits(8))
    bench.clients.append(client)

    async def blocks_after(window: int) -> int:
        """Blocks of memory that are in use after 200 more calls; each object takes one, at least."""
        for start in range(0, 200, 50):
            await asyncio.gather(*(client.ask(ask(f"{window} {start + i}")) for i in range(50)))
        bench.server.asked.clear()
        bench.server.headers.clear()
        bench.server.authorization.clear()
        gc.collect()
        return sys.getallocatedblocks()

    blocks = [await blocks_after(window) for window in range(3)]
    # Some windows hold the interpreter's own growth: its caches and its table of interned names.
    kept = min(after - before for before, after in pairwise(blocks))
    assert kept < 120, f"{kept / 200:.1f} objects are kept per call"


async def test_the_key_is_nowhere_to_be_read(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("httpx2", "httpcore2", "openai", "asyncio", "combee"):
        caplog.set_level(logging.DEBUG, logger=name)
    bench.server.script = [
        refuse(503, f"try later {KEY}"),
        reply(answer()),
        refuse(401, f"Incorrect API key provided: {KEY}"),
        refuse(400, f"bad header {KEY} in the request"),
    ]
    client = bench.client()
    await client.ask(ask("the secret prompt of the customer"))
    texts = [repr(client.endpoint), str(client.endpoint), repr(client.__dict__), repr(bench.calls)]
    for _ in range(2):
        with pytest.raises(EndpointError) as caught:
            await client.ask(ask("another secret prompt of the customer"))
        error: BaseException | None = caught.value
        while error is not None:
            texts += [repr(error), str(error)]
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    texts += [record.getMessage() + repr(record.args) for record in caplog.records]
    assert len(caplog.records) > 10
    for text in texts:
        assert KEY not in text
        assert "secret prompt" not in text


async def test_without_a_key_no_authorization_is_sent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-from-the-environment")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer ambient")
    await bench.client(endpoint=bench.endpoint(api_key=SecretStr(""))).ask(ask())
    assert bench.server.authorization == [None]
    assert not any("environment" in value for value in bench.server.headers[0].values())


async def test_roles_share_the_connections_of_a_pool(bench: Bench) -> None:
    pool = ConnectionPool()
    task, proposer = bench.client(pool=pool), bench.client("proposer", pool=pool)
    assert task._connection is proposer._connection
    await task.ask(ask("a"))
    await task.aclose()  # the pool is not the client's own
    await proposer.ask(ask("b"))
    await pool.aclose()


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "n"},
        {"revision": "r2"},
        {"engine_args": ("--max-model-len=65536",)},
    ],
    ids=str,
)
async def test_what_answers_is_part_of_the_key(bench: Bench, changed: dict[str, Any]) -> None:
    await bench.client().ask(ask())
    assert not (await bench.client(endpoint=bench.endpoint(**changed)).ask(ask())).hit


async def test_the_url_and_the_role_are_not_part_of_the_key(bench: Bench) -> None:
    await bench.client().ask(ask())
    elsewhere = bench.endpoint(url="http://127.0.0.1:9/v1")
    assert (await bench.client("evaluator", endpoint=elsewhere).ask(ask())).hit


@pytest.mark.parametrize("url", ["host/v1", "ftp://host", "https://u:p@host/v1", "https://host/v1?key=1", ""])
def test_a_url_that_cannot_be_one_is_refused(url: str) -> None:
    with pytest.raises(ManifestError):
        Endpoint(url, "m")


async def test_a_store_that_is_full_or_read_only_is_the_users_error(bench: Bench, tmp_path: Path) -> None:
    from combee.errors import StoreError

    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "memo").write_text("a file in the way")
    blocked = Store.open(str(tmp_path / "blocked"))
    with pytest.raises(StoreError, match="a file is in the way"):
        await bench.client(memo=Memo(blocked)).ask(ask())
    blocked.close()
