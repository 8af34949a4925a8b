"""Rows: what is read, what is refused by file and line, and what it costs."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from weakref import WeakSet

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.errors import CombeeError, DataError
from combee.tasks.dataset import MAX_ROW_BYTES, add_each, content_digest, overlap, read_jsonl, without
from combee.tasks.formula import FormulaTask

DATA = Path(__file__).parents[3] / "examples" / "data" / "formula"


def row(context: object = "q", target: object = "1.0", **more: object) -> bytes:
    return json.dumps({"context": context, "target": target, **more}).encode() + b"\n"


def read(*lines: bytes):  # type: ignore[no-untyped-def]
    return read_jsonl(lines, where="train.jsonl")


def test_ids_are_line_numbers_unless_given() -> None:
    data = read(row("a"), b"\n", row("b", id="x7"), row("c", id=12))
    assert [(e.id, e.input, e.target) for e in data.examples] == [
        ("1", "a", "1.0"),
        ("x7", "b", "1.0"),
        ("12", "c", "1.0"),
    ]
    assert data.examples[0].digest == content_digest("a", "1.0")
    assert data.warnings == ()


def test_numbers_as_targets_keep_their_writing() -> None:
    data = read(
        b'{"context": "a", "target": 2.50}',
        b'{"context": "b", "target": 7}',
        b'{"context": "c", "target": 1e3}',
    )
    assert [e.target for e in data.examples] == ["2.50", "7", "1E+3"]


def test_a_byte_order_mark_windows_line_ends_and_other_fields_do_no_harm() -> None:
    data = read(b"\xef\xbb\xbf" + row("a", note=[1]).replace(b"\n", b"\r\n"), row("b"))
    assert [e.input for e in data.examples] == ["a", "b"]


def test_identical_rows_are_merged_with_a_warning() -> None:
    data = read(row("a"), row("b"), row("a"), row("a", id="z"))
    assert [e.id for e in data.examples] == ["1", "2"]
    assert data.warnings == (
        (
            "train.jsonl: merged rows that are identical to earlier ones: 2 rows, lines 3 (of line 1), 4 (of "
            "line 1)"
        ),
    )


def test_one_question_with_two_targets_is_warned_about() -> None:
    data = read(row("a", "1"), row("a", "2"))
    assert len(data.examples) == 2
    assert "same context, different target: line 2 (of line 1)" in data.warnings[0]


def test_the_digest_depends_on_content_and_order_only() -> None:
    assert read(row("a"), row("b")).digest == read(row("a", note=1), row("b")).digest
    assert read(row("a"), row("b")).digest != read(row("b"), row("a")).digest
    assert read(row("a")).digest != read(row("a", "2.0")).digest


FAULTS = [
    (b"", "train.jsonl", "there is no row in it"),
    (b"\n\n", "train.jsonl", "there is no row in it"),
    (b'{"context": "q"}', "train.jsonl:2", "the row has no target"),
    (b'{"context": "q", "target": null}', "train.jsonl:2", "the row has no target"),
    (b'{"input": "q", "answer": 1}', "train.jsonl:2", "its fields are: 'input', 'answer'"),
    (b'{"context": "q\xff", "target": "1"}', "train.jsonl:2", "not valid UTF-8 at byte 15"),
    (b"{nonsense", "train.jsonl:2", "not valid JSON at column 2"),
    (b'{"context": "q", "target": NaN}', "train.jsonl:2", "NaN is not a JSON number"),
    (b'{"context": "q", "context": "r", "target": 1}', "train.jsonl:2", "a field is given twice"),
    (b"[" * 100_000, "train.jsonl:2", "not valid JSON"),
    (b'{"context": "q", "target": ' + b"9" * 5000 + b"}", "train.jsonl:2", "not valid JSON"),
    (b"[1]", "train.jsonl:2", "the row is not a JSON object"),
    (b'"text"', "train.jsonl:2", "the row is not a JSON object"),
    (b'{"context": "", "target": "1"}', "train.jsonl:2", "context is empty"),
    (b'{"context": 5, "target": "1"}', "train.jsonl:2", "context is not text"),
    (b'{"context": "q", "target": " "}', "train.jsonl:2", "target is empty"),
    (b'{"context": "q", "target": true}', "train.jsonl:2", "target is not text"),
    (b'{"context": "q", "target": ["1"]}', "train.jsonl:2", "target is not text"),
    (b'{"context": "\\ud800", "target": "1"}', "train.jsonl:2", "lone surrogate"),
    (row("q", id=""), "train.jsonl:2", "id is not a usable id"),
    (row("q", id="a b"), "train.jsonl:2", "id is not a usable id"),
    (row("q", id="x" * 129), "train.jsonl:2", "id is not a usable id"),
    (row("q", id=True), "train.jsonl:2", "id is not a usable id"),
    (row("q", id=1.5), "train.jsonl:2", "id is not a usable id"),
    (row("x" * MAX_ROW_BYTES), "train.jsonl:2", f"longer than {MAX_ROW_BYTES} bytes"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "where", "words"), FAULTS, ids=[f"{n}-{f[2]}" for n, f in enumerate(FAULTS)]
)
def test_a_fault_names_file_line_and_fix(line: bytes, where: str, words: str) -> None:
    lines = [line] if where == "train.jsonl" else [row("fine"), line]
    with pytest.raises(DataError) as caught:
        read(*lines)
    assert caught.value.where == where
    assert words in str(caught.value)
    assert caught.value.fix


def test_up_to_ten_faults_are_named_and_the_others_counted() -> None:
    bad = [row("a"), b"[1]", row("b"), b'{"context": "q"}', *[b"PRIVATE"] * 12]
    with pytest.raises(DataError) as caught:
        read(*bad[:4])
    assert str(caught.value) == (
        'train.jsonl:2: the row is not a JSON object. Write one JSON object a line: {"context": "...", '
        '"target": "..."}. (2 of 4 lines are wrong; line 4: the row has no target.)'
    )
    with pytest.raises(DataError) as caught:
        read(*bad)
    said = str(caught.value)
    assert said.startswith("train.jsonl:2: ") and "(14 of 16 lines are wrong; line 4: " in said
    assert said.count("not valid JSON at column 1") == 8 and said.endswith("; and 4 more.)")
    assert "; line 12: not valid JSON" in said and "line 13" not in said and "PRIVATE" not in said


def test_faults_that_are_not_shown_are_not_kept() -> None:
    alive = WeakSet[DataError]()
    most = 0

    def refuse(number: int, line: bytes) -> None:
        nonlocal most
        most = max(most, len(alive))
        raise counted(DataError("wrong", where=f"train.jsonl:{number}", fix="Mend it."))

    def counted(error: DataError) -> DataError:
        alive.add(error)
        return error

    with pytest.raises(DataError, match=r"100 of 100 lines are wrong.*and 90 more"):
        add_each([b"x\n"] * 100, refuse)
    assert 10 <= most < 20


def test_what_follows_a_row_that_is_too_long_keeps_its_line() -> None:
    file = io.BytesIO(b"x" * (3 * MAX_ROW_BYTES) + b"\n" + row("a") + b"[1]\n")
    with pytest.raises(DataError, match=r"train\.jsonl:1: the row is longer.*line 3: the row is not"):
        read_jsonl(iter(partial(file.readline, MAX_ROW_BYTES + 2), b""), where="train.jsonl")


def test_equal_ids_with_different_content_are_refused() -> None:
    with pytest.raises(DataError, match="its id is also the id of line 1") as caught:
        read(row("a", id="k"), row("b", id="k"))
    assert caught.value.where == "train.jsonl:2"
    with pytest.raises(DataError, match="also the id of line 2"):
        read(row("a"), row("b"), row("c", id="2"))
    assert len(read(row("a", id="k"), row("a", id="k")).examples) == 1


def test_no_message_quotes_a_row() -> None:
    for line in (b'{"context": "PRIVATE"', b'{"context": "PRIVATE"}', b'["PRIVATE"]', b"PRIVATE"):
        with pytest.raises(DataError) as caught:
            read(line)
        assert "PRIVATE" not in str(caught.value)


def test_a_10_mb_row_is_refused_with_little_memory() -> None:
    file = io.BytesIO(row("a") + b'{"context": "' + b"x" * 10_000_000 + b'", "target": "1"}\n' + row("b"))
    tracemalloc.start()
    with pytest.raises(DataError, match=r"train\.jsonl:2: the row is longer than 1048576 bytes"):
        read_jsonl(iter(partial(file.readline, MAX_ROW_BYTES + 2), b""), where="train.jsonl")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000


def test_a_row_of_exactly_the_limit_is_read_in_one_piece() -> None:
    line = row("x" * (MAX_ROW_BYTES - len(row("")) + 1))
    assert len(line) == MAX_ROW_BYTES + 1
    for end in (b"\n", b"\r\n"):
        file = io.BytesIO(line.rstrip(b"\n") + end + row("b"))
        assert len(read_jsonl(iter(partial(file.readline, MAX_ROW_BYTES + 2), b""), where="x").examples) == 2


def test_ten_thousand_rows_are_streamed_leanly() -> None:
    def lines() -> Iterator[bytes]:
        for n in range(10_000):
            yield row(f"question {n} " + "x" * 400, str(n))

    tracemalloc.start()
    data = FormulaTask().read_rows(lines(), "train.jsonl")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(data.examples) == 10_000
    assert peak < 20_000_000


def test_overlap_is_by_question_whatever_its_spacing_and_target() -> None:
    train = read(row("What is  X?"), row("b"))
    held_out = read(row("c"), row("what is x?", "1"), row("b", "9"))
    assert overlap(train, held_out) == ("2", "3")
    assert overlap(train, read(row("z"))) == ()


def test_the_real_data() -> None:
    task = FormulaTask()
    with (DATA / "train.jsonl").open("rb") as train, (DATA / "heldout.jsonl").open("rb") as held_out:
        a, b = task.read_rows(train, "train.jsonl"), task.read_rows(held_out, "heldout.jsonl")
    assert (len(a.examples), len(b.examples), a.warnings, b.warnings) == (500, 300, (), ())
    assert overlap(a, b) == ()


@given(
    st.lists(st.binary(max_size=60) | st.builds(row, st.text(max_size=5), st.text(max_size=5)), max_size=5)
)
def test_any_bytes_are_read_or_refused(lines: list[bytes]) -> None:
    try:
        data = read(*lines)
    except CombeeError as error:
        assert "\n" not in str(error)
    else:
        assert len({e.id for e in data.examples}) == len(data.examples) > 0


def test_a_forgotten_row_leaves_its_place_and_nothing_else() -> None:
    lines = [row("a"), row("b", "2.0"), row("c", "3.0")]
    there = without(read(*lines), ["2"], "train.jsonl")
    assert there == without(read(lines[0], b"\n", lines[2]), ["2"], "train.jsonl")
    assert ([one.id for one in there.examples], there.forgotten, there.places) == (["1", "3"], ("2",), 3)
    assert without(read(*lines), (), "train.jsonl") == read(*lines) and there.digest != read(*lines).digest


def test_rows_of_equal_content_are_forgotten_by_the_id_of_any_of_them() -> None:
    lines = [row("a", id="first"), row("b", id="other"), row("a", id="second")]
    for named in ("first", "second"):
        assert [one.id for one in without(read(*lines), [named], "train.jsonl").examples] == ["other"]


def test_labels_of_a_forgotten_row_go_with_it() -> None:
    labelled = [row(f"q{n}", answer="1", label=1, id=f"x{n}") for n in (1, 2)]
    rows = read_jsonl([*labelled, row("q1", answer="2", label=0)], where="train.jsonl", with_labels=True)
    assert [one.example.id for one in without(rows, ["x1"], "train.jsonl").labelled] == ["x2"]
    assert [one.example.id for one in without(rows, ["3"], "train.jsonl").labelled] == ["x1", "x2"]


def test_of_all_rows_some_must_stay() -> None:
    with pytest.raises(DataError, match="every row of it is forgotten"):
        without(read(row("a")), ["1"], "train.jsonl")
