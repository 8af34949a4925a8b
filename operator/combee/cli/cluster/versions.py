"""``combee playbook history | diff | why | promote | approve | refuse | rollback | learn``."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from combee import names
from combee.api.playbook import VersionSpec
from combee.api.playbook_status import PlaybookStatus, VersionStatus
from combee.cli.cluster.place import Here, on_cluster, say
from combee.cli.cluster.versions_text import SHORT, VersionShown, checked, difference, history, why
from combee.cli.life import checked as checked_life
from combee.cli.life import show
from combee.cli.where import Place
from combee.clients.kubernetes.kube import Object
from combee.errors import ClusterError, UserError
from combee.methods.registry import diff_texts, life_of
from combee.observe.history import filed_lines
from combee.plan.playbook.authentic import refuse_replaced
from combee.plan.playbook.serving import Version, Wanted, serving
from combee.plan.playbook.trail import FiledLine, breaks, filed, lines_from, whole
from combee.times import rfc3339

LEAST_DIGITS = 4
_ENTRY = re.compile(r"[A-Za-z]+-[0-9a-f]{3,64}")
"""The form of an entry's id."""


@dataclass(frozen=True, slots=True)
class Known:
    """A Playbook and its versions, as the API server has them. ``playbook`` is None when it was deleted."""

    name: str
    playbook: Object | None
    versions: tuple[Object, ...]

    @property
    def status(self) -> PlaybookStatus:
        """The status of the Playbook; an empty one where there is none."""
        return PlaybookStatus.model_validate((self.playbook or {}).get("status") or {})

    @property
    def active(self) -> str:
        """The digest that is served, by the rule that operator and gateway go by."""
        wanted = Wanted.of(self.playbook or {})
        return serving(wanted, map(Version.of, self.versions)) or ""

    def after(self, digest: str, decision: str) -> str:
        """Return the digest that would be served with another decision on one version."""
        besides = self.promoted_besides(names.published_name(self.name, digest))
        taken_back = set(besides) if decision == "Promote" else set()

        def decided(one: Object) -> str:
            if one["spec"]["digest"] == digest:
                return decision
            return "Auto" if one["metadata"]["name"] in taken_back else one["spec"].get("decision", "Auto")

        changed = [{**one, "spec": {**one["spec"], "decision": decided(one)}} for one in self.versions]
        return serving(Wanted.of(self.playbook or {}), map(Version.of, changed)) or ""

    def promoted_besides(self, called: str) -> tuple[str, ...]:
        """Return the names of the other versions that somebody promoted by hand."""
        return tuple(
            one["metadata"]["name"]
            for one in self.versions
            if one["spec"].get("decision") == "Promote" and one["metadata"]["name"] != called
        )

    def is_entry(self, name: str) -> bool:
        """Return whether a name is in the form of an entry's id, and of no version."""
        return bool(_ENTRY.fullmatch(name)) and not any(
            one["metadata"]["name"] == name for one in self.versions
        )

    def version(self, here: Here, name: str) -> Object:
        """Return the version of that name or first digits, or the active, previous or candidate one."""
        status = self.status
        special = {
            "active": self.active,
            "previous": status.previous_digest,
            "candidate": status.candidate_digest,
        }
        digest = special.get(name, name)
        if name in special and not digest:
            raise UserError(f"{self.name} has no {name} version", fix=_list(here, self.name))
        matches = [one for one in self.versions if one["metadata"]["name"] == name]
        if not matches and (name in special or len(name) >= LEAST_DIGITS):
            matches = [one for one in self.versions if str(one["spec"]["digest"]).startswith(digest)]
        if len(matches) == 1:
            return matches[0]
        what = f"{name} could be {len(matches)} versions" if matches else f"{self.name} has no version {name}"
        raise UserError(what, fix=f"Give at least {LEAST_DIGITS} digits of one. {_list(here, self.name)}")


def _list(here: Here, name: str) -> str:
    return f"See them: {here.command(f'playbook history {name}')}"


async def known(here: Here, name: str) -> Known:
    """Return a Playbook, or what is left of one. Raises UserError when there is neither."""
    playbook = await here.kube.get(names.PLAYBOOK_KIND, here.namespace, name)
    listed = await here.kube.list(names.PLAYBOOK_VERSION_KIND, here.namespace)
    versions = tuple(one for one in listed if one["spec"]["playbookRef"]["name"] == name)
    if playbook is None and not versions:
        playbooks = await here.kube.list(names.PLAYBOOK_KIND, here.namespace)
        others = sorted(str(one["metadata"]["name"]) for one in playbooks)
        raise UserError(
            f"no Playbook {name!r} in the namespace {here.namespace}",
            fix=f"There are: {', '.join(others[:10])}" if others else "Apply one: see examples/playbook.yaml",
        )
    return Known(name, playbook, versions)


