"""What methods have in common whose artifact is a pool of prompts with named components.

They differ in what a model is asked, in which prompts an iteration works with, and in what it takes to
believe a proposal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from combee.algo.tokens import estimate_tokens
from combee.api.aggregation import Aggregation
from combee.methods import content
from combee.methods.base import Method, summary_of
from combee.methods.components import answers, lessons, losses, pool, prompts, reduction, standing
from combee.methods.components.pool import Pool
from combee.methods.components.prompts import EVERY
from combee.methods.components.reduction import COMPONENT, carried_by_reduce
from combee.methods.protocol import (
    MAX_TOKENS,
    EntryView,
    Grouping,
    LeakCorpus,
    Merged,
    Proposals,
    Refusal,
    Rendered,
    Update,
    VariantView,
    Verify,
)
from combee.records import Diversity, Lesson, Prompt, Reflection, Trajectory

LINE_TOKENS = 8
"""What a lesson's mark and its count of records take in a prompt."""


@dataclass(frozen=True, slots=True)
class ComponentTerms:
    """What a run says that all these methods go by.

    ``budget_tokens``: the most tokens that a prompt may take. ``whole_texts``: calls about reflections write
    a component's whole new text instead of lessons that cite them.
    """

    seed: int = 0
    budget_tokens: int = 8000
    whole_texts: bool = False


def ends_in_texts(how: Aggregation) -> bool:
    """Return whether no call of its own comes after the lessons, so that each call writes a whole text: with
    the strategies of one call, and with ``merge: Model``, whose nodes merge texts."""
    return how.merge == "Model" or how.traits.one_call


@dataclass(frozen=True)
class ComponentMethod(Method[Pool]):
    """The part of such a method that does not depend on what models are asked."""

    terms: ComponentTerms = field(default_factory=ComponentTerms)

    last_call: ClassVar[int] = sys.maxsize
    """Most lessons that the call which writes a component anew is given, besides what the caps allow."""

    from_json = staticmethod(pool.from_json)
    rollout_prompt = staticmethod(prompts.rollout_prompt)
    parse_rollout = staticmethod(answers.parse_rollout)
    summary_prompt = staticmethod(prompts.summary_prompt)
    parts = staticmethod(reduction.parts)

    @property
    def last_call_tokens(self) -> int:
        """What the call that writes a component anew is given besides the text of today and the lessons."""
        raise NotImplementedError

    def empty(self) -> Pool:
        return pool.started({pool.MAIN: ""}, seed=self.terms.seed)

    def initial(self, text: str) -> Pool:
        return pool.started(pool.read_components(text), seed=self.terms.seed)

    def render(self, artifact: Pool, *, budget_tokens: int, verify: Verify) -> Rendered:
        """Return the variant that leads, or the best that fits into the budget."""
        return standing.render(artifact, budget_tokens=budget_tokens)

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

    def working(
        self,
        artifact: Pool,
        *,
        budget_tokens: int,
        verify: Verify,
        variants: int = 1,
        diversity: Diversity | None = None,
    ) -> list[Rendered]:
        """Return the text that leads."""
        return [standing.rendered_variant(standing.best(artifact))]

    def variants(self, artifact: Pool, rendered: Rendered) -> list[VariantView]:
        return standing.variants(artifact, rendered.variant)

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
        ``last_call`` of them or as many as the caps allow, are the cluster of its last call. The others
        pass."""
        if self.terms.whole_texts:
            return _by_component(updates)
        passed: list[Update] = []
        clusters: list[list[Update]] = []
        ranked = lessons.grouped(updates, cap=cap)
        overhead = self.terms.budget_tokens + self.last_call_tokens
        for component in sorted({one.section for one in ranked}):
            inside = [one for one in ranked if one.section == component]
            tokens = [estimate_tokens(one.text) + LINE_TOKENS for one in inside]
            count = carried_by_reduce(tokens, cap=min(cap, self.last_call), room_tokens=max_tokens - overhead)
            clusters.append(inside[:count])
            passed += inside[count:]
        return Grouping(passed, clusters)

    def parse_merge(self, text: str, *, updates: Sequence[Update], playbook: Rendered) -> Merged:
        sources = sorted({source for one in updates for source in one.sources})
        return Merged([answers.parse_text(text, component=updates[0].section, sources=sources)])

    def reconcile_merge(self, members: Sequence[Update], merged: Sequence[Update]) -> list[Update]:
        """Return the new text, and each lesson that it was made of; whole texts are used up."""
        return [*merged, *(one for one in members if one.op == "ADD")]

    def proposals(
        self, before: Pool, after: Pool, updates: Sequence[Update], shown: Sequence[Rendered]
    ) -> Proposals:
        return losses.proposals(before, updates, shown, budget_tokens=self.terms.budget_tokens)

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

    def carried_all(self, reflections: Sequence[Reflection], updates: Sequence[Update]) -> frozenset[str]:
        """Count a reflection as carried when some update cites it; what it says need not be kept."""
        cited = {source for one in updates for source in one.sources | one.cited}
        return frozenset(
            lesson.id for one in reflections if one.trajectory_id in cited for lesson in one.lessons
        )


class RecordMethod(ComponentMethod):
    """Such a method of which no call sees a single attempt: its reflections are records, and a leaf is shown
    several."""

    def reflect_prompt(
        self, playbook_text: str, trajectory: Trajectory, round: int, previous: Reflection | None
    ) -> None:
        """Ask nothing."""
        return

    def parse_reflection(self, text: str, *, reflection_id: str, trajectory: Trajectory) -> Reflection:
        """Return the records of an attempt, each named by the component that it is of."""
        named = self.records_of(trajectory)
        records = tuple(Lesson(f"{reflection_id}.{component}", record) for component, record in named)
        return Reflection(reflection_id, trajectory.id, trajectory.correct, "", records)

    def records_of(self, trajectory: Trajectory) -> list[tuple[str, str]]:
        """Return (component, record) of an attempt."""
        return prompts.records_of(trajectory)

    def retry_prompt(
        self, instructions: str, playbook_text: str, model_input: str, reflection: Reflection
    ) -> Prompt:
        """Ask again as before: a record holds no advice."""
        return self.rollout_prompt(instructions, playbook_text, model_input)


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
