"""Prices on a laptop: a flag that names another model, and GPUs, of which a laptop has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from combee.api.load import parse_run
from combee.api.run import PromptLearningRun
from combee.cli.preview import run_preview
from combee.errors import UserError
from combee.local.flags import StandInFlags
from combee.local.sources import StandIns, with_engine_models

ROOT = Path(__file__).resolve().parents[3]


def run_of(
    *, per_gpu_hour: float = 0.0, priced: tuple[str, ...] = (), prices: bool = True
) -> PromptLearningRun:
    """A run with one engine of its own, which serves the model m."""
    names = [{"name": name, "promptPerMillionTokens": 1, "completionPerMillionTokens": 2} for name in priced]
    role = {"engineRef": {"name": "main"}}
    spec: dict[str, Any] = {
        "task": {"type": "Formula", "data": {"train": {"uri": "t.jsonl"}, "heldOut": {"uri": "h.jsonl"}}},
        "method": {"type": "ACE"},
        "engines": [{"name": "main", "vllm": {"model": "m"}}],
        "models": {"task": role, "proposer": role},
    }
    if prices:
        spec["prices"] = {"currency": "EUR", "models": names, "perGpuHour": per_gpu_hour}
        spec["budget"] = {"money": 5}
    head = {"apiVersion": "combee.dev/v1alpha1", "kind": "PromptLearningRun", "metadata": {"name": "formula"}}
    return parse_run({**head, "spec": spec}, "test")


@pytest.mark.parametrize(
    "run", [run_of(priced=("m",)), run_of(per_gpu_hour=3.0)], ids=["by the token", "by the GPU hour"]
)
def test_a_flag_does_not_name_a_model_without_a_price(run: PromptLearningRun) -> None:
    with pytest.raises(UserError) as caught:
        with_engine_models(run, StandIns(engine_models={"main": "hosted"}))
    assert (caught.value.where, caught.value.what) == (
        "--engine-model main",
        "the manifest's prices say nothing of hosted",
    )


def test_a_flag_may_name_a_model_with_a_price_the_engines_own_and_any_without_prices() -> None:
    hosted, own = (StandIns(engine_models={"main": model}) for model in ("hosted", "m"))
    priced = run_of(priced=("m", "hosted"))
    assert with_engine_models(priced, hosted).spec.model_name("task") == "hosted"
    gpus, plain = run_of(per_gpu_hour=3.0), run_of(prices=False)
    assert with_engine_models(gpus, own) == gpus
    assert with_engine_models(plain, hosted).spec.model_name("task") == "hosted"


def test_a_laptop_says_that_it_does_not_count_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split, rows in (("t", slice(0, 10)), ("h", slice(10, 34))):
        lines = (ROOT / "examples/data/formula/train.jsonl").read_text().splitlines()[rows]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines))

    def said(run: PromptLearningRun) -> str:
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(run.dump()))
        assert run_preview(path, StandInFlags(), as_json=False) == 0
        return capsys.readouterr().out

    gpus, tokens = said(run_of(per_gpu_hour=3.0)), said(run_of(priced=("m",)))
    assert "cost of the likely tokens         0.00 to 0.00 EUR; GPU time comes on top\n" in gpus
    assert (
        gpus.count(
            "warning: prices say nothing of the tokens of m, and a laptop does not count the time of its GPUs"
        )
        == 1
    )
    assert "prices say nothing" not in tokens and "on top" not in tokens
    (cost,) = (line.split()[-4:] for line in tokens.splitlines() if line.startswith("cost of"))
    assert 0 < float(cost[0]) < 1 and len(cost[0].lstrip("0.")) <= 3, "three figures, as the report has it"
