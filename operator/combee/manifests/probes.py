"""When a vLLM server has started, takes calls, and is dead.

Loading weights and compiling take minutes to an hour; a liveness probe that runs meanwhile kills the
server for ever. So only the startup probe judges a server that loads, on ``/v1/models``, which
answers once the engine is up. ``/health`` says whether the engine still lives. A server that is
merely busy answers late, so liveness takes minutes to be convinced.
"""

from __future__ import annotations

from combee.manifests.types import Object

STARTUP_SECONDS = 3600
_PERIOD = 2


def probes() -> Object:
    """The three probes of a server's container."""
    return {
        "startupProbe": _get("/v1/models", period=_PERIOD, timeout=5, failures=STARTUP_SECONDS // _PERIOD),
        "readinessProbe": _get("/health", period=5, timeout=5, failures=3),
        "livenessProbe": _get("/health", period=30, timeout=20, failures=10),
    }


def _get(path: str, *, period: int, timeout: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
        "successThreshold": 1,
    }
