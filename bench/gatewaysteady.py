"""Streams through two gateways for minutes, while the upstream fails, versions switch and gateways restart.

`python -m bench.gatewaysteady SECONDS RATE`; the row takes ten minutes at 300 a second. As behind a Service,
each new connection goes to one of the gateways that are ready, and stays there. A rolling restart is what a
Deployment does: a new gateway until it is ready, the old one no longer among those for new connections, then,
a moment later, SIGTERM. The upstream fails a request by its name alone, so the load knows what must come of
each: its own error, 502 where it dropped the connection, a broken connection where it broke off."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.apiserver import ApiServer
from bench.gatewayproc import Running, gateway
from bench.gatewayscene import NO_GO, PATH, A, B, behind, built, load
from bench.harness import Row

SECONDS, RATE = 600.0, 300.0
FAULTS, SWITCHES, RESTARTS, PODS, CLIENTS = 0.05, 20, 2, 2, 16
PRESTOP_SECONDS = 2.0
"""between the end of new connections and SIGTERM; a pod's preStop has five."""
NAME = "gateway, requests lost or garbled"
TARGET = "0 of all with 5 % upstream faults, 20 switches, 2 rolling restarts"


@dataclass
class Service:
    """The gateways, and the file that says which are ready for new connections."""

    api: ApiServer
    folder: Path
    ready: Path
    running: list[tuple[Running, ExitStack]] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)

    def start(self) -> None:
        """Start one more gateway."""
        stack = ExitStack()
        self.running.append((stack.enter_context(gateway(self.api, self.folder)), stack))

    def publish(self) -> None:
        """Write the addresses, whole or not at all."""
        new = self.ready.with_suffix(".new")
        new.write_text("\n".join(urlsplit(one.url).netloc for one, _ in self.running))
        new.replace(self.ready)

    def roll(self) -> None:
        """Replace each gateway by a new one."""
        for _ in range(len(self.running)):
            self.start()
            old, stack = self.running.pop(0)
            self.publish()
            time.sleep(PRESTOP_SECONDS)
            self.exits.append(old.stop())
            stack.close()


def steady_row(folder: Path) -> Row:
    """Ten minutes of it."""
    return measured(folder, SECONDS, RATE)


def measured(folder: Path, seconds: float, rate: float) -> Row:
    """So many seconds of so many requests a second."""
    binary = built(folder)
    if binary is None:
        return Row(NAME, None, TARGET, "requests", NO_GO)
    with behind(folder, binary) as (_, api):
        service = Service(api, folder, folder / "ready")
        try:
            for _ in range(PODS):
                service.start()
            service.publish()
            with _beside(lambda: _switch(api, seconds)), _beside(lambda: _restart(service, seconds)):
                flags = {"ready": str(service.ready), "clients": CLIENTS, "faults": FAULTS}
                seen = load(binary, f"http://gateway/formula{PATH}", rate=rate, seconds=seconds, **flags)
        finally:
            for _, stack in service.running:
                stack.close()
    return row(seconds, rate, seen, service.exits)


def row(seconds: float, rate: float, seen: dict[str, Any], exits: list[int]) -> Row:
    """The figures as a row."""
    lost = sum(seen["wrong"].values())
    stopped_well, kinds = exits == [0] * (RESTARTS * PODS), set(seen["failed"])
    return Row(
        name=NAME,
        figure=lost,
        target=TARGET,
        unit="requests",
        met=lost == 0 and stopped_well and kinds == {"500", "429", "cut", "dropped"},
        how=f"{rate:g} streams/s of 20 chunks for {seconds:g} s through {PODS} gateways that restart; "
        "every chunk is checked, and every upstream fault must reach the client as what it was",
        detail={
            "asked": seen["asked"],
            "whole": len(seen["total"]),
            "failedAsTheUpstreamDid": seen["failed"],
            "wrong": seen["wrong"],
            "exits": exits,
            "p50Ms": round(seen["p50"], 1),
            "p99Ms": round(seen["p99"], 1),
        },
    )


def _switch(api: ApiServer, seconds: float) -> None:
    for turn in range(SWITCHES):
        time.sleep(seconds / (SWITCHES + 1))
        told = {"activeDigest": (B, A)[turn % 2], "previousDigest": ""}
        api.edit("playbooks", "formula", lambda body, told=told: body["status"].update(told))


def _restart(service: Service, seconds: float) -> None:
    for _ in range(RESTARTS):
        time.sleep(seconds / (RESTARTS + 2))
        service.roll()


@contextmanager
def _beside(work: Callable[[], None]) -> Iterator[None]:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join()
    if failed:
        raise failed[0]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(measured(Path(made), float(sys.argv[1]), float(sys.argv[2])).as_dict(), indent=1))
