"""Flags that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Manifest = Annotated[
    Path, typer.Option("-f", "--filename", help="The manifest: a PromptLearningRun in YAML.")
]
Engines = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        metavar="NAME=URL",
        help="An OpenAI-compatible server that stands for an engine of the manifest.",
    ),
]
Secrets = Annotated[
    list[str] | None,
    typer.Option(
        "--secret", metavar="NAME/KEY=env:VAR", help="An environment variable that stands for a Secret's key."
    ),
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data", metavar="SPLIT=PATH", help="A file that stands for train, heldOut, test or initialPlaybook."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line instead of a screen.")]
