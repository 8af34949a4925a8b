"""Keys of a Secret, and tokens that the API server judges."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from combee.clients.kubernetes.kube import Answer
from combee.errors import ClusterError
from combee.gateway.keys import (
    KNOWN_SECONDS,
    MOST_AT_ONCE,
    MOST_KNOWN,
    MOST_WAITING,
    REFUSED_SECONDS,
    Reviewed,
    SecretKeys,
    bearer,
)
from waiting import until

GOOD = {
    "authenticated": True,
    "audiences": ["combee-gateway"],
    "user": {"username": "system:serviceaccount:team-a:app"},
}


class Api:
    """Judges as it is told; says how often it was asked."""

    def __init__(self, status: dict[str, Any]) -> None:
        self.status, self.asked = status, 0

    async def request(self, method: str, path: str, *, body: Any = None) -> Answer:
        self.asked += 1
        assert (method, path) == ("POST", "/apis/authentication.k8s.io/v1/tokenreviews")
        assert body["spec"]["audiences"] == ["combee-gateway"]
        return Answer(201, {"status": self.status})


def reviewed(api: Any, *accounts: str, clock: Any = lambda: 0.0) -> Reviewed:
    return Reviewed(api, ("combee-gateway",), frozenset(accounts), "team-a", clock)


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer sk-1", "sk-1"),
        ("bearer  sk-1 ", "sk-1"),
        ("Basic sk-1", ""),
        ("Bearer", ""),
        ("", ""),
        ("sk-1", ""),
    ],
)
def test_bearer(header: str, token: str) -> None:
    assert bearer(header) == token


async def test_each_value_of_the_secret_is_a_key_and_nothing_else_is() -> None:
    check = SecretKeys(["one", "two", ""])
    assert [bool(await check(key)) for key in ("one", "two", "", "three", "on", "onex")] == [True, True] + [
        False
    ] * 4
    assert not await SecretKeys([])("")


@pytest.mark.parametrize(
    ("status", "accounts", "fits"),
    [
        (GOOD, (), True),
        (GOOD, ("team-a/app",), True),
        (GOOD, ("team-a/other",), False),
        ({**GOOD, "authenticated": False}, (), False),
        ({**GOOD, "audiences": ["https://kubernetes.default.svc"]}, (), False),
        ({**GOOD, "audiences": None}, (), False),
        ({**GOOD, "user": {"username": "system:serviceaccount:team-b:app"}}, (), False),
        ({**GOOD, "user": {"username": "system:serviceaccount:team-b:app"}}, ("team-b/app",), True),
        ({**GOOD, "user": {"username": "jane"}}, (), False),
        ({**GOOD, "user": {"username": "xsystem:serviceaccount:team-a:app"}}, (), False),
        ({}, (), False),
    ],
)
async def test_who_is_let_in(status: dict[str, Any], accounts: tuple[str, ...], fits: bool) -> None:
    account = str(status.get("user", {}).get("username", "")).removeprefix("system:serviceaccount:")
    assert await reviewed(Api(status), *accounts)("a.b.c") == (account.replace(":", "/") if fits else "")


@pytest.mark.parametrize(("status", "seconds"), [(GOOD, KNOWN_SECONDS), ({}, REFUSED_SECONDS)])
async def test_a_verdict_is_remembered_for_a_while(status: dict[str, Any], seconds: float) -> None:
    now, api = 0.0, Api(status)
    check = reviewed(api, clock=lambda: now)
    for second in (0.0, seconds - 1, seconds + 1):
        now = second
        await check("a.b.c")
    assert api.asked == 2
    await check("a.b.d")
    assert api.asked == 3


async def test_memory_of_tokens_is_bounded() -> None:
    check = reviewed(Api({}))
    for number in range(MOST_KNOWN + 5):
        await check(f"a.b.{number}")
    assert len(check._known[False]) == MOST_KNOWN


async def test_strangers_push_nobody_out_that_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("combee.gateway.keys.MOST_KNOWN", 3)
    api = Api(GOOD)
    check = reviewed(api)
    assert await check("a.good.token")
    api.status = {}
    for number in range(10):
        assert not await check(f"a.b.{number}")
    assert await check("a.good.token") and api.asked == 11


async def test_what_cannot_be_a_service_accounts_token_is_not_asked_about() -> None:
    api = Api(GOOD)
    assert not await reviewed(api)("sk-guess") and api.asked == 0


async def test_one_question_at_a_time_about_one_token_and_few_at_once() -> None:
    class Held(Api):
        """Answers once it is let go."""

        now = most = 0
        go = asyncio.Event()

        async def request(self, method: str, path: str, *, body: Any = None) -> Answer:
            self.now += 1
            self.most = max(self.most, self.now)
            await self.go.wait()
            self.now -= 1
            return await super().request(method, path, body=body)

    api = Held(GOOD)
    check = reviewed(api)
    asking = [asyncio.create_task(check("a.b.c")) for _ in range(20)]
    await until(lambda: api.now >= 1)
    api.go.set()
    assert all(await asyncio.gather(*asking)) and api.asked == 1
    api.go.clear()
    asking = [asyncio.create_task(check(f"a.b.{number}")) for number in range(50)]
    await until(lambda: api.now >= MOST_AT_ONCE)
    api.go.set()
    await asyncio.gather(*asking)
    assert api.most == MOST_AT_ONCE and api.asked == 51


async def test_strangers_tokens_hold_up_no_token_that_is_known() -> None:
    class Held(Api):
        """Answers once it is let go."""

        go = asyncio.Event()

        async def request(self, method: str, path: str, *, body: Any = None) -> Answer:
            await self.go.wait()
            return await super().request(method, path, body=body)

    now, api = 0.0, Held(GOOD)
    check = reviewed(api, clock=lambda: now)
    api.go.set()
    assert await check("a.good.token")
    now, api.status = KNOWN_SECONDS - 1, {}
    api.go.clear()
    strangers = [asyncio.create_task(check(f"a.b.{number}")) for number in range(MOST_WAITING - 1)]
    await until(lambda: len(check._reviews) == MOST_WAITING - 1)
    assert await check("a.good.token") and len(check._reviews) == MOST_WAITING
    with pytest.raises(ClusterError):
        await check("a.b.last")
    assert await check("a.good.token")
    api.go.set()
    assert not any(await asyncio.gather(*strangers))
    await until(lambda: not check._reviews)
    assert not await check("a.good.token"), "what was accepted is looked at again"


async def test_a_question_without_answer_is_no_verdict() -> None:
    class Down:
        async def request(self, method: str, path: str, *, body: Any = None) -> Answer:
            raise ClusterError("the Kubernetes API does not answer")

    check = reviewed(Down())
    with pytest.raises(ClusterError):
        await check("a.b.c")
    assert not any(check._known.values()) and not check._reviews
