"""What a peer's loop asked, and in what order: standard library only, since it runs in the peer's Python.

A call made by the main thread is a stage of its own: the loop waits for it before it goes on. Calls made by
other threads between two of those are one stage together. So the structure comes from the code that asks and
not from a clock.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any


class Recorder:
    """Writes one line a call: stage, label, tokens in, cached, out."""

    def __init__(self, url: str, model: str) -> None:
        self.url, self.model = url, model
        self.rows: list[list[Any]] = []
        self.failed: list[str] = []
        self._stage, self._together = 0, False
        self._lock = threading.Lock()

    def note(self, label: str, usage: dict[str, Any]) -> None:
        """Add an answered call."""
        alone = threading.current_thread() is threading.main_thread()
        details = usage.get("prompt_tokens_details") or {}
        with self._lock:
            if alone or not self._together:
                self._stage += 1
            self._together = not alone
            counts = (usage["prompt_tokens"], details.get("cached_tokens") or 0, usage["completion_tokens"])
            self.rows.append([self._stage, label, *counts])

    def ask(self, messages: list[dict[str, str]], label: str) -> str:
        """A chat completion, noted."""
        body = {"model": self.model, "messages": messages, "temperature": 0.0, "max_tokens": 4096}
        request = urllib.request.Request(
            f"{self.url}/chat/completions",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                said = json.load(answer)
        except Exception as error:
            self.failed.append(f"{label}: {error!r}")
            raise
        self.note(label, said["usage"])
        return str(said["choices"][0]["message"]["content"])

    def ask_all(self, many: list[list[dict[str, str]]], label: str, width: int) -> list[str]:
        """The same for all of them, ``width`` at a time."""
        with ThreadPoolExecutor(width) as pool:
            return list(pool.map(lambda messages: self.ask(messages, label), many))

    def write(self, out: Path, artifacts: dict[str, str], **more: Any) -> None:
        """Leave ``calls.jsonl``, ``NAME.txt`` of each artifact and ``facts.json``. RuntimeError if a call
        failed: a loop may have gone on without its answer, and the failure is not the loop's."""
        if self.failed:
            raise RuntimeError(f"{len(self.failed)} calls failed, the first {self.failed[0]}")
        out.mkdir(parents=True, exist_ok=True)
        (out / "calls.jsonl").write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        for name, text in artifacts.items():
            (out / f"{name}.txt").write_text(text)
        (out / "facts.json").write_text(json.dumps(more))
