"""Kill what a run needs at a seeded random moment, on the project's own node, and count repeated calls."""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from cluster_tools import Cluster, eventually
from laptop import blob, locally
from releases import Release
from runs import ENDED, Runs

from waiting import looking

KINDS = ("operator pod", "worker pod", "engine pod", "a whole Job", "containerd", "API server")
PARTS = {"containerd": "containerd", "API server": "apiserver"}
SLOTS = 16
"""Model calls that a run may have in flight."""
AT_ONCE = ("--grace-period=0", "--force")
PAUSE_SECONDS = (2.0, 14.0)
"""between one kill's end and the next kill: a moment that the seed chooses."""
DOWN_SECONDS = (1.0, 8.0)
"""how long a part of the node stays down."""
NOW = (0.0, 0.0)
"""no time between them."""
OPERATOR = "app.kubernetes.io/name=combee-operator"
ENGINE = "combee.dev/engine"
RECORDED_SECONDS = 1.0
"""An answer is on its way, and then being recorded, for so long at most."""
BEGUN_SECONDS = 4.0
"""A busy server begins a request so long after it was sent at most."""
SMALL = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}


@dataclass(frozen=True)
class Kill:
    """One thing that was killed. Times are in seconds since 1970."""

    kind: str
    name: str
    at: float
    bound: int
    """calls that were in flight of what was killed, at most."""
    during: str
    """the step that was at work."""
    pods: frozenset[str] = frozenset()
    """uids of the pods that were killed."""
    seconds: float = 0.0
    """until all was up again."""
    twice: int = 0
    """calls that were answered once more because of it."""
    gone: float = 0.0
    """when the last of its processes was gone: until then it went on."""


@dataclass(frozen=True)
class Answer:
    """One answer of the model. Times are in seconds since 1970."""

    began: float
    at: float
    role: str


@dataclass
class OpenLogs:
    """Logs in a folder, read through files that stay open: those of a pod go with the pod."""

    folder: Path
    pattern: str
    files: dict[Path, IO[str]] = field(default_factory=dict)

    def look(self) -> None:
        """Open the logs that are there since."""
        for path in self.folder.glob(self.pattern):
            if path not in self.files:
                self.files[path] = path.open(errors="replace")

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Look again and again: the servers go when the run is over."""
        try:
            with looking(self.look, 0.3):
                yield
        finally:
            self.look()


class AnswerLog(OpenLogs):
    """What the run's engines answered."""

    def __init__(self, kubelet: Path, name: str) -> None:
        super().__init__(kubelet, f"pods/*/volumes/kubernetes.io~empty-dir/*/{name}")
        self.flag = f"--log=/tmp/{name}"
        """What makes an engine write it, into the scratch volume of its pod."""

    def answers(self) -> dict[str, list[Answer]]:
        """request -> its answers, in order."""
        found: dict[str, list[Answer]] = {}
        for file in self.files.values():
            for request, answer in _answers(file):
                found.setdefault(request, []).append(answer)
        return {request: sorted(given, key=lambda one: one.at) for request, given in found.items()}

    def together(self) -> bool:
        """Whether two servers answered at one time: each called before the other had answered its last."""
        times = [[answer.at for _, answer in _answers(file)] for file in self.files.values()]
        spans = sorted((min(at), max(at)) for at in times if at)
        return any(later[0] < earlier[1] for earlier, later in pairwise(spans))


def _answers(log: IO[str]) -> Iterator[tuple[str, Answer]]:
    """The requests that a server answered. The last line of one that was killed may be cut."""
    log.seek(0)
    for row in (json.loads(line) for line in log if line.endswith("\n")):
        if row["status"] == 200:
            yield row["request"], Answer(row["time"] - row["seconds"], row["time"], row["role"])


def _in_flight(answer: Answer, kill: Kill) -> bool:
    sent = answer.began - BEGUN_SECONDS
    return sent <= max(kill.at, kill.gone) and kill.at <= answer.at + RECORDED_SECONDS


def charged(kills: Sequence[Kill], answers: Mapping[str, list[Answer]]) -> tuple[list[Kill], list[str]]:
    """The kills with the calls that were answered again, each charged to the first kill with room for it that
    it may have been in flight at; and those calls, in words, that were in flight at none."""
    counts, others = [0] * len(kills), list[str]()
    lost = [(one, key, given[-1]) for key, given in answers.items() for one in given[:-1]]
    for one, request, again in sorted(lost, key=lambda row: row[0].at):
        at = [k for k, kill in enumerate(kills) if _in_flight(one, kill)]
        if at:
            counts[min(at, key=lambda k: (counts[k] >= kills[k].bound, k))] += 1
        else:
            others.append(f"{one.role} {request[:12]} at {one.at:.1f}, again at {again.at:.1f}")
    return [replace(kill, twice=count) for kill, count in zip(kills, counts, strict=True)], others


