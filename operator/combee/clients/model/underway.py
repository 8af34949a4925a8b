"""Notes about one call while it is under way: its requests, and what they hold of the budget."""

from __future__ import annotations

from dataclasses import dataclass, field

from combee.clients.model.wire import Hold


@dataclass(slots=True)
class Call:
    """One call, of one request or more. Times are in seconds."""

    started: float
    queued: float = 0.0
    in_flight: int = 0
    """Calls in flight at its server when it went, this one included."""
    attempts: int = 0
    lost: int = 0
    """Requests that a server may be working on, or worked on, those that it answered included."""
    holds: list[Hold] = field(default_factory=list)
    """What those may use, and the one that is answered."""
    reasons: list[str] = field(default_factory=list)

    @property
    def beside(self) -> int:
        """The requests beside the one whose answer counts that a server may have worked on."""
        return max(0, self.lost - 1)

    def sent(self, hold: Hold | None) -> None:
        """Note a request that goes out now."""
        self.lost += 1
        if hold is not None:
            self.holds.append(hold)

    def refused(self, hold: Hold | None) -> None:
        """Note that no server works on a request: what it held is free."""
        self.lost -= 1
        if hold is not None:
            self.holds.pop().release()  # all hold as many tokens, and the first the call's rollout

    def over(self) -> None:
        """Give back what the requests held: the call's record is charged instead."""
        for hold in self.holds:
            hold.release()
        self.holds.clear()
