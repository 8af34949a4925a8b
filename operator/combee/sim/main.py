"""``combee sim``: serves the simulated model, makes its key file, makes planted data."""

from __future__ import annotations

import json
import math
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from combee.errors import UserError
from combee.sim import keyfile, planted
from combee.sim.params import Faults, Law, SimConfig
from combee.sim.server import serve as serve_forever

app = typer.Typer(
    help="The simulated model: stands where vLLM stands, for demos and tests.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_BOOLEAN = frozenset(
    [
        "enforce-eager",
        "trust-remote-code",
        "enable-prefix-caching",
        "enable-prompt-tokens-details",
        "no-enable-prefix-caching",
        "enable-chunked-prefill",
        "no-enable-chunked-prefill",
        "disable-log-requests",
        "disable-log-stats",
        "disable-uvicorn-access-log",
        "enable-auto-tool-choice",
        "async-scheduling",
        "enable-expert-parallel",
        "enable-log-requests",
    ]
)
_LAW = tuple(field.name for field in fields(Law))
_FAULTS = tuple(field.name for field in fields(Faults))
_SETTINGS = frozenset(_LAW + _FAULTS)
_EPILOG = "Sweeps and faults, each with a number: " + ", ".join(
    f"--{name.replace('_', '-')}" for name in _LAW + _FAULTS
)
_LENGTHS = {"k": 1_000, "K": 1_024, "m": 1_000_000, "M": 1_048_576}


def _fail(error: UserError) -> typer.Exit:
    typer.echo(f"error: {error}", err=True)
    return typer.Exit(2)


def _length(text: str) -> int:
    unit = _LENGTHS.get(text[-1:], 1)
    try:
        return int(float(text if unit == 1 else text[:-1]) * unit)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no length; write 131072, 128k or 128K") from error


def _parsed_words(words: list[str]) -> tuple[str, dict[str, float], list[str]]:
    """Split the left-over words into (model, settings of the law and faults, ignored vLLM flags)."""
    model, ignored, index = "", [], 0
    settings: dict[str, float] = {}
    while index < len(words):
        word, equals, value = words[index].partition("=")
        index += 1
        if not word.startswith("-"):
            model = model or word + equals + value
            continue
        takes_value = not equals and word.lstrip("-") not in _BOOLEAN
        if takes_value and index < len(words) and not words[index].startswith("--"):
            value = words[index]
            index += 1
        name = word.lstrip("-").replace("-", "_")
        if name in _SETTINGS:
            settings[name] = _number(word, value)
        else:
            ignored.append(f"{word} {value}".strip())
    return model, settings, ignored


def _number(flag: str, text: str) -> float:
    try:
        value = math.inf if text.lower() in ("inf", "infinite") else float(text)
    except ValueError as error:
        raise typer.BadParameter(f"{flag} takes a number, not {text!r}") from error
    share = flag.endswith(("-share", "-rate")) or flag == "--obedience"
    if value < 0 or math.isnan(value) or (share and value > 1):
        raise typer.BadParameter(
            f"{flag} takes {'a share in [0, 1]' if share else 'no negative number'}, not {text}"
        )
    return value


