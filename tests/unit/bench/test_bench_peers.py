"""Peers of the bench: what is said when one cannot be run, and how a recorded loop becomes modelled time."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    done = subprocess.run(["git", "-C", folder, *who, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_peer_that_cannot_be_run_says_which_commit_it_needs(tmp_path: Path) -> None:
    from dataclasses import replace

    from bench.peers import rows

    peer = rows.PEERS[0]
    row = rows.rows(rows.Checkouts())["peer-ace"](tmp_path)
    assert (row.figure, row.met) == (None, None)
    assert row.how.startswith("not run: ") and peer.commit in row.how and peer.url in row.how

    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("1")
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "-qm", "one")
    head = git(tmp_path, "rev-parse", "HEAD")
    given = rows.Checkouts({"ace": tmp_path})
    assert head in rows.obstacle(peer, given)
    at_head = replace(peer, commit=head)
    assert rows.obstacle(at_head, given) == ""
    (tmp_path / "a.py").write_text("2")
    assert "differ" in rows.obstacle(at_head, given)


def test_peers_are_named_on_the_command_line() -> None:
    from bench.peers.rows import from_arguments

    given = from_arguments(["ace=/there"], None)
    assert (given.folders, given.python) == ({"ace": Path("/there")}, sys.executable)
    with pytest.raises(ValueError, match="NAME=DIR"):
        from_arguments(["dspy=/there"], None)


def test_calls_of_the_main_thread_follow_each_other_and_those_of_workers_run_together() -> None:
    from bench.peers.recorder import Recorder
    from bench.peers.rows import modelled

    recorder = Recorder("http://127.0.0.1:1/v1", "m")
    usage = {"prompt_tokens": 10, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 10}}
    recorder.note("alone", usage)
    recorder.note("alone", usage)
    for _ in range(3):
        worker = threading.Thread(target=recorder.note, args=("together", usage))
        worker.start()
        worker.join()
    recorder.note("alone", usage)
    assert [row[0] for row in recorder.rows] == [1, 2, 3, 3, 3, 4]
    one, three = 100 * (0.0163 + 0.000094), 100 * (0.0163 + 3 * 0.000094)
    assert modelled(recorder.rows) == pytest.approx(3 * one + three)


def test_gepas_first_level_can_be_timed_side_by_side() -> None:
    """Of aggregator calls that follow each other the last is the second level; nothing else is moved."""
    from bench.peers.rows import level_one_at_once

    labels = ["rollout", "aggregate", "aggregate", "aggregate", "rollout", "aggregate", "call", "call"]
    calls = [[stage, label, 10, 0, 5] for stage, label in enumerate(labels, start=1)]
    assert [row[0] for row in level_one_at_once(calls)] == [1, 2, 2, 4, 5, 6, 7, 8]
    assert [row[1:] for row in level_one_at_once(calls)] == [row[1:] for row in calls]


def test_a_loop_that_went_on_without_an_answer_is_no_result(tmp_path: Path) -> None:
    from bench.peers.recorder import Recorder

    recorder = Recorder("http://127.0.0.1:9/v1", "any")
    with pytest.raises(OSError, match="refused"):
        recorder.ask([], "rollout")
    with pytest.raises(RuntimeError, match="1 calls failed, the first rollout"):
        recorder.write(tmp_path, {"artifact": "a prompt"})
    assert not list(tmp_path.iterdir())
