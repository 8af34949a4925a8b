"""One tick of one Playbook: read everything anew, decide, make it true in the order that a plan tells."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from combee.api.common import one_line
from combee.api.conditions import MAX_MESSAGE
from combee.api.load import parse_resource
from combee.api.playbook import Playbook, PlaybookSpec
from combee.api.playbook_status import PlaybookStatus
from combee.api.run import Discipline
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import BugError, ClusterError, ManifestError
from combee.names import LEARN_ANNOTATION, PLAYBOOK_KIND
from combee.observe.judged import canaries_of
from combee.observe.nodes import Nodes
from combee.observe.playbooks import Observed, PlaybookObserver, foreign, unreadable, writer_of
from combee.operator.playbooks.apply import PlaybookExecutor
from combee.operator.playbooks.datawatch import DataWatch
from combee.operator.playbooks.history import History
from combee.operator.playbooks.judges import Judges
from combee.operator.playbooks.restore import Restorer
from combee.operator.statuspatch import status_patch
from combee.operator.tell import Teller
from combee.operator.tick import NEVER, Key
from combee.plan.cluster.happenings import Happening
from combee.plan.cluster.hardware import EngineGpus
from combee.plan.playbook.decide import decide_playbook
from combee.plan.playbook.history import salvaged
from combee.plan.playbook.trail import FiledLine
from combee.plan.playbook.types import About, Happened, PlaybookPlan
from combee.records import Owner
from combee.times import rfc3339

SOON_SECONDS = 0.2
"""There is more to take in."""
_FOR_GOOD = (400, 403, 413, 422)
"""answers of the API server that another try does not change."""


@dataclass(slots=True)
class PlaybookTicker:
    """What a tick works with."""

    kube: Kube
    observer: PlaybookObserver
    executor: PlaybookExecutor
    teller: Teller
    judges: Judges
    data: DataWatch
    nodes: Nodes
    history: History
    restorer: Restorer
    allow_waived: bool = True
    """whether a Playbook may waive its canary."""
    discipline: Discipline = "Strict"
    """that of a template that names none."""
    happened: Callable[[str], None] = lambda reason: None
    """told the reason of each event. For metrics."""
    clock: Callable[[], float] = time.time
    _blocked: dict[Key, str] = field(default_factory=dict)
    """Playbooks of which the API server refused for good what is delivered, and what it said."""

    async def tick(self, key: Key) -> float | None:
        """After how many seconds to come again; None: at the resync, NEVER: when woken."""
        raw = await self.kube.get(PLAYBOOK_KIND, *key)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            return NEVER
        spec, why = _read(raw)
        owner = Owner(raw["metadata"]["name"], raw["metadata"]["namespace"], raw["metadata"]["uid"])
        status = PlaybookStatus.model_validate(raw.get("status") or {})
        now = self.clock()
        # Before the pairs: what a Job that is seen to have ended left is then seen, too.
        at_work = await self.judges.look(owner, spec, now)
        observed = await self.observer.see(owner, spec, now, at_work.uids, status.active_digest)
        data = await self.data.look(owner, spec)
        seen = replace(
            observed.seen,
            not_judged=at_work.why(canaries_of(observed.versions.values())),
            blocked=self._why_blocked(owner, observed),
            data_marks=data.marks,
            trail=await self._lines(owner, status, observed),
            filed=await self.history.filed(owner, status.trail),
        )
        about = replace(
            _about(raw, spec, why),
            allow_waived=self.allow_waived,
            discipline=self.discipline,
            nodes=await self._gpus(spec, now),
        )
        plan = decide_playbook(about, status, seen)
        if why or plan.status.active_digest in {one.digest for one in observed.seen.opaque if one.digest}:
            # Nothing is judged, and so nothing that was judged may go.
            observed = replace(observed, judged=(), more=False, forged=())
        if why and not _is_recorded(status, why):
            invalid = Happened("Warning", "InvalidManifest", why)
            plan = replace(plan, events=(invalid, *plan.events))
        await self._alarm(raw, plan, observed)
        undone = await self._follow(raw, plan, owner, spec, observed)
        again = await self.judges.keep(owner, spec, plan, observed, at_work)
        look = await self.data.keep(owner, spec, data, now)
        troubles, restoring = await self.restorer.restore(owner, plan, observed, now)
        if data.trouble:
            troubles = (*troubles, Happening("Warning", "DataNotWatched", data.trouble))
        for trouble in troubles:
            await self.teller.tell(raw, trouble)
        if (error := undone or unreadable(observed)) is not None:
            raise error
        pending = plan.status.trail is not None and plan.status.trail.pending
        soon = SOON_SECONDS if observed.more or pending else None
        waits = (plan.wake_after_seconds, again, look, soon, restoring)
        return min((wait for wait in waits if wait is not None), default=None)

    async def _alarm(self, raw: Object, plan: PlaybookPlan, observed: Observed) -> None:
        """Tell of what somebody changed beside the versions. Neither is believed."""
        if observed.tampered:
            name = plan.deliver.config_map
            message = f"ConfigMap {name}, which services mount, was changed by somebody: it is written again"
            self.happened("ContentReplaced")
            await self.teller.tell(raw, Happening("Warning", "ContentReplaced", message))
        if observed.forged:
            made = ", ".join(observed.forged)
            message = f"no judge of this Playbook made {made}: such pairs do not count, and are deleted"
            self.happened("PairsRefused")
            await self.teller.tell(raw, Happening("Warning", "PairsRefused", message))

    async def _gpus(self, spec: PlaybookSpec, now: float) -> EngineGpus:
        """Return what nodes say of the GPUs of its runs. Where they cannot be read now a run is made later:
        versions and delivery do not wait for it."""
        if spec.learn is None:
            return EngineGpus()
        try:
            return await self.nodes.gpus_of(spec.learn.template, now)
        except ClusterError:
            return EngineGpus()

    async def _lines(
        self, owner: Owner, status: PlaybookStatus, observed: Observed
    ) -> tuple[FiledLine, ...] | None:
        needed = self.history.is_needed(owner, status, observed.seen.versions)
        return await self.history.lines(owner) if needed else None

    async def _follow(
        self, raw: Object, plan: PlaybookPlan, owner: Owner, spec: PlaybookSpec, observed: Observed
    ) -> ClusterError | None:
        """Do what was decided. Return the error that keeps what is active from being delivered, or lines of
        the history from being written: it keeps nothing else waiting."""
        patch = status_patch(raw, plan.status.dump())
        if patch is not None:
            await self.kube.patch(PLAYBOOK_KIND, owner.namespace, owner.name, patch, part="status")
        # What services get comes first of what follows: it is what somebody waits for after a rollback.
        blocked = await self._deliver(raw, plan, owner, spec, observed)
        if patch is not None:
            # Before the versions: where one of them changed meanwhile the tick ends, and the next one, which
            # finds what happened in the Playbook's status, has nothing to tell.
            await self._tell(raw, plan, observed)
        unwritten = await self._file(raw, plan, owner)
        await self.executor.versions(plan, observed)
        await self.executor.make(plan, owner)
        await self.executor.prune(plan, owner, observed)
        return blocked or unwritten

    async def _file(self, raw: Object, plan: PlaybookPlan, owner: Owner) -> ClusterError | None:
        """Write the pending lines of the history; the error that kept one from being written, once it was
        told. They stay in the status."""
        try:
            await self.history.file(owner, plan.status.trail)
        except ClusterError as error:
            await self.teller.tell(raw, Happening("Warning", "HistoryBlocked", str(error)))
            return error
        return None

    async def _deliver(
        self, raw: Object, plan: PlaybookPlan, owner: Owner, spec: PlaybookSpec, observed: Observed
    ) -> ClusterError | None:
        """Deliver what is active; the error that kept it from being delivered, once it was told."""
        try:
            await self.executor.deliver(plan.deliver, owner, spec, observed)
        except ClusterError as error:
            if error.status in _FOR_GOOD:
                self._blocked[owner.namespace, owner.name] = str(error)
            await self.teller.tell(raw, Happening("Warning", "DeliveryBlocked", str(error)))
            return error
        self._blocked.pop((owner.namespace, owner.name), None)
        if not plan.deliver.current and plan.deliver.digest:
            message = f"{plan.deliver.digest[:12]} is in ConfigMap {plan.deliver.config_map}"
            await self.teller.tell(raw, Happening("Normal", "Delivered", message))
        return None

    def _why_blocked(self, owner: Owner, observed: Observed) -> str:
        taken = foreign(observed.delivered, owner.name) if observed.delivered is not None else None
        return str(taken) if taken is not None else self._blocked.get((owner.namespace, owner.name), "")

    async def _tell(self, raw: Object, plan: PlaybookPlan, observed: Observed) -> None:
        by_digest = {one["spec"]["digest"]: one for one in observed.versions.values()}
        for event in plan.events:
            self.happened(event.reason)
            happening = Happening(event.kind, event.reason, _event_text(event))
            await self.teller.tell(raw, happening)
            if event.digest in by_digest:
                await self.teller.tell(by_digest[event.digest], happening)


def _read(raw: Object) -> tuple[PlaybookSpec, str]:
    """The spec, and why it cannot be followed: then it is what is left of it."""
    try:
        return _parsed(raw).spec, ""
    except ManifestError as error:
        return salvaged(raw.get("spec")), str(error)


def _is_recorded(before: PlaybookStatus, why: str) -> bool:
    """Whether the status says already why the spec cannot be followed."""
    ready = next((c for c in before.conditions if c.type == "Ready"), None)
    same = ready is not None and ready.reason == "InvalidManifest"
    return same and ready is not None and ready.message == one_line(why, MAX_MESSAGE)


def _parsed(raw: Object) -> Playbook:
    body = {name: raw[name] for name in ("apiVersion", "kind", "metadata", "spec") if name in raw}
    playbook = parse_resource(body, "")
    if not isinstance(playbook, Playbook):
        raise BugError("not a Playbook", where=str(raw["metadata"]["name"]))
    return playbook


def _about(raw: Object, spec: PlaybookSpec, why: str) -> About:
    meta = raw["metadata"]
    return About(
        name=meta["name"],
        generation=meta.get("generation", 0),
        spec=spec,
        when=rfc3339,
        unreadable=why,
        learn_request=str((meta.get("annotations") or {}).get(LEARN_ANNOTATION, "")),
        pinned_by=writer_of(meta, ("spec", "version", "pinnedDigest")),
    )


def _event_text(event: Happened) -> str:
    return f"{event.digest[:12]}: {event.message}" if event.digest else event.message
