"""``combee-worker judge`` scores mirrored or repeated answers, or asks Prometheus how both versions fare.

/etc/combee/secrets/<use>/       keys of Secrets: evaluator, upstream, store, requests, prometheus
/etc/combee/playbooks/<side>/    the texts of both versions; with Replay only
/data/requests/                  requests to repeat: a ConfigMap's key or a claim
/store                           where traffic is kept, where it is a claim

Exit 0: its part is done, or its time is over; 1: it could not be done (the termination message says why);
70: a bug.
Whatever it has judged by then counts. Nothing of a conversation is ever logged.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr, ValidationError

from combee import names
from combee.algo.tally import LeftOut, Pair
from combee.api.common import one_line
from combee.assembly.context import keep_libraries_quiet
from combee.assembly.endpoints import checked_url
from combee.clients.model.chat import ChatClient, ConnectionPool, Endpoint
from combee.clients.model.limits import RunLimits
from combee.clients.model.memo import Memo
from combee.clients.model.ready import Gate
from combee.clients.store.store import Store
from combee.errors import BugError
from combee.plan.playbook.judging import JudgeTask, write_pairs
from combee.plan.playbook.readings import Reading
from combee.pod.configmaps import ACCOUNT_FOLDER, ConfigMaps
from combee.pod.environment import TERMINATION_LOG, open_store, secret_key
from combee.pod.judging import MOST_IN_CONFIG_MAP, Judging, Outcome
from combee.pod.log import PodLog
from combee.pod.looking import Looking
from combee.pod.repeat import Repeat
from combee.settings import JudgeSettings
from combee.work.asker import Asker
from combee.work.evaluator import ROLE
from combee.work.judge import Sampled, judge_all
from combee.work.traffic import sweeping

WIDTH = 16
"""The number of pairs judged at once."""
MOST_PAIRS, WORK_SECONDS = 500, 600.0
"""The most that one Job does, and for how long; the operator makes another."""
LINGER_SECONDS, LOOK_SECONDS = 30.0, 2.0
"""How long a Job waits for more mirrored pairs, and how often it looks."""
CALL_SECONDS = 120.0
READY_SECONDS = 20.0
MAX_MESSAGE = 900


def read_task(settings: JudgeSettings) -> JudgeTask:
    """Return what is to be judged. Raises BugError when what the operator wrote cannot be read."""
    try:
        return JudgeTask.model_validate_json(settings.task)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise BugError(f"it cannot be read ({place}: {first['msg']})", where="COMBEE_JUDGE") from None


def run(settings: JudgeSettings, task: JudgeTask, log: PodLog) -> int:
    """Judge; return the exit code. Nothing is raised."""
    keep_libraries_quiet()

    def work() -> None:
        bench = Bench(settings, task, log) if task.prometheus is None else _looking(settings, task, log)
        try:
            asyncio.run(bench.run())
        finally:
            log.say("INFO", "counted", **bench.counts())

    def tell(error: str) -> None:
        try:
            settings.path(TERMINATION_LOG).write_text(
                one_line(error, MAX_MESSAGE).rstrip("."), encoding="utf-8"
            )
        except OSError as problem:
            log.say("WARNING", f"the termination message cannot be written ({problem.strerror})")

    return log.guarded(work, tell)


def _looking(settings: JudgeSettings, task: JudgeTask, log: PodLog) -> Looking:
    token = ""
    if task.prometheus is not None and (ref := task.prometheus.token_secret_ref) is not None:
        token = secret_key(settings, "prometheus", ref, "spec.canary.prometheus.tokenSecretRef")
    maps = config_maps(settings, task)

    def publish(pairs: Sequence[Pair], reading: Reading) -> None:
        maps.ensure(config_map(task, settings.job_uid, pairs, reading=reading))

    return Looking(task, token, publish, log)


@dataclass(slots=True)
class Bench:
    """One Job's work."""

    settings: JudgeSettings
    task: JudgeTask
    log: PodLog
    _judging: Judging | None = None
    _repeat: Repeat | None = None
    _asker: Asker | None = field(default=None)

    async def run(self) -> None:
        """Judge until there is no more to do, MOST_PAIRS are judged or WORK_SECONDS are over."""
        store = open_store(self.settings, self.task.store)
        pool = ConnectionPool()
        try:
            client = self._client(store, pool)
            self._asker = Asker({ROLE: client}, {})
            self._judging = Judging(self.task, store, self._judge, self._publisher())
            async with asyncio.timeout(WORK_SECONDS):
                if self.task.retention:
                    stated = {self.task.playbook: float(self.task.retention)}
                    await sweeping.sweep(store, stated, time.time())
                await (self._repeated(store, client) if self.task.mode == "Replay" else self._mirrored())
        except TimeoutError:
            self.log.say("INFO", f"{WORK_SECONDS:g} s are over: the rest is for another Job")
        finally:
            await pool.aclose()
            store.close()

    def counts(self) -> dict[str, int]:
        """Return what became of the pairs, and what it cost."""
        totals = dict(self._judging.counts) if self._judging is not None else {}
        totals |= dict(self._repeat.counts) if self._repeat is not None else {}
        if self._asker is not None:
            hits = sum(row.hit for row in self._asker.rows)
            totals |= {"calls": len(self._asker.rows) - hits, "hits": hits}
        return totals

    async def _mirrored(self) -> None:
        judging = self._at_work()
        until = time.monotonic() + LINGER_SECONDS
        while judging.counts["judged"] < MOST_PAIRS:
            if await judging.once():
                until = time.monotonic() + LINGER_SECONDS
            elif time.monotonic() > until:
                return
            else:
                await asyncio.sleep(LOOK_SECONDS)

    async def _repeated(self, store: Store, client: ChatClient) -> None:
        judging = self._at_work()
        while await judging.once():
            pass  # these are what an earlier Job had asked for
        if client.ready is not None:
            await client.ready()  # an upstream is not asked again for a judge that is not there
        self._repeat = Repeat(self.settings, self.task, store)
        async with self._repeat as repeat:
            while judging.counts["judged"] < MOST_PAIRS and await repeat.once():
                while await judging.once():
                    pass
                await self._leave_out(repeat.taken(at_least=MOST_IN_CONFIG_MAP))
            await self._leave_out(repeat.taken())

    async def _leave_out(self, refused: Sequence[LeftOut]) -> None:
        """Tell which requests the upstream refuses, so that no later Job asks for them."""
        for at in range(0, len(refused), MOST_IN_CONFIG_MAP):
            await self._publisher()((), refused[at : at + MOST_IN_CONFIG_MAP])

    def _at_work(self) -> Judging:
        if self._judging is None:
            raise BugError("nothing was set up to judge")
        return self._judging

    async def _judge(self, samples: Sequence[Sampled]) -> Sequence[Outcome]:
        if self._asker is None:
            raise BugError("there is nobody to ask")
        criteria = self.task.rubric.criteria if self.task.rubric is not None else ()
        outcomes = await judge_all(self._asker, samples, self.task.test, criteria, width=WIDTH)
        self.log.say("INFO", "judged a batch", pairs=sum(isinstance(one, Pair) for one in outcomes))
        return outcomes

    def _publisher(self) -> Any:
        maps = config_maps(self.settings, self.task)

        async def publish(pairs: Sequence[Pair], left_out: Sequence[LeftOut] = ()) -> None:
            body = config_map(self.task, self.settings.job_uid, pairs, left_out)
            await asyncio.to_thread(maps.ensure, body)

        return publish

    def _client(self, store: Store, pool: ConnectionPool) -> ChatClient:
        given, key, shown = self.task.evaluator, "", ""
        if given is None:
            raise BugError("there is nobody to judge", where="COMBEE_JUDGE")
        if (ref := given.api_key_secret_ref) is not None:
            key = secret_key(self.settings, "evaluator", ref, "spec.canary.evaluator.apiKeySecretRef")
            shown = f"{ref.key} of the Secret {ref.name}"
        endpoint = Endpoint(
            url=checked_url(given.url, "spec.canary.evaluator.url"),
            model=given.model,
            api_key=SecretStr(key),
            revision=given.revision or "",
            key_source=shown,
        )
        # It is kept with the conversations, and for as long: what the evaluator heard and said is about them.
        memo = sweeping.memo_folder(self.task.playbook, self.task.test, self.task.since)
        client = ChatClient(
            endpoint, ROLE, Memo(store, memo), RunLimits(WIDTH), pool=pool, deadline_seconds=CALL_SECONDS
        )
        client.ready = Gate(client.check, READY_SECONDS)
        return client


