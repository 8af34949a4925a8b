"""The parts of `kubectl combee` that need no cluster: choosing logs, refusals, bundles, the report's pod."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubectl_samples import LEARNING
from typer import Exit

from combee.api.load import parse_runs
from combee.cli.cluster import report
from combee.cli.cluster.logs import Wish, choose, last_words, pick, readable
from combee.cli.cluster.place import Here, explained, found_in
from combee.cli.cluster.pods import INDEX_LABEL
from combee.cli.cluster.report import _fetched, _refuse_folder, written
from combee.cli.record import FETCHED, _lacks_something, record_folder
from combee.cli.where import Place
from combee.clients.store.store import Store
from combee.errors import ClusterError, StoreError, TransientError, UserError
from combee.objects.results import report_pod
from combee.objects.types import Settings
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import JobSeen
from combee.records import Owner
from combee.report.bundle import BEGIN, packed, unpacked
from combee.settings import WorkerSettings

NAMES = st.from_regex(r"(plans|steps)/[a-z0-9][a-z0-9.-]{0,20}\.json", fullmatch=True)
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
LEARNED = b'{"outcome": "Learned"}'


def job(kind: str, iteration: int, **more: Any) -> JobSeen:
    name = f"f-1-i{iteration:03d}-{kind}-a0"
    return JobSeen(name=name, step=name, kind=kind, iteration=iteration, **more)


@pytest.mark.parametrize(
    ("jobs", "wish", "chosen"),
    [
        ([job("map", 0, complete=True), job("reduce", 0, ready=1)], Wish(), "reduce"),
        ([job("map", 1, ready=1), job("reduce", 1, ready=1)], Wish(), "map"),
        ([job("profile", 0, complete=True), job("map", 0, failed="x")], Wish(), "map"),
        ([job("map", 0, failed="x"), job("reduce", 1)], Wish(), "reduce"),
        ([job("evaluate", 6, complete=True), job("publish", 6, complete=True)], Wish(), "publish"),
        ([job("map", 0, complete=True), job("publish", 6, complete=True)], Wish(step="map"), "map"),
        ([job("map", 0, complete=True), job("reduce", 1, ready=1)], Wish(iteration=1), "map"),
    ],
)
def test_the_step_that_matters(jobs: list[JobSeen], wish: Wish, chosen: str) -> None:
    found = choose(jobs, wish)
    assert found is not None and found.kind == chosen


def test_no_step_is_no_step() -> None:
    assert choose([], Wish()) is None
    assert choose([job("map", 0)], Wish(step="publish")) is None


def pod(name: str, shard: int, phase: str) -> dict[str, Any]:
    meta = {"name": name, "labels": {INDEX_LABEL: str(shard)}, "creationTimestamp": name}
    return {"metadata": meta, "status": {"phase": phase}}


def test_the_newest_pod_of_each_shard_failed_ones_first() -> None:
    pods = [pod("a", 0, "Failed"), pod("b", 0, "Running"), pod("c", 1, "Succeeded"), pod("d", 2, "Failed")]
    assert [one["metadata"]["name"] for one in pick(pods, None)] == ["d", "b", "c"]
    assert [one["metadata"]["name"] for one in pick(pods, 1)] == ["c"]
    assert pick(pods, 7) == []


@given(st.text())
def test_no_line_of_a_log_drives_a_terminal(text: str) -> None:
    for line in (text, json.dumps({"time": text, "level": text, "message": text, text: text})):
        assert readable(line).isprintable()


def test_last_words_are_the_last_error_else_the_last_line() -> None:
    error = json.dumps({"level": "error", "message": "the store is full"})
    info = json.dumps({"level": "info", "message": "going"})
    assert last_words([info, error, info]) == "the store is full"
    assert last_words(["Traceback", info]) == "going"
    assert last_words([]) == ""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ClusterError(
                'pods is forbidden: User "ann" cannot create resource "pods" in API group "" in the '
                'namespace "a"',
                where="POST /api/v1/namespaces/a/pods",
                status=403,
            ),
            "ann may not create pods in the namespace a. Ask for a role",
        ),
        (ClusterError("Unauthorized", where="GET /x", status=401), "the cluster does not know you. Log in"),
        (ClusterError("not found", where="GET /apis/combee.dev/v1alpha1/x", status=404), "not installed"),
        (ClusterError("no answer", where="GET /x"), "kubectl --context c get --raw /readyz"),
        (ClusterError("quota", where="POST /x", status=422), "POST /x: quota"),
    ],
)
def test_what_the_cluster_refuses_comes_with_a_fix(error: ClusterError, said: str) -> None:
    assert said in str(explained(error, Place(context="c")))


def test_a_status_of_a_newer_operator_can_be_read() -> None:
    new = {"type": "Ready", "status": "False", "reason": "Brooding", "message": ""}
    raw = {"metadata": {"name": "x", "uid": "u"}, "status": {**LEARNING, "conditions": [new], "novel": 1}}
    assert found_in(raw).status.conditions == ()


@given(st.dictionaries(NAMES, st.binary(max_size=5000), max_size=5), st.integers(0, 1000))
def test_files_survive_a_log_with_strange_lines(files: dict[str, bytes], at: int) -> None:
    lines = list(packed(files))
    at = at % (len(lines) + 1)
    noise = '{"level": "info", "message": "x"}'
    assert unpacked(["before", *lines[:at], noise, *lines[at:], "after"]) == files


@given(st.data())
def test_a_cut_log_is_noticed(data: st.DataObject) -> None:
    lines = list(packed({"result.json": bytes(range(256)) * 40}))
    cut = data.draw(st.integers(0, len(lines) - 1))
    with pytest.raises(TransientError):
        unpacked([*lines[:cut], *lines[cut + 1 :]])
    with pytest.raises(TransientError):
        unpacked(lines[: max(cut, 1)])


@pytest.mark.parametrize(
    "name",
    [
        *("../x.json", "/etc/passwd", "plans/../../x.json", "plans/a/b.json", ".netrc"),
        *("store/../../x", "store/memo/../../../x", "store//x/y", "store/.ssh/x", "store/memo"),
    ],
)
def test_a_name_that_leaves_the_folder_is_refused(name: str) -> None:
    with pytest.raises(TransientError):
        unpacked(packed({name: b"x"}))


def test_a_file_of_a_later_release_is_left_out() -> None:
    assert unpacked(packed({"later.json": b"x", "result.json": b"{}"})) == {"result.json": b"{}"}


def test_a_link_is_refused_whatever_its_name() -> None:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as tar:
        link = tarfile.TarInfo("later.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    raw = held.getvalue()
    end = f"-----END COMBEE RESULTS {len(raw)} {hashlib.sha256(raw).hexdigest()}-----"
    with pytest.raises(TransientError, match="has no place"):
        unpacked([BEGIN, base64.b64encode(raw).decode(), end])


def test_what_is_fetched_again_replaces_the_old(tmp_path: Path) -> None:
    written({"plans/i000.json": b"1", "plans/i001.json": b"2", "result.json": b"3"}, tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    written({"plans/i000.json": b"4", "result.json": b"5"}, tmp_path)
    left = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert left.pop(FETCHED) == b"no store"
    assert left == {"plans/i000.json": b"4", "result.json": b"5", "notes.txt": b"mine"}


@pytest.mark.parametrize("before", [{}, {"result.json": LEARNED}], ids=["a new folder", "one without store"])
def test_a_fetch_that_was_cut_off_is_made_again(
    before: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wherever it was cut off, the folder is neither refused nor taken for whole."""
    monkeypatch.chdir(tmp_path)
    out, put = Path("quickstart"), Store.put
    files = {"steps/a.json": b"1", "store/memo/a": b"2", "store/memo/b": b"3", "result.json": LEARNED}
    for cut in range(len(files) + 2):
        if before:
            written(before, out)
        room = iter(range(cut))

        def some(store: Store, path: str, data: bytes, room: Iterator[int] = room) -> None:
            if next(room, None) is None:
                out.mkdir(exist_ok=True)
                raise StoreError("the store is full")
            put(store, path, data)

        monkeypatch.setattr(Store, "put", some)
        with pytest.raises(StoreError):
            written(files, out)
        monkeypatch.setattr(Store, "put", put)
        _refuse_folder(out)
        assert _lacks_something(out, "")
        # Where a store is given the folder needs none, but every other file.
        assert _lacks_something(out, "copy") or (cut == 0 and before)
        shutil.rmtree(out)
    written(files, out)
    assert not _lacks_something(out, "")
    assert record_folder("quickstart", "", Place(), wait_seconds=1, as_json=False) == out
    assert "delete it to fetch the run anew" in capsys.readouterr().err


