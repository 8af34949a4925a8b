"""The measure of a real model server: waves that follow a law give that law back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.latency import LatencyLaw

PARTS = (st.floats(0.001, 0.05), st.floats(1e-6, 1e-3), st.floats(1e-7, 1e-4))


@given(st.builds(LatencyLaw, *PARTS))
def test_the_law_behind_the_waves_is_found(law: LatencyLaw) -> None:
    from bench.engine import Wave, fit

    waves = [
        Wave(n, last, law.seconds(256, n, n * (5_000 - cached)), 5_000, cached, 256)
        for last, cached in ((False, 4_000), (True, 100))
        for n in (1, 8, 64, 256)
    ]
    found = fit(waves)
    assert found.decode_seconds == pytest.approx(law.decode_seconds, rel=1e-6)
    assert found.decode_per_concurrent == pytest.approx(law.decode_per_concurrent, rel=1e-6)
    assert found.prefill_seconds_per_token == pytest.approx(law.prefill_seconds_per_token, rel=1e-6)


def test_the_table_says_both_orders_and_the_error_of_the_law() -> None:
    from bench.engine import Wave, table

    law = LatencyLaw(0.01, 0.0, 0.0)
    printed = table([Wave(8, False, 2.0, 1_000, 800, 100), Wave(8, True, 3.0, 1_000, 0, 100)], law)
    assert "| 8 | 2.00 s | 80% | 400 | -50% | 3.00 s | 0% | -67% | 1.50 |" in printed
    assert re.search(r"10\.00 ms a token.*prompts of 1,000 tokens, 100 out", printed)
