"""How the time of each check of foreign text grows with the text."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from bench.harness import Row
from combee.methods.content import injection_reason, leak_reason, without_private
from combee.methods.patterns import ORDERS, PRIVATE

MEGABYTE = 1 << 20
HOSTILE = (
    "sk-", "sk-a-", "a.", "a@", "a@b.c ", "eyJaaaaaaaaaaa.", "aA/", "aA1/", "token", "token=", "password ",
    "DE12", "0-", "0 ", "(0", "+1 ", "01.02.2020 ", "030 1234567a ", "1234 ", "password: a,",
    "?a=", "://a:", "bearer ", "Aa0+", "ignore all ", "ignore rule ",
    "ignora todas ", "previous rules ", "whatever question ", "answer whatever ", "show your ",
    "-----BEGIN A-----", "data:a", "<|a", "![", "<img ", "curl ",
    "忽略", "指示", "игнорируй ", "e\u0301\u0316", "\u0301\u0316", "\ufdfa", "\u200b", "\u0661",
)  # fmt: skip
"""Pieces of which a text is made that a backtracking pattern reads again and again."""


def seconds(check: Callable[[str], object], text: str, times: int = 3) -> float:
    """Processor time, the least of ``times``, so that others on the machine count little."""
    best = float("inf")
    for _ in range(times):
        started = time.process_time()
        check(text)
        best = min(best, time.process_time() - started)
    return best


def of_size(piece: str, size: int) -> str:
    """Return ``piece`` over and over, ``size`` bytes of UTF-8 at most."""
    return piece * (size // len(piece.encode()))


def all_of(pattern: object) -> Callable[[str], object]:
    """Everything that a pattern finds, as the redactor asks for."""
    return lambda text: sum(1 for _ in pattern.finditer(text))  # type: ignore[attr-defined]


def content(folder: Path) -> Row:
    """Time of every pattern and check at 256 KB and 1 MB of the text that it takes longest over."""
    checks: dict[str, Callable[[str], object]] = {
        "gate, private": leak_reason,
        "gate, orders": injection_reason,
        "redactor": without_private,
        **{f"private {k:02} {one.what}": all_of(one.pattern) for k, one in enumerate(PRIVATE)},
        **{f"order {k:02} {one.what}": all_of(one.pattern) for k, one in enumerate(ORDERS)},
    }
    detail: dict[str, dict[str, object]] = {}
    growth = 0.0
    for name, check in checks.items():
        _, piece = max((seconds(check, of_size(one, MEGABYTE // 4), 1), one) for one in HOSTILE)
        quarter, whole = (seconds(check, of_size(piece, size)) for size in (MEGABYTE // 4, MEGABYTE))
        detail[name] = {
            "ms256KB": round(quarter * 1e3, 1),
            "ms1MB": round(whole * 1e3, 1),
            "times": round(whole / quarter, 1) if quarter else 0.0,
            "worst": ascii(piece),
        }
        # Below some milliseconds the clock's grain and the first touch of memory are all there is.
        growth = max(growth, whole / quarter if whole > 0.02 else 0.0)
    return Row(
        name="check of 1 MB of hostile text over one of 256 KB",
        figure=round(growth, 1),
        target="<= 6",
        unit="x",
        met=growth <= 6,
        how=f"the worst of {len(HOSTILE)} hostile texts for each of {len(checks)} checks and patterns, "
        "processor time, least of three; 4 is linear, 16 a square",
        detail=detail,
    )
