"""Keys and models of engines, in front of real servers that check them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import yaml

from combee.cli.main import _exit_code
from combee.cli.run import run_run
from combee.compare.run import Request, prepare_cells
from combee.compare.strategies import parse_strategies
from combee.errors import UserError
from combee.local.flags import StandInFlags
from combee.local.session import prepare
from combee.local.sources import OPENAI_KEY, is_openai, parse_stand_ins
from combee.sim.params import SimConfig
from combee.sim.server import create_app

ROOT = Path(__file__).resolve().parents[3]
KEY = "sk-the-key-of-main-0123456789"
NOWHERE = "http://127.0.0.1:9/v1"


@dataclass
class Served:
    """A simulated model on a port of its own, and the header and the model of each request that it got."""

    url: str
    keys: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)


def recording(app: Any, served: Served) -> Any:
    """``app`` behind a record of who asks for what."""

    async def recorded(scope: Any, receive: Any, send: Any) -> None:
        served.keys.add(dict(scope["headers"]).get(b"authorization", b"").decode())
        body = b""

        async def received() -> Any:
            nonlocal body
            message = await receive()
            body += message.get("body", b"")
            if body and not message.get("more_body"):
                served.models.add(json.loads(body)["model"])
                body = b""
            return message

        await app(scope, received, send)

    return recorded


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Served, Served]]:
    """One that wants a key and serves another model than the manifest's, and one that wants none."""
    running = []
    made = []
    for config in (
        SimConfig(model="hosted-model", api_keys=(KEY,), time_scale=0.0),
        SimConfig(model="small", time_scale=0.0),
    ):
        listener = socket.create_server(("127.0.0.1", 0))
        served = Served(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
        settings = uvicorn.Config(
            recording(create_app(config), served), log_config=None, lifespan="off", ws="none"
        )
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        running.append((server, thread))
        made.append(served)
    yield made[0], made[1]
    for server, thread in running:
        server.should_exit = True
        thread.join()


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Two engines: ``main`` proposes, ``small`` answers."""
    for split, count in (("train", 10), ("heldout", 24)):
        lines = (ROOT / f"examples/data/formula/{split}.jsonl").read_text().splitlines(keepends=True)
        (tmp_path / f"{split}.jsonl").write_text("".join(lines[:count]))
    engines = [{"name": "main", "vllm": {"model": "a/b", "args": ["--x=1"], "revision": "r1"}}]
    engines += [{"name": "small", "vllm": {"model": "small"}}]
    roles = {"task": {"engineRef": {"name": "small"}}, "proposer": {"engineRef": {"name": "main"}}}
    task = {"type": "Formula", "data": {"train": {"uri": "train.jsonl"}, "heldOut": {"uri": "heldout.jsonl"}}}
    batching = {"mode": "Fixed", "size": 10, "reason": "a test"}
    spec = {
        "task": task,
        "method": {"type": "ACE"},
        "engines": engines,
        "models": roles,
        "batching": batching,
    }
    document = {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": "keys"},
    }
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({**document, "spec": spec}))
    return path


def flags(main: Served, small: Served) -> StandInFlags:
    return StandInFlags(
        engines=[f"main={main.url}", f"small={small.url}"],
        engine_keys=["main=env:LLM_KEY"],
        engine_models=["main=hosted-model"],
    )


def test_a_run_sends_each_engine_its_own_key_and_model_and_writes_no_key(
    servers: tuple[Served, Served],
    manifest: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    main, small = servers
    monkeypatch.setenv("LLM_KEY", KEY)
    monkeypatch.setenv(OPENAI_KEY, "sk-of-openai")
    out = tmp_path / "out"
    for one in servers:
        one.keys.clear()
        one.models.clear()
    assert run_run(manifest, out, flags(main, small), None, as_json=False) in (0, 3, 6)
    assert main.keys == {f"Bearer {KEY}"} and main.models == {"hosted-model"}
    assert small.keys == {""} and small.models == {"small"}
    result = json.loads((out / "result.json").read_text())
    assert {role: one["model"] for role, one in result["models"].items()} == {
        "task": "small",
        "proposer": "hosted-model",
    }
    printed = capsys.readouterr()
    assert KEY not in printed.out + printed.err
    files = [path for path in out.rglob("*") if path.is_file()]
    assert {"report.html", "report.md", "result.json"} <= {path.name for path in files}
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (None, "an API key is needed (401)"),
        ("sk-wrong", "the API key is refused (401)"),
    ],
)
def test_a_missing_or_wrong_key_is_said_with_its_flag_and_not_shown(
    servers: tuple[Served, Served],
    manifest: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    key: str | None,
    words: str,
) -> None:
    monkeypatch.setenv(OPENAI_KEY, KEY)
    monkeypatch.setenv("LLM_KEY", key or "")
    given = flags(*servers)
    if key is None:
        given = StandInFlags(engines=given.engines, engine_models=given.engine_models)
    assert run_run(manifest, tmp_path / "out", given, None, as_json=True) == 2
    printed = capsys.readouterr()
    assert words in printed.out and "--engine-key" in printed.out
    assert KEY not in printed.out + printed.err and "sk-wrong" not in printed.out + printed.err
    assert not (tmp_path / "out").exists()


WRONG = {
    "not set": (["--engine-key", "main=env:NOT_SET"], ("--engine-key main", "NOT_SET is not set")),
    "unknown engine": (["--engine-key", "other=env:LLM_KEY"], ("--engine-key other", "main, small")),
    "key in the open": (["--engine-key", f"main={KEY}"], ("--engine-key main", "=env:VARIABLE")),
    "key alone": (["--engine-key", KEY], ("--engine-key", "NAME=env:VARIABLE")),
    "not a key": (["--engine-key", "small=env:TWO_LINES"], ("--engine-key small", "TWO_LINES")),
    "unknown engine's model": (["--engine-model", "other=m"], ("--engine-model other", "main, small")),
    "no model": (["--engine-model", "main"], ("--engine-model main", "NAME=MODEL")),
    "not a model": (["--engine-model", f"main={'m' * 600}"], ("--engine-model main", "name of a model")),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("command", ["run", "preview", "compare"])
def test_a_wrong_flag_is_named(
    command: str,
    case: str,
    manifest: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LLM_KEY", KEY)
    monkeypatch.setenv("TWO_LINES", f"{KEY}\n{KEY}")
    monkeypatch.delenv("NOT_SET", raising=False)
    wrong, words = WRONG[case]
    out = tmp_path / "out"
    more = ["-o", str(out)] if command != "preview" else []
    engines = ["--engine", f"main={NOWHERE}", "--engine", f"small={NOWHERE}"]
    assert _exit_code([command, "-f", str(manifest), *engines, *wrong, *more]) == 2
    line = capsys.readouterr().err.strip()
    assert line.startswith("error: ") and all(word in line for word in words) and KEY not in line
    assert not out.exists()


HOSTS = {
    "https://api.openai.com/v1": True,
    "https://API.openai.com:443/v1": True,
    "http://api.openai.com/v1": False,
    "https://api.openai.com.example.com/v1": False,
    "https://example.com/api.openai.com/v1": False,
    "https://eu.api.openai.com/v1": False,
    "https://openrouter.ai/api/v1": False,
}


@pytest.mark.parametrize("url", HOSTS)
def test_openais_own_key_goes_to_openais_own_host_alone(
    url: str, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_openai(url) is HOSTS[url]
    monkeypatch.setenv(OPENAI_KEY, KEY)
    monkeypatch.setenv("LLM_KEY", "sk-named")
    engines = [f"main={url}", f"small={NOWHERE}"]

    def keys(*named: str) -> dict[str, str]:
        given = parse_stand_ins(StandInFlags(engines=engines, engine_keys=named))
        endpoints = prepare(manifest, given).endpoints
        return {role: one.api_key.get_secret_value() for role, one in endpoints.items()}

    assert keys() == {"task": "", "proposer": KEY if HOSTS[url] else ""}
    assert keys("main=env:LLM_KEY") == {"task": "", "proposer": "sk-named"}
    monkeypatch.delenv(OPENAI_KEY)
    assert keys() == {"task": "", "proposer": ""}


def test_another_model_is_another_run_and_has_no_revision_of_the_manifests(manifest: Path) -> None:
    engines = [f"main={NOWHERE}", f"small={NOWHERE}"]
    plain = prepare(manifest, parse_stand_ins(StandInFlags(engines=engines)))
    other = prepare(manifest, parse_stand_ins(StandInFlags(engines=engines, engine_models=["main=x/y:free"])))
    before, after = plain.endpoints["proposer"], other.endpoints["proposer"]
    assert (before.model, before.revision, before.engine_args) == ("a/b", "r1", ("--x=1",))
    assert (after.model, after.revision, after.engine_args) == ("x/y:free", "", ())
    assert plain.run != other.run and plain.endpoints["task"] == other.endpoints["task"]


def test_cells_of_a_comparison_have_the_model_in_their_manifest_and_the_key_in_their_flags(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_KEY", KEY)
    given = StandInFlags(engine_keys=["main=env:LLM_KEY"], engine_models=["main=hosted-model"])
    engines = {"main": [NOWHERE], "small": [NOWHERE]}
    request = Request([manifest], parse_strategies("Naive", [10]), [0], tmp_path / "out", engines, given)
    _, (cell,), _ = prepare_cells(request)
    served = {
        one["name"]: one["vllm"]["model"]
        for one in yaml.safe_load(cell.manifest.read_text())["spec"]["engines"]
    }
    assert served == {"main": "hosted-model", "small": "small"}
    prepared = prepare(cell.manifest, parse_stand_ins(cell.flags(given)))
    assert prepared.endpoints["proposer"].api_key.get_secret_value() == KEY
    assert KEY not in "".join(path.read_text() for path in (tmp_path / "out").rglob("*.yaml"))


def test_a_key_is_not_quoted_by_an_error(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_KEY", f"{KEY} and more")
    given = parse_stand_ins(StandInFlags(engines=[f"main={NOWHERE}"], engine_keys=["main=env:LLM_KEY"]))
    with pytest.raises(UserError, match="LLM_KEY is not a key") as caught:
        prepare(manifest, given)
    assert KEY not in str(caught.value)
