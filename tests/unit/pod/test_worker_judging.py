"""The bookkeeping of judged pairs: none is lost and none counts twice, wherever a Job is killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from combee.algo.canary import Rules, tally_verdict
from combee.algo.tally import UNJUDGED, LeftOut, Pair, Tally
from combee.plan.playbook.judges import LONGEST_PAUSE_SECONDS, SLOT_SECONDS, JudgeJob, next_job_seconds
from combee.plan.playbook.judging import JudgeTask, read_left_out, read_pairs, write_pairs
from combee.pod.judge import config_map
from combee.pod.judging import GIVE_UP_SECONDS, MOST_IN_CONFIG_MAP, Judging, oldest_first
from combee.work.judge import Sampled, Unjudged

NOW = 1_800_000_000
FOLDER = "traffic/formula/pairs/test-1"
TASK = JudgeTask.model_validate(
    {
        "playbook": "formula",
        "namespace": "team",
        "uid": "3fa9c1d2",
        "test": "test-1",
        "mode": "Shadow",
        "evaluator": {"url": "http://judge/v1", "model": "judge"},
        "store": "/store",
    }
)


class Killed(BaseException):
    """The pod is gone."""


def record(stream: str, number: int, tested: str = "a", words: str = "", cluster: str = "") -> bytes:
    sides = {
        side: {"digest": side, "seconds": 1.0, "answer": {"content": said, "finish_reason": "stop"}}
        for side, said in (("tested", tested), ("against", "b"))
    }
    messages = [{"role": "user", "content": words}] if words else []
    told = {"version": 1, "test": "test-1", "request": {"messages": messages, "cluster": cluster}, **sides}
    return json.dumps({"stream": stream, "number": number, **told}).encode()


@dataclass
class Cluster:
    """A store, ConfigMaps and an operator. Any request may be a Job's last one, before or just after it is
    done."""

    objects: dict[str, bytes] = field(default_factory=dict)
    maps: dict[str, dict[str, Any]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    killed_at: int = -1
    moments: int = 0

    def _moment(self) -> None:
        """Just before a request takes effect, or just after."""
        self.moments += 1
        if self.moments == self.killed_at:
            raise Killed

    async def alist(self, prefix: str = "") -> Sequence[str]:
        return sorted(path for path in self.objects if path.startswith(prefix))

    async def aget(self, path: str) -> bytes | None:
        self._moment()
        self._moment()
        return self.objects.get(path)

    async def aput(self, path: str, data: bytes) -> None:
        self._moment()
        self.objects[path] = data
        self._moment()

    def delete(self, path: str) -> None:
        self._moment()
        self.objects.pop(path, None)
        self._moment()

    async def publish(self, pairs: Sequence[Pair], left_out: Sequence[LeftOut] = ()) -> None:
        self._moment()
        made = config_map(TASK, "job-1", pairs, left_out)
        name = made["metadata"]["name"]
        assert self.maps.get(name, made) == made, "a ConfigMap is immutable"
        self.maps[name] = made
        self._moment()

    def fold(self) -> None:
        """What the operator does; it may be killed between its two writes as well."""
        for name in sorted(self.maps):
            text = self.maps[name]["data"]["pairs.json"]
            self.tally = self.tally.with_pairs("test-1", read_pairs(text))
            self.tally = self.tally.with_left_out(read_left_out(text))

    def forget(self) -> None:
        self.maps.clear()


async def judged(samples: Sequence[Sampled]) -> list[Pair | Unjudged]:
    return [Pair(one.stream, one.number, 0.25, 1.0) for one in samples]


def job(cluster: Cluster, **more: Any) -> Judging:
    return Judging(TASK, cluster, more.pop("judge", judged), cluster.publish, clock=lambda: NOW, **more)


def work(judging: Judging) -> None:
    async def all_of_it() -> None:
        while await judging.once():
            pass

    asyncio.run(all_of_it())


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.sampled_from("xyz"), st.integers(1, 60)), min_size=1, max_size=6),
    kills=st.lists(st.integers(0, 30), max_size=8),
    folds=st.lists(st.sampled_from(["", "fold", "fold and forget"]), min_size=10, max_size=10),
)
def test_no_pair_is_lost_or_counted_twice_under_kills_anywhere(
    sizes: list[tuple[str, int]], kills: list[int], folds: list[str]
) -> None:
    cluster, numbers = Cluster(), dict.fromkeys("xyz", 0)
    for at, (stream, size) in enumerate(sizes):
        lines = [record(stream, numbers[stream] + i) for i in range(size)]
        numbers[stream] += size
        cluster.objects[f"{FOLDER}/{NOW + at}-{stream}-{at:06d}.jsonl"] = b"\n".join(lines)
    for turn, kill in enumerate([*kills, -1]):
        cluster.killed_at, cluster.moments = kill, 0
        try:
            work(job(cluster))
        except Killed:
            pass
        if "fold" in folds[turn]:
            cluster.fold()
        if "forget" in folds[turn]:
            cluster.forget()
    cluster.fold()
    assert cluster.objects == {}
    assert cluster.tally.pairs == sum(size for _, size in sizes)
    assert cluster.tally.spans == {s: ((0, n - 1),) for s, n in numbers.items() if n}
    assert cluster.tally.counts == {25: cluster.tally.pairs}


@settings(max_examples=80, deadline=None)
@given(
    words=st.lists(st.sampled_from("abc"), min_size=1, max_size=12),
    kills=st.lists(st.integers(0, 25), max_size=6),
)
def test_one_pair_of_each_conversation_counts_wherever_a_job_is_killed(
    words: list[str], kills: list[int]
) -> None:
    cluster = Cluster()
    for number, said in enumerate(words):
        cluster.objects[f"{FOLDER}/{NOW + number}-x-{number:06d}.jsonl"] = record("x", number, words=said)
    for kill in [*kills, -1]:
        cluster.killed_at, cluster.moments = kill, 0
        try:
            work(job(cluster))
        except Killed:
            pass
    cluster.fold()
    assert cluster.tally.pairs == len(set(words))
    assert cluster.tally.left_out == (
        {0: len(words) - len(set(words))} if len(set(words)) < len(words) else {}
    )
    assert cluster.tally.spans == {"x": ((0, len(words) - 1),)}
    left = list(cluster.objects)
    assert all(path.startswith("traffic/formula/roots/test-1/") for path in left)
    assert not any(said in cluster.objects[path].decode().split() for path in left for said in words)


@settings(max_examples=80, deadline=None)
@given(
    requests=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", *"123"])), max_size=12),
    kills=st.lists(st.integers(0, 25), max_size=6),
)
def test_one_pair_counts_of_all_that_begin_alike_or_are_of_one_cluster(
    requests: list[tuple[str, str]], kills: list[int]
) -> None:
    """Whoever makes up clusters makes no more pairs of it: they only join what would count by itself."""
    cluster, counted = Cluster(), set[tuple[str, str]]()
    for number, (said, named) in enumerate(requests):
        path = f"{FOLDER}/{NOW + number}-x-{number:06d}.jsonl"
        cluster.objects[path] = record("x", number, words=said, cluster=named)
        if not any(said == other or (named and named == its) for other, its in counted):
            counted.add((said, named))
    for kill in [*kills, -1]:
        cluster.killed_at, cluster.moments = kill, 0
        try:
            work(job(cluster))
        except Killed:
            pass
    cluster.fold()
    assert cluster.tally.pairs == len(counted) <= len({said for said, _ in requests})
    assert sum(cluster.tally.left_out.values()) == len(requests) - len(counted)


def test_another_gateway_and_a_later_job_know_which_conversations_have_their_pair() -> None:
    cluster = Cluster({f"{FOLDER}/{NOW}-x-000000.jsonl": record("x", 0, words="hello")})
    work(job(cluster))
    cluster.objects[f"{FOLDER}/{NOW + 9}-y-000000.jsonl"] = record("y", 0, words="hello")
    later = job(cluster)
    work(later)
    cluster.fold()
    assert cluster.tally.spans == {"x": ((0, 0),), "y": ((0, 0),)} and cluster.tally.pairs == 1
    assert later.counts["repeated"] == 1 and later.counts["judged"] == 0


def test_a_pair_that_may_be_judged_later_keeps_its_object_until_it_is_too_old() -> None:
    async def one_fails(samples: Sequence[Sampled]) -> list[Pair | Unjudged]:
        good = [Pair(one.stream, one.number, 0.0) for one in samples if one.number]
        return [*good, Unjudged("x", 0, "Transient", passing=True)]

    path = f"{FOLDER}/{NOW - 5}-x-000000.jsonl"
    cluster = Cluster({path: record("x", 0) + b"\n" + record("x", 1)})
    first = job(cluster, judge=one_fails)
    work(first)
    assert list(cluster.objects) == [path] and (first.counts["judged"], first.counts["left"]) == (1, 1)
    work(job(cluster))
    cluster.fold()
    assert cluster.objects == {} and cluster.tally.spans == {"x": ((0, 1),)}
    old = f"{FOLDER}/{int(NOW - GIVE_UP_SECONDS)}-x-000001.jsonl"
    cluster.objects[old] = record("x", 0)
    last = job(cluster, judge=one_fails)
    work(last)
    assert cluster.objects == {} and last.counts["failed"] == 1


def test_what_cannot_be_judged_is_told_and_not_asked_again() -> None:
    """Whether it can be may depend on the version: people must see how many there were."""

    async def bad_ones_fail(samples: Sequence[Sampled]) -> list[Pair | Unjudged]:
        return [
            Unjudged(one.stream, one.number, "Parse", passing=False)
            if one.number % 3
            else Pair(one.stream, one.number, 0.0)
            for one in samples
        ]

    lines = [record("x", n, words=f"question {n}") for n in range(9)]
    cluster = Cluster({f"{FOLDER}/{NOW}-x-000000.jsonl": b"\n".join(lines)})
    first = job(cluster, judge=bad_ones_fail)
    work(first)
    cluster.fold()
    assert (first.counts["judged"], first.counts["failed"], cluster.tally.pairs) == (3, 6, 3)
    assert cluster.tally.left_out == {UNJUDGED: 6} and cluster.tally.spans == {"x": ((0, 8),)}
    rules = Rules(epsilon=0.02, min_samples=20, duration_seconds=60, deadline_seconds=600)
    said = tally_verdict(cluster.tally, rules, 1).message
    assert said.endswith("; 6 requests are left out: the evaluator gave no verdict")
    asked: list[int] = []

    async def asks(samples: Sequence[Sampled]) -> list[Pair | Unjudged]:
        asked.extend(one.number for one in samples)
        return await judged(samples)

    cluster.objects[f"{FOLDER}/{NOW + 1}-x-000001.jsonl"] = b"\n".join(lines)
    done = {stream: list(spans) for stream, spans in cluster.tally.spans.items()}
    work(Judging(TASK.model_copy(update={"done": done}), cluster, asks, cluster.publish, clock=lambda: NOW))
    assert asked == []


def test_what_is_judged_already_is_not_asked_again() -> None:
    asked: list[int] = []

    async def asks(samples: Sequence[Sampled]) -> list[Pair | Unjudged]:
        asked.extend(one.number for one in samples)
        return await judged(samples)

    cluster = Cluster({f"{FOLDER}/{NOW}-x-000000.jsonl": b"\n".join(record("x", n) for n in range(6))})
    task = TASK.model_copy(update={"done": {"x": ((0, 1), (4, 4))}})
    work(Judging(task, cluster, asks, cluster.publish, clock=lambda: NOW))
    assert asked == [2, 3, 5] and cluster.objects == {}


def test_a_large_object_takes_several_config_maps_and_the_oldest_come_first() -> None:
    count = 2 * MOST_IN_CONFIG_MAP + 1
    cluster = Cluster({f"{FOLDER}/9-x-000000.jsonl": b"\n".join(record("x", n) for n in range(count))})
    work(job(cluster))
    sizes = [len(read_pairs(made["data"]["pairs.json"])) for made in cluster.maps.values()]
    assert sorted(sizes) == [1, MOST_IN_CONFIG_MAP, MOST_IN_CONFIG_MAP]
    assert oldest_first(["f/10-a", "f/9-b", "f/x", "f/9-a"]) == ["f/x", "f/9-a", "f/9-b", "f/10-a"]


def test_pairs_survive_being_written_whatever_their_order() -> None:
    pairs = (Pair("x", 2, -0.123456789, 1.23456789), Pair("x", 1, 1.0, None))
    assert write_pairs(pairs) == write_pairs(reversed(pairs))
    assert read_pairs(write_pairs(pairs)) == (Pair("x", 1, 1.0, None), Pair("x", 2, -0.123457, 1.23457))
    lost = (Pair("x", 1, -1.0, None, "400"), Pair("x", 2, 1.0, 0.5, "timeout"))
    assert read_pairs(write_pairs(lost)) == lost
    for row in ('["x", 1, -0.5, null, "400"]', '["x", 1, -1, null, "words"]', '["x", 1, -1, null, 400]'):
        assert read_pairs(f'{{"version": 1, "pairs": [{row}]}}') == ()
    huge = "1" + "0" * 400
    for row in (f'["x", 1, {huge}, null]', f'["x", 1, 0.5, {huge}]', '["x", 1, 1e999, null]'):
        assert read_pairs(f'{{"version": 1, "pairs": [{row}]}}') == ()
    for broken in ("", "[]", '{"version": 2, "pairs": []}', '{"version": 1, "pairs": 7}', "[" * 100_000):
        assert read_pairs(broken) == ()
    assert read_pairs('{"version": 1, "pairs": [["x", 1, 7, null], ["x", 0, 0, 1], 4]}') == (
        Pair("x", 0, 0.0, 1.0),
    )


def test_the_time_of_a_pair_goes_along_and_rows_of_an_earlier_judge_have_none() -> None:
    pairs = (Pair("x", 1, 0.5, time=1_800_000_000.4), Pair("x", 2, 0.0))
    text = write_pairs(pairs)
    assert [pair.time for pair in read_pairs(text)] == [1_800_000_000.0, None]
    # An earlier operator reads the rows as before, and no more.
    assert (
        json.loads(text)["pairs"] == json.loads(write_pairs([replace(p, time=None) for p in pairs]))["pairs"]
    )
    rows = '"pairs": [["x", 1, 0, null], ["x", 2, 0, null]]'
    for times in ("", ', "times": [1]', ', "times": 7', ', "times": [-1, "now"]', ', "times": [true, 1e999]'):
        assert [pair.time for pair in read_pairs(f'{{"version": 1, {rows}{times}}}')] == [None, None]


def test_what_a_pair_cost_goes_along_and_rows_of_an_earlier_judge_have_none() -> None:
    pairs = (Pair("x", 1, 0.5, cost_ratio=1.5), Pair("x", 2, 0.0))
    text = write_pairs(pairs)
    assert read_pairs(text) == pairs
    plain = write_pairs([replace(pair, cost_ratio=None) for pair in pairs])
    assert "costs" not in plain and json.loads(text)["pairs"] == json.loads(plain)["pairs"]
    rows = '"pairs": [["x", 1, 0, null], ["x", 2, 0, null]]'
    for costs in ("", ', "costs": [1]', ', "costs": 7', ', "costs": [-1, "2"]', ', "costs": [true, 1e999]'):
        assert [pair.cost_ratio for pair in read_pairs(f'{{"version": 1, {rows}{costs}}}')] == [None, None]


# -- when the next Job is made ----------------------------------------------------------------------------


@settings(max_examples=60)
@given(steps=st.lists(st.booleans(), min_size=1, max_size=30))
def test_jobs_come_as_long_as_pairs_do_and_seldom_where_none_come(steps: list[bool]) -> None:
    """``steps``: whether each Job brings a pair."""
    jobs: list[JudgeJob] = []
    now, pairs = 0.0, 0
    for brings in steps:
        jobs.append(JudgeJob(now, True, "a", pairs))
        assert next_job_seconds(jobs, "a", pairs, now + 1) is None
        jobs[-1] = JudgeJob(now, False, "a", pairs)
        pairs += brings
        wait = next_job_seconds(jobs, "a", pairs, now)
        assert wait is not None and SLOT_SECONDS <= wait <= LONGEST_PAUSE_SECONDS
        if brings:
            assert wait == SLOT_SECONDS
        assert next_job_seconds(jobs, "b", pairs, now) == SLOT_SECONDS
        now += wait
    if len(steps) > 12 and not any(steps):
        assert wait == LONGEST_PAUSE_SECONDS
