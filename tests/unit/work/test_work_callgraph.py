"""Recorded calls as a graph: what a chain waits for is kept with it, and shortens the critical path."""

from __future__ import annotations

from combee.work.asker import Asker, CallRow, decode_rows
from combee.work.callgraph import graph_of, load_seconds, modelled_seconds, scheduled_seconds


def call(stage: str, chain: int, seconds: float, *after: int) -> CallRow:
    return CallRow("task", stage, chain, seconds, 10, 5, 2, False, 1, after=after)


MAP = [call("map", 7, 4.0), call("map", 2, 1.0), call("map", 2, 1.0), call("map", 5, 1.0)]
LEAVES = [call("leaf", 0, 3.0, 2, 5), call("leaf", 1, 2.0, 7)]


def test_a_chain_begins_when_those_that_it_names_have_ended() -> None:
    rows = [*MAP, *LEAVES, call("merge", 0, 1.0)]
    assert scheduled_seconds(rows, 8) == {"map": 4.0, "leaf": 2.0, "merge": 1.0}
    assert modelled_seconds([call(one.stage, one.chain, one.seconds) for one in rows], 8) == 8.0
    assert graph_of(rows).beside == {1: [[0, 1], [2]]}, "chains are in the order of their numbers"


def test_where_what_it_names_made_no_call_a_chain_waits_for_all() -> None:
    assert scheduled_seconds([call("map", 1, 4.0), call("leaf", 0, 3.0, 3)], 8) == {"map": 4.0, "leaf": 3.0}
    assert scheduled_seconds([call("leaf", 0, 3.0, 3)], 8) == {"leaf": 3.0}, "the rows of one stage alone"
    assert scheduled_seconds([], 8) == {}


def test_what_a_chain_waits_for_is_kept_with_its_calls() -> None:
    asker = Asker({}, {}, rows=[*MAP, *LEAVES], stages=["map", "leaf"])
    read = decode_rows(asker.encode())
    assert {(row.stage, row.chain): row.after for row in read if row.after} == {
        ("leaf", 0): (2, 5),
        ("leaf", 1): (7,),
    }
    assert scheduled_seconds(read, 8) == scheduled_seconds([*MAP, *LEAVES], 8)


def test_what_the_calls_of_an_iteration_took_is_added_up_over_its_steps() -> None:
    steps = [[*MAP, *LEAVES], [call("merge", 0, 1.0), call("merge", 1, 3.0)], []]
    assert load_seconds(steps, 1) == {"modelled": 16.0, "busy": 16.0, "path": 6.0 + 3.0}
    assert load_seconds(steps, 8) == {"modelled": 9.0, "busy": 16.0, "path": 9.0}
    assert load_seconds([], 8) == {"modelled": 0.0, "busy": 0.0, "path": 0.0}
