"""A ledger as the playbook that a model reads: what stands, best first, within a token budget.

The user's own playbook keeps its bytes: headings, remarks and bullets stay where they were, learned
entries are added at the end of their section, and sections it lacks at the end of the text. The
budget holds for the whole text; whatever is left out is listed with its reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set

from combee.algo.grouping import grouped
from combee.algo.tokens import BYTES_PER_TOKEN, estimate_tokens
from combee.errors import BugError
from combee.methods.ace.entries import SECTIONS, bullet_line, text_digest
from combee.methods.ace.facts import Facts, facts_of, lessons_of
from combee.methods.ace.ids import bullet_ids
from combee.methods.ace.ledger import Ledger
from combee.methods.ace.parse import Line
from combee.methods.ace.resolve import Standing, resolve, rivalries
from combee.methods.protocol import OVER_BUDGET, EntryView, LeftOut, Rendered, Verify


def render(
    artifact: Ledger,
    *,
    budget_tokens: int,
    verify: Verify,
    with_entry: str | None = None,
    without: Set[str] = frozenset(),
) -> Rendered:
    """Render ``artifact`` as a playbook of at most ``budget_tokens`` tokens.

    ``with_entry`` (a digest; for a replay) is appended on top of the budget, so that other calls share the
    text before it; what it replaces or disputes is taken out, and so are the entries ``without``. Raises
    BugError for an unknown digest.
    """
    state, ids = resolve(artifact, verify), bullet_ids(artifact)
    if with_entry is not None and with_entry not in state.standings:
        raise BugError("the entry to replay is not in the ledger", where=with_entry[:12])
    page = _Page(facts_of(artifact), ids, budget_tokens * BYTES_PER_TOKEN)
    aside = without | (_set_aside(artifact, with_entry) if with_entry else set())
    left = [LeftOut(text_digest(raw), OVER_BUDGET) for raw in page.dropped]
    for digest in state.ranked:
        if digest not in aside and not page.take(state.standings[digest]):
            left.append(LeftOut(digest, OVER_BUDGET))
    left += [LeftOut(s.digest, s.out) for s in state.standings.values() if s.out and s.digest != with_entry]
    lines = page.lines(state.standings)
    if with_entry:
        lines = _appended(lines, state.standings[with_entry], ids[with_entry])
    text = "\n".join(line for line, _, _ in lines)
    return Rendered(
        text=text,
        tokens=estimate_tokens(text),
        included=tuple(dict.fromkeys(digest for _, digest, _ in lines if digest)),
        left_out=tuple(left),
        ids={bullet: digest for _, digest, bullet in lines if digest},
    )


PageLine = tuple[str, str, str]
"""(text, entry digest or "", bullet id or "")."""


class _Page:
    """A text being filled: what is fixed, what has been taken, and the bytes that are left."""

    def __init__(self, facts: Facts, ids: dict[str, str], room: int) -> None:
        self.facts, self.ids = facts, ids
        self.room = room + 1  # a line costs its bytes and a line end; the last line has none
        self.taken: dict[str, list[str]] = defaultdict(list)
        self.own: set[str] = set()
        self.dropped: list[str] = []
        self.fixed: list[Line] = []
        self.bullets: dict[str, list[Line]] = defaultdict(list)
        for line in facts.lines:
            if line.kind == "bullet":
                self.bullets[line.digest].append(line)
            elif not self._spend([line.raw]):
                self.dropped.append(line.raw)
                continue
            self.fixed.append(line)
        self.sections = {line.section for line in self.fixed if line.kind == "heading"}

    def _spend(self, lines: Iterable[str], more: int = 0) -> bool:
        cost = sum(len(line.encode("utf-8", "surrogatepass")) + 1 for line in lines) + more
        if cost > self.room:
            return False
        self.room -= cost
        return True

    def take(self, standing: Standing) -> bool:
        """Add one entry; return False when there is no room for it."""
        if given := self.bullets.get(standing.digest):
            shown = [line.shown(standing.helpful, standing.harmful, standing.contested) for line in given]
            if taken := self._spend(shown):
                self.own.add(standing.digest)
            return taken
        shown, more = [self._bullet(standing)], 0
        if standing.section not in self.sections and standing.section not in self.taken:
            shown.append(_heading(standing.section))
            # the blank line before a section, and once the end of the user's last line
            more = 1 + (1 if self.fixed and not self.taken else 0)
        if not self._spend(shown, more):
            return False
        self.taken[standing.section].append(standing.digest)
        return True

    def _bullet(self, s: Standing) -> str:
        return bullet_line(self.ids[s.digest], s.helpful, s.harmful, s.text, s.contested)

    def lines(self, standings: dict[str, Standing]) -> list[PageLine]:
        """Return the page from top to bottom; joined by line ends it is the text."""
        page: list[PageLine] = []
        ends = _section_ends(self.fixed)
        for index, line in enumerate(self.fixed):
            if line.kind != "bullet":
                page.append((line.raw, "", ""))
            elif line.digest in self.own:
                s = standings[line.digest]
                page.append((line.shown(s.helpful, s.harmful, s.contested), line.digest, line.id))
            if index in ends:
                page += self._learned(ends[index], standings)
        for section in sorted(set(self.taken) - self.sections, key=_section_order):
            if page and page[-1][0]:
                page.append(("", "", ""))
            page.append((_heading(section), "", ""))
            page += self._learned(section, standings)
            page.append(("", "", ""))
        return page

    def _learned(self, section: str, standings: dict[str, Standing]) -> list[PageLine]:
        return [(self._bullet(standings[d]), d, self.ids[d]) for d in self.taken.get(section, ())]


def _section_ends(lines: Sequence[Line]) -> dict[int, str]:
    """Return each section by the index of the last line with content of its first appearance."""
    ends: dict[str, int] = {}
    closed: set[str] = set()
    current = ""
    for index, line in enumerate(lines):
        if line.kind == "heading":
            if current and current != line.section:
                closed.add(current)
            current = line.section
        if current and current not in closed and line.raw.strip():
            ends[current] = index
    return {index: section for section, index in ends.items()}


def _heading(section: str) -> str:
    return f"## {section.upper()}"


def _section_order(section: str) -> tuple[int, str]:
    """Return a sort key: our own sections in their order, then unknown ones by name, then ``others``."""
    if section in SECTIONS:
        return 2 * SECTIONS.index(section), section
    return 2 * (len(SECTIONS) - 1) - 1, section


def _appended(lines: list[PageLine], standing: Standing, bullet: str) -> list[PageLine]:
    lines = list(lines)
    if lines and lines[-1][0]:
        lines.append(("", "", ""))
    lines.append((_heading(standing.section), "", ""))
    shown = bullet_line(bullet, standing.helpful, standing.harmful, standing.text)
    return [*lines, (shown, standing.digest, bullet), ("", "", "")]


def _set_aside(ledger: Ledger, digest: str) -> set[str]:
    """Return what a replay of ``digest`` leaves out: itself, its rivals, what it replaces, its other
    wordings."""
    lessons = lessons_of(ledger)
    rep = lessons.rep_of.get(digest, digest)
    replaced = {base for base, result in lessons.edges if result == rep}
    return {digest, rep} | rivalries(ledger).get(rep, frozenset()) | replaced


def views(artifact: Ledger, rendered: Rendered, *, verify: Verify) -> list[EntryView]:
    """Return every entry with its standing: those in ``rendered`` in rank order, then the others."""
    state, ids = resolve(artifact, verify), bullet_ids(artifact)
    included, reasons = set(rendered.included), {left.digest: left.reason for left in rendered.left_out}
    replays = grouped(sorted(artifact.verdicts), lambda verdict: verdict.entry_digest)
    ordered = sorted(state.standings.values(), key=lambda s: (s.digest not in included, bool(s.out), s.rank))
    return [
        EntryView(
            id=ids[s.digest],
            digest=s.digest,
            section=s.section,
            text=s.text,
            sources=s.sources,
            helpful=s.helpful,
            harmful=s.harmful,
            verified=s.verified,
            contested=s.contested > 0,
            rendered=s.digest in included,
            left_out="" if s.digest in included else reasons.get(s.digest, s.out),
            parents=s.parents,
            replays=tuple(replays.get(s.digest, ())),
        )
        for s in ordered
    ]
