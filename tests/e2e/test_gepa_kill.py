"""SIGKILL at ten seeded moments of the GEPA example on fewer rows: it ends with the bytes of a run that nothing disturbed."""

from __future__ import annotations

import json
import random
import signal
import sys
from pathlib import Path

import pytest
import yaml
from e2e_support import FORMULA, KILL_AT_LINK, ROOT, Sims, combee, result_of, start

pytestmark = pytest.mark.e2e
MOMENTS = 10
CONCURRENCY = 8
ROWS = {1: (20, 24), 3: (40, 40)}
"""of train and heldOut, by variants in flight: enough until the front has several, and an iteration more."""


def outcome(out: Path) -> tuple[object, ...]:
    """What must not differ: the pool, the prompt, and what the result says of variants, in flight and held out."""
    found = result_of(out)
    pool = next((out / "store").rglob(f"*{found['playbook']['digest']}*")).read_bytes()
    built_on = [one["builtOn"] for one in found["iterations"]]
    return pool, (out / "prompt.txt").read_bytes(), found["variants"], found["heldOut"], built_on


@pytest.mark.slow
@pytest.mark.parametrize("in_flight", [1, 3])
def test_killed_at_ten_moments_it_ends_with_the_same_bytes(
    in_flight: int, sims: Sims, key: Path, tmp_path: Path
) -> None:
    sim = sims.start("--key", key, "--time-scale", "0")
    paths = []
    for name, count in zip(("train", "heldout"), ROWS[in_flight], strict=True):
        paths.append(tmp_path / f"{name}.jsonl")
        lines = (FORMULA / f"{name}.jsonl").read_bytes().splitlines(keepends=True)
        paths[-1].write_bytes(b"".join(lines[:count]))
    document = yaml.safe_load((ROOT / "examples" / "gepa.yaml").read_text())
    spec = document["spec"]
    spec["task"]["data"] = {"train": {"uri": str(paths[0])}, "heldOut": {"uri": str(paths[1])}}
    beginning = tmp_path / "start.json"
    beginning.write_text(json.dumps({"work": "Work step by step.", "check": "Check the result."}))
    spec["task"]["initialPlaybook"] = {"uri": str(beginning)}
    spec["batching"] = {"mode": "Fixed", "size": 10, "reason": "test"}
    spec["method"]["gepa"]["variantsInFlight"] = in_flight
    spec["workers"] = {"concurrency": CONCURRENCY, "hedgeBudget": 0}
    path = tmp_path / "gepa.yaml"
    path.write_text(yaml.safe_dump(document))

    def command(out: Path) -> list[str]:
        return ["run", "-f", str(path), "-o", str(out), "--engine", f"main={sim.url}"]

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    done = combee(*command(whole))
    assert done.returncode in (0, 3), done.stderr
    built_on = [len(one["builtOn"]) for one in result_of(whole)["iterations"]]
    assert len(built_on) >= 2
    assert (max(built_on) > 1) == (in_flight > 1), built_on
    before, draw = sim.answered(), random.Random("gepa")
    links = sum(file.is_file() for file in (whole / "store").rglob("*"))
    for _ in range(MOMENTS):
        nth = draw.randrange(2, links // MOMENTS)
        process = start([sys.executable, "-c", KILL_AT_LINK, str(nth), *command(cut)])
        assert process.wait(300) == -signal.SIGKILL
    done = combee(*command(cut))
    assert done.returncode in (0, 3), done.stderr
    assert outcome(cut) == outcome(whole)
    twice = sum(count - 1 for count in (sim.answered() - before).values())
    assert twice <= MOMENTS * CONCURRENCY
