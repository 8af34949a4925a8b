"""What of GEPA may be set, and what a manifest says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from combee.api.method_gepa import Frontier as StatedFrontier
from combee.api.method_gepa import GepaOptions as Stated
from combee.api.run import RunSpec
from combee.methods.gepa.pareto import Frontier
from combee.methods.gepa.prompts import OutputTokens
from combee.methods.gepa.templates import WHOLE_TEXTS, Templates
from combee.methods.gepa.verification import Rules

_FRONTIERS: Mapping[StatedFrontier, Frontier] = {
    "Instance": "instance",
    "Objective": "objective",
    "Hybrid": "hybrid",
    "Cartesian": "cartesian",
}


@dataclass(frozen=True, slots=True)
class GepaOptions:
    """``budget_tokens``: what a variant may take in a prompt; ``whole_texts``: calls about records propose a
    component's whole new text instead of lessons that cite."""

    seed: int = 0
    budget_tokens: int = 8000
    whole_texts: bool = False
    rules: Rules = field(default_factory=Rules)
    map_template: str | None = None
    reduce_template: str | None = None
    output_tokens: OutputTokens = field(default_factory=OutputTokens)

    @property
    def asked_with(self) -> Templates:
        """The templates in use: those given, ours for the others."""
        ours = WHOLE_TEXTS if self.whole_texts else Templates()
        return Templates(self.map_template or ours.map, self.reduce_template or ours.reduce)


def options_of(spec: RunSpec) -> GepaOptions:
    """The options of a run.

    Whole texts are proposed where no call of its own comes after the lessons: by ``paperCompat``, by the strategies
    of one call, and by ``merge: Model``, whose nodes merge texts.
    """
    stated, how = spec.method.stated, spec.aggregation
    if not isinstance(stated, Stated):
        return GepaOptions(seed=spec.seed)
    return GepaOptions(
        seed=spec.seed,
        budget_tokens=stated.render_token_budget,
        whole_texts=stated.paper_compat or how.merge == "Model" or how.traits.one_call,
        rules=Rules(_FRONTIERS[stated.frontier], stated.merges),
        map_template=stated.map_template,
        reduce_template=stated.reduce_template,
    )
