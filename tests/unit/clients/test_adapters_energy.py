"""What GPUs used, read from a real HTTP server that answers as dcgm-exporter does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from combee.api.load import parse_run
from combee.api.run import RunSpec
from combee.assembly.context import energy_meter
from combee.clients.energy import EnergyMeter, UnreadableError
from combee.errors import ManifestError

PAGE = """\
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-1",device="nvidia0",modelName="H100",Hostname="n1"} 1980
# HELP DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION Total energy consumption since boot (in mJ).
# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-1",Hostname="n1"POD0} 3500000
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="1",UUID="GPU-2",Hostname="n1"POD1} 9000000
"""
PLAIN = PAGE.replace("POD0", "").replace("POD1", "")
MAPPED = PAGE.replace("POD0", ',namespace="a",pod="run-1-main-0-abc"').replace("POD1", ',pod="others-0"')


class Exporter:
    """A server whose page and status are set; it counts what it was asked."""

    def __init__(self) -> None:
        self.page, self.status, self.asked = PLAIN.encode(), 200, list[tuple[str, dict[str, str]]]()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, dict(self.headers)))
                self.send_response(outer.status)
                if outer.status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(outer.page)

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/metrics"


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    made = Exporter()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def counters(meter: EnergyMeter) -> dict[str, float]:
    return dict(asyncio.run(meter.read()).counters)


def test_joules_by_gpu_from_millijoules(exporter: Exporter) -> None:
    reading = asyncio.run(EnergyMeter(exporter.url, clock=lambda: 12.5).read())
    assert reading.at == 12.5 and reading.counters == {"GPU-1": 3500.0, "GPU-2": 9000.0}
    ((path, headers),) = exporter.asked
    assert path == "/metrics" and "authorization" not in {name.lower() for name in headers}


def test_of_an_exporter_that_knows_pods_only_the_runs_own_count(exporter: Exporter) -> None:
    assert counters(EnergyMeter(exporter.url, ["run-1-main-"])) == {"GPU-1": 3500.0, "GPU-2": 9000.0}
    exporter.page = MAPPED.encode()
    assert counters(EnergyMeter(exporter.url, ["run-1-main-"])) == {"GPU-1": 3500.0}
    assert counters(EnergyMeter(exporter.url, ["run-2-main-"])) == {}
    assert counters(EnergyMeter(exporter.url)) == {"GPU-1": 3500.0, "GPU-2": 9000.0}


@pytest.mark.parametrize(
    ("page", "status", "says"),
    [
        (b"", 200, "has no DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"),
        (b"<html>hello</html>", 200, "has no DCGM"),
        (b"\xff\xfe", 200, "is no metrics page"),
        (PLAIN.encode(), 503, "answers 503"),
        (PLAIN.encode(), 302, "answers 302"),
        (PLAIN.replace("3500000", "NaN").encode(), 200, "says nan"),
        (PLAIN.replace("3500000", "much").encode(), 200, "is no metrics page"),
    ],
)
def test_what_is_no_reading_says_why(exporter: Exporter, page: bytes, status: int, says: str) -> None:
    exporter.page, exporter.status = page, status
    with pytest.raises(UnreadableError, match=says):
        counters(EnergyMeter(exporter.url))


def test_a_server_that_is_gone_is_no_reading() -> None:
    with pytest.raises(UnreadableError, match="does not answer"):
        counters(EnergyMeter("http://127.0.0.1:9/metrics"))


def test_only_pods_of_engines_that_the_run_brings_up_are_told_from_others() -> None:
    def spec_of(**changes: Any) -> RunSpec:
        model = {"engineRef": {"name": "main"}}
        spec = {
            "task": {"type": "Formula", "data": {"train": {"uri": "t"}, "heldOut": {"uri": "h"}}},
            "method": {"type": "ACE"},
            "engines": [
                {"name": "main", "vllm": {"model": "m"}},
                {"name": "shared", "ref": {"kind": "LLMInferenceService", "name": "llm"}},
            ],
            "models": {"task": model, "proposer": {"engineRef": {"name": "shared"}}},
            **changes,
        }
        head = {"apiVersion": "combee.dev/v1alpha1", "kind": "PromptLearningRun", "metadata": {"name": "r"}}
        return parse_run({**head, "spec": spec}, "test").spec

    url = "http://dcgm-exporter.gpu.svc:9400/metrics"
    engines = {"main": "http://run-1-main.team-a.svc:8000/v1", "shared": "http://llm.team-a.svc:8000/v1"}
    named = spec_of(energy={"url": url})
    read = energy_meter(named, engines)
    assert read is not None and read.__self__ == EnergyMeter(url, ["run-1-main-"])
    laptop = energy_meter(named, {})
    assert laptop is not None and laptop.__self__ == EnergyMeter(url, [])
    assert energy_meter(spec_of(), engines) is None
    both = [engine.model_dump(by_alias=True, exclude_unset=True) for engine in named.engines]
    both[0]["shared"] = True
    assert energy_meter(spec_of(energy={"url": url}, engines=both), engines) is None
    with pytest.raises(ManifestError, match=r"energy\.url"):
        spec_of(energy={"url": "file:///etc/passwd"})