def _on(place: Place, name: str, work: Callable[[Here, Known], Awaitable[None]]) -> int:
    async def go(here: Here) -> int:
        await work(here, await known(here, name))
        return 0

    return on_cluster(place, go)


def shown(raw: Object) -> VersionShown:
    """Read a version's object."""
    return VersionShown(
        VersionSpec.model_validate(raw["spec"]),
        VersionStatus.model_validate(raw.get("status") or {}),
        str(raw["metadata"]["creationTimestamp"]),
    )


def run_history(name: str, place: Place, *, verify: bool) -> int:
    """Print the versions and every line of the history; with ``verify`` what is wrong with the lines, too.

    Returns 5 where something is.
    """

    async def go(here: Here) -> int:
        lines, status = await _history(here, name, allow_short=not verify)
        book = Known(name, None, ()) if lines and status is None else await known(here, name)
        seen = lines or tuple(map(filed, lines_from(book.status.history)))
        say(history(name, book.status, [shown(one) for one in book.versions], seen))
        wrong = list(breaks(lines, status.trail if status is not None else None)) if verify else []
        if verify:
            say(f"\n{checked(lines, wrong, anchored=status is not None)}")
        if book.versions:
            say(f"\nNext: {here.command(f'playbook why {name} DIGEST')}")
        return 5 if wrong else 0

    return on_cluster(place, go)


async def _history(
    here: Here, name: str, *, allow_short: bool
) -> tuple[tuple[FiledLine, ...], PlaybookStatus | None]:
    """Return all lines, and the status of the Playbook that was there before and after they were read.

    ``allow_short``: whether no lines are returned, and why is said, where their ConfigMaps may not be listed.
    """
    raw = await here.kube.get(names.PLAYBOOK_KIND, here.namespace, name)
    while True:
        try:
            lines = await filed_lines(here.kube, here.namespace, name)
        except ClusterError as error:
            if error.status != 403 or not allow_short:
                raise
            say("warning: you may not list ConfigMaps, where the history is: its last 20 lines are shown")
            return (), PlaybookStatus.model_validate((raw or {}).get("status") or {}) if raw else None
        again = await here.kube.get(names.PLAYBOOK_KIND, here.namespace, name)
        trails = [((one or {}).get("status") or {}).get("trail") for one in (raw, again)]
        if trails[0] == trails[1]:
            break
        raw = again
    status = None if again is None else PlaybookStatus.model_validate(again.get("status") or {})
    return whole(lines, status.trail if status is not None else None), status


def run_why_version(name: str, what: str, place: Place, *, as_json: bool = False) -> int:
    """Print what is known of a version and why it stands where it does; or the life of an entry of the active
    one."""

    async def work(here: Here, book: Known) -> None:
        if book.is_entry(what):
            await _tell_life(here, book, what, as_json=as_json)
            return
        raw = book.version(here, what)
        if as_json:
            say(json.dumps({"spec": raw["spec"], "status": raw.get("status") or {}}))
            return
        one = shown(raw)
        say(why(one, shutil.get_terminal_size((110, 24)).columns))
        if one.spec.digest != book.active:
            say(f"\nNext: {here.command(f'playbook diff {name} active {one.short}')}")

    return _on(place, name, work)


async def _tell_life(here: Here, book: Known, entry: str, *, as_json: bool) -> None:
    version = book.version(here, "active")
    held = await content(here, version)
    where = f"ConfigMap {version['spec']['configMapName']}"
    if not held.artifact:
        raise UserError(f"it holds no {names.ARTIFACT_KEY}", where=where, fix="Its run's folder tells more")
    life = life_of(held.artifact.encode(), entry, method=held.method, shown=held.text)
    show(checked_life(life, entry, where), as_json=as_json)


