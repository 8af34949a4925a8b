"""ACE as a ``Method``: one object that gathers the pure functions of this package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from combee.algo.ranges import Range
from combee.methods.ace import (
    answers,
    change,
    diff,
    group,
    ledger,
    prompts,
    render,
    verification,
)
from combee.methods.ace.ledger import Ledger
from combee.methods.ace.prompts import OutputTokens
from combee.methods.base import Method
from combee.methods.diff import Diff
from combee.methods.protocol import (
    MAX_TOKENS,
    Cost,
    EntryView,
    Grouping,
    Iteration,
    LeakCorpus,
    Merged,
    Refusal,
    Rendered,
    RolloutReply,
    Update,
    Verify,
)
from combee.methods.verification import Verifying
from combee.records import Prompt, Reflection, Trajectory


@dataclass(frozen=True)
class AceMethod(Method[Ledger]):
    """Generator, reflector and curator on a ledger of typed entries. See ``Method`` for each member."""

    output_tokens: OutputTokens = field(default_factory=OutputTokens)
    """the most that each kind of call may answer with."""

    @property
    def name(self) -> str:
        return "ACE"

    def cost(self, of: Iteration) -> Cost:
        """Entries are replayed on their example and on controls."""
        return Cost(tried=Range(0, 3 * of.size if of.verify == "Replay" else 0))

    def empty(self) -> Ledger:
        return Ledger()

    def initial(self, text: str) -> Ledger:
        return change.initial(text)

    def from_json(self, data: bytes) -> Ledger:
        return ledger.from_json(data)

    def render(
        self, artifact: Ledger, *, budget_tokens: int, verify: Verify, with_entry: str | None = None
    ) -> Rendered:
        return render.render(artifact, budget_tokens=budget_tokens, verify=verify, with_entry=with_entry)

    def views(self, artifact: Ledger, rendered: Rendered, *, verify: Verify) -> list[EntryView]:
        return render.views(artifact, rendered, verify=verify)

    def rollout_prompt(self, instructions: str, playbook_text: str, model_input: str) -> Prompt:
        tokens = self.output_tokens.rollout
        return prompts.rollout_prompt(instructions, playbook_text, model_input, tokens=tokens)

    def parse_rollout(self, text: str) -> RolloutReply:
        return answers.parse_rollout(text)

    def reflect_prompt(
        self, playbook_text: str, trajectory: Trajectory, round: int, previous: Reflection | None
    ) -> Prompt:
        tokens = self.output_tokens.reflect
        return prompts.reflect_prompt(playbook_text, trajectory, round, previous, tokens=tokens)

    def parse_reflection(self, text: str, *, reflection_id: str, trajectory: Trajectory) -> Reflection:
        return answers.parse_reflection(text, reflection_id=reflection_id, trajectory=trajectory)

    def retry_prompt(
        self, instructions: str, playbook_text: str, model_input: str, reflection: Reflection
    ) -> Prompt:
        tokens = self.output_tokens.rollout
        return prompts.retry_prompt(instructions, playbook_text, model_input, reflection, tokens=tokens)

    def leaf_prompt(self, playbook: Rendered, reflections: Sequence[Reflection]) -> Prompt:
        return prompts.leaf_prompt(playbook, reflections, tokens=self.output_tokens.leaf)

    def parse_leaf(self, text: str, *, reflections: Sequence[Reflection], playbook: Rendered) -> list[Update]:
        return answers.parse_leaf(text, reflections=reflections, playbook=playbook)

    def summary_prompt(self, reflections: Sequence[Reflection]) -> Prompt:
        return prompts.summary_prompt(reflections, tokens=self.output_tokens.summary)

    def parse_summary(self, text: str, *, summary_id: str, reflections: Sequence[Reflection]) -> Reflection:
        return answers.parse_summary(text, summary_id=summary_id, reflections=reflections)

    def group(self, updates: Sequence[Update], *, cap: int, max_tokens: int = MAX_TOKENS) -> Grouping:
        return group.group(updates, cap=cap)

    def merge_prompt(self, playbook: Rendered, updates: Sequence[Update]) -> Prompt:
        return prompts.merge_prompt(playbook, updates, tokens=self.output_tokens.merge)

    def parse_merge(self, text: str, *, updates: Sequence[Update], playbook: Rendered) -> Merged:
        return answers.parse_merge(text, updates=updates, playbook=playbook)

    def reconcile_merge(self, members: Sequence[Update], merged: Sequence[Update]) -> list[Update]:
        return group.reconcile_merge(members, merged)

    def apply(
        self,
        artifact: Ledger,
        updates: Sequence[Update],
        reflections: Sequence[Reflection],
        *,
        iteration: int,
        ids: Mapping[str, str] | None = None,
    ) -> Ledger:
        return change.apply(artifact, updates, reflections, iteration=iteration, ids=ids)

    def new_entries(self, before: Ledger, after: Ledger) -> tuple[str, ...]:
        return change.new_entries(before, after)

    def checks(self, artifact: Ledger, new_digests: Sequence[str], *, corpus: LeakCorpus) -> list[Refusal]:
        return change.checks(artifact, new_digests, corpus=corpus)

    def with_refusals(self, artifact: Ledger, refusals: Iterable[Refusal]) -> Ledger:
        return change.with_refusals(artifact, refusals)

    def refusals(self, artifact: Ledger) -> list[Refusal]:
        return sorted(artifact.refusals)

    def verification(
        self, artifact: Ledger, *, trajectories: Mapping[str, Trajectory], budget_tokens: int, verify: Verify
    ) -> Verifying[Ledger]:
        return verification.verification(
            artifact, trajectories=trajectories, budget_tokens=budget_tokens, verify=verify
        )

    def served_text(self, text: str) -> str:
        return prompts.served_text(text)

    def diff_texts(self, before: str, after: str) -> Diff:
        return diff.diff_playbooks(before, after)
