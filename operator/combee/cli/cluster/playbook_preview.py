"""``combee playbook preview``: what a Playbook would do now, as it is or with another manifest.

Nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from combee.api.load import problems_in, resources_in
from combee.api.playbook import Playbook, PlaybookSpec
from combee.api.playbook_status import PlaybookStatus, VersionStatus
from combee.assembly.manifest import read_manifest_text
from combee.cli.cluster.place import Here, on_cluster, say
from combee.cli.cluster.versions import known
from combee.cli.where import Place
from combee.clients.kubernetes.kube import Object
from combee.errors import UserError
from combee.names import LEARN_ANNOTATION
from combee.observe.playbooks import PlaybookObserver
from combee.plan.playbook.decide import decide_playbook
from combee.plan.playbook.types import About, PlaybookPlan, PlaybookSeen
from combee.records import Owner
from combee.times import rfc3339

SHORT = 12
_STANDING = ("HeldOutPassed", "CanaryPassed", "Promoted")


def run_playbook_preview(name: str, path: Path | None, place: Place) -> int:
    """Print what the gates say with the manifest at ``path``, or else with the spec that is there."""

    async def work(here: Here) -> int:
        book = await known(here, name)
        if book.playbook is None:
            raise UserError(f"there is no Playbook {name}, only versions of one", fix="Apply it first")
        meta = book.playbook["metadata"]
        spec = spec_in(name, path) if path is not None else spec_of(book.playbook)
        owner = Owner(name, here.namespace, str(meta["uid"]))
        seen = (await PlaybookObserver(here.kube).see(owner, spec, time.time())).seen
        say(preview_text(decided(book.playbook, spec, seen), book.status, seen, spec))
        return 0

    return on_cluster(place, work)


def spec_in(name: str, path: Path) -> PlaybookSpec:
    """Return the spec of the Playbook of that name in a manifest. Raises UserError when it is wrong."""
    text = read_manifest_text(path)
    for problem in problems_in(text, str(path)):
        raise problem
    specs = {
        one.metadata.name: one.spec for one in resources_in(text, str(path)) if isinstance(one, Playbook)
    }
    if name not in specs:
        fix = f"It has: {', '.join(sorted(specs))}" if specs else "It has none"
        raise UserError(f"there is no Playbook {name} in it", where=str(path), fix=fix)
    return specs[name]


def spec_of(raw: Object) -> PlaybookSpec:
    """Return the spec that is on the cluster. Raises ManifestError when this version cannot read it."""
    return PlaybookSpec.model_validate(raw["spec"])


def decided(raw: Object, spec: PlaybookSpec, seen: PlaybookSeen) -> PlaybookPlan:
    """Return what the operator would decide on these facts if ``spec`` were the Playbook's. Whether it lets
    a canary be waived is known from what it wrote, where it wrote that it does not; its discipline is taken
    for Strict, the chart's own."""
    meta, before = raw["metadata"], PlaybookStatus.model_validate(raw.get("status") or {})
    changed = spec != spec_of(raw)
    about = About(
        name=meta["name"],
        generation=meta.get("generation", 0) + changed,
        spec=spec,
        when=rfc3339,
        learn_request=str((meta.get("annotations") or {}).get(LEARN_ANNOTATION, "")),
        allow_waived="WaiverNotAllowed" not in {condition.reason for condition in before.conditions},
    )
    return decide_playbook(about, before, seen)


def preview_text(plan: PlaybookPlan, before: PlaybookStatus, seen: PlaybookSeen, spec: PlaybookSpec) -> str:
    """Return the plan in lines: what would be active, what each gate would say, what would follow."""
    was, now = before.active_digest[:SHORT], plan.status.active_digest[:SHORT]
    standing = "as it is" if was == now else f"now: {was or 'none'}"
    lines = [f"active: {now or 'none'} ({standing})"]
    digests = {one.name: one.digest for one in seen.versions}
    statuses = {one.name: one.status for one in seen.versions}
    for version, after in plan.versions.items():
        lines += _version(digests[version], statuses[version], after, plan)
    lines += [f"would happen: {event.reason}: {event.message}" for event in plan.events]
    lines += [f"would be made: run {run.name}, from spec.learn.template" for run in plan.runs]
    lines += [f"would be deleted: {name}" for name in (*plan.prune_versions, *plan.prune_runs)]
    lines += [f"warning: {text}" for text in plan.status.warnings]
    if spec.canary is not None and plan.canaries:
        lines.append("a comparison on traffic takes its time: this is what is known now")
    lines.append("nothing was written")
    return "\n".join(lines)


def _version(digest: str, before: VersionStatus, after: VersionStatus, plan: PlaybookPlan) -> Iterable[str]:
    """Yield the lines of the candidate, or of a version whose phase changes."""
    if before.phase == after.phase and digest != plan.status.candidate_digest:
        return
    moved = f"{before.phase} -> {after.phase}" if before.phase != after.phase else f"{after.phase}"
    yield f"{digest[:SHORT]}: {moved}"
    conditions = {one.type: one for one in after.conditions if one.type in _STANDING}
    for one in sorted(conditions.values(), key=lambda one: _STANDING.index(one.type)):
        yield f"  {one.type}={one.status}/{one.reason}: {one.message}"
