"""The house rules that no linter knows."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from combee.names import VLLM_VERSION

PACKAGE = Path(__file__).resolve().parents[2] / "operator" / "combee"
FILES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(PACKAGE)) for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_files_have_at_most_400_lines_and_functions_50(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    functions = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = {
        f.name: f.end_lineno - f.lineno + 1
        for f in functions
        if f.end_lineno and f.end_lineno - f.lineno + 1 > 50
    }
    assert long == {}


def test_only_settings_reads_the_environment() -> None:
    readers = [
        name
        for name, path in zip(NAMES, FILES, strict=True)
        if "os.environ" in path.read_text() or "getenv" in path.read_text()
    ]
    assert readers == ["settings.py"]


def test_one_version_of_vllm_in_code_image_chart_and_docs() -> None:
    root = PACKAGE.parents[1]
    places = [root / "pyproject.toml", root / "README.md"]
    places += [
        p
        for room in ("docs", "images", "charts", "examples")
        for p in (root / room).rglob("*")
        if p.is_file()
    ]
    pattern = re.compile(r"vllm(?:-openai)?(?::v|==| )([0-9]+(?:\.[0-9]+)+)", re.IGNORECASE)
    named = {
        str(path.relative_to(root)): versions
        for path in places
        if (versions := set(pattern.findall(path.read_text(errors="replace"))))
    }
    assert {version for versions in named.values() for version in versions} == {VLLM_VERSION}
    required = {
        "pyproject.toml",
        "docs/install.md",
        "images/vllm/Dockerfile",
        "charts/combee-operator/values.yaml",
    }
    assert required <= named.keys()


def test_no_lock_holds_vllm() -> None:
    root = PACKAGE.parents[1]
    locks = [*root.glob("*.lock"), *root.glob("images/*/*.lock")]
    assert locks
    assert [lock.name for lock in locks if re.search(r"^vllm==", lock.read_text(), re.MULTILINE)] == []


def test_operator_is_no_package() -> None:
    assert not (PACKAGE.parent / "__init__.py").exists()


def test_no_eval_and_no_unsafe_yaml() -> None:
    for path in FILES:
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        names = {call.id for call in calls if isinstance(call, ast.Name)}
        assert not names & {"eval", "exec", "__import__"}, path
        attributes = {call.attr for call in calls if isinstance(call, ast.Attribute)}
        assert "unsafe_load" not in attributes, path


def test_no_two_modules_of_tests_have_one_name() -> None:
    """Tests are no package: pytest imports each by its base name, and refuses a second file of that name."""
    names = Counter(path.name for path in PACKAGE.parents[1].glob("tests/**/*.py"))
    del names["conftest.py"]
    assert [name for name, count in names.items() if count > 1] == []
