"""From the flags of a command to a cluster that answers; what it refuses, said in one line."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from combee.api.load import parse_run
from combee.api.run import PromptLearningRun
from combee.api.status import RunStatus
from combee.cli.errors import STOPPED, guarded, write
from combee.cli.where import ANYWHERE, Place
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import ClusterError, UserError
from combee.names import RUN_KIND
from combee.records import Owner

CONNECT_SECONDS = 60.0
"""the time that a program which the configuration names has to hand out a token."""
REQUEST_SECONDS = 20.0
LISTED = 10
_FORBIDDEN = re.compile(r'User "(.{1,200}?)" cannot (\w+) resource "([\w./-]+)"')


@dataclass(frozen=True, slots=True)
class Here:
    """A namespace of a connected cluster."""

    kube: Kube
    namespace: str
    place: Place

    def command(self, words: str) -> str:
        """Return a command for people to run next."""
        return f"kubectl combee {words}{self.place.flags(self.namespace)}"


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run on a cluster."""

    raw: Object
    status: RunStatus

    @property
    def name(self) -> str:
        """The run's metadata.name."""
        return str(self.raw["metadata"]["name"])

    @property
    def uid(self) -> str:
        """The run's metadata.uid."""
        return str(self.raw["metadata"]["uid"])

    @property
    def owner(self) -> Owner:
        """The run as the owner of its children."""
        return Owner(self.name, str(self.raw["metadata"]["namespace"]), self.uid)

    def parsed(self) -> PromptLearningRun:
        """Return the run with its spec read. Raises ManifestError when it is not one."""
        body = {key: self.raw[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in self.raw}
        return parse_run(body, "")


def on_cluster(
    place: Place, work: Callable[[Here], Awaitable[int]], *, as_json: bool = False, quiet_stop: bool = False
) -> int:
    """Do ``work`` with a connection. Return its exit code, 2 for what a person has to mend, 130 for Ctrl-C
    (0 with ``quiet_stop``: to stop watching is no failure)."""

    def go() -> int:
        try:
            return asyncio.run(_interruptible(place, work))
        except (asyncio.CancelledError, KeyboardInterrupt):
            return 0 if quiet_stop else STOPPED

    return guarded(go, as_json=as_json)


async def _interruptible(place: Place, work: Callable[[Here], Awaitable[int]]) -> int:
    """Connect and do the work. SIGTERM ends it like Ctrl-C, so that what was made for a moment is deleted."""
    task = asyncio.current_task()
    if task is not None:
        with contextlib.suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):  # wait_for may swallow a cancellation
            kube = await _connected(place)
    except TimeoutError:
        raise UserError(
            f"no credentials within {CONNECT_SECONDS:.0f} s",
            where="KUBECONFIG",
            fix="See why its login program hangs: kubectl auth whoami",
        ) from None
    try:
        return await work(Here(kube, place.namespace or kube.namespace, place))
    except ClusterError as error:
        raise explained(error, place) from None
    finally:
        await kube.aclose()


async def _connected(place: Place) -> Kube:
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what is wrong is said once, by us
    try:
        return await Kube.connect(
            context=place.context,
            identity=place.identity,
            as_a_person=True,
            deadline_seconds=REQUEST_SECONDS,
        )
    except ModuleNotFoundError as error:
        raise UserError(
            f"the part that speaks to clusters is not installed ({error.name} is missing)",
            fix="pip install 'combee-operator[operator]'",
        ) from None


def explained(error: ClusterError, place: Place = ANYWHERE) -> UserError:
    """Return what the API server said, with what to do about it."""
    flags = place.flags()
    if error.status == 403 and (match := _FORBIDDEN.search(error.what)):
        user, verb, resource = match.groups()
        return UserError(
            f"{user} may not {verb} {resource}{_in(error.what)}",
            fix=f"Ask for a role that may (kubectl auth can-i {verb} {resource} tells); the chart's "
            "-viewer and -editor are parts of view and edit",
        )
    if error.status == 401:
        return UserError("the cluster does not know you", fix=f"Log in again: kubectl auth whoami{flags}")
    if error.status == 404 and "combee.dev" in error.where:
        return UserError(
            "combee is not installed on this cluster (it knows no PromptLearningRun)",
            fix="helm install combee-operator, or choose another cluster with --context",
        )
    if error.status == 0 and error.where.startswith(("GET", "POST", "PATCH", "DELETE")):
        return UserError(
            error.what, where="the cluster", fix=f"See whether it is up: kubectl{flags} get --raw /readyz"
        )
    return UserError(error.what, where=error.where, fix=error.fix)


def _in(answer: str) -> str:
    match = re.search(r'in the namespace "([^"]{1,63})"', answer)
    return f" in the namespace {match[1]}" if match else ""


async def find(here: Here, name: str) -> LiveRun:
    """Return the run of that name. Raises UserError listing those that are there."""
    raw = await here.kube.get(RUN_KIND, here.namespace, name)
    if raw is not None:
        return found_in(raw)
    others = sorted(str(one["metadata"]["name"]) for one in await here.kube.list(RUN_KIND, here.namespace))
    more = f" and {len(others) - LISTED} more" if len(others) > LISTED else ""
    known = f"There are: {', '.join(others[:LISTED])}{more}" if others else "There is none"
    raise UserError(
        f"no run {name!r} in the namespace {here.namespace}",
        fix=f"{known}. Another namespace is chosen with -n; kubectl get plr -A lists all",
    )


def found_in(raw: Object) -> LiveRun:
    """Read a run's object."""
    return LiveRun(raw, RunStatus.model_validate(raw.get("status") or {}))


def say(text: str) -> None:
    """Print what a command was asked for to stdout."""
    write(sys.stdout, text.rstrip("\n") + "\n")


def note(text: str) -> None:
    """Print a line for people to stderr."""
    write(sys.stderr, text + "\n")
