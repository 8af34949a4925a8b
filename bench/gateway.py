"""The gateway between a load and an upstream, both compiled, beside a bare reverse proxy in Python.

A whole minute of each, in phases: nothing happens, versions switch, the operator is down, the evaluator
hangs, the candidate hangs. Rounds take turns, so that a busy moment of the machine meets both; percentiles
are over all rounds of a phase, and over the minute."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.apiserver import under_test, version
from bench.gatewayscene import (
    CHUNKS,
    GAP_MS,
    HANG,
    NO_GO,
    PATH,
    RATE,
    A,
    B,
    Scene,
    built,
    cpu_seconds,
    digest_served,
    scene,
    wait_for,
)
from bench.harness import Row

MINUTE, ROUNDS = 60.0, 4
"""seconds of the gateway, and as many of the bare proxy, in all phases together; rounds of a phase."""
DIRECT_SHARE = 0.25
"""of a round, without a proxy: what the others are compared with."""
FULL_SECONDS = 3.0
ADDED_MS, RATIO, SWITCH_MS = 3.0, 2.0, 1000.0
SWITCHES, MIRRORED_PERCENT = 20, 20.0
WAYS = ("direct", "bare", "gateway")


def gateway_row(folder: Path) -> Row:
    """What the gateway adds to a streamed request, and whether every answer is right throughout."""
    target = f"p50 added <= {ADDED_MS:g}, p99 <= {RATIO:g}x bare, none lost, in each phase"
    name = "gateway, p50 added to a streamed request"
    binary = built(folder)
    if binary is None:
        return Row(name, None, target, "ms", NO_GO)
    with scene(folder, binary) as it:
        figures = measured(it, MINUTE)
    return row(name, target, figures)


@dataclass
class Part:
    """What was measured of one phase, or of all; times in milliseconds."""

    rounds: dict[str, list[list[float]]] = field(default_factory=lambda: {way: [] for way in WAYS})
    first: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})
    wrong: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)

    def take(self, way: str, seen: dict[str, Any]) -> None:
        """Add a load's. ``asked`` counts what was begun: what is not among the times is in ``wrong``."""
        self.rounds[way].append([1000 * one for one in seen["total"]])
        self.first[way] += [1000 * one for one in seen["first"]]
        self.wrong.update({f"{way}: {what}": count for what, count in seen["wrong"].items()})
        self.asked[way] += seen["asked"]

    def add(self, other: Part) -> None:
        """Add another part's."""
        for way in WAYS:
            self.rounds[way] += other.rounds[way]
            self.first[way] += other.first[way]
        self.wrong.update(other.wrong)
        self.asked.update(other.asked)

    def quantile(self, way: str, share: float) -> float:
        """By order, of all rounds together."""
        return quantile([one for each in self.rounds[way] for one in each], share)

    def added(self, way: str, share: float) -> float:
        """What a proxy adds: its quantile less the median without one."""
        return self.quantile(way, share) - self.quantile("direct", 0.5)

    def added_ratio(self) -> float:
        """p99 of what the gateway adds over that of the bare proxy, the median of the rounds: of whole
        requests the upstream's own pace makes any ratio small."""
        direct = self.quantile("direct", 0.5)
        pairs = zip(self.rounds["gateway"], self.rounds["bare"], strict=True)
        return statistics.median(
            (quantile(ours, 0.99) - direct) / max(0.1, quantile(bare, 0.99) - direct) for ours, bare in pairs
        )

    def ratio(self) -> float:
        """p99 of a request through the gateway over that through the bare proxy."""
        return self.quantile("gateway", 0.99) / self.quantile("bare", 0.99)

    def met(self) -> bool:
        """What is promised of each phase."""
        return self.added("gateway", 0.5) <= ADDED_MS and self.ratio() <= RATIO and not self.wrong

    def shown(self) -> dict[str, Any]:
        """For the table and the JSON."""
        return {
            "requests": self.asked["gateway"],
            "p50AddedMs": round(self.added("gateway", 0.5), 2),
            "p50AddedByBareMs": round(self.added("bare", 0.5), 2),
            "p99Ms": {way: round(self.quantile(way, 0.99), 2) for way in WAYS},
            "p99OverBare": round(self.ratio(), 2),
            "p99AddedOverBare": round(self.added_ratio(), 2),
            "wrongOrLost": dict(self.wrong) or 0,
            "met": self.met(),
        }


