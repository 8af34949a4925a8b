"""GEPA as a ``Method``: one object that gathers the pure functions of this package.

Its artifact is a pool of variants. An iteration starts from variants that are drawn from the Pareto front,
takes the trajectories of each as records, and proposes children; ``reduction`` says what its calls are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from combee.algo.ranges import Range
from combee.algo.tokens import estimate_tokens
from combee.methods.components import losses, pool, standing
from combee.methods.components.method import RecordMethod
from combee.methods.components.pool import Pool
from combee.methods.components.prompts import record_of
from combee.methods.components.propose import children
from combee.methods.components.reduction import COMPONENT
from combee.methods.components.trying import with_proposals
from combee.methods.gepa import edits, prompts, verification
from combee.methods.gepa.draws import Draws
from combee.methods.gepa.pareto import choose_parents
from combee.methods.gepa.terms import Terms
from combee.methods.protocol import TRIED_TOKENS, Cost, Iteration, Rendered, Update, Verify
from combee.methods.verification import Verifying
from combee.records import Diversity, Prompt, Reflection, Trajectory

LAST_CALL = 8
"""Most lessons that a last call works into a component. All wait for it, and it writes as long as it is given
much; the other lessons stand word for word below its text, in the child that has them all."""


@dataclass(frozen=True)
class GepaMethod(RecordMethod):
    """The method of variants, Pareto selection, reflective mutation and merges of lineages."""

    terms: Terms = field(default_factory=Terms)

    name = "GEPA"
    last_call = LAST_CALL

    @property
    def last_call_tokens(self) -> int:
        return estimate_tokens(self.terms.asked_with.reduce) + TRIED_TOKENS

    def cost(self, of: Iteration) -> Cost:
        """Count two children of each parent, each asked its share of the batch, and each component by itself
        where both fail. What got in is scored on select, and so are, once, the start and a merge: a round
        for the children, and one for what got in."""
        retries = of.components if of.components > 1 else 0
        children, merges = 2, 1
        scored = 1 + children * of.texts + merges
        tried = Range(0, children * (1 + retries) * of.size + scored * of.select_rows)
        return Cost(tried, rounds=2, reflects=False, knows_select=True, clusters=1, kept=0.3)

    def working(
        self,
        artifact: Pool,
        *,
        budget_tokens: int,
        verify: Verify,
        variants: int = 1,
        diversity: Diversity | None = None,
    ) -> list[Rendered]:
        """Return the variants that the pool's next draws fall on; ``apply`` makes each draw for good. With
        ``diversity`` each has the kind of edit that it is to get and what did not get in before, and a fresh
        one comes first."""
        draws = Draws(artifact.seed, artifact.drawn)
        chosen = choose_parents(artifact, self.terms.rules.frontier, draws, variants)
        if diversity is not None and diversity.fresh:
            chosen = list(dict.fromkeys([standing.given(artifact).digest, *chosen]))[: len(chosen)]
        shown = [standing.rendered_variant(artifact.by_digest[digest]) for digest in chosen]
        if diversity is None:
            return shown
        tried, kinds = losses.tried(artifact), edits.drawn_edits(artifact, diversity.weights, len(shown))
        return [
            replace(one, ids={**one.ids, edits.EDIT: kind}, tried=tried)
            for one, kind in zip(shown, kinds, strict=True)
        ]

    def leaf_prompt(self, playbook: Rendered, reflections: Sequence[Reflection]) -> Prompt:
        component = playbook.ids.get(COMPONENT, pool.MAIN)
        records = [(one.id, record_of(one, component)) for one in reflections]
        return prompts.map_prompt(playbook, records, self.terms.asked_with, typed=not self.terms.whole_texts)

    def merge_prompt(self, playbook: Rendered, updates: Sequence[Update]) -> Prompt:
        """Ask to write the component of the updates anew with what was learned of it."""
        return prompts.reduce_prompt(playbook, updates, self.terms.asked_with)

    def apply(
        self,
        artifact: Pool,
        updates: Sequence[Update],
        reflections: Sequence[Reflection],
        *,
        iteration: int,
        ids: Mapping[str, str] | None = None,
    ) -> Pool:
        """Add two children of a variant that the iteration worked with (``ids``), and the draw of it. Copies
        of it or of the variant that leads are refused."""
        parent = standing.worked_with(artifact, ids)
        drawn = replace(artifact, drawn=artifact.drawn + 1)
        offspring = children(artifact.by_digest[parent], updates, budget_tokens=self.terms.budget_tokens)
        kept = (
            [child for child in offspring if child[0] == "rewrite"] if self.terms.whole_texts else offspring
        )
        grown = with_proposals(drawn, parent, kept, iteration)
        return edits.edited(grown, artifact, (ids or {}).get(edits.EDIT, ""))

    def edit_weights(self, artifact: Pool) -> dict[str, float]:
        return edits.edit_weights(artifact)

    def verification(
        self, artifact: Pool, *, trajectories: Mapping[str, Trajectory], budget_tokens: int, verify: Verify
    ) -> Verifying[Pool]:
        return verification.verification(
            artifact, trajectories=trajectories, rules=self.terms.rules, budget_tokens=budget_tokens
        )
