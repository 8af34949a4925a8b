"""The flags that give a laptop what a cluster would, as written. Imports nothing: ``--help`` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StandInFlags:
    """Each flag that may be repeated, with its values in order."""

    engines: Sequence[str] = ()
    """``NAME=URL``."""
    engine_keys: Sequence[str] = ()
    """``NAME=env:VAR``."""
    engine_models: Sequence[str] = ()
    """``NAME=MODEL``."""
    secrets: Sequence[str] = ()
    """``NAME/KEY=env:VAR``."""
    data: Sequence[str] = ()
    """``SPLIT=PATH``."""

    def words(self) -> list[str]:
        """The same flags for another command line."""
        flags = {
            "--engine": self.engines,
            "--engine-key": self.engine_keys,
            "--engine-model": self.engine_models,
            "--secret": self.secrets,
            "--data": self.data,
        }
        return [word for flag, values in flags.items() for value in values for word in (flag, value)]
