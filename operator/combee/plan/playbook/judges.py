"""Which Jobs judge a Playbook's canaries, and when the next one is made. Pure.

judge Jobs, their pods -> observe -> JudgesSeen -> decide_judges(..., seen, now) -> JudgesPlan -> apply
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from combee.api.canary import Canary
from combee.api.common import NameRef, SecretKeyRef
from combee.api.gateway import Gateway
from combee.api.metric import Rubric
from combee.api.playbook import PlaybookSpec
from combee.api.playbook_status import TrafficComparison
from combee.errors import BugError
from combee.names import STORE_FOLDER
from combee.plan.playbook.judging import JudgeTask, Span
from combee.plan.playbook.memory import VersionMemory
from combee.plan.playbook.queries import begins_at, ready_seconds
from combee.plan.playbook.types import CanaryWish, PlaybookPlan
from combee.plan.playbook.watch import watched_by
from combee.records import Owner

MODES = ("Shadow", "Replay", "Prometheus")
"""The modes of canaries that a Job judges."""
SLOT_SECONDS = 20
"""A comparison gets at most one Job in this time."""
LONGEST_PAUSE_SECONDS = 600.0
"""The longest pause between Jobs that find nothing, or fail."""
KEPT_SECONDS = 1500.0
"""How long a Job that ended stays: when the next one is made depends on the last ones, and what one brought
counts only once its uid was seen."""
MAX_JUDGES = 8
"""How many Jobs that are gone a version remembers: what they brought may not be taken in yet."""
LOOK_SECONDS = 10.0
"""How often pairs are taken in while a Job is at work."""
WINDOWS_AT_ONCE = 5
"""Prometheus is asked when this many more windows are over, and after ten minutes at the latest."""


@dataclass(frozen=True, slots=True)
class VersionContent:
    """Where a version's text is, and what says that it is the one that was published."""

    config_map: str
    digests: Mapping[str, str] = field(default_factory=dict)
    """key of the ConfigMap -> digest of its text."""


@dataclass(frozen=True, slots=True)
class JudgeWish:
    """A comparison that must be judged."""

    owner: Owner
    canary: Canary
    gateway: Gateway
    comparison: TrafficComparison
    digest: str
    """the digest of the version compared."""
    contents: Mapping[str, VersionContent]
    """digest -> where that version's content is."""
    done: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    pairs: int = 0
    """the number of pairs judged so far."""
    since: int = 0
    """when the comparison began, in seconds since 1970."""
    begins: int = 0
    """when window 0 begins, in seconds since 1970; with Prometheus only."""
    first: int = 0
    """the first window that was not asked for yet; with Prometheus only."""
    rubric: Rubric | None = None
    """what the compared version's answers were scored by when it was learned."""

    @property
    def repeats(self) -> bool:
        """Whether requests are first asked again."""
        return self.comparison.mode == "Replay"

    def task(self) -> JudgeTask:
        """Return what the pod is told."""
        about: dict[str, Any] = {
            "playbook": self.owner.name,
            "namespace": self.owner.namespace,
            "uid": self.owner.uid,
            "test": self.comparison.id,
            "tested": self.digest,
            "against": self.comparison.against,
        }
        if self.canary.prometheus is not None:
            return JudgeTask(
                **about,
                mode="Prometheus",
                prometheus=self.canary.prometheus,
                begins=self.begins,
                first=self.first,
            )
        sides = (("tested", self.digest), ("against", self.comparison.against)) if self.repeats else ()
        digests = {side: self.contents[digest].digests for side, digest in sides if digest}
        if self.canary.evaluator is None:
            raise BugError("a canary without evaluator passed admission", where=self.owner.name)
        return JudgeTask(
            **about,
            mode="Replay" if self.repeats else "Shadow",
            evaluator=self.canary.evaluator,
            rubric=self.rubric,
            store=self.gateway.capture.store.uri or STORE_FOLDER,
            retention=self.gateway.capture.retention_seconds,
            since=self.since,
            upstream=self.gateway.upstream if self.repeats else None,
            requests=self.canary.replay.requests if self.repeats else None,
            done=dict(self.done),
            published={side: dict(keys) for side, keys in digests.items() if keys},
        )

    def made_of(self) -> str:
        """Return a digest of what the pod is told, except what is judged and what hardware the evaluator is
        said to have, and of where its Secrets are."""
        task = self.task().model_copy(update={"done": {}, "first": 0, "since": 0})
        asks = task.model_dump_json(exclude={"evaluator": {"hardware"}})
        text = f"{asks}{self.gateway.capture.store.model_dump_json()}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def secrets_of(canary: Canary, gateway: Gateway) -> dict[str, SecretKeyRef | NameRef]:
    """Return use -> the Secret, or one key of it, that the pod is given."""
    if canary.prometheus is not None:
        token = canary.prometheus.token_secret_ref
        return {"prometheus": token} if token is not None else {}
    evaluator, upstream, requests = canary.evaluator, gateway.upstream, canary.replay.requests
    refs: dict[str, SecretKeyRef | NameRef | None] = {
        "evaluator": evaluator.api_key_secret_ref if evaluator is not None else None,
        "store": gateway.capture.store.secret_ref,
    }
    if canary.mode == "Replay":
        refs["upstream"] = upstream.api_key_secret_ref if upstream is not None else None
        refs["requests"] = requests.secret_ref if requests is not None else None
    return {use: ref for use, ref in refs.items() if ref is not None}


