"""The date and the vocabulary that gpt-oss starts with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from manifests_makers import PLAIN, SETTINGS, run_of

from combee.api.engines import Engine
from combee.assembly.endpoints import role_endpoints
from combee.clients.model.wire import CanonicalRequest, ChatRequest
from combee.objects.engine_pods import START_DATE, prefetch_pod, server_pod
from combee.records import Message, Prompt

PYTHON_OF_VLLM = os.environ.get("VLLM_PYTHON", "")
GPT_OSS = """
from openai_harmony import Conversation
from vllm.entrypoints.openai.parser.harmony_utils import get_encoding, get_system_message
encoding = get_encoding()
print(encoding.decode(encoding.render_conversation(Conversation.from_messages([get_system_message()]))))
"""


def _engine(**env: str) -> dict[str, Any]:
    variables = [{"name": name, "value": value} for name, value in env.items()]
    vllm = {"model": "openai/gpt-oss-20b", "modelCache": {"claimName": "models"}}
    return {"name": "main", "vllm": vllm, "template": {"spec": {"env": variables}}}


def _env(engine: dict[str, Any]) -> list[tuple[str, str]]:
    (server,) = server_pod(Engine.model_validate(engine), "image", SETTINGS)["containers"]
    return [(variable["name"], variable["value"]) for variable in server["env"]]


def _key(engine: dict[str, Any]) -> str:
    spec = run_of({**PLAIN, "engines": [engine]}).spec
    endpoint = role_endpoints(
        spec, engine_url=lambda _: ("http://host/v1", "flag"), key_of=lambda *_: ("", "")
    )
    prompt = Prompt((Message("user", "1 + 1"),), max_output_tokens=9)
    return CanonicalRequest(endpoint["task"], ChatRequest(prompt)).key


def test_a_server_has_a_date_that_stays_the_same() -> None:
    assert ("VLLM_SYSTEM_START_DATE", START_DATE) in _env(_engine())


@pytest.mark.parametrize("date", ["2026-01-31", ""], ids=["another", "today"])
def test_a_template_names_another_date_and_ours_is_not_there(date: str) -> None:
    dates = [value for name, value in _env(_engine(VLLM_SYSTEM_START_DATE=date)) if "DATE" in name]
    assert dates == [date]


def test_the_job_that_fetches_weights_has_no_date() -> None:
    (fetch,) = prefetch_pod(Engine.model_validate(_engine()), "image", SETTINGS)["containers"]
    assert not any("DATE" in variable["name"] for variable in fetch["env"])


def test_answers_under_another_date_are_remembered_apart() -> None:
    dates = [{}, {"VLLM_SYSTEM_START_DATE": "2026-01-31"}, {"VLLM_SYSTEM_START_DATE": ""}]
    assert len({_key(_engine(**date)) for date in dates}) == 3
    assert _key(_engine()) == _key(_engine(NCCL_DEBUG="INFO"))


def test_a_vocabulary_is_looked_for_only_where_a_template_says() -> None:
    assert not any(name.startswith("TIKTOKEN") for name, _ in _env(_engine()))
    placed = _env(_engine(TIKTOKEN_ENCODINGS_BASE="/models/encodings"))
    assert ("TIKTOKEN_ENCODINGS_BASE", "/models/encodings") in placed


@pytest.mark.long
@pytest.mark.skipif(not PYTHON_OF_VLLM, reason="VLLM_PYTHON names no Python that vLLM is installed for")
def test_vllm_brings_the_vocabulary_of_gpt_oss_and_takes_the_date(tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:1"
    made = subprocess.run(
        [PYTHON_OF_VLLM, "-c", GPT_OSS],
        env={
            **dict(_env(_engine())),
            **dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), nowhere),
            **{name: str(tmp_path) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")},
        },
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"Current date: {START_DATE}\n" in made
