"""The group-by over leaf entries: what is the same joins, what may be the same is asked, the rest passes.

The result is a function of the set of updates: any order of them gives the same groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from combee.algo.components import similarity_components
from combee.algo.grouping import grouped
from combee.algo.text import kept_in
from combee.methods.ace.conflicts import SIMILAR, claim, same_lesson_key
from combee.methods.ace.facts import faithful_to
from combee.methods.ace.program import is_program
from combee.methods.protocol import Grouping, Op, Update


def group(updates: Sequence[Update], *, cap: int) -> Grouping:
    """Join equal updates, and similar ones with the same sources, without a call. Similar updates of
    different sources become clusters of at most ``cap`` members, for one aggregator call each. Programs pass
    as they are: what a call made of two of them would be a third."""
    equal = join_equal(updates)
    passed = [one for one in equal if is_program(one.text)]
    rules = (one for one in equal if not is_program(one.text))
    by_target = grouped(rules, lambda u: ("" if u.op == "ADD" else u.op, tuple(sorted(u.base))))
    clusters: list[list[Update]] = []
    for (op, _), alike in sorted(by_target.items()):
        if op == "DELETE" or len(alike) == 1:
            passed += alike
            continue
        for component in similarity_components([u.text for u in alike], threshold=SIMILAR, cap=max(1, cap)):
            members = _join_same_sources([alike[index] for index in component])
            if len(members) > 1:
                clusters.append(members)
            else:
                passed += members
    return Grouping(
        sorted(passed, key=lambda u: u.key), sorted(clusters, key=lambda members: [u.key for u in members])
    )


def join_equal(updates: Iterable[Update]) -> list[Update]:
    """Return one update for each key, with all sources, in the order of keys."""
    by_key = grouped(updates, lambda update: update.key)
    return [_united(equal[0], equal) for _, equal in sorted(by_key.items())]


def _united(chosen: Update, members: Sequence[Update]) -> Update:
    """Return ``chosen`` with all sources, in the section that most of them name, ties by name."""
    sections = Counter(update.section for update in members)
    return chosen.backed_by(
        members,
        section=min(sections, key=lambda section: (-sections[section], section)),
        base=tuple(sorted(chosen.base)),
        reason=max(update.reason for update in members),
    )


def _join_same_sources(members: Sequence[Update]) -> list[Update]:
    """Reduce wordings of one lesson by the same sources to the fullest one; in the order of keys."""
    alike = grouped(members, lambda u: (u.sources, same_lesson_key(u.text)))
    joined = [_united(max(same, key=lambda u: (len(u.text), u.key)), same) for same in alike.values()]
    return sorted(joined, key=lambda u: u.key)


def carry_on(groups: Iterable[Sequence[Update]]) -> list[Update]:
    """Return the first update of each group word for word, with the sources of those that it stands for.

    A model said that the updates of a group state one rule. An update whose anchors do not bear that out
    passes verbatim beside the first: support is never lent to what was not said.
    """
    carried: list[Update] = []
    for first, *others in groups:
        same = [other for other in others if stands_for(first, other)]
        carried.append(first.backed_by([first, *same]))
        carried += [other for other in others if other not in same]
    return carried


def stands_for(first: Update, other: Update) -> bool:
    """Return whether two updates do the same to the same entries, with equal texts or the same anchors."""
    if (first.op, sorted(first.base)) != (other.op, sorted(other.base)):
        return False
    if first.text == other.text:
        return True
    alike = claim(first.text).negated == claim(other.text).negated
    return alike and kept_in(other.text, first.text) and kept_in(first.text, other.text)


def reconcile_merge(members: Sequence[Update], merged: Sequence[Update]) -> list[Update]:
    """Return what a merge call made of ``members``, less what it made up, plus each member that it lost.

    A result keeps the sources only of members that it carries (their anchors are in it); one that
    carries none of the members it took in, or states what none of them states, is dropped. A member
    that no remaining result carries passes verbatim.
    """
    kept: list[Update] = []
    carried: set[int] = set()
    for result in merged:
        took = {str(i): m for i, m in enumerate(members) if m.sources & result.sources and m.op != "DELETE"}
        if result.op == "DELETE":
            continue
        faithful = faithful_to(result.text, {i: m.text for i, m in took.items()})
        if not faithful:
            continue
        carried |= {int(i) for i in faithful}
        backing = [took[i] for i in faithful]
        base = {b for m in backing for b in m.base}
        op: Op = "ADD" if not base else "UPDATE" if len(base) == 1 else "MERGE"
        kept.append(result.backed_by(backing, op=op, base=tuple(sorted(base))))
    lost = [member for i, member in enumerate(members) if i not in carried]
    return join_equal([*kept, *lost])
