"""Whether a verdict of the evaluator takes more than its ceiling, and if so whether its proxy may score.

The cost is that of the evaluator's verdicts in profile, on average: what it took to read and to write them,
with every repair, and without requests that came to nothing, so that a bad day decides nothing. The proxy is
shown the very same prompts on the start's answers to select. What follows stays for the whole run: its
iterations' plans say who scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from combee.algo.calibration import PROXY as OF_PROXY
from combee.algo.calibration import Calibration, calibration
from combee.errors import CombeeError
from combee.plan.calibrated import over_ceiling, who_scores
from combee.plan.money import money_of
from combee.plan.state import VERDICT_COST
from combee.plan.types import RoleUsage
from combee.work.asker import Asker
from combee.work.calibrate import Answered, pairs_of, with_another
from combee.work.context import WorkContext
from combee.work.evaluator import PROXY, ROLE

STAGE = "proxy"


@dataclass(frozen=True, slots=True)
class Bounded:
    """What was found of a run that has a ceiling; nothing of one that has none."""

    figures: dict[str, float] = field(default_factory=dict)
    """the numbers by name, for the step's summary."""
    scores: dict[str, float] = field(default_factory=dict)
    """by example of select, the proxy's scores, where it scores."""
    words: str = ""


async def under_ceiling(
    context: WorkContext, asker: Asker, answered: Sequence[Answered], opinion: Calibration | None
) -> Bounded:
    """Return who scores. ``answered`` are the start's answers to select, ``opinion`` is what the evaluator's
    calibration found: where that refutes it, its proxy is not asked.

    Raises EndpointError where most of the proxy's verdicts came to nothing.
    """
    spec = context.spec
    evaluator = spec.models.evaluator
    refuted = opinion is not None and opinion.verdict == "NotCalibrated"
    if not spec.task.is_evaluated or evaluator is None or evaluator.ceiling is None or refuted:
        return Bounded()
    cost = _verdict_cost(context, asker, in_money=evaluator.ceiling.money is not None)
    compared: Calibration | None = None
    scores: dict[str, float] = {}
    if over_ceiling(spec, cost):
        compared, scores = await _compared(context, asker, answered)
    words = who_scores(spec, cost, compared)
    if compared is not None:
        context.progress.note(words)
    figures = {VERDICT_COST: cost, **({} if compared is None else compared.figures(OF_PROXY))}
    return Bounded(figures, scores, words)


def _verdict_cost(context: WorkContext, asker: Asker, *, in_money: bool) -> float:
    """Return what a verdict of the evaluator took on average; 0 where there was none."""
    rows = [row for row in asker.rows if row.role == ROLE]
    verdicts = len({(row.stage, row.chain) for row in rows})
    used = sum(
        (RoleUsage(1, 0, row.prompt_tokens, row.completion_tokens, row.cached_tokens) for row in rows),
        RoleUsage(),
    )
    total = money_of(context.spec, {ROLE: used}) if in_money else float(used.tokens)
    return float(f"{total / max(1, verdicts):.6g}")


async def _compared(
    context: WorkContext, asker: Asker, answered: Sequence[Answered]
) -> tuple[Calibration, dict[str, float]]:
    """Return how the proxy's scores compare with the evaluator's, and the proxy's by example. An answer that
    either gave no verdict on is not compared; it scores 0 where the proxy gave none."""
    usable = [example.id for example, trajectory in answered if not trajectory.error]
    context.progress.begin(STAGE, len(usable))
    verdicts = await with_another(context, asker, answered, PROXY, STAGE)
    pairs = pairs_of(verdicts, PROXY)
    scored = {
        name: made[1]
        for name, made in zip(usable, verdicts, strict=True)
        if not isinstance(made, CombeeError)
    }
    scores = {example.id: scored.get(example.id, 0.0) for example, _ in answered}
    return calibration([score for score, _ in pairs], [other for _, other in pairs]), scores
