"""Anchors: what is one, how it is normalised, and when an entry still holds it."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.algo.text import anchors, jaccard, kept_in, token_set


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1,500 and 1500 and $1,500.00", {"1500"}),
        ("15% or 15 % or 15 percent or 15.0 per cent", {"15%"}),
        ("15 is not 15%", {"15", "15%"}),
        ("use 0.5, .5 and 0.50", {"0.5"}),
        ("from -5 to 5", {"-5", "5"}),
        ("a range of 10-20", {"10", "20"}),
        ("the loss is −7.5", {"-7.5"}),
        ("1.5e3 equals 1500 and 15e-1 is 1.5", {"1500", "1.5"}),
        ("version 1.2.3", {"1.2.3"}),
        ("in 2024-01-15.", {"2024", "1", "15"}),
        ("the end is 5.", {"5"}),
        ("No.5 of 1,234,567.89", {"5", "1234567.89"}),
        ("60s, 3rd", {"60", "3"}),
        ("１２ is twelve, ٣ is three", {"12", "3"}),
        ("R-017, x2, Q3, 10-K and tax_2024 are names", set()),
        ("-0 and 0.0 and 000", {"0"}),
        ("1e999 is long", {"1" + "0" * 999}),
        ("", set()),
    ],
)
def test_numbers(text: str, numbers: set[str]) -> None:
    assert anchors(text).numbers == numbers


@pytest.mark.parametrize(
    ("text", "identifiers"),
    [
        ("NetIncomeLoss and netIncome", {"netincomeloss", "netincome"}),
        ("set tax_rate", {"tax_rate"}),
        ("rule R-017 or r-017", {"r-017"}),
        ("ROI in the 10-K, Non-GAAP", {"roi", "10-k", "gaap"}),
        ("the `gross  margin` and \"Current Ratio\" and 'alpha'", {"gross margin", "current ratio", "alpha"}),
        ("“Quick Ratio” counts", {"quick ratio"}),
        ("x2 and sha256", {"x2", "sha256"}),
        ("NEVER and ALWAYS, DO NOT shout; I am A person", set()),
        ('he said "this is a whole sentence, not a name"', set()),
        ('the answer is "2.0"', set()),
        ("don't and it's", set()),
        ("an ordinary lesson about inventory", set()),
    ],
)
def test_identifiers(text: str, identifiers: set[str]) -> None:
    assert anchors(text).identifiers == identifiers


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("If debt is short-term, use the ratio", {"debt", "short", "term"}),
        (
            "Use the ratio when inventories are low: subtract",
            {"inventorie", "low"},
        ),
        ("For leases then subtract", {"lease"}),
        ("Subtract unless the rate is 1.5 or negative. Add it.", {"rate", "negative"}),
        ("Subtract the cost", set()),
        ("If so, add", set()),
    ],
)
def test_condition(text: str, condition: set[str]) -> None:
    assert anchors(text).condition == condition


@pytest.mark.parametrize(
    ("lesson", "entry", "kept"),
    [
        pytest.param("use 1,500", "the value is 1500.00", True, id="number-format"),
        pytest.param("use 15%", "use 15", False, id="percent-lost"),
        pytest.param("use 15 %", "it is 15 percent here", True, id="percent-words"),
        pytest.param("use 5 and 6", "use 5", False, id="one-number-lost"),
        pytest.param("use R-017", "see r-017.", True, id="case"),
        pytest.param("use R-01", "see R-017", False, id="prefix-is-another-name"),
        pytest.param("apply `net margin`", "the Net  Margin rule applies", True, id="quotes-dropped"),
        pytest.param("see 10 items", "see TOP-10 items", True, id="number-inside-a-name"),
        pytest.param("If revenue grows quickly, add 2", "add 2", False, id="condition-lost"),
        pytest.param(
            "If revenue grows quickly, add 2", "with revenue that grows add 2", True, id="condition-mostly"
        ),
        pytest.param("If revenue grows quickly, add 2", "with revenue add 2", False, id="condition-a-third"),
        pytest.param("subtract cost before dividing", "be careful", False, id="platitude"),
        pytest.param("subtract costs first", "costs: subtract", True, id="no-anchors-overlap"),
        pytest.param("it is as it is", "it is", True, id="stopwords-only"),
        pytest.param("", "anything", False, id="empty-lesson"),
        pytest.param("use 5", "", False, id="empty-entry"),
    ],
)
def test_kept_in(lesson: str, entry: str, kept: bool) -> None:
    assert kept_in(lesson, entry) is kept


wordy = st.text(alphabet=st.sampled_from(list("abTZ019 .,-_%$'\"`/:eE+ifmno\n−ßİ")), max_size=60)


@settings(max_examples=400)
@given(st.one_of(st.text(max_size=60), wordy), st.one_of(st.text(max_size=30), wordy))
def test_a_text_carries_itself_whatever_follows(text: str, more: str) -> None:
    found = anchors(text)
    assert found.kept_in(text)
    if not found.empty:
        assert kept_in(text, text)
        assert kept_in(text, text + "\n" + more)


@given(st.one_of(st.text(max_size=60), wordy))
def test_lines_are_read_apart_so_saying_it_twice_adds_no_token(text: str) -> None:
    assert token_set(text) == token_set(text + "\n" + text)


@pytest.mark.parametrize("unit", ["1,", "1-", "a-", "if ", '"', "`a ", "1.", "A_", "'x", "9", "\u0130", "1e"])
def test_long_garbage_is_read_in_linear_time(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    started = time.perf_counter()
    anchors(text)
    token_set(text)
    print(f"{unit!r} * 200,000: {time.perf_counter() - started:.2f} s")


sets = st.frozensets(st.sampled_from("abcdef"))


@given(sets, sets)
def test_jaccard(a: frozenset[str], b: frozenset[str]) -> None:
    value = jaccard(a, b)
    assert value == jaccard(b, a)
    assert 0 <= value <= 1
    assert (value == 1) == (a == b)
    assert value == (len(a & b) / len(a | b) if a | b else 1)
