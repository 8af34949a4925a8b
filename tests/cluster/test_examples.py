"""Every example is what the API server takes, and what the operator makes of it, too."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from cluster_tools import REPOSITORY, Cluster, fresh_namespace, sharing

from combee import names
from combee.api.load import parse_run
from combee.objects.engines import engine_objects, prefetch_job
from combee.objects.jobs import step_job
from combee.objects.types import Settings
from combee.plan.cluster.accept import Policy, accept, question
from combee.plan.cluster.hardware import engine_gpus
from combee.plan.types import Step
from combee.records import Owner

FOLDER = REPOSITORY / "examples"
LAPTOP = {
    "formula.yaml",
    "finer.yaml",
    "traces.yaml",
    "custom.yaml",
    "container.yaml",
    "gepa.yaml",
    "textgrad.yaml",
    "mipro.yaml",
    "appworld.yaml",
    "tau2.yaml",
    "tau2-small.yaml",
    "terminal-bench.yaml",
    "adapter.yaml",
    "replies.yaml",
    "replies-real.yaml",
}
"""read files of this machine."""
FILES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.yaml") if path.name not in LAPTOP)
FOREIGN = {"Application", "GitRepository", "Kustomization", "ResourceFlavor", "ClusterQueue", "LocalQueue"}
FOREIGN |= {"WorkloadPriorityClass", "Agent", "ModelConfig"}
"""of tools that are not here; their CRDs took these objects when they were written."""
DRY_RUN = ("--dry-run=server", "--validate=strict", "--warnings-as-errors")


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    """One for all of them, since nothing is made in it."""
    with sharing(), fresh_namespace(cluster) as name:
        yield name


def objects(file: str) -> list[dict[str, Any]]:
    return [made for made in yaml.safe_load_all((FOLDER / file).read_text()) if made]


def applied(cluster: Cluster, namespace: str, made: list[dict[str, Any]]) -> None:
    for one in made:
        one["metadata"].pop("namespace", None)
    cluster.kubectl("apply", "--server-side", *DRY_RUN, "-f", "-", namespace=namespace, stdin=made)


@pytest.mark.parametrize("file", FILES)
def test_the_server_takes_it(cluster: Cluster, namespace: str, file: str) -> None:
    ours = [made for made in objects(file) if made["kind"] not in FOREIGN]
    assert not [made for made in ours if made["kind"] == "Secret"], "people make Secrets by a command"
    if ours:
        applied(cluster, namespace, ours)


def test_no_object_is_called_foreign_that_is_not_there() -> None:
    assert {made["kind"] for file in FILES for made in objects(file)} >= FOREIGN


RUNS = [(file, made) for file in FILES for made in objects(file) if made["kind"] == "PromptLearningRun"]


@pytest.mark.parametrize(("file", "made"), RUNS, ids=lambda value: value if isinstance(value, str) else "")
def test_the_server_takes_what_the_operator_makes_of_it(
    cluster: Cluster, namespace: str, file: str, made: dict[str, Any]
) -> None:
    policy = Policy(allow_custom_tasks=True, secret_policy=True, discipline="Strict")
    spec = accept(made, policy).spec
    question(spec, policy, engine_gpus(spec, None), started=False)
    run, owner = parse_run(made, ""), Owner(made["metadata"]["name"], namespace, "3fa9c1d2-0000")
    settings = Settings(
        "localhost/w:1",
        vllm_image="localhost/v:1",
        engine_images=("localhost",),
        engine_arguments=("--time-scale",),
    )
    applied(cluster, namespace, list(_made(run, owner, settings)))


def _made(run: Any, owner: Owner, settings: Settings) -> Iterator[dict[str, Any]]:
    for index, _ in enumerate(run.spec.engines):
        yield from engine_objects(run, owner, index, settings)
        if (fetch := prefetch_job(run, owner, index, settings)) is not None:
            yield fetch
    for kind in ("profile", "map", "reduce", "finish", "evaluate"):
        name = names.step_name(owner.name, owner.uid, 0, kind)
        yield step_job(run, owner, Step(name, kind, 0, 7, 2 if kind == "map" else 1), 0, settings)


def commands() -> list[tuple[str, str]]:
    """The ``kubectl create`` lines of the examples' heads."""
    lines = [(file, line) for file in FILES for line in (FOLDER / file).read_text().splitlines()]
    return [(file, line.lstrip("# ")) for file, line in lines if re.match(r"# +kubectl create ", line)]


@pytest.mark.parametrize(("file", "line"), commands(), ids=lambda value: value if ".yaml" in value else "")
def test_what_people_are_told_to_make_can_be_made(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch, file: str, line: str
) -> None:
    monkeypatch.chdir(REPOSITORY)
    words = shlex.split(line)
    made = yaml.safe_load(cluster.kubectl(*words[1:], "--dry-run=server", "-o", "yaml", namespace=namespace))
    if made["kind"] == "Secret":
        named = re.findall(
            r"(?:(?:secretRef|apiKeySecretRef): {name|apiKeySecret): ([\w-]+)", (FOLDER / file).read_text()
        )
        told = {shlex.split(one)[4] for where, one in commands() if where == file and " secret " in one}
        assert made["metadata"]["name"] in named and set(named) == told
