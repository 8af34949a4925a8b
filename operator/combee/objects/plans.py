"""The ConfigMaps that show pods the run and the frozen plan of an iteration. Both never change."""

from __future__ import annotations

import json

from combee import names
from combee.api.run import PromptLearningRun
from combee.objects.meta import metadata
from combee.objects.types import Object
from combee.plan.types import Clocks, IterationPlan
from combee.records import Owner

RUN_KEY = "run.json"
PLAN_KEY, CLOCKS_KEY = "plan.json", "clocks.json"


def run_config(run: PromptLearningRun, owner: Owner) -> Object:
    """Return the run as its pods read it: the spec with defaults filled in, under ``run.json``.

    It is immutable, so an upgraded operator with other defaults does not change a run that has begun.
    ``suspend`` says when a run works and not what it is, so it is always false here.
    """
    shown = {
        "apiVersion": run.api_version,
        "kind": run.kind,
        "metadata": {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid},
        "spec": {**run.spec.dump(), "suspend": False},
    }
    text = json.dumps(shown, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    return _config_map(metadata(owner, names.run_config_name(owner.name, owner.uid), "run"), {RUN_KEY: text})


def plan_config(plan: IterationPlan, clocks: Clocks, owner: Owner) -> Object:
    """Return an iteration's frozen plan, under ``plan.json``: made before its work, read back on a 409. What
    the clocks showed when it was decided is under ``clocks.json``, for a replay; no pod of a step sees it."""
    name = names.plan_name(owner.name, owner.uid, plan.iteration)
    meta = metadata(owner, name, "plan", {names.LABEL_ITERATION: str(plan.iteration)})
    return _config_map(meta, {PLAN_KEY: plan.to_json().decode(), CLOCKS_KEY: clocks.to_json().decode()})


def _config_map(meta: Object, data: dict[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, "data": data}
