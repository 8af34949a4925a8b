"""A form that asks for the ids of what may stand: the same entries are carried, and fewer are written."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sim_public_forms as forms
from sim_fixtures import body, model
from test_sim_forms import LEAF, values

from combee.sim import lessons
from combee.sim.prompts import tokens

TOLD = "ids of given items that are carried on unchanged"
ID = {"type": "string", "description": "an id"}
FLAT = {"type": "array", "description": TOLD, "items": ID}
NESTED = {"type": "array", "description": TOLD, "items": {"type": "array", "items": ID}}


def with_keep(keep: dict[str, Any], name: str = "keep") -> dict[str, Any]:
    return {"type": "object", "properties": {name: keep, **LEAF["properties"]}}


def given(count: int = 60, copies: int = 1, more: str = "") -> str:
    """Short entries: ``copies`` wordings of each of ``count`` notes."""
    lines = [
        f"[u-{1 + i * copies + c}] (ADD) {lessons.note_entry('it', lessons.note('keep', i), c)}{more}"
        for i in range(count)
        for c in range(copies)
    ]
    return f"Merge them.\n\n{forms.playbook([])}\n\n# ENTRIES ({len(lines)})\n\n" + "\n".join(lines) + "\n"


def reply(text: str, schema: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(model().respond(body(text, seed, schema)).text)
    return said


def groups(said: dict[str, Any], text: str) -> set[str]:
    """The notes carried, kept or written, whichever way they are said."""
    lines = {line.partition("]")[0][1:]: line for line in text.split("\n") if line.startswith("[u-")}
    named = [one if isinstance(one, list) else [one] for one in said.get("keep", [])]
    kept = [lines[id_] for ids in named for id_ in ids if id_ in lines]
    written = [entry["text"] for entry in said["entries"]]
    return {note for text in kept + written for note, _ in lessons.notes_in(text)}


@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("keep", [FLAT, NESTED], ids=["a list", "a list of lists"])
def test_the_same_entries_are_carried_as_without(keep: dict[str, Any], copies: int) -> None:
    text = given(40, copies)
    for seed in range(12):
        plain, other = reply(text, LEAF, seed), reply(text, with_keep(keep), seed)
        assert groups(plain, text) == groups(other, text) and groups(plain, text)
        cited = sorted(id_ for entry in plain["entries"] for id_ in entry["reflections"])
        named = [id_ for one in other["keep"] for id_ in (one if isinstance(one, list) else [one])]
        assert sorted(named + [i for e in other["entries"] for i in e["reflections"]]) == cited


def test_what_was_given_is_named_and_what_lost_its_anchor_is_written() -> None:
    said = [reply(given(150), with_keep(NESTED), seed) for seed in range(20)]
    anew = [entry["text"] for one in said for entry in one["entries"]]
    assert anew and all(text.startswith(lessons.PLATITUDE) for text in anew)
    assert all(one["keep"] for one in said)


def test_a_plain_list_cannot_say_that_two_are_one() -> None:
    said = reply(given(20, 2), with_keep(FLAT))
    assert not said["keep"] and all(len(entry["reflections"]) >= 2 for entry in said["entries"])
    nested = reply(given(20, 2), with_keep(NESTED))
    assert nested["keep"] and all(len(ids) >= 2 for ids in nested["keep"])


def test_raw_reflections_and_items_of_several_lessons_are_written_anew() -> None:
    long = " And so on, at length." * 30
    assert not reply(given(20, more=long), with_keep(NESTED))["keep"]
    two = "; " + lessons.note_entry("that", lessons.note("second"))
    assert not reply(given(20, more=two), with_keep(NESTED))["keep"]


def test_an_invented_id_stands_beside_the_true_ones() -> None:
    text = given(40)
    named = [ids for seed in range(40) for ids in reply(text, with_keep(NESTED), seed)["keep"]]
    invented = [ids for ids in named if any(int(id_[2:]) > 40 for id_ in ids)]
    assert 0 < len(invented) < 0.06 * len(named)
    assert all(int(ids[0][2:]) <= 40 for ids in named)


def test_names_of_fields_say_nothing_and_the_description_says_it() -> None:
    text = given(30)
    plain = reply(text, with_keep(NESTED))
    assert plain["keep"] and values(reply(text, with_keep(NESTED, "zq7"))) == values(plain)
    silent = {key: value for key, value in NESTED.items() if key != "description"}
    for name in ("keep", "unchanged_ids"):
        said = reply(text, with_keep(silent, name))
        assert said[name] == [] and said["entries"]


def test_the_reply_is_shorter_by_what_is_not_written() -> None:
    served, text = model(), given(40)
    plain = served.respond(body(text, 0, LEAF)).text
    short = served.respond(body(text, 0, with_keep(NESTED))).text
    assert tokens(short) < tokens(plain) / 5
