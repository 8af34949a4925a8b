"""A TLS server on this machine, with a certificate made for the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tls_server import TlsServer, make_certificate, serving


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def tls(certificate: tuple[Path, Path]) -> Iterator[TlsServer]:
    with serving(certificate) as server:
        yield server
