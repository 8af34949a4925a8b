"""The run's splits as a pod has them: mounted files or addresses, read when first asked for.

A kind of step sees only the splits that its row in ``steps`` gives it, whatever credentials happen to be
there, and each split must be what ``profile`` pinned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from combee.api.local import sources
from combee.api.parts import DataSource
from combee.assembly.splits import Secret, cluster_field, read_playbook, read_split, refuse_moved
from combee.clients.data.remote import checked_remote
from combee.errors import BugError, DataError
from combee.names import COMPONENTS_KEY
from combee.pod.environment import Pod
from combee.steps import KINDS
from combee.tasks.dataset import Dataset
from combee.tasks.registry import task_of

INITIAL = "initialPlaybook"


@dataclass(slots=True)
class PodData:
    """Implements ``work.context.Data``."""

    pod: Pod
    pinned: Mapping[str, str] = field(default_factory=dict)
    """split -> the digest that it must have."""
    _read: dict[str, Dataset] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def train(self) -> Dataset:
        """Return the rows to learn from."""
        return await self._split("train")

    async def held_out(self) -> Dataset | None:
        """Return the rows to select and gate on; None when the run has none."""
        return await self._split("heldOut") if "heldOut" in sources(self.pod.run) else None

    async def test(self) -> Dataset | None:
        """Return the rows that are scored once; None when the run has none."""
        return await self._split("test") if "test" in sources(self.pod.run) else None

    async def every(self) -> dict[str, Dataset]:
        """Return all splits of the run, by name."""
        return {name: await self._split(name) for name in sources(self.pod.run)}

    async def _split(self, name: str) -> Dataset:
        async with self._lock:
            if name not in self._read:
                split = await asyncio.to_thread(self._read_split, name)
                refuse_moved(name, split, self.pinned.get(name))
                self._read[name] = split
            return self._read[name]

    def _read_split(self, name: str) -> Dataset:
        _refuse_foreign(self.pod, name)
        source, spec = sources(self.pod.run)[name], self.pod.spec.task
        uri, secret = _place(self.pod, name, source)
        field, forgotten = cluster_field(spec, name), source.forgotten or ()
        return read_split(task_of(spec), uri, secret, cluster_by=field, forgotten=forgotten)


def initial_playbook(pod: Pod) -> str:
    """Return the text that learning starts from; empty when there is none or the step does not mount it."""
    initial = pod.spec.task.initial_playbook
    # The operator gives pods an active version as the ConfigMap that holds it; there may be none yet.
    if initial is None or initial.active_version or INITIAL not in KINDS[pod.step.kind].data:
        return ""
    if initial.config_map is not None:
        parts = pod.data_file(INITIAL, COMPONENTS_KEY)
        # Where a digest is told it is of the key, and nothing says what is beside it.
        several = pod.spec.method.has_components and initial.sha256 is None and Path(parts).exists()
        file = parts if several else pod.data_file(INITIAL, initial.config_map.key)
        return read_playbook(file, sha256=initial.sha256)
    return read_playbook(_remote(initial.uri or ""), sha256=initial.sha256)


def _refuse_foreign(pod: Pod, name: str) -> None:
    allowed = KINDS[pod.step.kind].data
    if name not in allowed:
        raise BugError(f"a {pod.step.kind} step may not read {name}", where=pod.step.name)


def _place(pod: Pod, name: str, source: DataSource) -> tuple[str, Secret | None]:
    """Return where a split is, and the Secret that goes with it."""
    if source.config_map is not None:
        return pod.data_file(name, source.config_map.key), None
    if source.pvc is not None:
        return pod.data_file(name, source.pvc.path), None
    uri, secret = _remote(source.uri or ""), pod.secret(name)
    if source.secret_ref is not None and not secret:
        raise DataError(
            f"the Secret {source.secret_ref.name} is empty",
            where=f"spec.task.data.{name}.secretRef",
            fix="Give it the keys that the address needs",
        )
    return uri, secret


def _remote(uri: str) -> str:
    checked_remote(uri)
    return uri
