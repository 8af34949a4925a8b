"""One word per thing: names in the code against docs/glossary.md, and words that no name may be."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "operator" / "combee"
GLOSSARY = ROOT / "docs" / "glossary.md"
NOT_A_NOUN = frozenset({"found", "said", "told", "there", "mine", "theirs", "wished", "asked"})
"""What happened to a value says not what it is."""
IN_A_STATUS = ("api/playbook_status.py", "asked")
"""a field of the CRD, which keeps its name."""


def rows(title: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    section = GLOSSARY.read_text().partition(f"{title}\n")[2].partition("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def allowed() -> dict[str, list[str]]:
    """Word -> the files in which names may have it."""
    return {word: re.findall(r"`([^`]+)`", files) for word, files in rows("## Names in the code")}


@cache
def words(name: str) -> tuple[str, ...]:
    """The stems of a name's words, in order.

    >>> words("CanaryTested"), words("read_manifests"), words("judging") == words("_judge") == words("JUDGES")
    (('canary', 'test'), ('read', 'manifest'), True)
    """
    parts = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)
    return tuple(re.sub(r"(?<=\w{3})(?:ing|ed|er|es|e|s)$", "", part.lower()) for part in parts)


def has(name: str, word: str) -> bool:
    """Whether a name holds a word in any of its forms; ``canary-eval`` is two words, one after the other.

    >>> has("judged_pairs", "judge"), has("_CanaryEval", "canary-eval"), has("latest", "test")
    (True, True, False)
    """
    return stems(word) in stems(name)


@cache
def stems(*named: str) -> str:
    """The words of names, with two spaces between one name's and the next one's."""
    return "".join(f" {' '.join(words(name))} " for name in named)


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


@cache
def names(tree: ast.Module) -> tuple[str, ...]:
    """Of classes and functions, parameters, fields and locals, of whatever depth, each once."""
    return tuple(dict.fromkeys(name for node in nodes(tree) if (name := name_of(node))))


def name_of(node: ast.AST) -> str:
    """The name that a node gives to something; empty where it gives none."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.id if isinstance(node, ast.Name) else node.attr
    return node.arg if isinstance(node, ast.arg) else ""


FILES = sorted(path.relative_to(PRODUCT).as_posix() for path in PRODUCT.rglob("*.py"))
STRANGER = "sim/"
"""has words of its own."""


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {file: ast.parse((PRODUCT / file).read_text()) for file in FILES}


def misnamed(file: str, tree: ast.Module, glossary: dict[str, list[str]]) -> list[str]:
    """Names of a file with a word that stands for another thing there."""
    every = tuple(dict.fromkeys((Path(file).stem, *names(tree))))
    held = [word for word in glossary if stems(word) in stems(*every)]
    return [
        f"{file}: {name} ({word})"
        for name in every
        for word in held
        if has(name, word) and not any(fnmatchcase(file, pattern) for pattern in glossary[word])
    ]


def test_a_word_of_the_glossary_names_one_thing(trees: dict[str, ast.Module]) -> None:
    glossary = allowed()
    assert {"test", "replay", "manifest", "adapter", "trial", "receipt", "judge", "canary-eval"} <= set(
        glossary
    )
    wrong = {file: misnamed(file, tree, glossary) for file, tree in trees.items()}
    assert [line for file, lines in wrong.items() if not file.startswith(STRANGER) for line in lines] == []


def test_no_place_of_the_glossary_is_out_of_use(trees: dict[str, ast.Module]) -> None:
    unused = []
    for word, patterns in allowed().items():
        having = [file for file, tree in trees.items() if misnamed(file, tree, {word: []})]
        unused += [(word, p) for p in patterns if not any(fnmatchcase(file, p) for file in having)]
    assert unused == []


def test_a_wrong_name_is_seen() -> None:
    tree = ast.parse("class CanaryTest: ...\ndef f(tested): self.test_id, judging = 1, 2")
    assert misnamed("api/x.py", tree, {"test": [], "judge": []}) == [
        "api/x.py: CanaryTest (test)",
        "api/x.py: tested (test)",
        "api/x.py: test_id (test)",
        "api/x.py: judging (judge)",
    ]
    assert misnamed("api/x.py", tree, {"test": ["api/*.py"]}) == []


@pytest.mark.parametrize("name", ["Snapshot", "AceOptions", "GepaOptions"])
def test_one_class_of_the_name(trees: dict[str, ast.Module], name: str) -> None:
    classes = [node for tree in trees.values() for node in nodes(tree) if isinstance(node, ast.ClassDef)]
    assert len([node for node in classes if node.name == name]) == 1


def test_names_say_what_a_thing_is(trees: dict[str, ast.Module]) -> None:
    wrong = {
        (file, name)
        for file, tree in trees.items()
        for name in names(tree)
        if name.strip("_").lower() in NOT_A_NOUN
    }
    assert wrong == {IN_A_STATUS}


def test_a_judge_has_no_other_name_in_texts() -> None:
    texts = [*PRODUCT.rglob("*.py"), *ROOT.glob("docs/*.md"), *ROOT.glob("charts/**/*.yaml")]
    assert [text for text in texts if text != GLOSSARY and "canary-eval" in text.read_text()] == []
