"""Same bytes in another process, with another hash seed, in any order of requests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sim_fixtures import body, model, rows
from sim_sample import replies

from combee.sim import draws
from combee.sim.model import request_digest

HERE = Path(__file__).parent


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_another_process_says_the_same_bytes(hash_seed: str) -> None:
    paths = os.pathsep.join([str(HERE), str(HERE.parents[2] / "operator")])
    ran = subprocess.run(
        [sys.executable, str(HERE / "sim_sample.py"), hash_seed],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths},
        capture_output=True,
        check=True,
    )
    assert ran.stdout.decode() == "\n".join(replies(1))


def test_the_order_of_requests_does_not_matter() -> None:
    assert replies(1) == replies(2)


def test_draws_are_fixed_for_all_time() -> None:
    """Golden values: a machine or version where these differ would give other results."""
    assert [round(draws.unit(0, "answer", name), 12) for name in ("17", "18", "é")] == GOLDEN


GOLDEN = [0.216725550803, 0.570838381571, 0.957421096435]


def test_seed_and_repeat_change_the_luck() -> None:
    def said(seed: int, ordinal: int) -> list[str]:
        served = model(seed)
        return [served.respond(body(row["context"], ordinal)).text for row in rows()[:60]]

    assert said(1, 0) == said(1, 0)
    assert said(1, 0) != said(1, 1)
    assert said(1, 0) != said(2, 0)


def test_the_canonical_request_ignores_how_the_answer_is_sent() -> None:
    plain = body("Hi", 1)
    assert request_digest(plain) == request_digest(
        {**plain, "stream": True, "stream_options": {"include_usage": True}}
    )
    assert request_digest(plain) == request_digest(dict(reversed(plain.items())))
    assert request_digest(plain) != request_digest(body("Hi", 2))
