"""evaluate: the one look at gate (and at test), for the best artifact and the untouched one.

It leaves ``record`` (means and paired differences, and under ``scores`` the digest of a split's scores by
example, so that runs can be compared with each other example by example) and the call graph ``calls``; in
the run's folder it leaves a page of what changed on gate.
"""

from __future__ import annotations

from typing import Any

from combee.algo.clusters import whole_share
from combee.algo.stats import paired_difference
from combee.plan.types import Step, StepSummary
from combee.records import Example
from combee.work.asker import Asker
from combee.work.callgraph import modelled_seconds
from combee.work.changed import PAGE, page
from combee.work.context import WorkContext, held_out_split, put_json, write_receipt
from combee.work.happened import happened
from combee.work.rollouts import closing_scores, mean
from combee.work.traffic.record import redacted


async def run_evaluate(context: WorkContext, step: Step, best: Any, baseline: Any) -> StepSummary:
    """Score both artifacts on gate and, where there is one, on test; paired by example."""
    started = context.clock()
    asker = context.asker()
    _, gate = await held_out_split(context)
    test = await context.data.test()
    record: dict[str, Any] = {"scores": {}}
    for split, examples in (("gate", gate), ("test", list(test.examples) if test else None)):
        if examples is not None:
            record[split], record["scores"][split] = await _pair(
                context, asker, step, examples, best, baseline, split
            )
    record |= happened({step.kind: asker.rows}, context.slots) | asker.counts()
    gate_pair = record["gate"]
    scores = {f"gate{name.title()}": gate_pair[name] for name in ("baseline", "best", "low", "high")}
    if "test" in record:
        scores |= {f"test{name.title()}": record["test"][name] for name in ("baseline", "best")}
    summary = StepSummary(
        step=step.name,
        kind=step.kind,
        outputs={
            "record": await put_json(context, record),
            "calls": await context.store.aput_blob(asker.encode()),
        },
        counts={
            **asker.counts(),
            "evaluated": len(gate),
            "gateRows": gate_pair["n"],
            "gateDiscordant": gate_pair["discordant"],
        },
        scores=scores,
        usage=asker.usage(),
        seconds={
            "wall": round(context.clock() - started, 6),
            "modelled": round(modelled_seconds(asker.rows, context.slots), 6),
        },
    )
    return await write_receipt(context, summary)


async def _pair(
    context: WorkContext,
    asker: Asker,
    step: Step,
    examples: list[Example],
    best: Any,
    baseline: Any,
    split: str,
) -> tuple[dict[str, Any], str]:
    """Return both means and the paired difference with its interval, and the digest of the scores."""
    shown = {"baseline": context.rendered(baseline).shown, "best": context.rendered(best).shown}
    before = await closing_scores(context, asker, examples, shown["baseline"], stage=f"{split} baseline")
    after = await closing_scores(context, asker, examples, shown["best"], stage=f"{split} best")
    if split == "gate":
        changed = page(examples, before.answered, after.answered)
        await context.store.aput(f"{context.prefix}/{PAGE}", redacted(changed).encode())
    paired = paired_difference(before.by_cluster, after.by_cluster, seed=step.seed)
    pair = {
        "baseline": mean(before.by_cluster),
        "best": mean(after.by_cluster),
        "gain": paired.mean,
        "low": paired.low,
        "high": paired.high,
        "n": paired.n,
        "discordant": paired.discordant,
        "partialBaseline": before.partial,
        "partialBest": after.partial,
    }
    if before.clusters:
        pair["wholeBaseline"] = whole_share(before.by_id, before.clusters)
        pair["wholeBest"] = whole_share(after.by_id, after.clusters)
    scores: dict[str, Any] = {"baseline": before.by_id, "best": after.by_id}
    if before.clusters:
        scores["clusters"] = before.clusters
    return pair, await put_json(context, scores)
