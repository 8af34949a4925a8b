"""GEPA as a ``Method``: one object that gathers the pure functions of this package.

Its artifact is a pool of variants. An iteration starts from variants that are drawn from the Pareto front,
takes the trajectories of each as records, and proposes children; ``reduction`` says what its calls are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from combee.algo.ranges import Range
from combee.algo.tokens import estimate_tokens
from combee.methods import content
from combee.methods.base import Method, summary_of
from combee.methods.gepa import (
    answers,
    edits,
    lessons,
    losses,
    pool,
    prompts,
    reduction,
    standing,
    verification,
)
from combee.methods.gepa.draws import Draws
from combee.methods.gepa.pareto import choose_parents
from combee.methods.gepa.pool import Pool
from combee.methods.gepa.prompts import EVERY
from combee.methods.gepa.propose import children
from combee.methods.gepa.reduction import COMPONENT, LAST_CALL, carried_by_reduce
from combee.methods.gepa.terms import Terms
from combee.methods.protocol import (
    MAX_TOKENS,
    TRIED_TOKENS,
    VARIANT,
    Cost,
    EntryView,
    Grouping,
    Iteration,
    LeakCorpus,
    Merged,
    Proposals,
    Refusal,
    Rendered,
    Update,
    VariantView,
    Verify,
)
from combee.methods.verification import Verifying
from combee.records import Diversity, Lesson, Prompt, Reflection, Trajectory

LINE_TOKENS = 8
"""What a lesson's mark and its count of records take in a prompt."""


