"""publish: the best playbook becomes an immutable ConfigMap, made with this pod's own account.

The account may only create and read ConfigMaps. The object has no owner: it outlives the run that learned it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from combee import names
from combee.algo.tokens import estimate_tokens
from combee.api.methods import Method
from combee.assembly.crash import bug_text
from combee.clients.store.store import Store
from combee.errors import ArtifactTooLargeError, BugError, CombeeError, DamagedError
from combee.methods.protocol import Rendered
from combee.plan.cluster.published import published_digests
from combee.plan.gatescores import GateScores, gate_sides
from combee.plan.types import Step, StepSummary
from combee.pod.configmaps import ConfigMaps
from combee.pod.environment import Pod, open_store
from combee.pod.log import PodLog
from combee.pod.termination import permanent, tell

MAX_BYTES = 900 * 1024
"""A ConfigMap's limit is 1 MiB, including everything that Kubernetes adds."""


def run(pod: Pod, log: PodLog) -> int:
    """Publish; return the exit code. Nothing is raised."""
    try:
        summary = _published(pod)
        if summary.error:
            log.say("WARNING", summary.message, error=summary.error)
        else:
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
    """Return the summary of a publication that did not happen."""
    return StepSummary(pod.step.name, pod.step.kind, error=code, message=message[:1000])


def _published(pod: Pod) -> StepSummary:
    playbook, digest, name = (str(pod.step.params.get(key) or "") for key in ("playbook", "digest", "name"))
    if not playbook or not digest or name != names.published_name(playbook, digest):
        raise BugError("publish was not told what to publish", where="COMBEE_STEP")
    store = open_store(pod.settings, pod.settings.store)
    try:
        artifact = store.get_blob(digest)
        gate = gate_scores(pod.step, store.get_blob, pod.spec.task.scored_by)
        findings_digest = pod.step.inputs.get("findings", "")
        findings = store.get_blob(findings_digest).decode() if findings_digest else ""
    except DamagedError as error:
        return _met_damage(pod, store, error)
    finally:
        store.close()
    shown = rendered(pod, artifact).shown
    handed_on = to_hand_on(pod, artifact)
    data = content(shown.text, handed_on, gate, method=pod.spec.method, components=shown.components)
    if findings:
        data[names.FINDINGS_KEY] = findings
    # A run that learned the same, perhaps from other rows, has other scores to show, and another name to hand
    # on; the first ones stay.
    made = config_map(pod, playbook, digest, name, data)
    ConfigMaps.of(pod).ensure(made, may_differ=(names.ARTIFACT_KEY, names.GATE_KEY, names.FINDINGS_KEY))
    return StepSummary(
        pod.step.name,
        pod.step.kind,
        outputs={"configMap": name, "digest": digest, **published_digests(data)},
        counts={"bytes": sum(len(text.encode()) for text in data.values())},
    )


def _met_damage(pod: Pod, store: Store, error: DamagedError) -> StepSummary:
    """Return what the operator has the damaged file made again by."""
    from combee.assembly.context import run_prefix
    from combee.pod.damage import mends, written_by

    left = asyncio.run(written_by(store, run_prefix(pod.name, pod.uid), error))
    return replace(failed(pod, error.code, f"{error}{mends(left)}"), outputs=left)


def rendered(pod: Pod, artifact: bytes) -> Rendered:
    """Return what a model would be shown, within the run's token budget."""
    from combee.methods.registry import method_of

    spec, method = pod.spec, method_of(pod.spec)
    budget_tokens = spec.method.render_token_budget
    return method.render(method.from_json(artifact), budget_tokens=budget_tokens, verify=spec.verify)


def to_hand_on(pod: Pod, artifact: bytes) -> bytes:
    """Return what of the artifact the next run may start from, without private or copied text. Empty where it
    cannot be had without."""
    from combee.methods.registry import method_of

    method, train = method_of(pod.spec), str(pod.step.params.get("train") or "")
    # Without its uid: the run applied once more publishes the same bytes, and so restores a version.
    return method.handed_on(method.from_json(artifact), rendered(pod, artifact), by=pod.name, train=train)


def gate_scores(step: Step, blob: Callable[[str], bytes], scored_by: str) -> str:
    """Return what evaluate found on gate, example by example, or cluster by cluster. With it any two versions
    scored on the same heldOut in the same way can be compared without asking a model again. It is empty where
    the run left nothing."""
    record, held_out = step.inputs.get("record", ""), str(step.params.get("heldOut") or "")
    if not record or not held_out:
        return ""
    return GateScores.paired(held_out, **gate_sides(record, blob), scored_by=scored_by).to_json()


def content(
    playbook: str,
    artifact: bytes,
    gate: str = "",
    *,
    method: Method,
    components: Sequence[tuple[str, str]] = (),
) -> dict[str, str]:
    """Return the ConfigMap's data: the playbook, whose text it is where that is not ACE's, and how much of it
    one question is shown where that is not all; then its components where it has several, its scores on gate
    and the artifact where they fit. ``artifact``: empty where it must not be read.

    Raises ArtifactTooLargeError when the playbook alone does not fit.
    """
    from combee.methods.registry import UNNAMED

    size = len(playbook.encode())
    if size > MAX_BYTES:
        raise ArtifactTooLargeError(
            f"the playbook has {size:,} bytes, a ConfigMap holds {MAX_BYTES:,}",
            where=method.budget_field,
            fix="Lower renderTokenBudget, or read the playbook from the store: it is kept there whole",
        )
    data = {names.PROMPT_KEY: playbook}
    if method.type != UNNAMED:
        data[names.METHOD_KEY] = method.type
    # What leaves nothing out is not said: it is the same version as one that a run without it learns.
    if method.retrieval is not None and estimate_tokens(playbook) > method.retrieval.tokens:
        data[names.RETRIEVAL_KEY] = json.dumps(method.retrieval.dump())
    parts = json.dumps(dict(components), ensure_ascii=False) if len(components) > 1 else ""
    for key, text in (
        (names.COMPONENTS_KEY, parts),
        (names.GATE_KEY, gate),
        (names.ARTIFACT_KEY, artifact.decode()),
    ):
        if text and size + len(text.encode()) <= MAX_BYTES:
            data[key] = text
            size += len(text.encode())
    return data


def config_map(pod: Pod, playbook: str, digest: str, name: str, data: dict[str, str]) -> dict[str, Any]:
    """Return the object to create. Its labels name no run, so that it is not taken for a run's child."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": pod.namespace,
            "labels": {
                names.LABEL_NAME: "combee",
                names.LABEL_MANAGED_BY: names.MANAGED_BY,
                names.LABEL_COMPONENT: "playbook",
                names.LABEL_PLAYBOOK: names.playbook_label(playbook),
            },
            "annotations": {
                names.DIGEST_ANNOTATION: digest,
                f"{names.API_GROUP}/learned-by": json.dumps(
                    {"run": pod.name, "uid": pod.uid}, separators=(",", ":")
                ),
            },
        },
        "immutable": True,
        "data": data,
    }
