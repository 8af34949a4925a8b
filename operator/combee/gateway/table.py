"""What the gateway knows at one moment. A request looks once and uses that table until it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from combee.api.gateway import GatewayLimits, ShadowLimits
from combee.gateway.spool import Place
from combee.work.traffic.rewrite import Preface

Check = Callable[[str], Awaitable[str]]
"""Says who holds a bearer token that is let in; an empty string for one that is not."""
_LIMITS, _SHADOW = GatewayLimits(), ShadowLimits()


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may use."""

    max_request_bytes: int = _LIMITS.max_request_bytes
    deadline_seconds: float = _LIMITS.deadline_seconds
    max_in_flight: int = _LIMITS.max_in_flight


@dataclass(frozen=True, slots=True)
class Served:
    """One version, ready to be put in front of messages."""

    digest: str
    preface: Preface
    """the playbook's text, escaped as part of a JSON string, or what chooses from it."""


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
    queue: int = _SHADOW.queue
    concurrency: int = _SHADOW.concurrency
    deadline_seconds: float = _SHADOW.deadline_seconds


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
    model: str = ""
    """the only model that chat requests may name; empty: any."""


@dataclass(frozen=True, slots=True)
class Table:
    """All Playbooks of the namespace that are served."""

    routes: Mapping[str, Route] = field(default_factory=dict)
    known: bool = False
    """whether the API server has answered yet; until then the gateway does not know which Playbooks exist."""
