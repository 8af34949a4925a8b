"""`make soak`: many kills at seeded random moments, run after run, and a table of what became of them.

It breaks the project's own test node again and again; the seed chooses the order, the moments and the
victims."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cluster_tools import Cluster, fresh_namespace, sharing
from kills import KINDS, Round, survive
from releases import apply_crds

HEAD = ("moment", "after", "object", "during", "twice", "bound", "up again", "playbook")


def main() -> int:
    """Exit 0 only when every run learned what a laptop learns from its plans, within the bounds."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--kills", type=int, default=30, help="how many (30)")
    asked.add_argument("--seed", type=int, default=1, help="of the first run (1)")
    given = asked.parse_args()
    cluster = Cluster(dict(os.environ))
    if not cluster.own:
        sys.exit("soak: it kills parts of this machine's own node; unset KUBECONFIG and say `make soak`")
    say("waiting until no test uses the cluster")
    with sharing(alone=True):
        apply_crds(cluster)
        return soak(cluster, given.kills, given.seed)


def soak(cluster: Cluster, wanted: int, seed: int) -> int:
    """Kill so many things; the exit code."""
    began, rounds, failures = time.monotonic(), list[Round](), list[str]()
    while sum(len(done.kills) for done in rounds) < wanted and len(failures) < 3:
        number = seed + len(rounds) + len(failures)
        left = wanted - sum(len(done.kills) for done in rounds)
        say(f"run with seed {number}: {left} kills are left")
        try:
            rounds.append(one_run(cluster, number, KINDS[:left]))
        except (Exception, pytest.fail.Exception) as error:
            failures.append(f"seed {number}: {error}")
            say(f"FAILED: {error}")
    print(table(rounds))
    failures += [said for done in rounds for said in wrong(done)]
    kills = sum(len(done.kills) for done in rounds)
    twice = sum(kill.twice for done in rounds for kill in done.kills)
    print(
        f"{kills} kills in {len(rounds)} runs, {time.monotonic() - began:.0f} s; "
        f"{sum(done.answers for done in rounds)} calls, {twice} answered twice; {len(failures)} failures"
    )
    for failure in failures:
        print(f"  {failure}")
    return 1 if failures or kills < wanted else 0


def one_run(cluster: Cluster, seed: int, kinds: Sequence[str]) -> Round:
    """One run, in a namespace of its own."""
    with fresh_namespace(cluster) as namespace, tempfile.TemporaryDirectory(prefix="combee-soak-") as folder:
        done = survive(cluster, namespace, Path(folder), seed, kinds)
    say(
        f"{done.message}; {'the same' if done.same else 'ANOTHER'} playbook as on a laptop: "
        f"{done.digest[:12]}"
    )
    return done


def wrong(done: Round) -> list[str]:
    """What must not be."""
    over = [
        f"{kill.kind} {kill.name}: {kill.twice} > {kill.bound}"
        for kill in done.kills
        if kill.twice > kill.bound
    ]
    over += [f"answered twice without a kill: {said}" for said in done.others]
    return over + ([] if done.same else [f"{done.digest[:12]} is not what a laptop learned"])


def table(rounds: Sequence[Round]) -> str:
    """A line a kill; `twice` is the calls answered twice, `bound` those that were in flight at most."""
    rows = [HEAD] + [
        (
            datetime.fromtimestamp(kill.at, UTC).strftime("%H:%M:%S"),
            f"{kill.at - done.began:.1f} s",
            f"{kill.kind} {kill.name}",
            kill.during,
            str(kill.twice),
            str(kill.bound),
            f"{kill.seconds:.1f} s",
            f"{done.digest[:12]}{' =' if done.same else ' OTHER'}",
        )
        for done in rounds
        for kill in done.kills
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def say(what: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
