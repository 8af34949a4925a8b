"""The house rules that no linter knows."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from combee import steps
from combee.api.aggregation import STRATEGIES
from combee.api.methods import OPTIONS
from combee.names import VLLM_VERSION
from combee.pod.main import PROGRAMS
from combee.steps import KINDS, StepKind, order_of

PACKAGE = Path(__file__).resolve().parents[2] / "operator" / "combee"
FILES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(PACKAGE)) for path in FILES]


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_files_have_at_most_400_lines_and_functions_50(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400
    functions = [node for node in nodes(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
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
    pattern = re.compile(r"vllm(?:-openai|-cpu)?(?::v|==| )([0-9]+(?:\.[0-9]+)+)", re.IGNORECASE)
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
        "images/vllm-cpu/requirements.in",
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
        calls = [node.func for node in nodes(path) if isinstance(node, ast.Call)]
        names = {call.id for call in calls if isinstance(call, ast.Name)}
        confined = {"exec"} if path.name == "proof_child.py" else set()
        assert names & {"eval", "exec", "__import__"} == confined, path
        attributes = {call.attr for call in calls if isinstance(call, ast.Attribute)}
        assert "unsafe_load" not in attributes, path


TABLES = {
    "base methods": (set(OPTIONS), {"api/methods.py", "methods/registry.py"}),
    "strategies": (
        set(STRATEGIES),
        {"api/aggregation.py", "strategies.py", "work/aggregation/table.py", "compare/paper.py"},
    ),
}
"""What is listed in tables, its words, and where the tables are."""


@pytest.mark.parametrize("what", TABLES)
def test_what_is_listed_in_a_table_is_listed_nowhere_else(what: str) -> None:
    """No other module holds two of the words in a list or mapping."""
    words, tables = TABLES[what]
    for name, path in zip(NAMES, FILES, strict=True):
        if name in tables or name.startswith("sim/"):
            continue
        for node in nodes(path):
            if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
                items = node.keys if isinstance(node, ast.Dict) else node.elts
                listed = {one.value for one in items if isinstance(one, ast.Constant)}
                assert len(listed & words) < 2, f"{name}:{node.lineno}"


def test_code_asks_what_a_method_is_like_and_not_which_it_is() -> None:
    """Nothing compares a method's type with a word."""
    for name, path in zip(NAMES, FILES, strict=True):
        for node in nodes(path):
            if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith(".type"):
                words = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
                assert not words & set(OPTIONS), f"{name}:{node.lineno}"


CONSTANTS = {name: kind.name for name, kind in vars(steps).items() if isinstance(kind, StepKind)}
NAMED_BY_HAND = {
    ("work/steps.py", "diagnose, evaluate, finish, map, profile, reduce"): "the table of what each kind does",
    ("work/asker.py", "reduce"): "a stage of calls, not a step",
    ("work/finish.py", "map"): "a stage of calls, not a step",
    ("pod/main.py", "publish"): "a word of combee-worker, not a step",
}
"""Where kinds of step are listed or compared with outside their table, and why."""


def kind_named(node: ast.expr, imported: set[str]) -> str:
    """The kind of step that an expression names: a constant of ``steps``, its name, or a word.

    >>> kind_named(ast.parse("MAP.name", mode="eval").body, {"MAP"})
    'map'
    """
    if isinstance(node, ast.Attribute) and node.attr == "name":
        node = node.value
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "steps":
        return CONSTANTS.get(node.attr, "")
    if isinstance(node, ast.Name) and node.id in imported:
        return CONSTANTS.get(node.id, "")
    return str(node.value) if isinstance(node, ast.Constant) and node.value in KINDS else ""


def by_hand(tree: Iterable[ast.AST]) -> Iterator[str]:
    """The kinds of each list of two or more in a module, and of each compare with one."""
    tree = list(tree)
    imports = [node for node in tree if isinstance(node, ast.ImportFrom) and node.module == "combee.steps"]
    imported = {alias.name for node in imports for alias in node.names}
    for node in tree:
        items = list[ast.expr]()
        if isinstance(node, ast.Compare):
            items = [one for side in (node.left, *node.comparators) for one in (listed(side) or [side])]
        elif isinstance(node, ast.MatchValue):
            items = [node.value]
        kinds = {kind for item in items or listed(node) if (kind := kind_named(item, imported))}
        if len(kinds) >= (1 if items else 2):
            yield ", ".join(sorted(kinds))


def listed(node: ast.AST) -> list[ast.expr]:
    """The items of a list, the keys of a mapping; none of anything else."""
    if isinstance(node, ast.Dict):
        return [key for key in node.keys if key is not None]
    return node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else []


