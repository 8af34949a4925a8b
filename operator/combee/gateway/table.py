"""What the gateway knows at one moment: a request looks once and uses what it saw to its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from combee.gateway.spool import Place

Check = Callable[[str], Awaitable[bool]]
"""Whether a bearer token is let in."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may take."""

    max_request_bytes: int = 10_485_760
    deadline_seconds: float = 600.0
    max_in_flight: int = 1000


@dataclass(frozen=True, slots=True)
class Served:
    """One version, ready to be put before messages."""

    digest: str
    preface: str
    """as it stands inside a JSON string."""


NOTHING = Served("", "")
"""No version is active: requests pass as they are."""


@dataclass(frozen=True, slots=True)
class TrafficTest:
    """A comparison on traffic that is under way, as a version's status tells it."""

    id: str
    digest: str
    """of the version that is tested."""
    against: str
    share: float
    """of requests, 0 to 1."""
    other: Served
    """the one of both that is not served: requests are asked of it once more."""


@dataclass(frozen=True, slots=True)
class Mirroring:
    """What is to be done with a share of the requests besides answering them."""

    place: Place
    tests: tuple[TrafficTest, ...] = ()
    captured_share: float = 0.0
    """of requests that are only kept, with their answers."""
    queue: int = 100
    concurrency: int = 4
    deadline_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Route:
    """One Playbook."""

    playbook: str
    served: Served
    upstream: str
    """base address, without a slash at its end."""
    upstream_key: str
    allowed: Check
    limits: Limits = field(default_factory=Limits)
    mirroring: Mirroring | None = None
    problem: str = ""
    """why it cannot answer, for the log; empty: it can."""
    page: bool = False
    """whether it is shown to people."""


@dataclass(frozen=True, slots=True)
class Table:
    """All Playbooks of the namespace that are served."""

    routes: Mapping[str, Route] = field(default_factory=dict)
    known: bool = False
    """whether the API server was asked at all; before that nobody can say what there is."""
