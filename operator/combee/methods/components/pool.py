"""A pool of variants of a prompt of named components, as a set of facts that only grows.

| fact | says |
|---|---|
| Variant | a prompt of named components exists |
| Origin | where it comes from: the start, a proposal of some kind, a merge of lineages |
| Scored | it scored so much on an example (of an objective) |
| Acceptance | on the minibatch that it was proposed from it beat its parent, or did not |
| Lost | what a proposal that did not get in would have changed, and why it did not: of the latest few |
| Edited | it was asked for as an edit of some kind |
| Gradient | what was said against a component: of the latest few steps |
| Observed | an attempt backs a lesson for a component |
| Wording | a component may say this, beside what it says in a variant |
| Probe | texts of components, combined, beat the start by so much on some rows of select |
| Merged | two variants were merged over an ancestor: not to be tried again |
| Refusal | why it may not be shown to a model |
| drawn | how many draws the pool's generator has made: its whole state |

An example that was lost has no score: it is absent, never a zero. Joining two pools is set union, and the
larger ``drawn``; what a reader sees (who is in, who leads) is derived from the facts by ``standing``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from combee.algo.seeds import canonical_json, digest_of
from combee.methods.factset import FactSet, read_facts, rows_of
from combee.methods.protocol import Refusal, VariantKind

VERSION = 1
MAIN = "instructions"
"""The component of a prompt that has only one."""
VALUE = ""
"""The objective that is the score itself."""


@dataclass(frozen=True, slots=True, order=True)
class Variant:
    """A prompt: (name, text) of its components, in the order of names."""

    components: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, components: Mapping[str, str]) -> Variant:
        """Return the variant of these components."""
        return cls(tuple(sorted(components.items())))

    @property
    def digest(self) -> str:
        """The sha256 hex of its components: equal texts are one variant, however they came about."""
        return digest_of(self.components)

    @property
    def text(self) -> str:
        """The prompt as a model reads it: a lone component bare, several each under its name.

        >>> Variant.of({"instructions": "Round late."}).text
        'Round late.'
        """
        if len(self.components) == 1:
            return self.components[0][1].strip()
        return "\n\n".join(f"# {name}\n\n{text.strip()}" for name, text in self.components)

    def with_texts(self, texts: Mapping[str, str]) -> Variant:
        """Return this one with other texts for some of its components."""
        return Variant.of({**dict(self.components), **texts})


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """The fact that ``variant`` came out of ``parents`` in ``iteration``, by ``kind``; -1: it was given."""

    variant: str
    kind: VariantKind
    parents: tuple[str, ...]
    iteration: int


@dataclass(frozen=True, slots=True, order=True)
class Scored:
    """The fact that ``variant`` scored ``value`` on ``example``; higher is better."""

    variant: str
    example: str
    objective: str
    value: float


@dataclass(frozen=True, slots=True, order=True)
class Acceptance:
    """On ``examples`` that both answered, ``variant`` scored ``gain`` more in sum than its parent."""

    variant: str
    accepted: bool
    gain: float
    examples: int


@dataclass(frozen=True, slots=True, order=True)
class Lost:
    """The fact that a proposal of ``iteration`` to say ``text`` in ``component`` did not get in."""

    iteration: int
    variant: str
    component: str
    text: str
    """the lines that its parent lacks, cut; empty for a copy."""
    reason: str


@dataclass(frozen=True, slots=True, order=True)
class Edited:
    """The fact that ``variant`` was asked for as an edit of a kind."""

    variant: str
    edit: str


@dataclass(frozen=True, slots=True, order=True)
class Gradient:
    """The fact that ``component`` was criticised in ``iteration`` by ``text``, the ``place``-th of it, and
    that ``variant`` is the rewrite which came of it."""

    iteration: int
    component: str
    place: int
    text: str
    variant: str


@dataclass(frozen=True, slots=True, order=True)
class Observed:
    """The fact that the attempt ``source`` of ``iteration`` backs the lesson ``text`` for ``component``."""

    iteration: int
    component: str
    text: str
    source: str


@dataclass(frozen=True, slots=True, order=True)
class Wording:
    """The fact that ``text`` was proposed for ``component`` in ``iteration``."""

    iteration: int
    component: str
    text: str


@dataclass(frozen=True, slots=True, order=True)
class Probe:
    """The fact that the texts of ``combination``, (component, digest of its text) each, scored ``gain`` more
    a row than the start on ``examples`` rows of select, as the ``number``-th combination that was tried."""

    number: int
    combination: tuple[tuple[str, str], ...]
    gain: float
    examples: int


@dataclass(frozen=True, slots=True, order=True)
class Merged:
    """The fact that ``one`` and ``other`` (by digest, in order) were merged over ``ancestor``."""

    one: str
    other: str
    ancestor: str


@dataclass(frozen=True, eq=False)
class Pool(FactSet):
    """An artifact made of sets of facts about variants."""

    seed: int = 0
    variants: frozenset[Variant] = frozenset()
    origins: frozenset[Origin] = frozenset()
    scores: frozenset[Scored] = frozenset()
    judged: frozenset[Acceptance] = frozenset()
    merged: frozenset[Merged] = frozenset()
    refusals: frozenset[Refusal] = frozenset()
    lost: frozenset[Lost] = frozenset()
    edits: frozenset[Edited] = frozenset()
    gradients: frozenset[Gradient] = frozenset()
    observed: frozenset[Observed] = frozenset()
    wordings: frozenset[Wording] = frozenset()
    probes: frozenset[Probe] = frozenset()
    drawn: int = 0

    @cached_property
    def by_digest(self) -> dict[str, Variant]:
        """The variants by digest, in its order. Do not change the mapping."""
        named = {variant.digest: variant for variant in self.variants}
        return dict(sorted(named.items()))

    def origin_of(self, digest: str) -> Origin:
        """Return the first origin of a variant."""
        return min(origin for origin in self.origins if origin.variant == digest)

    def to_json(self) -> bytes:
        """Return canonical JSON."""
        facts = {name: rows_of(getattr(self, name)) for name in _FACTS}
        # Pools without any keep the bytes and the digest that they had before there were such facts.
        facts |= {name: rows_of(own) for name in _LATER_FACTS if (own := getattr(self, name))}
        return canonical_json({"version": VERSION, "seed": self.seed, "drawn": self.drawn, **facts})


_FACTS: Mapping[str, type[Any]] = {
    "variants": Variant,
    "origins": Origin,
    "scores": Scored,
    "judged": Acceptance,
    "merged": Merged,
    "refusals": Refusal,
}
_LATER_FACTS: Mapping[str, type[Any]] = {
    "lost": Lost,
    "edits": Edited,
    "gradients": Gradient,
    "observed": Observed,
    "wordings": Wording,
    "probes": Probe,
}


def _frozen(value: Any) -> Any:
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value


def from_json(data: bytes) -> Pool:
    """Return the pool whose ``to_json()`` is ``data``. Raises DataError when it is none of ours."""
    return read_facts(data, "pool of variants", VERSION, _pool)


def _pool(body: dict[str, Any]) -> Pool:
    rows = {**body, **{name: body.get(name, ()) for name in _LATER_FACTS}}
    kinds = {**_FACTS, **_LATER_FACTS}
    facts = {name: frozenset(kind(*map(_frozen, row)) for row in rows[name]) for name, kind in kinds.items()}
    return Pool(seed=int(body["seed"]), drawn=int(body["drawn"]), **facts)


def started(components: Mapping[str, str], *, seed: int) -> Pool:
    """Return the pool of one variant, the one that was given."""
    variant = Variant.of(components)
    return Pool(
        seed=seed,
        variants=frozenset({variant}),
        origins=frozenset({Origin(variant.digest, "start", (), -1)}),
    )


def read_components(text: str) -> dict[str, str]:
    """Return the components of a prompt as a user gives it: a JSON object of texts, or one text.

    >>> read_components('{"ask": "Be brief.", "check": "Twice."}')
    {'ask': 'Be brief.', 'check': 'Twice.'}
    >>> read_components("Be brief.")
    {'instructions': 'Be brief.'}
    """
    try:
        components = json.loads(text) if text.lstrip().startswith("{") else None
    except ValueError:
        components = None
    if (
        isinstance(components, dict)
        and components
        and all(isinstance(value, str) for value in components.values())
    ):
        return {str(name): value for name, value in components.items()}
    return {MAIN: text}
