"""An HTTP server beside the program that it serves for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import uvicorn


class Server(uvicorn.Server):
    """uvicorn that answers with ``app``, says nothing of its own, and leaves signals to the program; ``more``
    are settings of uvicorn's."""

    def __init__(self, app: Any, **more: Any) -> None:
        quiet: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False}
        super().__init__(uvicorn.Config(app, ws="none", lifespan="off", proxy_headers=False, **quiet, **more))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield
