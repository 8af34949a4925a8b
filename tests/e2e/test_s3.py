"""A real S3 server: conditional writes, a server that comes back, data and stores of whole runs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from e2e_support import ENDED, FORMULA, Manifest, Sims, process, result_of
from minio import Minio
from pods import Cluster
from test_worker_report import report

from combee.cli.cluster.report import written
from combee.clients.data.marks import mark_of
from combee.clients.store.s3 import TRIES, s3_options
from combee.clients.store.store import Store
from combee.errors import DataError, StoreError, TransientError
from combee.objects.results import STORE
from combee.plan.cluster.memory import Memory
from combee.report.bundle import unpacked

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    server = Minio(tmp_path_factory.mktemp("minio"))
    yield server
    server.stop()


@pytest.fixture
def bucket(minio: Minio, request: pytest.FixtureRequest) -> Iterator[Store]:
    opened = Store.open(f"s3://combee/{request.node.name}", options=s3_options(minio.secret))
    yield opened
    opened.close()


def test_the_first_of_many_writers_wins(bucket: Store) -> None:
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(lambda n: bucket.put_new("a/b", str(n).encode()), range(16)))
    assert won.count(True) == 1
    assert bucket.get("a/b") == str(won.index(True)).encode()
    bucket.put("a/b", b"replaced")
    assert bucket.get("a/b") == b"replaced"


@pytest.mark.parametrize("size", [0, 1, 300 * 1024, 7 << 20])
def test_objects_of_any_size_are_kept_whole(bucket: Store, size: int) -> None:
    data = b"x" * size
    digest = bucket.put_blob(data)
    assert bucket.get_blob(digest) == data
    assert bucket.put_new(f"blobs/{digest[:2]}/{digest}", data) is False


def test_absent_objects_and_listings(bucket: Store) -> None:
    assert bucket.get("nothing") is None and not bucket.exists("nothing") and bucket.list("none") == []
    bucket.delete("nothing")
    names = [f"run/{number:05d}" for number in range(1100)]  # more than one page of a listing
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: bucket.put_new(name, b""), names))
    bucket.put("runs/other", b"")
    assert bucket.list("run") == names
    bucket.delete(names[0])
    assert bucket.list("run") == names[1:]


def test_what_the_user_has_to_mend(minio: Minio) -> None:
    with pytest.raises(StoreError, match="no such bucket"):
        Store.open("s3://missing/x", options=s3_options(minio.secret)).put_new("a", b"")
    wrong = s3_options({**minio.secret, "AWS_SECRET_ACCESS_KEY": "wrong-wrong"})
    with pytest.raises(StoreError, match="no permission") as caught:
        Store.open("s3://combee/x", options=wrong).put_new("a", b"")
    assert "wrong-wrong" not in str(caught.value)


def test_a_server_that_comes_back_is_waited_for_and_one_that_does_not_is_an_error(
    minio: Minio, bucket: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bucket.put_new("before", b"1")
    minio.stop()
    pauses: list[float] = []

    def comes_back(seconds: float) -> None:
        """Bring the server up in the first of the store's own pauses, however long a busy machine takes for
        it."""
        if not pauses:
            minio.start()
        pauses.append(seconds)
        time.sleep(seconds)

    monkeypatch.setattr(bucket._backend, "_sleep", comes_back)
    assert bucket.put_new("after", b"2") and pauses
    assert bucket.get("before") == b"1"
    minio.stop()
    tries = len(pauses)
    try:
        with pytest.raises(TransientError, match="the store does not answer"):
            bucket.get("before")
    finally:
        minio.start()
    assert len(pauses) - tries == TRIES - 1


def test_a_run_with_data_and_store_on_s3(
    minio: Minio, sims: Sims, key: Path, manifest: Manifest, tmp_path: Path
) -> None:
    plain = Store.open("s3://combee/data", options=s3_options(minio.secret))
    for name, rows in (("train", 18), ("heldout", 40)):
        lines = (FORMULA / f"{name}.jsonl").read_bytes().splitlines(keepends=True)[:rows]
        plain.put(f"{name}.jsonl", b"".join(lines))
    plain.close()
    path = manifest(
        name="pods",
        batching={"mode": "Fixed", "size": 18, "reason": "test"},
        workers={"concurrency": 8, "parallelism": 2, "hedgeBudget": 0},
    )
    document = yaml.safe_load(path.read_text())
    secret = {"secretRef": {"name": "s3"}}
    document["spec"]["task"]["data"] = {
        "train": {"uri": "s3://combee/data/train.jsonl", **secret},
        "heldOut": {"uri": "s3://combee/data/heldout.jsonl", **secret},
    }
    document["spec"]["store"] = {"uri": "s3://combee/store", **secret}
    path.write_text(yaml.safe_dump(document))
    sim = sims.start("--key", key, "--time-scale", "0")
    uses = dict.fromkeys(("store", "train", "heldOut"), minio.secret)
    cluster = Cluster(tmp_path / "cluster", path, sim.url, store="s3://combee/store", secrets=uses)
    try:
        state = cluster.to_the_end()
    finally:
        cluster.stop()
    assert list((tmp_path / "cluster" / "store").iterdir()) == []

    flags, out = [], tmp_path / "laptop"
    for name in minio.secret:
        flags += ["--secret", f"s3/{name}=env:TEST_{name}"]
    variables = {f"TEST_{name}": value for name, value in minio.secret.items()}
    memory = Memory(run=state, started=1.0, ended=2.0, active_seconds=61.5)
    for number, params in enumerate(({}, {STORE: True})):
        printed = report(cluster, memory, number, **params)
        assert printed.returncode == 0, printed.stderr
        written(unpacked(printed.stdout.splitlines()), tmp_path / ("fetched", "whole")[number])
    # The store is read where it is, with the keys of the environment, or was printed by a pod that has them.
    for folder, store in (("fetched", ["--store", "s3://combee/store"]), ("whole", [])):
        keys = minio.secret if store else {}
        words = [
            "audit",
            tmp_path / folder,
            "-f",
            path,
            *store,
            "--engine",
            f"main={sim.url}",
            *flags,
            "--yes",
        ]
        audited = process(*words, **variables, **keys)
        assert audited.returncode in (5, 6), audited.stderr
        assert re.search(r"replay equal +survived", audited.stdout), audited.stdout + audited.stderr
    done = process("run", "-f", path, "-o", out, "--engine", f"main={sim.url}", *flags, **variables)
    assert done.returncode in ENDED, done.stderr
    assert state.best is not None and state.best.artifact == result_of(out)["playbook"]["digest"]
    said = "".join((pod.root / "stderr").read_text() for pod in cluster.pods) + done.stdout + done.stderr
    assert minio.secret["AWS_SECRET_ACCESS_KEY"] not in said


def test_the_mark_of_an_object_changes_with_its_content_alone(bucket: Store, minio: Minio) -> None:
    place = "s3://combee/test_the_mark_of_an_object_changes_with_its_content_alone/rows.jsonl"
    bucket.put("rows.jsonl", b"one\n")
    first = mark_of(place, minio.secret)
    bucket.put("rows.jsonl", b"one\n")
    assert mark_of(place, minio.secret) == first
    bucket.put("rows.jsonl", b"two\n")
    assert mark_of(place, minio.secret) != first
    with pytest.raises(DataError, match="no such object"):
        mark_of(f"{place}.none", minio.secret)
