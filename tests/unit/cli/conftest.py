"""Commands run in this process and set up its logging: tests of other files find it as it was."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in ("", "combee")}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
