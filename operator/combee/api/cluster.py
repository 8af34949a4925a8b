"""What a cluster asks of a run or a Playbook beyond what a laptop does.

The models are shared with the laptop, where ``file:`` addresses, relative paths and a missing
``playbookRef`` are fine. The API server refuses them by the rules that ``combee.api.cel`` marks as
CLUSTER; the operator asks here again, for an object that an older CRD let through.
"""

from __future__ import annotations

from collections.abc import Iterator

from combee.api.common import REMOTE_SCHEMES, WRITABLE_SCHEMES, uri_scheme
from combee.api.local import sources
from combee.api.playbook import Playbook, PlaybookVersion
from combee.api.run import PromptLearningRun
from combee.errors import ManifestError


def check_cluster(resource: PromptLearningRun | Playbook | PlaybookVersion) -> list[ManifestError]:
    """Return what a cluster refuses of a resource, a Playbook's template apart, that its models accept; empty
    when nothing."""
    if isinstance(resource, PromptLearningRun):
        return list(_refusals(resource))
    return list(_of_playbook(resource)) if isinstance(resource, Playbook) else []


def _of_playbook(playbook: Playbook) -> Iterator[ManifestError]:
    requests = playbook.spec.canary.replay.requests if playbook.spec.canary is not None else None
    if requests is not None:
        yield from _unreadable("spec.canary.replay.requests.uri", requests.uri)
    store = playbook.spec.delivery.gateway.capture.store
    yield from _unwritable("spec.delivery.gateway.capture.store.uri", store.uri)


def _refusals(run: PromptLearningRun) -> Iterator[ManifestError]:
    spec = run.spec
    if spec.playbook_ref is None:
        yield ManifestError(
            "a run on a cluster says which Playbook its result is for",
            where="spec.playbookRef",
            fix="Add playbookRef: {name: ...}.",
        )
    for name, source in sources(run).items():
        yield from _unreadable(f"spec.task.data.{name}.uri", source.uri)
    if spec.task.initial_playbook is not None:
        yield from _unreadable("spec.task.initialPlaybook.uri", spec.task.initial_playbook.uri)
    yield from _unwritable("spec.store.uri", spec.store.uri)
    if spec.task.container is not None and not spec.task.container.command:
        yield ManifestError(
            "a cluster starts the program of a container itself, and cannot see what its image would start",
            where="spec.task.custom.container.command",
            fix="Add command: [...], the image's own entrypoint.",
        )


def _unreadable(path: str, uri: str | None) -> Iterator[ManifestError]:
    if uri is not None and uri_scheme(uri) not in REMOTE_SCHEMES:
        fix = f"Use {_schemes(REMOTE_SCHEMES)}, a configMap or a pvc."
        yield ManifestError("a cluster cannot read a file of yours", where=path, fix=fix)


def _unwritable(path: str, uri: str | None) -> Iterator[ManifestError]:
    if uri is not None and uri_scheme(uri) not in WRITABLE_SCHEMES:
        fix = f"Use {_schemes(WRITABLE_SCHEMES)} or a pvc."
        yield ManifestError("a cluster cannot write a file of yours", where=path, fix=fix)


def _schemes(schemes: tuple[str, ...]) -> str:
    return ", ".join(f"{scheme}://" for scheme in schemes)
