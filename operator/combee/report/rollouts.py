"""``rollouts.jsonl``: a line for each rollout of a run, for audits. It holds no prompt and no row of data.

Ids come from the data and may name somebody: each passes the redactor that traffic passes before it is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from combee.plan.types import StepSummary
from combee.report.session import Session
from combee.steps import kind_of, turn_of
from combee.work.asker import decode_rows
from combee.work.context import read_receipt
from combee.work.noted import RolledOut, decode_notes
from combee.work.traffic.record import redacted

ROLLOUTS_FILE = "rollouts.jsonl"


CallGraphs = Sequence[tuple[StepSummary, Sequence[bytes]]]
"""Finished steps in the order of the run, each with the call graphs of its shards."""


async def read_graphs(session: Session) -> CallGraphs:
    """Return the call graphs of the finished steps that asked models."""
    return [(summary, await _graphs(session, summary)) for summary in _in_order(session.summaries)]


def rollouts_of(session: Session, graphs: CallGraphs) -> bytes:
    """Return the file's bytes, in the order of the steps; empty for a run whose steps noted no rollouts."""
    seconds = sum(row.seconds for _, parts in graphs for data in parts for row in decode_rows(data))
    per_second = session.gpu_seconds / seconds if session.gpu_seconds and seconds else None
    lines = [
        json.dumps(_line(summary, one, _models(session, summary), per_second), ensure_ascii=False) + "\n"
        for summary, parts in graphs
        for data in parts
        for one in decode_notes(data).rollouts
    ]
    return "".join(lines).encode()


def _in_order(summaries: Mapping[str, StepSummary]) -> list[StepSummary]:
    """Return the finished steps that asked models, in the order of the run."""
    good = [one for one in summaries.values() if not one.error and kind_of(one.kind).asks_models]
    return sorted(good, key=lambda one: (turn_of(one.kind, one.counts.get("iteration", 0)), one.step))


async def _graphs(session: Session, summary: StepSummary) -> Sequence[bytes]:
    """Return the call graphs of a step: one of each shard."""
    digests: list[str | None] = [summary.outputs.get("calls")]
    if kind_of(summary.kind).sharded:
        plan = session.plans.get(summary.counts["iteration"])
        shards = range(plan.shards if plan is not None else 0)
        parts = [await read_receipt(session.context, summary.step, shard) for shard in shards]
        digests = [part.outputs.get("calls") for part in parts if part is not None]
    return [await session.context.store.aget_blob(digest) for digest in digests if digest]


def _models(session: Session, summary: StepSummary) -> dict[str, str | None]:
    """Return the models by what they are to a step's rollouts. Nobody judges where a task scores by itself;
    a proxy may in the steps that have its role, but for profile, whose scores it is compared with."""
    spec, kind = session.run.spec, kind_of(summary.kind)
    roles = spec.roles_in_use()
    by_proxy = session.state.scored_by == "proxy" and "proxy" in kind.roles and not kind.opens
    evaluator = spec.models.evaluator if not by_proxy else None
    return {
        "servingModel": spec.model_name("task") if "task" in roles else None,
        "proposerModel": spec.model_name("proposer"),
        "evaluatorModel": spec.model_name("proxy" if by_proxy else "evaluator")
        if "evaluator" in roles
        else None,
        "scoredAgain": evaluator.score_again if evaluator is not None else None,
    }


def _line(
    summary: StepSummary, one: RolledOut, models: Mapping[str, str | None], per_second: float | None
) -> dict[str, Any]:
    kind = kind_of(summary.kind)
    return {
        "iteration": summary.counts["iteration"] + 1 if kind.planned else None,
        "step": summary.kind,
        "stage": one.stage,
        "split": one.split,
        "example": redacted(one.example),
        "repeat": one.repeat,
        "promptHash": one.prompt,
        **models,
        "score": one.score,
        "correct": one.correct,
        "error": one.error or None,
        "promptTokens": one.prompt_tokens,
        "completionTokens": one.completion_tokens,
        "cachedTokens": one.cached_tokens,
        "lostTokens": one.lost_tokens,
        "seconds": round(one.seconds, 6),
        "gpuSeconds": None if per_second is None else round(one.seconds * per_second, 6),
    }
