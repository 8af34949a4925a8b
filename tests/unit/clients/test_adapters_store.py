"""The store on a real folder: whole or not at all, first wins, in the face of crashes and full disks."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from combee.clients.store.folder import MAX_BLOB_BYTES, MAX_BYTES
from combee.clients.store.store import Store, blob_path
from combee.errors import BugError, StoreError


@pytest.fixture(params=["folder", "memory"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """The same rules on a folder and on an object store of fsspec's."""
    uri = str(tmp_path) if request.param == "folder" else f"memory://{tmp_path.name}"
    opened = Store.open(uri)
    yield opened
    opened.close()


def test_the_first_writer_wins(either: Store) -> None:
    assert either.put_new("a/b/c", b"first") is True
    assert either.put_new("a/b/c", b"second") is False
    assert either.get("a/b/c") == b"first"
    either.put("a/b/c", b"replaced")
    assert either.get("a/b/c") == b"replaced"


def test_absent_objects(either: Store) -> None:
    assert either.get("nothing") is None and either.get("a/b") is None
    assert not either.exists("nothing") and either.list() == [] and either.list("no/such") == []
    either.delete("nothing")


def test_listing_is_by_folder_and_sorted(either: Store) -> None:
    for path in ("run/b", "run/a/x", "runs/c", "d"):
        either.put(path, b"")
    assert either.list() == ["d", "run/a/x", "run/b", "runs/c"]
    assert either.list("run") == ["run/a/x", "run/b"]
    assert either.exists("run/b") and not either.exists("run/a")
    either.delete("run/b")
    assert either.list("run") == ["run/a/x"]


def test_blobs_are_named_by_their_digest_and_checked(either: Store) -> None:
    digest = either.put_blob(b"content")
    assert either.put_blob(b"content") == digest
    assert either.get_blob(digest) == b"content"
    assert either.list() == [f"blobs/{digest[:2]}/{digest}"]
    either.put(f"blobs/{digest[:2]}/{digest}", b"tampered")
    with pytest.raises(StoreError, match=f"blobs/{digest[:2]}/{digest}: .*does not match its digest"):
        either.get_blob(digest)
    with pytest.raises(StoreError, match="missing"):
        either.get_blob("0" * 64)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../x",
        "a/../../x",
        "a//b",
        "a/",
        "./a",
        "a/./b",
        "a\\b",
        "a\nb",
        "a\0b",
        ".tmp-x",
        "x" * 256,
    ],
)
def test_paths_that_leave_the_store_are_refused(either: Store, path: str) -> None:
    for operation in (
        either.get,
        either.exists,
        either.delete,
        lambda p: either.put(p, b""),
        either.get_blob,
    ):
        with pytest.raises(BugError):
            operation(path)
    with pytest.raises(BugError):
        either.put_new(path, b"")


async def test_the_async_twins(either: Store) -> None:
    assert await either.aput_new("a", b"1") and not await either.aput_new("a", b"2")
    await either.aput("b", b"3")
    assert await either.aget("b") == b"3" and await either.aexists("a") and await either.alist() == ["a", "b"]
    assert await either.aget_blob(await either.aput_blob(b"x")) == b"x"


async def test_a_write_whose_waiter_is_cancelled_still_finishes(store: Store) -> None:
    writing = asyncio.create_task(store.aput_new("a", b"paid for"))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    store.close()
    assert store.get("a") == b"paid for"


def test_many_threads_one_winner_never_torn(store: Store) -> None:
    start = threading.Barrier(16)

    def write(i: int) -> bool:
        start.wait()
        return store.put_new("contested", bytes([i]) * 300_000)

    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(write, range(16)))
    assert won.count(True) == 1
    data = store.get("contested")
    assert data == bytes([won.index(True)]) * 300_000
    assert store.list() == ["contested"] and len(os.listdir(store.uri)) == 1


def _race(root: str, me: int, rounds: int, results: multiprocessing.Queue[tuple[int, list[bool]]]) -> None:
    store = Store.open(root)
    results.put((me, [store.put_new(f"r/{i}", bytes([me]) * 100_000) for i in range(rounds)]))


def test_many_processes_one_winner_never_torn(store: Store) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    racers = [context.Process(target=_race, args=(store.uri, me, 20, results)) for me in range(4)]
    for racer in racers:
        racer.start()
    won = dict(results.get(timeout=300) for _ in racers)
    for racer in racers:
        racer.join(60)
    for i in range(20):
        winners = [me for me in range(4) if won[me][i]]
        assert len(winners) == 1
        assert store.get(f"r/{i}") == bytes(winners) * 100_000
    assert store.sweep(0) == 0


def test_a_reader_never_sees_half_of_a_replacement(store: Store) -> None:
    store.put("object", b"0" * 200_000)
    stop = threading.Event()
    seen: set[bytes] = set()

    def read() -> None:
        while not stop.is_set():
            data = store.get("object")
            assert data is not None and len(data) == 200_000
            seen.update({data[:1], data[-1:]})
            assert data[:1] == data[-1:]

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for i in range(30):
            store.put("object", str(i % 10).encode() * 200_000)
        stop.set()
        for reader in readers:
            reader.result()
    assert seen


