"""The pod of a canary of mode Prometheus: it asks for the windows that are over, and hands over what came.

Nothing is kept here: the windows that were asked for are in the operator's tally. If the Job is killed, the
next one asks for the same windows, and a window counts once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from combee.algo.tally import Pair
from combee.api.prometheus import Prometheus
from combee.assembly.endpoints import checked_url
from combee.clients.answers import TooLongError
from combee.clients.prometheus import PrometheusApi
from combee.errors import BugError, TransientError
from combee.plan.playbook.judging import JudgeTask
from combee.plan.playbook.queries import Query, Values, compare, end_of, queries, read_answer, windows
from combee.plan.playbook.readings import Reading, Trouble
from combee.pod.log import PodLog

WORK_SECONDS = 180.0
"""The time for all that one Job asks."""
WHERE = "spec.canary.prometheus"


@dataclass(slots=True)
class Looking:
    """One Job's look."""

    task: JudgeTask
    token: str
    publish: Callable[[Sequence[Pair], Reading], None]
    """returns when both are where the operator finds them."""
    log: PodLog
    clock: Callable[[], float] = time.time
    open: Callable[[str, str, str], PrometheusApi] = PrometheusApi.open
    _counts: dict[str, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Ask, compare and hand over. Raises EndpointError and TransientError."""
        prometheus, now = self._prometheus(), self.clock()
        due = windows(prometheus, self.task.begins, self.task.first, now)
        if not due:
            self.log.say("INFO", "no window is over yet")
            return
        api = self.open(checked_url(prometheus.url, f"{WHERE}.url"), self.token, f"{WHERE}.url")
        try:
            async with asyncio.timeout(WORK_SECONDS):
                answers = await self._answers(api, prometheus, due)
        except TimeoutError:
            raise TransientError(
                f"Prometheus does not answer within {WORK_SECONDS:g} s", where=f"{WHERE}.url"
            ) from None
        finally:
            await api.aclose()
        pairs, reading = compare(prometheus, answers, due, now, self.task.begins)
        await asyncio.to_thread(self.publish, pairs, reading)
        self._counts = {"windows": len(due), "compared": len(pairs)}
        if reading.trouble is not None:
            trouble = reading.trouble
            self.log.say(
                "WARNING", "unusable answer", problem=trouble.problem, query=trouble.what, side=trouble.side
            )

    def counts(self) -> dict[str, int]:
        """Return what was asked for, and what came of it."""
        return self._counts

    async def _answers(
        self, api: PrometheusApi, prometheus: Prometheus, due: range
    ) -> dict[Query, Values | Trouble]:
        """Return the answers up to the first that cannot be used."""
        times = {end_of(prometheus, self.task.begins, window): window for window in due}
        answers: dict[Query, Values | Trouble] = {}
        for query in queries(prometheus, self.task.tested, self.task.against):
            try:
                body = await api.query_range(query.text, min(times), max(times), prometheus.window_seconds)
            except TooLongError:
                answers[query] = query.trouble("TooLarge")
            else:
                answers[query] = read_answer(query, body, times)
            if isinstance(answers[query], Trouble):
                break
        return answers

    def _prometheus(self) -> Prometheus:
        if self.task.prometheus is None:
            raise BugError("a look without anything to ask", where="COMBEE_JUDGE")
        return self.task.prometheus
