"""What a task's command may do wrong stays with its rollout, and nothing of it is left."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from container_bench import AS_ROOT, MIB, processes_of, processes_that_say, run, sandbox

from combee.clients.sandbox.sandbox import Run
from combee.clients.sandbox.users import Users
from combee.errors import UserError
from waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are those of Linux")
FIRST = 61_000 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 10 * 100
"""ids of this process's own: tests run side by side"""


@pytest.fixture(params=["another user", "me"])
def users(request: pytest.FixtureRequest, tmp_path: Path) -> Users | None:
    if request.param == "me":
        return None
    if not AS_ROOT:
        pytest.skip("only root can become another user")
    return Users(FIRST, tmp_path / "locks")


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # a folder that others may enter
        Path(folder).chmod(0o755)
        monkeypatch.setattr(tempfile, "mkdtemp", partial(tempfile.mkdtemp, dir=folder))
        yield
        assert list(Path(folder).glob("combee-*")) == []
    assert processes_of(FIRST) == []


async def at_work(
    users: Users | None, stop: asyncio.Future[object], first: str, *endless: str
) -> tuple[asyncio.Task[Run], Callable[[], bool]]:
    """A sandbox that has come to its ``endless`` command, and whether that one still runs."""

    def works() -> bool:
        return bool(processes_that_say("\0".join(endless)))

    script = f"{first} {' '.join(endless)}"
    running = asyncio.create_task(sandbox(script, users=users).run({}, {}, {}, stop))
    await until(works)
    return running, works


def test_one_that_does_its_work_leaves_its_files(users: Users | None) -> None:
    done = run(
        'cat "$COMBEE_TASK/example.json" > "$COMBEE_OUT/reward.json"; echo "$SAID $HOME"; echo >&2 on error',
        users=users,
        SAID="hello",
    )
    assert (done.code, done.why) == (0, "")
    assert done.files == {"reward.json": b'{"id": "1"}\n'}
    assert done.output.startswith("hello /")
    assert done.output.endswith("on error\n")


def test_it_sees_nothing_of_the_environment(users: Users | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "secret-of-mine")
    done = run("env", users=users)
    names = {line.partition("=")[0] for line in done.output.splitlines()}
    assert "secret-of-mine" not in done.output
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {
        "PATH", "LANG", "HOME", "TMPDIR", "COMBEE_TASK", "COMBEE_OUT", "COMBEE_ROLLOUT",
    }  # fmt: skip


def test_another_user_can_neither_write_what_it_is_given_nor_read_what_is_mine(tmp_path: Path) -> None:
    if not AS_ROOT:
        pytest.skip("only root can become another user")
    mine = tmp_path / "mine"
    mine.write_text("private")
    done = run(
        f'id -u; id -G; cat {mine}; echo x > "$COMBEE_TASK/example.json"; echo y > "$COMBEE_TASK/other"; '
        f'ls "$COMBEE_TASK"',
        users=Users(FIRST, tmp_path / "locks"),
    )
    assert done.output.splitlines()[:2] == [str(FIRST), str(FIRST)]
    assert "private" not in done.output
    assert done.output.splitlines()[-1] == "example.json"


def test_one_that_hangs_is_ended_with_all_it_started(users: Users | None) -> None:
    done = run(
        "setsid sleep 1000 & sleep 1000 & trap '' TERM INT; while :; do sleep 100; done",
        users=users,
        seconds=1,
    )
    assert done.why == "timeout"
    assert done.files == {}


def test_what_it_left_running_is_ended_when_it_ends(users: Users | None, tmp_path: Path) -> None:
    seconds = f"98{os.getpid()}"  # of this test alone: others may run beside it
    done = run(f"setsid sh -c 'sleep {seconds}' & exit 0", users=users)
    assert (done.code, done.why) == (0, "")
    assert processes_that_say(seconds) == []


@pytest.mark.parametrize(
    "script",
    [
        "head -c 1073741824 /dev/zero > $COMBEE_OUT/trajectory.jsonl; sleep 100",
        "i=0; while :; do i=$((i+1)); head -c 262144 /dev/zero > $TMPDIR/$i || exit 0; done",
        "while :; do mkdir $TMPDIR/d 2>/dev/null; cd $TMPDIR/d; TMPDIR=$TMPDIR/d; done",
    ],
    ids=["one file", "many files", "folders in folders"],
)
def test_one_that_fills_the_disk_is_ended(users: Users | None, script: str) -> None:
    done = run(script, users=users, scratch=MIB)
    assert done.why == "disk" or done.code == 128 + 25


