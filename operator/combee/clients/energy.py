"""What GPUs used, as dcgm-exporter says it on its metrics page. A page that cannot be had is no reading."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2

from combee import __version__
from combee.algo.energy import Reading
from combee.clients.answers import UNENCODED, TooLongError, body_of
from combee.clients.model.lanes import LaneTransport
from combee.clients.reach import resolve
from combee.clients.samples import samples
from combee.errors import AddressNotAllowedError

ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
"""A counter for each GPU, in millijoules since its driver was loaded."""
MILLIJOULES = 1000.0
WITHIN_SECONDS = 5.0
MOST_BYTES = 8 << 20
"""The largest page."""


class UnreadableError(Exception):
    """A page that cannot be had, or that says nothing of energy."""


@dataclass(frozen=True, slots=True)
class EnergyMeter:
    """Reads the pages behind one address. It sends no credentials and follows no redirect."""

    url: str
    pods: Sequence[str] = ()
    """what the names of the run's own servers' pods begin with; empty: every GPU on the pages counts."""
    clock: Callable[[], float] = time.time

    async def read(self) -> Reading:
        """Return what the GPUs' counters show, in joules. Raises UnreadableError."""
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                pages = await self._pages()
        except AddressNotAllowedError as error:
            raise UnreadableError(f"may not be asked: {error}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, TimeoutError) as error:
            raise UnreadableError(f"does not answer ({type(error).__name__})") from None
        counters = [counter for page in pages for counter in _counters(page)]
        if not counters:
            raise UnreadableError(f"has no {ENERGY}")
        mapped = bool(self.pods) and any(pod for _, pod, _ in counters)
        return Reading(
            self.clock(),
            {
                gpu: value / MILLIJOULES
                for gpu, pod, value in counters
                if not mapped or pod.startswith(tuple(self.pods))
            },
        )

    async def _pages(self) -> list[bytes]:
        """Return the page of each address of the name: a Service's own address would give any one of them."""
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        # A certificate is for the name, so that https is asked by it, and of one address.
        by_name = parts.scheme == "https"
        addresses = [host] if by_name else await resolve(host, port)
        transport = LaneTransport.to(self.url, resolved=not by_name)
        async with httpx2.AsyncClient(
            transport=transport, timeout=WITHIN_SECONDS, follow_redirects=False
        ) as client:
            return list(await asyncio.gather(*(self._page(client, one) for one in addresses)))

    async def _page(self, client: httpx2.AsyncClient, address: str) -> bytes:
        url = httpx2.URL(self.url).copy_with(host=address)
        headers = {
            "Host": urlsplit(self.url).netloc.rpartition("@")[2],
            "User-Agent": f"combee/{__version__}",
            **UNENCODED,
        }
        async with client.stream("GET", url, headers=headers) as answer:
            if answer.status_code != 200:
                raise UnreadableError(f"answers {answer.status_code}")
            try:
                return await body_of(answer, MOST_BYTES)
            except TooLongError:
                raise UnreadableError("is too large") from None


def _counters(page: bytes) -> list[tuple[str, str, float]]:
    """Return (GPU, pod, millijoules) of a page in Prometheus' text format; the pod is empty where the
    exporter maps none. Raises UnreadableError for what is no such page."""
    counters = []
    try:
        for sample in samples(page, (ENERGY,)):
            gpu = sample.labels.get("UUID") or ":".join(
                sample.labels.get(name, "") for name in ("Hostname", "gpu")
            )
            pod = sample.labels.get("exported_pod") or sample.labels.get("pod") or ""
            if not 0 <= sample.value < math.inf:
                raise UnreadableError(f"says {sample.value} of {gpu}")
            counters.append((gpu, pod, sample.value))
    except ValueError:
        raise UnreadableError("is no metrics page") from None
    return counters
