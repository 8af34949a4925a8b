"""5,000 updates pass through the whole algebra."""

from __future__ import annotations

import tracemalloc

from ace_makers import ACE, add, learn, playbook


def test_five_thousand_updates_are_grouped_applied_and_rendered() -> None:
    updates = [
        add(f"When a question uses ratio R-{i // 2}, divide by {i % 97} before rounding", f"{i}@1")
        for i in range(5000)
    ]
    got = ACE.group(updates, cap=16)
    assert sum(map(len, got.clusters)) + len(got.passed) == 5000
    ledger = learn(*updates)
    rendered = playbook(ledger, "Off", budget=80_000)
    assert rendered.tokens <= 80_000 and len(rendered.included) > 1000


def test_a_corpus_of_ten_thousand_rows_is_lean() -> None:
    rows = [" ".join(f"w{(i * 7919 + k * 104729) % 5003:06d}" for k in range(125)) for i in range(10_000)]
    tracemalloc.start()
    try:
        corpus = ACE.leak_corpus(rows)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 30 * 2**20
    assert not corpus.repeats("nothing like it in any of the rows at all")
