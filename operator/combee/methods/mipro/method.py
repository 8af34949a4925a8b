"""MIPRO as a ``Method``: the data summed up by the tree, several instructions proposed by it, demonstrations
from attempts that came out right, and a search for the best combination of these.

Its artifact is a pool of which one text leads, with what else its components may say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from combee.algo.ranges import Range
from combee.algo.tokens import estimate_tokens
from combee.methods.components import pool, standing
from combee.methods.components.method import RecordMethod
from combee.methods.components.pool import Pool
from combee.methods.components.prompts import lessons_prompt, record_of
from combee.methods.components.propose import Child, children
from combee.methods.components.reduction import COMPONENT, earlier_room, parts
from combee.methods.components.trying import with_children, with_proposals
from combee.methods.content import leak_corpus
from combee.methods.mipro import observations, prompts, search, verification
from combee.methods.mipro.demonstrations import DEMONSTRATIONS, demonstration_of, sets_of
from combee.methods.mipro.terms import Terms
from combee.methods.protocol import (
    MAX_TOKENS,
    Cost,
    Grouping,
    Iteration,
    LeakCorpus,
    Part,
    Proposals,
    Refusal,
    Rendered,
    Update,
    Verify,
)
from combee.methods.verification import Verifying
from combee.records import Diversity, Prompt, Reflection, Trajectory

T = TypeVar("T")
_FIXED_TOKENS = estimate_tokens(prompts.PROPOSE) + 30
"""What a proposal's call is given besides the text that leads and what was observed, its tip among it."""


