"""The watches, by kopf. A handler only wakes the run that an event is about.

Only ``on.event`` is used: timers, daemons and delete handlers add finalizers, which block a deletion
while the operator is down; the first pass of an index grows worse than quadratically. Pods are
never watched: a Job's pods are listed when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import kopf

from combee.names import (
    API_VERSION,
    KUEUE,
    LABEL_CANARY,
    LABEL_COMPONENT,
    LABEL_MANAGED_BY,
    LABEL_PLAYBOOK,
    LABEL_RUN,
    MANAGED_BY,
    RUN_KIND,
    SANDBOXES,
)
from combee.objects.engines import COMPONENT as ENGINE
from combee.objects.sweep import COMPONENT as SWEEP
from combee.operator.tick import Key

GROUP, VERSION = API_VERSION.split("/")
KUEUE_GROUP, KUEUE_VERSION = KUEUE.split("/")
SANDBOX_GROUP, SANDBOX_VERSION = SANDBOXES.split("/")
PAGE = 250
"""Objects that kopf lists at once: a run and its Jobs take about 30 KB, and a whole page is in memory
together."""
IDLE_SECONDS = 2.0
"""kopf ends the worker of an object without events after so long, and drops its last event: until then all
objects of the first list are in memory."""


def settings() -> kopf.OperatorSettings:
    """Return kopf's settings for this operator. They are passed to ``kopf.operator``, so that they hold from
    the first request."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.watching.chunk_size = PAGE
    chosen.watching.inactivity_timeout = 180
    chosen.watching.server_timeout = 300
    chosen.watching.connect_timeout = 10
    chosen.queueing.idle_timeout = IDLE_SECONDS
    chosen.queueing._batch_window = 0.02
    chosen.scanning.disabled = True
    chosen.peering.standalone = True
    selector = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
    # The Jobs of runs, those that judge canaries, and those that sweep.
    chosen.watching.label_selectors["batch", "v1", "jobs"] = selector
    chosen.watching.label_selectors["apps", "v1", "deployments"] = f"{selector},{LABEL_COMPONENT}={ENGINE}"
    chosen.watching.label_selectors[KUEUE_GROUP, KUEUE_VERSION, "workloads"] = selector
    chosen.watching.label_selectors[SANDBOX_GROUP, SANDBOX_VERSION, "sandboxclaims"] = selector
    return chosen


def registry(
    wake: Callable[[Key], None],
    wake_playbook: Callable[[Key], None],
    wake_gateway: Callable[[str], None],
    *,
    children: Sequence[tuple[str, str]],
) -> kopf.OperatorRegistry:
    """Return the handlers for runs with their Jobs and engines, for Playbooks with their versions and runs,
    and for the Jobs that sweep, which outlive all of them. ``children``: the APIs and kinds of what else runs
    have, where the cluster serves them."""
    handlers = kopf.OperatorRegistry()

    kopf.on.login(registry=handlers)(_login)

    @kopf.on.event(GROUP, VERSION, "promptlearningruns", registry=handlers)
    def run_changed(namespace: str | None, name: str | None, labels: Any, **_: Any) -> None:
        wake((namespace or "", name or ""))
        if playbook := labels.get(LABEL_PLAYBOOK):
            wake_playbook((namespace or "", playbook))

    @kopf.on.event(GROUP, VERSION, "playbooks", registry=handlers)
    def playbook_changed(namespace: str | None, name: str | None, **_: Any) -> None:
        wake_playbook((namespace or "", name or ""))

    @kopf.on.event(GROUP, VERSION, "playbookversions", registry=handlers)
    def version_changed(namespace: str | None, spec: Any, **_: Any) -> None:
        if playbook := (spec.get("playbookRef") or {}).get("name"):
            wake_playbook((namespace or "", playbook))

    @kopf.on.event("batch", "v1", "jobs", registry=handlers)
    def job_changed(namespace: str | None, labels: Any, **_: Any) -> None:
        _wake_owner(wake, namespace, labels)
        if LABEL_CANARY in labels and (playbook := labels.get(LABEL_PLAYBOOK)):
            wake_playbook((namespace or "", playbook))
        if labels.get(LABEL_COMPONENT) == SWEEP:
            wake_gateway(namespace or "")

    @kopf.on.event("apps", "v1", "deployments", registry=handlers)
    def engine_changed(namespace: str | None, meta: Any, **_: Any) -> None:
        for owner in meta.get("ownerReferences", ()):
            if owner["kind"] == RUN_KIND:
                wake((namespace or "", owner["name"]))

    for api, plural in children:
        _watch_children(handlers, wake, api, plural)
    return handlers


def _watch_children(
    handlers: kopf.OperatorRegistry, wake: Callable[[Key], None], api: str, plural: str
) -> None:
    group, version = api.split("/")

    @kopf.on.event(group, version, plural, registry=handlers)
    def child_changed(namespace: str | None, labels: Any, **_: Any) -> None:
        _wake_owner(wake, namespace, labels)


def _login(**arguments: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)


def _wake_owner(wake: Callable[[Key], None], namespace: str | None, labels: Any) -> None:
    if labels.get(LABEL_MANAGED_BY) == MANAGED_BY and (run := labels.get(LABEL_RUN)):
        wake((namespace or "", run))
