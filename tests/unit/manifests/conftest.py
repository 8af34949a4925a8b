"""``pytest tests/unit/manifests --update-golden`` writes the golden files anew; review them as a diff."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden/*.yaml anew")
