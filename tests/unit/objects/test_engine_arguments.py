"""What a run may give its engines: harmless arguments of vLLM, and what the platform team allows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from manifests_makers import PLAIN, SETTINGS, run_of
from test_vllm_arguments import MADE, REAL, SPLIT
from vllm_parser import RECORDED

from combee.api.engines import Engine
from combee.errors import ManifestError
from combee.objects.allowed import refused_parts
from combee.objects.arguments import ARGUMENTS, check_arguments
from combee.operator.tick import Ticker
from combee.plan.cluster.accept import Policy

REFUSED = [
    ["--trust-remote-code"],
    ["--trust_remote_code"],
    ["--trust-remote-code=true"],
    ["--trust-remote"],
    ["--enforce-eager", "--trust-remote-code"],
    ["--enforce-eager", "evil/model"],
    ["--max-model-len=4096", "evil/model"],
    ["evil/model"],
    ["--max-model-len", "4096", "evil/model"],
    ["--"],
    ["-"],
    ["--middleware=os.system"],
    ["--worker-cls=evil.Worker"],
    ["--worker-extension-cls", "evil.Worker"],
    ["--scheduler-cls=evil.Scheduler"],
    ["--logits-processors", "evil:Processor"],
    ["--tool-parser-plugin=/tmp/evil.py"],
    ["--reasoning-parser-plugin=/tmp/evil.py"],
    ["--structured-outputs-config.reasoning_parser_plugin=/tmp/evil.py"],
    ["--structured-outputs-config", '{"reasoning_parser_plugin": "/tmp/evil.py"}'],
    ["--kv-transfer-config", '{"kv_connector_module_path": "evil"}'],
    ["--compilation-config", '{"backend": "evil.compile"}'],
    ["-cc.backend=evil.compile"],
    ["--distributed-executor-backend=evil.Executor"],
    ["--distributed-executor-backend", "evil.Executor"],
    ["--chat-template={{ cycler.__init__.__globals__ }}"],
    ["--chat-template", "{% for x in y %}"],
    ["--chat-template=/proc/self/environ"],
    ["--chat-template", "/proc/self/environ"],
    ["--chat-template", "//proc/1/environ"],
    ["--chat-template", "./proc/self/environ"],
    ["--chat-template", "/models/../proc/self/environ"],
    ["--chat-template", "/./sys/x"],
    ["--chat-template", "/dev/stdin"],
    ["--chat-template", "/run/secrets/kubernetes.io/serviceaccount/token"],
    ["--chat-template", "/var/run/secrets/kubernetes.io/serviceaccount/token"],
    ["--chat-template", "/var/./run/secrets/x"],
    ["--default-chat-template-kwargs", '{"chat_template": "{{ words }}"}'],
    ['--default-chat-template-kwargs={\n"chat_template": "{{ words }}"}'],
    ["--default-chat-template-kwargs", '{"chat\\u005ftemplate": "{{ words }}"}'],
    ["--default-chat-template-kwargs.chat_template={{ words }}"],
    ["--config=/etc/passwd"],
    ["--config", "/store/evil.yaml"],
    ["--allowed-local-media-path=/"],
    ["--hf-token=secret"],
    ["--load-format=pt"],
    ["--otlp-traces-endpoint=http://169.254.169.254"],
    ["--time-scale=0.1"],
]
TAKEN = [
    ["--max-model-len=65536"],
    ["--max_model_len", "65536"],
    ["--structured-outputs-config.backend=xgrammar"],
    ["--structured-outputs-config.disable_any_whitespace=true"],
    ["--dtype=float32", "--enforce-eager", "--no-enable-chunked-prefill"],
    ["-tp", "2", "-pp=2"],
    ["--enable-lora", "--lora-modules", "a=/models/a", "b=/models/b", "--max-loras=2"],
    ["--kv-cache-dtype=fp8", "--quantization", "fp8", "--enable-prefix-caching"],
    ["--chat-template", "/models/chat.jinja"],
    ["--chat-template", "examples/running/dev.jinja"],
    ["--default-chat-template-kwargs", '{"enable_thinking": false}'],
    ["--distributed-executor-backend=mp"],
    ["--seed", "-1"],
    [],
]


def engine(args: list[str], model: str = "example/tiny") -> Engine:
    return Engine.model_validate({"name": "main", "vllm": {"model": model, "args": args}})


@pytest.mark.parametrize("args", REFUSED, ids=" ".join)
def test_code_doors_and_files_are_refused_and_the_message_says_who_allows_them(args: list[str]) -> None:
    with pytest.raises(ManifestError, match="engineArguments") as error:
        check_arguments(engine(args), SETTINGS, 1)
    assert error.value.where.startswith("spec.engines[1].vllm.args[")


@pytest.mark.parametrize("args", TAKEN, ids=" ".join)
def test_what_is_harmless_is_taken(args: list[str]) -> None:
    check_arguments(engine(args), SETTINGS, 0)


@pytest.mark.parametrize(("where", "made"), [*REAL, *MADE, *SPLIT[:-1]])
def test_every_example_and_page_is_taken(where: str, made: dict[str, object]) -> None:
    check_arguments(Engine.model_validate(made), SETTINGS, 0)


@pytest.mark.parametrize("allowed", [("--trust-remote-code",), ("*",)])
def test_a_platform_team_allows_more(allowed: tuple[str, ...]) -> None:
    settings = replace(SETTINGS, engine_arguments=allowed)
    check_arguments(engine(["--trust_remote_code"]), settings, 0)
    with pytest.raises(ManifestError):
        check_arguments(engine(["evil/model"]), settings, 0)


@pytest.mark.parametrize("args", [["--distributed-executor-backend=ray"], ["--chat-template", "{{ words }}"]])
def test_a_platform_team_that_allows_all_allows_every_value(args: list[str]) -> None:
    check_arguments(engine(args), replace(SETTINGS, engine_arguments=("*",)), 0)
    check_arguments(engine(args), replace(SETTINGS, engine_arguments=(args[0].partition("=")[0],)), 0)


@pytest.mark.parametrize("started", [True, False])
async def test_a_run_at_work_is_not_left_to_its_engines_by_an_upgrade_that_allows_less(started: bool) -> None:
    """Nobody would take them down again: a refused run makes and ends nothing."""
    engines = [{"name": "main", "vllm": {"model": "example/tiny", "args": ["--trust-remote-code"]}}]
    raw = run_of({**PLAIN, "engines": engines}).model_dump(by_alias=True, exclude_none=True, mode="json")
    raw["metadata"] |= {"namespace": "team", "uid": "u-1", "generation": 1, "resourceVersion": "1"}
    raw["status"] = {"startTime": "2026-01-01T00:00:00Z"} if started else {}
    kube, versions, written = AsyncMock(), AsyncMock(), []
    kube.get.return_value = raw
    kube.patch.side_effect = lambda *patch, **_: written.append(patch[3]["status"])
    versions.started.side_effect = lambda run, owner, memory: replace(memory)
    versions.looks.return_value = None
    teller: Any = SimpleNamespace(tell=AsyncMock())
    nodes, policy = AsyncMock(), Policy(True, True, "Advisory")
    ticker = Ticker(kube, AsyncMock(), AsyncMock(), teller, versions, nodes, SETTINGS, policy)
    assert await ticker.tick(("team", "run")) == (0.0 if started else -1.0)
    assert any(status.get("phase") == "Refused" for status in written) is not started


def test_a_model_is_no_argument() -> None:
    model = {"name": "main", "vllm": {"model": "--trust-remote-code"}}
    spec = run_of({**PLAIN, "engines": [model, *PLAIN["engines"][1:]]}).spec
    (refused,) = refused_parts(spec)
    assert refused.what == "model --trust-remote-code is an argument"
    assert refused.where == "spec.engines[0].vllm.model"


def test_every_allowed_name_is_one_of_vllms() -> None:
    known = {name for option in RECORDED["options"] for name in option["names"]}
    assert {name.partition(".")[0] for name in ARGUMENTS} <= known
