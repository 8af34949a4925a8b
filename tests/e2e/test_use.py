"""The pages under docs/use: each example runs as it stands, with the real library, and the model is shown
prompt.md to the byte. DSPy brings 200 MB along, so it has an environment of its own in the long tests."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_support import FORMULA, MODEL, ROOT, Sim
from heard import Heard, heard
from jinja2.sandbox import ImmutableSandboxedEnvironment

pytestmark = pytest.mark.e2e
PAGES = ROOT / "docs" / "use"
PROMPT = """\
Round "half up" — never {to even}, {{not}} at 50 % or 100%s of \\n.

## FORMULAS
[own-1] helpful=2 harmful=0 :: Return on equity is net income ÷ equity, for $1 {% if x %}and 🙂{% endif %}.

    {"indented": 'as it is'}"""
"""What a template, a format string or a shell would take for its own."""
CHATML = "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>\n{% endfor %}"


def examples(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)


@pytest.fixture
def model(quick: Sim) -> Iterator[Heard]:
    with heard(quick.url) as listening:
        yield listening


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where an example is run: with what a run left, and rows of the Formula task."""
    left = tmp_path / "out" / "formula"
    left.mkdir(parents=True)
    (left / "prompt.md").write_bytes(PROMPT.encode())
    rows = (FORMULA / "heldout.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "rows.jsonl").write_bytes(b"".join(rows[:40]))
    return tmp_path


def ran(page: str, folder: Path, url: str = "", python: str | Path = sys.executable) -> str:
    (code,) = examples(page)
    variables = {
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "none",
        "HOME": str(folder),
        "PATH": "/usr/bin",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "DSPY_CACHEDIR": str(folder / "cache"),
    }
    done = subprocess.run(
        [python, "-c", code], cwd=folder, env=variables, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", ["openai.md", "langchain.md"])
def test_a_client_sends_it_as_the_system_message(page: str, folder: Path, model: Heard) -> None:
    said = ran(page, folder, model.url)
    (asked,) = model.requests
    assert model.systems == [PROMPT] and asked["model"] == MODEL
    assert asked["messages"][1]["role"] == "user" and said.strip()


def test_gepa_starts_from_it_and_gives_a_start_back(folder: Path, model: Heard) -> None:
    ran("gepa.md", folder, model.url)
    of_the_seed = [system for system in model.systems if system == PROMPT]
    assert len(of_the_seed) >= 20, "each row of the valset is asked with the seed"
    changed = set(model.systems) - {PROMPT, ""}
    assert changed, "gepa tried texts of its own"
    best = json.loads((folder / "seed.json").read_text("utf-8"))
    assert best["instructions"] in {PROMPT, *changed}


def rendered(template: str, messages: list[dict[str, str]]) -> str:
    """As chat templates are rendered: in a sandbox, blocks trimmed."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(messages=messages, add_generation_prompt=True)


def test_a_chat_template_of_vllm_holds_it(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(CHATML)
    ran("vllm.md", folder)
    template = (folder / "with_prompt.jinja").read_text("utf-8")
    question = {"role": "user", "content": "2+2?"}
    asked = "<|user|>2+2?<|end|>\n"
    assert rendered(template, [question]) == f"<|system|>{PROMPT}<|end|>\n{asked}"
    own = {"role": "system", "content": "Be brief."}
    assert rendered(template, [own, question]) == f"<|system|>Be brief.<|end|>\n{asked}"
    (command,) = examples("vllm.md", "sh")
    assert command == f"vllm serve {MODEL} --chat-template with_prompt.jinja\n"


@pytest.fixture(scope="module")
def dspy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with DSPy, as tests/e2e/dspy.lock pins it."""
    folder = tmp_path_factory.mktemp("dspy")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    words = ["-q", "--disable-pip-version-check", "--python", python, "install", "--require-hashes"]
    wheels = ["--only-binary", ":all:", "-r", Path(__file__).with_name("dspy.lock")]
    subprocess.run([sys.executable, "-m", "pip", *words, *wheels], check=True, timeout=1500)
    return python


@pytest.mark.long
@pytest.mark.timeout(1800, func_only=True)
def test_dspy_sends_it_as_the_instructions_of_a_signature(dspy: Path, folder: Path, model: Heard) -> None:
    ran("dspy.md", folder, model.url, dspy)
    (system,) = model.systems
    assert system.endswith(f"\n{PROMPT}")


def test_the_index_names_every_page() -> None:
    linked = set(re.findall(r"\]\(([a-z]+\.md)\)", (PAGES / "README.md").read_text()))
    assert linked == {path.name for path in PAGES.glob("*.md")} - {"README.md"}