def test_a_store_of_an_earlier_result_is_fetched_again(tmp_path: Path) -> None:
    """``report`` into the folder of a replay replaces the result, and fetches no store."""
    written({"store/memo/a": b"1", "result.json": LEARNED.replace(b"Learned", b"Stopped")}, tmp_path)
    written({"result.json": LEARNED}, tmp_path)
    assert _lacks_something(tmp_path, "")
    written({"store/memo/a": b"1", "result.json": LEARNED}, tmp_path)
    written({"result.json": LEARNED}, tmp_path)
    assert not _lacks_something(tmp_path, "")


@pytest.mark.parametrize("file", ["run.json", "letter.txt"])
def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text("{}")
    with pytest.raises(UserError, match="folder"):
        _refuse_folder(tmp_path)


def a_pod(change: str = "") -> dict[str, Any]:
    text = (EXAMPLES / "quickstart.yaml").read_text()
    runs = text[text.index("apiVersion: combee.dev") :].partition("\n---")[0] + change
    owner = Owner("quickstart", "team-a", "3fa9c1d2-0000")
    return report_pod(
        parse_runs(runs, "x")[0],
        owner,
        state=Memory().to_status(),
        plans=[(0, "quickstart-3fa9c1d2-i000-plan"), (1, "quickstart-3fa9c1d2-i001-plan")],
        suffix="abc",
        settings=Settings(worker_image="worker:1"),
    )


