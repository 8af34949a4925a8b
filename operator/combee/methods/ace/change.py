"""What enters a ledger: updates, votes, refusals and verdicts. Only additions, each a set union."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from combee.algo.tokens import estimate_tokens
from combee.methods.ace import program
from combee.methods.ace.entries import as_kept, entry_digest, section_key, text_digest
from combee.methods.ace.facts import facts_of
from combee.methods.ace.ids import known_ids
from combee.methods.ace.ledger import Change, Entry, Ledger, Support, Vote
from combee.methods.ace.parse import layout, parse_playbook
from combee.methods.ace.program import is_program
from combee.methods.content import refusals_of
from combee.methods.protocol import INITIAL, LeakCorpus, Refusal, Update, Verdict
from combee.records import Reflection


def initial(text: str) -> Ledger:
    """Return the ledger of a user's playbook: its bullets are trusted entries with their ids and counters,
    everything else is kept byte for byte. An empty text is an empty ledger."""
    bullets = parse_playbook(text).bullets
    return Ledger(
        entries=frozenset(Entry(line.digest, line.entry_text) for line in bullets),
        supports=frozenset(Support(line.digest, INITIAL, line.section, 0) for line in bullets),
        initial=frozenset({text}) if layout([text]) else frozenset(),
    )


def apply(
    artifact: Ledger,
    updates: Sequence[Update],
    reflections: Sequence[Reflection],
    *,
    iteration: int,
    ids: Mapping[str, str] | None = None,
) -> Ledger:
    """Return ``artifact`` with the updates' entries, supports and changes, and the reflections' votes.

    An update without a text (unless it is a DELETE), without a source, or with a base that the artifact lacks
    loses that part and keeps the rest. Applying the same again changes nothing.
    """
    known = set(artifact.texts)
    entries, supports, changes = set[Entry](), set[Support](), set[Change]()
    for update in updates:
        sources = sorted(update.sources - {INITIAL})
        bases = [base for base in dict.fromkeys(update.base) if base in known]
        if update.op == "DELETE":
            changes |= {Change("DELETE", base, "", source) for base in bases for source in sources}
            continue
        text = as_kept(update.text)
        if not text or not sources:
            continue
        digest = entry_digest(text)
        entries.add(Entry(digest, text))
        section = section_key(update.section)
        supports |= {Support(digest, source, section, iteration) for source in sources}
        if update.op != "ADD":
            op: Literal["MERGE", "UPDATE"] = "MERGE" if update.op == "MERGE" and len(bases) > 1 else "UPDATE"
            changes |= {
                Change(op, base, digest, source) for base in bases for source in sources if base != digest
            }
    added = Ledger(
        entries=frozenset(entries),
        supports=frozenset(supports),
        changes=frozenset(changes),
        votes=_votes(reflections, known_ids(artifact) if ids is None else ids, known),
    )
    return artifact.join(added)


def _votes(reflections: Sequence[Reflection], ids: Mapping[str, str], known: set[str]) -> frozenset[Vote]:
    """Return the votes of ``reflections``; one that votes both ways on an entry does not count for it."""
    votes = set[Vote]()
    for reflection in reflections:
        opinions: dict[str, set[str]] = {}
        for bullet, verdict in reflection.tags:
            digest = ids.get(bullet)
            if digest in known and digest is not None:
                opinions.setdefault(digest, set()).add(verdict)
        for digest, verdicts in opinions.items():
            clear = verdicts & {"helpful", "harmful"}
            if clear == {"helpful"}:
                votes.add(Vote(digest, reflection.trajectory_id, "helpful"))
            elif clear == {"harmful"}:
                votes.add(Vote(digest, reflection.trajectory_id, "harmful"))
    return frozenset(votes)


def new_entries(before: Ledger, after: Ledger) -> tuple[str, ...]:
    """Return the sorted digests of the entries of ``after`` that ``before`` lacks."""
    return tuple(sorted(set(after.texts) - set(before.texts)))


def with_refusals(artifact: Ledger, refusals: Iterable[Refusal]) -> Ledger:
    """Return ``artifact`` with these refusals added."""
    return artifact.join(Ledger(refusals=frozenset(refusals)))


def with_verdicts(ledger: Ledger, verdicts: Iterable[Verdict]) -> Ledger:
    """Return ``ledger`` with these verdicts added; a lost replay is recorded as a refusal, too."""
    verdicts = frozenset(verdicts)
    refusals = frozenset(
        Refusal(v.entry_digest, text_digest(ledger.texts[v.entry_digest]), "replay", _why_lost(v))
        for v in verdicts
        if v.lost and v.entry_digest in ledger.texts
    )
    return ledger.join(Ledger(verdicts=verdicts, refusals=refusals))


def _why_lost(verdict: Verdict) -> str:
    if verdict.source and not verdict.fixed:
        return f"it does not fix its own example ({verdict.source})"
    return f"it harms {verdict.harmed} of {len(verdict.controls)} control examples"


def checks(artifact: Ledger, new_digests: Sequence[str], *, corpus: LeakCorpus) -> list[Refusal]:
    """Return the refusals of the entries ``new_digests``, in that order; unknown digests are skipped."""
    texts = ((digest, artifact.texts.get(digest)) for digest in new_digests)
    return [
        refusal for digest, text in texts if text is not None for refusal in refusals_of(digest, text, corpus)
    ]


def no_programs(artifact: Ledger, new_digests: Sequence[str], *, most_tokens: int) -> list[Refusal]:
    """Return the refusals of new entries that stand among the programs and are none, or longer ones than
    ``most_tokens``. What an earlier run let in is not held to what this one takes."""
    supports, refusals = facts_of(artifact).supports, []
    for digest in new_digests:
        text = artifact.texts.get(digest, "")
        if any(support.run for support in supports.get(digest, ())):
            continue
        if is_program(text):
            why = f"it takes more than {most_tokens} tokens" if estimate_tokens(text) > most_tokens else ""
        else:
            among = any(support.section == program.SECTION for support in supports.get(digest, ()))
            why = "it is no function with a test of its own" if among else ""
        if why:
            refusals.append(Refusal(digest, text_digest(text), "program", why))
    return refusals


def programs(artifact: Ledger, new_digests: Sequence[str]) -> dict[str, str]:
    """Return the texts of those of the entries that are programs, by digest."""
    return {one: text for one in new_digests if is_program(text := artifact.texts.get(one, ""))}
