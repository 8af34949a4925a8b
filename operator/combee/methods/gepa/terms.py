"""The terms that GEPA works by, read from a run's manifest."""

from __future__ import annotations

from dataclasses import dataclass, field

from combee.api.method_gepa import GepaOptions as Stated
from combee.api.run import RunSpec
from combee.methods.components.method import ComponentTerms, ends_in_texts
from combee.methods.gepa.templates import WHOLE_TEXTS, Templates
from combee.methods.gepa.verification import Rules


@dataclass(frozen=True, slots=True)
class Terms(ComponentTerms):
    """What a run's GEPA works by, with every default filled in."""

    rules: Rules = field(default_factory=Rules)
    map_template: str | None = None
    reduce_template: str | None = None

    @property
    def asked_with(self) -> Templates:
        """The templates in use: those given, ours for the others."""
        ours = WHOLE_TEXTS if self.whole_texts else Templates()
        return Templates(self.map_template or ours.map, self.reduce_template or ours.reduce)


def terms_of(spec: RunSpec) -> Terms:
    """Return the terms of a run."""
    stated = spec.method.stated
    if not isinstance(stated, Stated):
        return Terms(seed=spec.seed)
    return Terms(
        seed=spec.seed,
        budget_tokens=stated.render_token_budget,
        whole_texts=stated.paper_compat or ends_in_texts(spec.aggregation),
        rules=Rules(stated.frontier, stated.merges),
        map_template=stated.map_template,
        reduce_template=stated.reduce_template,
    )
