"""What changed between two playbooks, bullet by bullet. Pure.

A bullet is known by what it says first (its entry's digest), then by its id: one that was re-worded under its
id is changed, one that only got votes or a new id is the same, everything else came or went. Lines that are
no bullets are compared as lines.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from combee.methods.ace.parse import Document, Line, parse_playbook
from combee.methods.diff import Changed, Diff, DiffLine


def diff_playbooks(before: str, after: str) -> Diff:
    """Return what changed from ``before`` to ``after``.

    >>> line = "[x-1] helpful=0 harmful=0 :: "
    >>> diff_playbooks(line + "Round.", line + "Round late.").changed[0].after
    'Round late.'
    """
    old, new = parse_playbook(before), parse_playbook(after)
    common = Counter(line.digest for line in old.bullets) & Counter(line.digest for line in new.bullets)
    gone, came = _without(old.bullets, common), _without(new.bullets, common)
    # Of several with one id the first is the one that was changed; the others went.
    by_id: dict[str, Line] = {}
    for line in gone:
        by_id.setdefault(line.id, line)
    changed, added, matched = [], [], set[int]()
    for line in came:
        was = by_id.pop(line.id, None)
        if was is None:
            added.append(_diff_line(line))
        else:
            matched.add(id(was))
            changed.append(Changed(line.section, line.id, was.entry_text, line.entry_text))
    removed = [_diff_line(line) for line in gone if id(line) not in matched]
    more, less = _prose(old, new)
    return Diff((*added, *more), (*removed, *less), tuple(changed), common.total())


def lines_of(text: str) -> list[DiffLine]:
    """Return every line of a playbook, bullets with their votes; a heading or blank line has no text."""
    return [_shown(line) for line in parse_playbook(text).lines]


def _shown(line: Line) -> DiffLine:
    if line.kind != "bullet":
        return DiffLine(line.section, "", line.raw if line.kind == "prose" and line.raw.strip() else "")
    contested = ", contested" if line.contested else ""
    return replace(_diff_line(line), votes=f"helpful {line.helpful}, harmful {line.harmful}{contested}")


def _without(lines: tuple[Line, ...], common: Counter[str]) -> list[Line]:
    rest, kept = Counter(common), []
    for line in lines:
        if rest[line.digest]:
            rest[line.digest] -= 1
        else:
            kept.append(line)
    return kept


def _diff_line(line: Line) -> DiffLine:
    return DiffLine(line.section, line.id, line.entry_text)


def _prose(old: Document, new: Document) -> tuple[list[DiffLine], list[DiffLine]]:
    """Return the lines that came, and those that went, among those that are neither bullets nor blank."""
    before, after = (
        Counter((one.section, one.text.strip()) for one in map(_shown, side.lines) if one.text and not one.id)
        for side in (old, new)
    )
    return (
        [DiffLine(section, "", text) for section, text in (after - before).elements()],
        [DiffLine(section, "", text) for section, text in (before - after).elements()],
    )
