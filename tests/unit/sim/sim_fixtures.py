"""What the simulated model's tests share: data, key, a model, and asking it by text alone."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from combee.sim import keyfile
from combee.sim.model import Model
from combee.sim.params import Law

Row = dict[str, str]
_DATA = Path(__file__).resolve().parents[3] / "examples" / "data"


def data_file(split: str, task: str = "formula") -> Path:
    """A task's rows of a split."""
    return _DATA / task / f"{split}.jsonl"


@cache
def rows(split: str = "train", task: str = "formula") -> tuple[Row, ...]:
    text = data_file(split, task).read_text(encoding="utf-8")
    return tuple(json.loads(line) for line in text.splitlines())


@cache
def formula_key() -> dict[str, Any]:
    return keyfile.build("formula", [("train", data_file("train").read_bytes())])


@cache
def finer_key() -> dict[str, Any]:
    files = [(split, data_file(split, "finer").read_bytes()) for split in ("train", "heldout")]
    return keyfile.build("finer", files)


def finer_model(seed: int = 0, law: Law | None = None, **options: Any) -> Model:
    return Model([finer_key()], seed=seed, law=law, **options)


def model(seed: int = 0, law: Law | None = None, **options: Any) -> Model:
    return Model([formula_key()], seed=seed, law=law, **options)


def unknown_topics(served: Model, key: dict[str, Any]) -> set[str]:
    return {topic for topic in key["topics"] if not served.book.rule(topic).known}


def body(text: str, seed: int = 0, schema: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    request: dict[str, Any] = {
        "model": "sim",
        "messages": [{"role": "user", "content": text}],
        "seed": seed,
        **more,
    }
    if schema is not None:
        request["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "reply", "schema": schema},
        }
    return request


def asker(served: Model) -> Any:
    """(prompt text, seed) -> reply text."""
    return lambda text, seed: served.respond(body(text, seed)).text
