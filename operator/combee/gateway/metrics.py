"""What the gateway counts. Names and labels are promises; no label holds anything of a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from combee.gateway.door import Door
from combee.gateway.room import Room

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
OWN_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0)
UNKNOWN = ""
"""the playbook label of requests to an unknown Playbook, so that clients cannot invent label values."""


@dataclass(slots=True)
class Metrics:
    """The gateway's metrics."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    requests: Counter = field(init=False)
    seconds: Histogram = field(init=False)
    first_byte: Histogram = field(init=False)
    prepared: Histogram = field(init=False)
    in_flight: Gauge = field(init=False)
    switches: Counter = field(init=False)
    active: Gauge = field(init=False)
    watching: Gauge = field(init=False)
    mirrored: Counter = field(init=False)
    body_bytes: Gauge = field(init=False)
    body_bytes_limit: Gauge = field(init=False)
    no_memory: Counter = field(init=False)
    shed: Counter = field(init=False)
    page: Counter = field(init=False)
    connections: Gauge = field(init=False)
    doorway: Counter = field(init=False)
    _children: dict[tuple[str, ...], Any] = field(default_factory=dict)
    """metrics' children by key, since looking one up takes as long as counting."""

    def __post_init__(self) -> None:
        registry = self.registry
        self.requests = Counter(
            "combee_gateway_requests_total",
            "Requests, by Playbook and status; 499: the client went away, 599: the answer broke off.",
            ["playbook", "code"],
            registry=registry,
        )
        self.seconds = Histogram(
            "combee_gateway_seconds",
            "From a request's first byte to its answer's last.",
            ["playbook"],
            buckets=SECONDS,
            registry=registry,
        )
        self.first_byte = Histogram(
            "combee_gateway_first_byte_seconds",
            "From sending a request on to the upstream's first byte.",
            ["playbook"],
            buckets=SECONDS,
            registry=registry,
        )
        self.prepared = Histogram(
            "combee_gateway_prepare_seconds",
            "What the gateway itself does before it sends a request on.",
            ["playbook"],
            buckets=OWN_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge("combee_gateway_in_flight", "Requests under way.", registry=registry)
        self.switches = Counter(
            "combee_gateway_switches_total", "Changes of the version served.", ["playbook"], registry=registry
        )
        self.active = Gauge(
            "combee_gateway_active", "1 for the version served.", ["playbook", "digest"], registry=registry
        )
        self.watching = Gauge(
            "combee_gateway_watching", "1 while changes of this kind come in.", ["kind"], registry=registry
        )
        self.mirrored = Counter(
            "combee_gateway_mirrored_total",
            "Sampled requests: Kept, Shed (no room), Failed (no whole answer to compare).",
            ["playbook", "outcome"],
            registry=registry,
        )
        self._of_memory(registry)
        self._of_door(registry)
        self.page = _of_page(registry)

    def _of_memory(self, registry: CollectorRegistry) -> None:
        self.body_bytes = Gauge(
            "combee_gateway_body_bytes",
            "Memory taken by requests under way and by samples.",
            registry=registry,
        )
        self.body_bytes_limit = Gauge(
            "combee_gateway_body_bytes_limit", "The most memory that they may take.", registry=registry
        )
        self.no_memory = Counter(
            "combee_gateway_no_memory_total",
            "Requests told to come again because there was no memory for them.",
            ["playbook"],
            registry=registry,
        )

    def _of_door(self, registry: CollectorRegistry) -> None:
        self.connections = Gauge("combee_gateway_connections", "Clients' connections.", registry=registry)
        self.shed = Counter(
            "combee_gateway_shed_total",
            "Requests told to come again because too many were under way, by code: overloaded, share_taken.",
            ["playbook", "code"],
            registry=registry,
        )
        self.doorway = Counter(
            "combee_gateway_turned_away_total",
            "Connections closed before a key was looked at, by reason.",
            ["reason"],
            registry=registry,
        )

    def look_through(self, door: Door) -> None:
        """Report the connections whenever the metrics are read."""
        self.connections.set_function(lambda: door.inside)

    def turned_away(self, reason: str) -> None:
        """Count a connection that was closed before a key was looked at."""
        self.doorway.labels(reason).inc()

    def look_at(self, room: Room) -> None:
        """Report the memory taken for bodies, and its limit, whenever the metrics are read."""
        self.body_bytes.set_function(lambda: room.taken)
        self.body_bytes_limit.set(room.most)

    def sent_on(self, playbook: str, seconds: float) -> None:
        """Count a request as sent on, ``seconds`` after it came."""
        self._child(self.prepared, "prepared", playbook).observe(seconds)

    def began(self, playbook: str, seconds: float) -> None:
        """Count the upstream's first byte, ``seconds`` after the request was sent on."""
        self._child(self.first_byte, "first_byte", playbook).observe(seconds)

    def answered(self, playbook: str, code: int, seconds: float) -> None:
        """Count a finished request, ``seconds`` after it came."""
        self._child(self.requests, "requests", playbook, str(code)).inc()
        self._child(self.seconds, "seconds", playbook).observe(seconds)

    def _child(self, metric: Any, *key: str) -> Any:
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*key[1:])
        return child

    def switched(self, playbook: str, before: str, after: str) -> None:
        """Count a change of the served version; an empty digest means no version."""
        self.switches.labels(playbook).inc()
        if before:
            self.active.remove(playbook, before)
        if after:
            self.active.labels(playbook, after).set(1)


def _of_page(registry: CollectorRegistry) -> Counter:
    return Counter(
        "combee_gateway_page_requests_total",
        "Requests of people's browsers for the page, by status; 401: a key that does not fit.",
        ["code"],
        registry=registry,
    )
