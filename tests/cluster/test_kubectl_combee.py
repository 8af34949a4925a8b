"""`kubectl combee` on a real cluster: a finished run, runs in trouble, and people without rights."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import REPOSITORY, Cluster, eventually, restricted_pod, sharing
from laptop import learn
from runs import Runs, operating, quickstart, short

from combee.cli.cluster import report
from combee.cli.cluster.pods import begun, log_lines
from combee.clients.kubernetes.kube import Kube

sys.path.insert(0, str(REPOSITORY / "tests" / "e2e"))
from e2e_support import COMBEE, environment

from warm import run_program

pytestmark = pytest.mark.timeout(900)
Combee = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def finished(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """A short quickstart, learned by the real operator, which is stopped since."""
    name = f"test-kc-{os.getpid()}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.kubectl(
        "create",
        "-f",
        "-",
        stdin={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
    )
    runs = Runs(cluster, name)
    with sharing(), operating(cluster, name, tmp_path_factory.mktemp("operator") / "operator.log"):
        runs.apply(short)
        status = runs.ended()
    assert status["phase"] == "Learned", status["message"]
    yield runs
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def environment_of(cluster: Cluster, **more: str) -> dict[str, str]:
    return {**environment(), **cluster.environment, "COLUMNS": "100", **more}


def combee(
    cluster: Cluster, *words: str, cwd: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """``combee`` as somebody with the cluster's configuration runs it."""
    return run_program(["combee", *words], environment_of(cluster, **more), cwd, seconds=400)


@pytest.fixture
def here(cluster: Cluster, namespace: str) -> Combee:
    """In the test's own namespace, where no operator is."""
    return lambda *words, **more: combee(cluster, *words, "-n", namespace, **more)


@pytest.fixture
def there(finished: Runs) -> Combee:
    """Where the finished run is."""
    return lambda *words, **more: combee(finished.cluster, *words, "-n", finished.namespace, **more)


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a refusal."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_status_of_a_finished_run(there: Combee, finished: Runs) -> None:
    status = finished.status()
    done = there("status", "quickstart")
    assert done.returncode == 0, done.stderr
    assert f"quickstart · {finished.namespace} · Learned" in done.stdout
    assert f"{status['heldOut']['best']:.3f} best" in done.stdout
    assert f"ConfigMap {status['published']}" in done.stdout
    assert f"Next: kubectl combee playbook quickstart -n {finished.namespace}" in done.stdout
    shown = json.loads(there("status", "quickstart", "-o", "json").stdout)
    assert shown["status"]["bestDigest"] == status["bestDigest"] and "state" not in shown["status"]
    table = there("status").stdout
    assert table.splitlines()[0].split()[:3] == ["NAME", "STATE", "ITERATION"]
    assert "quickstart" in table and "Learned" in table


def test_playbook_is_the_published_one(there: Combee, finished: Runs) -> None:
    assert there("playbook", "quickstart").stdout.rstrip("\n") == finished.playbook().rstrip("\n")


def test_report_is_what_a_laptop_would_have_written(there: Combee, finished: Runs, tmp_path: Path) -> None:
    out = tmp_path / "fetched"
    done = there("report", "quickstart", "-o", str(out))
    assert done.returncode == 0, done.stderr
    status, result = finished.status(), json.loads((out / "result.json").read_text())
    assert result["outcome"] == "Learned" and result["reason"] == status["message"]
    assert result["heldOut"]["gate"]["best"] == status["gate"]["best"]
    # A pod that began anew finds answers in the memo: result.json counts them among its calls, a status
    # beside them.
    used, told = result["usage"]["task"], status["usage"]["task"]
    assert (used["calls"] - used["hits"], used["hits"]) == (told["calls"], told.get("hits", 0))
    assert result["models"]["task"]["simulated"] and result["models"]["proposer"]["simulated"]
    assert result["data"]["train"] == {"rows": 120, "digest": status["pinned"]["dataDigests"]["train"]}
    assert len(result["iterations"]) == status["iteration"] == len(list((out / "plans").iterdir()))
    kinds = {path.name.split("-")[-2] for path in (out / "steps").iterdir()}
    assert kinds == {"profile", "map", "reduce", "finish", "evaluate"}
    assert (out / "report.html").read_text().casefold().startswith("<!doctype html>")
    eventually("the pod is gone", lambda: not report_pods(finished))
    learn(out / "plans", tmp_path, short)
    laptop = tmp_path / "out"
    assert (laptop / "lessons.md").read_text() == (out / "lessons.md").read_text()
    assert (laptop / "prompt.md").read_text() == (out / "prompt.md").read_text() == finished.playbook()
    ours = json.loads((laptop / "result.json").read_text())
    assert ours["entries"] == result["entries"] and ours["heldOut"] == result["heldOut"]


