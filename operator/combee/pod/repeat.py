"""Requests asked again of both versions, as the gateway asks them: the playbook, then the client's words.

The requests are given, or those that the gateway captured. Both answers go into the spool as the gateway's
mirrored ones do, redacted, and are judged from there. What is judged or waits in the spool is not asked
again.

Both versions are asked, whatever became of the first. A version that gives no answer to what the other one
answers has lost that pair; a server's error or a timeout counts so only once it was tried again and the other
was answered. A request that is refused to both is left out: it is told, counted, and not asked again. Some
refusals (the path, the model, a right) may concern every request: they count as a request's own only where
the upstream answers another one.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import httpx2

from combee.algo.tally import REPEATED, LeftOut
from combee.api.gateway import Upstream
from combee.assembly.endpoints import checked_url
from combee.clients.answers import UNENCODED
from combee.clients.backoff import retry_after_seconds, wait_seconds
from combee.clients.data.rows import read_lines
from combee.clients.model.lanes import LaneTransport
from combee.clients.store.store import Store
from combee.errors import BugError, DataError, EndpointError, TransientError
from combee.jsonread import MALFORMED, read_json
from combee.names import METHOD_KEY, PROMPT_KEY, RETRIEVAL_KEY, SERVED_KEYS, captured_folder, traffic_folder
from combee.plan.playbook.authentic import refuse_replaced
from combee.plan.playbook.judging import JudgeTask
from combee.pod.environment import DATA_FOLDER, SECRETS_FOLDER, read_secret
from combee.pod.judging import oldest_first
from combee.settings import JudgeSettings
from combee.tasks.dataset import MAX_ROW_BYTES
from combee.times import rfc3339
from combee.work.judge import HOPELESS, Key, claims, drawn_order, in_hash_order, read_samples, roots_of
from combee.work.pool import pooled
from combee.work.traffic import sweeping
from combee.work.traffic.record import (
    CLUSTER,
    NO_ANSWER,
    PASSING,
    TIMEOUT,
    VERSION,
    answer_record,
    request_record,
)
from combee.work.traffic.rewrite import Preface, preface_of, with_preface

STREAM = "replay"
"""The stream of given requests. They are numbered in the order of a hash, so that the first are a sample."""
CHUNK = 16
WIDTH = 4
"""The number of requests asked at once."""
ATTEMPTS = 4
ANSWER_SECONDS = 120.0
MOST_BYTES = 4 * 1024 * 1024
PLAYBOOKS_FOLDER = "/etc/combee/playbooks"
_UPSTREAM = "spec.delivery.gateway.upstream"
_NOT_ASKED = frozenset({"stream", "stream_options", CLUSTER})
_REFUSALS = {
    401: "the key is refused",
    402: "it wants to be paid",
    403: "the key may not do this",
    404: "there is no such API or model",
    405: "it takes no such request",
}
_EVERYBODY = 401
"""The status that refuses every request, and is no request's own."""
UNREADABLE = 200
"""The status of a request whose answer cannot be read."""
CONTROLS = 8
"""How many earlier requests may be asked again to see whether the upstream refuses all."""


