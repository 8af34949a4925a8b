"""The clusters of rows: read from a field, known by a hash, and asked of every row."""

from __future__ import annotations

import json

import pytest

from combee.api.load import parse_run
from combee.assembly.splits import cluster_field, data_facts, refuse_moved
from combee.errors import DataError, HeldOutMovedError, ManifestError
from combee.tasks.clusters import clusters_of, read_clustered
from combee.tasks.dataset import Dataset
from combee.tasks.registry import task_for
from combee.tasks.reply import ReplyTask

NAMES = ["Jane Miller", "Acme", "Acme", 17, "17"]


def lines(rows: list[dict[str, object]]) -> list[bytes]:
    return [json.dumps(row).encode() + b"\n" for row in rows]


def read(rows: list[dict[str, object]], type: str = "Reply") -> Dataset:
    return read_clustered(task_for(type), "customer", lines(rows), "h.jsonl")


def rows(**more: object) -> list[dict[str, object]]:
    return [{"context": f"q{n}", "target": str(n), "customer": name, **more} for n, name in enumerate(NAMES)]


@pytest.mark.parametrize("type", ["Reply", "Formula"])
def test_each_row_has_its_cluster_and_nobodys_name_is_kept(type: str) -> None:
    data = read(rows(), type)
    named = [example.cluster for example in data.examples]
    assert named[0] != named[1] == named[2] != named[3] == named[4]
    assert "Jane" not in repr(data) and "Acme" not in repr(data)
    plain = task_for(type).read_rows(lines(rows()), "h.jsonl")
    assert clusters_of(plain) == {} and len(clusters_of(data)) == 5


def test_a_corrected_cluster_or_another_field_is_another_held_out() -> None:
    given = rows(region="north")
    data, again = read(given), read(rows(region="south"))
    corrected = read(
        [{**row, "customer": "Acme" if n == 0 else row["customer"]} for n, row in enumerate(given)]
    )
    other = read_clustered(ReplyTask(), "region", lines(given), "h.jsonl")
    plain = ReplyTask().read_rows(lines(given), "h.jsonl")
    assert data.digest == again.digest
    assert len({data.digest, corrected.digest, other.digest, plain.digest}) == 4
    refuse_moved("heldOut", again, data.digest)
    with pytest.raises(HeldOutMovedError, match="not what this run started with"):
        refuse_moved("heldOut", corrected, data.digest)


def test_rows_are_known_by_their_ids_too_and_blank_lines_count() -> None:
    given = [{"id": f"r{n}", **row} for n, row in enumerate(rows())]
    text = [b"\n", *lines(given[:2]), b"\n", *lines(given[2:])]
    data = read_clustered(ReplyTask(), "customer", text, "h.jsonl")
    assert set(clusters_of(data)) == {f"r{n}" for n in range(5)}
    unnamed = read_clustered(ReplyTask(), "customer", [b"\n", *lines(rows())], "h.jsonl")
    assert set(clusters_of(unnamed)) == {"2", "3", "4", "5", "6"}


@pytest.mark.parametrize("name", [None, "", "  ", 1.5, True, ["Acme"]])
def test_a_row_without_a_cluster_is_refused_with_its_id(name: object) -> None:
    given = [*rows(), {"context": "q9", "target": "9", "customer": name}]
    with pytest.raises(DataError, match="row 6 has no customer that names its cluster") as caught:
        read(given)
    assert "1 of 6 rows" in str(caught.value)


def test_a_line_that_cannot_be_read_is_refused_as_ever() -> None:
    with pytest.raises(DataError, match="not valid JSON"):
        read_clustered(ReplyTask(), "customer", [b"{\n"], "h.jsonl")


def test_power_goes_by_clusters() -> None:
    many = [{"context": f"q{n}", "target": "1", "customer": f"c{n % 30}"} for n in range(300)]
    train = task_for("Reply").read_rows(lines([{"context": "other"}]), "t.jsonl")
    facts = data_facts({"train": train, "heldOut": read(many)})
    assert (facts.gate_rows, facts.gate_clusters, facts.gate_units) == (150, 15, 15)
    few = data_facts(
        {"train": train, "heldOut": read([{**row, "customer": str(n % 6)} for n, row in enumerate(many)])}
    )
    assert few.refusal.startswith("heldOut has 3 gate clusters") and "12 heldOut clusters" in few.refusal
    plain = data_facts({"train": train, "heldOut": task_for("Reply").read_rows(lines(many), "h.jsonl")})
    assert plain.gate_units == plain.gate_rows == 150 and not plain.refusal


def manifest(**task: object) -> dict[str, object]:
    model = {"endpoint": {"url": "http://localhost:1/v1", "model": "m"}}
    data = {"train": {"uri": "t.jsonl"}, "heldOut": {"uri": "h.jsonl"}}
    return {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": "run"},
        "spec": {
            "task": {"type": "Formula", "data": data, "clusterBy": "customer", **task},
            "method": {"type": "ACE"},
            "models": {"task": model, "proposer": model},
        },
    }


@pytest.mark.parametrize(
    ("task", "words"),
    [
        pytest.param({"metric": "numeric"}, "numeric", id="numbers"),
        pytest.param({"metric": "numeric", "tolerance": {"absolute": 0.005}}, "numeric", id="the default"),
        pytest.param(
            {"metric": "numeric", "tolerance": {"absolute": 1}},
            "numeric within 1.0 or 0.0001 of the target",
            id="a tolerance",
        ),
        pytest.param({"metric": "tokenF1", "rightFrom": 0.75}, "tokenF1", id="the default share"),
        pytest.param({"metric": "tokenF1", "rightFrom": 0.9}, "tokenF1, right from 0.9", id="a share"),
    ],
)
def test_how_scores_were_made_is_in_words_where_it_is_not_the_default(
    task: dict[str, object], words: str
) -> None:
    spec = parse_run(manifest(type="Reply", **task), "test").spec.task
    assert spec.scored_by == f"{words}, clustered by customer"


def test_train_needs_no_clusters_and_traces_have_none() -> None:
    spec = parse_run(manifest(), "test").spec.task
    assert [cluster_field(spec, split) for split in ("train", "heldOut", "test")] == [
        "",
        "customer",
        "customer",
    ]
    assert spec.scored_by == "accuracy, clustered by customer"
    with pytest.raises(ManifestError, match="clusterBy is given with type Traces"):
        parse_run(manifest(type="Traces", data={"train": {"uri": "t.jsonl"}}), "test")
