"""What engines are started with is what vLLM's own parser takes, in the version that the project names."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from manifests_makers import FULL, PLAIN, SETTINGS
from vllm_parser import RECORD, RECORDED, accepts, complaint

from combee.api.engines import Engine
from combee.names import VLLM_VERSION
from combee.objects.engine_pods import server_pod
from combee.sim.main import app

ROOT = Path(__file__).resolve().parents[3]
RECORDER = ROOT / "tests/record_vllm.py"
PYTHON_OF_VLLM = os.environ.get("VLLM_PYTHON", "")
SIMULATED = "localhost/combee-sim"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _documents() -> Iterator[tuple[str, Any]]:
    """Every manifest of an example, and every block of a page that is YAML."""
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            yield str(path.relative_to(ROOT)), document
    for page in PAGES:
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            for document in yaml.safe_load_all(block):
                yield page.name, document


def _engines(document: Any) -> Iterator[dict[str, Any]]:
    """The engines at any depth: of a run, of a Playbook's template, of a part of a manifest in a page."""
    if isinstance(document, dict):
        yield from (engine for engine in document.get("engines") or () if "vllm" in engine)
        for inner in document.values():
            yield from _engines(inner)
    elif isinstance(document, list):
        for inner in document:
            yield from _engines(inner)


def _line(engine: dict[str, Any]) -> list[str]:
    """What follows ``vllm serve`` in the pod of an engine."""
    (vllm,) = server_pod(Engine.model_validate(engine), "image", SETTINGS)["containers"]
    assert vllm["command"][:2] == ["vllm", "serve"]
    return [*vllm["command"][2:], *vllm["args"]]


WRITTEN = [(where, engine) for where, document in _documents() for engine in _engines(document)]
REAL = [(w, e) for w, e in WRITTEN if not e["vllm"].get("image", "").startswith(SIMULATED)]
MADE = [("plain", engine) for engine in PLAIN["engines"]] + [("full", e) for e in FULL["engines"]]
SPLIT = [
    ("split", {"name": "main", "vllm": {"model": "m", "gpusPerReplica": 4, "revision": "main", "args": args}})
    for args in ([], ["--pipeline_parallel_size=4"], ["-tp=2", "-pp", "2"], ["--tensor-parallel", "2"])
]


def test_the_record_is_of_the_version_that_the_project_names() -> None:
    assert RECORDED["vllm"] == VLLM_VERSION


def test_engines_of_all_examples_are_looked_at() -> None:
    assert {"formula.yaml", "formula-gpus.yaml", "gepa.yaml", "s3.yaml", "kueue.yaml"} <= {
        Path(where).name for where, _ in REAL
    }


@pytest.mark.parametrize(("where", "engine"), [*REAL, *MADE, *SPLIT])
def test_vllm_takes_every_argument(where: str, engine: dict[str, Any]) -> None:
    assert complaint(_line(engine)) == ""


def test_gpus_are_split_as_the_arguments_say_and_by_tensors_where_they_say_nothing() -> None:
    ours = "--tensor-parallel-size=4"
    assert [ours in _line(engine) for _, engine in SPLIT] == [True, False, False, False]
    unsplit = {
        "name": "main",
        "vllm": {**SPLIT[0][1]["vllm"], "args": ["--chat-template", "", "--seed", "-1"]},
    }
    assert ours in _line(unsplit)


def test_the_simulated_model_knows_every_argument_that_is_written_for_it() -> None:
    serve = typer.main.get_command(app).commands["serve"]
    lines = [engine["vllm"]["args"] for where, engine in WRITTEN if (where, engine) not in REAL]
    left = [serve.make_context("serve", ["m", *line]).params["words"] for line in lines]
    assert left == [["m"]]


def test_vllm_knows_the_flags_that_pages_name() -> None:
    flags = {flag for page in PAGES for flag in re.findall(r"`(--enable-[a-z-]+)`", page.read_text("utf-8"))}
    assert flags and all(accepts(["m", flag]) for flag in flags)


LINES = [
    (["m", "--max-model-len=65536"], True),
    (["m", "--max_model_len", "64k"], True),
    (["m", "--max-model-len=auto"], True),
    (["m", "--max-model-len=64.5K"], False),
    (["m", "--max-num-seqs=many"], False),
    (["m", "--no-enable-prefix-caching"], True),
    (["m", "--tensor-parallel=2"], True),
    (["m", "--data-parallel=2"], False),  # many options begin with it
    (["m", "-tp=4"], True),
    (["m", "-O3"], True),
    (["m", "--compilation-config.mode=3"], True),
    (["m", "--kv-transfer-config.kv_role", "kv_both"], True),
    (["m", '--speculative-config={"method": "ngram"}'], True),
    (["m", "--speculative-config=ngram"], False),
    (["m", "--dtype=float33"], False),
    (["m", "--dtype", "bfloat16"], True),
    (["m", "--swap-space=4"], False),
    (["m", "--guided-decoding-backend=xgrammar"], False),
    (["m", "--time-scale=0.1"], False),
    (["m", "--seed"], False),
    (["m", "another"], False),
]


@pytest.mark.parametrize(("line", "taken"), LINES)
def test_the_recorded_parser_takes_and_refuses(line: list[str], taken: bool) -> None:
    assert accepts(line) is taken


@pytest.mark.long
@pytest.mark.skipif(not PYTHON_OF_VLLM, reason="VLLM_PYTHON names no Python that vLLM is installed for")
def test_the_real_parser_is_the_recorded_one() -> None:
    real = subprocess.run([PYTHON_OF_VLLM, RECORDER], capture_output=True, text=True, check=True).stdout
    assert real == RECORD.read_text("utf-8"), "VLLM_PYTHON/tests/record_vllm.py says what it is now"
    lines = [_line(engine) for _, engine in (*REAL, *MADE, *SPLIT)] + [line for line, _ in LINES]
    parsed = subprocess.run(
        [PYTHON_OF_VLLM, RECORDER, "--parse"],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.loads(parsed) == [accepts(line) for line in lines]
