"""A rollout in a pod, from the desk to what is handed in: the real script and programs, without a cluster."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from combee.clients.model.agents import AGENT
from combee.clients.model.chat import ChatClient, ConnectionPool, Endpoint
from combee.clients.model.limits import RunLimits
from combee.clients.model.memo import Memo
from combee.clients.model.proxy import ModelProxy
from combee.clients.sandbox.desk import RolloutDesk
from combee.clients.sandbox.deskwire import BEAT, CLAIM, LEFT, LOST_SECONDS
from combee.clients.sandbox.sandbox import Run
from combee.clients.store.store import Store
from combee.objects.rollout_layout import BIN, CLAIMED_BY, END
from rollout_pods import BUSYBOX, FakePod

TOKEN = "t" * 64
LIMITS = {"reward.json": 100, "trajectory.jsonl": 100}
needs_busybox = pytest.mark.skipif(BUSYBOX is None, reason="no busybox here")


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def served(desk: RolloutDesk) -> AsyncIterator[str]:
    """The desk's address."""
    store = Store.open("memory://desk")
    client = ChatClient(
        Endpoint("http://127.0.0.1:1/v1", "m"), AGENT, Memo(store), RunLimits(1), pool=ConnectionPool()
    )
    proxy = ModelProxy(client)
    async with proxy.serve(beside=desk.routes):
        yield proxy.url.removesuffix("/v1")


def asked(address: str, path: str, key: str, body: Any = None) -> tuple[int, Any]:
    host, _, port = address.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", path, data, {"Authorization": f"Bearer {key}"})
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    return answer.status, json.loads(said) if said else None


async def rolled_out(
    folder: Path, *program: str, seconds: float = 120.0, scratch: int = 1 << 20, **pod: Any
) -> tuple[Run, FakePod]:
    desk = RolloutDesk(TOKEN, seconds, scratch)
    async with served(desk) as address:
        made = FakePod(folder, address, TOKEN, program, **pod)
        going = asyncio.to_thread(made.run)
        stop: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        given = {"example.json": b'{"id": "1"}\n', "artifact.md": b"# it's \xc3\xa9\n"}
        env = {"OPENAI_API_KEY": "k'e $y", "COMBEE_ORDINAL": "3"}
        done, _ = await asyncio.gather(desk.run(given, env, LIMITS, stop), going)
    return done, made


def run_of(folder: Path, *program: str, **more: Any) -> Run:
    return asyncio.run(rolled_out(folder, *program, **more))[0]


@needs_busybox
def test_a_program_gets_its_files_and_variables_and_what_it_leaves_is_handed_in(tmp_path: Path) -> None:
    script = (
        'cat "$COMBEE_TASK/example.json" "$COMBEE_TASK/artifact.md" >"$COMBEE_OUT/trajectory.jsonl"; '
        'printf "%s %s" "$OPENAI_API_KEY" "$COMBEE_ORDINAL" >"$COMBEE_OUT/reward.json"; echo bye; echo "a '
        'b" >&2'
    )
    done = run_of(tmp_path, "sh", "-c", script)
    assert (done.code, done.why, done.output) == (0, "", "bye\na b\n")
    assert done.files == {
        "trajectory.jsonl": b'{"id": "1"}\n# it\'s \xc3\xa9\n',
        "reward.json": b"k'e $y 3",
    }


ENDS = {
    "an exit code": ("exit 3", 3),
    "killed": ("kill -9 $$", 137),
    "the image's own shell": ('[ "$0" = sh ] && exit 7', 7),
}


@needs_busybox
@pytest.mark.parametrize(("script", "code"), ENDS.values(), ids=ENDS)
def test_how_a_program_ends_is_told(script: str, code: int, tmp_path: Path) -> None:
    assert run_of(tmp_path, "/bin/sh", "-c", script, "sh").code == code


@needs_busybox
def test_a_program_that_is_not_there_is_told_by_its_name(tmp_path: Path) -> None:
    done = run_of(tmp_path, "no-such-program")
    assert (done.code, done.why) == (127, "") and "no-such-program" in done.output


