"""TextGrad as a ``Method``: criticism of each attempt, summed by the tree, and one rewrite of each component.

Its artifact is a pool of which one text leads: a rewrite takes its place or is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from combee.algo.ranges import Range
from combee.algo.tokens import estimate_tokens
from combee.methods.components import pool, standing
from combee.methods.components.method import ComponentMethod
from combee.methods.components.pool import Pool
from combee.methods.components.prompts import lessons_prompt, record_of
from combee.methods.components.propose import children
from combee.methods.components.reduction import COMPONENT, earlier_room
from combee.methods.components.trying import with_proposals
from combee.methods.protocol import Cost, Iteration, Proposals, Rendered, Update, Verify
from combee.methods.textgrad import momentum, prompts, verification
from combee.methods.textgrad.answers import parse_criticism
from combee.methods.textgrad.terms import Terms
from combee.methods.verification import Verifying
from combee.records import Diversity, Prompt, Reflection, Trajectory


@dataclass(frozen=True)
class TextGradMethod(ComponentMethod):
    """The method of textual gradients: one text, criticised and rewritten."""

    terms: Terms = field(default_factory=Terms)

    name = "TextGrad"
    parse_reflection = staticmethod(parse_criticism)

    @property
    def last_call_tokens(self) -> int:
        return self._fixed_tokens + self.earlier_tokens

    @property
    def earlier_tokens(self) -> int:
        """What momentum may take of a rewrite's call: half of what the rest of it leaves is for lessons."""
        taken = self.terms.budget_tokens + self._fixed_tokens
        return earlier_room(self.terms.call_tokens, taken) if self.terms.momentum else 0

    @property
    def _fixed_tokens(self) -> int:
        return estimate_tokens(prompts.STEP) + prompts.told_tokens(
            self.terms.constraints, earlier=self.terms.momentum > 0
        )

    def cost(self, of: Iteration) -> Cost:
        """Count a call about each attempt, one rewrite of each component, and the rows of select for it and,
        once, for the start."""
        return Cost(Range(0, 2 * of.select_rows), knows_select=True, clusters=1)

    def working(
        self,
        artifact: Pool,
        *,
        budget_tokens: int,
        verify: Verify,
        variants: int = 1,
        diversity: Diversity | None = None,
    ) -> list[Rendered]:
        """Return the text that leads, with the criticism of earlier steps where there is momentum."""
        shown = standing.rendered_variant(standing.best(artifact))
        return [replace(shown, tried=momentum.earlier(artifact, room_tokens=self.earlier_tokens))]

    def reflect_prompt(
        self, playbook_text: str, trajectory: Trajectory, round: int, previous: Reflection | None
    ) -> Prompt | None:
        """Ask for criticism of an attempt; nothing about one that came out right."""
        return None if trajectory.correct else prompts.criticise_prompt(playbook_text, trajectory)

    def leaf_prompt(self, playbook: Rendered, reflections: Sequence[Reflection]) -> Prompt:
        """Ask to sum criticism up in lessons that cite it; where no other call follows, for the rewrite."""
        component = playbook.ids.get(COMPONENT, pool.MAIN)
        records = [(one, record_of(one, component)) for one in reflections]
        if not self.terms.whole_texts:
            cited = [(one.id, text) for one, text in records]
            return lessons_prompt(playbook, cited, prompts.SUM, "REFLECTIONS")
        given = [Update("ADD", component, text, frozenset({one.trajectory_id})) for one, text in records]
        return self.merge_prompt(playbook, given)

    def merge_prompt(self, playbook: Rendered, updates: Sequence[Update]) -> Prompt:
        """Ask to write the component of the updates anew."""
        return prompts.step_prompt(playbook, updates, self.terms.constraints)

    def apply(
        self,
        artifact: Pool,
        updates: Sequence[Update],
        reflections: Sequence[Reflection],
        *,
        iteration: int,
        ids: Mapping[str, str] | None = None,
    ) -> Pool:
        """Add the rewrite of the text that the iteration worked with (``ids``), and what momentum is to be
        told of this step."""
        digest = standing.worked_with(artifact, ids)
        parent = artifact.by_digest[digest]
        rewrites = children(parent, _rewrites(updates), budget_tokens=self.terms.budget_tokens)[:1]
        grown = with_proposals(artifact, digest, rewrites, iteration)
        if not self.terms.momentum:
            return grown
        return momentum.noted(
            grown,
            updates,
            reflections,
            names=[name for name, _ in parent.components],
            variant=rewrites[0][1].digest if rewrites else "",
            iteration=iteration,
            momentum=self.terms.momentum,
        )

    def proposals(
        self, before: Pool, after: Pool, updates: Sequence[Update], shown: Sequence[Rendered]
    ) -> Proposals:
        return super().proposals(before, after, _rewrites(updates), shown)

    def verification(
        self, artifact: Pool, *, trajectories: Mapping[str, Trajectory], budget_tokens: int, verify: Verify
    ) -> Verifying[Pool]:
        return verification.verification(artifact, budget_tokens=budget_tokens)


def _rewrites(updates: Sequence[Update]) -> list[Update]:
    """Return the new texts. Lessons are what these were made from, and enter a text by them alone."""
    return [one for one in updates if one.op == "UPDATE"]
