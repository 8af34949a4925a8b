"""``combee report``: what ``combee run`` would have written, fetched from a run's store.

Only pods reach the store, so a short-lived one, made with the caller's own rights, builds the files and
prints them; its log is read through the API, and it is deleted whatever happens.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from combee import names
from combee.cli.cluster.logs import last_words
from combee.cli.cluster.place import Here, LiveRun, find, note, on_cluster, say
from combee.cli.cluster.pods import begun, children_selector, log_lines, phase_of
from combee.cli.record import FETCHED
from combee.cli.report import read, reports, sections, show, stamps
from combee.cli.where import Place
from combee.clients.kubernetes.kube import Kube, Object
from combee.clients.store.store import Store
from combee.errors import ClusterError, StoreError, TransientError, UserError
from combee.objects.results import STORE, report_pod
from combee.objects.types import Settings
from combee.plan.cluster.diagnose import diagnose
from combee.plan.cluster.memory import Memory
from combee.report.bundle import RESULT_FILE, unpacked

LOOK_SECONDS = 0.5
DELETE_SECONDS = 20.0
_OURS = re.compile(
    r"(?:(?:plans|clocks|steps)/[a-z0-9][a-z0-9.-]*\.json|calls/[a-z0-9][a-z0-9.-]*\.jsonl|gate\.json|rollouts\.jsonl|"
    r"strategist\.(?:md|html))"
)


def run_report(name: str, out: Path, place: Place, *, wait_seconds: float, strategist: bool = False) -> int:
    """Fetch the files into ``out``; with ``strategist`` also make and print the strategist's sections."""

    async def work(here: Here) -> int:
        run = await find(here, name)
        _refuse_folder(out)
        files = await fetched(here, run, wait_seconds)
        result, audit = read(files[RESULT_FILE], f"{name}: {RESULT_FILE}", out)
        made = await asyncio.to_thread(sections, result, audit) if strategist else {}
        anew = await asyncio.to_thread(reports, result, audit) if audit else {}
        # result.json is written last: where it is, the rest is.
        files = {**made, **files, **anew}
        await asyncio.to_thread(written, files, out)
        if strategist:
            show(made)
            return 0
        plans = sum(file.startswith("plans/") for file in files)
        say(
            f"{stamps(audit)}{name}: {len(files)} files in {out} ({plans} plans)\n\nLook at\n"
            f"  {out}/report.html    the whole story, with figures\n"
            f"  {out}/{names.PROMPT_KEY}    what models are shown from now on\n"
            f"  {out}/{names.LESSONS_FILE}    what was learned, and from what\n"
            f"  {out}/{RESULT_FILE}    every number, for programs\n\n"
            f"Learn the same on this machine\n  combee run -f run.yaml --plans {out}/plans -o again"
        )
        return 0

    return on_cluster(place, work)


def written(files: Mapping[str, bytes], out: Path) -> None:
    """Write the files, each whole or not at all, and delete what only an earlier fetch had. Meanwhile
    ``FETCHED`` is empty; then it has the digest of the result whose store lies there."""
    store = Store.open(str(out))
    try:
        fetched = store.get(FETCHED) or b""
        store.put(FETCHED, b"")
        for old in store.list():
            if _OURS.fullmatch(old) and old not in files:
                store.delete(old)
        for file, data in files.items():
            store.put(file, data)
        if any(file.startswith("store/") for file in files):
            fetched = hashlib.sha256(files[RESULT_FILE]).hexdigest().encode()
        store.put(FETCHED, fetched or b"no store")
    finally:
        store.close()


def _refuse_folder(out: Path) -> None:
    """Refuse a folder that holds something else, and leave it alone."""
    if (out / "run.json").exists():
        raise UserError(
            "a run of this machine lives in it", where=str(out), fix="Name another folder with -o"
        )
    try:
        ours = (out / RESULT_FILE).exists() or (out / FETCHED).exists()
        foreign = not ours and out.exists() and any(out.iterdir())
    except OSError as error:
        raise StoreError(
            f"cannot be used ({error.strerror})", where=str(out), fix="Name a folder with -o"
        ) from None
    if foreign:
        raise UserError(
            "it holds files that are not a run's results", where=str(out), fix="Name a new folder with -o"
        )


def fetch_record(
    name: str, out: Path, place: Place, *, wait_seconds: float, as_json: bool, store: str
) -> int:
    """Fetch the files into ``out``; without a ``store`` also what a replay reads of it, below
    ``out/store``."""

    async def work(here: Here) -> int:
        run = await find(here, name)
        _refuse_folder(out)
        await asyncio.to_thread(
            written, await fetched(here, run, wait_seconds, also="" if store else STORE), out
        )
        note(f"{name} is fetched into {out}")
        return 0

    return on_cluster(place, work, as_json=as_json)


async def fetched(here: Here, run: LiveRun, wait_seconds: float, *, also: str = "") -> dict[str, bytes]:
    """Fetch the files of a run; ``also``: as of ``report_pod``. Raises UserErrors on what is missing."""
    return await _fetched(here, await _pod(here, run, also), wait_seconds)