@dataclass(frozen=True, slots=True)
class JudgeJob:
    """A Job of a comparison, as far as the next one depends on it. Times are seconds since 1970."""

    created: float
    live: bool
    made_of: str
    """the digest of what it was told, except ``done``."""
    pairs: int
    """the number of pairs that were judged when it was made."""
    name: str = ""
    uid: str = ""
    ended: float = 0.0
    """when it ended; 0 while it is at work."""


def next_job_seconds(
    jobs: Iterable[JudgeJob], made_of: str, pairs: int, now: float, pause: float = SLOT_SECONDS
) -> float | None:
    """Return the seconds until the next Job of a comparison may be made; None while one is at work.

    There are at least ``pause`` seconds between two. A Job that brought no pair (there were none, or it
    failed) makes the next one wait as long as this has lasted, at most LONGEST_PAUSE_SECONDS. Another
    evaluator or upstream is tried without this wait.

    >>> first, second = JudgeJob(1000, False, "a", 7), JudgeJob(1100, False, "a", 7)
    >>> [next_job_seconds([first, second], "a", pairs, 1110.0) for pairs in (7, 8)]
    [90.0, 10.0]
    """
    by_age = sorted(jobs, key=lambda job: job.created)
    if any(job.live for job in by_age):
        return None
    if not by_age:
        return 0.0
    last = by_age[-1].created
    idle = [job.created for job in by_age if job.made_of == made_of and job.pairs == pairs]
    longer = min(LONGEST_PAUSE_SECONDS, last - idle[0]) if idle else 0.0
    return max(0.0, last + max(pause, longer) - now)


@dataclass(frozen=True, slots=True)
class JudgesSeen:
    """A Playbook's Jobs that judge, and how they fare."""

    jobs: Mapping[str, tuple[JudgeJob, ...]] = field(default_factory=dict)
    """the Jobs by comparison, the oldest first."""
    troubles: Mapping[str, str] = field(default_factory=dict)
    """comparison -> why its pairs are not being judged; empty where they are."""
    refused: str = ""
    """why no pairs are judged at all."""

    @property
    def uids(self) -> dict[str, tuple[str, ...]]:
        """comparison -> the uids of its Jobs, the oldest first."""
        return {comparison: tuple(job.uid for job in jobs) for comparison, jobs in self.jobs.items()}

    def why(self, comparisons: Iterable[str]) -> dict[str, str]:
        """Return those of ``comparisons`` that are not being judged, and why."""
        reasons = {one: self.refused or self.troubles.get(one, "") for one in comparisons}
        return {comparison: reason for comparison, reason in reasons.items() if reason}


@dataclass(frozen=True, slots=True)
class JudgesPlan:
    """What is done about a Playbook's Jobs that judge, in this order."""

    delete: tuple[JudgeJob, ...] = ()
    """Jobs at work for comparisons that are over, and those that ended KEPT_SECONDS ago."""
    start: tuple[JudgeWish, ...] = ()
    wake_after_seconds: float | None = None
    """the seconds until a comparison is looked at again; None while no comparison is under way."""