def test_a_run_is_replayed_and_audited_by_its_name(there: Combee, finished: Runs, tmp_path: Path) -> None:
    """A pod prints the record and the answers, which only pods can read; then this machine does the rest."""
    run = finished.cluster.get("plr", "quickstart", namespace=finished.namespace)
    kept = {"name": "quickstart"}
    body = {"apiVersion": run["apiVersion"], "kind": run["kind"], "metadata": kept, "spec": run["spec"]}
    manifest = tmp_path / "run.yaml"
    manifest.write_text(json.dumps(body))
    rows = next(one for one in quickstart() if one["kind"] == "ConfigMap")["data"]
    data: list[str] = []
    for split, name in (("train", "train.jsonl"), ("heldOut", "heldout.jsonl")):
        (tmp_path / name).write_text(rows[name])
        data += ["--data", f"{split}={tmp_path / name}"]
    there = functools.partial(there, cwd=tmp_path)
    done = there("replay", "quickstart", "-f", str(manifest), *data)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the run of that name is fetched" in done.stderr and "identical: every plan" in done.stdout
    assert (tmp_path / "quickstart" / "store" / "memo").is_dir()
    eventually("the pod is gone", lambda: not report_pods(finished))
    # What is there is not fetched again.
    cost = there("audit", "quickstart", "-f", str(manifest), *data, KUBECONFIG="/nonexistent")
    assert cost.returncode == 0 and "is fetched" not in cost.stderr, cost.stdout + cost.stderr
    assert "together" in cost.stdout


def report_pods(runs: Runs) -> list[str]:
    labels = "app.kubernetes.io/component=report"
    found = runs.cluster.get("pods", "-l", labels, namespace=runs.namespace)["items"]
    return [pod["metadata"]["name"] for pod in found]


