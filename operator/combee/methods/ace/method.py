"""ACE as a ``Method``: one object that gathers the pure functions of this package."""

from __future__ import annotations

from collections.abc import Sequence
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
from combee.methods.protocol import (
    MAX_TOKENS,
    Cost,
    Grouping,
    Iteration,
    Refusal,
    Rendered,
    Update,
)
from combee.records import Prompt, Reflection, Trajectory


@dataclass(frozen=True)
class AceMethod(Method[Ledger]):
    """Generator, reflector and curator on a ledger of typed entries."""

    output_tokens: OutputTokens = field(default_factory=OutputTokens)
    """the most that each kind of call may answer with."""

    name = "ACE"
    empty = staticmethod(Ledger)
    initial = staticmethod(change.initial)
    from_json = staticmethod(ledger.from_json)
    views = staticmethod(render.views)
    render = staticmethod(render.render)
    parse_rollout = staticmethod(answers.parse_rollout)
    parse_reflection = staticmethod(answers.parse_reflection)
    parse_leaf = staticmethod(answers.parse_leaf)
    parse_summary = staticmethod(answers.parse_summary)
    parse_merge = staticmethod(answers.parse_merge)
    reconcile_merge = staticmethod(group.reconcile_merge)
    apply = staticmethod(change.apply)
    new_entries = staticmethod(change.new_entries)
    checks = staticmethod(change.checks)
    with_refusals = staticmethod(change.with_refusals)
    verification = staticmethod(verification.verification)
    served_text = staticmethod(prompts.served_text)
    diff_texts = staticmethod(diff.diff_playbooks)

    def cost(self, of: Iteration) -> Cost:
        """Entries are replayed on their example and on controls."""
        return Cost(tried=Range(0, 3 * of.size if of.verify == "Replay" else 0))

    def rollout_prompt(self, instructions: str, playbook_text: str, model_input: str) -> Prompt:
        tokens = self.output_tokens.rollout
        return prompts.rollout_prompt(instructions, playbook_text, model_input, tokens=tokens)

    def reflect_prompt(
        self, playbook_text: str, trajectory: Trajectory, round: int, previous: Reflection | None
    ) -> Prompt:
        tokens = self.output_tokens.reflect
        return prompts.reflect_prompt(playbook_text, trajectory, round, previous, tokens=tokens)

    def retry_prompt(
        self, instructions: str, playbook_text: str, model_input: str, reflection: Reflection
    ) -> Prompt:
        tokens = self.output_tokens.rollout
        return prompts.retry_prompt(instructions, playbook_text, model_input, reflection, tokens=tokens)

    def leaf_prompt(self, playbook: Rendered, reflections: Sequence[Reflection]) -> Prompt:
        return prompts.leaf_prompt(playbook, reflections, tokens=self.output_tokens.leaf)

    def summary_prompt(self, reflections: Sequence[Reflection]) -> Prompt:
        return prompts.summary_prompt(reflections, tokens=self.output_tokens.summary)

    def group(self, updates: Sequence[Update], *, cap: int, max_tokens: int = MAX_TOKENS) -> Grouping:
        return group.group(updates, cap=cap)

    def merge_prompt(self, playbook: Rendered, updates: Sequence[Update]) -> Prompt:
        return prompts.merge_prompt(playbook, updates, tokens=self.output_tokens.merge)

    def refusals(self, artifact: Ledger) -> list[Refusal]:
        return sorted(artifact.refusals)
