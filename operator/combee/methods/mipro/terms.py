"""The terms that MIPRO works by, read from a run's manifest."""

from __future__ import annotations

from dataclasses import dataclass

from combee.api.method_mipro import MiproOptions as Stated
from combee.api.run import RunSpec
from combee.methods.components.method import ComponentTerms, ends_in_texts
from combee.methods.protocol import MAX_TOKENS


@dataclass(frozen=True, slots=True)
class Terms(ComponentTerms):
    """What a run's MIPRO works by: ``proposals`` of new instructions for each component in an iteration, and
    of sets of ``demonstrations``; ``probes`` of their combinations, on ``minibatch`` rows of select each.
    ``call_tokens``: the most of a call."""

    proposals: int = 3
    demonstrations: int = 0
    probes: int = 10
    minibatch: int = 35
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
        stated.proposals,
        stated.demonstrations,
        stated.probes,
        stated.minibatch,
        spec.aggregation.max_input_tokens,
    )
