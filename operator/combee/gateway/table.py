"""What the gateway knows at one moment. A request looks once and uses that table until it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from combee.gateway.spool import Place

Check = Callable[[str], Awaitable[bool]]
"""Says whether a bearer token is let in."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may use."""

    max_request_bytes: int = 10_485_760
    deadline_seconds: float = 600.0
    max_in_flight: int = 1000


@dataclass(frozen=True, slots=True)
class Served:
    """One version, ready to be put in front of messages."""

    digest: str
    preface: str
    """the playbook's text, escaped as part of a JSON string."""


NOTHING = Served("", "")
"""No version is active: requests pass unchanged."""


@dataclass(frozen=True, slots=True)
class TrafficComparison:
    """A comparison of versions on live traffic, read from a version's status."""

    id: str
    digest: str
    """digest of the version under comparison."""
    against: str
    share: float
    """share of requests, 0 to 1."""
    other: Served
    """the version of the pair that is not served; sampled requests are sent to it as well."""


@dataclass(frozen=True, slots=True)
class Mirroring:
    """What the gateway does with a share of the requests besides answering them."""

    place: Place
    comparisons: tuple[TrafficComparison, ...] = ()
    captured_share: float = 0.0
    """share of requests, 0 to 1, that are recorded with their answers and not compared."""
    queue: int = 100
    concurrency: int = 4
    deadline_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Route:
    """How one Playbook is served."""

    playbook: str
    served: Served
    upstream: str
    """base address, without a trailing slash."""
    upstream_key: str
    allowed: Check
    limits: Limits = field(default_factory=Limits)
    mirroring: Mirroring | None = None
    problem: str = ""
    """why the Playbook cannot be served, for the log; empty when it can."""
    page: bool = False
    """whether the page shows this Playbook."""


@dataclass(frozen=True, slots=True)
class Table:
    """All Playbooks of the namespace that are served."""

    routes: Mapping[str, Route] = field(default_factory=dict)
    known: bool = False
    """whether the API server has answered yet; until then the gateway does not know which Playbooks exist."""
