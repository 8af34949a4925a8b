"""All that is decided about versions is kept on a real cluster, through kills, deletion and pruning, and what
is taken out of it is noticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cluster_tools import Cluster, eventually
from playbooks import Playbooks
from runs import operating
from test_kubectl_combee import combee

from combee.names import LABEL_HISTORY, history_name

BULLET = "[x-{0}] helpful=0 harmful=0 :: "
GOOD = "## general\n" + BULLET.format(1) + "Divide first.\n"
BETTER = GOOD + BULLET.format(2) + "Round at the end.\n"
BEST = BETTER + BULLET.format(3) + "Name the unit.\n"


def lines_of(there: Playbooks) -> list[dict[str, Any]]:
    found = there.cluster.get("configmaps", "-l", LABEL_HISTORY, namespace=there.namespace)["items"]
    named = sorted(found, key=lambda one: one["metadata"]["name"])
    return [json.loads(one["data"]["line.json"]) for one in named]


def events_of(there: Playbooks, digest: str) -> list[str]:
    return [line["event"] for line in lines_of(there) if line.get("digest") == digest]


def settled(there: Playbooks) -> bool:
    """Whether every line is in a ConfigMap."""
    trail = there.status().get("trail", {})
    return trail.get("lines") == len(lines_of(there)) and not trail.get("pending")


def test_the_history_is_whole_through_restarts_deletion_and_pruning(
    cluster: Cluster, namespace: str, there: Playbooks, tmp_path: Path
) -> None:
    limit = {"heldOut": {"minScore": 0.6}, "version": {"historyLimit": 1}}
    with operating(cluster, namespace, tmp_path / "first.log"):
        there.apply(**limit)
        first = there.version(GOOD, right=70)
        there.serves(first)
        second = there.version(BETTER, right=90, base=70, parent=first)
        there.serves(second)
    # Nobody is at work: a person refuses the active version, by the command.
    done = combee(cluster, "playbook", "refuse", there.name, second[:12], "-n", namespace)
    assert done.returncode == 0, done.stderr
    with operating(cluster, namespace, tmp_path / "second.log"):
        there.serves(first)
        eventually("the lines are filed", lambda: settled(there))
        passed = ["Made", "HeldOutPassed", "CanaryWaived", "Promoted"]
        assert events_of(there, second) == [*passed, "Decided", "Refused"]
        refused = next(line for line in lines_of(there) if line["event"] == "Refused")
        assert refused["by"] == "Decision" and refused["who"].startswith("kubectl-combee at 2")
        assert refused["policy"].startswith("Automatic; heldOut minScore 0.600")
        assert "a test on heldOut alone" in refused["policy"]
        before = lines_of(there)
        cluster.kubectl("delete", "pb", there.name, namespace=namespace)
        there.apply(**limit)
        there.serves(first)
        eventually("its history goes on", lambda: there.status().get("trail", {}).get("lines") == len(before))
        assert lines_of(there) == before
        # None of these is better, so all but the last one go; their lines stay.
        equal = []
        for n in range(3):
            equal.append(there.version(BEST + "x" * n, right=70, base=70, parent=first))
            eventually("it is told from none", lambda: "Inconclusive" in events_of(there, equal[-1]))
        eventually("two are pruned", lambda: set(equal) & set(there.versions()) == {equal[-1]})
        for digest in equal[:-1]:
            assert events_of(there, digest) == ["Made", "Inconclusive", "Pruned"]
        eventually("the lines are filed", lambda: settled(there))
    printed = combee(cluster, "playbook", "history", there.name, "--verify", "-n", namespace)
    print(printed.stdout)
    assert printed.returncode == 0, printed.stdout + printed.stderr
    number = len(lines_of(there))
    assert f"the history is whole: {number} lines" in printed.stdout
    assert all(f"  {n}  2" in printed.stdout for n in range(1, number + 1))


def test_what_is_taken_out_of_the_history_is_named(
    cluster: Cluster, namespace: str, there: Playbooks, tmp_path: Path
) -> None:
    with operating(cluster, namespace, tmp_path / "operator.log"):
        there.apply()
        first = there.version(GOOD, right=70)
        there.serves(first)
        eventually("the lines are filed", lambda: settled(there))
    third = history_name(there.name, 3)
    held = cluster.get("configmap", third, namespace=namespace)
    changed = cluster.try_kubectl(
        "patch", "configmap", third, "--type=merge", "-p", '{"data":{"line.json":"{}"}}', namespace=namespace
    )
    assert changed.returncode != 0 and "immutable" in changed.stderr
    cluster.kubectl("delete", "configmap", third, namespace=namespace)

    def verified() -> tuple[int, str]:
        done = combee(cluster, "playbook", "history", there.name, "--verify", "-n", namespace)
        return done.returncode, done.stdout

    code, text = verified()
    assert code == 5 and "wrong: line 3 is gone" in text
    line = json.loads(held["data"]["line.json"]) | {"message": "nothing was waived"}
    meta = {name: held["metadata"][name] for name in ("name", "labels")}
    data = {"line.json": json.dumps(line)}
    altered = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    cluster.kubectl("create", "-f", "-", stdin=altered, namespace=namespace)
    code, text = verified()
    assert code == 5 and "wrong: line 3 is not what it was when line 4 was written" in text
    assert "wrong: line 3 was not written by the operator but by kubectl-create at 2" in text
    assert text.count("not written by the operator") == 1
