"""What a base method must say, and the plain data it exchanges. Nothing of files, pods or HTTP.

A method owns an *artifact* (for ACE a ledger of entries), the prompts that make models improve it,
the parsers of what they answer, and the algebra that brings the answers together. Every function is
pure: the same arguments give the same result in every process, and no argument is changed.

The life of one iteration, as the caller drives it; what stands in one line runs side by side::

    working                                          the texts that this iteration's agents see, mostly one
    rollout_prompt -> parse_rollout                  a call an example
    reflect_prompt -> parse_reflection               a call a trajectory, more with rounds
    parts                                            no call; what follows for each by itself, side by side
    leaf_prompt -> parse_leaf                        a call a leaf; again for what was lost
    group                                            no call
    merge_prompt -> parse_merge -> reconcile_merge   a call a cluster
    apply -> new_entries -> checks -> with_refusals  no call
    verification                                     rounds of rollouts, each round side by side
    dropping                                         at the end of an epoch: rounds of rollouts on select
    render                                           the text that is scored on select

``base.Method`` is what a method is derived from; docs/methods.md writes one in under a hundred lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, Self

from combee.algo.ranges import Range
from combee.algo.seeds import digest_of
from combee.algo.tokens import estimate_tokens
from combee.errors import CombeeError
from combee.records import Reflection, Shown

Op = Literal["ADD", "UPDATE", "MERGE", "DELETE"]
Verify = Literal["Replay", "Support", "Off"]
RefusalKind = Literal["leak", "injection", "program", "replay", "support"]
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
    """An answer of a model that cannot be used; ``what`` is the short reason shown to the repair round."""

    code = "Parse"


class CutError(ParseError):
    """An answer that ended at its token limit, and so did the shorter one that was asked for after it."""

    code = "Cut"


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
        """The sha256 hex of what the update does (op, text, base), whoever says it, in whichever section."""
        return digest_of([self.op, self.text, sorted(self.base)])

    def backed_by(self, others: Iterable[Update], **changed: Any) -> Update:
        """Return the update with all that backs the others, and with what else is ``changed``."""
        others = list(others)
        return replace(
            self,
            sources=frozenset(source for one in others for source in one.sources),
            cited=frozenset(source for one in others for source in one.cited),
            **changed,
        )


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
    tried: tuple[tuple[str, str], ...] = ()
    """(component, line) of earlier iterations that proposers are told again, and agents never: mostly what
    did not hold, with the reason, so that it is not proposed again. The component is empty where there are
    none."""

    @property
    def shown(self) -> Shown:
        """What agents get of it, and what is published: a run's ``prompt.md`` to the byte."""
        return Shown(self.text.strip(), self.components)

    @property
    def variant(self) -> str:
        """The digest of the member of a pool that it is; empty for a method without one."""
        return self.ids.get(VARIANT, "")


@dataclass(frozen=True, slots=True)
class Part:
    """A part that is reduced by itself: a text that proposals change, and the reflections on it."""

    shown: Rendered
    reflections: tuple[Reflection, ...]
    name: str = ""
    """what tells it from the other parts of its text."""