def test_one_that_talks_without_end_fills_no_memory(users: Users | None) -> None:
    async def stopped() -> None:
        stop: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        much = "yes 'and so on' | head -c 20000000"
        running, _ = await at_work(users, stop, f"{much}; exec", "yes", f"still{os.getpid()}")
        stop.set_result(None)
        done = await running
        assert done.why == "stopped" and 0 < len(done.output) <= 4096

    asyncio.run(stopped())


def test_one_that_forks_without_end_ends_with_all_of_them(tmp_path: Path) -> None:
    if not AS_ROOT:
        pytest.skip("only the processes of a user of its own can be counted")
    users = Users(FIRST, tmp_path / "locks")
    done = run("bomb() { bomb | bomb & }; bomb; sleep 100", users=users, seconds=2)
    assert done.why == "timeout" or done.code != 0
    assert run("echo $(echo still here)", users=users).output == "still here\n"


def test_the_dead_that_nobody_looks_after_take_no_place_from_the_next_one(tmp_path: Path) -> None:
    """As in a container whose first process is a program like any other: there the dead stay."""
    if not AS_ROOT:
        pytest.skip("only the processes of a user of its own can be counted")
    users = Users(FIRST, tmp_path / "locks")
    with everything_orphaned_is_mine():
        run("for i in $(seq 22); do sleep 100 & done; sleep 1", users=users)
        # Those of an earlier test may still wait for another process to look after them.
        left = processes_of(FIRST, dead=True, parent=os.getpid())
        assert len(left) >= 20
        assert run("echo still here | cat | cat | cat", users=users).output == "still here\n"
        assert set(left) <= set(processes_of(FIRST, dead=True, parent=os.getpid()))


@contextlib.contextmanager
def everything_orphaned_is_mine() -> Iterator[None]:
    """This process is the parent of whatever its descendants leave, and looks after it only at the end."""
    libc, subreaper = ctypes.CDLL(None), 36
    libc.prctl(subreaper, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(subreaper, 0, 0, 0, 0)
        for dead in processes_of(FIRST, dead=True):
            with contextlib.suppress(ChildProcessError):  # another's: a test at its side had one end just now
                os.waitpid(dead, 0)


def test_an_exit_code_and_a_signal_are_told_apart_from_a_stop(users: Users | None) -> None:
    assert (run("exit 137", users=users).code, run("kill -9 $$", users=users).code) == (137, 137)
    assert run("exit 3", users=users).code == 3


@pytest.mark.parametrize(
    "script",
    [
        "ln -s /etc/hostname $COMBEE_OUT/reward.json",
        "mkfifo $COMBEE_OUT/reward.json",
        "mkdir $COMBEE_OUT/reward.json",
        "rmdir $COMBEE_OUT; ln -s /etc $COMBEE_OUT",
    ],
)
def test_only_plain_files_are_read(users: Users | None, script: str) -> None:
    assert run(script, users=users).files == {}


def test_no_more_is_read_than_a_file_may_have(users: Users | None) -> None:
    done = run("head -c 70000 /dev/zero > $COMBEE_OUT/reward.json", users=users)
    assert len(done.files["reward.json"]) == 64 * 1024 + 1


def test_stopping_ends_it(users: Users | None) -> None:
    async def stopped() -> None:
        stop: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        running, works = await at_work(users, stop, "exec", "sleep", f"97{os.getpid()}")
        stop.set_result(None)
        assert (await running).why == "stopped" and not works()

    asyncio.run(stopped())


def test_cancelling_ends_it_and_leaves_nothing(users: Users | None) -> None:
    async def cancelled() -> None:
        never: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        running, works = await at_work(users, never, "exec", "sleep", f"97{os.getpid()}")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not works()

    asyncio.run(cancelled())


def test_two_at_once_are_two_users(tmp_path: Path) -> None:
    users = Users(FIRST, tmp_path / "locks")
    with users.one() as first, Users(FIRST, tmp_path / "locks").one() as second:
        assert (first, second) == (FIRST, FIRST + 1)
    with users.one() as again:
        assert again == FIRST


@pytest.mark.parametrize(
    ("command", "folder", "said"),
    [
        (["no-such-program"], "/", "no program 'no-such-program'"),
        (["sh"], "/nowhere", "the folder /nowhere cannot be entered"),
    ],
)
def test_what_cannot_be_run_is_told_before_any_work(
    users: Users | None, command: list[str], folder: str, said: str
) -> None:
    from dataclasses import replace

    box = replace(sandbox("", users=users), command=command, folder=Path(folder))
    with pytest.raises(UserError, match=said):
        asyncio.run(box.check())
