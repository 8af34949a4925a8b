"""``combee preview NAME``: what a run that is on the cluster would do and cost."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from combee.api.common import ConfigMapKeyRef
from combee.api.local import INITIAL_PLAYBOOK, sources
from combee.api.run import PromptLearningRun
from combee.cli.cluster.place import Here, LiveRun, find, note, on_cluster, say
from combee.cli.preview import shown_as
from combee.cli.where import Place
from combee.errors import UserError
from combee.local.flags import StandInFlags
from combee.local.session import data_shape, prepare_run
from combee.local.sources import StandIns, parse_stand_ins
from combee.plan.cluster.memory import Memory
from combee.plan.preview import DataShape, preview


def run_cluster_preview(name: str, flags: StandInFlags, place: Place, *, as_json: bool) -> int:
    """Print what the run would do. Its data is read from ConfigMaps, addresses and ``--data``; where it
    is in a claim, what profile counted stands for it."""

    async def work(here: Here) -> int:
        live = await find(here, name)
        run, given = live.parsed(), parse_stand_ins(flags)
        with tempfile.TemporaryDirectory() as folder:
            copies = await _copies(here, run, given, Path(folder))
            missing = [split for split in sources(run) if split not in copies and not _address(run, split)]
            if run.spec.task.type == "Custom":
                missing = list(sources(run))  # whoever wrote the run wrote its class: it is not run here
            if missing:
                shape = _counted(live, missing)
            else:
                stand_ins = replace(given, data=copies)
                shape = await asyncio.to_thread(_read, run, stand_ins, Path(folder))
        shown = preview(run.spec, shape)
        say(shown_as(name, here.command(f"status {name}"), shown, as_json=as_json))
        return 0

    return on_cluster(place, work, as_json=as_json)


def _read(run: PromptLearningRun, given: StandIns, base: Path) -> DataShape:
    return data_shape(prepare_run(run, base, given, for_preview=True))


def _address(run: PromptLearningRun, split: str) -> bool:
    """Return whether a split is at an address that this machine may read, too: one without a Secret."""
    source = sources(run)[split]
    return source.uri is not None and source.secret_ref is None


async def _copies(here: Here, run: PromptLearningRun, given: StandIns, folder: Path) -> Mapping[str, str]:
    """Return split -> file: those of ``--data``, and copies of the ConfigMaps' keys."""
    files = dict(given.data)
    wanted: dict[str, ConfigMapKeyRef | None] = {name: one.config_map for name, one in sources(run).items()}
    initial = run.spec.task.initial_playbook
    wanted[INITIAL_PLAYBOOK] = initial.config_map if initial is not None else None
    for split, ref in wanted.items():
        if ref is None or split in files:
            continue
        config = await here.kube.get("ConfigMap", here.namespace, ref.name)
        text = (config or {}).get("data", {}).get(ref.key)
        if text is None:
            raise UserError(
                f"there is no key {ref.key} in a ConfigMap {ref.name}",
                where=f"spec.task.{'data.' if split != INITIAL_PLAYBOOK else ''}{split}.configMap",
                fix=f"Make it in the namespace {here.namespace}, or give a copy: --data {split}=PATH",
            )
        path = folder / f"{split}.jsonl"
        await asyncio.to_thread(path.write_text, text, encoding="utf-8")
        files[split] = str(path)
    return files


def _counted(live: LiveRun, missing: list[str]) -> DataShape:
    """Return what profile counted. Raises UserError when it has not run yet."""
    state = Memory.from_status(live.status.state).run
    used = live.status.usage.get("task")
    calls = used.calls + used.hits if used is not None else 0
    if state.facts is None or used is None or not calls:
        flags, splits = " ".join(f"--data {split}=PATH" for split in missing), " and ".join(missing)
        raise UserError(
            f"the data of {splits} is where only pods reach it, and nothing has counted it yet",
            fix=f"Give a copy: {flags}; or come again when the run has profiled it",
        )
    note("counts are those of the run's profile; tokens of an input are what its task calls had on average")
    return DataShape(state.facts, used.prompt_tokens / calls)
