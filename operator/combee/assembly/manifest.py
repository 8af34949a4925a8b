"""Manifest files."""

from __future__ import annotations

import sys
from pathlib import Path

from combee.api.load import parse_runs
from combee.api.run import PromptLearningRun
from combee.errors import ManifestError

STANDARD_INPUT = Path("-")
"""the path that stands for standard input; its manifest's paths are relative to the working directory."""


def read_manifest_text(path: Path) -> str:
    """Return the text of a manifest file. Raises ManifestError when it cannot be read or is not UTF-8."""
    try:
        content = sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
        return content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise ManifestError("not UTF-8", where=str(path), fix="Save the manifest as UTF-8") from None
    except OSError as error:
        raise ManifestError(
            f"cannot be read ({error.strerror})", where=str(path), fix="Give the path of a manifest with -f"
        ) from None


def read_run(path: Path) -> PromptLearningRun:
    """Return the only run of a manifest file. Raises UserError when it holds more than one run."""
    return run_in(read_manifest_text(path), str(path))


def run_in(text: str, where: str) -> PromptLearningRun:
    """Return the only run of a manifest's text. Raises UserError when it holds more than one run."""
    runs = parse_runs(text, where)
    if len(runs) > 1:
        raise ManifestError(
            f"{len(runs)} runs in it", where=where, fix="Give one run a file: a folder holds one run"
        )
    return runs[0]
