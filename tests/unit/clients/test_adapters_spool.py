"""What is put aside comes back as it was, from any thread, and leaves nothing behind."""

from __future__ import annotations

import errno
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from combee.clients.data.spool import Spool
from combee.errors import UserError


def test_everything_comes_back_as_it_was_in_any_order() -> None:
    spool = Spool()
    kept = [bytes([n % 256]) * n + os.urandom(n) for n in range(200)]
    bring = [spool.keep(data) for data in kept]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda load: load(), reversed(bring))) == kept[::-1]


def test_no_file_is_left_to_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    load = Spool().keep(b"secret")
    assert not list(tmp_path.iterdir())
    assert load() == b"secret"


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(
        UserError, match=r"no room for the data that is put aside \(No space left on device\)\. .*TMPDIR"
    ):
        Spool().keep(b"x")
