"""What the page shows of a Playbook: curves as coordinates, bullets, changes, and unreadable content."""

from __future__ import annotations

import copy
import functools
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_story import ACTIVE, AFTER, BEFORE, CANDIDATE, FIRST, WORSE, told
from playbook_bench import WAIVED

from combee.algo.curve import Look
from combee.gateway.page import plot as plotting
from combee.gateway.page.contents import MOST_ENTRIES, content_of, difference_of, reworded
from combee.gateway.page.plot import plot_of
from combee.gateway.page.views import PlaybookView, Seen, Word, playbook_view
from combee.methods.diff import Changed
from combee.plan.playbook.curve import Curve


@functools.cache
def view() -> PlaybookView:
    return playbook_view("formula", Seen(told().playbook, tuple(told().versions)), told().digests[ACTIVE])


def test_versions_in_use_come_first_each_with_its_gates_and_their_numbers() -> None:
    assert [one.phase.text for one in view().versions] == ["Active", "Candidate", "Previous", "Refused"]
    refused = view().of_phase("Refused")
    assert refused is not None
    said = {gate.name: gate for gate in refused.gates}
    assert [(name, gate.outcome.text) for name, gate in said.items()] == [
        ("Content", "Passed"),
        ("Held-out", "Passed"),
        ("Canary", "Failed"),
    ]
    assert "the upper end is below -0.050" in said["Canary"].message
    assert said["Canary"].against == ACTIVE and said["Canary"].gain.startswith("−")
    assert ("Refused", "by its gates") in refused.facts
    assert ("Learned by", "run formula-ace-3, iteration 5") in refused.facts
    active = view().of_phase("Active")
    assert active is not None and active.served
    assert [figure.title for figure in active.figures] == ["Canary", "Since it became active"]
    assert view().compared == (told().digests[ACTIVE], told().digests[CANDIDATE])


def test_a_waived_canary_and_its_reason_are_among_the_gates() -> None:
    first = view().of_phase("Previous")
    assert first is not None and first.canary == Word("Waived")
    (waived,) = [gate for gate in first.gates if gate.name == "Canary"]
    assert (waived.outcome, waived.message) == (Word("Waived"), f"the canary is waived: {WAIVED['waived']}")


def test_a_version_is_found_by_the_first_digits_of_its_digest_when_they_name_one() -> None:
    found = view().version(WORSE)
    assert found is not None and found.digest == told().digests[WORSE]
    assert view().version("") is None and view().version("0000") is None


def test_what_another_release_wrote_hides_nothing_else() -> None:
    versions = copy.deepcopy(told().versions)
    versions[0]["spec"]["later"] = {"than": "this"}
    versions[1]["status"]["phase"] = "Retired"
    view = playbook_view("formula", Seen({"status": {"conditions": 7}}, tuple(versions)), "")
    assert "cannot read it" in view.message
    assert {one.phase.text for one in view.versions} == {"Previous", "Retired", "Refused", "Candidate"}
    retired = next(one for one in view.versions if one.phase.text == "Retired")
    assert "cannot read it" in retired.message and retired.gates == ()


def test_nothing_is_there_yet() -> None:
    view = playbook_view("formula", Seen({}), "")
    assert (view.versions, view.compared, view.served) == ((), ("", ""), "")


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        (("Active", "Candidate", "Previous"), (0, 1)),
        (("Active", "Previous"), (1, 0)),
        (("Active", "Refused"), (1, 0)),
        (("Refused", "Candidate"), (0, 1)),
    ],
)
def test_what_one_wants_to_compare_first(phases: tuple[str, ...], expected: tuple[int, int]) -> None:
    versions = copy.deepcopy(told().versions[: len(phases)])
    for one, phase in zip(versions, phases, strict=True):
        one["status"]["phase"] = phase
    view = playbook_view("formula", Seen({}, tuple(versions)), "")
    digests = [one["spec"]["digest"] for one in versions]
    assert set(view.compared) == {digests[at] for at in expected}
    if "Active" in phases:
        assert view.compared == tuple(digests[at] for at in expected)


def test_only_words_that_are_good_or_bad_have_a_colour() -> None:
    assert [Word(text).tone for text in ("Active", "Failed", "Inconclusive", "<b>")] == [
        "good",
        "bad",
        "plain",
        "plain",
    ]


# -- the curve -----------------------------------------------------------------------------------------


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    """Any curve that the operator could have kept."""
    steps = draw(st.lists(st.integers(1, 5000), min_size=1, max_size=60))
    looks = []
    for at in range(len(steps)):
        low, mean, high = sorted(draw(st.integers(-10_000, 10_000)) / 10_000 for _ in range(3))
        looks.append(Look(60 * at, sum(steps[: at + 1]), mean, low, high))
    epsilon = draw(st.sampled_from([0.0005, 0.005, 0.01, 0.05, 0.3, 1.0]))
    return Curve("t", "Promotion", "a" * 64, epsilon, 0.0, tuple(looks))