@needs_busybox
def test_a_program_that_hangs_is_ended_at_its_timeout(tmp_path: Path) -> None:
    done, pod = asyncio.run(rolled_out(tmp_path, "sleep", "60", seconds=0.5))
    assert (done.why, pod.killed) == ("timeout", True)


@needs_busybox
@pytest.mark.parametrize("where", ["$COMBEE_OUT/big", "$TMPDIR/big"])
def test_a_program_that_floods_the_disk_is_ended(where: str, tmp_path: Path) -> None:
    script = f'head -c 3000000 /dev/zero >"{where}"; sleep 60'
    done, pod = asyncio.run(rolled_out(tmp_path, "sh", "-c", script))
    assert (done.why, pod.killed) == ("disk", True)


@needs_busybox
def test_what_a_program_says_is_kept_to_its_end_and_takes_no_disk(tmp_path: Path) -> None:
    done = run_of(tmp_path, "sh", "-c", "head -c 9000000 /dev/zero | tr '\\0' x; echo; echo the end")
    assert (done.code, done.why) == (0, "")
    assert len(done.output) == 4096 and done.output.endswith("x\nthe end\n")


@needs_busybox
def test_a_container_that_dies_without_a_word_was_killed(tmp_path: Path) -> None:
    done = run_of(tmp_path, "sleep", "60", die=True)
    assert (done.code, done.why, done.files) == (137, "", {})


@needs_busybox
def test_only_plain_files_up_to_their_limit_are_handed_in(tmp_path: Path) -> None:
    script = (
        'ln -s /etc/hostname "$COMBEE_OUT/reward.json"; '
        'head -c 5000 /dev/zero >"$COMBEE_OUT/trajectory.jsonl"'
    )
    done = run_of(tmp_path, "sh", "-c", script)
    assert {name: len(data) for name, data in done.files.items()} == {"trajectory.jsonl": 101}


@needs_busybox
def test_a_second_life_of_the_container_beside_it_claims_nothing(tmp_path: Path) -> None:
    async def twice() -> tuple[int, Any]:
        desk = RolloutDesk(TOKEN, 20.0, 1 << 20)
        stop: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        async with served(desk) as address:
            pod = FakePod(tmp_path, address, TOKEN, ["true"])
            first = asyncio.ensure_future(desk.run({}, {}, LIMITS, stop))
            await asyncio.gather(first, asyncio.to_thread(pod.run))
            assert (pod.path(BIN) / "claimed").exists()
            from combee.pod.attend import Attendant
            from combee.pod.log import PodLog
            from combee.settings import AttendSettings

            settings = AttendSettings(tmp_path, "OFF", address, TOKEN, "")
            attendant = Attendant(settings, PodLog({}, "OFF"), Path(BUSYBOX or ""))
            attendant.ending = True
            waiting = asyncio.ensure_future(desk.run({}, {}, LIMITS, stop))
            code = await asyncio.to_thread(attendant.run)
            claimed = await asyncio.to_thread(asked, address, CLAIM, TOKEN)
            stop.set_result(None)
            await waiting
            return code, claimed[0]

    assert asyncio.run(twice()) == (0, 200)


@needs_busybox
@pytest.mark.parametrize("pooled", [False, True], ids=["by a Job", "out of a warm pool"])
def test_a_pod_claims_a_rollout_once_its_container_waits_and_it_is_in_no_pool(
    pooled: bool, tmp_path: Path
) -> None:
    early: list[bool] = []
    """whether a rollout was claimed, when it should not have been"""

    async def scene() -> Run:
        desk = RolloutDesk(TOKEN, 20.0, 1 << 20)
        stop: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        async with served(desk) as address:
            pod = FakePod(tmp_path, address, TOKEN, ["true"], claimed_by=CLAIMED_BY if pooled else "")
            whose = pod.path(CLAIMED_BY)
            whose.parent.mkdir(parents=True)
            whose.write_text("")
            doing = asyncio.ensure_future(desk.run({}, {}, LIMITS, stop))
            going = asyncio.ensure_future(asyncio.to_thread(pod.run))
            while not (pod.path(END) / "there").exists():
                early.append(bool(desk._claimed))
                await asyncio.sleep(0.01)
            if pooled:
                await asyncio.sleep(1.0)  # four looks
                early.append(bool(desk._claimed))
                whose.write_text("garden-3fa9c1d2-rollouts-c0")
            done, _ = await asyncio.gather(doing, going)
            return done

    assert asyncio.run(scene()).code == 0
    assert early and not any(early)


