"""No pattern of the product takes more than linear time, whoever wrote the text.

What is compiled by RE2 is linear by construction. Of ``re`` three shapes are refused here, from which all
slow patterns that were ever found in the product are made: a repetition in a repetition that reads the same
characters, two repetitions side by side that do, and a search that starts again from every character of a
repetition.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import combee

# The parser's tree is no public name of ``re``; it is the same in 3.11 to 3.14.
parser: Any = importlib.import_module("re._parser")
op: Any = importlib.import_module("re._constants")

UNIVERSE = frozenset(map(chr, range(0x180))) | frozenset("\u2028\u0661\u4e00\u2212\u2019\u202f\u2009≈×·•’")
REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT)


def patterns() -> dict[str, tuple[re.Pattern[str], bool]]:
    """Return all patterns of the product, and whether each is only asked whether a text begins with it, or is
    it: those that modules keep under a name, and those that stand in a call."""
    found: dict[str, tuple[re.Pattern[str], bool]] = {}
    for module in pkgutil.walk_packages(combee.__path__, "combee."):
        # The simulated model reads what our own prompts say, and no pod of a user runs it.
        if module.name.startswith("combee.sim") or module.name.endswith("__main__"):
            continue
        loaded = importlib.import_module(module.name)
        source = Path(str(loaded.__file__)).read_text()
        for name, value in vars(loaded).items():
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                uses = re.findall(rf"\b{name}\b(?! = re)(\.\w+)?", source)
                found[f"{module.name}.{name}"] = value, bool(uses) and set(uses) <= {".match", ".fullmatch"}
        named = {value.pattern for value, _ in found.values()}
        for call in ast.walk(ast.parse(source)):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in CALLS and call.args:
                form = call.args[0]
                if isinstance(form, ast.Constant) and isinstance(form.value, str) and form.value not in named:
                    way = ast.unparse(call.func)
                    found[f"{module.name}:{call.lineno}"] = re.compile(form.value), way.endswith("match")
    return found


CALLS = {
    f"re.{way}" for way in ("compile", "search", "split", "sub", "findall", "finditer", "match", "fullmatch")
}
PATTERNS = patterns()


def chars(node: Any, flags: int) -> frozenset[str]:
    """Return what one character the node can match; empty for what matches no character."""
    kind, value = node
    if kind in REPEATS or kind is op.POSSESSIVE_REPEAT:
        return frozenset().union(*(chars(one, flags) for one in value[2]))
    if kind is op.SUBPATTERN:
        return frozenset().union(*(chars(one, flags) for one in value[3]))
    if kind is op.ATOMIC_GROUP:
        return frozenset().union(*(chars(one, flags) for one in value))
    if kind is op.BRANCH:
        return frozenset().union(*(chars(one, flags) for branch in value[1] for one in branch))
    if kind is op.ANY:
        return UNIVERSE
    if kind is op.LITERAL:
        return frozenset({chr(value), chr(value).swapcase()} if flags & re.I else {chr(value)})
    if kind is op.NOT_LITERAL:
        return UNIVERSE - {chr(value)}
    if kind is op.IN:
        negated = bool(value) and value[0][0] is op.NEGATE
        hit = frozenset(one for one in UNIVERSE if any(_in(part, one, flags) for part in value))
        return UNIVERSE - hit if negated else hit
    return frozenset() if kind in (op.AT, op.ASSERT, op.ASSERT_NOT, op.FAILURE) else UNIVERSE


CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


def _in(part: Any, one: str, flags: int) -> bool:
    kind, value = part
    ways = {one, one.swapcase()} if flags & re.I else {one}
    if kind is op.LITERAL:
        return chr(value) in ways
    if kind is op.RANGE:
        return any(len(way) == 1 and value[0] <= ord(way) <= value[1] for way in ways)
    return kind is op.CATEGORY and re.match(CATEGORIES[value], one) is not None


def unbounded(node: Any) -> bool:
    return node[0] in REPEATS and node[1][1] is op.MAXREPEAT


def nullable(node: Any) -> bool:
    kind, value = node
    if kind in REPEATS or kind is op.POSSESSIVE_REPEAT:
        return value[0] == 0 or all(map(nullable, value[2]))
    if kind is op.SUBPATTERN:
        return all(map(nullable, value[3]))
    if kind is op.BRANCH:
        return any(all(map(nullable, branch)) for branch in value[1])
    return kind in (op.AT, op.ASSERT, op.ASSERT_NOT)


def inner(node: Any) -> list[Iterable[Any]]:
    """Return the sequences in a node."""
    kind, value = node
    if kind in REPEATS or kind is op.POSSESSIVE_REPEAT:
        return [value[2]]
    if kind is op.SUBPATTERN:
        return [value[3]]
    if kind is op.BRANCH:
        return list(value[1])
    return [value] if kind is op.ATOMIC_GROUP else []


def flat(sequence: Iterable[Any]) -> Iterator[Any]:
    """Yield the nodes of a sequence, those of plain groups in their place."""
    for node in sequence:
        if node[0] is op.SUBPATTERN:
            yield from flat(node[1][3])
        else:
            yield node


def first(sequence: Iterable[Any], flags: int) -> frozenset[str]:
    """Return what a sequence can begin with."""
    found: frozenset[str] = frozenset()
    for node in flat(sequence):
        parts = inner(node)
        found |= frozenset().union(*(first(part, flags) for part in parts)) if parts else chars(node, flags)
        if not nullable(node):
            break
    return found


def slow(sequence: Iterable[Any], flags: int) -> str:
    """Return which slow shape is in a sequence, or empty."""
    nodes = list(flat(sequence))
    open_to: frozenset[str] = frozenset()
    """what a repetition that may end here could have read on"""
    for node in nodes:
        if unbounded(node):
            begins = first(node[1][2], flags)
            if open_to & begins:
                return "two repetitions side by side read the same characters"
            body = list(flat(node[1][2]))
            within = [one for one in body if unbounded(one)]
            # A repetition in a repetition is told from the next one only by what stands between them.
            inside = frozenset().union(*(chars(one, flags) for one in within))
            if inside & begins:
                return "a repetition in a repetition reads the same characters"
            open_to |= begins | inside
        elif not nullable(node):
            open_to = frozenset()
        for part in inner(node):
            if found := slow(part, flags):
                return found
    return ""


def restarts(sequence: Iterable[Any], flags: int) -> bool:
    """Return whether a search reads the same repetition again from each of its characters: it comes first,
    something must follow it, and nothing before it says that it is at its beginning."""
    nodes = list(flat(sequence))
    while nodes and nodes[0][0] is op.BRANCH:
        return any(restarts([*branch, *nodes[1:]], flags) for branch in nodes[0][1][1])
    guards = []
    while nodes and nodes[0][0] in (op.AT, op.ASSERT, op.ASSERT_NOT):
        kind, value = guard = nodes.pop(0)
        if kind is not op.AT and value[0] > 0 and restarts([*guards, *value[1]], flags):
            return True
        guards.append(guard)
    if nodes and nodes[0][0] in REPEATS and nodes[0][1][0] > 0 and not unbounded(nodes[0]):
        return restarts([*guards, *nodes[0][1][2], *nodes[1:]], flags)
    if not nodes or not unbounded(nodes[0]) or all(map(nullable, nodes[1:])):
        return False
    read = chars(nodes[0], flags)
    for kind, value in guards:
        if kind is op.AT and value in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
            return bool(flags & re.M) and "\n" in read
        if kind is op.AT and value is op.AT_BOUNDARY:
            words = frozenset(one for one in UNIVERSE if re.match(r"\w", one))
            if read <= words or not read & words:
                return False
        if kind is op.ASSERT_NOT and value[0] < 0 and read <= chars(value[1][0], flags):
            return False
        if kind is op.ASSERT and value[0] < 0 and not read & chars(value[1][0], flags):
            return False
    return True


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_takes_more_than_linear_time(name: str) -> None:
    found, only_matched = PATTERNS[name]
    tree = parser.parse(found.pattern, found.flags & ~re.UNICODE)
    assert not slow(tree, found.flags), found.pattern
    assert only_matched or not restarts(tree, found.flags), f"{found.pattern} is searched for"


@pytest.mark.parametrize(
    "form",
    [
        r"\b(?:sk|pk|rk)[-_](?:[A-Za-z0-9]+[-_]?)*[A-Za-z0-9]{16,}",
        r"(?:a+)+b",
        r"(?:\w+\s?)*:",
        r"\s*x?\s*y",
        r"\\+([nrt])",
        r"[\w.]+@x",
        r"\b[\w.]+@x",
        r"(?m)^\s*x",
        r"\b(?=(?:[A-Za-z+/]*[0-9]){4})[A-Za-z0-9+/]{36,}",
    ],
)
def test_slow_patterns_are_seen(form: str) -> None:
    compiled = re.compile(form)
    tree = parser.parse(form)
    assert slow(tree, compiled.flags) or restarts(tree, compiled.flags)
