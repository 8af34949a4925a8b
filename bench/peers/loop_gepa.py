"""Run `gepa.optimize` with its own `ComBEEReflectionLM` from its checkout, for one epoch.

    PYTHON loop_gepa.py CHECKOUT URL MODEL TRAIN VAL OUT SLOTS BATCH

The loop, the shuffle, the groups, both levels, the prompts, the acceptance and the Pareto front are gepa's.
What gepa leaves to its user is ours and below: the adapter. It asks many examples at a time (as many as there
are slots) and feeds back, for each trajectory, the lessons that a reflection on it brought, since ComBEE's
levels aggregate reflections."""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

from recorder import Recorder  # type: ignore[import-not-found]  # beside this script, in the peer's Python

SEED = "Answer the question about a financial formula. Reply with the number only."
REFLECT = """Diagnose the answer to this question: say what went wrong, if anything, and which \
lessons to remember.

Question:
{question}

Answer given: {answer}
Right answer: {target}

Answer in this exact JSON format:
{{
  "diagnosis": "[what went wrong]",
  "lessons": ["[a lesson]"]
}}
"""
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:[eE]-?\d+)?")


def number(text: str) -> float | None:
    """The last number of a text."""
    found = NUMBER.findall(text)
    try:
        return float(found[-1].replace(",", "")) if found else None
    except ValueError:
        return None


class Adapter:
    """gepa's GEPAAdapter for Formula."""

    propose_new_texts = None

    def __init__(self, recorder: Recorder, slots: int, batch_type: Any) -> None:
        self.recorder, self.slots, self.batch_type = recorder, slots, batch_type

    def evaluate(self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        """Roll every example out."""
        system = {"role": "system", "content": candidate["instructions"]}
        many = [[system, {"role": "user", "content": row["context"]}] for row in batch]
        said = self.recorder.ask_all(many, "rollout", self.slots)
        scores = [float(number(text) == number(row["target"])) for text, row in zip(said, batch, strict=True)]
        traces = [{"row": row, "said": text} for row, text in zip(batch, said, strict=True)]
        return self.batch_type(outputs=said, scores=scores, trajectories=traces if capture_traces else None)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> dict[str, list[dict[str, str]]]:
        """A reflection on every trajectory."""
        traces = eval_batch.trajectories
        many = [
            [{"role": "user", "content": REFLECT.format(**_shown(trace["row"], trace["said"]))}]
            for trace in traces
        ]
        lessons = [_lessons(text) for text in self.recorder.ask_all(many, "reflect", self.slots)]
        records = [
            {"Inputs": trace["row"]["context"], "Generated Outputs": trace["said"], "Feedback": lesson}
            for trace, lesson in zip(traces, lessons, strict=True)
        ]
        return dict.fromkeys(components_to_update, records)


def _shown(row: dict[str, Any], said: str) -> dict[str, str]:
    return {"question": row["context"], "answer": said, "target": row["target"]}


def _lessons(text: str) -> str:
    try:
        return " ".join(json.loads(text)["lessons"]) or "Nothing to remember."
    except (ValueError, KeyError, TypeError):
        return text


def main() -> None:
    """See the module."""
    checkout, url, model, train, val, out, slots, batch = sys.argv[1:]
    sys.path.insert(0, str(Path(checkout) / "src"))
    gepa = importlib.import_module("gepa")
    combee = importlib.import_module("gepa.proposer.reflective_mutation.combee")
    stops = importlib.import_module("gepa.utils.stop_condition")
    recorder = Recorder(url, model)
    rows = [
        [json.loads(line) for line in Path(path).read_text().splitlines() if line.strip()]
        for path in (train, val)
    ]

    def reflect(prompt: Any) -> str:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        return str(recorder.ask(messages, "aggregate"))

    proposals = math.ceil(len(rows[0]) / int(batch))
    found = gepa.optimize(
        seed_candidate={"instructions": SEED},
        trainset=rows[0],
        valset=rows[1],
        adapter=Adapter(recorder, int(slots), importlib.import_module("gepa.core.adapter").EvaluationBatch),
        reflection_strategy=combee.ComBEEReflectionLM(reflect),
        reflection_minibatch_size=int(batch),
        stop_callbacks=[stops.MaxCandidateProposalsStopper(proposals)],
        seed=0,
    )
    best = found.best_candidate["instructions"]
    recorder.write(
        Path(out), {"artifact": best}, val=found.val_aggregate_scores, candidates=len(found.candidates)
    )


if __name__ == "__main__":
    main()
