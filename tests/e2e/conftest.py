"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from e2e_support import FORMULA, MODEL, Manifest, Sim, Sims, combee
from pods import Cluster

from tls_server import TlsServer, make_certificate, serving


@pytest.fixture
def sims(tmp_path: Path) -> Iterator[Sims]:
    """Simulated models of one test."""
    folder = tmp_path / "sims"
    folder.mkdir()
    running = Sims(folder)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sims]:
    """Simulated models of the whole suite, one for each set of flags."""
    running = Sims(tmp_path_factory.mktemp("common"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def quick(common: Sims, key: Path) -> Sim:
    """The one that knows the answers of the Formula data and answers at once."""
    return common.shared("--key", key, "--time-scale", "0")


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The key file of the real Formula data."""
    path = tmp_path_factory.mktemp("key") / "key.json"
    done = combee(
        "sim",
        "key",
        "--task",
        "formula",
        "--data",
        FORMULA / "train.jsonl",
        "--data",
        FORMULA / "heldout.jsonl",
        "-o",
        path,
    )
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """Writes a manifest: ``manifest(rows=100, batching={...}, ...)``; keywords are spec fields."""

    def write(
        *, name: str = "run", train: Path | None = None, held_out: Path | None = None, **spec: object
    ) -> Path:
        model = {"engineRef": {"name": "main"}}
        document = {
            "apiVersion": "combee.dev/v1alpha1",
            "kind": "PromptLearningRun",
            "metadata": {"name": name},
            "spec": {
                "task": {
                    "type": "Formula",
                    "data": {
                        "train": {"uri": str(train or FORMULA / "train.jsonl")},
                        "heldOut": {"uri": str(held_out or FORMULA / "heldout.jsonl")},
                    },
                },
                "method": {"type": "ACE"},
                "engines": [{"name": "main", "vllm": {"model": MODEL}}],
                "models": {"task": model, "proposer": model},
                "seed": 7,
                **spec,
            },
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return write


@pytest.fixture
def rows(tmp_path: Path) -> Callable[[int], Path]:
    """The first n rows of the real train split, as a file."""

    def write(count: int) -> Path:
        path = tmp_path / f"train{count}.jsonl"
        lines = (FORMULA / "train.jsonl").read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:count]))
        return path

    return write


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """Some of the heldOut rows, for runs whose score is not what is tested."""
    path = tmp_path / "few.jsonl"
    path.write_bytes(b"".join((FORMULA / "heldout.jsonl").read_bytes().splitlines(keepends=True)[:40]))
    return path


@pytest.fixture
def clusters() -> Iterator[list[Cluster]]:
    """Pretended clusters of a test, stopped at its end."""
    made: list[Cluster] = []
    yield made
    for cluster in made:
        cluster.stop()


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[TlsServer]:
    """A server with a certificate of its own."""
    with serving(make_certificate(tmp_path)) as server:
        yield server
