"""docs/methods.md and docs/extending.md show whole packages. They are taken from the pages as they stand,
installed into an environment of their own, and run by the command line there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e_support import ENDED, ROOT, Manifest, Sim, combee, environment

from combee.names import step_name
from combee.plan.types import Step, StepSummary
from combee.records import Lesson, Reflection
from combee.steps import PROFILE

pytestmark = pytest.mark.e2e
UID = "3fa9c1d2-0000-4000-8000-000000000000"
PAGES = ("methods.md", "extending.md")
PIP = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python")
OFFLINE = ("--no-deps", "--no-build-isolation", "--no-index")


def files_of(page: str) -> dict[str, str]:
    """The code blocks of a page that begin with the name of a file, by that name."""
    blocks = re.findall(
        r"```(?:python|toml)\n# (\S+)\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL
    )
    return dict(blocks)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with both packages installed, beside all that the product needs."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    shared = [path for path in sys.path if path.endswith("site-packages")]
    (own,) = (folder / "env").glob("lib/python*/site-packages")
    (own / "shared.pth").write_text("".join(f"{path}\n" for path in shared))
    for page in PAGES:
        package = folder / page.removesuffix(".md")
        package.mkdir()
        for name, text in files_of(page).items():
            (package / name).write_text(text)
    packages = [folder / page.removesuffix(".md") for page in PAGES]
    words = [*PIP, python, "install", *OFFLINE, *packages]
    subprocess.run(words, check=True, capture_output=True, timeout=300)
    return python


SEVERAL = """
import contextlib, io, json, sys
from combee.cli.main import main
done = []
for words in json.loads(sys.argv[1]):
    sys.argv, out, errors, code = ["combee", *words], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as end:
            code = end.code
    done.append((code, out.getvalue(), errors.getvalue()))
