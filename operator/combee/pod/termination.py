"""What pods do with their result, and how they come to their store and their keys."""

from __future__ import annotations

from collections.abc import Mapping

from combee.api.common import SecretKeyRef, uri_scheme
from combee.assembly.endpoints import checked_key
from combee.clients.store.s3 import s3_options
from combee.clients.store.store import Store
from combee.errors import BugError, CombeeError, TransientError, UnreachableError, UserError
from combee.plan.types import StepSummary
from combee.pod.environment import SECRETS_FOLDER, TERMINATION_LOG, Pod, read_secret
from combee.pod.log import PodLog
from combee.settings import JudgeSettings, SweepSettings, WorkerSettings


def permanent(error: CombeeError) -> bool:
    """Whether another pod would meet the same error: then it is the step's result."""
    return not isinstance(error, TransientError | BugError | UnreachableError)


def tell(pod: Pod, summary: StepSummary, log: PodLog) -> None:
    """Write a summary as the pod's termination message, where the kubelet reads it."""
    try:
        pod.settings.path(TERMINATION_LOG).write_bytes(summary.encode())
    except OSError as error:
        log.say("WARNING", f"the termination message cannot be written ({error.strerror})")


def open_store(settings: WorkerSettings | JudgeSettings | SweepSettings, place: str) -> Store:
    """The store at an address or in a folder. StoreError, or UserError naming a key that its Secret lacks."""
    if place.startswith("/"):
        return Store.open(str(settings.path(place)))
    secret = read_secret(settings.path(f"{SECRETS_FOLDER}/store"))
    return Store.open(place, options=s3_options(secret) if uri_scheme(place) == "s3" else None)


def secret_key(values: Mapping[str, str] | None, ref: SecretKeyRef, where: str) -> str:
    """The key that a mounted Secret holds. UserError, without the value, when it is none."""
    shown, fix = f"{ref.key} of the Secret {ref.name}", "Put the key alone into it"
    key = ((values or {}).get(ref.key) or "").strip()
    if not key:
        raise UserError(f"{shown} is empty", where=where, fix=fix)
    return checked_key(key, shown=shown, where=where, fix=fix)
