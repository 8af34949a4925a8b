"""What ``combee-worker watch-data`` leaves: a mark of each place, equal while its content is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from combee.errors import DataError
from combee.pod import datawatch
from combee.pod.log import FAILED, PodLog
from combee.settings import DataWatchSettings


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A pod's root with one split on a claim."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "data/train-1").mkdir(parents=True)
    (tmp_path / "data/train-1/rows.jsonl").write_text("{}\n")
    return tmp_path


def look(root: Path, place: str) -> tuple[int, dict[str, object]]:
    settings = DataWatchSettings(root, "INFO", json.dumps({"train-1": place}))
    code = datawatch.run(settings, datawatch.read_task(settings), PodLog())
    told: dict[str, object] = json.loads((root / "dev/termination-log").read_text())
    return code, told


@pytest.mark.parametrize("place", ["/data/train-1/rows.jsonl", "/data/train-1"])
def test_a_files_mark_changes_with_its_content_alone(root: Path, place: str) -> None:
    file = root / "data/train-1/rows.jsonl"
    code, first = look(root, place)
    assert code == 0
    file.touch()
    assert look(root, place) == (0, first)
    file.write_text('{"a": 1}\n')
    assert look(root, place)[1] != first


def test_a_folders_mark_knows_which_file_holds_what(root: Path) -> None:
    folder = root / "data/train-1"
    (folder / "more.jsonl").write_text("1\n")
    _, first = look(root, "/data/train-1")
    (folder / "more.jsonl").rename(folder / "other.jsonl")
    assert look(root, "/data/train-1")[1] != first


def test_why_a_place_cannot_be_read_is_told(root: Path) -> None:
    code, told = look(root, "/data/train-1/none.jsonl")
    assert code == FAILED
    assert "no such file or folder" in str(told["error"])


def test_a_place_that_cannot_be_read_hides_no_other(root: Path) -> None:
    task = {"heldOut-1": "/data/none.jsonl", "train-1": "/data/train-1/rows.jsonl"}
    settings = DataWatchSettings(root, "INFO", json.dumps(task))
    assert datawatch.run(settings, datawatch.read_task(settings), PodLog()) == FAILED
    message = json.loads((root / "dev/termination-log").read_text())
    assert list(message["marks"]) == ["train-1"] and "no such file" in message["error"]


def test_no_address_is_read_that_data_may_not_come_from(root: Path) -> None:
    code, told = look(root, "http://h/rows.jsonl")
    assert code == FAILED and "data cannot come from http:" in str(told["error"])
    with pytest.raises(DataError):
        datawatch.mark_of("file::s3://bucket/rows.jsonl")