print(json.dumps(done))
"""
"""the command line for each of several commands, by one Python."""
Ran = subprocess.CompletedProcess[str]


@pytest.fixture
def combee_of_it(python: Path, tmp_path: Path) -> Callable[..., list[Ran]]:
    """Runs commands by the command line of that environment."""

    def started(*commands: Sequence[str | Path]) -> list[Ran]:
        words = [[str(word) for word in command] for command in commands]
        done = subprocess.run(
            [python, "-c", SEVERAL, json.dumps(words)],
            capture_output=True, text=True, cwd=tmp_path, env=environment(), timeout=500, check=True,
        )  # fmt: skip
        return [Ran(one, *told) for one, told in zip(words, json.loads(done.stdout), strict=True)]

    return started


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """The method of the page, as a module."""
    code = files_of("methods.md")["notes.py"]
    assert len(code.splitlines()) < 100
    module = types.ModuleType("notes")
    monkeypatch.setitem(sys.modules, "notes", module)
    exec(compile(code, "notes.py", "exec"), module.__dict__)
    yield module


FIXED = {"mode": "Fixed", "size": 100, "reason": "test"}


def test_the_method_of_the_page_is_installed_and_learns(
    combee_of_it: Any, quick: Sim, manifest: Manifest, rows: Any, tmp_path: Path
) -> None:
    path = manifest(train=rows(100), batching=FIXED, method={"type": "Notes"})
    learning = ("run", "-f", path, "-o", "out", "--engine", f"main={quick.url}")
    validated, previewed, done = combee_of_it(("validate", "-f", path), ("preview", "-f", path), learning)
    assert validated.returncode == 0, validated.stderr
    assert previewed.returncode == 0 and "rollouts" in previewed.stdout, previewed.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert (result["outcome"], result["setup"]["method"]) == ("Learned", "Notes")
    assert result["heldOut"]["gate"]["gain"] > 0.03
    assert result["entries"][0]["text"] in (tmp_path / "out" / "lessons.md").read_text()


def test_a_packages_task_and_strategy_run_with_a_method_that_has_options(
    combee_of_it: Any, quick: Sim, manifest: Manifest, rows: Any, tmp_path: Path
) -> None:
    path = manifest(
        train=rows(24),
        batching={**FIXED, "size": 12},
        method={"type": "ShortNotes", "options": {"maxWords": 60, "renderTokenBudget": 4000}},
        aggregation={"strategy": "Halves"},
    )
    document = yaml.safe_load(path.read_text())
    document["spec"]["task"]["type"] = "Figures"
    path.write_text(yaml.safe_dump(document))
    learning = ("run", "-f", path, "-o", "out", "--engine", f"main={quick.url}")
    previewed, done = combee_of_it(("preview", "-f", path), learning)
    assert previewed.returncode == 0, previewed.stderr
    assert done.returncode in ENDED, done.stdout + done.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    setup = result["setup"]
    assert (setup["task"], setup["method"], setup["strategy"]) == ("Figures", "ShortNotes", "Halves")
    stages = {stage["stage"]: stage["calls"] for one in result["iterations"] for stage in one["stages"]}
    assert stages["halves"] == 2
    plan = json.loads(next((tmp_path / "out" / "plans").glob("*.json")).read_text())
    assert (plan["strategy"], plan["render_token_budget"]) == ("Halves", 4000)


MISTAKES = [
    ({"method": {"type": "Note"}}, "Did you mean Notes?"),
    (
        {"method": {"type": "ShortNotes", "options": {"maxWords": 1}}},
        "options.maxWords of method ShortNotes",
    ),
    ({"method": {"type": "Notes", "options": {"colour": "red"}}}, "options.colour of method Notes"),
    ({"method": {"type": "ACE", "options": {}}}, "options is given with type ACE"),
    ({"aggregation": {"strategy": "Halfs"}}, "Did you mean Halves?"),
]


def test_what_is_wrong_with_a_packages_names_and_options_is_said(
    combee_of_it: Any, manifest: Manifest
) -> None:
    paths = [manifest(name=f"run{number}", **spec) for number, (spec, _) in enumerate(MISTAKES)]
    told = combee_of_it(*(("validate", "-f", path) for path in paths))
    for done, (_, says) in zip(told, MISTAKES, strict=True):
        assert done.returncode == 2
        assert says in " ".join(done.stderr.split())


def test_without_the_package_its_names_are_unknown(manifest: Manifest) -> None:
    path = manifest(method={"type": "Notes"})
    done = combee("validate", "-f", path)
    assert done.returncode == 2
    assert "one of ACE, GEPA, TextGrad, MIPRO" in " ".join(done.stderr.split())


def test_a_worker_with_the_package_does_a_step_with_it(
    python: Path, quick: Sim, manifest: Manifest, rows: Any, tmp_path: Path
) -> None:
    """One pod's files and variables; the manifest itself is only read there."""
    document = yaml.safe_load(manifest(train=rows(12), aggregation={"strategy": "Halves"}).read_text())
    document["metadata"] |= {"namespace": "team", "uid": UID}
    document["spec"]["method"] = {"type": "ShortNotes", "options": {"maxWords": 25}}
    document["spec"]["task"]["type"] = "Figures"
    root, data = tmp_path / "root", document["spec"]["task"]["data"]
    for split, source in data.items():
        folder = root / "data" / split
        folder.mkdir(parents=True)
        (folder / "rows.jsonl").write_bytes(Path(source["uri"]).read_bytes())
        data[split] = {"pvc": {"claimName": "rows", "path": "rows.jsonl"}}
    (root / "etc/combee/run").mkdir(parents=True)
    (root / "etc/combee/run/run.json").write_text(json.dumps(document))
    (root / "store").mkdir()
    (root / "dev").mkdir()
    (root / "dev/termination-log").touch()
    step = Step(step_name("run", UID, 0, PROFILE.name), PROFILE.name, 0, 7)
    done = subprocess.run(
        [python, "-m", "combee.pod.main", "step"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment(
            COMBEE_ROOT=str(root),
            COMBEE_STEP=json.dumps(asdict(step)),
            COMBEE_STORE="/store",
            COMBEE_ENGINES=json.dumps({"main": quick.url}),
        ),
    )
    assert done.returncode == 0, done.stderr
    summary = StepSummary.decode((root / "dev/termination-log").read_bytes())
    assert summary is not None and not summary.error, summary
    assert summary.counts["train"] == 12 and summary.outputs["artifact"]


def test_its_artifact_is_a_set_of_facts(page: Any) -> None:
    one, other, third = (page.Notes(frozenset({(f"note {k}", f"{k}@0")})) for k in range(3))
    assert one.join(other) == other.join(one) and one.join(one) == one
    assert one.join(other).join(third) == one.join(other.join(third))
    method = page.NotesMethod()
    assert method.from_json(one.join(other).to_json()).digest == one.join(other).digest
    assert method.render(method.initial("- a\n\n- b"), budget_tokens=10, verify="Off").text == "- a\n- b"
    long = method.initial("- a word\n" * 3 + "- b")
    assert method.render(long, budget_tokens=2, verify="Off").tokens <= 2


def test_its_tree_with_a_call_at_every_node_works_too(page: Any) -> None:
    method = page.NotesMethod()
    shown = method.render(method.empty(), budget_tokens=10, verify="Off")
    reflections = [
        Reflection(f"r-{k}", f"{k}@0", False, "", (Lesson(f"r-{k}.1", f"rule {k}"),)) for k in range(2)
    ]
    updates = method.parse_leaf(
        "- rule 0 [r-0]\n- rule 1 [r-1, r-9]", reflections=reflections, playbook=shown
    )
    assert [sorted(one.sources) for one in updates] == [["0@0"], ["1@0"]]
    assert "[u-2] rule 1" in method.merge_prompt(shown, updates).messages[1].content
    merged = method.parse_merge("- both rules [u-1, u-2]", updates=updates, playbook=shown)
    assert [(one.text, sorted(one.sources)) for one in merged.updates] == [("both rules", ["0@0", "1@0"])]
    joined = method.group([*updates, *updates], cap=4)
    assert (len(joined.passed), joined.clusters) == (2, [])