@given(curves())
def test_a_curve_is_inside_its_picture_and_its_axes_have_few_round_labels(curve: Curve) -> None:
    plot = plot_of(curve)
    assert plot is not None
    right, bottom = plotting.WIDTH - plotting.RIGHT, plotting.HEIGHT - plotting.BOTTOM
    for dot in plot.dots:
        assert plotting.LEFT <= dot.x <= right
        assert plotting.TOP <= dot.high <= dot.y <= dot.low <= bottom
    assert plotting.TOP <= plot.zero <= plot.floor <= bottom
    assert all(a.x <= b.x for a, b in pairwise(plot.dots))
    for ticks in (plot.xs, plot.ys):
        assert 2 <= len(ticks) <= 9
        assert len({tick.label for tick in ticks}) == len(ticks)
    assert "0" in [tick.label for tick in plot.ys]
    assert len(plot.rows) == len(curve.looks)


def test_the_words_beside_a_curve_say_what_it_shows() -> None:
    def alt(low: float, high: float) -> str:
        plot = plot_of(
            Curve("t", "Promotion", "a" * 64, 0.05, 0.0, (Look(3600, 200, 0.5 * (low + high), low, high),))
        )
        assert plot is not None
        return plot.alt

    assert alt(-0.04, 0.06).endswith(
        "After 200 pairs, 1 h 00 min: +0.010 [−0.040, +0.060]; the lower end has reached −0.050: no worse."
    )
    assert alt(-0.30, -0.06).endswith("the upper end is under −0.050: worse.")
    assert alt(-0.30, 0.06).endswith("−0.050 is inside: not decided.")
    assert plot_of(Curve("t", "Promotion", "", 0.05, 0.0)) is None


# -- contents ------------------------------------------------------------------------------------------


def test_bullets_are_shown_by_section_with_their_votes() -> None:
    content = content_of(AFTER)
    assert [section.title for section in content.sections] == [
        "strategies",
        "formulas and calculations",
        "mistakes to avoid",
    ]
    assert (content.bullets, content.hidden) == (5, 0)
    assert content.sections[1].bullets[0].votes == "helpful 12, harmful 1"


def test_what_changed_is_told_by_section_and_marked_in_the_words() -> None:
    found = difference_of(BEFORE, AFTER)
    assert (found.added, found.removed, found.changed, found.same) == (2, 1, 1, 2)
    first = next(one for one in found.sections if one.changed)
    (change,) = first.changed
    assert [piece.text for piece in change.before if piece.differs] == ["two"]
    assert [piece.text for piece in change.after if piece.differs] == ["three"]
    assert [bullet.id for bullet in first.removed] == ["cal-3"]


def test_a_text_is_shown_and_compared_as_its_own_method_says() -> None:
    """Only ACE reads sections, ids and votes in a text; the lines of any other are lines."""
    for method in ("GEPA", "Unknown"):
        content = content_of(AFTER, method)
        assert (content.bullets, [section.title for section in content.sections]) == (0, [""])
        assert len(content.sections[0].bullets) == len([line for line in AFTER.splitlines() if line])
        (section,) = difference_of(BEFORE, AFTER, (method, method)).sections
        assert (section.title, section.changed, len(section.removed)) == ("", (), 3)
    assert difference_of(BEFORE, AFTER, ("", "GEPA")) == difference_of(BEFORE, AFTER, ("GEPA", "GEPA"))


words = st.lists(st.sampled_from(["a", "b", "c"]), max_size=8).map(" ".join)


@given(words, words)
def test_marked_words_put_together_are_the_texts(before: str, after: str) -> None:
    both = reworded(Changed("s", "x-1", before, after))
    for text, pieces in ((before, both.before), (after, both.after)):
        assert " ".join(piece.text for piece in pieces) == text
        assert [one.differs for one in pieces].count(True) <= 1
    if before == after:
        assert not any(piece.differs for piece in (*both.before, *both.after))


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_two_texts_can_be_shown_and_compared(before: str, after: str) -> None:
    content_of(before)
    found = difference_of(before, after)
    shown = sum(len(one.added) + len(one.removed) + len(one.changed) for one in found.sections)
    assert shown + found.hidden == found.added + found.removed + found.changed


def test_a_text_that_is_too_long_for_a_page_is_cut_and_it_says_so() -> None:
    many = "".join(f"[x-{at}] helpful=0 harmful=0 :: lesson {at}\n" for at in range(MOST_ENTRIES + 7))
    content = content_of(many)
    assert (content.bullets, content.hidden) == (MOST_ENTRIES + 7, 7)
    found = difference_of("", many)
    assert (found.added, found.hidden) == (MOST_ENTRIES + 7, 7)
    long = content_of("x" * 900_000)
    assert len(long.sections[0].bullets[0].text) < 2000


def test_the_first_version_has_no_curve() -> None:
    first = view().version(FIRST)
    assert first is not None and first.figures == ()
