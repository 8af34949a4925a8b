"""An adapter of the gepa package in its own process: run by path, never imported.

Each line is one JSON object. The first line of standard input names the adapter's factory and the task model;
each later line is a rollout. Each line of standard output answers one line. When standard input ends, the
process ends at once. What the adapter prints goes to standard error. Besides the adapter it needs only the
standard library.
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
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

MAX_TEXT = 20_000
"""The most characters of one text in an answer."""
MAX_RECORDS = 20
"""The most records of one component."""
MAX_DEPTH = 8
MAX_WORDS = 2_000


class Model:
    """The run's task model: called with messages, or with one text, it returns the answer's text.

    ``name``, ``base_url`` and ``api_key`` are for adapters that use their own client.
    """

    def __init__(self, name: str, base_url: str, api_key: str) -> None:
        self.name, self.base_url, self.api_key = name, base_url, api_key

    def __call__(self, messages: str | Sequence[Mapping[str, Any]], **settings: Any) -> str:
        """Return the answer's text. ``settings``: such as temperature or max_tokens.

        Raises RuntimeError when the model gives no answer.
        """
        # Imported late: half of the time of a start, and not every adapter asks.
        import urllib.error
        import urllib.request

        conversation = (
            [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        )
        body = json.dumps({**settings, "model": self.name, "messages": conversation}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.api_key}"}
        request = urllib.request.Request(f"{self.base_url}/chat/completions", body, headers)  # noqa: S310
        try:
            with self._opener.open(request) as reply:
                message = json.load(reply)["choices"][0]["message"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"the task model gave no answer (HTTP {error.code})") from None
        except OSError as error:
            raise RuntimeError(f"the task model cannot be asked ({type(error).__name__})") from None
        return str(message.get("content") or "")

    @cached_property
    def _opener(self) -> Any:
        import urllib.request

        return urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Broken(Exception):
    """The adapter does not follow gepa's protocol."""


def main() -> None:
    """Make the adapter, then answer each line of standard input."""
    requests, answers = _lines(), _own_output()
    first = requests.get()
    try:
        adapter, code = _make_adapter(first["factory"], Model(*first["model"]))
    except BaseException as error:
        return _say(answers, {"failed": f"{_named(error)}: {str(error)[:300]}".rstrip(": ")})
    _say(answers, {"code": code})
    while True:
        _say(answers, _answer(adapter, requests.get()))


def _lines() -> queue.SimpleQueue[dict[str, Any]]:
    """Return a queue of the requests on standard input, which a thread fills."""
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    lines = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def read() -> None:
        for line in lines:
            requests.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return requests


def _own_output() -> TextIO:
    """Return standard output for answers alone, and redirect what the adapter prints to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sys.stdout.flush()
    os.dup2(2, 1)
    return out


def _say(out: TextIO, answer: Mapping[str, Any]) -> None:
    out.write(json.dumps(answer) + "\n")
    out.flush()


def _make_adapter(path: str, model: Model) -> tuple[Any, str]:
    """Return the adapter, and the digest of the module that makes it."""
    module_name, _, name = path.partition(":")
    module = importlib.import_module(module_name)
    factory = getattr(module, name)
    parameters: Mapping[str, Any] = {}
    with contextlib.suppress(TypeError, ValueError):
        parameters = inspect.signature(factory).parameters
    adapter = factory(model=model) if "model" in parameters else factory()
    missing_methods = [
        method
        for method in ("evaluate", "make_reflective_dataset")
        if not callable(getattr(adapter, method, None))
    ]
    if missing_methods:
        raise Broken(f"what it makes has no method {', '.join(missing_methods)}")
    file = getattr(module, "__file__", None)
    return adapter, hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""


def _answer(adapter: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return _rollout(adapter, request)
    except Broken as error:
        return {"broken": str(error)}
    except Exception as error:
        return {"raised": _named(error), "words": traceback.format_exc()[-MAX_WORDS:]}


def _rollout(adapter: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    candidate, reflected = request["candidate"], request["reflected"]
    batch = adapter.evaluate([request["row"]], dict(candidate), capture_traces=reflected)
    (score,), (output,) = _lone(batch, "scores"), _lone(batch, "outputs")
    objectives = getattr(batch, "objective_scores", None)
    has_traces = reflected and bool(getattr(batch, "trajectories", None))
    return {
        "score": None if score is None else _number(score, "a score", may_fail=True),
        "output": _text(output),
        "objectives": _objectives(_lone(batch, "objective_scores")[0]) if objectives else {},
        **(_reflected(adapter, batch, candidate) if has_traces else {"records": {}}),
    }


def _lone(batch: Any, name: str) -> Sequence[Any]:
    """Return the list of that name, which must have one item."""
    values = getattr(batch, name, None)
    if not isinstance(values, Sequence) or len(values) != 1:
        raise Broken(f"evaluate must return {name}, a list with one item for each row of the batch")
    return values


def _number(value: Any, label: str, *, may_fail: bool = False) -> float | None:
    """Return a finite number. With ``may_fail`` NaN, the score of a failed example, becomes None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise Broken(f"evaluate must return numbers, and {label} is {type(value).__name__}") from None
    if math.isfinite(number):
        return number
    if may_fail and math.isnan(number):
        return None
    raise Broken(f"evaluate returned {label} that is {number}")


def _objectives(scores: Any) -> dict[str, float | None]:
    if not isinstance(scores, Mapping) or not all(isinstance(name, str) and name for name in scores):
        raise Broken("evaluate must return objective_scores, for each row a mapping of names to numbers")
    return {name: _number(value, f"the objective {name}") for name, value in scores.items()}


def _reflected(adapter: Any, batch: Any, candidate: Mapping[str, str]) -> dict[str, Any]:
    """Return the reflective dataset, made for one component at a time. An adapter that raises has nothing to
    learn for the component; where it raises for all, ``unreflected`` names the last exception."""
    records: dict[str, list[Any]] = {}
    raised = ""
    for name in candidate:
        try:
            dataset = adapter.make_reflective_dataset(dict(candidate), batch, [name])
        except Exception as error:
            raised = _named(error)
            continue
        if not isinstance(dataset, Mapping):
            raise Broken("make_reflective_dataset must return a mapping of components to lists of records")
        rows = list(dataset.get(name) or ())[:MAX_RECORDS]
        if not all(isinstance(row, Mapping) for row in rows):
            raise Broken("make_reflective_dataset must return records that are mappings")
        records[name] = [_plain(row) for row in rows]
    return {"records": records, **({} if records else {"unreflected": raised})}


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value that JSON can hold, with long texts cut."""
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
    """Return the type of an exception and the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if len(frames) > 1 else ""
    return f"{type(error).__name__}{at}"


if __name__ == "__main__":
    main()
