"""``combee validate``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from combee.api.cluster import check_cluster
from combee.api.common import API_VERSION
from combee.api.discipline import SPEC, TEMPLATE, advice
from combee.api.load import KIND, Resource, disciplined, problems_in, resources_in
from combee.api.playbook import Playbook
from combee.api.run import PromptLearningRun
from combee.assembly.manifest import STANDARD_INPUT, read_manifest_text
from combee.cli.errors import USER_ERROR, guarded, say, write
from combee.errors import ManifestError
from combee.objects.allowed import refused, refused_parts
from combee.plan.playbook.traffic import least_epsilon, warnings

PAIRS = (1_000, 10_000, 100_000)
"""the numbers of pairs for which the least epsilon is told."""


def _warn(playbook: Playbook, *, as_json: bool) -> None:
    """Tell what its canary asks for and can hardly get, as the status will say it, and what can be had."""
    texts = warnings(playbook.spec)
    for text in texts:
        _note(f"warning: Playbook {playbook.metadata.name}: {text}", as_json=as_json)
    canary = playbook.spec.canary
    if texts and canary is not None and canary.mode in ("Shadow", "Replay"):
        least = {pairs: least_epsilon(playbook.spec, pairs) for pairs in PAIRS}
        can = ", ".join(f"{pairs:,} pairs: {epsilon or 'none'}" for pairs, epsilon in least.items())
        allowed = f"that failureCost {playbook.spec.failure_cost} allows and that can be decided"
        _note(f"the least epsilon {allowed} for an equal candidate, by {can}", as_json=as_json)


def refused_of(resource: Resource) -> Iterator[ManifestError]:
    """Yield what the operator refuses, whatever its installation allows. A laptop takes a run's files."""
    if isinstance(resource, PromptLearningRun):
        yield from refused_parts(resource.spec)
    if isinstance(resource, Playbook):
        yield from check_cluster(resource)
    if isinstance(resource, Playbook) and resource.spec.learn is not None:
        learn = {**resource.spec.learn.template.dump(), "playbookRef": {"name": resource.metadata.name}}
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "run"}, "spec": learn}
        for error in refused(PromptLearningRun.model_validate(body)):
            at = error.where.removeprefix(SPEC)
            yield ManifestError(error.what, where=f"{TEMPLATE}{at}", fix=error.fix)


def _laptop_only(run: PromptLearningRun) -> list[ManifestError]:
    """Return what a cluster would refuse of a run that a laptop takes; nothing of one that names a laptop's
    files or no Playbook, which is plainly for a laptop."""
    refusals = check_cluster(run)
    plainly = any(error.where.endswith((".uri", ".playbookRef")) for error in refusals)
    return [] if plainly else refusals


def _note(text: str, *, as_json: bool) -> None:
    # With --json, stderr is for events alone.
    if not as_json:
        write(sys.stderr, f"{text}\n")


def run_validate(path: Path, *, as_json: bool) -> int:
    """Print every problem of the manifest, or that there is none, and what it can hardly get."""

    def work() -> int:
        text = read_manifest_text(path)
        problems = problems_in(text, str(path), refused_of)
        for problem in problems:
            say(problem, as_json=as_json)
        if problems:
            return USER_ERROR
        resources = resources_in(text, str(path))
        for one in resources:
            named = disciplined(one)
            for text in advice(*named) if named is not None else ():
                _note(f"warning: {one.kind} {one.metadata.name}: {text}", as_json=as_json)
            if isinstance(one, Playbook):
                _warn(one, as_json=as_json)
            if isinstance(one, PromptLearningRun):
                for error in _laptop_only(one):
                    _note(f"warning: {one.kind} {one.metadata.name}, on a cluster: {error}", as_json=as_json)
        ids = [(one.kind, one.metadata.name) for one in resources]
        names = ", ".join(name if kind == KIND else f"{kind} {name}" for kind, name in ids)
        kept, file = ("write it to run.yaml, then ", "run.yaml") if path == STANDARD_INPUT else ("", path)
        then = f"combee preview -f {file}" if KIND in dict(ids) else f"kubectl apply -f {file}"
        print(f"{path}: valid ({names}). Next: {kept}{then}")  # noqa: T201
        return 0

    return guarded(work, as_json=as_json)
