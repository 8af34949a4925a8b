"""What was not let in, and why: refusals of the checks and replays that were lost."""

from __future__ import annotations

from combee.methods.ace.entries import text_digest
from combee.methods.ace.ledger import Ledger
from combee.methods.protocol import Refusal, Verdict
from combee.records import example_of


def refusals(ledger: Ledger) -> list[Refusal]:
    """Every refusal of the ledger, sorted; a lost replay names its example and its controls."""
    texts = ledger.texts
    lost = [
        Refusal(verdict.entry_digest, text_digest(texts[verdict.entry_digest]), "replay", _reason(verdict))
        for verdict in ledger.verdicts
        if not verdict.won and verdict.entry_digest in texts
    ]
    return sorted([*ledger.refusals, *lost])


def _reason(verdict: Verdict) -> str:
    if not verdict.fixed:
        return f"with it in the playbook, its own example {example_of(verdict.source)} was still wrong"
    return f"with it in the playbook, {verdict.harmed} of {len(verdict.controls)} examples that were right went wrong"
