"""A Kubernetes without machines: etcd, API server, controllers and scheduler as processes, and kwok, which
says that pods run. On ports of its own, beside any other cluster; nothing of it is left when the block ends.

The programs are those that `make cluster` builds; `eval "$(make -s cluster-env)"` puts them on PATH.
"""

from __future__ import annotations

import json
import secrets
import shutil
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.ports import free_ports

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")
CONTROLLERS = "job-controller,garbage-collector-controller"
READY_SECONDS = 90.0
NODE_PODS = 2_000


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """One that is up."""

    kubeconfig: Path

    def kubectl(self, *arguments: str, stdin: Any = None) -> str:
        """What kubectl printed; RuntimeError with what it complained of."""
        text = None if stdin is None else stdin if isinstance(stdin, str) else json.dumps(stdin)
        done = subprocess.run(
            ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)[:200]}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        """Send a merge patch without starting kubectl, which takes a third of a second. Raises OSError when
        it is refused."""
        config = json.loads(self.kubeconfig.read_text())
        token = config["users"][0]["user"]["token"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
        server = config["clusters"][0]["cluster"]["server"]
        asked = urllib.request.Request(server + path, json.dumps(body).encode(), headers, method="PATCH")
        # Its certificate is made anew each time, and signed by nobody.
        with urllib.request.urlopen(asked, timeout=60, context=ssl._create_unverified_context()) as answer:
            answer.read()

    def create(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """Make objects in one go."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("create", "-f", "-", stdin=listed)


def missing() -> list[str]:
    """Programs that are not on PATH."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


@contextmanager
def control_plane(folder: Path, *, nodes: int) -> Iterator[ControlPlane]:
    """Up, with so many pretended nodes, for as long as the block."""
    etcd, peer, api, kwok = free_ports(4)
    config = folder / "admin.conf"
    token = secrets.token_hex(16)
    _write_files(folder, config, api, token)
    with ExitStack() as parts:
        run = _Starter(parts, folder)
        run("etcd", f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync", *_etcd_ports(etcd, peer))
        run("kube-apiserver", *_api_flags(folder, etcd, api))
        up = ControlPlane(config)
        _until_ready(up, run)
        fast = ("--kube-api-qps=2000", "--kube-api-burst=4000", "--leader-elect=false", "--secure-port=0")
        run(
            "kube-controller-manager",
            f"--kubeconfig={config}",
            f"--controllers={CONTROLLERS}",
            "--concurrent-job-syncs=10",
            *fast,
        )
        run("kube-scheduler", f"--kubeconfig={config}", *fast)
        up.create([_node(index) for index in range(nodes)])
        for index in range(nodes):
            up.kubectl(
                "patch", "node", _node_name(index), "--subresource=status", "--type=merge", "-p", _NODE_STATUS
            )
        run(
            "kwok",
            f"--kubeconfig={config}",
            f"--config={folder / 'stages.yaml'}",
            "--manage-all-nodes",
            f"--server-address=127.0.0.1:{kwok}",
            "--node-lease-duration-seconds=0",
        )
        yield up


@dataclass(slots=True)
class _Starter:
    """Starts parts; each is killed when the stack ends, and its log is beside the others."""

    parts: ExitStack
    folder: Path

    def __call__(self, name: str, *flags: str) -> None:
        log = (self.folder / f"{name}.log").open("wb")
        process = subprocess.Popen([name, *flags], stdout=log, stderr=subprocess.STDOUT, cwd=self.folder)
        self.parts.callback(log.close)
        self.parts.callback(_end, process)

    def tail(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _etcd_ports(client: int, peer: int) -> list[str]:
    at, among = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    return [
        f"--listen-client-urls={at}",
        f"--advertise-client-urls={at}",
        f"--listen-peer-urls={among}",
        f"--initial-advertise-peer-urls={among}",
        f"--initial-cluster=default={among}",
        "--quota-backend-bytes=8589934592",
    ]


def _api_flags(folder: Path, etcd: int, port: int) -> list[str]:
    key = folder / "accounts.key"
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={folder / 'certificates'}",
        "--service-cluster-ip-range=10.97.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        # Nobody makes the default accounts here, and nobody takes the taint off new nodes.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
    ]


def _write_files(folder: Path, config: Path, port: int, token: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["openssl", "genrsa", "-out", str(folder / "accounts.key"), "2048"], check=True, capture_output=True
    )
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    (folder / "stages.yaml").write_text(_STAGES)
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
                "users": [{"name": "admin", "user": {"token": token}}],
                "clusters": [
                    {
                        "name": "here",
                        "cluster": {
                            "server": f"https://127.0.0.1:{port}",
                            "insecure-skip-tls-verify": True,
                        },
                    }
                ],
            }
        )
    )


def _until_ready(up: ControlPlane, run: _Starter) -> None:
    end = time.monotonic() + READY_SECONDS
    while True:
        try:
            up.kubectl("get", "--raw", "/readyz")
            return
        except RuntimeError as error:
            if time.monotonic() > end:
                raise RuntimeError(f"{error}\n{run.tail('kube-apiserver')}") from None
        time.sleep(0.3)


def _node_name(index: int) -> str:
    return f"pretended-{index:03d}"


def _node(index: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _node_name(index)}}


_ROOM = {"cpu": "10k", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": str(NODE_PODS)}
_NODE_STATUS = json.dumps(
    {
        "status": {
            "capacity": _ROOM,
            "allocatable": _ROOM,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Pretended"}],
        }
    }
)
_STAGES = """
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
# Four at once, as it does by itself, are a dozen a second beside a busy API server.
options: {podPlayStageParallelism: 32}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-runs}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
      - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
      - {key: .status.podIP, operator: DoesNotExist}
      # Whoever asks for it says itself how these end.
      - {key: '.metadata.labels["combee.dev/step"]', operator: NotIn, values: [profile]}
  next:
    statusTemplate: |
      phase: Running
      podIP: 10.0.0.1
      startTime: {{ Now | Quote }}
      conditions:
        - {type: Initialized, status: "True"}
        - {type: Ready, status: "True"}
        - {type: ContainersReady, status: "True"}
      containerStatuses:
        {{ range .spec.containers }}
        - name: {{ .name | Quote }}
          image: {{ .image | Quote }}
          imageID: ""
          ready: true
          started: true
          restartCount: 0
          state: {running: {startedAt: {{ Now | Quote }}}}
        {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-goes}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
      - {key: .metadata.deletionTimestamp, operator: Exists}
  next:
    finalizers: {empty: true}
    delete: true
"""