def config_maps(settings: JudgeSettings, task: JudgeTask) -> ConfigMaps:
    """Return the ConfigMaps that the pod's account may make."""
    return ConfigMaps.within(task.namespace, settings.api_server, settings.path(ACCOUNT_FOLDER))


def config_map(
    task: JudgeTask,
    job_uid: str,
    pairs: Sequence[Pair],
    left_out: Sequence[LeftOut] = (),
    reading: Reading | None = None,
) -> dict[str, Any]:
    """Return the object that hands the operator judged pairs, requests left out, or what Prometheus said, and
    tells which Job did: only those of the Playbook's own count.

    Equal arguments give an equal name and equal content.
    """
    data = {names.PAIRS_KEY: write_pairs(pairs, left_out)}
    if reading is not None:
        data[names.READING_KEY] = json.dumps(reading.to_json(), separators=(",", ":"))
    parts = [task.uid, task.test, *data.values()]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.PLAYBOOK_KIND,
        "name": task.playbook,
        "uid": task.uid,
        "controller": False,
        "blockOwnerDeletion": False,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.pairs_name(task.playbook, digest),
            "namespace": task.namespace,
            "labels": names.canary_labels(task.playbook, task.test),
            "annotations": {names.JUDGE_ANNOTATION: job_uid},
            "ownerReferences": [owner],
        },
        "immutable": True,
        "data": data,
    }