def processes(pods: Collection[str]) -> set[Path]:
    """What runs in pods of this machine's own node, by their uids."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            groups = (process / "cgroup").read_text()
            # What holds a pod's network stays a little longer, until the pod is taken apart.
            if any(uid in groups for uid in pods) and b"combee" in (process / "cmdline").read_bytes():
                found.add(process)
    return found


def alive(process: Path) -> bool:
    """Whether a process is still there, and no zombie."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def answer_log(cluster: Cluster, name: str) -> AnswerLog:
    """The log of the engines of one run on this machine's own node."""
    return AnswerLog(Path(cluster.part("log", "kubelet").strip()).parents[1] / "kubelet", f"{name}.jsonl")


@contextmanager
def released(cluster: Cluster, namespace: str) -> Iterator[Release]:
    """The chart, serving one namespace and nothing else of the cluster."""
    release = Release(cluster, namespace)
    off = {"install": False}
    try:
        release.install(
            {
                "namespaces": [namespace],
                "crds": off,
                "admissionPolicy": off,
                "userRoles": {"create": False},
                "operator": {"resources": SMALL},
                "engineImages": ["localhost/combee-sim"],
                "engineArguments": ["--time-scale", "--log"],
                "store": {"create": False},
            }
        )
        yield release
    finally:
        release.uninstall()


MODELS = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "models"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}},
}


def small_run(cluster: Cluster, engine_flag: str) -> Callable[[dict[str, Any]], None]:
    """Change the quickstart: three iterations, no call asked twice by choice, and two servers of weights
    that come from an image."""
    source = {"image": {"reference": cluster.image("sim"), "path": "weights"}}

    def change(run: dict[str, Any]) -> None:
        spec = run["spec"]
        spec["engines"][0]["vllm"] |= {
            "args": ["--time-scale=0.5", engine_flag],
            "replicas": 2,
            "modelCache": {"claimName": MODELS["metadata"]["name"], "source": source},
        }
        spec["batching"] = {"mode": "Fixed", "size": 40, "reason": "three iterations"}
        spec["workers"] = {"parallelism": 2, "concurrency": SLOTS, "hedgeBudget": 0}

    return change


@dataclass(frozen=True)
class Round:
    """One run that was learned to its end though things were killed on the way."""

    kills: list[Kill]
    others: list[str]
    """calls that were answered twice though nothing was killed while they were in flight."""
    message: str
    digest: str
    """sha256 of the playbook that was published."""
    began: float
    """when the run was applied, in seconds since 1970."""
    same: bool
    """whether ``combee run --plans`` learned the very same from the run's plans."""
    answers: int
    """different calls that were answered."""
    together: bool
    """whether two servers answered at one time."""


def survive(
    cluster: Cluster,
    namespace: str,
    folder: Path,
    seed: int,
    kinds: Sequence[str],
    pause_seconds: tuple[float, float] = PAUSE_SECONDS,
) -> Round:
    """Learn while one thing of each of ``kinds`` is killed; ``seed`` chooses the order and the pauses."""
    chance = random.Random(seed)
    order = chance.sample(list(kinds), len(kinds))
    runs, log = Runs(cluster, namespace), answer_log(cluster, namespace)
    change = small_run(cluster, log.flag)
    with released(cluster, namespace), log.kept():
        cluster.reader.apply([MODELS], namespace)
        runs.apply(change)
        began = time.time()
        killer = Killer(runs, chance, pause_seconds)
        killed = [killer.kill(kind) for kind in order]
        status = runs.ended()
        kills = [kill for kill in killed if kill is not None]
        eventually("the servers are taken down", lambda: not _pods(runs, ENGINE), seconds=120)
    assert status["phase"] == "Learned", status["message"]
    playbook, answers = runs.playbook(), log.answers()
    locally(runs, folder, change)
    return Round(
        *charged(kills, answers),
        status["message"],
        hashlib.sha256(playbook.encode()).hexdigest(),
        began,
        blob(folder, playbook).exists(),
        len(answers),
        log.together(),
    )


