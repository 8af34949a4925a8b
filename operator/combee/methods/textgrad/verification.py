"""A rewrite is kept when it scores more on select than the text that it was made from, else that text stays:
the paper's prompt optimisation reverts by a validation set (section 3.3).

A rewrite that was answered on too few rows is dropped without a verdict, so that it may come again.
"""

from __future__ import annotations

from dataclasses import replace

from combee.methods.components.pool import Pool
from combee.methods.components.standing import pending, scores
from combee.methods.components.trying import acceptance, dropped, scored, verified
from combee.methods.verification import Verifying


def verification(pool: Pool, *, budget_tokens: int) -> Verifying[Pool]:
    """Settle what an iteration proposed: one round, in which the start is scored with the first rewrite."""
    before, waiting = pool, pending(pool)
    pool = yield from scored(pool, also=waiting)
    known = scores(pool)
    verdicts = (
        acceptance(digest, known.get(pool.origin_of(digest).parents[0], {}), known.get(digest, {}))
        for digest in waiting
    )
    pool = replace(pool, judged=pool.judged | {one for one in verdicts if one is not None})
    return verified(dropped(pool), before, len(waiting), budget_tokens=budget_tokens)
