"""A budget that notes what it is asked, and allows it or refuses everything."""

from __future__ import annotations

from dataclasses import dataclass, field

from combee.errors import BudgetExhaustedError


@dataclass
class NotedBudget:
    """``asked``: (role, prompt tokens, output tokens, again) of each request; ``recalled``: roles of hits."""

    refuses: bool = False
    asked: list[tuple[str, int, int, bool]] = field(default_factory=list)
    recalled: list[str] = field(default_factory=list)
    held: int = 0

    def hold(self, role: str, prompt_tokens: int, output_tokens: int, *, again: bool = False) -> NotedBudget:
        self.asked.append((role, prompt_tokens, output_tokens, again))
        self._refuse()
        self.held += 1
        return self

    def recall(self, role: str) -> None:
        self.recalled.append(role)
        self._refuse()

    def release(self) -> None:
        self.held -= 1

    def _refuse(self) -> None:
        if self.refuses:
            raise BudgetExhaustedError("the budget of 10 tokens is spent")
