"""Pages in Prometheus' text format, of which only a few metrics are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.samples import Sample


def samples(page: bytes, names: tuple[str, ...]) -> Iterator[Sample]:
    """Yield the samples of the metrics whose names begin with one of ``names``. Raises ValueError for what is
    no such page."""
    # Importing it takes longer than a page does, and most processes never see one.
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in page.decode().splitlines() if line.startswith(names)]
    for family in text_string_to_metric_families("\n".join([*lines, ""])):
        yield from family.samples
