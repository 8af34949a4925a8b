"""A real Prometheus: found, or taken once out of Debian's package; filled with samples of the past."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.ports import free_ports


def program(name: str) -> Path:
    """``prometheus`` or ``promtool``: PATH's, or of a package that is unpacked beside others' caches and
    installed nowhere. Skips, saying why, where there can be none."""
    if (on_path := shutil.which(name)) is not None:
        return Path(on_path)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "combee" / "prometheus"
    found = cache / "usr" / "bin" / name
    if found.is_file():
        return found
    for needed in ("apt-get", "dpkg-deb"):
        if shutil.which(needed) is None:
            pytest.skip(f"no {name} and no {needed} to get it with: a real Prometheus is NOT tested here")
    fresh = cache.with_name(f"prometheus.{os.getpid()}")
    fresh.mkdir(parents=True, exist_ok=True)
    said = _apt("download", "prometheus", folder=fresh)
    if said:  # lists that are old, or none
        _apt("update", folder=fresh)
        said = _apt("download", "prometheus", folder=fresh)
    packages = sorted(fresh.glob("prometheus_*.deb"))
    if said or not packages:
        shutil.rmtree(fresh, ignore_errors=True)
        pytest.skip(f"no prometheus can be had: a real one is NOT tested here: {said[-300:]}")
    subprocess.run(["dpkg-deb", "-x", packages[0], fresh], check=True)
    packages[0].unlink()
    try:
        fresh.rename(cache)
    except OSError:  # another process was first
        shutil.rmtree(fresh, ignore_errors=True)
    return found


def _apt(*words: str, folder: Path) -> str:
    """What is wrong; empty where nothing is."""
    ended = subprocess.run(
        ["apt-get", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    return (ended.stderr or "it failed") if ended.returncode else ""


@contextmanager
def prometheus(folder: Path, samples: str) -> Iterator[str]:
    """The address of one that holds ``samples``, in OpenMetrics' text form with times."""
    data, text, config = folder / "data", folder / "samples.txt", folder / "prometheus.yml"
    text.write_text(samples)
    config.write_text("global: {}\n")
    backfill = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", text, data]
    subprocess.run(backfill, check=True, capture_output=True)
    (port,) = free_ports(1)
    command = [
        program("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=10y",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=(folder / "log").open("wb"))
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url, process, folder / "log")
        yield url
    finally:
        process.terminate()
        process.wait(120)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 240
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=30) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"prometheus is not ready: {log.read_text()[-2000:]}")