def test_the_reports_pod_sees_the_store_and_nothing_to_keep_secret() -> None:
    made = a_pod()
    spec, worker = made["spec"], made["spec"]["containers"][0]
    assert spec["automountServiceAccountToken"] is False and spec["serviceAccountName"] == "default"
    assert spec["restartPolicy"] == "Never" and spec["activeDeadlineSeconds"] == 600
    assert worker["command"] == ["combee-worker", "report"] and worker["image"] == "worker:1"
    writable = [mount["mountPath"] for mount in worker["volumeMounts"] if not mount.get("readOnly")]
    assert writable == ["/tmp"]
    mounted = {mount["mountPath"] for mount in worker["volumeMounts"]}
    assert mounted == {"/tmp", "/etc/combee/run", "/etc/combee/plans", "/store"}
    sources = [one["configMap"] for one in volume(made, "plans")["projected"]["sources"]]
    paths = {one["items"][0]["path"]: one.get("optional", False) for one in sources}
    # An earlier version's ConfigMap of a plan has no clocks.
    kept, clocks = ("i000.json", "i001.json"), ("clocks/i000.json", "clocks/i001.json")
    assert paths == dict.fromkeys(kept, False) | dict.fromkeys(clocks, True)
    assert made["metadata"]["ownerReferences"][0]["uid"] == "3fa9c1d2-0000"


