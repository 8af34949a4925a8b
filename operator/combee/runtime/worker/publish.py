"""publish: the best playbook becomes an immutable ConfigMap, made with this pod's own account.

It may only create and read ConfigMaps. The object has no owner: it outlives the run that learned it.
"""

from __future__ import annotations

import json
from typing import Any

from combee.errors import ArtifactTooLargeError, BugError, CombeeError
from combee.names import (
    API_GROUP,
    LABEL_COMPONENT,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    LABEL_PLAYBOOK,
    MANAGED_BY,
    MAX_NAME,
    published_name,
)
from combee.plan.types import StepSummary
from combee.runtime.crash import bug_text
from combee.runtime.worker.kube import ConfigMaps
from combee.runtime.worker.log import PodLog
from combee.runtime.worker.pod import Pod
from combee.runtime.worker.report import open_store, permanent, tell

MAX_BYTES = 900 * 1024
"""A ConfigMap's limit is 1 MiB, with everything that Kubernetes adds."""
PLAYBOOK_KEY, ARTIFACT_KEY = "playbook.md", "artifact.json"


def run(pod: Pod, log: PodLog) -> int:
    """Publish; the exit code. Nothing is raised."""
    try:
        summary = _published(pod)
        log.say("INFO", f"published {summary.outputs['configMap']}")
    except CombeeError as error:
        log.say("ERROR", str(error), error=error.code)
        tell(pod, failed(pod, error.code, str(error)), log)
        return 0 if permanent(error) else 70 if isinstance(error, BugError) else 1
    except Exception as error:
        log.say("ERROR", bug_text(error))
        tell(pod, failed(pod, BugError.code, bug_text(error)), log)
        return 70
    tell(pod, summary, log)
    return 0


def failed(pod: Pod, code: str, message: str) -> StepSummary:
    """The summary of a publication that did not happen."""
    return StepSummary(pod.step.name, pod.step.kind, error=code, message=message[:1000])


def _published(pod: Pod) -> StepSummary:
    playbook, digest, name = (str(pod.step.params.get(key) or "") for key in ("playbook", "digest", "name"))
    if not playbook or not digest or name != published_name(playbook, digest):
        raise BugError("publish was not told what to publish", where="COMBEE_STEP")
    store = open_store(pod)
    try:
        artifact = store.get_blob(digest)
    finally:
        store.close()
    data = content(rendered(pod, artifact), artifact)
    ConfigMaps.of(pod).ensure(config_map(pod, playbook, digest, name, data))
    return StepSummary(
        pod.step.name,
        pod.step.kind,
        outputs={"configMap": name, "digest": digest},
        counts={"bytes": sum(len(text.encode()) for text in data.values())},
    )


def rendered(pod: Pod, artifact: bytes) -> str:
    """The text that a model would be shown, within the run's token budget."""
    from combee.methods.ace import AceMethod

    method, spec = AceMethod(), pod.spec
    return method.render(
        method.from_json(artifact),
        budget_tokens=spec.method.ace.render_token_budget,
        verify=spec.aggregation.verify,
    ).text


def content(playbook: str, artifact: bytes) -> dict[str, str]:
    """The ConfigMap's data: the playbook, and the artifact where both fit.

    ArtifactTooLargeError when the playbook alone does not.
    """
    size = len(playbook.encode())
    if size > MAX_BYTES:
        raise ArtifactTooLargeError(
            f"the playbook has {size:,} bytes, a ConfigMap holds {MAX_BYTES:,}",
            where="spec.method.ace.renderTokenBudget",
            fix="Lower renderTokenBudget, or read the playbook from the store: it is kept there whole",
        )
    data = {PLAYBOOK_KEY: playbook}
    if size + len(artifact) <= MAX_BYTES:
        data[ARTIFACT_KEY] = artifact.decode()
    return data


def config_map(pod: Pod, playbook: str, digest: str, name: str, data: dict[str, str]) -> dict[str, Any]:
    """The object to create. Its labels name no run: it must not be taken for a run's child."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": pod.namespace,
            "labels": {
                LABEL_NAME: "combee",
                LABEL_MANAGED_BY: MANAGED_BY,
                LABEL_COMPONENT: "playbook",
                LABEL_PLAYBOOK: playbook[:MAX_NAME].rstrip("-."),
            },
            "annotations": {
                f"{API_GROUP}/digest": digest,
                f"{API_GROUP}/learned-by": json.dumps(
                    {"run": pod.name, "uid": pod.uid}, separators=(",", ":")
                ),
            },
        },
        "immutable": True,
        "data": data,
    }
