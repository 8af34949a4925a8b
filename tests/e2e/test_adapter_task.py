"""An adapter of the gepa package as a task: the example learns the same on a laptop, in pods and when
killed."""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections import Counter
from pathlib import Path

import pytest
import yaml
from e2e_support import ENDED, ROOT, Sim, Sims, process, result_of
from killing import Killed, survives_every_write
from pods import Cluster

from combee.methods.components.pool import Pool
from combee.methods.gepa import GepaMethod

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(sys.platform != "linux", reason="pods are Linux processes")]
EXAMPLES = ROOT / "examples"
CONCURRENCY = 4
FLAKY = """
import zlib
from types import SimpleNamespace


class Flaky:
    def __init__(self, model):
        self.model = model

    def evaluate(self, batch, candidate, capture_traces=False):
        (row,) = batch
        if zlib.crc32(row["context"].encode()) % 6 == 0:
            raise ConnectionError("no answer")
        system = {"role": "system", "content": " ".join(candidate.values())}
        said = self.model([system, {"role": "user", "content": row["context"]}])
        right = row["target"] in said
        feedback = "The answer is right." if right else f"The answer is wrong. Expected: {row['target']}"
        record = {"Inputs": row["context"], "Generated Outputs": said, "Feedback": feedback}
        return SimpleNamespace(outputs=[said], scores=[float(right)], trajectories=[record])

    def make_reflective_dataset(self, candidate, batch, components):
        return {name: batch.trajectories for name in components}
"""
"""An adapter that fails on some examples, whatever the candidate is. It does without the gepa package, whose
import takes longer than all else that its process does."""


@pytest.fixture
def sim(sims: Sims, key: Path) -> Sim:
    """A seed with which fifty examples are enough to learn from: with about half of them they are."""
    return sims.start("--key", key, "--time-scale", "0", "--seed", "5")


def path_of(folder: Path) -> str:
    """Where Python looks: the product, the example, and modules of the test."""
    return f"{ROOT / 'operator'}:{EXAMPLES / 'adapter'}:{folder}"


def written(folder: Path, *, train: int, held_out: int, size: int, **changes: object) -> Path:
    """The example on fewer rows with batches of a fixed size."""
    document = yaml.safe_load((EXAMPLES / "adapter.yaml").read_text())
    spec = document["spec"]
    for split, count in (("train", train), ("heldOut", held_out)):
        lines = (EXAMPLES / spec["task"]["data"][split]["uri"]).read_text().splitlines(keepends=True)
        (folder / f"{split}.jsonl").write_text("".join(lines[:count]))
        spec["task"]["data"][split] = {"uri": str(folder / f"{split}.jsonl")}
    start = EXAMPLES / spec["task"]["initialPlaybook"]["uri"]
    spec["task"]["initialPlaybook"] = {"uri": str(start)}
    spec["batching"] = {"mode": "Fixed", "size": size, "reason": "test"}
    spec["workers"] = {"parallelism": 2, "concurrency": CONCURRENCY, "hedgeBudget": 0}
    spec |= changes
    (folder / "run.yaml").write_text(yaml.safe_dump(document))
    return folder / "run.yaml"


def changed(path: Path, name: str, **changes: object) -> Path:
    """The manifest with other values of the adapter or, by ``workers``, of the workers."""
    document = yaml.safe_load(path.read_text())
    document["spec"]["workers"] |= changes.pop("workers", {})  # type: ignore[operator]
    document["spec"]["task"]["custom"]["adapter"] |= changes
    made = path.with_name(f"{name}.yaml")
    made.write_text(yaml.safe_dump(document))
    return made


def command(path: Path, out: Path, sim: Sim) -> list[str]:
    return ["run", "-f", str(path), "-o", str(out), "--engine", f"main={sim.url}"]


def pools_of(out: Path) -> list[Pool]:
    """The pool after each iteration, those that were not chosen, too."""
    found = []
    for path in sorted((out / "store").rglob("*-finish-*/00000.manifest.json")):
        digest = json.loads(path.read_text())["outputs"]["artifact"]
        found.append(GepaMethod().from_json(next((out / "store").rglob(f"*{digest}*")).read_bytes()))
    return found


def test_the_example_learns_on_a_laptop_and_as_pods(
    sim: Sim, tmp_path: Path, clusters: list[Cluster]
) -> None:
    path, out = written(tmp_path, train=120, held_out=300, size=50), tmp_path / "out"
    done = process(*command(path, out, sim), PYTHONPATH=path_of(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    result = result_of(out)
    assert result["outcome"] == "Learned"
    assert result["heldOut"]["gate"]["gain"] > 0
    assert list(json.loads((out / "prompt.json").read_text())) == ["system_prompt"]
    assert result["faults"]["rollouts"] == {}
    asked = sim.answered()
    assert process(*command(path, out, sim), PYTHONPATH=path_of(tmp_path)).returncode == 0
    assert sim.answered() == asked


def test_pods_learn_what_a_laptop_learns(sim: Sim, tmp_path: Path, clusters: list[Cluster]) -> None:
    path, out = written(tmp_path, train=16, held_out=24, size=16), tmp_path / "out"
    document = yaml.safe_load(path.read_text())
    del document["spec"]["task"]["initialPlaybook"]
    path.write_text(yaml.safe_dump(document))
    done = process(*command(path, out, sim), PYTHONPATH=path_of(tmp_path))
    assert done.returncode in ENDED, done.stdout + done.stderr
    for split in ("train", "heldOut"):
        place = {"pvc": {"claimName": "rows", "path": f"{split}.jsonl"}}
        document["spec"]["task"]["data"][split] = place
    pods = tmp_path / "pods.yaml"
    pods.write_text(yaml.safe_dump(document))
    cluster = Cluster(
        tmp_path / "cluster",
        pods,
        sim.url.replace("127.0.0.1", "localhost"),
        variables={"PYTHONPATH": path_of(tmp_path)},
    )
    clusters.append(cluster)
    state = cluster.to_the_end()
    assert state.best is not None
    assert state.best.artifact == result_of(out)["playbook"]["digest"]
    assert {step.kind for step in cluster.summaries.values()} >= {"profile", "map", "reduce", "finish"}


def written_flaky(
    folder: Path, *, train: int = 24, held_out: int = 24, size: int = 12, **changes: object
) -> Path:
    """A manifest with the adapter that fails on some rows, and two components."""
    (folder / "flaky.py").write_text(FLAKY)
    start = folder / "start.json"
    start.write_text(json.dumps({"work": "Work step by step.", "check": "Check the result."}))
    path = written(folder, train=train, held_out=held_out, size=size, **changes)
    document = yaml.safe_load(path.read_text())
    document["spec"]["task"]["initialPlaybook"] = {"uri": str(start)}
    document["spec"]["task"]["custom"]["adapter"]["factory"] = "flaky:Flaky"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def flaky(tmp_path: Path) -> Path:
    return written_flaky(tmp_path)


@pytest.mark.parametrize("method", ["GEPA", "MIPRO"])
def test_failed_examples_are_no_zeros_and_variants_do_not_depend_on_parallelism(
    method: str, sim: Sim, tmp_path: Path
) -> None:
    # Retransmission would choose the size of leaves by the slots, and these differ here.
    how = {"redundancy": {"mode": "Duplicate"}}
    flaky, pools = written_flaky(tmp_path, method={"type": method}, aggregation=how), set()
    for name, concurrency, workers in (("one", 1, 1), ("many", 6, 16)):
        path = changed(flaky, name, concurrency=concurrency, workers={"concurrency": workers})
        out = tmp_path / name
        done = process(*command(path, out, sim), PYTHONPATH=path_of(tmp_path))
        assert done.returncode in ENDED, done.stdout + done.stderr
        found = pools_of(out)
        pools.add(tuple(pool.to_json() for pool in found))
        pool = found[-1]
        result = result_of(out)
        lost = {str(n) for n, row in enumerate(rows_of(tmp_path / "heldOut.jsonl"), 1) if fails(row)}
        assert result["faults"]["rollouts"]["TaskRaised"] >= len(lost) > 0
        assert {name for one in pool.variants for name, _ in one.components} == {"work", "check"}
        scored = {fact.example for fact in pool.scores}
        assert scored and not scored & lost
        assert "no answer" in (next((out / "store").rglob("rollouts/TaskRaised.txt"))).read_text()
        assert "Traceback" not in done.stdout + done.stderr
        again = process("replay", out, "-f", path, PYTHONPATH=path_of(tmp_path))
        assert again.returncode == 0 and "identical" in again.stdout, again.stdout + again.stderr
    assert len(pools) == 1


@pytest.mark.slow
def test_several_variants_in_flight_and_the_order_of_records_do_not_depend_on_concurrency(
    sim: Sim, tmp_path: Path
) -> None:
    gepa = {"type": "GEPA", "gepa": {"variantsInFlight": 3}}
    given = written_flaky(tmp_path, train=48, held_out=40, size=12, method=gepa)
    seen = []
    for name, concurrency, workers in (("one", 1, 1), ("some", 3, 4), ("many", 6, 16)):
        path = changed(given, name, concurrency=concurrency, workers={"concurrency": workers})
        out, before = tmp_path / name, proposing(sim)
        done = process(*command(path, out, sim), PYTHONPATH=path_of(tmp_path))
        assert done.returncode in ENDED, done.stdout + done.stderr
        result = result_of(out)
        built_on = [one["builtOn"] for one in result["iterations"]]
        assert max(map(len, built_on)) > 1, built_on
        assert result["faults"]["rollouts"]["TaskRaised"] > 0
        asked = proposing(sim) - before
        assert asked
        seen.append((made(out), asked, built_on, result["variants"], result["heldOut"]))
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]


def proposing(sim: Sim) -> Counter[str]:
    """The requests that records stand in, with their order, and how often each was answered."""
    rows = [json.loads(line) for line in sim.log.read_text().splitlines()] if sim.log.exists() else []
    return Counter(row["request"] for row in rows if row["role"] != "rollout")


def made(out: Path) -> list[tuple[str, str]]:
    """Digests of each iteration's updates and of the pool after it."""
    found = []
    for path in sorted((out / "store" / "runs").glob("*/steps/*/*.manifest.json")):
        outputs = json.loads(path.read_text())["outputs"]
        step = re.sub(r"^.*-(i\d+-)", r"\1", path.parent.name)
        found += [(step, outputs[name]) for name in ("updates", "artifact") if name in outputs]
    assert {step.split("-")[1] for step, _ in found} == {"profile", "reduce", "finish"}
    return found


def fails(row: dict[str, str]) -> bool:
    return zlib.crc32(row["context"].encode()) % 6 == 0


def rows_of(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_killed_at_every_write_it_ends_with_the_same_bytes(sim: Sim, flaky: Path, tmp_path: Path) -> None:
    # An adapter's rollouts in flight have a limit of their own, beside that of the calls.
    run = Killed(flaky, sim, 2 * CONCURRENCY, variables={"PYTHONPATH": path_of(tmp_path)})
    survives_every_write(run, tmp_path)
    assert len(pools_of(tmp_path / "whole")) == 2
    assert pools_of(tmp_path / "out") == pools_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("no_such_module:A", "No module named 'no_such_module'"),
        ("figures:Nothing", "has no attribute 'Nothing'"),
        ("json:loads", "makes no adapter: TypeError"),
    ],
)
def test_what_makes_no_adapter_is_a_mistake_before_any_work(
    sim: Sim, flaky: Path, tmp_path: Path, factory: str, said: str
) -> None:
    path, out = changed(flaky, "none", factory=factory), tmp_path / "out"
    done = process(*command(path, out, sim), PYTHONPATH=path_of(tmp_path))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "spec.task.custom.adapter.factory" in done.stderr
    assert said in " ".join(done.stderr.split())
    assert not out.exists()
    assert not sim.answered()


def test_validating_and_previewing_load_no_adapter(flaky: Path) -> None:
    path = changed(flaky, "none", factory="no_such_module:A")
    assert process("validate", "-f", path).returncode == 0
    done = process("preview", "-f", path)
    assert done.returncode == 0, done.stdout + done.stderr
