"""What a base method must say, and the plain data it exchanges. Nothing of files, pods or HTTP.

A method owns an *artifact* (for ACE a ledger of entries), the prompts that make models improve it,
the parsers of what they answer, and the algebra that brings the answers together. Every function is
pure: the same arguments give the same result in every process, and no argument is changed.

The life of one iteration, as the caller drives it; what stands in one line runs side by side::

    working                                          the texts that this iteration's agents see, mostly one
    rollout_prompt -> parse_rollout                  a call an example
    reflect_prompt -> parse_reflection               a call a trajectory, more with rounds
    parts                                            no call; what follows for each by itself, side by side
    leaf_prompt -> parse_leaf                        a call a leaf; again for what is not carried_all
    group                                            no call
    merge_prompt -> parse_merge -> reconcile_merge   a call a cluster
    apply -> new_entries -> checks -> with_refusals  no call
    verification                                     rounds of rollouts, each round side by side
    render                                           the text that is scored on select

``base.BaseMethod`` says what methods have in common; docs/methods.md writes one in under a hundred lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self, TypeVar

from combee.algo.seeds import digest_of
from combee.errors import CombeeError
from combee.methods.cost import Cost, Iteration
from combee.methods.diff import Diff
from combee.methods.lineage import VariantView
from combee.methods.verification import Verifying
from combee.records import Prompt, Reflection, Shown, Trajectory

Op = Literal["ADD", "UPDATE", "MERGE", "DELETE"]
Verify = Literal["Replay", "Support", "Off"]
RefusalKind = Literal["leak", "injection", "replay", "support"]
Verification = Literal["initial", "replay", "support", "no"]

INITIAL = "initial"
"""The source of what the user gave: trusted, and never the id of a trajectory."""

VARIANT = "variant"
"""The key of ``Rendered.ids`` for the digest of the member of a pool that a text is."""

OVER_BUDGET = "budget"
"""``LeftOut.reason`` of an admitted entry that did not fit."""

MAX_TOKENS = 24_000
"""Most tokens of a call where nobody says how many."""


class ParseError(CombeeError):
    """A model's answer cannot be used; ``what`` is the short reason that the repair round shows it."""

    code = "Parse"


@dataclass(frozen=True, slots=True)
class Update:
    """One typed change to an artifact, proposed by an aggregator call.

    ``sources`` are the trajectory ids that back it (never empty after a parser); ``base`` the
    digests of the entries that it replaces or removes: UPDATE and DELETE one, MERGE two or more;
    ``cited`` the trajectory ids it claims to draw on, which retention counts and support does not.
    """

    op: Op
    section: str
    text: str
    sources: frozenset[str]
    base: tuple[str, ...] = ()
    reason: str = ""
    cited: frozenset[str] = frozenset()
    variant: str = ""
    """the text that it changes of several in flight; empty where there is one."""

    @property
    def key(self) -> str:
        """sha256 hex of what the update does (op, text, base), whoever says it, in whichever section."""
        return digest_of([self.op, self.text, sorted(self.base)])


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An entry that is in the artifact and not in the rendered text. ``reason`` is one word."""

    digest: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rendered:
    """An artifact as a model reads it. ``tokens`` never exceeds the budget it was rendered under."""

    text: str
    tokens: int
    included: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    ids: Mapping[str, str] = field(default_factory=dict, hash=False)
    """bullet id -> entry digest, of the bullets in ``text``."""
    components: tuple[tuple[str, str], ...] = ()
    """(name, text) of its parts, where it has several that are improved by themselves."""

    @property
    def shown(self) -> Shown:
        """What agents get of it."""
        return Shown(self.text, self.components)

    @property
    def variant(self) -> str:
        """Which member of a pool it is, by digest; empty for a method without one."""
        return self.ids.get(VARIANT, "")


@dataclass(frozen=True, slots=True)
class Part:
    """What is reduced by itself: a text that proposals change, and the reflections that concern it."""

    shown: Rendered
    reflections: tuple[Reflection, ...]


@dataclass(frozen=True, slots=True)
class RolloutReply:
    """What the task model said: its answer, the bullets it says it used, and why."""

    answer: str
    cited: tuple[str, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Answer ``source``'s example, and its controls, with the playbook ``text`` that has the entry in it."""

    entry_digest: str
    source: str
    text: str