@dataclass(frozen=True, slots=True)
class RolloutReply:
    """What the task model said: its answer, the bullets it says it used, and why."""

    answer: str
    cited: tuple[str, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Verdict:
    """What one replay showed: a fact with its evidence, kept for ever.

    ``controls`` are the example ids answered right before, ``harmed`` how many of them went wrong. ``source``
    is empty where all trajectories behind the entry had answered right: then nothing could be fixed.
    """

    entry_digest: str
    source: str
    fixed: bool
    harmed: int
    controls: tuple[str, ...] = ()
    run: int = 0
    """which earlier run it is of, as the artifact counts them; 0: this one."""

    @property
    def won(self) -> bool:
        """Whether the entry fixed its own example and harmed no control."""
        return self.fixed and self.harmed == 0

    @property
    def lost(self) -> bool:
        """Whether the entry left its own example wrong or harmed a control."""
        return self.harmed > 0 or bool(self.source and not self.fixed)


@dataclass(frozen=True, slots=True, order=True)
class Refusal:
    """The reason why an entry may not be rendered. ``text_digest`` names the text without repeating it."""

    entry_digest: str
    text_digest: str
    kind: RefusalKind
    reason: str
    run: int = 0
    """as of a ``Verdict``."""

    @property
    def stands(self) -> bool:
        """Whether no replay undoes it: by a check of the words, or by this run's test of a program, which an
        earlier run may have given less time, or run where others took it."""
        return self.kind in ("leak", "injection") or (self.kind == "program" and not self.run)


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge call gave: its updates, and how many ids it named that nobody had given it."""

    updates: list[Update]
    unknown_ids: int = 0


@dataclass(frozen=True, slots=True)
class Grouping:
    """The result of the group-by over all leaf entries: what passes as it is, and what needs a call."""

    passed: list[Update]
    clusters: list[list[Update]]


@dataclass(frozen=True, slots=True)
class EntryView:
    """One entry as reports show it. Counts are of distinct examples, never of calls."""

    id: str
    digest: str
    section: str
    text: str
    sources: tuple[str, ...] = ()
    helpful: int = 0
    harmful: int = 0
    verified: Verification = "no"
    contested: bool = False
    rendered: bool = True
    left_out: str = ""
    """why it is not rendered; empty when it is."""
    parents: tuple[str, ...] = ()
    """digests of the entries that it replaced or was merged from."""
    replays: tuple[Verdict, ...] = ()
    """what its own replays showed."""


class Artifact(Protocol):
    """An immutable value with a canonical form: equal content, equal bytes, equal digest."""

    @property
    def digest(self) -> str:
        """The sha256 hex of ``to_json()``."""
        ...

    def to_json(self) -> bytes:
        """Return canonical JSON; ``Method.from_json`` reads it back."""
        ...

    def join(self, other: Self) -> Self:
        """Return everything that either knows: commutative, associative, idempotent."""
        ...


class LeakCorpus(Protocol):
    """A corpus that tells whether a text repeats a rare passage of the data it was built from."""

    def repeats(self, text: str) -> bool:
        """Return whether ``text`` has a run of words that only very few rows have."""
        ...


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration of a preview, as the cost of a method depends on it."""

    size: int
    texts: int
    """that it works with side by side, at most."""
    components: int
    select_rows: int
    verify: str
    """Replay, Support or Off."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a method asks for in an iteration, besides the batch's rollouts and the aggregator's leaves."""

    tried: Range = Range(0, 0)  # noqa: RUF009
    """rollouts that it takes to believe what was proposed."""
    rounds: int = 1
    """rounds that these come in, each of which waits for the one before."""
    dropping: Range = Range(0, 0)  # noqa: RUF009
    """rollouts on select at the end of an epoch that show what harms."""
    reflects: bool = True
    """a call is made about each trajectory; not where aggregators read trajectories as records themselves."""
    knows_select: bool = False
    """it scores on select what it tries out, so that what it renders is not scored there once more."""
    clusters: int | None = None
    """calls of its group-by; None: as many as there are lessons that say nearly the same."""
    kept: float = 0.1
    """entries for each example that come to be shown, of 50 tokens each, as preview expects them."""


TRIED_TOKENS = 300
"""Most tokens that a call is told of what did not hold."""


def tried_within(lines: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the first lines of ``Rendered.tried`` that fit in ``TRIED_TOKENS``, of each component.

    >>> long = "x" * 800
    >>> len(tried_within([("", long), ("", long), ("other", long)]))
    2
    """
    room: dict[str, int] = {}
    kept: list[tuple[str, str]] = []
    for component, line in lines:
        left = room.get(component, TRIED_TOKENS) - estimate_tokens(line)
        if left >= 0:
            kept.append((component, line))
            room[component] = left
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Proposals:
    """How much was proposed in an iteration, and how much of it says what was decided before."""

    made: int = 0
    repeated: int = 0


VariantKind = Literal["start", "rewrite", "lessons", "merge"]
"""``rewrite``: the text as a model wrote it; ``lessons``: the same and what was learned, word for word."""


@dataclass(frozen=True, slots=True)
class VariantView:
    """One variant. ``parents`` are digests; ``iteration`` counts from 0, and is -1 for one that was given."""

    digest: str
    kind: VariantKind
    parents: tuple[str, ...]
    iteration: int
    changed: tuple[str, ...]
    """names of the components that differ from the first parent's."""
    gain: float | None
    """by how much its scores' sum beat its parents' on ``examples``, where it was judged."""
    examples: int
    score: float | None
    """mean over the ``scored`` rows of select that have a score."""
    scored: int
    leads: bool
    """whether it is the one that is rendered."""
