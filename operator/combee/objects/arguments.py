"""Which arguments of vLLM a run may give its engines: those known to load no code, open no door and read no
file. A list of what is harmless, since each release of vLLM brings new ones.

Left out on purpose is what runs code of a model or of the author (trust-remote-code, plugins, middleware,
worker and scheduler classes, logits processors, backends named in a JSON), what reads files or addresses
(config, media paths, connectors), and what listens or logs elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from combee.api.engines import Engine
from combee.errors import ManifestError
from combee.objects.types import Settings

_SIZES = """
max-model-len max-num-seqs max-num-batched-tokens max-num-scheduled-tokens max-logprobs block-size
gpu-memory-utilization kv-cache-memory-bytes num-gpu-blocks-override cpu-offload-gb kv-offloading-size seed
stream-interval long-prefill-token-threshold max-num-active-seqs max-num-queued-reqs
max-num-queued-tokens watermark limit-mm-per-prompt mm-processor-cache-gb cudagraph-capture-sizes
max-cudagraph-capture-size max-log-len
"""
_WAYS = """
dtype runner convert quantization kv-cache-dtype tokenizer-mode scheduling-policy logprobs-mode
attention-backend mamba-backend moe-backend linear-backend all2all-backend mamba-cache-dtype
mamba-ssm-cache-dtype mamba-block-size mamba-cache-mode prefix-caching-hash-algo uvicorn-log-level
chat-template-content-format response-role tool-call-parser reasoning-parser
structured-outputs-config.backend structured-outputs-config.disable-any-whitespace
structured-outputs-config.disable-additional-properties structured-outputs-config.disable-fallback
default-chat-template-kwargs override-generation-config safetensors-load-strategy
"""
_SWITCHES = """
enforce-eager enable-prefix-caching enable-chunked-prefill enable-expert-parallel enable-lora
enable-sleep-mode enable-auto-tool-choice enable-dbo enable-eplb disable-sliding-window disable-cascade-attn
disable-custom-all-reduce disable-hybrid-kv-cache-manager disable-uvicorn-access-log
disable-fastapi-docs disable-chunked-mm-input async-scheduling scheduler-reserve-full-isl
fully-sharded-loras language-model-only skip-mm-profiling enable-force-include-usage
enable-log-requests enable-mfu-metrics kv-cache-metrics cudagraph-metrics kv-sharing-fast-prefill
enable-flashinfer-autotune numa-bind exclude-tools-when-tool-choice-none
enable-prompt-tokens-details
"""
_PARALLEL = """
tensor-parallel-size pipeline-parallel-size data-parallel-size decode-context-parallel-size
prefill-context-parallel-size data-parallel-size-local distributed-executor-backend
max-parallel-loading-workers numa-bind-nodes
"""
_LORA = "max-loras max-lora-rank max-cpu-loras lora-dtype lora-modules lora-target-modules"
_FILES = "chat-template"
_SHORT = "-tp -pp -dp -dcp -pcp -ep -q"
ARGUMENTS = frozenset(
    [
        *(f"--{name}" for name in f"{_SIZES} {_WAYS} {_PARALLEL} {_LORA} {_FILES}".split()),
        *(f"--{no}{name}" for name in _SWITCHES.split() for no in ("", "no-")),
        *_SHORT.split(),
        "--disable-log-stats",
    ]
)
"""Names of arguments that need nobody's leave."""
_PATH = re.compile(r"[\w./-]*")
_NUMBER = re.compile(r"-\d[\d.]*")


def check_arguments(engine: Engine, settings: Settings, index: int) -> None:
    """Raise ManifestError for an argument that nobody allowed. ``index``: the engine's place in the spec."""
    where, server = f"spec.engines[{index}].vllm", engine.server
    before = ""
    for number, arg in enumerate(server.args):
        name, equals, value = arg.partition("=")
        if arg.startswith("-") and not _NUMBER.fullmatch(arg):
            before = "" if equals or _switches(name) else name
        else:
            name, value, before = before, arg, before if _repeats(before) else ""
        known = _spelled(name)
        if not _allowed(known, value, settings.engine_arguments):
            raise ManifestError(
                f"the argument {arg[:100]} is not allowed here",
                where=f"{where}.args[{number}]",
                fix="Remove it, or ask whoever installed the chart to allow it: the chart's value "
                f"engineArguments, {known or 'an argument with its name'}.",
            )


def _switches(name: str) -> bool:
    """Return whether no value follows an argument: a word after it would be the model to serve."""
    return _spelled(name).removeprefix("--").removeprefix("no-") in (*_SWITCHES.split(), "disable-log-stats")


def _repeats(name: str) -> bool:
    """Return whether several values may follow an argument."""
    return _spelled(name) in ("--lora-modules", "--lora-target-modules", "--cudagraph-capture-sizes")


def _spelled(name: str) -> str:
    """Return an argument's name as vLLM spells it: with dashes.

    >>> _spelled("--max_model_len")
    '--max-model-len'
    """
    return name[:2] + name[2:].replace("_", "-")


def _is_template_file(value: str) -> bool:
    """Return whether a value is a file of the image or of a volume, not one with the engine's environment or
    keys. A template given in words is a program."""
    parts = [part for part in value.split("/") if part not in ("", ".")]
    hidden = parts[:2] == ["var", "run"] or parts[:1] in (["proc"], ["sys"], ["dev"], ["run"])
    return _PATH.fullmatch(value) is not None and ".." not in value and not hidden


_VALUES: Mapping[str, Callable[[str], bool]] = {
    # A name of one of vLLM's own: ``ray`` starts others, and a dotted name is a class to import.
    "--distributed-executor-backend": lambda value: value in ("mp", "uni"),
    "--chat-template": _is_template_file,
    "--default-chat-template-kwargs": lambda value: "chat_template" not in value and "\\" not in value,
}


def _allowed(name: str, value: str, more: Collection[str]) -> bool:
    fits = not value or name not in _VALUES or _VALUES[name](value)
    return (name in ARGUMENTS and fits) or (bool(name) and (name in more or "*" in more))