@dataclass(frozen=True, slots=True, order=True)
class Verdict:
    """What one replay showed: a fact with its evidence, kept for ever.

    ``controls`` are the example ids answered right before, ``harmed`` how many of them went wrong.
    """

    entry_digest: str
    source: str
    fixed: bool
    harmed: int
    controls: tuple[str, ...] = ()

    @property
    def won(self) -> bool:
        """The entry fixed its own example and harmed no control."""
        return self.fixed and self.harmed == 0


@dataclass(frozen=True, slots=True, order=True)
class Refusal:
    """Why an entry may not be rendered. ``text_digest`` names the text without repeating it."""

    entry_digest: str
    text_digest: str
    kind: RefusalKind
    reason: str


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge call gave: its updates, and how many ids it named that nobody had given it."""

    updates: list[Update]
    unknown_ids: int = 0


@dataclass(frozen=True, slots=True)
class Grouping:
    """The group-by over all leaf entries: what passes as it is, and what needs one call a cluster."""

    passed: list[Update]
    clusters: list[list[Update]]


@dataclass(frozen=True, slots=True)
class EntryView:
    """One entry as reports show it. Counts are of distinct examples, never of calls."""

    id: str
    digest: str
    section: str
    text: str
    sources: tuple[str, ...]
    helpful: int
    harmful: int
    verified: Verification
    contested: bool
    rendered: bool
    left_out: str
    """why it is not rendered; empty when it is."""
    parents: tuple[str, ...]
    """digests of the entries that it replaced or was merged from."""
    replays: tuple[Verdict, ...] = ()
    """what its own replays showed."""


class Artifact(Protocol):
    """An immutable value with a canonical form: equal content, equal bytes, equal digest."""

    @property
    def digest(self) -> str:
        """sha256 hex of ``to_json()``."""
        ...

    def to_json(self) -> bytes:
        """Canonical JSON; ``Method.from_json`` reads it back."""
        ...

    def join(self, other: Self) -> Self:
        """Everything either knows: commutative, associative, idempotent."""
        ...


class LeakCorpus(Protocol):
    """Answers whether a text repeats a rare passage of the data it was built from."""

    def repeats(self, text: str) -> bool:
        """True when ``text`` has a run of words that only very few rows have."""
        ...


A = TypeVar("A", bound=Artifact)


class Method(Protocol[A]):
    """A base method. ``name`` is the manifest's ``method.type``."""

    @property
    def name(self) -> str: ...

    def cost(self, of: Iteration) -> Cost:
        """What ``preview`` counts, before anything is spent."""
        ...

    # the artifact
    def empty(self) -> A:
        """The artifact that knows nothing."""
        ...

    def initial(self, text: str) -> A:
        """The artifact that the user's own playbook text stands for; all of it is trusted."""
        ...

    def from_json(self, data: bytes) -> A:
        """The inverse of ``Artifact.to_json``; DataError for anything else."""
        ...

    def render(self, artifact: A, *, budget_tokens: int, verify: Verify) -> Rendered:
        """The text that a model reads, in at most ``budget_tokens`` tokens."""
        ...

    def views(self, artifact: A, rendered: Rendered, *, verify: Verify) -> list[EntryView]:
        """Every entry with its standing, in rank order, for reports."""
        ...

    def variants(self, artifact: A, rendered: Rendered) -> list[VariantView]:
        """The members of its pool, best first; none for a method without one."""
        ...

    # one example
    def working(
        self, artifact: A, *, budget_tokens: int, verify: Verify, variants: int = 1
    ) -> list[Rendered]:
        """The texts that an iteration works with: what its agents see and its proposals change. ``variants`` at most,
        each of another ``variant``; ``[render(...)]`` for a method that works on what it would serve."""
        ...

    def rollout_prompt(self, instructions: str, playbook_text: str, model_input: str) -> Prompt: ...

    def parse_rollout(self, text: str) -> RolloutReply:
        """ParseError when there is no answer in it."""
        ...

    def reflect_prompt(
        self, playbook_text: str, trajectory: Trajectory, round: int, previous: Reflection | None
    ) -> Prompt | None:
        """``round`` counts from 1. A wrong trajectory is diagnosed, a right one is asked for its votes. None: there
        is nothing to ask, and ``parse_reflection`` makes its reflection of the trajectory and no text."""
        ...

    def parse_reflection(self, text: str, *, reflection_id: str, trajectory: Trajectory) -> Reflection: ...

    def retry_prompt(
        self, instructions: str, playbook_text: str, model_input: str, reflection: Reflection
    ) -> Prompt:
        """Answer again, with the reflection at hand; ``parse_rollout`` reads the answer."""
        ...

    # aggregation
    def parts(self, playbook: Rendered, reflections: Sequence[Reflection]) -> list[Part]:
        """What is reduced by itself, side by side: everything, or each component with its own reflections.
        None where there is nothing to reduce. Asked once for each text that the iteration works with."""
        ...

    def leaf_prompt(self, playbook: Rendered, reflections: Sequence[Reflection]) -> Prompt: ...

    def parse_leaf(
        self, text: str, *, reflections: Sequence[Reflection], playbook: Rendered
    ) -> list[Update]: ...

    def summary_prompt(self, reflections: Sequence[Reflection]) -> Prompt:
        """A short text in place of the reflections, for the strategy ``Summarize``."""
        ...

    def parse_summary(self, text: str, *, summary_id: str, reflections: Sequence[Reflection]) -> Reflection:
        """The summary as one reflection that ``leaf_prompt`` takes, all of the text in its lessons; its
        trajectory is ``summary_id``, too. ParseError when there is no text."""
        ...

    def group(self, updates: Sequence[Update], *, cap: int, max_tokens: int = MAX_TOKENS) -> Grouping:
        """``cap``: most members of one cluster; ``max_tokens``: most tokens of a cluster's prompt, as estimated. The result does not depend on the order of ``updates``."""
        ...

    def merge_prompt(self, playbook: Rendered, updates: Sequence[Update]) -> Prompt: ...

    def parse_merge(self, text: str, *, updates: Sequence[Update], playbook: Rendered) -> Merged:
        """What is named to be kept is kept word for word; ids that do not exist change nothing."""
        ...

    def reconcile_merge(self, members: Sequence[Update], merged: Sequence[Update]) -> list[Update]:
        """``merged``, less what it made up, plus every member that it lost: nothing disappears."""
        ...

    def apply(
        self,
        artifact: A,
        updates: Sequence[Update],
        reflections: Sequence[Reflection],
        *,
        iteration: int,
        ids: Mapping[str, str] | None = None,
    ) -> A:
        """Add updates and votes, for each text of the iteration in turn. ``ids``: its ``Rendered.ids`` (None: the artifact's)."""
        ...

    # what is let in
    def leak_corpus(self, texts: Iterable[str]) -> LeakCorpus: ...

    def new_entries(self, before: A, after: A) -> tuple[str, ...]:
        """Digests of the entries of ``after`` that ``before`` lacks, sorted."""
        ...

    def checks(self, artifact: A, new_digests: Sequence[str], *, corpus: LeakCorpus) -> list[Refusal]: ...

    def with_refusals(self, artifact: A, refusals: Iterable[Refusal]) -> A: ...

    def refusals(self, artifact: A) -> list[Refusal]:
        """Everything that was not let in, the lost replays too, each with its reason; sorted."""
        ...

    # evaluation
    def verification(
        self, artifact: A, *, trajectories: Mapping[str, Trajectory], budget_tokens: int, verify: Verify
    ) -> Verifying[A]:
        """The rollouts it takes to believe what ``apply`` added, and the artifact that follows from them.

        ``trajectories``: of this iteration, by id, without their texts. A trajectory sent with an ``error`` was
        lost and says nothing of the text, least of all that it scores nothing.
        """
        ...

    # retention
    def carried_all(self, reflections: Sequence[Reflection], updates: Sequence[Update]) -> frozenset[str]:
        """Ids of the lessons that some update carries: it cites their reflection and keeps what they stand on."""
        ...

    # what others see
    def served_text(self, text: str) -> str:
        """A rendered text as a service's model is shown it, without what belongs to learning."""
        ...

    def diff_texts(self, before: str, after: str) -> Diff:
        """What changed between two rendered texts, for people; empty for equal ones."""
        ...
