"""The gateway at five times its load: what one key's burst does to another key's requests.

First as many requests as it serves one key alone, then five times as many of that key, whatever they are
told, each on a new connection, beside another key at a twentieth of what is served. The two come from two
addresses, as two pods do. Answers have as many chunks as a model's short ones: of shorter ones, serving costs
no more than refusing, and nothing could be refused five times as fast as it is served."""

from __future__ import annotations

import re
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.gateway import quantile
from bench.gatewayproc import Running, gateway
from bench.gatewayscene import KEY, NO_GO, OTHER_KEY, PATH, behind, built, load
from bench.harness import Row

SECONDS = 20.0
WORKERS, TIMES, QUIET_SHARE, LONG = 64, 5, 0.05, 200
MEMORY = 512 * 1024 * 1024
SERVED = 0.99
NAME = f"gateway at {TIMES}x its load, another key's requests served"
TARGET = f">= {100 * SERVED:g} %, all else shed with Retry-After, memory under its limit"


def crowded_row(folder: Path) -> Row:
    """What a burst of one key does to another's requests."""
    binary = built(folder)
    if binary is None:
        return Row(NAME, None, TARGET, "%", NO_GO)
    with (
        behind(folder, binary) as (_, api),
        gateway(api, folder, COMBEE_GATEWAY_MEMORY=str(MEMORY)) as running,
        ThreadPoolExecutor(2) as both,
    ):
        url = f"{running.url}/formula{PATH}"
        common = {"seconds": SECONDS, "chunks": LONG}
        full = load(binary, url, rate=0, workers=WORKERS, **common)
        rate = (full["asked"] - sum(full["wrong"].values())) / full["seconds"]
        quiet = {"key": OTHER_KEY, "rate": QUIET_SHARE * rate, "from": "127.0.0.2", **common}
        alone = load(binary, url, **quiet)
        burst = both.submit(load, binary, url, key=KEY, rate=TIMES * rate, fresh="true", **common)
        beside = both.submit(load, binary, url, **quiet)
        seen = beside.result(), burst.result()
        return row(rate, alone, *seen, peak_bytes(running))


Seen = dict[str, Any]


def row(rate: float, alone: Seen, beside: Seen, burst: Seen, peak: int) -> Row:
    """The figures as a row."""
    served = 1 - sum(beside["wrong"].values()) / beside["asked"]
    other = {what: count for what, count in burst["wrong"].items() if not what.startswith("come again")}
    return Row(
        name=NAME,
        figure=round(100 * served, 1),
        target=TARGET,
        unit="%",
        met=served >= SERVED and not other and peak < MEMORY,
        how=f"one key at {TIMES} times the {rate:.0f} requests/s that {WORKERS} workers get alone, on a new "
        f"connection each, beside another key at {100 * QUIET_SHARE:g} % of that; streams of {LONG} chunks, "
        f"{SECONDS:g} s; load and upstream in Go share the cores, which slows all",
        detail={
            "servedPerSecondAlone": round(rate),
            "burst": {"asked": burst["asked"], "answered": len(burst["total"]), "wrong": burst["wrong"]},
            "quiet": {"asked": beside["asked"], "answered": len(beside["total"]), "wrong": beside["wrong"]},
            "quietMedianMs": {
                "alone": round(1000 * statistics.median(alone["total"]), 1),
                "besideTheBurst": round(1000 * statistics.median(beside["total"]), 1),
            },
            "quietP99Ms": {
                "alone": round(1000 * quantile(alone["total"], 0.99), 1),
                "besideTheBurst": round(1000 * quantile(beside["total"], 0.99), 1),
            },
            "peakMiB": round(peak / 2**20),
            "limitMiB": MEMORY // 2**20,
        },
    )


def peak_bytes(running: Running) -> int:
    """Bytes that the gateway's process had resident at most."""
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0
