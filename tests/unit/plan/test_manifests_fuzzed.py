"""10,000 manifests, made from the schemas and by mutation: none crashes, and validate and operator agree.

Each is asked of ``combee validate``, of the operator and, as far as a schema says it, of the API server.
The seed is printed; COMBEE_FUZZ_SEED gives another.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest
from jsonschema import Draft4Validator

from combee.api.load import KIND, problems_in
from combee.api.yamlread import read_yaml
from combee.cli.validate import refused_of
from combee.errors import BugError, ManifestError
from combee.objects.engines import check_run
from combee.objects.types import Settings
from combee.plan.cluster.accept import Policy, RefusedError, accept, question
from combee.plan.cluster.hardware import EngineGpus
from fuzzed_manifests import manifest_of, schema

MANIFESTS, BATCHES = 10_000, 20
SEED = int(os.environ.get("COMBEE_FUZZ_SEED", "18"))
SETTINGS = Settings("worker:1", vllm_image="vllm:1", engine_images=("localhost", "ghcr.io", "combee"))
POLICY = Policy(allow_custom_tasks=True, secret_policy=True, discipline="Advisory")


def said_by_operator(manifest: dict[str, Any]) -> str:
    """What keeps a run from being accepted; empty when nothing."""
    try:
        run = accept(manifest, POLICY)
        check_run(run, SETTINGS)
        question(run.spec, POLICY, EngineGpus(), started=False)
    except (RefusedError, ManifestError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_manifest_crashes_and_what_validate_takes_the_operator_takes(batch: int) -> None:
    print(f"seed {SEED}")
    good = 0
    for number in range(MANIFESTS // BATCHES):
        manifest = manifest_of(random.Random(f"{SEED}/{batch}/{number}"))
        about = f"seed {SEED}, batch {batch}, number {number}"
        text = json.dumps(manifest)
        problems = problems_in(text, "m.yaml", refused_of)
        assert not [one for one in problems if isinstance(one, BugError)], about
        for one in problems:
            assert str(one) and "\n" not in str(one) and len(str(one)) < 5000, about
        if not problems:
            (manifest,) = [document.value for document in read_yaml(text, "m.yaml")]
        if not isinstance(manifest, dict):
            assert problems, about
            continue
        said = said_by_operator(manifest) if manifest.get("kind") == KIND else ""
        if problems:
            continue
        good += 1
        kind = manifest["kind"]
        checked = Draft4Validator(schema(kind))
        assert kind != KIND or not said or _only_here(said), (about, said)
        faults = [error.message for error in checked.iter_errors(manifest)]
        assert not faults, (about, faults)
    assert good, "all of them were refused"


def _only_here(said: str) -> bool:
    """Whether it is what validate leaves to the place: files, which a laptop has, and images."""
    return any(
        words in said
        for words in ("file of yours", "which Playbook", "a cluster starts the program", "not allowed here")
    )
