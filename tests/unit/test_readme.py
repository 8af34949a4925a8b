"""README explains a word of ours where it comes first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = " ".join((Path(__file__).parents[2] / "README.md").read_text().split())


@pytest.mark.parametrize(
    ("word", "clause"),
    [
        (r"\bslots?\b", r" \(model calls that run at once\)"),
        (r"\bselects?\b", r"\*\) chooses the best playbook"),
        (r"\bgates?\b", r"\*\), looked at once, decides whether it is better"),
        (r"by replay\b", r" \(its example is asked again, with the entry and without\)"),
    ],
)
def test_a_word_comes_first_with_its_clause(word: str, clause: str) -> None:
    first = re.search(word, README)
    assert first is not None and re.match(clause, README[first.end() :])
