"""Adapters as in gepa's own tests: stateless ones, some that fail on examples, some that break the
protocol."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

from gepa.core.adapter import EvaluationBatch


class Weights:
    """The score follows a number in the first component; the second component says what else counts."""

    def evaluate(self, batch, candidate, capture_traces=False):
        weight = int(candidate["system_prompt"].split("=")[-1])
        scores = [min(1.0, (weight + 1) / row["difficulty"]) for row in batch]
        outputs = [{"id": row["id"], "weight": weight} for row in batch]
        objectives = [
            {"fast": 1.0 / row["difficulty"], "right": score}
            for row, score in zip(batch, scores, strict=True)
        ]
        traces = [{"score": score} for score in scores] if capture_traces else None
        return EvaluationBatch(outputs, scores, traces, objectives)

    def make_reflective_dataset(self, candidate, eval_batch, components_to_update):
        (name,) = components_to_update
        records = [
            {"Inputs": {"component": name}, "Feedback": f"it scored {one['score']:g}"}
            for one in eval_batch.trajectories
        ]
        return {name: records if name == "system_prompt" else []}


class Fails(Weights):
    """Does what the row says."""

    def evaluate(self, batch, candidate, capture_traces=False):
        does = batch[0].get("does")
        if does == "raise":
            raise ConnectionError("the database is away")
        if does == "die":
            os.write(2, b"out of everything\n")
            os._exit(9)
        if does == "die once" and not os.path.exists(batch[0]["mark"]):
            open(batch[0]["mark"], "w").close()
            os._exit(9)
        if does == "hang":
            time.sleep(1000)
        done = super().evaluate(batch, candidate, capture_traces)
        if does == "none":
            done.scores = [None]
        if does == "nan":
            done.scores = [float("nan")]
        if does == "print":
            print("{} not an answer")
        return done


class Unreflective(Weights):
    def make_reflective_dataset(self, candidate, eval_batch, components_to_update):
        raise Exception("No valid predictions found for any module.")


class Asks:
    """Asks the task model, and takes no answer for a wrong one, as many an adapter does."""

    def __init__(self, model):
        self.model = model

    def evaluate(self, batch, candidate, capture_traces=False):
        try:
            said = self.model([{"role": "user", "content": row["ask"]} for row in batch], max_tokens=50)
        except Exception:
            said = ""
        return EvaluationBatch([said] * len(batch), [float("right" in said)] * len(batch), [{"said": said}])

    def make_reflective_dataset(self, candidate, eval_batch, components_to_update):
        return {name: [{"Said": eval_batch.trajectories[0]["said"]}] for name in components_to_update}


class Answers(Weights):
    """Returns what the row says, whatever it is."""

    def evaluate(self, batch, candidate, capture_traces=False):
        return SimpleNamespace(
            **{"outputs": [""], "scores": [1.0], "trajectories": [{}], **batch[0]["answers"]}
        )

    def make_reflective_dataset(self, candidate, eval_batch, components_to_update):
        return getattr(eval_batch, "records", {})


class Nothing:
    pass


def named(model):
    """Made with a client that takes no model without a name, such as dspy's."""
    if not model.name:
        raise ValueError("no model id")
    return Weights()


def maths(model):
    """gepa's AnyMathsAdapter, told where the run's model is: it asks by itself, with litellm."""
    from gepa.adapters.anymaths_adapter.anymaths_adapter import AnyMathsAdapter

    return AnyMathsAdapter(model=f"openai/{model.name}", api_base=model.base_url)


def anything():
    """gepa's adapter of optimize_anything: an evaluator of one's own, with objectives beside the score."""
    from gepa.adapters.optimize_anything_adapter.optimize_anything_adapter import OptimizeAnythingAdapter

    def evaluator(candidate, example=None, opt_state=None):
        hit = float(example["wants"] in candidate["code"])
        return (
            hit,
            None,
            {"scores": {"short": 1 / len(candidate["code"])}, "Feedback": f"wants {example['wants']}"},
        )

    return OptimizeAnythingAdapter(evaluator=evaluator)
