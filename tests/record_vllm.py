"""The options of a real vLLM's ``vllm serve``, as data: run it with the Python that vLLM is installed for.

It prints what ``tests/unit/objects/vllm_arguments.json`` holds; with ``--parse`` it reads a list of command
lines from standard input and prints of each whether that parser takes it.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import sys
from typing import Any


def main() -> None:
    # Whatever vLLM prints while it is imported stays off the output.
    with contextlib.redirect_stdout(sys.stderr):
        parser = _parser()
        if sys.argv[1:] == ["--parse"]:
            made: Any = [_accepts(parser, line) for line in json.load(sys.stdin)]
        else:
            made = {"vllm": _version(), "options": [_facts(action) for action in parser._actions]}
    sys.stdout.write(_text(made))


def _parser() -> Any:
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    from vllm.entrypoints.launchers.cli_args import make_arg_parser  # type: ignore[import-not-found]
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found]

    return make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))


def _version() -> str:
    """``0.32.0`` of ``0.32.0+cpu``: how it was built is no part of what it parses."""
    return importlib.metadata.version("vllm").partition("+")[0]


def _accepts(parser: Any, line: list[str]) -> bool:
    try:
        # The word `serve` is taken off before vLLM's own program comes to this parser.
        parser.parse_args(line)
    except (SystemExit, ValueError):
        return False
    return True


def _facts(action: argparse.Action) -> dict[str, Any]:
    """What ``add_argument`` was told and what matters to a command line."""
    kind, optional = _kind(action.type)
    facts = {
        "names": action.option_strings or [action.dest],
        "action": type(action).__name__.strip("_").removesuffix("Action"),
        "nargs": action.nargs if action.nargs != 0 else None,
        "choices": None if action.choices is None else [c for c in action.choices if c is not None],
        "type": kind,
        "optional": optional or None,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _kind(convert: Any) -> tuple[str | None, bool]:
    """(the name of what converts a value, whether ``None`` and nothing are values, too)."""
    name = getattr(convert, "__qualname__", "")
    if name.startswith(("optional_type.", "parse_type.")):
        inner = next(cell.cell_contents for cell in convert.__closure__ if callable(cell.cell_contents))
        return _kind(inner)[0], name.startswith("optional_type.")
    if name.endswith(".parse_dataclass"):
        return "loads", False
    if "<lambda>" in name:
        return "str", False
    return name or None, False


def _text(made: Any) -> str:
    """JSON with one option a line, to be read in a diff."""
    if isinstance(made, list):
        return json.dumps(made)
    options = ",\n".join(f"  {json.dumps(option)}" for option in made["options"])
    return f'{{"vllm": {json.dumps(made["vllm"])}, "options": [\n{options}\n]}}\n'


if __name__ == "__main__":
    main()
