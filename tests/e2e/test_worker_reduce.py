"""A reduce in several pods: what one pod leaves, byte for byte, whoever is killed at whichever write."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from e2e_support import Manifest, Sim, Sims
from pods import Cluster
from reduce_pods import Reduce, reduce_of

from combee.plan.types import RoleUsage
from combee.work.asker import decode_rows
from combee.work.callgraph import modelled_seconds

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(sys.platform != "linux", reason="pods are Linux processes")]

REFLECTIONS, CONCURRENCY = 240, 14
LIMIT_MIB = 2048
"""The memory that the chart gives a pod of a step."""
Make = Callable[..., Reduce]


@pytest.fixture
def make(quick: Sim, manifest: Manifest, tmp_path: Path, clusters: list[Cluster]) -> Make:
    """Makes reduces of the same reflections."""

    def made(pods: int, sim: Sim = quick, reflections: int = REFLECTIONS, **spec: object) -> Reduce:
        spec = {"workers": {"concurrency": CONCURRENCY, "hedgeBudget": 0}, **spec}
        reduce = reduce_of(tmp_path / f"cluster{len(clusters)}", manifest, sim, reflections, pods, **spec)
        clusters.append(reduce.cluster)
        return reduce

    return made


def used(reduce: Reduce) -> tuple[dict[str, int], dict[str, RoleUsage]]:
    """What its receipt counts; what a server has in its cache is the server's."""
    done = reduce.done()
    return dict(done.counts), {role: replace(used, cached_tokens=0) for role, used in done.usage.items()}


@pytest.mark.parametrize("merge", ["Structured", "Model"])
def test_the_number_of_pods_changes_no_byte_and_no_count(merge: str, make: Make) -> None:
    one, *more = [make(pods, aggregation={"merge": merge}) for pods in (1, 2, 3, 7)]
    one.run()
    assert one.done().counts["calls"] > REFLECTIONS / 8
    for several in more:
        several.run()
        assert several.learned() == one.learned()
        assert used(several) == used(one)
        assert [pod.message for pod in several.cluster.pods] == [several.done()] * several.step.shards


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("kind", ["claim", "memo", "blob", "left", "receipt"])
def test_a_pod_that_is_killed_at_a_write_changes_nothing(kind: str, moment: str, make: Make) -> None:
    one, two = make(1), make(2)
    one.run()
    killed = two.start(1, "killed-at-write", kind, moment)
    # Alone it gets to each of its writes; the other one is there when it is dead.
    assert killed.wait() == -signal.SIGKILL
    other = two.start(0)
    assert other.wait() == 0, other.log
    assert two.learned() == one.learned()
    again = two.start(1)
    assert again.wait() == 0, again.log
    assert again.message == other.message == two.done()


def test_pods_that_are_killed_at_work_are_helped_and_their_successors_go_on(
    sims: Sims, key: Path, make: Make
) -> None:
    sim = sims.start("--key", key, "--time-scale", "0.05")
    one, three = make(1), make(3, sim)
    one.run()
    pods = [three.start(shard) for shard in range(3)]
    three.wait_for_claims(6)
    pods[0].kill()
    pods[2].kill()
    pods[0] = three.start(0)
    assert [pod.wait() for pod in pods[:2]] == [0, 0], [pod.log for pod in pods[:2]]
    assert three.learned() == one.learned()
    twice = sum(count - 1 for count in sim.answered().values())
    print(f"{twice} calls of {sum(sim.answered().values())} answered twice (simulated model)")
    assert twice <= 2 * CONCURRENCY  # in flight in two pods when they were killed


def test_a_pod_that_cannot_do_its_part_leaves_it_to_the_others(make: Make) -> None:
    model = {"url": "http://127.0.0.1:9/v1", "model": "m", "apiKeySecretRef": {"name": "none", "key": "KEY"}}
    reduce = make(2, engines=[], models={role: {"endpoint": model} for role in ("task", "proposer")})
    assisting = reduce.start(1)
    assert assisting.wait() == 0, assisting.log
    assert assisting.message is None and reduce.receipt() is None
    first = reduce.start(0)
    assert first.wait() == 0
    assert first.message is not None and first.message.error
    assert reduce.receipt() == first.message
    again = reduce.start(1)
    assert again.wait() == 0
    assert again.message == first.message


@pytest.mark.parametrize("reflections", [4_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_pod_of_any_reduce_stays_within_its_memory(
    reflections: int, sims: Sims, key: Path, make: Make
) -> None:
    """What it takes is printed: the critical path is that of the recorded calls on the run's slots."""
    slots = reflections // 50
    sim = sims.start("--key", key, "--time-scale", "0.2")
    workers = {"concurrency": slots, "parallelism": 3, "hedgeBudget": 0}
    one, three = (make(pods, sim, reflections, workers=workers) for pods in (1, 3))
    for reduce in (one, three):
        wall = reduce.run()
        done = reduce.done()
        rows = decode_rows(reduce.store.get_blob(done.outputs["calls"]))
        peaks, cpu = (
            ", ".join(f"{amount:.0f}" for amount in by.values())
            for by in (reduce.peaks_mib, reduce.cpu_seconds)
        )
        print(
            f"{reflections} reflections, {reduce.step.shards} pods, {len(rows)} calls on {slots} slots, "
            f"simulated model at a fifth of its time: {wall:.0f} s, critical path "
            f"{modelled_seconds(rows, slots):.0f} s; MiB by pod: {peaks}; processor seconds by pod: {cpu}"
        )
        assert max(reduce.peaks_mib.values()) < LIMIT_MIB
    assert three.learned() == one.learned() and used(three) == used(one)


def test_a_budget_that_ends_a_reduce_was_spent_by_all_its_pods(make: Make) -> None:
    tokens = 40_000
    reduce = make(2, budget={"tokens": tokens}, workers={"concurrency": 2, "hedgeBudget": 0})
    assisting = reduce.start(1)
    assert assisting.wait() == 0, assisting.log
    assert assisting.message is None
    first = reduce.start(0)
    assert first.wait() == 0, first.log
    receipt = reduce.receipt()
    assert receipt is not None and receipt.error == "BudgetExhausted"
    # Each may spend half of it: what is more is what the other one left.
    assert tokens / 2 < receipt.usage["proposer"].tokens <= tokens