def test_kinds_of_step_are_listed_and_compared_with_in_their_table_only() -> None:
    found = {
        (name, kinds)
        for name, path in zip(NAMES, FILES, strict=True)
        if name != "steps.py" and not name.startswith("sim/")
        for kinds in by_hand(nodes(path))
    }
    assert found == set(NAMED_BY_HAND)


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        ("kind is MAP", ["map"]),
        ("step.kind != MAP.name", ["map"]),
        ("kind in (MAP.name, 'bad')", ["map"]),
        ("{MAP.name: 0, REDUCE.name: 2}.get(kind, 1)", ["map, reduce"]),
        ("stage == 'map'", ["map"]),
        ("match kind:\n    case MAP.name:\n        pass", ["map"]),
        ("steps[MAP.name]", []),
    ],
)
def test_a_kind_named_by_hand_is_seen(code: str, kinds: list[str]) -> None:
    tree = ast.parse(f"from combee.steps import MAP, REDUCE\n{code}")
    assert list(by_hand(ast.walk(tree))) == kinds


THEIR_OWN = (
    *(f"methods/{name.lower()}/" for name in OPTIONS),
    "methods/registry.py",
    "api/methods.py",
    "api/method_",
)
"""Where a base method is named: in its own modules, and in the two tables."""
NAMED = {
    "api/tasks.py": "adapters of the gepa package, with any method",
    "tasks/adapter.py": "adapters of the gepa package, with any method",
    "cli/options.py": "an example in the help of --methods",
    "compare/paper.py": "what the paper's own runs learned by",
    "compare/overview.py": "what the paper's own runs learned by",
}
"""Other modules whose texts name one, and why."""


def test_only_a_method_and_the_tables_name_a_base_method() -> None:
    """No other module imports one, or holds its name in a text; docstrings may speak of it."""
    spelled = {word for name in OPTIONS for word in (name, name.lower())}
    pattern = re.compile(rf"\b({'|'.join(sorted(spelled))})\b")
    modules = tuple(f"combee.methods.{name.lower()}" for name in OPTIONS)
    naming = set()
    for name, path in zip(NAMES, FILES, strict=True):
        if name.startswith(THEIR_OWN):
            continue
        docs = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
        for node in nodes(path):
            imported = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                imported = [f"{node.module}.{one.name}" for one in node.names]
            assert not any(f"{one}.".startswith(f"{module}.") for one in imported for module in modules), (
                f"{name}:{node.lineno}"
            )
            text = node.value if isinstance(node, ast.Constant) and id(node) not in docs else None
            if isinstance(text, str) and pattern.search(text):
                assert name in NAMED, f"{name}:{node.lineno}"
                naming.add(name)
    assert naming == set(NAMED)


def test_every_kind_of_step_waits_for_earlier_ones_and_has_a_program() -> None:
    for kind in KINDS.values():
        assert kind.command in PROGRAMS
        assert all(order_of(name) < order_of(kind.name) for name in kind.waits_for)


def test_no_two_modules_of_tests_have_one_name() -> None:
    """Tests are no package: pytest imports each by its base name, and refuses a second file of that name."""
    names = Counter(path.name for path in PACKAGE.parents[1].glob("tests/**/*.py"))
    del names["conftest.py"]
    assert [name for name, count in names.items() if count > 1] == []


WAITS = {"asyncio", "random", "select", "selectors", "signal", "socket", "threading", "time"}
"""Modules by which everything in a process waits and draws, servers that other tests started among it."""


def replaced_for_all(tree: ast.AST) -> list[str]:
    """Return what a test replaces in one of WAITS, through whatever module it names it."""
    replaced = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "setattr":
            where, *rest = node.args
            place = where.value if isinstance(where, ast.Constant) else ast.unparse(where)
            what = [one.value for one in rest[:1] if isinstance(one, ast.Constant)]
            replaced.append(".".join(map(str, [place, *what])))
    return [name for name in replaced if WAITS & set(name.split(".")[:-1])]


def test_no_test_replaces_what_servers_of_other_tests_wait_by() -> None:
    sleep = ast.parse("""monkeypatch.setattr("combee.operator.lease.asyncio.sleep", s)""")
    now = ast.parse("""patch.setattr(time, "monotonic", s); patch.setattr(lease, "time", s)""")
    assert replaced_for_all(sleep) == ["combee.operator.lease.asyncio.sleep"]
    assert replaced_for_all(now) == ["time.monotonic"]
    tests = PACKAGE.parents[1].glob("tests/**/*.py")
    wrong = {(path.name, name) for path in tests for name in replaced_for_all(ast.parse(path.read_text()))}
    # No server starts a process, and names of the test's own alone resolve otherwise.
    passed = {("test_compare.py", "asyncio.create_subprocess_exec"), ("test_reach.py", "socket.getaddrinfo")}
    assert wrong == passed
