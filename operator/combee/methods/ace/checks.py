"""Two checks before an entry is rendered: does it repeat private data, does it give orders.

Both look at the entry's text alone, refuse for good, and come before verification by replay and by votes.
"""

from __future__ import annotations

from collections.abc import Sequence

from combee.methods.ace.ledger import Ledger
from combee.methods.content import (
    ShingleCorpus,
    injection_reason,
    leak_corpus,
    leak_reason,
    refusals_of,
    without_private,
)
from combee.methods.protocol import LeakCorpus, Refusal

__all__ = ["ShingleCorpus", "checks", "injection_reason", "leak_corpus", "leak_reason", "without_private"]


def checks(ledger: Ledger, new_digests: Sequence[str], *, corpus: LeakCorpus) -> list[Refusal]:
    """The refusals of the entries ``new_digests``, in that order; what the ledger lacks is passed over."""
    texts = ((digest, ledger.texts.get(digest)) for digest in new_digests)
    return [
        refusal for digest, text in texts if text is not None for refusal in refusals_of(digest, text, corpus)
    ]
