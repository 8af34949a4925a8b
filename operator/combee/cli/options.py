"""Flags that several commands take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from combee.local.flags import StandInFlags

Manifest = Annotated[
    Path,
    typer.Option("-f", "--filename", help="The manifest: a PromptLearningRun in YAML; -: standard input."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line instead of a screen.")]
Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=1, max=600, help="Longest wait for a run's files."),
]
TIMEOUT_SECONDS = 300.0
Command = Callable[..., None]


def optional(name: str, kind: Any, flags: str, metavar: str, text: str) -> inspect.Parameter:
    """Return the parameter of a flag that may be absent; it is None then."""
    annotation = Annotated[kind | None, typer.Option(*flags.split(), metavar=metavar, help=text)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def with_flags(
    parameter: str, flags: Iterable[inspect.Parameter], made: Callable[..., Any]
) -> Callable[[Command], Command]:
    """Return a decorator: the command takes these flags, and as ``parameter`` what ``made`` makes of them."""
    listed = list(flags)

    def decorated(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [one for one in signature.parameters.values() if one.name != parameter]

        @functools.wraps(command)
        def taking(**values: Any) -> None:
            value = made(**{flag.name: values.pop(flag.name) for flag in listed})
            command(**{parameter: value}, **values)

        taking.__signature__ = signature.replace(parameters=[*own, *listed])  # type: ignore[attr-defined]
        return taking

    return decorated


_ENGINE = "An OpenAI-compatible server that stands for an engine of the manifest."
_ENGINE_KEY = (
    "An environment variable that holds the key of that server; absent: no key, but for "
    "https://api.openai.com the one in OPENAI_API_KEY."
)
_ENGINE_MODEL = "The model to ask that server for; absent: the manifest's."
_SECRET = "An environment variable that stands for a Secret's key."  # noqa: S105
_DATA = "A file that stands for train, heldOut, test or initialPlaybook."
STAND_INS = (
    optional("engines", list[str], "--engine", "NAME=URL", _ENGINE),
    optional("engine_keys", list[str], "--engine-key", "NAME=env:VAR", _ENGINE_KEY),
    optional("engine_models", list[str], "--engine-model", "NAME=MODEL", _ENGINE_MODEL),
    optional("secrets", list[str], "--secret", "NAME/KEY=env:VAR", _SECRET),
    optional("data", list[str], "--data", "SPLIT=PATH", _DATA),
)


def _stand_ins(**flags: list[str] | None) -> StandInFlags:
    return StandInFlags(**{name: values or () for name, values in flags.items()})


with_stand_ins = with_flags("given", STAND_INS, _stand_ins)


@dataclass(frozen=True, slots=True)
class CompareFlags:
    """The flags of ``combee compare`` alone, as they were given."""

    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="Folder for results; the same folder resumes."),
    ]
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A comparison on a cluster, in place of manifests: fetch it."),
    ] = None
    filename: Annotated[
        list[Path] | None,
        typer.Option(
            "-f",
            "--filename",
            help="A manifest, or - for standard input; more than once to compare on several tasks.",
        ),
    ] = None
    strategies: Annotated[
        str,
        typer.Option(
            metavar="NAME[:WORD...][@SIZE],...",
            help="What to compare, such as ParallelScan:Model:Sqrt@100.",
        ),
    ] = "Sequential,Naive,ParallelScan"
    sizes: Annotated[
        str,
        typer.Option(
            metavar="N,...", help="Batch sizes of strategies that name none; absent: the manifest's."
        ),
    ] = ""
    seeds: Annotated[
        str,
        typer.Option(
            metavar="N|A,B,...",
            help="How many seeds, or which. An --engine given once a seed deals its servers out.",
        ),
    ] = "3"
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Cells run side by side.")] = 1
    slots: Annotated[
        str,
        typer.Option(
            metavar="N,...",
            help="Slots of modelled time, a column for each; absent: the manifest's concurrency.",
        ),
    ] = ""
    latency_law: Annotated[
        str,
        typer.Option(
            metavar="A,B,C",
            help="Another server's law: seconds a token, seconds more for each call beside, to read one.",
        ),
    ] = ""
    evaluate_every: Annotated[
        int | None,
        typer.Option(min=1, help="Examples between scorings of heldOut; absent: the largest batch."),
    ] = None
    methods: Annotated[
        str,
        typer.Option(metavar="NAME,...", help="Base methods, such as ACE,GEPA; absent: each manifest's own."),
    ] = ""
    for_cluster: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Write the cells as runs of this comparison, for kubectl apply; run nothing.",
        ),
    ] = ""
    timeout: Timeout = TIMEOUT_SECONDS
    json: Json = False
