"""A class of the user's own: loaded where it may be, kept to the protocol, and named when it is not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from combee.api.load import parse_run
from combee.errors import DataError, ManifestError
from combee.records import Example
from combee.tasks.container import ContainerTask
from combee.tasks.custom import load_task
from combee.tasks.formula import FormulaTask
from combee.tasks.registry import task_of

ROOT = Path(__file__).resolve().parents[3]
GOOD = (ROOT / "examples/tickets/routing.py").read_text()
EXAMPLE = Example("1", "My parcel is lost.", "LOG-4", "d")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of the user's that can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "own_task.py"
    sys.modules.pop("own_task", None)


def test_a_task_is_called_by_the_type_that_the_manifest_names(module: Path) -> None:
    module.write_text(GOOD)
    assert load_task("own_task:Routing").name == "Custom"
    assert load_task("own_task:Routing", "Figures").name == "Figures"


def test_the_example_is_a_task(module: Path) -> None:
    module.write_text(GOOD)
    task = load_task("own_task:Routing")
    rows = task.read_rows([b'{"id": "a", "text": "Where is it?", "queue": "LOG-4"}\n'], "t.jsonl")
    assert [(one.id, one.input, one.target) for one in rows.examples] == [("a", "Where is it?", "LOG-4")]
    assert task.model_input(rows.examples[0]) == "Ticket: Where is it?"
    assert task.parse_answer(" log-4. ") == "LOG-4"
    assert task.score("log-4", EXAMPLE).correct
    assert task.score("FIN-7", EXAMPLE).feedback == "The ticket belongs to LOG-4."
    assert "codes are this company's own" in task.instructions


def test_a_class_may_change_how_a_type_that_is_there_scores_and_nothing_else(module: Path) -> None:
    """The one that docs/evaluator.md shows."""
    page = (ROOT / "docs/evaluator.md").read_text()
    module.write_text(page.partition("```python\n")[2].partition("```")[0])
    task = load_task("own_task:WithinTenPercent")
    (row,) = task.read_rows([b'{"context": "What is it?", "target": "200"}\n'], "t.jsonl").examples
    assert task.instructions == FormulaTask().instructions and task.model_input(row) == "What is it?"
    scores = {answer: task.score(answer, row) for answer in ("200", "205", "212", "250", "none")}
    assert [score.value for score in scores.values()] == pytest.approx([1.0, 0.75, 0.4, 0.0, 0.0])
    assert [score.correct for score in scores.values()] == [True, True, False, False, False]
    assert scores["205"].feedback == "Expected 200; 0.75 of 1."


def test_the_manifest_names_it(module: Path) -> None:
    module.write_text(GOOD)
    document = {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": "r"},
        "spec": {
            "task": {
                "type": "Custom",
                "custom": {"class": "own_task:Routing", "image": "registry.example.com/r:1"},
                "data": {"train": {"uri": "t"}, "heldOut": {"uri": "h"}},
            },
            "method": {"type": "ACE"},
            "models": {
                role: {"endpoint": {"url": "http://127.0.0.1:1/v1", "model": "m"}}
                for role in ("task", "proposer")
            },
        },
    }
    run = parse_run(document, "test")
    assert task_of(run.spec.task).model_input(EXAMPLE) == "Ticket: My parcel is lost."
    container = run.spec.task.model_copy(
        update={"custom": run.spec.task.custom.model_copy(update={"class_": None})}
    )
    assert task_of(container) == ContainerTask()


def test_rows_that_are_unfit_are_the_tasks_own_error(module: Path) -> None:
    module.write_text(GOOD)
    with pytest.raises(DataError, match=r"t\.jsonl:1: the row has no queue"):
        load_task("own_task:Routing").read_rows([b'{"text": "a"}'], "t.jsonl")


BROKEN = [
    ("own_task:Missing", "x = 1", "the module own_task has no Missing"),
    ("own_task:x", "x = 1", "something that is no class called x"),
    ("no_such_module:A", "", "there is no module no_such_module here"),
    ("own_task.inner:A", "", "there is no module own_task.inner here"),
    ("own_task:A", "import no_such_thing", "importing it raised ModuleNotFoundError at own_task.py:1"),
    ("own_task:A", "def", "importing it raised SyntaxError"),
    ("own_task:A", "raise SystemExit(0)", "importing it raised SystemExit at own_task.py:1"),
    ("own_task:A", "1 / 0", "importing it raised ZeroDivisionError at own_task.py:1"),
    ("own_task:A", "class A:\n  def __init__(self, x): ...", "__init__ raised TypeError"),
    ("own_task:A", "class A: ...", "own_task:A has no method read_rows, model_input, parse_answer, score"),
    (
        "own_task:Routing",
        GOOD.replace("instructions = (", "other = ("),
        "own_task:Routing has no text instructions",
    ),
]


@pytest.mark.parametrize(("path", "text", "said"), BROKEN, ids=[said for _, _, said in BROKEN])
def test_a_class_that_is_none_is_named(module: Path, path: str, text: str, said: str) -> None:
    module.write_text(text)
    with pytest.raises(ManifestError, match=r"^spec\.task\.custom\.class: ") as refused:
        load_task(path)
    assert said in str(refused.value)


MISTAKES = [
    ("return Score(float(right), right, said)", "return 1.0", "score must return a Score"),
    ("return Score(float(right), right, said)", "return Score(2.0, right, said)", "a value from 0 to 1"),
    (
        "return Score(float(right), right, said)",
        "return Score(float('nan'), right, said)",
        "a value from 0 to 1",
    ),
    (
        "return Score(float(right), right, said)",
        "return Score(1.0, right, said, 7)",
        "a partial credit from 0 to 1",
    ),
    (
        "return Score(float(right), right, said)",
        "raise KeyError(example.input)",
        "score raised KeyError at own_task.py",
    ),
    ("return Score(float(right), right, said)", "raise SystemExit(0)", "score raised SystemExit"),
]


@pytest.mark.parametrize(("good", "bad", "said"), MISTAKES)
def test_a_mistake_of_the_class_is_no_wrong_answer(module: Path, good: str, bad: str, said: str) -> None:
    module.write_text(GOOD.replace(good, bad))
    with pytest.raises(ManifestError) as refused:
        load_task("own_task:Routing").score("LOG-4", EXAMPLE)
    assert said in str(refused.value)
    assert "parcel" not in str(refused.value)


def test_other_members_are_kept_to_the_protocol_too(module: Path) -> None:
    module.write_text(
        GOOD.replace('return f"Ticket: {example.input}"', "return None")
        .replace('return text.strip().strip(".").upper()', "return 3")
        .replace(
            'return read_jsonl(data, where=where, fields=Fields(input="text", target="queue"))', "return []"
        )
    )
    task = load_task("own_task:Routing")
    for said, call in (
        ("model_input must return text, not NoneType", lambda: task.model_input(EXAMPLE)),
        ("parse_answer must return text, not int", lambda: task.parse_answer("a")),
        ("read_rows must return a Dataset with examples", lambda: task.read_rows([b"{}"], "t")),
    ):
        with pytest.raises(ManifestError, match=said):
            call()
