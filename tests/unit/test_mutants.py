"""The list of defects fits the tree: what is renamed or moved is renamed there, too."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from mutants import PRODUCT, ROOT, Mutant, read_list, rests_on

MUTANTS = read_list()


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_defect_has_its_place_and_its_tests(mutant: Mutant) -> None:
    path = ROOT / PRODUCT / mutant.file
    right = path.read_text()
    ast.parse(mutant.applied(right))
    assert mutant.old != mutant.new and mutant.why.endswith(".")
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).exists(), test
        assert not name or name.partition("[")[0] in functions(ROOT / file), test
        assert mutant.cluster or not file.startswith("tests/cluster")


def test_no_two_have_one_name() -> None:
    assert [name for name, times in Counter(one.name for one in MUTANTS).items() if times > 1] == []


@pytest.mark.parametrize(
    ("failure", "rests"),
    [
        ("tests/a/test_b.py::test_c[1]", True),
        ("tests/a/test_b.py::test_c", True),
        ("tests/a/test_b.py::test_cd", False),
        ("tests/x/test_y.py::test_z", True),
        ("tests/x/test_yy.py::test_z", False),
    ],
)
def test_what_fails_without_a_defect_tells_nothing_of_it(failure: str, rests: bool) -> None:
    mutant = Mutant("m", "f", "o", "n", "w.", ("tests/a/test_b.py::test_c", "tests/x/test_y.py"))
    assert rests_on(mutant, [failure]) is rests
