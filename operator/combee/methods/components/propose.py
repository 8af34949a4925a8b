"""From what was learned to new variants: two children a proposal, and their parts when both fail."""

from __future__ import annotations

from collections.abc import Sequence

from combee.algo.grouping import grouped
from combee.algo.tokens import BYTES_PER_TOKEN, estimate_tokens
from combee.methods.components.lessons import ranked, split, with_block
from combee.methods.components.pool import Variant
from combee.methods.protocol import Update, VariantKind

Child = tuple[VariantKind, Variant]


def children(parent: Variant, updates: Sequence[Update], *, budget_tokens: int) -> list[Child]:
    """Return the rewrite of every component that has one, and the rewrite with all lessons below it.

    An UPDATE is the new text of the component that its section names, an ADD a lesson for it. A component
    without either stays. A child is left out when it is over the budget or says what its parent or brother
    does.
    """
    seen = {parent.text}
    kept: list[Child] = []
    for kind, child in proposed(parent, updates, budget_tokens=budget_tokens):
        if child.text not in seen and estimate_tokens(child.text) <= budget_tokens:
            kept.append((kind, child))
            seen.add(child.text)
    return kept


def proposed(parent: Variant, updates: Sequence[Update], *, budget_tokens: int) -> list[Child]:
    """Return what the updates come to, be it the parent's text or a brother's, or over the budget. Without an
    update of a component there is no child of that kind."""
    texts = dict(parent.components)
    rewrites = {one.section: one.text for one in updates if one.op == "UPDATE" and one.section in texts}
    additions = ranked(one for one in updates if one.op == "ADD" and one.section in texts)
    learned = grouped(additions, lambda lesson: lesson.section)
    plain = parent.with_texts({name: _rewritten(texts[name], text) for name, text in rewrites.items()})
    rewrite: list[Child] = [("rewrite", plain)] if rewrites else []
    lessons: list[Child] = (
        [("lessons", _with_lessons(plain, learned, budget_tokens))] if learned or rewrites else []
    )
    return [*rewrite, *lessons]


def _rewritten(before: str, after: str) -> str:
    """Return the new text with the lessons of the old one's block, which a model is not trusted to copy."""
    body, copied = split(after)
    _, standing = split(before)
    lessons = list(dict.fromkeys([*standing, *copied]))
    return (
        with_block(body, lessons, room_tokens=len(body) + sum(map(len, lessons)) + 1000) if lessons else body
    )


def _with_lessons(variant: Variant, learned: dict[str, list[Update]], budget_tokens: int) -> Variant:
    """Add what was learned of each component to its block, by name, within what room is left."""
    grown = variant
    for name, text in variant.components:
        body, standing = split(text)
        others = len(grown.with_texts({name: ""}).text.encode())
        room = budget_tokens - -(-others // BYTES_PER_TOKEN) - 1
        lessons = [*standing, *(one.text for one in learned.get(name, ()))]
        if lessons:
            grown = grown.with_texts({name: with_block(body, lessons, room_tokens=room)})
    return grown


def parts(parent: Variant, failed: Sequence[Child]) -> list[Child]:
    """Split joint children that failed: return each of the several components that one changed, alone."""
    old = dict(parent.components)
    singles: dict[Variant, VariantKind] = {}
    for kind, child in failed:
        changed = {name: text for name, text in child.components if old[name] != text}
        if len(changed) > 1:
            for name, text in sorted(changed.items()):
                singles.setdefault(parent.with_texts({name: text}), kind)
    return [(kind, variant) for variant, kind in singles.items()]