@dataclass
class Killer:
    """Kills one thing after the other."""

    runs: Runs
    chance: random.Random
    pause_seconds: tuple[float, float] = PAUSE_SECONDS
    log: Callable[[str], None] = print

    def kill(self, kind: str) -> Kill | None:
        """Wait for a random while, kill one of ``kind`` and wait until all is up again; None when the run is
        over before."""
        time.sleep(self.chance.uniform(*self.pause_seconds))
        victim = eventually(f"there is a {kind} to kill", lambda: self._victim(kind), seconds=150)
        if victim is None or isinstance(victim, str):
            return None
        killed = replace(victim, at=time.time())
        self._do(killed)
        killed = replace(killed, gone=time.time())
        self._until_up(kind)
        killed = replace(killed, seconds=time.time() - killed.at)
        self.log(
            f"broke: {killed.kind} {killed.name} during {killed.during}; up again in {killed.seconds:.0f} s"
        )
        return killed

    def _victim(self, kind: str) -> Kill | str | None:
        """Something of the kind while a step is at work; a word when the run is over."""
        if self._over():
            return "over"
        steps = _pods(self.runs, "combee.dev/step")
        if not steps:
            return None
        pod = self.chance.choice(steps)
        labels, during = pod["metadata"]["labels"], _step(pod)
        job = self.runs.cluster.find("job", labels["job-name"], namespace=self.runs.namespace)
        if job is None:
            return None  # it is gone, and its pod not yet
        share = math.ceil(SLOTS / job["spec"]["completions"])
        if kind == "worker pod":
            return Kill(kind, pod["metadata"]["name"], 0.0, share, during, _uids([pod]))
        if kind == "a whole Job":
            mine = [one for one in steps if one["metadata"]["labels"]["job-name"] == labels["job-name"]]
            return Kill(kind, labels["job-name"], 0.0, SLOTS, during, _uids(mine))
        if kind in PARTS:
            pid = self.runs.cluster.part("pids", PARTS[kind]).split()[0]
            return Kill(kind, f"process {pid}", 0.0, 0, during)
        pods = [one for one in _pods(self.runs, ENGINE if kind == "engine pod" else OPERATOR) if _ready(one)]
        bound = SLOTS if kind == "engine pod" else 0
        if not pods:
            return None
        return Kill(kind, pods[0]["metadata"]["name"], 0.0, bound, during, _uids(pods[:1]))

    def _do(self, kill: Kill) -> None:
        cluster, namespace = self.runs.cluster, self.runs.namespace
        if kill.kind in PARTS:
            cluster.part("kill", PARTS[kill.kind])
            try:
                time.sleep(self.chance.uniform(*DOWN_SECONDS))
            finally:
                cluster.part("start", PARTS[kill.kind])
            return
        working = processes(kill.pods)
        chosen = ("job", kill.name) if kill.kind == "a whole Job" else ("pod", kill.name, *AT_ONCE)
        gone = ("--wait=false", "--ignore-not-found")
        cluster.kubectl("delete", *chosen, *gone, namespace=namespace)
        eventually("they are gone", lambda: not any(map(alive, working)), seconds=120, every=0.1)

    def _until_up(self, kind: str) -> None:
        eventually("the API server and its node are up", self._node_up, seconds=120)
        eventually("the operator is up", lambda: self._up(OPERATOR), seconds=150)
        if kind == "engine pod":
            eventually("an engine is up", lambda: self._up(ENGINE) or self._over(), seconds=150)

    def _node_up(self) -> bool:
        cluster = self.runs.cluster
        if cluster.try_kubectl("get", "--raw", "/readyz", "--request-timeout=5s").returncode:
            return False
        nodes = cluster.get("nodes")["items"]
        return all(_condition(node, "Ready") for node in nodes)

    def _up(self, labels: str) -> bool:
        return any(_ready(pod) for pod in _pods(self.runs, labels))

    def _over(self) -> bool:
        return self.runs.status().get("phase") in ENDED


def _pods(runs: Runs, labels: str) -> list[dict[str, Any]]:
    """The pods that run and are not on their way out."""
    pods = runs.cluster.get("pods", "-l", labels, namespace=runs.namespace)["items"]
    return [
        pod
        for pod in pods
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


def _uids(pods: list[dict[str, Any]]) -> frozenset[str]:
    return frozenset(pod["metadata"]["uid"] for pod in pods)


def _ready(pod: dict[str, Any]) -> bool:
    return _condition(pod, "Ready")


def _condition(of: dict[str, Any], name: str) -> bool:
    return {c["type"]: c["status"] for c in of["status"].get("conditions", ())}.get(name) == "True"


def _step(pod: dict[str, Any]) -> str:
    labels = pod["metadata"]["labels"]
    return f"{labels['combee.dev/step']} of iteration {labels['combee.dev/iteration']}"
