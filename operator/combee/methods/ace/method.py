"""ACE as a ``Method``: one object that gathers the pure functions of this package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from combee.methods.ace import answers, change, checks, group, ledger, prompts, render, replay, retention
from combee.methods.ace.ledger import Ledger
from combee.methods.ace.prompts import OutputTokens
from combee.methods.protocol import (
    EntryView,
    Grouping,
    LeakCorpus,
    Merged,
    Method,
    Refusal,
    Rendered,
    ReplayRequest,
    RolloutReply,
    Update,
    Verdict,
    Verify,
)
from combee.records import Prompt, Reflection, Trajectory


@dataclass(frozen=True, slots=True)
class AceOptions:
    """What may be set: the most tokens each kind of call may answer with."""

    output_tokens: OutputTokens = field(default_factory=OutputTokens)


@dataclass(frozen=True, slots=True)
class AceMethod:
    """Generator, reflector and curator on a ledger of typed entries. See ``Method`` for each member."""

    options: AceOptions = field(default_factory=AceOptions)

    @property
    def name(self) -> str:
        return "ACE"

    def empty(self) -> Ledger:
        return Ledger()

    def initial(self, text: str) -> Ledger:
        return change.initial(text)

    def from_json(self, data: bytes) -> Ledger:
        return ledger.from_json(data)

    def join(self, a: Ledger, b: Ledger) -> Ledger:
        return ledger.join(a, b)

    def render(
        self, ledger: Ledger, *, budget_tokens: int, verify: Verify, with_entry: str | None = None
    ) -> Rendered:
        return render.render(ledger, budget_tokens=budget_tokens, verify=verify, with_entry=with_entry)

    def views(self, ledger: Ledger, rendered: Rendered, *, verify: Verify) -> list[EntryView]:
        return render.views(ledger, rendered, verify=verify)

    def rollout_prompt(self, instructions: str, playbook_text: str, model_input: str) -> Prompt:
        tokens = self.options.output_tokens.rollout
        return prompts.rollout_prompt(instructions, playbook_text, model_input, tokens=tokens)

    def parse_rollout(self, text: str) -> RolloutReply:
        return answers.parse_rollout(text)

    def reflect_prompt(
        self, playbook_text: str, trajectory: Trajectory, round: int, previous: Reflection | None
    ) -> Prompt:
        tokens = self.options.output_tokens.reflect
        return prompts.reflect_prompt(playbook_text, trajectory, round, previous, tokens=tokens)

    def parse_reflection(self, text: str, *, reflection_id: str, trajectory: Trajectory) -> Reflection:
        return answers.parse_reflection(text, reflection_id=reflection_id, trajectory=trajectory)

    def retry_prompt(
        self, instructions: str, playbook_text: str, model_input: str, reflection: Reflection
    ) -> Prompt:
        tokens = self.options.output_tokens.rollout
        return prompts.retry_prompt(instructions, playbook_text, model_input, reflection, tokens=tokens)

    def leaf_prompt(self, playbook: Rendered, reflections: Sequence[Reflection]) -> Prompt:
        return prompts.leaf_prompt(playbook, reflections, tokens=self.options.output_tokens.leaf)

    def parse_leaf(self, text: str, *, reflections: Sequence[Reflection], playbook: Rendered) -> list[Update]:
        return answers.parse_leaf(text, reflections=reflections, playbook=playbook)

    def group(self, updates: Sequence[Update], *, cap: int) -> Grouping:
        return group.group(updates, cap=cap)

    def merge_prompt(self, playbook: Rendered, updates: Sequence[Update]) -> Prompt:
        return prompts.merge_prompt(playbook, updates, tokens=self.options.output_tokens.merge)

    def parse_merge(self, text: str, *, updates: Sequence[Update], playbook: Rendered) -> Merged:
        return answers.parse_merge(text, updates=updates, playbook=playbook)

    def reconcile_merge(self, members: Sequence[Update], merged: Sequence[Update]) -> list[Update]:
        return group.reconcile_merge(members, merged)

    def apply(
        self,
        ledger: Ledger,
        updates: Sequence[Update],
        reflections: Sequence[Reflection],
        *,
        iteration: int,
        ids: Mapping[str, str] | None = None,
    ) -> Ledger:
        return change.apply(ledger, updates, reflections, iteration=iteration, ids=ids)

    def leak_corpus(self, texts: Iterable[str]) -> LeakCorpus:
        return checks.leak_corpus(texts)

    def new_entries(self, before: Ledger, after: Ledger) -> tuple[str, ...]:
        return change.new_entries(before, after)

    def checks(self, ledger: Ledger, new_digests: Sequence[str], *, corpus: LeakCorpus) -> list[Refusal]:
        return checks.checks(ledger, new_digests, corpus=corpus)

    def with_refusals(self, ledger: Ledger, refusals: Iterable[Refusal]) -> Ledger:
        return change.with_refusals(ledger, refusals)

    def refusals(self, ledger: Ledger) -> list[Refusal]:
        return sorted(ledger.refusals)

    def replay_candidates(self, ledger: Ledger, *, trajectories: Mapping[str, Trajectory]) -> list[str]:
        return replay.replay_candidates(ledger, trajectories=trajectories)

    def replay_request(
        self,
        ledger: Ledger,
        entry_digest: str,
        *,
        trajectories: Mapping[str, Trajectory],
        budget_tokens: int,
        verify: Verify,
    ) -> ReplayRequest:
        return replay.replay_request(
            ledger, entry_digest, trajectories=trajectories, budget_tokens=budget_tokens, verify=verify
        )

    def replay_controls(
        self, entry_digest: str, right: Iterable[str], *, source: str = "", count: int = 2
    ) -> tuple[str, ...]:
        return replay.replay_controls(entry_digest, right, source=source, count=count)

    def with_verdicts(self, ledger: Ledger, verdicts: Iterable[Verdict]) -> Ledger:
        return change.with_verdicts(ledger, verdicts)

    def carried(self, reflection: Reflection, updates: Sequence[Update]) -> tuple[str, ...]:
        return retention.carried(reflection, updates)

    def carried_all(self, reflections: Sequence[Reflection], updates: Sequence[Update]) -> frozenset[str]:
        return retention.carried_all(reflections, updates)


_CONFORMS: Method[Ledger] = AceMethod()
"""The type checker's proof that nothing of the protocol is missing."""