class FailedError(TransientError):
    """The upstream gave no answer to a request; another request shows whether that is due to this one."""

    def __init__(self, why: str, what: str) -> None:
        super().__init__(what, where=_UPSTREAM)
        self.why = why


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request to ask. (stream, number) is the identity of its pair."""

    stream: str
    number: int
    body: Mapping[str, Any]
    repeated: bool = False
    """whether an earlier one begins with the same words or is of its cluster, so that it is not asked."""


@dataclass(slots=True)
class Repeat:
    """Asks for pairs, some with each ``once``. Use it as a context manager."""

    settings: JudgeSettings
    task: JudgeTask
    store: Store
    counts: Counter[str] = field(default_factory=Counter)
    """the numbers of replayed, unanswered, refused and repeated."""
    _refused: list[LeftOut] = field(default_factory=list)
    _doubtful: list[LeftOut] = field(default_factory=list)
    """requests that were refused, perhaps as all would be."""
    _before: deque[Wanted] = field(default_factory=lambda: deque(maxlen=CONTROLS))
    """requests that earlier Jobs asked."""
    _source: AsyncIterator[Wanted] | None = None
    _client: httpx2.AsyncClient | None = None
    _prefaces: dict[str, Preface] = field(default_factory=dict)
    _waiting: set[tuple[str, int]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        headers = {"Content-Type": "application/json", **UNENCODED}
        upstream = self._upstream()
        if key := self._key(upstream):
            headers["Authorization"] = f"Bearer {key}"
        self._client = httpx2.AsyncClient(
            transport=LaneTransport.to(upstream.url),
            timeout=ANSWER_SECONDS,
            headers=headers,
            follow_redirects=False,
        )
        sides: dict[Literal["tested", "against"], str]
        sides = {"tested": self.task.tested, "against": self.task.against}
        for side, digest in sides.items():
            self._prefaces[side] = self._preface(side) if digest else ""
        for path in await self.store.alist(traffic_folder(self.task.playbook, self.task.test)):
            samples, _ = read_samples(await self.store.aget(path) or b"", self.task.test)
            self._waiting |= {(sample.stream, sample.number) for sample in samples}
        self._source = self._given() if self.task.requests is not None else self._captured()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def once(self) -> bool:
        """Ask CHUNK more requests and keep the answers; return False when none are left.

        Raises EndpointError when the upstream refuses all, TransientError when it answers none.
        """
        chunk = await self._next()
        if chunk:
            await self._keep(await self._pairs_of(chunk))
        if self.counts["replayed"] or not chunk or len(self._doubtful) >= HOPELESS:
            await self._settle()
        return bool(chunk)

    def taken(self, *, at_least: int = 1) -> list[LeftOut]:
        """Return requests found refused since the last call; none while there are fewer than ``at_least``."""
        if len(self._refused) < at_least:
            return []
        taken, self._refused = self._refused, []
        return taken

    async def _next(self) -> list[Wanted]:
        if self._source is None:
            raise BugError("a Repeat is used as a context manager")
        chunk: list[Wanted] = []
        async for wanted in self._source:
            if self.task.has(wanted.stream, wanted.number):
                self._before.append(wanted)
            elif wanted.repeated:
                self._refused.append(LeftOut(wanted.stream, wanted.number, REPEATED))
                self.counts["repeated"] += 1
            elif (wanted.stream, wanted.number) not in self._waiting:
                chunk.append(wanted)
            if len(chunk) == CHUNK:
                break
        return chunk

    async def _settle(self) -> None:
        """Find out whether the doubtful requests are refused for themselves. EndpointError where all are."""
        if not self._doubtful:
            return
        if not self.counts["replayed"] and not await self._answers_others():
            raise _refuses(self._doubtful[0].status)
        self._leave_out(self._doubtful)
        self._doubtful = []

    async def _answers_others(self) -> bool:
        for wanted in self._before:
            answer = await self._answer(with_preface(_body(wanted), self._prefaces["against"]))
            if isinstance(answer, dict):
                return True
        return False

    def _leave_out(self, refused: Sequence[LeftOut]) -> None:
        self._refused += refused
        self.counts["refused"] += len(refused)

    async def _pairs_of(self, chunk: Sequence[Wanted]) -> list[dict[str, Any]]:
        why: list[TransientError] = []

        async def ask(wanted: Wanted) -> dict[str, Any] | LeftOut | None:
            try:
                return await self._pair(wanted)
            except TransientError as error:
                why.append(error)
                return None

        outcomes = await pooled(chunk, ask, width=WIDTH)
        records = [outcome for outcome in outcomes if isinstance(outcome, dict)]
        refused = [outcome for outcome in outcomes if isinstance(outcome, LeftOut)]
        self._doubtful += [request for request in refused if _perhaps_all(request.status)]
        self._leave_out([request for request in refused if not _perhaps_all(request.status)])
        self.counts["replayed"] += len(records)
        self.counts["unanswered"] += len(why)
        if why and not self.counts["replayed"] and self.counts["unanswered"] >= min(HOPELESS, len(chunk)):
            raise why[0]
        return records

    async def _pair(self, wanted: Wanted) -> dict[str, Any] | LeftOut:
        """Return the record of both answers, one of which may be missing; LeftOut when both are refused.

        Raises TransientError when neither side answers, and one of them may another time.
        """
        body = _body(wanted)
        request = request_record(body, str(wanted.body.get(CLUSTER) or ""))
        sides: dict[str, Any] = {}
        failures: list[int | FailedError] = []
        for side in drawn_order(self.task.test, wanted.stream, wanted.number):
            answer = await self._answer_or_why(with_preface(body, self._prefaces[side]))
            digest = self.task.tested if side == "tested" else self.task.against
            if isinstance(answer, int | FailedError):
                failures.append(answer)
            sides[side] = {"digest": digest, **_side(answer)}
        if len(failures) > 1:
            if errors := [failure for failure in failures if isinstance(failure, FailedError)]:
                raise errors[0]
            status = next(failure for failure in failures if isinstance(failure, int))
            return LeftOut(wanted.stream, wanted.number, status)
        key = {"stream": wanted.stream, "number": wanted.number, "version": VERSION, "test": self.task.test}
        return {**key, "time": rfc3339(time.time()), "request": request, **sides}

    async def _answer_or_why(self, body: bytes) -> dict[str, Any] | int | FailedError:
        try:
            return await self._answer(body)
        except FailedError as error:
            return error

    async def _answer(self, body: bytes) -> dict[str, Any] | int:
        """Return what the upstream says with its seconds, or the status with which it refuses this request.

        Raises EndpointError when it refuses the key; FailedError when it fails in a way that may be due to
        this request; TransientError when it has no room.
        """
        url, problem, why = f"{self._upstream().url.rstrip('/')}/chat/completions", "", ""
        for attempt in range(1, ATTEMPTS + 1):
            began, after = time.perf_counter(), None
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    answer = await self._open().post(url, content=body)
            except (httpx2.ReadTimeout, TimeoutError):
                # Another try would take as long; the other version's answer shows whether it is there.
                raise FailedError(TIMEOUT, f"the upstream does not answer in {ANSWER_SECONDS:g} s") from None
            except httpx2.RequestError as error:
                problem, why = f"does not answer ({type(error).__name__})", NO_ANSWER
            else:
                if answer.status_code == 200:
                    return _record(answer.content, time.perf_counter() - began) or UNREADABLE
                if answer.status_code == _EVERYBODY:
                    raise _refuses(answer.status_code)
                if answer.status_code not in PASSING and answer.status_code < 500:
                    return answer.status_code
                problem, why = f"answers {answer.status_code}", str(answer.status_code)
                after = retry_after_seconds(answer.headers, time.time())
            if attempt < ATTEMPTS:
                await asyncio.sleep(wait_seconds(url, attempt, after))
        if why.isdigit() and int(why) in PASSING:
            raise TransientError(f"the upstream {problem}", where=_UPSTREAM)
        raise FailedError(why, f"the upstream {problem}")

    async def _keep(self, records: Sequence[Mapping[str, Any]]) -> None:
        if not records:
            return
        lines = [json.dumps(record, ensure_ascii=False).encode() for record in records]
        named = hashlib.sha256(b"\n".join(lines)).hexdigest()[:12]
        folder = traffic_folder(self.task.playbook, self.task.test)
        if self.task.retention:
            await sweeping.state(self.store, self.task.playbook, self.task.retention)
        path = f"{folder}/{int(time.time())}-{STREAM}-{named}.jsonl"
        await self.store.aput_new(path, b"\n".join(lines) + b"\n")

    async def _given(self) -> AsyncIterator[Wanted]:
        source = self.task.requests
        if source is None:
            raise BugError("no requests are given")
        secret = read_secret(self.settings.path(f"{SECRETS_FOLDER}/requests"))
        inner = source.config_map.key if source.config_map else source.pvc.path if source.pvc else ""
        place = str(self.settings.path(f"{DATA_FOLDER}/requests/{inner}")) if inner else source.uri or ""
        lines = await asyncio.to_thread(
            lambda: list(read_lines(place, max_bytes=MAX_ROW_BYTES, secret=secret))
        )
        rows = [_request(line, at) for at, line in enumerate(lines, 1) if line.strip()]
        for number, (row, repeated) in enumerate(in_hash_order(self.task.test, rows)):
            yield Wanted(STREAM, number, row, repeated)

    async def _captured(self) -> AsyncIterator[Wanted]:
        holders: dict[str, Key] = {}
        for path in oldest_first(await self.store.alist(captured_folder(self.task.playbook))):
            for line in (await self.store.aget(path) or b"").splitlines():
                try:
                    raw = read_json(line)
                    wanted = Wanted(str(raw["stream"]), int(raw["number"]), dict(raw["request"]))
                except MALFORMED:
                    continue  # it was written by another release
                roots, key = roots_of(self.task.test, wanted.body), (wanted.stream, wanted.number)
                yield replace(wanted, repeated=not claims(holders, roots, key))

    def _upstream(self) -> Upstream:
        if self.task.upstream is None:
            raise BugError("mode Replay was given no upstream", where="COMBEE_JUDGE")
        checked_url(self.task.upstream.url, f"{_UPSTREAM}.url")
        return self.task.upstream

    def _key(self, upstream: Upstream) -> str:
        if upstream.api_key_secret_ref is None:
            return ""
        values = read_secret(self.settings.path(f"{SECRETS_FOLDER}/upstream")) or {}
        return (values.get(upstream.api_key_secret_ref.key) or "").strip()

    def _preface(self, side: Literal["tested", "against"]) -> Preface:
        folder = self.settings.path(f"{PLAYBOOKS_FOLDER}/{side}")
        try:
            data = {
                key: (folder / key).read_text(encoding="utf-8")
                for key in SERVED_KEYS
                if key == PROMPT_KEY or (folder / key).exists()
            }
        except OSError as error:
            raise BugError(f"a playbook cannot be read ({error.strerror})", where=str(folder)) from None
        digests = self.task.published.get(side, {})
        refuse_replaced(data, digests, f"the {side} version's ConfigMap", SERVED_KEYS)
        return preface_of(data[PROMPT_KEY], data.get(METHOD_KEY, ""), data.get(RETRIEVAL_KEY, ""))

    def _open(self) -> httpx2.AsyncClient:
        if self._client is None:
            raise BugError("a Repeat is used as a context manager")
        return self._client


def _side(answer: dict[str, Any] | int | FailedError) -> dict[str, Any]:
    """Return an answer or a failure as it is kept."""
    if isinstance(answer, FailedError):
        return {"failed": answer.why, **({"seconds": ANSWER_SECONDS} if answer.why == TIMEOUT else {})}
    if isinstance(answer, int):
        return {"failed": NO_ANSWER if answer == UNREADABLE else str(answer)}
    return answer


def _perhaps_all(status: int) -> bool:
    return status in _REFUSALS or 300 <= status < 400


def _refuses(status: int) -> EndpointError:
    return EndpointError(
        f"the upstream answers {status}: {_REFUSALS.get(status, 'it sends requests elsewhere')}",
        where=_UPSTREAM,
        fix="Correct upstream.url or the key in its Secret",
    )


def _body(wanted: Wanted) -> bytes:
    """Return the request as it is asked: without a stream, and without what only tells what it belongs to."""
    kept = {name: value for name, value in wanted.body.items() if name not in _NOT_ASKED}
    return json.dumps(kept, ensure_ascii=False).encode()


def _record(content: bytes, seconds: float) -> dict[str, Any] | None:
    answer = answer_record(content, streamed=False) if len(content) <= MOST_BYTES else None
    return None if answer is None else {"seconds": round(seconds, 4), "answer": answer}


def _request(line: bytes, at: int) -> Mapping[str, Any]:
    """Return a given request. Raises DataError that names its line and quotes nothing of it."""
    try:
        raw = read_json(line)
        if raw["messages"] and isinstance(raw["messages"], list):
            return dict(raw)
    except MALFORMED:
        pass
    fix = 'Write one JSON object a line, such as {"model": "m", "messages": [...]}'
    raise DataError("not a chat request", where=f"spec.canary.replay.requests:{at}", fix=fix)
