"""A program of a playbook: a function in Python with its own test, as one text in one form.

The form is what makes a program safe to show: the function and the test begin at the margin and everything
else is indented by four spaces, so that no line of it can open a section, end a block or pose as a bullet. It
is read by its lines alone: only a sandbox parses what a model wrote as Python.
"""

from __future__ import annotations

import re

from combee.algo.linear import normalized

SECTION = "programs"
"""The key of the section that programs stand in."""
MAX_PROGRAM_CHARS = 8000
OPENS, CLOSES = "```python", "```"
"""The lines around a program in a playbook."""

_FUNCTION = re.compile(r"def [A-Za-z_][A-Za-z0-9_]{0,59}\(")
_TEST = re.compile(r"def test_[A-Za-z0-9_]{1,60}\(\)(?: -> None)?:")


def written(text: str) -> str:
    """Return a program in its one form, with or without a fence around it; empty where ``text`` is none.

    Idempotent. Cost: linear in the text.
    """
    if len(text) > MAX_PROGRAM_CHARS:
        return ""
    lines = [line.rstrip() for line in normalized("NFC", text).strip().split("\n")]
    if lines[0].startswith(CLOSES) and lines[-1] == CLOSES:
        lines = "\n".join(lines[1:-1]).strip("\n").split("\n")
    margin = [number for number, line in enumerate(lines) if line and not line.startswith("    ")]
    if len(margin) != 2 or margin[0] or not all(line.isprintable() for line in lines):
        return ""
    function, test = lines[: margin[1]], lines[margin[1] :]
    if not _FUNCTION.match(function[0]) or not _TEST.fullmatch(test[0]) or len(test) == 1:
        return ""
    return "\n\n\n".join("\n".join(part).rstrip("\n") for part in (function, test))


def is_program(text: str) -> bool:
    """Return whether ``text`` is a program in its one form: every other entry is one line."""
    return "\n" in text and written(text) == text


def name_of(program: str) -> str:
    """Return the name of a program's function.

    >>> name_of("def days(a, b):")
    'days'
    """
    return program[len("def ") : program.index("(")]


def block(program: str) -> str:
    """Return a program as it stands in a playbook, below its bullet."""
    return f"{OPENS}\n{program}\n{CLOSES}"
