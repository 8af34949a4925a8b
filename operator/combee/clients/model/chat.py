"""Asking a model: memo, limits, budget, retries and the record of every call.

``ChatClient.ask`` is the only way this project talks to a model. Order of events: the memo (a hit
costs no request), a place in the server's batcher, a slot of the run's concurrency, then attempts, each
under the run's rates, the budget and its own deadline. A call keeps its place and slot while it backs off,
so that a server which says "too many" gets fewer requests, and not the same number from other calls. Nothing
is stored per call, and neither prompts nor keys are ever logged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace

from combee.clients.backoff import wait_seconds
from combee.clients.model.batcher import Batcher
from combee.clients.model.body import LEFT_OUT, QUIRKS, RESPONSE_FORMAT, Reply, follows_schema, prompt_tokens
from combee.clients.model.connection import Connection, ConnectionPool, ServedModel
from combee.clients.model.embedding import PROBE
from combee.clients.model.failures import NoAnswerError, StatusError
from combee.clients.model.forms import CHAT, EMBEDDINGS, form_of
from combee.clients.model.limits import Clock, RunLimits, Sleep
from combee.clients.model.memo import Memo
from combee.clients.model.race import Hedger, Race
from combee.clients.model.refusals import (
    Again,
    Query,
    Quirk,
    about_model,
    final,
    meaning_of,
    spent,
    unknown_model,
    unreachable,
)
from combee.clients.model.underway import Call
from combee.clients.model.wire import (
    Answered,
    Budget,
    CallRecord,
    CanonicalRequest,
    ChatRequest,
    Completion,
    Endpoint,
    OnCall,
)
from combee.errors import BugError, CombeeError
from combee.records import Message, Prompt

__all__ = [
    "Answered",
    "CallRecord",
    "ChatClient",
    "ChatRequest",
    "Completion",
    "ConnectionPool",
    "Endpoint",
    "ServedModel",
]

CANCELLED = "Cancelled"
MAX_TIMEOUTS = 2
"""How many attempts of one call may run into the deadline; more would only hold a slot."""
_CHECK_ATTEMPTS = 3
_NO_LIST = frozenset({404, 405, 500, 501})
"""The statuses of a server that cannot say which models it serves."""
_ONE_TOKEN = Prompt((Message("user", "Say yes."),), max_output_tokens=1)
OVERLOADS = frozenset({"429", "503", "timeout"})
"""The retry reasons that show that the server is overloaded."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class ChatClient:
    """One role's way to its model. Make one per role, with the run's memo, limits and pool."""

    endpoint: Endpoint
    role: str
    """"task", "proposer", "evaluator" or "embedder". A call of "task" is one rollout of the budget, a call of
    "embedder" asks for embeddings (see ``embedding``), and every other one is a chat."""
    memo: Memo
    limits: RunLimits
    pool: ConnectionPool | None = None
    """None: the client makes its own, and closes it."""
    deadline_seconds: float = 600.0
    """The deadline of one attempt, from sending to the last byte."""
    max_attempts: int = 6
    """How many attempts of one call may fail for a passing reason."""
    on_call: OnCall | None = None
    """Gets one ``CallRecord`` for every ``ask``: answered, failed or cancelled."""
    budget: Budget | None = None
    """Asked before each request with the most tokens it can use, and whether anything is left for a hit."""
    hedger: Hedger | None = None
    """Sends a second request for stragglers."""
    batcher: Batcher | None = None
    """Lets the calls to the server go; the roles that ask one server share it."""
    tells_looks: bool = True
    """Whether answers tell what the servers were seen to do: one process of a step tells it for all."""
    ready: Callable[[], Awaitable[None]] | None = None
    """Awaited before each request and never for a hit: a server may still be starting."""
    recorded_context_tokens: int | None = None
    """The length of the context that the server stated in a run that is replayed."""
    sleep: Sleep = asyncio.sleep
    clock: Clock = time.monotonic
    wall_clock: Clock = time.time

    def __post_init__(self) -> None:
        self._form = form_of(self.role)
        self._own_pool = ConnectionPool() if self.pool is None else None
        self._connection: Connection = (self.pool or self._own_pool or ConnectionPool()).to(self.endpoint)
        self._origin = self.clock()

    async def ask(
        self, request: ChatRequest, unanswered: Callable[[int], None] = lambda tokens: None
    ) -> Answered:
        """Return the model's answer to ``request``, from the memo where it holds one. Of a call that fails,
        ``unanswered`` gets the most tokens that its requests may have used, if a server may have worked on
        any: nobody says what they did use.

        Raises EndpointError (ContextLengthError) when the endpoint refuses for good, TransientError
        when the attempts are spent, BudgetExhaustedError when the call does not fit the budget, and
        StoreError when the answer cannot be stored.
        """
        key = self.key_of(request)
        call = Call(started=self.clock() - self._origin)
        try:
            answered = await self.memo.once(
                key, lambda: self._new_completion(request, key, call), slot=self._slot(request, call)
            )
            if answered.hit and self.budget is not None:
                self.budget.recall(self.role)
        except BaseException as error:
            charged = isinstance(error, CombeeError | asyncio.CancelledError)
            most = [call.lost * tokens * charged for tokens in _most_tokens(request)]
            self._record(call, None, _code(error), most)
            if any(most) and isinstance(error, CombeeError):
                unanswered(sum(most))
            raise
        self._record(call, answered, "")
        return answered if answered.hit else await self._with_news(answered, call)

    async def _with_news(self, answered: Answered, call: Call) -> Answered:
        """Return a new answer with what is to be told of its server beside it."""
        look = None if self._connection.looks is None else await self._connection.looks.look()
        if self.batcher is not None:
            self.batcher.looked(look)
            answered = replace(answered, limit_changes=self.batcher.take_changes(), in_flight=call.in_flight)
        return replace(answered, look=look if self.tells_looks else None)

    def key_of(self, request: ChatRequest) -> str:
        """Return the key of a call in the memo."""
        return self._form.key(CanonicalRequest(self.endpoint, request))

    @property
    def context_tokens(self) -> int | None:
        """The length of the model's context; None where the server did not say, or was not asked yet."""
        stated = self._connection.context_tokens(self.endpoint.model)
        return self.recorded_context_tokens if stated is None else stated

    async def check(self) -> ServedModel:
        """Check that the endpoint answers, accepts the key and serves the model.

        Returns the server's row for the model. One that lists no models is asked for a token instead, which
        is the only one that this costs. Raises EndpointError with the fix otherwise, and TransientError where
        the server is too busy to say.
        """
        question = Query(self.endpoint, self.role)
        for attempt in range(1, _CHECK_ATTEMPTS + 1):
            names: tuple[str, ...] | None = None
            refusal: StatusError | None = None
            try:
                served = await self._connection.models(again=True)
                names = tuple(model.id for model in served)
            except NoAnswerError as error:
                raise unreachable(question, error) from None
            except ValueError:
                served = ()
            except StatusError as error:
                served, refusal = (), error
            for model in served:
                if model.id == self.endpoint.model:
                    return model
            if not names and (refusal is None or refusal.status_code in _NO_LIST):
                refusal = await self._refusal_of_a_token(question)
                if refusal is None:
                    return ServedModel(self.endpoint.model, "", None)
            if refusal is None or refusal.status_code == 405 or about_model(refusal):
                raise unknown_model(question, names) from None
            meaning = meaning_of(refusal, question, self.wall_clock())
            if isinstance(meaning, Quirk):  # only of a parameter: it serves the model, and ``ask`` adapts
                return ServedModel(self.endpoint.model, "", None)
            if not isinstance(meaning, Again):
                raise meaning from None
            if attempt == _CHECK_ATTEMPTS:
                raise spent(question, [meaning.reason] * attempt) from None
            await self.sleep(wait_seconds("check", attempt, meaning.after))
        raise BugError("the preflight ended without a verdict")

    async def _refusal_of_a_token(self, question: Query) -> StatusError | None:
        """Ask a server whose list of models does not tell for one token. Return its refusal, None where it
        answers. Raises UnreachableError, and TransientError after one wait of ``deadline_seconds``."""
        form, prompt = (EMBEDDINGS, PROBE) if self._form is EMBEDDINGS else (CHAT, _ONE_TOKEN)
        body = form.body(self.endpoint.model, ChatRequest(prompt), LEFT_OUT)
        try:
            async with asyncio.timeout(self.deadline_seconds):
                await self._connection.post(form.path, body)
        except StatusError as error:
            return error
        except TimeoutError:
            raise spent(question, ["timeout"]) from None
        except NoAnswerError as error:
            raise unreachable(question, error) from None
        return None

    async def aclose(self) -> None:
        """Close the connections if this client made its own pool."""
        if self._own_pool is not None:
            await self._own_pool.aclose()

    @asynccontextmanager
    async def _slot(self, request: ChatRequest, call: Call) -> AsyncIterator[None]:
        """Hold the call's place and one of the run's slots, and add the wait for them to the call."""
        waited_from = self.clock()
        tokens = prompt_tokens(request.prompt)
        place = nullcontext(0) if self.batcher is None else self.batcher.place(self._kind(request), tokens)
        async with place as call.in_flight, self.limits:
            call.queued += self.clock() - waited_from
            yield

    async def _new_completion(self, request: ChatRequest, key: str, call: Call) -> Completion:
        if self.ready is not None:
            await self.ready()
        return await self._attempts(request, key, call)

    async def _attempts(self, request: ChatRequest, key: str, call: Call) -> Completion:
        question = Query(self.endpoint, self.role, request.prompt)
        failures = 0
        while True:
            quirks = frozenset(self._connection.quirks)
            outcome = await self._raced(request, question, quirks, call, key)
            self._follow(outcome, request)
            if isinstance(outcome, Completion):
                reasons = tuple(reason for reason in call.reasons if reason not in QUIRKS)
                return replace(outcome, retried_for=reasons, lost_tokens=call.beside * outcome.tokens)
            if isinstance(outcome, Quirk):
                call.reasons.append(outcome.name)
                self._connection.quirks.add(outcome.name)
                continue
            failures += 1
            call.reasons.append(outcome.reason)
            if failures >= self.max_attempts or call.reasons.count("timeout") >= MAX_TIMEOUTS:
                raise spent(question, call.reasons)
            wait = wait_seconds(key, failures, outcome.after)
            _log.debug(
                "%s: %s, attempt %d, next in %.1f s", question.where, outcome.reason, call.attempts, wait
            )
            await self.sleep(wait)

    def _kind(self, request: ChatRequest) -> str:
        """Return what calls are alike: their times and lengths are compared."""
        return f"{self.role} {request.prompt.schema_name}"

    def _follow(self, outcome: Completion | Again | Quirk, request: ChatRequest) -> None:
        """Tell the batcher the outcome of an attempt."""
        if self.batcher is None or isinstance(outcome, Quirk):
            return
        if isinstance(outcome, Again):
            self.batcher.refused(outcome.reason if outcome.reason in OVERLOADS else "")
        else:
            self.batcher.answered(self._kind(request), outcome.completion_tokens)

    async def _raced(
        self, request: ChatRequest, question: Query, quirks: frozenset[str], call: Call, key: str
    ) -> Completion | Again | Quirk:
        """Make one attempt, and others beside it when it takes far longer than similar calls."""
        hedger = self.hedger
        if hedger is None:
            return await self._attempt(request, question, quirks, call)
        kind = self._kind(request)
        sent_at = self.clock()

        def rest(missed: object) -> float:
            return wait_seconds(key, call.attempts, missed.after) if isinstance(missed, Again) else 0.0

        race = Race(lambda: self._attempt(request, question, quirks, call), self.limits, hedger, rest)
        outcome: Completion | Again | Quirk = await race.run(kind)
        for missed in race.missed:
            if isinstance(missed, Again):
                call.reasons.append(missed.reason)
                self._follow(missed, request)
        if isinstance(outcome, Completion):
            seconds = self.clock() - sent_at if race.hedges else outcome.latency_seconds
            hedger.observe(kind, seconds)
            return replace(outcome, latency_seconds=seconds, hedged=race.hedges > 0)
        return outcome

    async def _attempt(
        self, request: ChatRequest, question: Query, quirks: frozenset[str], call: Call
    ) -> Completion | Again | Quirk:
        """Make one request. Raises EndpointError when the endpoint refuses for good."""
        waited_from = self.clock()
        tokens = _most_tokens(request)
        reservation = await self.limits.reserve(sum(tokens))
        hold = None if self.budget is None else self.budget.hold(self.role, *tokens, again=bool(call.holds))
        sent_at = self.clock()
        call.queued += sent_at - waited_from
        call.attempts += 1
        call.started = sent_at - self._origin
        body = self._form.body(self.endpoint.model, request, quirks)
        reply: Reply | str
        call.sent(hold)
        try:
            async with asyncio.timeout(self.deadline_seconds):
                response = await self._connection.post(self._form.path, body)
            reply = self._form.read(response.content, request.prompt)
        except TimeoutError:
            return Again("timeout")
        except NoAnswerError as error:
            if error.never_sent:
                call.refused(hold)
            return Again(error.reason)
        except StatusError as error:
            call.refused(hold)
            return await self._meaning(error, question, quirks)
        seconds = self.clock() - sent_at
        if isinstance(reply, str):
            return Again(reply)
        if reservation is not None:
            reservation.settle(reply.prompt_tokens + reply.completion_tokens)
        if RESPONSE_FORMAT not in quirks:
            self._connection.weigh_schema(follows_schema(reply, request.prompt))
        return Completion(
            text=reply.text,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cached_tokens=reply.cached_tokens,
            latency_seconds=seconds,
            finish_reason=reply.finish_reason,
            attempts=call.attempts,
        )

    async def _meaning(self, error: StatusError, question: Query, quirks: frozenset[str]) -> Again | Quirk:
        meaning = self._form.meaning(error, question, self.wall_clock())
        if isinstance(meaning, Again) or (isinstance(meaning, Quirk) and meaning.name not in quirks):
            return meaning
        if not isinstance(meaning, Quirk) and about_model(error):
            served = await self._served_names()
            if served is None or self.endpoint.model not in served:
                raise unknown_model(question, served) from None
        raise final(meaning, error, question) from None

    async def _served_names(self) -> tuple[str, ...] | None:
        try:
            return tuple(model.id for model in await self._connection.models())
        except (StatusError, NoAnswerError, ValueError):
            return None

    def _record(
        self, call: Call, answered: Answered | None, error: str, most: Sequence[int] = (0, 0)
    ) -> None:
        call.over()
        if self.on_call is None:
            return
        done, hit = (answered.completion, answered.hit) if answered else (None, False)
        record = CallRecord.of(self.role, done, hit=hit, error=error)
        if error == CANCELLED:
            # A server may work on it all the same, and a run that goes on afterwards has to pay for it.
            record = replace(record, prompt_tokens=most[0], completion_tokens=most[1])
        else:
            record = replace(record, lost_tokens=record.lost_tokens + sum(most))
        self.on_call(
            replace(
                record,
                sent=record.sent or any(most),
                started=call.started,
                queued_seconds=call.queued,
                attempts=call.attempts,
                retried_for=tuple(call.reasons),
            )
        )


def _most_tokens(request: ChatRequest) -> tuple[int, int]:
    """Return the tokens of a request's prompt, by estimate, and the most of its reply."""
    return prompt_tokens(request.prompt), request.output_tokens


def _code(error: BaseException) -> str:
    if isinstance(error, CombeeError):
        return error.code
    return CANCELLED if isinstance(error, asyncio.CancelledError) else BugError.code