@dataclass
class Figures:
    """All that was measured."""

    phases: dict[str, Part] = field(default_factory=dict)
    switch_ms: list[float] = field(default_factory=list)
    refusal_ms: float = 0.0
    """from a person's refusal to what requests get, while nobody writes a status."""
    mirrored: dict[str, dict[str, int]] = field(default_factory=dict)
    """phase -> outcome -> samples."""
    saturation: dict[str, dict[str, float]] = field(default_factory=dict)
    wrong: Counter[str] = field(default_factory=Counter)
    """at full speed."""
    latest_start_ms: float = 0.0

    def all(self) -> Part:
        """The whole minute."""
        made = Part()
        for part in self.phases.values():
            made.add(part)
        return made


Around = Callable[[Scene, Figures, int, float], AbstractContextManager[None]]
"""What happens while the gateway is under load, in a round of so many seconds."""


@contextmanager
def switching(it: Scene, made: Figures, turn: int, seconds: float) -> Iterator[None]:
    """Activate another version SWITCHES times in all rounds, and time how long requests take to get it."""
    each = SWITCHES // ROUNDS

    def switch() -> None:
        for at in range(each):
            digest = (B, A)[(turn * each + at) % 2]
            took = _until_served(it, digest, lambda digest=digest: it.active(digest))
            made.switch_ms.append(took)
            time.sleep(max(0.0, seconds / each - took / 1000))

    with _beside(switch):
        yield


@contextmanager
def operator_down(it: Scene, made: Figures, turn: int, seconds: float) -> Iterator[None]:
    """Write no status. A person refuses the active version, which the gateway must follow by itself. Then
    everything that it reads from is away, which is more than an operator that is down."""

    def refuse() -> None:
        body = version("formula", B, decision="Refuse")
        made.refusal_ms = _until_served(it, A, lambda: it.api.put("playbookversions", body))

    if turn == 0:
        it.active(B, previous=A)
        time.sleep(0.3)
    with _beside(refuse) if turn == 0 else nullcontext():
        yield
    if turn == 0:
        it.api.stop()
    if turn == ROUNDS - 1:
        it.api.start()
        wait_for(lambda: it.gateway.metrics().count("combee_gateway_watching{") == watching(it))


def mirroring(digest: str) -> Around:
    """MIRRORED_PERCENT of the requests are asked of another version, too. The gateway has no evaluator to
    wait for: a Job judges what the gateway keeps. One that hangs leaves all of it where it is; here there is
    none at all."""

    @contextmanager
    def around(it: Scene, made: Figures, turn: int, seconds: float) -> Iterator[None]:
        if turn == 0:
            it.active(A)
            for one in (B, HANG):
                it.api.put("playbookversions", version("formula", one))
            it.api.put(
                "playbookversions", under_test(version("formula", digest), A, percent=MIRRORED_PERCENT)
            )
            time.sleep(0.5)
        before = mirrored(it)
        yield
        name = "evaluatorHanging" if digest == B else "candidateHanging"
        counts = Counter(made.mirrored.get(name, {}))
        made.mirrored[name] = dict(counts + (mirrored(it) - before))

    return around


def alone(it: Scene, made: Figures, turn: int, seconds: float) -> AbstractContextManager[None]:
    """Nothing else happens."""
    return nullcontext()


PHASES: dict[str, Around] = {
    "alone": alone,
    "switching": switching,
    "operatorDown": operator_down,
    "evaluatorHanging": mirroring(B),
    "candidateHanging": mirroring(HANG),
}


def measured(it: Scene, minute: float) -> Figures:
    """All phases, then what one core saturates at. ``minute``: seconds of load on the gateway."""
    made = Figures()
    ways = {"direct": it.upstream + PATH, "bare": it.bare + PATH, "gateway": it.url}
    slice_ = minute / len(PHASES) / ROUNDS
    for url in ways.values():
        it.load(url, seconds=0.5)
    for name, around in PHASES.items():
        part = made.phases[name] = Part()
        for turn in range(ROUNDS):
            part.take("direct", _load(it, made, ways["direct"], DIRECT_SHARE * slice_))
            part.take("bare", _load(it, made, ways["bare"], slice_))
            with around(it, made, turn, slice_):
                part.take("gateway", _load(it, made, ways["gateway"], slice_))
    _saturate(it, made, ways)
    return made


