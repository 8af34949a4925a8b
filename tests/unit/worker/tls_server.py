"""What a test's TLS server is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Reply = tuple[int, dict[str, str], bytes]


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class TlsServer:
    """Answers with what ``answer`` says; remembers what it was asked."""

    ca_file: Path
    port: int = 0
    asked: list[Request] = field(default_factory=list)
    answer: Callable[[Request], Reply] = lambda request: (404, {}, b"")

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"
