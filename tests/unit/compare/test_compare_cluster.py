"""A comparison as a folder of runs for a cluster: the same terms as on a laptop, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from combee.api.load import parse_run
from combee.cli.cluster.compare import _member, _refuse_unfinished, _scores
from combee.cli.cluster.place import Here, Place, found_in
from combee.cli.main import app
from combee.clients.kubernetes.kube import Object
from combee.compare.cells import derived, derived_for_cluster, make_cells, read_tasks
from combee.compare.run import Request, write_runs
from combee.compare.strategies import parse_strategies
from combee.errors import CombeeError, ManifestError, UserError
from combee.local.sources import StandIns

MODEL = {"engineRef": {"name": "main"}}
MANIFEST: dict[str, Any] = {
    "apiVersion": "combee.dev/v1alpha1",
    "kind": "PromptLearningRun",
    "metadata": {"name": "formula", "namespace": "team"},
    "spec": {
        "playbookRef": {"name": "served"},
        "task": {
            "type": "Formula",
            "data": {
                "train": {"configMap": {"name": "rows", "key": "train.jsonl"}},
                "heldOut": {"uri": "s3://b/held.jsonl"},
            },
        },
        "method": {"type": "ACE"},
        "engines": [{"name": "main", "vllm": {"model": "m"}}],
        "models": {"task": MODEL, "proposer": MODEL},
        "store": {"pvc": {"claimName": "ours"}},
        "budget": {"rollouts": 100},
        "suspend": True,
    },
}
STRATEGIES = "Sequential,Naive@100,ParallelScan:Model:Sqrt@100"


def request(folder: Path, manifest: dict[str, Any] = MANIFEST) -> Request:
    path = folder / "formula.yaml"
    path.write_text(yaml.safe_dump(manifest))
    return Request(
        [path], parse_strategies(STRATEGIES, []), [0, 3], folder / "runs", {}, methods=("ACE", "GEPA")
    )


def test_each_cell_is_a_run_on_the_terms_of_a_laptop(tmp_path: Path) -> None:
    asked = request(tmp_path)
    files = write_runs(asked, "methods")
    assert len(files) == 12 and len({path.name for path in files}) == 12
    tasks = read_tasks(asked.manifests)
    cells = make_cells(tasks, asked.strategies, asked.seeds, tmp_path, {}, asked.methods)
    for path, cell in zip(files, cells, strict=True):
        made = yaml.safe_load(path.read_text())
        assert path.name == f"methods-{cell.name}.yaml" and made == derived_for_cluster(cell, "methods", 100)
        run, ours = parse_run(made, path.name), made["spec"]
        laptop = derived(cell, StandIns({"main": "u"}, {}, {"train": "t", "heldOut": "h"}), 100)["spec"]
        for field in ("method", "aggregation", "batching", "stopping", "seed", "models"):
            assert ours[field] == laptop[field], field
        assert ours["store"] == MANIFEST["spec"]["store"]
        assert ours["task"] == MANIFEST["spec"]["task"]
        assert ours["playbookRef"] == {"name": "methods"}, "no Playbook that is served gets a candidate"
        assert "budget" not in ours and "suspend" not in ours and "namespace" not in made["metadata"]
        read = _member(found_in({**made, **_placed(made)}), tmp_path / "out").cell
        assert (read.task.name, read.label, read.seed) == (cell.task.name, cell.label, cell.seed)
        assert (read.learns_by, read.strategy) == (cell.learns_by, cell.strategy)
        assert run.spec.seed == cell.seed
    assert [path.name for path in write_runs(asked, "methods")] == [path.name for path in files], "again"


def _placed(made: Object, phase: str = "Learned") -> Object:
    metadata = {**made["metadata"], "uid": "1", "namespace": "team"}
    return {"metadata": metadata, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"train": {"uri": "t.jsonl"}}, "a cluster cannot read a file of yours"),
        ({"heldOut": {"uri": "/rows/h.jsonl"}}, "a cluster cannot read a file of yours"),
    ],
)
def test_what_a_cluster_cannot_read_is_said_before_anything_is_written(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    manifest = json.loads(json.dumps(MANIFEST))
    manifest["spec"]["task"]["data"] |= change
    with pytest.raises(ManifestError, match=said):
        write_runs(request(tmp_path, manifest), "methods")
    assert not (tmp_path / "runs").exists()


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    asked = request(tmp_path)
    with pytest.raises(UserError, match="not manifests"):
        write_runs(replace(asked, out=Path(__file__).parent), "methods")


def test_runs_that_are_not_over_are_named_with_what_to_do(tmp_path: Path) -> None:
    made = [yaml.safe_load(path.read_text()) for path in write_runs(request(tmp_path), "methods")]
    members = [
        _member(found_in({**one, **_placed(one, phase)}), tmp_path)
        for one, phase in zip(
            made, ["Learned", "NothingBetter", "Failed", "Learning", "Unsure"], strict=False
        )
    ]
    here: Any = Here(None, "team", Place())  # type: ignore[arg-type]
    with pytest.raises(UserError, match="2 of 5 runs have no result") as told:
        _refuse_unfinished(members, here)
    assert f"kubectl combee why {made[2]['metadata']['name']}" in told.value.fix
    _refuse_unfinished([*members[:2], members[4]], here)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"task": "a", "method": "Other", "strategy": "Naive", "evaluateEvery": 1}']
)
def test_a_run_that_is_no_cell_is_said_to_be_none(text: str, tmp_path: Path) -> None:
    (path, *_) = write_runs(request(tmp_path), "methods")
    made = yaml.safe_load(path.read_text())
    made["metadata"]["annotations"]["combee.dev/cell"] = text
    with pytest.raises(CombeeError, match="which cell of a comparison it is"):
        _member(found_in({**made, **_placed(made)}), tmp_path)


def test_rows_of_one_cluster_count_once_as_on_a_laptop(tmp_path: Path) -> None:
    (path, *_) = write_runs(request(tmp_path), "methods")
    cell = _member(found_in({**(made := yaml.safe_load(path.read_text())), **_placed(made)}), tmp_path).cell
    assert _scores(cell) is None
    cell.folder.mkdir(parents=True)
    look = {"baseline": {"1": 0.0, "2": 1.0, "3": 1.0}, "best": {"1": 1.0, "2": 1.0, "3": 0.0}}
    (cell.folder / "gate.json").write_text(json.dumps(look))
    assert _scores(cell) == look
    clustered = {**look, "clusters": {"1": "a", "2": "a", "3": "b"}}
    (cell.folder / "gate.json").write_text(json.dumps(clustered))
    assert _scores(cell) == {"baseline": {"a": 0.5, "b": 1.0}, "best": {"a": 1.0, "b": 0.0}}


def called(*words: str) -> Result:
    return CliRunner().invoke(app, ["compare", *words])


def test_the_command_writes_them_and_says_what_comes_next(tmp_path: Path) -> None:
    manifest, runs = str(request(tmp_path).manifests[0]), str(tmp_path / "runs")
    done = called("-f", manifest, "--for-cluster", "methods", "--strategies", STRATEGIES, "-o", runs)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[2:] == [
        f"kubectl apply -f {runs}",
        "kubectl get plr -l combee.dev/comparison=methods",
        "kubectl combee compare methods -o methods",
    ]
    assert called("-f", manifest, "--for-cluster", "No Name", "-o", runs).exit_code == 2
    assert called("-o", runs).exit_code == 2
    assert called("methods", "-f", manifest, "-o", runs).exit_code == 2
