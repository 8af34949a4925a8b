"""The desk of a step's pod: where pods of the user's image fetch what is to be rolled out."""

from __future__ import annotations

from combee.api.texts import in_bytes
from combee.assembly.context import Share
from combee.assembly.rollouts import Place
from combee.clients.sandbox.desk import RolloutDesk
from combee.objects.rollout_layout import PORT
from combee.objects.rollouts import rollout_token
from combee.pod.environment import Pod


def desk(pod: Pod, share: Share) -> Place | None:
    """The desk of this pod and its part of the run's rollouts at once; None where its step has none."""
    container = pod.spec.task.container
    if container is None or not pod.settings.address:
        return None
    made = RolloutDesk(rollout_token(pod.uid), container.timeout_seconds, in_bytes(container.scratch))
    return Place(made, pod.settings.address, PORT, made.routes, share.of(container.concurrency))