@dataclass(frozen=True)
class GepaMethod(Method[Pool]):
    """The method of variants, Pareto selection, reflective mutation and merges of lineages."""

    terms: Terms = field(default_factory=Terms)

    name = "GEPA"
    from_json = staticmethod(pool.from_json)
    rollout_prompt = staticmethod(prompts.rollout_prompt)
    parse_rollout = staticmethod(answers.parse_rollout)
    summary_prompt = staticmethod(prompts.summary_prompt)
    parts = staticmethod(reduction.parts)

    def cost(self, of: Iteration) -> Cost:
        """Count two children of each parent, each asked its share of the batch, and each component by itself
        where both fail. What got in is scored on select, and so are, once, the start and a merge: a round
        for the children, and one for what got in."""
        retries = of.components if of.components > 1 else 0
        children, merges = 2, 1
        scored = 1 + children * of.texts + merges
        tried = Range(0, children * (1 + retries) * of.size + scored * of.select_rows)
        return Cost(tried, rounds=2, reflects=False, knows_select=True, clusters=1, kept=0.3)

    def empty(self) -> Pool:
        return pool.started({pool.MAIN: ""}, seed=self.terms.seed)

    def initial(self, text: str) -> Pool:
        return pool.started(pool.read_components(text), seed=self.terms.seed)

    def render(self, artifact: Pool, *, budget_tokens: int, verify: Verify) -> Rendered:
        """Return the variant that leads, or the best that fits into the budget."""
        return standing.render(artifact, budget_tokens=budget_tokens)

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

    def views(self, artifact: Pool, rendered: Rendered, *, verify: Verify) -> list[EntryView]:
        """Return each component of the rendered variant, and each lesson that stands below its text."""
        digest = rendered.variant
        variant = artifact.by_digest.get(digest)
        if variant is None:
            return []
        entries: list[EntryView] = []
        for name, text in variant.components:
            body, learned = lessons.split(text)
            entries.append(_view(artifact, digest, name, "components", body))
            entries += [
                _view(artifact, digest, f"{name}.{k}", name, line) for k, line in enumerate(learned, start=1)
            ]
        return entries

    def variants(self, artifact: Pool, rendered: Rendered) -> list[VariantView]:
        return standing.variants(artifact, rendered.variant)

    def reflect_prompt(
        self, playbook_text: str, trajectory: Trajectory, round: int, previous: Reflection | None
    ) -> None:
        """Ask nothing about a single trajectory: it is a record, and a map call sees several."""
        return

    def parse_reflection(self, text: str, *, reflection_id: str, trajectory: Trajectory) -> Reflection:
        named = prompts.records_of(trajectory)
        records = tuple(Lesson(f"{reflection_id}.{component}", text) for component, text in named)
        return Reflection(reflection_id, trajectory.id, trajectory.correct, "", records)

    def retry_prompt(
        self, instructions: str, playbook_text: str, model_input: str, reflection: Reflection
    ) -> Prompt:
        return self.rollout_prompt(instructions, playbook_text, model_input)

    def leaf_prompt(self, playbook: Rendered, reflections: Sequence[Reflection]) -> Prompt:
        component = playbook.ids.get(COMPONENT, pool.MAIN)
        records = [(one.id, prompts.record_of(one, component)) for one in reflections]
        return prompts.map_prompt(playbook, records, self.terms.asked_with, typed=not self.terms.whole_texts)

    def parse_leaf(self, text: str, *, reflections: Sequence[Reflection], playbook: Rendered) -> list[Update]:
        component = playbook.ids.get(COMPONENT, pool.MAIN)
        sources = {one.id: one.trajectory_id for one in reflections}
        if self.terms.whole_texts:
            return [answers.parse_text(text, component=component, sources=sorted(set(sources.values())))]
        return answers.parse_lessons(text, component=component, sources=sources)

    def parse_summary(self, text: str, *, summary_id: str, reflections: Sequence[Reflection]) -> Reflection:
        """Return the lines of a summary as one record, of all components."""
        summary = summary_of(text, summary_id=summary_id, reflections=reflections)
        lines = " ".join(lesson.text for lesson in summary.lessons)
        return replace(summary, lessons=(Lesson(f"{summary_id}.{EVERY}", lines),))

    def group(self, updates: Sequence[Update], *, cap: int, max_tokens: int = MAX_TOKENS) -> Grouping:
        """Join lessons that say the same, without a call. Of each component those that most examples back,
        ``LAST_CALL`` of them or as many as the caps allow, are the cluster of its last call. The others pass,
        and reach the child that has all lessons below its text."""
        if self.terms.whole_texts:
            return _by_component(updates)
        passed: list[Update] = []
        clusters: list[list[Update]] = []
        ranked = lessons.grouped(updates, cap=cap)
        overhead = self.terms.budget_tokens + estimate_tokens(self.terms.asked_with.reduce) + TRIED_TOKENS
        for component in sorted({one.section for one in ranked}):
            inside = [one for one in ranked if one.section == component]
            tokens = [estimate_tokens(one.text) + LINE_TOKENS for one in inside]
            count = carried_by_reduce(tokens, cap=min(cap, LAST_CALL), room_tokens=max_tokens - overhead)
            clusters.append(inside[:count])
            passed += inside[count:]
        return Grouping(passed, clusters)

    def merge_prompt(self, playbook: Rendered, updates: Sequence[Update]) -> Prompt:
        """Ask to write the component of the updates anew with what was learned of it."""
        return prompts.reduce_prompt(playbook, updates, self.terms.asked_with)

    def parse_merge(self, text: str, *, updates: Sequence[Update], playbook: Rendered) -> Merged:
        sources = sorted({source for one in updates for source in one.sources})
        return Merged([answers.parse_text(text, component=updates[0].section, sources=sources)])

    def reconcile_merge(self, members: Sequence[Update], merged: Sequence[Update]) -> list[Update]:
        """Return the new text, and each lesson for the child that has them; whole texts are used up."""
        return [*merged, *(one for one in members if one.op == "ADD")]

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
        parent = (ids or {}).get(VARIANT) or standing.best(artifact).digest
        drawn = replace(artifact, drawn=artifact.drawn + 1)
        offspring = children(artifact.by_digest[parent], updates, budget_tokens=self.terms.budget_tokens)
        kept = (
            [child for child in offspring if child[0] == "rewrite"] if self.terms.whole_texts else offspring
        )
        refused = losses.copies(artifact, parent, kept)
        noted = losses.with_losses(drawn, losses.copies_lost(artifact.by_digest[parent], refused, iteration))
        left = [one for one in kept if one not in refused]
        grown = verification.with_children(noted, parent, left, iteration)
        return edits.edited(grown, artifact, (ids or {}).get(edits.EDIT, ""))

    def proposals(
        self, before: Pool, after: Pool, updates: Sequence[Update], shown: Sequence[Rendered]
    ) -> Proposals:
        return losses.proposals(before, updates, shown, budget_tokens=self.terms.budget_tokens)

    def edit_weights(self, artifact: Pool) -> dict[str, float]:
        return edits.edit_weights(artifact)

    def new_entries(self, before: Pool, after: Pool) -> tuple[str, ...]:
        return tuple(digest for digest in after.by_digest if digest not in before.by_digest)

    def checks(self, artifact: Pool, new_digests: Sequence[str], *, corpus: LeakCorpus) -> list[Refusal]:
        """Check line by line what is new in a variant: what its parents say was let in before."""
        refusals: list[Refusal] = []
        for digest in new_digests:
            known = {
                line
                for origin in artifact.origins
                if origin.variant == digest
                for parent in origin.parents
                for line in artifact.by_digest[parent].text.splitlines()
            }
            for line in artifact.by_digest[digest].text.splitlines():
                if line.strip() and line not in known:
                    refusals += content.refusals_of(digest, line, corpus)
        return refusals

    def with_refusals(self, artifact: Pool, refusals: Iterable[Refusal]) -> Pool:
        return replace(artifact, refusals=artifact.refusals | frozenset(refusals))

    def refusals(self, artifact: Pool) -> list[Refusal]:
        return sorted(artifact.refusals)

    def verification(
        self, artifact: Pool, *, trajectories: Mapping[str, Trajectory], budget_tokens: int, verify: Verify
    ) -> Verifying[Pool]:
        return verification.verification(
            artifact, trajectories=trajectories, rules=self.terms.rules, budget_tokens=budget_tokens
        )

    def carried_all(self, reflections: Sequence[Reflection], updates: Sequence[Update]) -> frozenset[str]:
        """Count a record as carried when some update cites it; what it says need not be kept."""
        cited = {source for one in updates for source in one.sources | one.cited}
        return frozenset(
            lesson.id for one in reflections if one.trajectory_id in cited for lesson in one.lessons
        )


def _view(artifact: Pool, digest: str, name: str, section: str, text: str) -> EntryView:
    """Return a part of a variant as reports show it. What it rests on is the whole variant's: it was given,
    or it beat its parent on the examples that it was proposed from."""
    origins = [origin for origin in artifact.origins if origin.variant == digest]
    return EntryView(
        id=name,
        digest=digest,
        section=section,
        text=text,
        verified="initial" if any(one.kind == "start" for one in origins) else "replay",
        parents=tuple(sorted({parent for one in origins for parent in one.parents})),
    )


def _by_component(proposals: Sequence[Update]) -> Grouping:
    """Return a last call for each component with several proposals; a lone one is the new text."""
    passed: list[Update] = []
    clusters: list[list[Update]] = []
    for component in sorted({one.section for one in proposals}):
        inside = [one for one in proposals if one.section == component]
        if len(inside) > 1:
            clusters.append(inside)
        else:
            passed += inside
    return Grouping(passed, clusters)
