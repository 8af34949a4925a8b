"""A worker that is killed before or after it writes: ``killed-at-write KIND MOMENT``. KIND is that of
the first write at which it dies; MOMENT is ``before`` or ``after``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from combee.pod.main import program


def around(real: Callable[..., None], kind: str, moment: str) -> Callable[..., None]:
    """The write that kills."""
    store = (Path(os.environ["COMBEE_ROOT"]) / "store").resolve()

    def write(source: Any, target: Any, *more: Any, **words: Any) -> None:
        path = Path(target).resolve()
        ours = path.is_relative_to(store) and kind_in(str(path.relative_to(store))) == kind
        if ours and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        real(source, target, *more, **words)
        if ours:
            os.kill(os.getpid(), signal.SIGKILL)

    return write


def kind_in(path: str) -> str:
    """Which of the writes of a reduce it is."""
    kinds = {"memo": "memo", "blobs": "blob", "left": "left", "claims": "claim", "json": "receipt"}
    parts = (path.rpartition(".")[2], *path.split("/"))
    return next((kinds[part] for part in parts if part in kinds), "other")


def main() -> None:
    """The program."""
    kind, moment = sys.argv[1:]
    os.link, os.replace = (around(one, kind, moment) for one in (os.link, os.replace))
    sys.argv = ["combee-worker", "step"]
    program()
