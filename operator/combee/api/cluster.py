"""What a cluster asks of a run beyond what a laptop does.

The models are shared with the laptop, where ``file:`` addresses, relative paths and a missing
``playbookRef`` are fine. The API server refuses them by the rules that ``combee.api.cel`` marks as
CLUSTER; the operator asks here again, for an object that an older CRD let through.
"""

from __future__ import annotations

from collections.abc import Iterator

from combee.api.common import REMOTE_SCHEMES, WRITABLE_SCHEMES, uri_scheme
from combee.api.local import sources
from combee.api.run import PromptLearningRun
from combee.errors import ManifestError


def check_cluster(run: PromptLearningRun) -> list[ManifestError]:
    """Return what a cluster refuses of a run that its models accept; empty when nothing."""
    return list(_refusals(run))


def _refusals(run: PromptLearningRun) -> Iterator[ManifestError]:
    spec = run.spec
    if spec.playbook_ref is None:
        yield ManifestError(
            "a run on a cluster says which Playbook its result is for",
            where="spec.playbookRef",
            fix="Add playbookRef: {name: ...}.",
        )
    addresses = {f"spec.task.data.{name}.uri": source.uri for name, source in sources(run).items()}
    if spec.task.initial_playbook is not None:
        addresses["spec.task.initialPlaybook.uri"] = spec.task.initial_playbook.uri
    for path, uri in addresses.items():
        if uri is not None and uri_scheme(uri) not in REMOTE_SCHEMES:
            fix = f"Use {_schemes(REMOTE_SCHEMES)}, a configMap or a pvc."
            yield ManifestError("a cluster cannot read a file of yours", where=path, fix=fix)
    if spec.store.uri is not None and uri_scheme(spec.store.uri) not in WRITABLE_SCHEMES:
        fix = f"Use {_schemes(WRITABLE_SCHEMES)} or a pvc."
        yield ManifestError("a cluster cannot write a file of yours", where="spec.store.uri", fix=fix)
    if spec.task.container is not None and not spec.task.container.command:
        yield ManifestError(
            "a cluster starts the program of a container itself, and cannot see what its image would start",
            where="spec.task.custom.container.command",
            fix="Add command: [...], the image's own entrypoint.",
        )


def _schemes(schemes: tuple[str, ...]) -> str:
    return ", ".join(f"{scheme}://" for scheme in schemes)
