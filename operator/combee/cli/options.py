"""Flags that several commands take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from combee.local.flags import StandInFlags

Manifest = Annotated[
    Path,
    typer.Option("-f", "--filename", help="The manifest: a PromptLearningRun in YAML; -: standard input."),
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data", metavar="SPLIT=PATH", help="A file that stands for train, heldOut, test or initialPlaybook."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line instead of a screen.")]

STAND_INS: dict[str, Any] = {
    "engine": Annotated[
        list[str] | None,
        typer.Option(
            "--engine",
            metavar="NAME=URL",
            help="An OpenAI-compatible server that stands for an engine of the manifest.",
        ),
    ],
    "engine_key": Annotated[
        list[str] | None,
        typer.Option(
            "--engine-key",
            metavar="NAME=env:VAR",
            help="An environment variable that holds the key of that server; absent: no key, but for "
            "https://api.openai.com the one in OPENAI_API_KEY.",
        ),
    ],
    "engine_model": Annotated[
        list[str] | None,
        typer.Option(
            "--engine-model",
            metavar="NAME=MODEL",
            help="The model to ask that server for; absent: the manifest's.",
        ),
    ],
    "secret": Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            metavar="NAME/KEY=env:VAR",
            help="An environment variable that stands for a Secret's key.",
        ),
    ],
    "data": Data,
}


def with_stand_ins(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with these flags; it gets them as its ``given``."""
    signature = inspect.signature(command, eval_str=True)
    own = [one for one in signature.parameters.values() if one.name != "given"]
    flags = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=flag)
        for name, flag in STAND_INS.items()
    ]

    @functools.wraps(command)
    def taken(**values: Any) -> None:
        flag = {name: values.pop(name) or () for name in STAND_INS}
        given = StandInFlags(
            flag["engine"], flag["engine_key"], flag["engine_model"], flag["secret"], flag["data"]
        )
        command(given=given, **values)

    taken.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
    return taken
