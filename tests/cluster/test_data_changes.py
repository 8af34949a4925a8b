"""A Playbook with trigger OnChange learns again, once, when an object of its data changes in a bucket."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_tools import Cluster, eventually, run_python
from playbooks import Playbooks
from runs import FINISHED, Runs, operating, quickstart, template
from test_s3_run import BUCKET, CLIENT, KEYS, WITH_KEYS

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("minio")]
POLL_SECONDS = 10


def put(cluster: Cluster, namespace: str, rows: str) -> None:
    """The quickstart's rows in the bucket; ``rows``: an expression over ``text``, a file's content."""
    program = (
        CLIENT
        + f"""
for name in ("train.jsonl", "heldout.jsonl"):
    text = open("/rows/" + name).read()
    if name == "train.jsonl":
        text = {rows}
    s3.put_object(Bucket="{BUCKET}", Key="{namespace}/" + name, Body=text.encode())
"""
    )
    mount = {"volumeMounts": [{"name": "rows", "mountPath": "/rows"}]}
    volumes = [{"name": "rows", "configMap": {"name": "quickstart-rows"}}]
    run_python(cluster, namespace, program, container={**WITH_KEYS, **mount}, volumes=volumes)


def test_one_run_follows_a_changed_object_and_none_one_that_was_only_written_again(
    cluster: Cluster, namespace: str, kubectl: Callable[..., str], tmp_path: Path
) -> None:
    kubectl("create", "secret", "generic", "s3", *(f"--from-literal={k}={v}" for k, v in KEYS.items()))
    there, runs = Playbooks(cluster, namespace), Runs(cluster, namespace)
    secret = {"secretRef": {"name": "s3"}}
    made = template()
    made["task"] = {
        **made["task"],
        "data": {
            split: {"uri": f"s3://{BUCKET}/{namespace}/{split.lower()}.jsonl", **secret}
            for split in ("train", "heldOut")
        },
    }

    def names() -> list[str]:
        return [one["metadata"]["name"] for one in cluster.get("plr", namespace=namespace)["items"]]

    def marks() -> dict[str, str]:
        state = there.status().get("state", {})
        return dict(state.get("marks", {}))

    def polls() -> set[str]:
        chosen = "app.kubernetes.io/component=datawatch"
        jobs = cluster.get("jobs", "-l", chosen, namespace=namespace)["items"]
        return {one["metadata"]["name"] for one in jobs if one.get("status", {}).get("succeeded")}

    with operating(cluster, namespace, tmp_path / "operator.log"):
        parts = [one for one in quickstart() if one["kind"] != "PromptLearningRun"]
        cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=parts)
        put(cluster, namespace, "text")
        there.apply(learn={"trigger": "OnChange", "pollSeconds": POLL_SECONDS, "template": made})
        (first,) = eventually("a run is made for the template", names, seconds=180)
        before = eventually("both objects are marked", lambda: len(marks()) == 2 and marks(), seconds=180)
        assert runs.ended(first)["phase"] in FINISHED

        put(cluster, namespace, "text")
        known = polls()
        eventually("two more looks", lambda: len(polls() - known) >= 2, seconds=180)
        assert (names(), marks()) == ([first], before)

        put(cluster, namespace, 'text[: text.rindex("\\n", 0, -1) + 1]')
        eventually("a run is made for the changed object", lambda: len(names()) == 2, seconds=180)
        (second,) = set(names()) - {first}
        assert marks() != before
        assert runs.ended(second)["phase"] in FINISHED
        known = polls()
        eventually("two more looks", lambda: len(polls() - known) >= 2, seconds=180)
        assert set(names()) == {first, second}
        print("marks:", before, "->", marks(), "polls:", len(polls()), "at", time.strftime("%X"))