@needs_busybox
def test_a_pod_that_waits_ends_at_once_when_it_is_deleted(tmp_path: Path) -> None:
    pod = FakePod(tmp_path, "http://127.0.0.1:9", TOKEN, ["true"])
    pod.over.set()
    pod.run()
    assert (pod.path(END) / "there").exists() and not pod.killed
    assert not (pod.path(END) / "begun").exists()


async def _claimed(desk: RolloutDesk, address: str, stop: Any) -> tuple[asyncio.Future[Run], Any]:
    doing = asyncio.ensure_future(desk.run({"a": b"b"}, {"X": "y"}, LIMITS, stop))
    status, task = await asyncio.to_thread(asked, address, CLAIM, TOKEN)
    assert status == 200
    return doing, task


def test_a_claim_says_all_that_a_pod_needs_and_nothing_is_given_twice() -> None:
    async def scene() -> None:
        desk = RolloutDesk(TOKEN, 7.0, 99)
        stop: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        async with served(desk) as address:
            assert (await asyncio.to_thread(asked, address, CLAIM, "wrong"))[0] == 401
            doing, task = await _claimed(desk, address, stop)
            key = task.pop("key")
            assert task == {
                "files": {"a": "Yg=="},
                "env": {"X": "y"},
                "left": LIMITS,
                "seconds": 7.0,
                "scratchBytes": 99,
                "desk": address,
            }
            assert (await asyncio.to_thread(asked, address, CLAIM, TOKEN))[0] == 204
            told = {"code": 0, "why": "", "seconds": 1, "said": "", "files": {}}
            bad: list[Any] = [
                b"{",
                [],
                {**told, "why": "else"},
                {**told, "code": "0"},
                {**told, "files": {"reward.json": "*"}},
            ]
            for body in bad:
                assert (await asyncio.to_thread(asked, address, LEFT, key, body))[0] == 400
            assert (await asyncio.to_thread(asked, address, LEFT, key, b"x" * 200_000))[0] == 400
            more = {**told, "files": {"reward.json": "e30=", "other": "e30="}}
            assert (await asyncio.to_thread(asked, address, LEFT, key, more))[0] == 204
            assert await doing == Run(0, "", 1.0, {"reward.json": b"{}"}, "")
            for path in (BEAT, LEFT):
                assert (await asyncio.to_thread(asked, address, path, key, told))[0] == 401

    asyncio.run(scene())


def test_a_rollout_that_is_not_wanted_any_more_is_cut_off() -> None:
    async def scene() -> None:
        desk = RolloutDesk(TOKEN, 7.0, 99)
        stop: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        async with served(desk) as address:
            doing, task = await _claimed(desk, address, stop)
            assert (await asyncio.to_thread(asked, address, f"{BEAT}?begun=1", task["key"]))[0] == 204
            stop.set_result(None)
            assert (await doing).why == "stopped"
            assert (await asyncio.to_thread(asked, address, f"{BEAT}?begun=1", task["key"]))[0] == 401

    asyncio.run(scene())


@pytest.mark.parametrize("begun", [False, True])
def test_a_pod_that_is_lost_costs_the_rollout_only_once_it_began(begun: bool) -> None:
    async def scene() -> None:
        clock = Clock()
        desk = RolloutDesk(TOKEN, 7.0, 99, clock)
        stop: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        async with served(desk) as address:
            doing, task = await _claimed(desk, address, stop)
            beat = f"{BEAT}?begun={int(begun)}"
            assert (await asyncio.to_thread(asked, address, beat, task["key"]))[0] == 204
            clock.now += LOST_SECONDS
            if begun:
                assert await doing == Run(137, "", LOST_SECONDS, {}, "its pod was lost")
                return
            again = 204
            while again == 204:
                clock.now += 1
                again, other = await asyncio.to_thread(asked, address, CLAIM, TOKEN)
            assert other["key"] != task["key"]
            assert (await asyncio.to_thread(asked, address, beat, task["key"]))[0] == 401
            doing.cancel()

    asyncio.run(scene())
