"""An adapter of the gepa package in a process of its own: run by path, never imported.

One JSON object a line. The first line of standard input says what makes the adapter and where the task model is; each
one after it is a rollout. Each line of standard output answers one. When standard input ends, so does the process,
whatever it is doing. What the adapter prints goes to standard error. Standard library only, besides the adapter itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import json
import math
import os
import queue
import sys
import threading
import traceback
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

MAX_TEXT = 20_000
"""characters of one text that is answered"""
MAX_RECORDS = 20
"""records of one component"""
MAX_DEPTH = 8
MAX_WORDS = 2_000


class Model:
    """The run's task model: called with messages, or with one text, it returns the answer's text.

    ``name``, ``base_url`` and ``api_key`` are for clients of one's own.
    """

    def __init__(self, name: str, base_url: str, api_key: str) -> None:
        self.name, self.base_url, self.api_key = name, base_url, api_key
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def __call__(self, messages: str | Sequence[Mapping[str, Any]], **settings: Any) -> str:
        """RuntimeError when there is no answer. ``settings``: such as temperature or max_tokens."""
        asked = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        body = json.dumps({**settings, "model": self.name, "messages": asked}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.api_key}"}
        request = urllib.request.Request(f"{self.base_url}/chat/completions", body, headers)  # noqa: S310
        try:
            with self._open(request) as reply:
                message = json.load(reply)["choices"][0]["message"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"the task model gave no answer (HTTP {error.code})") from None
        except OSError as error:
            raise RuntimeError(f"the task model cannot be asked ({type(error).__name__})") from None
        return str(message.get("content") or "")


class Broken(Exception):
    """The adapter does not keep to gepa's protocol."""


def main() -> None:
    """Answer line after line."""
    told, out = _lines(), _own_output()
    first = told.get()
    try:
        adapter, code = _made(first["factory"], Model(*first["model"]))
    except BaseException as error:
        return _say(out, {"failed": f"{_named(error)}: {str(error)[:300]}".rstrip(": ")})
    _say(out, {"code": code})
    while True:
        _say(out, _answer(adapter, told.get()))


def _lines() -> queue.SimpleQueue[dict[str, Any]]:
    """The lines of standard input, as they come."""
    found: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    given = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def read() -> None:
        for line in given:
            found.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return found


def _own_output() -> TextIO:
    """Standard output for answers alone: what the adapter prints goes where errors go."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sys.stdout.flush()
    os.dup2(2, 1)
    return out


def _say(out: TextIO, answer: Mapping[str, Any]) -> None:
    out.write(json.dumps(answer) + "\n")
    out.flush()


def _made(path: str, model: Model) -> tuple[Any, str]:
    """The adapter, and the digest of the module that makes it."""
    module_name, _, name = path.partition(":")
    module = importlib.import_module(module_name)
    factory = getattr(module, name)
    wants: Mapping[str, Any] = {}
    with contextlib.suppress(TypeError, ValueError):
        wants = inspect.signature(factory).parameters
    adapter = factory(model=model) if "model" in wants else factory()
    missing = [m for m in ("evaluate", "make_reflective_dataset") if not callable(getattr(adapter, m, None))]
    if missing:
        raise Broken(f"what it makes has no method {', '.join(missing)}")
    file = getattr(module, "__file__", None)
    return adapter, hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""


def _answer(adapter: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return _rollout(adapter, asked)
    except Broken as error:
        return {"broken": str(error)}
    except Exception as error:
        return {"raised": _named(error), "words": traceback.format_exc()[-MAX_WORDS:]}


def _rollout(adapter: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    candidate, reflected = asked["candidate"], asked["reflected"]
    done = adapter.evaluate([asked["row"]], dict(candidate), capture_traces=reflected)
    (score,), (output,) = _lone(done, "scores"), _lone(done, "outputs")
    objectives = getattr(done, "objective_scores", None)
    has_traces = reflected and bool(getattr(done, "trajectories", None))
    return {
        "score": None if score is None else _number(score, "a score", lost=True),
        "output": _text(output),
        "objectives": _objectives(_lone(done, "objective_scores")[0]) if objectives else {},
        **(_reflected(adapter, done, candidate) if has_traces else {"records": {}}),
    }


def _lone(done: Any, name: str) -> Sequence[Any]:
    """The list of that name, which must have one item."""
    found = getattr(done, name, None)
    if not isinstance(found, Sequence) or len(found) != 1:
        raise Broken(f"evaluate must return {name}, a list with one item for each row of the batch")
    return found


def _number(value: Any, what: str, *, lost: bool = False) -> float | None:
    """A finite number; ``lost``: None for what is no number at all, as of a failed example."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise Broken(f"evaluate must return numbers, and {what} is {type(value).__name__}") from None
    if math.isfinite(number):
        return number
    if lost and math.isnan(number):
        return None
    raise Broken(f"evaluate returned {what} that is {number}")


def _objectives(found: Any) -> dict[str, float | None]:
    if not isinstance(found, Mapping) or not all(isinstance(name, str) and name for name in found):
        raise Broken("evaluate must return objective_scores, for each row a mapping of names to numbers")
    return {name: _number(value, f"the objective {name}") for name, value in found.items()}


def _reflected(adapter: Any, done: Any, candidate: Mapping[str, str]) -> dict[str, Any]:
    """The reflective dataset, asked for one component at a time. Raising says that there is nothing to learn; where
    it does for all, that is told."""
    found: dict[str, list[Any]] = {}
    raised = ""
    for name in candidate:
        try:
            made = adapter.make_reflective_dataset(dict(candidate), done, [name])
        except Exception as error:
            raised = _named(error)
            continue
        if not isinstance(made, Mapping):
            raise Broken("make_reflective_dataset must return a mapping of components to lists of records")
        rows = list(made.get(name) or ())[:MAX_RECORDS]
        if not all(isinstance(row, Mapping) for row in rows):
            raise Broken("make_reflective_dataset must return records that are mappings")
        found[name] = [_plain(row) for row in rows]
    return {"records": found, **({} if found else {"unreflected": raised})}


def _plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON takes it, its texts cut."""
    if isinstance(value, bool | int | float) or value is None:
        return value if not isinstance(value, float) or math.isfinite(value) else str(value)
    if depth < MAX_DEPTH and isinstance(value, Mapping):
        return {str(name): _plain(inner, depth + 1) for name, inner in value.items()}
    if depth < MAX_DEPTH and isinstance(value, list | tuple):
        return [_plain(inner, depth + 1) for inner in value]
    return str(value)[:MAX_TEXT]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value[:MAX_TEXT]
    if isinstance(value, Mapping) and len(value) == 1:
        return _text(next(iter(value.values())))
    return json.dumps(_plain(value), ensure_ascii=False)[:MAX_TEXT]


def _named(error: BaseException) -> str:
    """The type of an exception and the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if len(frames) > 1 else ""
    return f"{type(error).__name__}{at}"


if __name__ == "__main__":
    main()
