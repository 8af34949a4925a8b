"""What a base method offers, and the plain data it exchanges. Nothing of files, pods or HTTP.

A method owns an *artifact* (for ACE a ledger of entries), the prompts that make models improve it,
the parsers of what they answer, and the algebra that brings the answers together. Every function is
pure: the same arguments give the same result in every process, and no argument is changed.

The life of one iteration, as the caller drives it::

    rendered = method.render(ledger, budget_tokens=..., verify=...)
    rollout_prompt -> parse_rollout            one call an example
    reflect_prompt -> parse_reflection         one call a trajectory, more with rounds
    leaf_prompt -> parse_leaf -> group         a call a leaf, then ONE group-by without a call
    merge_prompt -> parse_merge -> reconcile_merge   a call for each real cluster
    apply -> new_entries -> checks -> with_refusals
    replay_candidates -> replay_request -> Verdict -> with_verdicts
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar

from combee.algo.seeds import digest_of
from combee.errors import CombeeError
from combee.records import Message, Prompt, Reflection, Trajectory

Op = Literal["ADD", "UPDATE", "MERGE", "DELETE"]
Verify = Literal["Replay", "Support", "Off"]
RefusalKind = Literal["leak", "injection", "replay", "support"]
Verification = Literal["initial", "replay", "support", "no"]

INITIAL = "initial"
"""The source of what the user gave: trusted, and never the id of a trajectory."""

OVER_BUDGET = "budget"
"""``LeftOut.reason`` of an admitted entry that did not fit."""

REPAIR_KEEPS_CHARS = 6000
"""How much of an unusable answer is shown to the model that gave it, in characters."""


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

    def join(self, a: A, b: A) -> A:
        """Everything either knows: commutative, associative, idempotent."""
        ...

    def render(
        self, ledger: A, *, budget_tokens: int, verify: Verify, with_entry: str | None = None
    ) -> Rendered:
        """The text a model reads. ``with_entry`` (for a replay) is appended last, on top of the budget."""
        ...

    def views(self, ledger: A, rendered: Rendered, *, verify: Verify) -> list[EntryView]:
        """Every entry with its standing, in rank order, for reports."""
        ...

    # one example
    def rollout_prompt(self, instructions: str, playbook_text: str, model_input: str) -> Prompt: ...

    def parse_rollout(self, text: str) -> RolloutReply:
        """ParseError when there is no answer in it."""
        ...

    def reflect_prompt(
        self, playbook_text: str, trajectory: Trajectory, round: int, previous: Reflection | None
    ) -> Prompt:
        """``round`` counts from 1. A wrong trajectory is diagnosed, a right one is asked for its votes."""
        ...

    def parse_reflection(self, text: str, *, reflection_id: str, trajectory: Trajectory) -> Reflection: ...

    def retry_prompt(
        self, instructions: str, playbook_text: str, model_input: str, reflection: Reflection
    ) -> Prompt:
        """Answer again, with the reflection at hand; ``parse_rollout`` reads the answer."""
        ...

    # aggregation
    def leaf_prompt(self, playbook: Rendered, reflections: Sequence[Reflection]) -> Prompt: ...

    def parse_leaf(
        self, text: str, *, reflections: Sequence[Reflection], playbook: Rendered
    ) -> list[Update]: ...

    def group(self, updates: Sequence[Update], *, cap: int) -> Grouping:
        """``cap``: most members of one cluster. The result does not depend on the order of ``updates``."""
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
        ledger: A,
        updates: Sequence[Update],
        reflections: Sequence[Reflection],
        *,
        iteration: int,
        ids: Mapping[str, str] | None = None,
    ) -> A:
        """Add updates and votes. ``ids`` is ``Rendered.ids`` of the playbook the reflections saw
        (None: the ledger's own ids)."""
        ...

    # verification
    def leak_corpus(self, texts: Iterable[str]) -> LeakCorpus: ...

    def new_entries(self, before: A, after: A) -> tuple[str, ...]:
        """Digests of the entries of ``after`` that ``before`` lacks, sorted."""
        ...

    def checks(self, ledger: A, new_digests: Sequence[str], *, corpus: LeakCorpus) -> list[Refusal]: ...

    def with_refusals(self, ledger: A, refusals: Iterable[Refusal]) -> A: ...

    def refusals(self, ledger: A) -> list[Refusal]:
        """Everything that was not let in, the lost replays too, each with its reason; sorted."""
        ...

    def replay_candidates(self, ledger: A, *, trajectories: Mapping[str, Trajectory]) -> list[str]: ...

    def replay_request(
        self,
        ledger: A,
        entry_digest: str,
        *,
        trajectories: Mapping[str, Trajectory],
        budget_tokens: int,
        verify: Verify,
    ) -> ReplayRequest:
        """The replay of one candidate, at the first of its sources that was wrong."""
        ...

    def replay_controls(
        self, entry_digest: str, right: Iterable[str], *, source: str = "", count: int = 2
    ) -> tuple[str, ...]:
        """The controls of a replay: ``count`` of the example ids ``right``, chosen by hash;
        the example of ``source`` is none of them."""
        ...

    def with_verdicts(self, ledger: A, verdicts: Iterable[Verdict]) -> A: ...

    # retention
    def carried(self, reflection: Reflection, updates: Sequence[Update]) -> tuple[str, ...]:
        """Ids of the lessons of ``reflection`` that some update cites and keeps the anchors of."""
        ...

    def carried_all(self, reflections: Sequence[Reflection], updates: Sequence[Update]) -> frozenset[str]:
        """``carried`` over many reflections at once: the form to use for a level or an iteration."""
        ...


def repair_prompt(prompt: Prompt, broken_text: str, reason: str) -> Prompt:
    """``prompt`` again, with the unusable answer and what is wrong with it: the one repair round."""
    shown = broken_text[:REPAIR_KEEPS_CHARS] or "(nothing)"
    form = (
        "one JSON object that follows the schema, and nothing else" if prompt.schema else "the answer alone"
    )
    ask = f"This answer cannot be used: {reason}. Give it again as {form}."
    return replace(prompt, messages=(*prompt.messages, Message("assistant", shown), Message("user", ask)))