def _law_and_faults(settings: dict[str, float]) -> tuple[Law, Faults]:
    law = {name: value for name, value in settings.items() if name in _LAW}
    faults: dict[str, Any] = {name: value for name, value in settings.items() if name in _FAULTS}
    for name in ("slow_one_in", "hang_one_in"):
        faults[name] = int(faults.get(name, 0))
    if any(value == 0 for name, value in law.items() if name.endswith(("capacity", "length"))):
        raise typer.BadParameter("a capacity or length must be positive")
    swept = Law(**law)
    return (swept.unlimited() if math.isinf(swept.capacity) else swept), Faults(**faults)


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True}, epilog=_EPILOG)
def serve(
    words: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="Name to serve; other vLLM flags are ignored.")
    ],
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 picks a free one and prints it.")] = 8000,
    port_file: Annotated[
        Path | None, typer.Option(help="Write the port here, whole, once listening.")
    ] = None,
    max_model_len: Annotated[str, typer.Option(help="Tokens of context, also 128k.")] = "131072",
    max_num_seqs: Annotated[int, typer.Option(min=1)] = 1024,
    served_model_name: Annotated[list[str] | None, typer.Option(help="May be repeated.")] = None,
    api_key: Annotated[list[str] | None, typer.Option(help="May be repeated; none: no check.")] = None,
    seed: int = 0,
    time_scale: Annotated[
        float, typer.Option(min=0, help="Real seconds per modelled second; 0: no waiting.")
    ] = 1.0,
    key: Annotated[
        list[Path] | None, typer.Option(help="Key file of right answers; may be repeated.")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="Append one JSON line per answered request.")] = None,
    plant: Annotated[
        Path | None, typer.Option(help="JSON: question, its digest, topic or *: lesson (@wrong).")
    ] = None,
    lenient_judge: Annotated[list[str] | None, typer.Option(help="Model name that judges kindly.")] = None,
) -> None:
    """Serve a simulated model where `vllm serve MODEL` would serve a real one."""
    config = SimConfig(
        served_names=tuple(served_model_name or ()),
        host=host,
        port=port,
        port_file=port_file,
        max_model_len=_length(max_model_len),
        max_num_seqs=max_num_seqs,
        api_keys=tuple(api_key or ()),
        seed=seed,
        time_scale=time_scale,
        keys=tuple(key or ()),
        log=log,
        plant=plant,
        lenient_judges=tuple(lenient_judge or ()),
    )
    _run(config, words)


def _run(config: SimConfig, words: list[str]) -> None:
    model, settings, ignored = _parsed_words(words)
    if not model:
        raise typer.BadParameter("name the MODEL to serve first")
    if ignored:
        typer.echo(f"ignored: {', '.join(ignored)}", err=True)
    law, faults = _law_and_faults(settings)
    try:
        serve_forever(replace(config, model=model, law=law, faults=faults))
    except UserError as error:
        raise _fail(error) from error
    except OSError as error:
        typer.echo(f"error: cannot serve on {config.host}:{config.port} ({error})", err=True)
        raise typer.Exit(2) from error


@app.command(
    epilog="Example: combee sim key --input text --target queue --data tickets.csv -o key.json",
)
def key(
    data: Annotated[
        list[Path], typer.Option(help="JSONL, or CSV with a header, with all rows; may be repeated.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output")],
    task: Annotated[
        str | None, typer.Option(help="Rows of one of finer, formula, planted, reply; else name the fields.")
    ] = None,
    input: Annotated[str | None, typer.Option(help="Field with the text that the model is asked.")] = None,
    target: Annotated[str | None, typer.Option(help="Field with the right answer.")] = None,
    topic: Annotated[
        str | None, typer.Option(help="Field by which rows share a rule; absent: labels, else by chance.")
    ] = None,
) -> None:
    """Make the key file that holds the right answers of some data."""
    if (task is None) == (input is None or target is None) or (task and (input or target or topic)):
        raise typer.BadParameter("give either --task, or --input and --target (and --topic)")
    try:
        files = [(str(path), path.read_bytes()) for path in data]
        if task is not None:
            answers = keyfile.build(task, files)
        else:
            answers = keyfile.build_any(keyfile.FieldNames(str(input), str(target), topic), files)
    except UserError as error:
        raise _fail(error) from error
    except OSError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    temporary.write_text(json.dumps(answers, ensure_ascii=False), encoding="utf-8")
    temporary.replace(output)
    typer.echo(f"{output}: {len(answers['examples'])} answers, {len(answers['topics'])} topics")


@app.command("planted")
def planted_data(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for train.jsonl and heldOut.jsonl.")],
    rows: Annotated[int, typer.Option(min=1)] = 1000,
    held_out: Annotated[int, typer.Option(min=0)] = 300,
    rules: Annotated[int, typer.Option(min=1, max=planted.MAX_RULES)] = 1000,
    seed: int = 0,
) -> None:
    """Make data whose rules nobody can know, and whose answers follow from the text."""
    for path in planted.write(output, train=rows, held_out=held_out, rules=rules, seed=seed):
        typer.echo(str(path))
