"""The parser of ``vllm serve``, of the options that ``tests/record_vllm.py`` recorded from the real one."""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent / "vllm_arguments.json"
RECORDED = json.loads(RECORD.read_text(encoding="utf-8"))


def accepts(line: Sequence[str]) -> bool:
    """Whether vLLM takes what follows ``vllm serve``."""
    return complaint(line) == ""


def complaint(line: Sequence[str]) -> str:
    """What argparse says of the line; empty where it takes it."""
    try:
        _PARSER.parse_args(_plain(line))
    except (argparse.ArgumentError, IndexError) as error:
        return str(error)
    return ""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise argparse.ArgumentError(None, message)


def _plain(line: Sequence[str]) -> list[str]:
    """The line as vLLM hands it to argparse: hyphens in names, and ``--a.b.c=1`` as JSON behind ``--a``."""
    plain: list[str] = []
    objects: dict[str, dict[str, Any]] = defaultdict(dict)
    words = iter(line)
    for word in words:
        flag, equals, value = word.partition("=")
        name, dot, path = flag.partition(".")
        if flag.startswith("--"):
            name = f"--{name[2:].replace('_', '-')}"
        if flag.startswith("-O") and flag != "-O":
            plain += ["--optimization-level", word[2:].removeprefix("=")]
        elif flag.startswith("-") and dot:
            keys = path.removesuffix("+").split(".")
            given = value if equals else next(words, "")
            inner = objects[name]
            for key in keys[:-1]:
                inner = inner.setdefault(key, {})
            inner[keys[-1]] = given
        else:
            plain.append(f"{name}{dot}{path}{equals}{value}" if flag.startswith("--") else word)
    for name, content in objects.items():
        plain += [name, json.dumps(content)]
    return plain


def _parser() -> _Parser:
    parser = _Parser(prog="vllm serve", add_help=False)
    for option in RECORDED["options"]:
        more: dict[str, Any] = {}
        if option["action"] in ("BooleanOptional", "StoreTrue", "Help"):
            more["action"] = "store_true"
        else:
            more = {name: option[name] for name in ("nargs", "choices") if name in option}
            more["type"] = _converter(option.get("type", "str"), optional=option.get("optional", False))
            if option["action"] == "Append":
                more["action"] = "append"
        parser.add_argument(*option["names"], **more)
    return parser


def _converter(kind: str, *, optional: bool) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        return None if optional and text in ("", "None") else _KINDS[kind](text)

    convert.__name__ = kind
    return convert


def _whole(text: str) -> int:
    """``65536``, ``64k`` (thousands), ``64K`` (of 1,024, and no fraction)."""
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt])|(\d+)([KMGT])", text.strip()):
        thousands, small, whole, large = found.groups()
        if small:
            return int(float(thousands) * 1000 ** (1 + "kmgt".index(small)))
        return int(whole) << 10 * (1 + "KMGT".index(large))
    return int(text)


def _whole_or_auto(text: str) -> int:
    return -1 if text.strip().lower() in ("-1", "auto") else _whole(text)


def _object_or_text(text: str) -> Any:
    return json.loads(text) if re.fullmatch(r"(?s)\s*{.*}\s*", text) else text


_KINDS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "loads": json.loads,
    "human_readable_int": _whole,
    "human_readable_int_or_auto": _whole_or_auto,
    "union_dict_and_str": _object_or_text,
}
_PARSER = _parser()
