"""The memo of a run, or of a step, that is done again: it answers, and nobody is asked.

A call that was lost is lost again, and one that the memo lacks is an error that names it.
"""

from __future__ import annotations

from combee.clients.model.memo import Memo
from combee.clients.model.wire import Completion
from combee.clients.store.store import Store
from combee.errors import CombeeError, UserError


class Recorded(Memo):
    """The memo of a store that is only read."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.lost: dict[str, list[CombeeError]] = {}
        """the calls that the step lost: by key, their errors in the order in which they were met."""
        self.answers = 0
        self.taken: set[str] = set()
        """the paths of the answers, each once."""

    async def get(self, key: str) -> Completion | None:
        """Return the recorded answer. Raises UserError where there is none, and the error of a call that was
        lost."""
        if errors := self.lost.get(key):
            raise errors.pop(0)
        completion, path = await super().get(key), self.path_of(key)
        if completion is None:
            verb = "has a damaged answer to" if await self._store.aexists(path) else "lacks"
            raise UserError(
                f"the record {verb} the call {key}",
                where=f"{self._store.uri}/{path}",
                fix="Replay with the manifest, data and version of the run, on its whole store",
            )
        self.answers += 1
        self.taken.add(path)
        return completion