def test_results_larger_than_the_log_that_a_node_keeps_arrive_whole(
    cluster: Cluster, kubectl: Callable[..., str], namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node rotates a log at 10 MiB. It tells of that whoever has read to the end once: so the rest waits
    until the first line has been read."""
    made = """
        import pathlib, random, time
        from combee.report.bundle import packed
        print("begun", flush=True)
        while not pathlib.Path("/tmp/read").exists():
            time.sleep(0.1)
        for line in packed({"result.json": random.Random(1).randbytes(20 << 20)}):
            print(line)
    """
    image, command = cluster.image("worker"), ["python", "-c", textwrap.dedent(made)]
    pod = restricted_pod("large", image, command)
    pod["spec"]["containers"][0]["name"] = "worker"
    pod["metadata"]["namespace"] = namespace
    kubectl("create", "-f", "-", stdin=pod)
    monkeypatch.setenv("KUBECONFIG", cluster.environment["KUBECONFIG"])

    async def go_on_once_read(kube: Kube, pod: Any, *, follow: bool = False) -> AsyncIterator[str]:
        async for line in log_lines(kube, pod, follow=follow):
            if line == "begun":
                await asyncio.to_thread(kubectl, "exec", "large", "--", "touch", "/tmp/read")
            yield line

    monkeypatch.setattr(report, "log_lines", go_on_once_read)

    async def read() -> dict[str, bytes]:
        kube = await Kube.connect()
        try:
            assert await begun(kube, pod, 0.5)
            return await report._read(kube, pod)
        finally:
            await kube.aclose()

    assert asyncio.run(read()) == {"result.json": random.Random(1).randbytes(20 << 20)}


def stopped_report(finished: Runs, out: Path, number: int) -> subprocess.CompletedProcess[str]:
    """A report that gets a signal as soon as its pod is made."""
    eventually("no pod is left of earlier ones", lambda: not report_pods(finished))
    command = [*COMBEE, "report", "quickstart", "-o", str(out), "-n", finished.namespace]
    env = environment_of(finished.cluster)
    running = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    before = ""
    while "reads the store" not in before:
        line = running.stderr.readline()
        assert line, before
        before += line
    running.send_signal(number)
    said, last = running.communicate(timeout=240)
    return subprocess.CompletedProcess(command, running.returncode, said, before + last)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_report_that_is_stopped_leaves_no_pod(finished: Runs, tmp_path: Path, number: int) -> None:
    # On a machine that stands still for as long as the pod works, the signal comes too late.
    for turn in range(5):
        out = tmp_path / f"out{turn}"
        done = stopped_report(finished, out, number)
        if done.returncode != 0:
            break
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists()
    eventually("no pod is left", lambda: not report_pods(finished))


def test_report_refuses_a_folder_with_something_else(there: Combee, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    assert "not a run's results" in refused(there("report", "quickstart", "-o", str(tmp_path)))


def test_logs_of_a_finished_run(there: Combee) -> None:
    last = there("logs", "quickstart")
    assert last.returncode == 0 and last.stderr.startswith("publish (done)"), last.stderr
    assert "published quickstart-" in last.stdout
    shard = there("logs", "quickstart", "--step", "map", "--iteration", "1", "--shard", "1", "--raw")
    lines = [json.loads(line) for line in shard.stdout.splitlines()]
    assert lines and {line["shard"] for line in lines} == {1} and {line["iteration"] for line in lines} == {0}
    both = there("logs", "quickstart", "--step", "map", "--follow").stdout.splitlines()
    assert {line[:3] for line in both} == {"[0]", "[1]"}
    assert "no map of iteration 99" in refused(
        there("logs", "quickstart", "--step", "map", "--iteration", "99")
    )
    assert "no shard 7" in refused(there("logs", "quickstart", "--step", "map", "--shard", "7"))


def test_a_run_that_is_over_is_neither_suspended_nor_wrong(there: Combee) -> None:
    assert "over (Learned)" in refused(there("suspend", "quickstart"))
    assert "over (Learned)" in refused(there("resume", "quickstart"))
    assert "nothing is wrong: it is over (Learned)" in there("why", "quickstart").stdout


def test_preview_of_a_run_on_the_cluster(there: Combee) -> None:
    shown = there("preview", "quickstart")
    assert shown.returncode == 0, shown.stderr
    assert "100 rows select, 100 rows gate" in shown.stdout
    assert "Next: kubectl combee status quickstart" in shown.stdout


def apply_run(cluster: Cluster, namespace: str, **status: Any) -> dict[str, Any]:
    """The quickstart's run without an operator, with a status of the test's making."""
    run = next(o for o in quickstart() if o["kind"] == "PromptLearningRun")
    made = json.loads(cluster.kubectl("create", "-f", "-", "-o", "json", namespace=namespace, stdin=run))
    patch_status(cluster, namespace, **status)
    return made


def patch_status(cluster: Cluster, namespace: str, **status: Any) -> None:
    if status:
        patch = ["patch", "plr", "quickstart", "--subresource=status", "--type=merge"]
        cluster.kubectl(*patch, "-p", json.dumps({"status": status}), namespace=namespace)


def condition(type: str, status: str, reason: str, message: str) -> dict[str, Any]:
    at = {"observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"type": type, "status": status, "reason": reason, "message": message, **at}


def test_why_without_an_operator(here: Combee, cluster: Cluster, namespace: str) -> None:
    apply_run(cluster, namespace)
    said = here("why", "quickstart").stdout
    assert "no operator has looked at it" in said and f"watch the namespace {namespace}?" in " ".join(
        said.split()
    )
    assert "has not begun" in refused(here("report", "quickstart", "-o", "nowhere"))
    assert not Path("nowhere").exists()
    assert "the run is not over (Pending)" in refused(here("playbook", "quickstart"))
    assert "no step on the cluster" in refused(here("logs", "quickstart"))


def step_job(run: dict[str, Any], kind: str, image: str, command: list[str]) -> dict[str, Any]:
    """A Job as the operator labels those of a step, whose pod does what the test wants."""
    meta = run["metadata"]
    labels = {
        "combee.dev/run": meta["name"],
        "combee.dev/run-uid": meta["uid"],
        "combee.dev/step": kind,
        "combee.dev/iteration": "2",
        "combee.dev/attempt": "0",
    }
    pod = restricted_pod("x", image, command)
    pod["spec"]["containers"][0]["name"] = "worker"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{meta['name']}-{meta['uid'][:8]}-i002-{kind}-a0", "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": 1,
            "backoffLimitPerIndex": 0,
            "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
        },
    }


def test_why_a_pod_does_not_start(here: Combee, cluster: Cluster, namespace: str) -> None:
    run = apply_run(
        cluster,
        namespace,
        observedGeneration=1,
        phase="Learning",
        startTime="2026-01-01T00:00:00Z",
        message="iteration 3",
        conditions=[condition("PodsPlaced", "False", "ImagePullFailed", "the image cannot be pulled")],
    )
    cluster.kubectl(
        "create", "-f", "-", namespace=namespace, stdin=step_job(run, "map", "localhost/nowhere:1", ["true"])
    )

    def said() -> str | None:
        text = " ".join(here("why", "quickstart").stdout.split())
        return text if "map step:" in text and "cannot be pulled (" in text else None

    text = eventually("it says why", said, seconds=180, every=0.5)
    assert "ImagePullFailed: the image cannot be pulled" in text and "imagePullSecrets" in text
    assert "localhost/nowhere:1" in text
    shown = here("status", "quickstart").stdout
    assert "trouble" in shown and "PodsPlaced=False ImagePullFailed" in shown


def test_last_words_of_a_step_that_failed(here: Combee, cluster: Cluster, namespace: str) -> None:
    failed = condition("Failed", "True", "TooManyFailures", "step reduce failed 3 times")
    stalled = condition("Stalled", "True", "TooManyFailures", "step reduce failed 3 times")
    run = apply_run(
        cluster,
        namespace,
        observedGeneration=1,
        phase="Failed",
        startTime="2026-01-01T00:00:00Z",
        completionTime="2026-01-01T00:01:00Z",
        message="step reduce failed 3 times",
        conditions=[failed, stalled],
    )
    line = json.dumps({"time": "2026-01-01T00:00:59Z", "level": "error", "message": "the store is full"})
    program = f"import sys; print({line!r}, file=sys.stderr); sys.exit(1)"
    job = step_job(run, "reduce", cluster.image("worker"), ["python", "-c", program])
    cluster.kubectl("create", "-f", "-", namespace=namespace, stdin=job)
    # The Job fails some time after its pod.
    name = f"job/{job['metadata']['name']}"
    cluster.kubectl("wait", "--for=condition=Failed", "--timeout=180s", name, namespace=namespace)
    text = here("why", "quickstart").stdout
    assert (
        "the store is full" in text
        and "last words" in text
        and "TooManyFailures: step reduce failed 3 times" in text
    )
    assert f"Next: kubectl combee logs quickstart -n {namespace}" in text
    logs = here("logs", "quickstart")
    assert "error    the store is full" in logs.stdout and "reduce (iteration 3, failed)" in logs.stderr


def test_suspend_and_resume_change_one_field(here: Combee, cluster: Cluster, namespace: str) -> None:
    apply_run(cluster, namespace, phase="Learning", observedGeneration=1, startTime="2026-01-01T00:00:00Z")
    suspended = lambda: cluster.get("plr", "quickstart", namespace=namespace)["spec"]["suspend"]  # noqa: E731
    done = here("suspend", "quickstart")
    assert done.returncode == 0 and suspended() is True, done.stderr
    assert f"kubectl combee resume quickstart -n {namespace}" in done.stdout
    assert "suspended already" in here("suspend", "quickstart").stdout
    assert "goes on at iteration 1" in here("resume", "quickstart").stdout and suspended() is False


def test_watch_ends_with_the_run(cluster: Cluster, here: Combee, namespace: str) -> None:
    apply_run(cluster, namespace, phase="Learning", observedGeneration=1, message="iteration 1")
    command = [*COMBEE, "status", "quickstart", "--watch", "-n", namespace]
    env = environment_of(cluster)
    watching = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    assert "Learning" in watching.stdout.readline()
    patch_status(cluster, namespace, phase="NothingBetter", message="nothing better")
    out, _ = watching.communicate(timeout=240)
    assert watching.returncode == 0
    assert out.splitlines()[-1] == "quickstart · NothingBetter · - · nothing better"


def test_no_such_run_lists_those_there(here: Combee, cluster: Cluster, namespace: str) -> None:
    assert f"no run 'x' in the namespace {namespace}. There is none" in refused(here("status", "x"))
    apply_run(cluster, namespace)
    for words in (("status", "x"), ("why", "x"), ("logs", "x"), ("playbook", "x"), ("suspend", "x")):
        assert "There are: quickstart" in refused(here(*words))


def test_without_rights_the_verb_and_the_resource_are_named(
    here: Combee, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    apply_run(cluster, namespace, phase="Learning", observedGeneration=1, startTime="2026-01-01T00:00:00Z")
    cluster.kubectl("create", "serviceaccount", "guest", namespace=namespace)
    guest = kubeconfig(cluster, namespace, tmp_path / "guest")
    said = refused(here("status", "quickstart", KUBECONFIG=str(guest)))
    assert "guest may not get promptlearningruns in the namespace" in said
    role = ("--verb=get,list", "--resource=promptlearningruns.combee.dev")
    cluster.kubectl("create", "role", "looks", *role, namespace=namespace)
    cluster.kubectl(
        "create",
        "rolebinding",
        "looks",
        "--role=looks",
        f"--serviceaccount={namespace}:guest",
        namespace=namespace,
    )
    eventually("it may look", lambda: here("status", "quickstart", KUBECONFIG=str(guest)).returncode == 0)
    assert "may not patch promptlearningruns" in refused(here("suspend", "quickstart", KUBECONFIG=str(guest)))
    assert "may not list jobs" in refused(here("logs", "quickstart", KUBECONFIG=str(guest)))
    patch_status(cluster, namespace, pinned={"image": cluster.image("worker")})
    said = refused(here("report", "quickstart", "-o", str(tmp_path / "out"), KUBECONFIG=str(guest)))
    assert "may not list configmaps" in said and not (tmp_path / "out").exists()


def kubeconfig(cluster: Cluster, namespace: str, path: Path) -> Path:
    """A configuration whose user is the account ``guest``."""
    token = cluster.kubectl("create", "token", "guest", namespace=namespace).strip()
    config = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    config["users"] = [{"name": "guest", "user": {"token": token}}]
    config["contexts"][0]["context"]["user"] = "guest"
    authority = config["clusters"][0]["cluster"]
    if file := authority.pop("certificate-authority", None):
        authority["certificate-authority-data"] = base64.b64encode(Path(file).read_bytes()).decode()
    path.write_text(json.dumps(config))
    return path


def test_no_cluster_is_one_line(cluster: Cluster, tmp_path: Path) -> None:
    missing = combee(cluster, "status", KUBECONFIG=str(tmp_path / "none"))
    assert "no cluster is configured" in refused(missing)
    nobody = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "current-context": "c",
    }
    (tmp_path / "config").write_text(json.dumps(nobody))
    away = combee(cluster, "status", KUBECONFIG=str(tmp_path / "config"))
    assert "See whether it is up: kubectl get --raw /readyz" in refused(away)
    wrong = combee(cluster, "status", "--context", "nope", KUBECONFIG=str(tmp_path / "config"))
    assert "no context 'nope'. There are: c" in refused(wrong)