def run_diff(name: str, before: str, after: str, place: Place) -> int:
    """Print what changed between two versions, bullet by bullet."""

    async def work(here: Here, book: Known) -> None:
        pair = [book.version(here, name) for name in (before, after)]
        old, new = [await content(here, one) for one in pair]
        called = [str(one["spec"]["digest"])[:SHORT] for one in pair]
        diff = diff_texts(old.text, new.text, (old.method, new.method))
        say("\n".join(difference(diff, *called)))

    return _on(place, name, work)


@dataclass(frozen=True, slots=True)
class Content:
    """A version's text, and the method that made it where its ConfigMap names one."""

    text: str
    method: str = ""
    artifact: str = ""


async def content(here: Here, version: Object) -> Content:
    """Return what a version's ConfigMap holds. Raises UserError when it is gone, or was
    replaced."""
    name = version["spec"]["configMapName"]
    config = await here.kube.get("ConfigMap", here.namespace, name)
    data = (config or {}).get("data") or {}
    text = data.get(names.PROMPT_KEY)
    if text is None:
        raise UserError(
            f"the ConfigMap {name} is gone or holds no {names.PROMPT_KEY}",
            where=f"PlaybookVersion {version['metadata']['name']}",
            fix="Restore it from a backup, or apply the run that made it once more: that costs no model call",
        )
    refuse_replaced(data, version["spec"].get("contentDigests") or {}, f"ConfigMap {here.namespace}/{name}")
    return Content(
        *(str(data.get(key, "")) for key in (names.PROMPT_KEY, names.METHOD_KEY, names.ARTIFACT_KEY))
    )


def run_decide(name: str, digest: str, decision: str, place: Place, *, dry_run: bool) -> int:
    """Set a version's decision and say what follows. ``digest``: as ``Known.version`` takes it."""

    async def work(here: Here, book: Known) -> None:
        await _decide(here, book, book.version(here, digest), decision, dry_run=dry_run)

    return _on(place, name, work)


async def _decide(here: Here, book: Known, version: Object, decision: str, *, dry_run: bool) -> None:
    digest, called = str(version["spec"]["digest"]), version["metadata"]["name"]
    before, after = book.active, book.after(digest, decision)
    others = book.promoted_besides(called) if decision == "Promote" else ()
    if not dry_run:
        await _set(here, book, called, decision)
        for other in others:
            await _set(here, book, other, "Auto")
    for other in others:
        say(f"{other}: its Promote {'would be' if dry_run else 'is'} taken back: only one is named at a time")
    verb = "would be" if dry_run else "is"
    say(f"{digest[:SHORT]}: decision {verb} {decision} (was {version['spec'].get('decision', 'Auto')})")
    if after != before:
        now = after[:SHORT] or "no version"
        serves = "would serve" if dry_run else "serves"
        say(f"{book.name} {serves} {now} (before: {before[:SHORT] or 'none'})")
        if not after:
            say("nothing is left to go back to: an empty playbook is delivered")
    elif decision in ("Auto", "Approve"):
        say("the gates decide; what is served does not change by this alone")
    else:
        say(f"what is served stays {before[:SHORT] or 'empty'}{_because(book, digest, decision)}")
    if not dry_run:
        say(f"\nNext: {here.command(f'playbook history {book.name}')}")


async def _set(here: Here, book: Known, called: str, decision: str) -> None:
    patch = {"spec": {"decision": decision}}
    if await here.kube.patch(names.PLAYBOOK_VERSION_KIND, here.namespace, called, patch) is None:
        raise UserError(f"{called} was deleted meanwhile", fix=_list(here, book.name))


def _because(book: Known, digest: str, decision: str) -> str:
    pinned = Wanted.of(book.playbook or {}).pinned
    if decision == "Promote" and pinned and pinned != digest:
        return f": spec.version.pinnedDigest names {pinned[:SHORT]}"
    return ""


def run_learn(name: str, place: Place) -> int:
    """Ask for one run of ``spec.learn.template``."""

    async def work(here: Here, book: Known) -> None:
        if book.playbook is None or not (book.playbook["spec"].get("learn")):
            raise UserError(
                f"{name} has no spec.learn: there is no template to make a run from",
                fix="Apply a PromptLearningRun with playbookRef, or give the Playbook a learn.template",
            )
        now = rfc3339(time.time())
        patch = {"metadata": {"annotations": {names.LEARN_ANNOTATION: now}}}
        await here.kube.patch(names.PLAYBOOK_KIND, here.namespace, name, patch)
        say(f"a run of {name}'s template is asked for")
        say(f"\nNext: {here.command('status')}")

    return _on(place, name, work)