def known_judges(before: Sequence[str], present: Collection[str]) -> tuple[str, ...]:
    """Return the uids of the last Jobs of a comparison, the oldest first.

    >>> known_judges(["a", "b"], ["b", "c"])
    ('a', 'b', 'c')
    """
    gone = [uid for uid in before if uid not in present]
    return (*gone, *present)[-MAX_JUDGES:]


def judged_by_job(spec: PlaybookSpec) -> bool:
    """Return whether a Job judges the Playbook's canary, or the watch after a promotion."""
    canary = spec.canary
    return canary is not None and (canary.mode in MODES or bool(watched_by(spec)[0]))


def refusal(spec: PlaybookSpec, *, secret_policy: bool) -> str:
    """Return why the canary's Secrets are not mounted; empty where they are.

    They are mounted only where the admission policy asks whether the Playbook's author may read them.
    """
    if secret_policy or spec.canary is None:
        return ""
    names = sorted({ref.name for ref in secrets_of(spec.canary, spec.delivery.gateway).values()})
    if not names:
        return ""
    return (
        f"SecretNotAllowed: without the chart's admission policy {', '.join(names)} is not mounted. Ask "
        "whoever installed the chart for admissionPolicy.install"
    )


def decide_judges(
    owner: Owner,
    spec: PlaybookSpec,
    plan: PlaybookPlan,
    contents: Mapping[str, VersionContent],
    seen: JudgesSeen,
    now: float,
) -> JudgesPlan:
    """Return which Jobs are made and which end. ``contents``: by digest, of each version."""
    wishes = [wish for wish in plan.canaries if wish.comparison.mode in MODES]
    over = seen.jobs.keys() - {wish.comparison.id for wish in wishes}
    delete = tuple(job for comparison in sorted(over) for job in seen.jobs[comparison] if job.live)
    finished = (job for jobs in seen.jobs.values() for job in jobs if job.ended)
    delete += tuple(job for job in finished if now - job.ended > KEPT_SECONDS)
    start: list[JudgeWish] = []
    waits: list[float] = []
    for wish in () if seen.refused else wishes:
        judge = _judge_wish(owner, spec, plan, contents, wish)
        if judge is None:
            continue
        wait = _wait_seconds(judge, seen.jobs.get(wish.comparison.id, ()), now)
        if wait == 0:
            start.append(judge)
        waits.append(wait or LOOK_SECONDS)
    return JudgesPlan(delete, tuple(start), min(waits, default=None))


def _wait_seconds(wish: JudgeWish, jobs: Iterable[JudgeJob], now: float) -> float:
    """Return the seconds until a comparison is looked at again; 0 where its next Job is to be made now."""
    query, pause = wish.canary.prometheus, SLOT_SECONDS * 1.0
    if query is not None:
        pause = min(LONGEST_PAUSE_SECONDS, max(pause, WINDOWS_AT_ONCE * query.window_seconds))
    wait = next_job_seconds(jobs, wish.made_of(), wish.pairs, now, pause)
    if wait is None:
        return LOOK_SECONDS
    if query is not None:
        wait = max(wait, ready_seconds(query, wish.begins, wish.first, now))
    return max(0.0, wait)


def _judge_wish(
    owner: Owner,
    spec: PlaybookSpec,
    plan: PlaybookPlan,
    contents: Mapping[str, VersionContent],
    wish: CanaryWish,
) -> JudgeWish | None:
    """Return what a canary's Job is to do; None while the content of a version that it needs is missing."""
    if spec.canary is None or (wish.comparison.against and wish.comparison.against not in contents):
        return None
    memory = VersionMemory.from_json(plan.versions[wish.version].state)
    query = spec.canary.prometheus
    return JudgeWish(
        owner=owner,
        canary=spec.canary,
        gateway=spec.delivery.gateway,
        comparison=wish.comparison,
        digest=wish.digest,
        contents=contents,
        done=memory.tally.spans,
        pairs=wish.pairs,
        since=int(memory.since),
        begins=begins_at(memory.since, query) if query is not None else 0,
        first=memory.reading.last + 1 if memory.reading is not None else 0,
        rubric=wish.rubric,
    )
