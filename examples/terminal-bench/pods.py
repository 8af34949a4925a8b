"""The environment of a task is a pod of the task's image, started and reached by kubectl.

It needs Python, and a kubectl that may create, get, list and delete pods and run commands in them.
serve.py uses it for rollouts that learn, kubernetes_environment.py for harbor.
"""

import json
import re
import secrets
import shlex
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import PurePosixPath

CONTAINER = "environment"
LABEL = "terminal-bench-environment"
FOLDERS = ("/logs", "/tests", "/solution")
"""Harbor's folders in an environment, which everybody in it may write."""
READY_SECONDS = 1200
"""How long an image may take to be pulled, and a place to be found."""
LOOK_SECONDS = 0.5
KUBECTL_SECONDS, TRANSFER_SECONDS = 60, 600
HOPELESS = (
    "InvalidImageName",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)
"""Why a container waits that will not start; a missing image shows as a back-off after a first try."""
TIMED_OUT = 124
"""The exit code of a command that was ended at its timeout, as the program timeout has it."""
RESTRICTED = {
    "pod": {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001},
    "container": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
"""What the Pod Security Standard "restricted" asks for; most tasks install packages, and need to be root."""


class PodError(Exception):
    """A pod did not start, or kubectl failed."""


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True)
class Pods:
    """Pods of one namespace. ``flags``: flags of kubectl, such as --context."""

    namespace: str
    restricted: bool = False
    flags: tuple[str, ...] = ()
    seconds: int = 24 * 3600
    """The longest that a pod lives where nobody deletes it."""
    resources: dict = field(default_factory=dict)

    def kubectl(self, *words: str, given: bytes = b"", seconds: float = KUBECTL_SECONDS) -> Ran:
        """Run kubectl."""
        command = ["kubectl", *self.flags, "--namespace", self.namespace, *words]
        try:
            done = subprocess.run(command, input=given, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired as late:
            return Ran(TIMED_OUT, late.stdout or b"", b"kubectl did not end in time\n" + (late.stderr or b""))
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, name: str, image: str, env: dict[str, str] | None = None) -> None:
        """Start a pod, and wait until commands can be run in it. Raises PodError."""
        pod = json.dumps(self.manifest(name, image, env or {})).encode()
        made = self.kubectl("create", "-f", "-", given=pod)
        if made.code:
            raise PodError(f"the pod {name} was not made: {text(made.stderr)}")
        until = time.monotonic() + READY_SECONDS
        try:
            while not self.ready(name, image):
                if time.monotonic() > until:
                    raise PodError(f"the pod {name} of the image {image} has not started in time")
                time.sleep(LOOK_SECONDS)
        except PodError:
            self.stop(name)
            raise

    def ready(self, name: str, image: str) -> bool:
        """Whether commands can be run in a pod. Raises PodError where that will not be."""
        shown = self.kubectl("get", f"pod/{name}", "-o", "json")
        if shown.code:
            raise PodError(f"the pod {name} is not shown: {text(shown.stderr)}")
        status = json.loads(shown.stdout).get("status", {})
        state = next((one["state"] for one in status.get("containerStatuses", ())), {})
        waits = state.get("waiting", {})
        if waits.get("reason") in HOPELESS or status.get("phase") in ("Failed", "Succeeded"):
            why = waits.get("message") or status.get("message") or state
            raise PodError(f"the pod {name} of the image {image} does not start: {why}")
        return "running" in state

    def manifest(self, name: str, image: str, env: dict[str, str]) -> dict:
        """The pod: of the task's image, without a token, idle until commands are run in it."""
        held = RESTRICTED if self.restricted else {"pod": {}, "container": {}}
        volumes = [folder.strip("/") for folder in FOLDERS]
        container = {
            "name": CONTAINER,
            "image": image,
            "command": ["sh", "-c", "while :; do sleep 3600; done"],
            "env": [{"name": key, "value": value} for key, value in env.items()],
            "resources": self.resources,
            "securityContext": held["container"],
            "volumeMounts": [{"name": one, "mountPath": f"/{one}"} for one in volumes],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/name": LABEL}},
            "spec": {
                "containers": [container],
                "volumes": [{"name": one, "emptyDir": {}} for one in volumes],
                "restartPolicy": "Never",
                "activeDeadlineSeconds": self.seconds,
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, **held["pod"]},
            },
        }

    def run(
        self,
        name: str,
        command: str,
        *,
        seconds: float | None = None,
        user: str | int | None = None,
        most: int | None = None,
    ) -> Ran:
        """Run a command by the image's shell: as ``user`` where the container is root's, else as its own
        user. One that takes longer than ``seconds`` is ended, with exit code 124. Of each output only the
        last ``most`` bytes leave the pod."""
        inner = f'"$(command -v bash || command -v sh)" -c {shlex.quote(command)}'
        if seconds is not None:
            limited = f"timeout -k 5 {seconds:.0f} {inner}"
            inner = f"if command -v timeout >/dev/null; then {limited}; else {inner}; fi"
        if user not in (None, 0, "0", "root"):
            other = f'su -s /bin/sh -c {shlex.quote(inner)} "$(id -un {shlex.quote(str(user))})"'
            inner = f'if [ "$(id -u)" = 0 ]; then {other}; else {inner}; fi'
        # By files: kubectl waits for all that hold its pipes, and a command may leave servers behind.
        show = "cat" if most is None else f"tail -c {most}"
        script = (
            f"said=$(mktemp -d) && {{ {inner}; }} </dev/null >$said/out 2>$said/err; code=$?; "
            f"{show} $said/out; {show} $said/err >&2; rm -rf $said; exit $code"
        )
        return self._exec(name, script, seconds=(seconds or self.seconds) + KUBECTL_SECONDS)

    def _exec(self, name: str, script: str, given: bytes = b"", seconds: float = TRANSFER_SECONDS) -> Ran:
        """Run a script of ours."""
        words = ("exec", *(["-i"] if given else []), name, "-c", CONTAINER, "--", "sh", "-c", script)
        done = self.kubectl(*words, given=given, seconds=seconds)
        # The last line is kubectl's own, and says no more than the exit code.
        said, last = done.stderr.rstrip(b"\n"), f"command terminated with exit code {done.code}".encode()
        return Ran(done.code, done.stdout, said.removesuffix(last) if said.endswith(last) else done.stderr)

    def put(self, name: str, path: str, content: bytes, *, executable: bool = False) -> None:
        """Write a file. Raises PodError."""
        folder, quoted = shlex.quote(str(PurePosixPath(path).parent)), shlex.quote(path)
        # Without content there is no standard input to copy.
        writes = f"cat >{quoted}" if content else f": >{quoted}"
        mode = f" && chmod 755 {quoted}" if executable else ""
        done = self._exec(name, f"mkdir -p {folder} && {writes}{mode}", content)
        if done.code:
            raise PodError(f"{path} was not written: {text(done.stderr)}")

    def get(self, name: str, path: str, *, most: int | None = None) -> bytes | None:
        """Read a file, at most its first ``most`` bytes; None where there is none."""
        show = "cat --" if most is None else f"head -c {most} --"
        done = self._exec(name, f"{show} {shlex.quote(path)}")
        return None if done.code else done.stdout

    def files(self, name: str, folder: str) -> list[str]:
        """The files below a folder, by their paths from it."""
        done = self._exec(name, f"cd {shlex.quote(folder)} && find . -type f -print0")
        if done.code:
            raise PodError(f"{folder} was not read: {text(done.stderr)}")
        return sorted(path.removeprefix("./") for path in text(done.stdout).split("\0") if path)

    def stop(self, name: str) -> None:
        """Delete a pod, without waiting for its end. Raises PodError."""
        done = self.kubectl("delete", "pod", name, "--ignore-not-found", "--wait=false", "--grace-period=0")
        if done.code:
            raise PodError(f"the pod {name} was not deleted: {text(done.stderr)}")

    def names(self) -> list[str]:
        """The names of the environments that are there, after those that ended are deleted."""
        chosen = f"--selector=app.kubernetes.io/name={LABEL}"
        for phase in ("Failed", "Succeeded"):
            over = f"--field-selector=status.phase={phase}"
            self.kubectl("delete", "pods", chosen, over, "--wait=false")
        shown = self.kubectl("get", "pods", chosen, "-o", "jsonpath={.items[*].metadata.name}")
        if shown.code:
            raise PodError(f"pods are not shown: {text(shown.stderr)}")
        return text(shown.stdout).split()


def new_name(about: str) -> str:
    """A name that nobody can guess: who knows it may use the pod."""
    word = re.sub(r"[^a-z0-9]+", "-", about.lower()).strip("-")[:30].strip("-") or "task"
    return f"{word}-{secrets.token_hex(10)}"


def text(data: bytes) -> str:
    """Bytes as text, whatever they are."""
    return data.decode(errors="replace").strip()