def _load(it: Scene, made: Figures, url: str, seconds: float) -> dict[str, Any]:
    seen = it.load(url, seconds=seconds)
    made.latest_start_ms = max(made.latest_start_ms, seen["latestStartMs"])
    return seen


def _saturate(it: Scene, made: Figures, ways: dict[str, str]) -> None:
    """As fast as one core goes, with nothing mirrored."""
    it.api.put("playbookversions", version("formula", HANG))
    time.sleep(0.3)
    for name, process in (("bare", it.bare_process), ("gateway", it.gateway.process)):
        before = cpu_seconds(process.pid)
        seen = it.load(ways[name], rate=0, gap=0, seconds=FULL_SECONDS)
        spent = cpu_seconds(process.pid) - before
        made.wrong.update({f"{name}: {what}": count for what, count in seen["wrong"].items()})
        made.saturation[name] = {
            "requestsPerSecond": round(seen["asked"] / seen["seconds"]),
            "requestsPerCpuSecond": round(seen["asked"] / spent),
        }


def row(name: str, target: str, made: Figures) -> Row:
    """The figures as a row."""
    whole, switches = made.all(), [*made.switch_ms, made.refusal_ms]
    kept = made.mirrored.get("evaluatorHanging", {}).get("Kept", 0)
    good = whole.met() and all(part.met() for part in made.phases.values())
    good = good and made.phases["alone"].added_ratio() <= RATIO
    good = good and len(made.switch_ms) == SWITCHES and max(switches) <= SWITCH_MS
    return Row(
        name=name,
        figure=round(whole.added("gateway", 0.5), 2),
        target=target,
        unit="ms",
        met=good and not made.wrong and kept > 0,
        how=f"{RATE} streamed requests/s of {CHUNKS} chunks, {GAP_MS} ms between them, on loopback, "
        f"{whole.asked['gateway'] / RATE:.0f} s of them; load and upstream in Go check every chunk; the "
        f"bare proxy is a "
        "pass-through on the same server and client libraries, for as long, in turns with the gateway. "
        "Added: less the "
        "median without a proxy. Of each phase: p50 added, and p99 of a request over the bare proxy's; of "
        "what is "
        "added, p99 over the bare proxy's in the first phase. operatorDown: no status is written, then the "
        "API server "
        f"is away, too; evaluatorHanging: {MIRRORED_PERCENT:g} % are mirrored and nobody judges them",
        detail={
            "phases": {"whole": whole.shown(), **{phase: of.shown() for phase, of in made.phases.items()}},
            "medianMs": {way: round(whole.quantile(way, 0.5), 2) for way in WAYS},
            "firstByteMedianMs": {way: round(statistics.median(whole.first[way]), 2) for way in WAYS},
            "wrongAtFullSpeed": dict(made.wrong) or 0,
            "switches": len(made.switch_ms),
            "slowestSwitchMs": round(max(made.switch_ms), 1),
            "refusalWithoutOperatorMs": round(made.refusal_ms, 1),
            "mirrored": made.mirrored,
            "oneCoreSaturatesAt": made.saturation,
            "loadStartedLateMs": round(made.latest_start_ms, 1),
        },
    )


def quantile(values: list[float], share: float) -> float:
    """By order; infinite where nothing came."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("inf")


def mirrored(it: Scene) -> Counter[str]:
    """Samples of traffic, by what became of them, since the gateway started."""
    counts: Counter[str] = Counter()
    for line in it.gateway.metrics().splitlines():
        if line.startswith("combee_gateway_mirrored_total{"):
            counts[line.partition('outcome="')[2].partition('"')[0]] += int(float(line.rpartition(" ")[2]))
    return counts


def watching(it: Scene) -> int:
    """Of how many kinds of objects the gateway hears at the moment."""
    lines = it.gateway.metrics().splitlines()
    return sum(line.startswith("combee_gateway_watching{") and line.endswith(" 1.0") for line in lines)


def _until_served(it: Scene, digest: str, change: Callable[[], object]) -> float:
    """Milliseconds from a change until requests get the version; after five seconds it is given up."""
    began = time.monotonic()
    change()
    while digest_served(it) != digest and time.monotonic() - began < 5:
        time.sleep(0.01)
    return 1000 * (time.monotonic() - began)


@contextmanager
def _beside(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()
