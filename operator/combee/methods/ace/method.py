"""ACE as a ``Method``: one object that gathers the pure functions of this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from combee.algo.ranges import Range
from combee.api.method_options import Programs, Retrieval
from combee.methods.ace import (
    answers,
    change,
    chosen,
    diff,
    dropping,
    group,
    inherit,
    ledger,
    life,
    prompts,
    proposed,
    render,
    reverify,
    verification,
)
from combee.methods.ace.ledger import Ledger
from combee.methods.ace.program import is_program
from combee.methods.ace.refused import refused
from combee.methods.base import Method
from combee.methods.protocol import (
    MAX_TOKENS,
    Cost,
    Grouping,
    Iteration,
    LeakCorpus,
    Refusal,
    Rendered,
    Update,
    Verify,
)
from combee.methods.verification import Verifying
from combee.records import Diversity, Prompt, Reflection, Trajectory


class AceMethod(Method[Ledger]):
    """The method with a generator, a reflector and a curator on a ledger of typed entries."""

    name = "ACE"

    def __init__(
        self,
        *,
        reasoning: bool = True,
        tell_refused: bool = False,
        programs: Programs | None = None,
        model: str = "",
        forgotten: Sequence[str] = (),
    ) -> None:
        """``reasoning``: whether an agent writes its steps before its answer; ``tell_refused``: whether
        leaves are told which entries lost their replays; ``programs``: which of these leaves may write;
        ``model``: the run's task model, empty where it is not known; ``forgotten``: what is learned
        without."""
        self.reasoning, self.tell_refused, self.taken = reasoning, tell_refused, programs
        self.model, self.forgotten = model, forgotten

    empty = staticmethod(Ledger)
    initial = staticmethod(change.initial)
    inherited = staticmethod(inherit.inherited)
    from_json = staticmethod(ledger.from_json)
    views = staticmethod(render.views)
    life = staticmethod(life.life)
    render = staticmethod(render.render)
    parse_rollout = staticmethod(answers.parse_rollout)
    reflect_prompt = staticmethod(prompts.reflect_prompt)
    parse_reflection = staticmethod(answers.parse_reflection)
    summary_prompt = staticmethod(prompts.summary_prompt)
    parse_summary = staticmethod(answers.parse_summary)
    merge_prompt = staticmethod(prompts.merge_prompt)
    parse_merge = staticmethod(answers.parse_merge)
    reconcile_merge = staticmethod(group.reconcile_merge)
    apply = staticmethod(change.apply)
    proposals = staticmethod(proposed.proposals)
    new_entries = staticmethod(change.new_entries)
    programs = staticmethod(change.programs)
    with_refusals = staticmethod(change.with_refusals)
    dropping = staticmethod(dropping.dropping)
    served_text = staticmethod(prompts.served_text)
    lines_of = staticmethod(diff.lines_of)
    diff_texts = staticmethod(diff.diff_playbooks)

    def started(self, text: str, *, train: str) -> Ledger:
        return inherit.started(text, train=train, forgotten=self.forgotten)

    def working(
        self,
        artifact: Ledger,
        *,
        budget_tokens: int,
        verify: Verify,
        variants: int = 1,
        diversity: Diversity | None = None,
    ) -> list[Rendered]:
        """Return the playbook; what lost its replays goes with it where leaves are to be told."""
        playbook = render.render(artifact, budget_tokens=budget_tokens, verify=verify)
        return [replace(playbook, tried=refused(artifact)) if self.tell_refused else playbook]

    def handed_on(self, artifact: Ledger, rendered: Rendered, *, by: str, train: str) -> bytes:
        """Return the ledger with this run's facts marked as those of an earlier run, of its task model and
        of what it learned without."""
        return inherit.handed_on(
            artifact, rendered, by=by, train=train, model=self.model, forgotten=self.forgotten
        )

    def start_note(self, artifact: Ledger, rendered: Rendered) -> str:
        """Say how many entries of the playbook were last replayed with another task model."""
        return reverify.stale_note(artifact, rendered, self.model)

    def verification(
        self,
        artifact: Ledger,
        *,
        trajectories: Mapping[str, Trajectory],
        budget_tokens: int,
        verify: Verify,
    ) -> Verifying[Ledger]:
        """Replay what is new, and look at what is inherited, stale verdicts first."""
        return verification.verification(
            artifact,
            trajectories=trajectories,
            budget_tokens=budget_tokens,
            verify=verify,
            model=self.model,
        )

    def rollout_prompt(self, instructions: str, playbook_text: str, model_input: str) -> Prompt:
        return prompts.rollout_prompt(instructions, playbook_text, model_input, reasoning=self.reasoning)

    def retry_prompt(
        self, instructions: str, playbook_text: str, model_input: str, reflection: Reflection
    ) -> Prompt:
        return self.rollout_prompt(instructions, playbook_text, prompts.reviewed(model_input, reflection))

    def leaf_prompt(self, playbook: Rendered, reflections: Sequence[Reflection]) -> Prompt:
        return prompts.leaf_prompt(playbook, reflections, programs=self.taken)

    def parse_leaf(self, text: str, *, reflections: Sequence[Reflection], playbook: Rendered) -> list[Update]:
        return answers.parse_leaf(
            text, reflections=reflections, playbook=playbook, programs=self.taken is not None
        )

    def checks(self, artifact: Ledger, new_digests: Sequence[str], *, corpus: LeakCorpus) -> list[Refusal]:
        """Return the refusals by the words of new entries and, where programs are taken, by their form."""
        refusals = change.checks(artifact, new_digests, corpus=corpus)
        if self.taken is None:
            return refusals
        most = self.taken.max_tokens
        return [*refusals, *change.no_programs(artifact, new_digests, most_tokens=most)]

    def choosing(self, text: str, retrieval: Retrieval) -> Callable[[str], str]:
        """Return what chooses the playbook's core and what is most alike to a question."""
        return chosen.choosing(text, core_tokens=retrieval.core_tokens, tail_tokens=retrieval.tail_tokens)

    def cost(self, of: Iteration) -> Cost:
        """Count replays, and the drop-one check, which may end with select scored once more."""
        replayed = of.verify == "Replay"
        return Cost(
            tried=Range(0, 3 * of.size if replayed else 0),
            rounds=verification.ROUNDS,
            dropping=Range(0, 3 * of.select_rows if replayed else 0),
            kept=0.05 if replayed else 0.3,
        )

    def mergeable(self, update: Update) -> bool:
        return not is_program(update.text)

    def group(self, updates: Sequence[Update], *, cap: int, max_tokens: int = MAX_TOKENS) -> Grouping:
        return group.group(updates, cap=cap)

    def refusals(self, artifact: Ledger) -> list[Refusal]:
        return sorted(artifact.refusals)