@dataclass(frozen=True)
class MiproMethod(RecordMethod):
    """The method of proposals that a Bayesian search combines."""

    terms: Terms = field(default_factory=Terms)

    name = "MIPRO"

    @property
    def last_call_tokens(self) -> int:
        return _FIXED_TOKENS + self.earlier_tokens

    @property
    def earlier_tokens(self) -> int:
        """What observations of earlier iterations may take of a proposal's call."""
        return earlier_room(self.terms.call_tokens, self.terms.budget_tokens + _FIXED_TOKENS)

    def handed_on(self, artifact: Pool, rendered: Rendered, *, by: str, train: str) -> bytes:
        """Return nothing: no run starts from a pool, and this one quotes rows that the text does not."""
        return b""

    def cost(self, of: Iteration) -> Cost:
        """Count each probe and what is scored on select: once the start, then the best. Each round waits for
        the one before."""
        leaders = verification.leaders_of(self.terms.probes)
        tried = self.terms.probes * min(self.terms.minibatch, of.select_rows)
        rounds = -(-self.terms.probes // verification.AT_ONCE) + 1
        return Cost(
            Range(0, tried + (1 + leaders) * of.select_rows),
            rounds=rounds,
            reflects=False,
            knows_select=True,
            clusters=1 if self.terms.whole_texts else self.terms.proposals,
        )

    def records_of(self, trajectory: Trajectory) -> list[tuple[str, str]]:
        """Return what came out wrong as records, and what came out right, which needs no other instructions,
        as the demonstration that it may be."""
        named = [] if trajectory.correct else super().records_of(trajectory)
        if self.terms.demonstrations and (shown := demonstration_of(trajectory)):
            named.append((DEMONSTRATIONS, shown))
        return named

    def working(
        self,
        artifact: Pool,
        *,
        budget_tokens: int,
        verify: Verify,
        variants: int = 1,
        diversity: Diversity | None = None,
    ) -> list[Rendered]:
        """Return the text that leads, with what several rows of earlier iterations back."""
        shown = standing.rendered_variant(standing.best(artifact))
        return [replace(shown, tried=observations.told_again(artifact, room_tokens=self.earlier_tokens))]

    def parts(self, playbook: Rendered, reflections: Sequence[Reflection]) -> list[Part]:
        """Return the components that models write: not the demonstrations."""
        return [part for part in parts(playbook, reflections) if part.name != DEMONSTRATIONS]

    def leaf_prompt(self, playbook: Rendered, reflections: Sequence[Reflection]) -> Prompt:
        """Ask for observations that cite their records; where no other call follows, for a proposal."""
        component = playbook.ids.get(COMPONENT, pool.MAIN)
        records = [(one.id, record_of(one, component)) for one in reflections]
        if self.terms.whole_texts:
            return prompts.propose_at_once_prompt(playbook, records)
        return lessons_prompt(playbook, records, prompts.OBSERVE)

    def group(self, updates: Sequence[Update], *, cap: int, max_tokens: int = MAX_TOKENS) -> Grouping:
        """Join observations that say the same, and make a cluster of each proposal: the first is given all
        that a call may be given, the others leave out a share of it each. The tip of a proposal is the
        ``reason`` of its observations."""
        grouping = super().group(updates, cap=cap, max_tokens=max_tokens)
        if self.terms.whole_texts:
            return grouping
        clusters = [
            [replace(one, reason=prompts.TIPS[place]) for one in given]
            for cluster in grouping.clusters
            for place, given in enumerate(_shares(cluster, self.terms.proposals))
        ]
        return Grouping(grouping.passed, clusters)

    def merge_prompt(self, playbook: Rendered, updates: Sequence[Update]) -> Prompt:
        """Ask to propose the component of the updates anew, by a share of what was observed earlier, too."""
        place = prompts.TIPS.index(updates[0].reason)
        earlier = _share([line for _, line in playbook.tried], place, self.terms.proposals)
        return prompts.propose_prompt(playbook, updates, earlier)

    def apply(
        self,
        artifact: Pool,
        updates: Sequence[Update],
        reflections: Sequence[Reflection],
        *,
        iteration: int,
        ids: Mapping[str, str] | None = None,
    ) -> Pool:
        """Add each proposal, and each set of demonstrations, as the text that the iteration worked with
        (``ids``) with this one change, and what was observed."""
        digest = standing.worked_with(artifact, ids)
        parent, budget = artifact.by_digest[digest], self.terms.budget_tokens
        rewrites = [
            child for one in _rewrites(updates) for child in children(parent, [one], budget_tokens=budget)[:1]
        ]
        grown = with_proposals(observations.noted(artifact, updates, iteration), digest, rewrites, iteration)
        body = search.variant_of({**search.texts_of(parent), DEMONSTRATIONS: ""})
        sets = sets_of(
            reflections,
            most=self.terms.demonstrations,
            sets=self.terms.proposals,
            budget_tokens=budget - estimate_tokens(body.text),
            seed=artifact.seed + iteration,
        )
        quoting: list[Child] = [("rewrite", parent.with_texts({DEMONSTRATIONS: one})) for one in sets]
        return with_children(grown, digest, quoting, iteration)

    def proposals(
        self, before: Pool, after: Pool, updates: Sequence[Update], shown: Sequence[Rendered]
    ) -> Proposals:
        each = [super(MiproMethod, self).proposals(before, after, [one], shown) for one in _rewrites(updates)]
        return Proposals(sum(one.made for one in each), sum(one.repeated for one in each))

    def checks(self, artifact: Pool, new_digests: Sequence[str], *, corpus: LeakCorpus) -> list[Refusal]:
        """Check what is new, line by line. Demonstrations quote rows because the manifest says so: of them
        only what else may not be published is refused."""
        quoting = [digest for digest in new_digests if _quotes(artifact, digest)]
        written = [digest for digest in new_digests if digest not in quoting]
        return [
            *super().checks(artifact, written, corpus=corpus),
            *super().checks(artifact, quoting, corpus=leak_corpus(())),
        ]

    def verification(
        self, artifact: Pool, *, trajectories: Mapping[str, Trajectory], budget_tokens: int, verify: Verify
    ) -> Verifying[Pool]:
        return verification.verification(
            artifact, verification.Budget(self.terms.probes, self.terms.minibatch, budget_tokens)
        )


def _rewrites(updates: Sequence[Update]) -> list[Update]:
    """Return the new texts, in an order of their own."""
    return sorted((one for one in updates if one.op == "UPDATE"), key=lambda one: (one.section, one.text))


def _shares(cluster: Sequence[Update], proposals: int) -> list[list[Update]]:
    """Return what each proposal is given, in order; nothing twice."""
    shares: list[list[Update]] = []
    for place in range(proposals):
        share = _share(cluster, place, proposals)
        if share and share not in shares:
            shares.append(share)
    return shares


def _share(of: Sequence[T], place: int, proposals: int) -> list[T]:
    """Return what the proposal in a place is given of a list: the first all of it, the others all but every
    n-th, beginning at the first, second and so on."""
    return [one for number, one in enumerate(of) if not place or number % proposals != place - 1]


def _quotes(artifact: Pool, digest: str) -> bool:
    """Return whether a proposal is a set of demonstrations."""
    parent = artifact.by_digest[artifact.origin_of(digest).parents[0]]
    own, before = (search.texts_of(one)[DEMONSTRATIONS] for one in (artifact.by_digest[digest], parent))
    return own != before
