"""Energy: read from an exporter's page around each step, and told in result and section 9."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e_support import ENDED, Manifest, Sim, combee, result_of

pytestmark = pytest.mark.e2e
A_LOOK = 250_000
"""Millijoules that a GPU uses from one look to the next."""


class Exporter(ThreadingHTTPServer):
    """dcgm-exporter of a node with two GPUs, whose counters rise with every look."""

    looks = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/metrics"


class Page(BaseHTTPRequestHandler):
    server: Exporter

    def do_GET(self) -> None:
        self.server.looks += 1
        lines = [
            f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{gpu="{gpu}",UUID="GPU-{gpu}",Hostname="n1"}} '
            f"{10**9 + A_LOOK * self.server.looks}"
            for gpu in (0, 1)
        ]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(
            "\n".join(["# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter", *lines, ""]).encode()
        )

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    server = Exporter(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def learned(manifest: Manifest, out: Path, sim: Sim, **spec: Any) -> dict[str, Any]:
    path = manifest(name=out.name, batching={"mode": "Fixed", "size": 10, "reason": "test"}, **spec)
    done = combee("run", "-f", path, "-o", out, "--engine", f"main={sim.url}")
    assert done.returncode in ENDED, done.stderr
    return result_of(out)


def test_a_run_says_what_its_gpus_used(
    quick: Sim, exporter: Exporter, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"train": rows(20), "held_out": few, "workers": {"hedgeBudget": 0}}
    result = learned(manifest, tmp_path / "out", quick, energy={"url": exporter.url}, **given)
    energy = result["energy"]
    assert (
        energy["steps"]
        == energy["ofSteps"]
        == sum(one["steps"]["n"] for one in result["durations"] if one["steps"])
    )
    # Each step is two looks, and what GPUs do between steps is not the run's: half of the looks count.
    least = 2 * A_LOOK / 1000 * energy["steps"]
    assert least <= energy["joules"] <= 2 * A_LOOK / 1000 * exporter.looks
    used = [one["joules"] for one in result["accepted"]]
    assert used == sorted(used) and all(0 < one <= energy["joules"] for one in used)
    shown = combee("report", tmp_path / "out", "--strategist").stdout
    assert "| energy of its GPUs |" in shown and f"{energy['joules']:,.0f} J" in shown

    before = exporter.looks
    again = combee("replay", tmp_path / "out", "-f", tmp_path / "out.yaml")
    assert again.returncode == 0 and exporter.looks == before, "a replay reads no GPU"


def test_a_page_that_is_gone_is_not_shown_and_changes_nothing(
    quick: Sim, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"train": rows(10), "held_out": few, "workers": {"hedgeBudget": 0}}
    gone = learned(manifest, tmp_path / "gone", quick, energy={"url": "http://127.0.0.1:9/metrics"}, **given)
    plain = learned(manifest, tmp_path / "plain", quick, **given)
    assert gone["energy"] is plain["energy"] is None
    assert (tmp_path / "gone" / "prompt.md").read_bytes() == (tmp_path / "plain" / "prompt.md").read_bytes()
    shown = combee("report", tmp_path / "gone", "--strategist").stdout
    assert "| energy of its GPUs | not shown |" in shown


def test_what_runs_share_is_nobodys_own_energy(
    quick: Sim, exporter: Exporter, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    engine = manifest()
    shared = yaml.safe_load(engine.read_text())["spec"]["engines"]
    shared[0]["shared"] = True
    given: dict[str, Any] = {"train": rows(10), "held_out": few, "workers": {"hedgeBudget": 0}}
    result = learned(manifest, tmp_path / "out", quick, energy={"url": exporter.url}, engines=shared, **given)
    assert result["energy"] is None and result["setup"]["sharedEngines"] == ["main"]
    assert not exporter.looks and all(one["joules"] is None for one in result["accepted"])
    shown = combee("report", tmp_path / "out", "--strategist").stdout
    assert "| energy of its GPUs | not shown: other runs may use main, too" in shown