def test_the_reports_pod_meets_the_restricted_level() -> None:
    made = a_pod()
    spec, worker = made["spec"], made["spec"]["containers"][0]
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["seccompProfile"]
    security = worker["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]} and not security["allowPrivilegeEscalation"]
    assert security["readOnlyRootFilesystem"] and set(worker["resources"]) == {"requests", "limits"}


def volume(made: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in made["spec"]["volumes"] if one["name"] == name)


def test_the_worker_reads_what_the_pod_is_told(tmp_path: Path) -> None:
    """The pod's variables are a step that the worker takes."""
    from combee.pod.environment import RUN_FILE, read_pod
    from combee.pod.report import PLANS_FOLDER

    made = a_pod()
    worker = made["spec"]["containers"][0]
    env = {one["name"]: one["value"].replace("$$", "$") for one in worker["env"] if "value" in one}
    run = next(iter(parse_runs((EXAMPLES / "quickstart.yaml").read_text().split("\n---\n")[1], "x")))
    file = tmp_path / RUN_FILE.lstrip("/")
    file.parent.mkdir(parents=True)
    meta = {"name": run.name, "namespace": "team-a", "uid": "3fa9c1d2-0000"}
    file.write_text(
        json.dumps(
            {"apiVersion": run.api_version, "kind": run.kind, "metadata": meta, "spec": run.spec.dump()}
        )
    )
    pod = read_pod(
        WorkerSettings(
            tmp_path,
            "INFO",
            env["COMBEE_STEP"],
            0,
            env["COMBEE_STORE"],
            env["COMBEE_ENGINES"],
            "",
            "",
        )
    )
    assert pod.step.kind == "report" and Memory.from_status(pod.step.params["state"]) == Memory()
    assert set(pod.engines) == {"main"} and pod.settings.store == "/store"
    mounts = {mount["name"]: mount["mountPath"] for mount in worker["volumeMounts"]}
    assert mounts["plans"] == PLANS_FOLDER


def test_a_pod_that_is_being_made_when_the_command_is_stopped_is_deleted() -> None:
    """The cluster makes what it was asked for, whether or not anybody waits for the answer."""
    done: list[str] = []
    asked, answer = asyncio.Event(), asyncio.Event()

    class Api:
        async def list(self, *_: Any, **__: Any) -> list[Any]:
            return []

        async def create(self, body: dict[str, Any]) -> dict[str, Any]:
            asked.set()
            await answer.wait()
            done.append("made")
            return body

        async def delete(self, *_: Any, **__: Any) -> bool:
            done.append("deleted")
            return True

    async def stopped() -> None:
        here = Here(Api(), "team-a", Place())  # type: ignore[arg-type]
        fetching = asyncio.create_task(_fetched(here, a_pod(), 10.0))
        await asked.wait()
        fetching.cancel()
        await asyncio.sleep(0)  # its turn to hear of it
        answer.set()
        with pytest.raises(asyncio.CancelledError):
            await fetching

    asyncio.run(stopped())
    assert done == ["made", "deleted"]


@pytest.mark.parametrize(
    ("name", "files", "store", "fetched"),
    [
        ("quickstart", None, "", True),
        ("quickstart", None, "s3://bucket/prefix", True),
        ("out/run", None, "", False),
        ("./quickstart", None, "", False),
        ("quickstart", {}, "", True),
        ("quickstart", {"letter.txt": ""}, "", False),
        ("quickstart", {"run.json": ""}, "", False),
        ("quickstart", {"run.json": "", "result.json": '{"outcome": "Stopped"}'}, "", False),
        ("quickstart", {"result.json": '{"outcome": "Learned"}'}, "", True),
        ("quickstart", {"result.json": '{"outcome": "Learned"}'}, "copy", False),
        ("quickstart", {"result.json": '{"outcome": "Learned"}', "store/memo/a": ""}, "", False),
        ("quickstart", {"result.json": '{"outcome": "Stopped"}', "store/memo/a": ""}, "", True),
        ("quickstart", {"result.json": "[", "store/memo/a": ""}, "", True),
    ],
)
def test_a_record_that_is_not_here_is_fetched(
    name: str,
    files: dict[str, str] | None,
    store: str,
    fetched: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A folder that has all of it stays as it is, and what a laptop's run left is never replaced."""
    monkeypatch.chdir(tmp_path)
    asked: list[tuple[str, Path, str]] = []

    def fetch(name: str, out: Path, place: Place, *, store: str, **_: Any) -> int:
        asked.append((name, out, store))
        return 0

    monkeypatch.setattr(report, "fetch_record", fetch)
    for file, text in (files or {}).items():
        (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name / file).write_text(text)
    if files == {}:
        (tmp_path / name).mkdir()
    assert record_folder(name, store, Place(), wait_seconds=1, as_json=False) == Path(name)
    assert asked == ([(name, Path(name), store)] if fetched else [])


@pytest.mark.parametrize("there", [False, True])
def test_who_meant_a_folder_is_told_that_there_is_none(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "fetch_record", lambda *_, **__: 2)
    if there:
        Path("out").mkdir()
    with pytest.raises(Exit):
        record_folder("out", "", Place(), wait_seconds=1, as_json=False)
    assert (f"nor is there a folder out in {tmp_path}" in capsys.readouterr().err) != there
