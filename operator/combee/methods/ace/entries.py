"""The text of an entry: one line or a program, bounded, and named by its content.

Texts come from models and from people's files and may hold anything. ``normalise_entry`` makes one
safe line of them, so that no text can end a bullet, open a section, or pose as another bullet.
"""

from __future__ import annotations

import hashlib
import re

from combee.methods.ace.program import block, is_program, name_of
from combee.methods.replies import one_line

MAX_ENTRY_CHARS = 1200
MAX_SECTION_CHARS = 60
DEFAULT_SECTION = "others"
SECTIONS = (
    "strategies",
    "formulas and calculations",
    "code and templates",
    "mistakes to avoid",
    "context clues",
    "output format",
    DEFAULT_SECTION,
)
"""The sections a new playbook is offered, in the order they are rendered; others may join them."""

BULLET = re.compile(
    r"^\[(?P<id>[^\]\s]{1,64})\] *helpful=(?P<helpful>\d{1,9}) *harmful=(?P<harmful>\d{1,9})"
    r" *:: ?(?P<text>.*)$",
    re.DOTALL,
)
"""A playbook line, ours or ACE's: ``[calc-3fa9c1] helpful=3 harmful=0 :: text``."""

CONTESTED = re.compile(r" ?\(contested: (?P<n>\d{1,9}) sources say otherwise\)$")

_LEADING = re.compile(r"^(?:\[[^\]\s]{1,64}\] *helpful=\d+ *harmful=\d+ *::|#+(?= |$)|[-*•](?= |$)|::)\s*")


def normalise_entry(text: str, *, limit: int = MAX_ENTRY_CHARS) -> str:
    """Return the text of an entry: one line of at most ``limit`` characters without bullet head, list mark,
    heading mark or contested tail. Idempotent; empty when nothing is left."""
    text = one_line(text[: limit * 8])
    while True:
        before = text
        text = _LEADING.sub("", text, count=1)
        text = CONTESTED.sub("", text)
        text = text[:limit].strip()
        if text == before:
            return text


def as_kept(text: str) -> str:
    """Return the text of an entry as a ledger keeps it: a program as it is, anything else on one line."""
    return text if is_program(text) else normalise_entry(text)


def entry_digest(text: str) -> str:
    """Return the sha256 hex of a normalised text: equal words are one entry, whoever wrote them."""
    return hashlib.sha256(b"entry\n" + text.encode("utf-8")).hexdigest()


def text_digest(text: str) -> str:
    """Return the sha256 hex of the text alone."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def section_key(title: str) -> str:
    """Return the key of a section: ``"Formulas & Calculations"`` and ``formulas_and_calculations`` have the
    same one. It has at most 60 characters, and is ``others`` when nothing is left."""
    title = one_line(title[: MAX_SECTION_CHARS * 8]).replace("_", " ").replace("&", " and ")
    key = " ".join(title.strip("#: ").casefold().upper().casefold().split())
    return key[:MAX_SECTION_CHARS].strip("#: ") or DEFAULT_SECTION


def section_slug(key: str) -> str:
    """Return three or four letters for bullet ids: ``"calculations"`` -> ``"calc"``."""
    words: list[str] = re.findall(r"[a-z]+", key)
    for word in words:
        if len(word) >= 3:
            return word[:4]
    letters = "".join(words)[:4]
    return letters if len(letters) >= 3 else "misc"


def bullet_line(bullet_id: str, helpful: int, harmful: int, text: str, contested: int = 0) -> str:
    """Return one line of a playbook, and below it the program where the entry is one; ``contested`` is the
    number of sources that say otherwise."""
    tail = f" (contested: {contested} sources say otherwise)" if contested else ""
    head = f"[{bullet_id}] helpful={helpful} harmful={harmful} ::"
    return f"{head} {name_of(text)}{tail}\n{block(text)}" if is_program(text) else f"{head} {text}{tail}"
