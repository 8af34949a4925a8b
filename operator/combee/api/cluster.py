"""What a cluster asks of a run beyond what a laptop does, in one table.

The models are shared with the laptop, where ``file:`` addresses, relative paths and a missing
``playbookRef`` are fine. The API server refuses them by the rules that ``combee.api.cel`` marks as
CLUSTER; the operator asks here again, for an object that an older CRD let through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from combee.api.common import REMOTE_SCHEMES, WRITABLE_SCHEMES, uri_scheme
from combee.api.local import sources
from combee.api.run import PromptLearningRun
from combee.errors import ManifestError


@dataclass(frozen=True, slots=True)
class ClusterRule:
    """One thing that only a cluster refuses: where it is found in a run, what is wrong, what is right."""

    found: Callable[[PromptLearningRun], Iterator[str]]
    """paths at which a run breaks it."""
    what: str
    fix: str


def _no_playbook(run: PromptLearningRun) -> Iterator[str]:
    if run.spec.playbook_ref is None:
        yield "spec.playbookRef"


def _local_data(run: PromptLearningRun) -> Iterator[str]:
    named = {f"spec.task.data.{name}.uri": source.uri for name, source in sources(run).items()}
    if run.spec.task.initial_playbook is not None:
        named["spec.task.initialPlaybook.uri"] = run.spec.task.initial_playbook.uri
    for path, uri in named.items():
        if uri is not None and uri_scheme(uri) not in REMOTE_SCHEMES:
            yield path


def _local_store(run: PromptLearningRun) -> Iterator[str]:
    uri = run.spec.store.uri
    if uri is not None and uri_scheme(uri) not in WRITABLE_SCHEMES:
        yield "spec.store.uri"


def _no_command(run: PromptLearningRun) -> Iterator[str]:
    container = run.spec.task.container
    if container is not None and not container.command:
        yield "spec.task.custom.container.command"


def _addresses(schemes: tuple[str, ...]) -> str:
    return ", ".join(f"{scheme}://" for scheme in schemes)


RULES: tuple[ClusterRule, ...] = (
    ClusterRule(
        _no_playbook,
        "a run on a cluster says which Playbook its result is for",
        "Add playbookRef: {name: ...}.",
    ),
    ClusterRule(
        _local_data,
        "a cluster cannot read a file of yours",
        f"Use {_addresses(REMOTE_SCHEMES)}, a configMap or a pvc.",
    ),
    ClusterRule(
        _local_store,
        "a cluster cannot write a file of yours",
        f"Use {_addresses(WRITABLE_SCHEMES)} or a pvc.",
    ),
    ClusterRule(
        _no_command,
        "a cluster starts the program of a container itself, and cannot see what its image would start",
        "Add command: [...], the image's own entrypoint.",
    ),
)


def check_cluster(run: PromptLearningRun) -> list[ManifestError]:
    """What a cluster refuses of a run that its models accept; empty when nothing."""
    return [ManifestError(rule.what, where=path, fix=rule.fix) for rule in RULES for path in rule.found(run)]