@pytest.mark.parametrize("victim", ["os.link", "os.fsync"])
def test_a_kill_before_the_name_is_given_leaves_nothing_visible(store: Store, victim: str) -> None:
    program = (
        "import os, signal, sys\n"
        "from combee.clients.store.store import Store\n"
        f"{victim} = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Store.open(sys.argv[1]).put_new('object', b'x' * 1000)\n"
    )
    os.makedirs(store.uri)  # so that the first fsync is that of the data
    done = subprocess.run([sys.executable, "-c", program, store.uri], env=_environment(), check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(os.listdir(store.uri)) == 1, "the temporary file is there"
    assert store.list() == [] and not store.exists("object") and store.get("object") is None
    assert store.put_new("object", b"mine") and store.get("object") == b"mine"
    assert store.sweep() == 0, "it may belong to somebody at work"
    assert store.sweep(0) == 1
    assert os.listdir(store.uri) == ["object"]


def test_a_kill_after_the_name_is_given_leaves_the_whole_object(store: Store) -> None:
    program = (
        "import os, pathlib, signal, sys\n"
        "from combee.clients.store.store import Store\n"
        "pathlib.Path.unlink = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Store.open(sys.argv[1]).put_new('object', b'x' * 1000)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, store.uri], env=_environment(), check=False)
    assert done.returncode == -signal.SIGKILL
    assert store.get("object") == b"x" * 1000 and not store.put_new("object", b"y")
    assert store.sweep(0) == 1 and store.get("object") == b"x" * 1000


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_sweep_under_a_writer_does_not_stop_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    link, swept = os.link, []

    def sweep_then_link(source: Path, target: Path) -> None:
        if not swept:
            swept.append(store.sweep(0))
        link(source, target)

    monkeypatch.setattr(os, "link", sweep_then_link)
    assert store.put_new("object", b"x") and swept == [1] and store.get("object") == b"x"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, mounted for the test."""
    where = tmp_path / "disk"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(where)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"NOT TESTED, mounting needs root: {mounted.stderr.decode().strip()}")
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True)


def test_a_full_disk_is_the_users_error_and_leaves_nothing(small_disk: Path) -> None:
    store = Store.open(str(small_disk))
    assert store.put_new("small", b"x")
    for write in (store.put_new, store.put):
        with pytest.raises(StoreError, match=r"big: the store is full.*Free some space"):
            write("big", b"x" * 200_000)
    assert store.list() == ["small"] and os.listdir(small_disk) == ["small"]


def test_a_read_only_disk_is_the_users_error(small_disk: Path) -> None:
    store = Store.open(str(small_disk))
    store.put("a", b"x")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for write in (store.put_new, store.put):
        with pytest.raises(StoreError, match=r"read-only.*Make it writable"):
            write("new/b", b"x")
    with pytest.raises(StoreError):
        store.delete("a")
    assert store.get("a") == b"x" and not store.put_new("a", b"y")


def test_a_file_in_the_way_is_the_users_error(store: Store) -> None:
    store.put("a", b"x")
    for write in (store.put_new, store.put):
        with pytest.raises(StoreError, match="a file is in the way"):
            write("a/b", b"y")
    assert store.get("a/b") is None and store.list("a/b") == []


@pytest.mark.parametrize("damage", [b"", b"other", b"the bytes of a blo"])
def test_a_blob_is_written_over_a_damaged_one(either: Store, damage: bytes) -> None:
    digest = either.put_blob(b"the bytes of a blob")
    either.put(blob_path(digest), damage)
    assert not either.has_blob(digest)
    assert either.put_blob(b"the bytes of a blob") == digest and either.has_blob(digest)


@pytest.mark.parametrize("size", [MAX_BYTES + 1, MAX_BLOB_BYTES + 1])
def test_what_is_too_long_to_be_whole_takes_no_memory(store: Store, size: int) -> None:
    """A record is damaged for any reader of it, and a blob is held against its name first."""
    digest = store.put_blob(b"{}")
    for path in ("runs/run/receipt.json", blob_path(digest)):
        store.put(path, b"{}")
        os.truncate(Path(store.uri, path), size)
    tracemalloc.start()
    try:
        assert store.get("runs/run/receipt.json") == b"" and not store.has_blob(digest)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("uri", ["nosuch://x", "simplecache::s3://b", "http:///"])
def test_a_uri_that_cannot_be_opened_is_the_users_error(uri: str) -> None:
    with pytest.raises(StoreError):
        Store.open(uri).put_new("a", b"")


def test_a_file_uri_is_a_folder_and_credentials_are_not_shown(tmp_path: Path) -> None:
    spaced = tmp_path / "a b"
    store = Store.open(f"file://{str(spaced).replace(' ', '%20')}")
    store.put("x", b"1")
    assert (spaced / "x").read_bytes() == b"1"
    shown = Store.open("memory://user:password@bucket/p", options={"secret": "hidden"})
    assert "password" not in repr(shown) and "hidden" not in repr(shown)
