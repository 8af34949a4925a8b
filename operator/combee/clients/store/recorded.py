"""The store of a run that is replayed: answers come from the record, and what is written goes elsewhere.

The record is only read. A call that it lacks is an error that names it; a call that was lost is lost again.
"""

from __future__ import annotations

from pathlib import Path

from combee.clients.model.memo import MEMO, is_readable
from combee.clients.store.folder import Folder
from combee.clients.store.store import Store
from combee.errors import CombeeError, UserError


class Recorded(Folder):
    """Objects in a folder of its own, but for the memo, which is the record's."""

    def __init__(self, root: Path, record: Store) -> None:
        super().__init__(root)
        self.lost: dict[str, list[CombeeError]] = {}
        """the calls that the step lost: by key, their errors in the order in which they were met."""
        self.answers = 0
        self.taken: set[str] = set()
        """the paths of the answers, each once."""
        self._record = record

    def get(self, path: str) -> bytes | None:
        """Return the object's bytes. Of the memo: the recorded answer; raises UserError where there is
        none, and the error of a call that was lost."""
        folder, _, key = path.rpartition("/")
        if not folder.startswith(f"{MEMO}/"):
            return super().get(path)
        if errors := self.lost.get(key):
            raise errors.pop(0)
        data = self._record.get(path)
        if data is None or not is_readable(key, data):
            raise UserError(
                f"the record {'lacks' if data is None else 'has a damaged answer to'} the call {key}",
                where=f"{self._record.uri}/{path}",
                fix="Replay with the manifest, data and version of the run, on its whole store",
            )
        self.answers += 1
        self.taken.add(path)
        return data
