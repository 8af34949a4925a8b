"""Ports for programs that must be told theirs before they start."""

from __future__ import annotations

import random
import socket

FIRST, BEYOND = 20_000, 30_000
"""Below the ports that systems give to whoever asks for any, and below those of a cluster's nodes: nobody
comes upon one by chance between the look and the program's start."""


def free_ports(count: int) -> list[int]:
    """Return different ports that nobody on this machine has now. Raises OSError when there are too few."""
    found: list[int] = []
    for port in random.SystemRandom().sample(range(FIRST, BEYOND), BEYOND - FIRST):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"fewer than {count} ports are free")