async def _pod(here: Here, run: LiveRun, also: str) -> Object:
    """Return the pod to make. Raises UserError when the run has not begun."""
    status, owner = run.status, run.owner
    if not status.start_time or not status.pinned.image:
        raise UserError(
            f"{run.name} has not begun: there is nothing to report",
            fix=f"See what it waits for: {here.command(f'why {run.name}')}",
        )
    memory = Memory.from_status(status.state)
    listed = await here.kube.list("ConfigMap", owner.namespace, labels=children_selector(owner))
    configs = {str(one["metadata"]["name"]) for one in listed}
    config = names.run_config_name(owner.name, owner.uid)
    if config not in configs:
        raise UserError(
            "the ConfigMap that shows its pods the run is gone",
            where=config,
            fix="The operator makes it again for a run that is not over",
        )
    wanted = [(n, names.plan_name(owner.name, owner.uid, n)) for n in range(memory.run.iteration)]
    return report_pod(
        run.parsed(),
        owner,
        state=memory.to_status(),
        plans=[(number, plan) for number, plan in wanted if plan in configs],
        suffix=secrets.token_hex(3),
        services=memory.service_urls,
        settings=Settings(status.pinned.image, memory.images.get("vllm", "")),
        also=also,
    )


async def _fetched(here: Here, pod: Object, wait_seconds: float) -> dict[str, bytes]:
    """Make the pod, read what it prints, and delete it, also when the caller is stopped."""
    meta = pod["metadata"]
    await _sweep(here.kube, pod)
    # A request that is given up may still make the pod: it goes on to its end, then the pod is deleted.
    making = asyncio.ensure_future(here.kube.create(pod))
    try:
        await asyncio.shield(making)
        note(f"pod {meta['name']} reads the store")
        async with asyncio.timeout(wait_seconds):
            if not await begun(here.kube, pod, LOOK_SECONDS):
                raise _gone(pod)
            return await _read(here.kube, pod)
    except TimeoutError:
        now = await here.kube.get("Pod", meta["namespace"], meta["name"])
        trouble = diagnose([now]) if now else None
        reason = f": {trouble.message}" if trouble else ""
        raise UserError(
            f"the results were not there within {wait_seconds:g} s{reason}",
            where=f"pod {meta['name']}",
            fix="Wait longer with --timeout",
        ) from None
    finally:
        await asyncio.shield(asyncio.ensure_future(_deleted(here.kube, pod, making)))


async def _deleted(kube: Kube, pod: Object, making: asyncio.Future[Object | None]) -> None:
    """Delete what was made; nothing where the cluster refused to make it."""
    meta = pod["metadata"]
    try:
        await making
    except ClusterError as error:
        if error.status:
            return
    try:
        async with asyncio.timeout(DELETE_SECONDS):
            await kube.delete("Pod", meta["namespace"], meta["name"])
    except (ClusterError, TimeoutError):
        note(f"pod {meta['name']} could not be deleted: it ends by itself and goes with the run")


async def _sweep(kube: Kube, pod: Object) -> None:
    """Delete what killed fetches of this run left behind, as far as the caller's rights go."""
    meta = pod["metadata"]
    chosen = {key: meta["labels"][key] for key in (names.LABEL_RUN_UID, names.LABEL_COMPONENT)}
    labels = ",".join(f"{key}={value}" for key, value in chosen.items())
    try:
        for old in await kube.list("Pod", meta["namespace"], labels=labels):
            if phase_of(old) in ("Succeeded", "Failed"):
                await kube.delete("Pod", meta["namespace"], old["metadata"]["name"])
    except ClusterError as error:
        if error.status != 403:
            raise


def _gone(pod: Object) -> UserError:
    return UserError(f"pod {pod['metadata']['name']} was deleted by somebody", fix="Run the command again")


async def _read(kube: Kube, pod: Object) -> dict[str, bytes]:
    """Return the files in the log. It is followed from its first line, since a node keeps only the end of a
    long log; where the connection was cut, it is read again."""
    lines = await _followed(kube, pod)
    try:
        return unpacked(lines)
    except TransientError:
        now = await _ended(kube, pod)
        if phase_of(now) == "Failed":
            words = last_words(lines) or "it failed without a word"
            raise UserError(words, where=f"pod {pod['metadata']['name']}") from None
        return unpacked([line async for line in log_lines(kube, now)])


async def _followed(kube: Kube, pod: Object) -> list[str]:
    lines: list[str] = []
    try:
        async for line in log_lines(kube, pod, follow=True):
            lines.append(line)
    except ClusterError as error:
        if error.status not in (0, 500, 502, 503, 504):
            raise
    return lines


async def _ended(kube: Kube, pod: Object) -> Object:
    meta = pod["metadata"]
    while (now := await kube.get("Pod", meta["namespace"], meta["name"])) is not None:
        if phase_of(now) in ("Succeeded", "Failed"):
            return now
        await asyncio.sleep(LOOK_SECONDS)
    raise _gone(pod)
