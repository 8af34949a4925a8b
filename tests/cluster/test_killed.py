"""Parts of a run are killed during a step: the playbook is the same, and only calls in flight are
repeated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from cluster_tools import Cluster
from kills import KINDS, NOW, PAUSE_SECONDS, Answer, Kill, charged, survive


@pytest.mark.alone
@pytest.mark.timeout(1200, func_only=True)
def test_six_kills_one_after_the_other_change_no_byte(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Each as soon as all is up again and a step at work."""
    _survives(cluster, namespace, tmp_path, NOW)


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.timeout(1200, func_only=True)
def test_six_kills_at_seeded_moments_change_no_byte(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    _survives(cluster, namespace, tmp_path, PAUSE_SECONDS)


def _survives(cluster: Cluster, namespace: str, folder: Path, pause_seconds: tuple[float, float]) -> None:
    if not cluster.own:
        pytest.skip("it kills parts of the node, and KUBECONFIG names another cluster")
    done = survive(cluster, namespace, folder, 5, KINDS, pause_seconds)
    for kill in done.kills:
        print(
            f"{kill.kind} {kill.name}: {kill.twice} calls answered twice, {kill.bound} were in flight at most"
        )
    print(f"{done.answers} calls; {done.message}; playbook {done.digest[:12]}")
    assert sorted(kill.kind for kill in done.kills) == sorted(KINDS), (
        "the run was over before all were killed"
    )
    assert [kill.kind for kill in done.kills if kill.twice > kill.bound] == []
    assert done.others == []
    assert done.same, "the laptop learned another playbook"
    assert done.together, "one of two servers answered everything"


@pytest.mark.parametrize(
    ("answers", "twice", "others"),
    [
        ([(0.5, 1.0)], [0, 0, 0], 0),
        ([(9.0, 11.0), (20.0, 21.0)], [1, 0, 0], 0),
        # Answered, and not yet recorded.
        ([(8.0, 9.5), (20.0, 21.0)], [1, 0, 0], 0),
        ([(9.0, 31.0), (32.0, 33.0)], [1, 0, 0], 0),
        ([(29.0, 31.0), (32.0, 33.0)], [0, 0, 1], 0),
        # More than it could lose.
        ([(9.0, 11.0), (9.5, 31.0), (40.0, 41.0)], [1, 0, 1], 0),
        # An operator holds no call, so it can lose none.
        ([(19.0, 31.0), (32.0, 33.0)], [0, 0, 1], 0),
        ([(19.0, 20.5), (32.0, 33.0)], [0, 1, 0], 0),
        # Asked by one that was told to go and had not yet gone, of a server that was busy.
        ([(15.0, 16.0), (20.0, 21.0)], [1, 0, 0], 0),
        ([(16.5, 17.0), (20.0, 21.0)], [0, 0, 0], 1),
    ],
)
def test_what_was_answered_again_is_charged_to_a_kill_that_it_was_in_flight_at(
    answers: Sequence[tuple[float, float]], twice: list[int], others: int
) -> None:
    killed = [("worker pod", 10.0, 1), ("operator pod", 20.0, 0), ("a whole Job", 30.0, 16)]
    kills = [Kill(kind, "it", at, bound, "map", gone=at + 2.0) for kind, at, bound in killed]
    found, left = charged(kills, {"a": [Answer(began, at, "task") for began, at in answers]})
    assert [kill.twice for kill in found] == twice
    assert len(left) == others
