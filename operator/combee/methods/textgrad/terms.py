"""The terms that TextGrad works by, read from a run's manifest."""

from __future__ import annotations

from dataclasses import dataclass

from combee.api.method_textgrad import TextGradOptions as Stated
from combee.api.run import RunSpec
from combee.methods.components.method import ComponentTerms, ends_in_texts
from combee.methods.protocol import MAX_TOKENS


@dataclass(frozen=True, slots=True)
class Terms(ComponentTerms):
    """What a run's TextGrad works by. ``momentum``: how many earlier steps the optimiser is shown.
    ``constraints``: what a rewrite must keep to, in words. ``call_tokens``: the most of a call."""

    momentum: int = 0
    constraints: tuple[str, ...] = ()
    call_tokens: int = MAX_TOKENS


def terms_of(spec: RunSpec) -> Terms:
    """Return the terms of a run."""
    stated, whole_texts = spec.method.stated, ends_in_texts(spec.aggregation)
    if not isinstance(stated, Stated):
        return Terms(spec.seed, whole_texts=whole_texts)
    return Terms(
        spec.seed,
        stated.render_token_budget,
        whole_texts,
        stated.momentum,
        tuple(stated.constraints),
        spec.aggregation.max_input_tokens,
    )
