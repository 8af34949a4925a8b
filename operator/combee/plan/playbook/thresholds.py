"""What a candidate is judged by, frozen when its tests begin: changing it afterwards starts them anew, visibly."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from combee.algo.canary import Rules
from combee.api.common import yaml_name
from combee.api.parts import Endpoint
from combee.api.playbook import Canary, PlaybookSpec
from combee.api.playbook_status import Thresholds

_LATER = ("evaluator", "asked")
"""what earlier operators did not record: a test that began under one of them goes on."""
_ASKED = {"Replay": "the requests or the upstream of the replay", "Prometheus": "what Prometheus is asked"}


def thresholds_of(spec: PlaybookSpec) -> Thresholds:
    """The thresholds that ``spec`` has now. How much traffic is looked at is none of them."""
    gate, canary = spec.held_out, spec.canary
    made = Thresholds(
        min_score=gate.min_score,
        min_gain=gate.min_gain,
        confidence=gate.confidence,
        **(
            {
                "mode": canary.mode,
                "epsilon": canary.epsilon,
                "min_samples": canary.min_samples,
                "duration_seconds": canary.duration_seconds,
                "deadline_seconds": canary.deadline_seconds,
                "max_latency_ratio": canary.max_latency_ratio,
                "evaluator": _evaluator(canary),
                "asked": _asked(spec, canary),
            }
            if canary is not None
            else {}
        ),
    )
    return made.model_copy(update={"digest": _digest(made, spec)})


def unchanged(before: Thresholds, spec: PlaybookSpec) -> bool:
    """Whether a test that was begun under ``before`` goes on under ``spec``."""
    now = thresholds_of(spec)
    if before.digest == now.digest:
        return True
    told = {name: getattr(before, name) for name in _LATER}
    same = not any(told.values()) or told == {name: getattr(now, name) for name in _LATER}
    return same and before.digest == _digest(now, spec, leave=_LATER)


def filled_in(before: Thresholds, now: Thresholds) -> Thresholds:
    """``before``, of a test that goes on, with what an earlier release did not record."""
    return before.model_copy(update={name: getattr(now, name) for name in _LATER})


def changes(before: Thresholds, after: Thresholds) -> str:
    """What differs, in words: ``epsilon 0.005 -> 0.01``; the digest of heldOut where nothing else does."""
    said = [
        f"{yaml_name(name)} {getattr(before, name)} -> {getattr(after, name)}"
        for name in Thresholds.model_fields
        if name not in ("digest", *_LATER) and getattr(before, name) != getattr(after, name)
    ]
    if before.evaluator and after.evaluator and before.evaluator != after.evaluator:
        said.append(f"evaluator {before.evaluator} -> {after.evaluator}")
    if before.mode == after.mode and before.asked and before.asked != after.asked:
        said.append(_ASKED[after.mode])
    return ", ".join(said) or "heldOut.digest"


def rules_of(thresholds: Thresholds) -> Rules:
    """The canary's rules."""
    return Rules(
        epsilon=thresholds.epsilon,
        min_samples=thresholds.min_samples,
        duration_seconds=thresholds.duration_seconds,
        deadline_seconds=thresholds.deadline_seconds,
        max_latency_ratio=thresholds.max_latency_ratio,
    )


def _digest(thresholds: Thresholds, spec: PlaybookSpec, *, leave: tuple[str, ...] = ()) -> str:
    told = {k: v for k, v in thresholds.dump().items() if k != "digest" and k not in leave}
    # Left out where there is none: the digest is then the one that earlier operators reckoned.
    told = {k: v for k, v in told.items() if v or k not in _LATER}
    named = {**told, "digest": "", "heldOut": spec.held_out.digest or ""}
    return hashlib.sha256(json.dumps(named, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _evaluator(canary: Canary) -> str:
    """Who judges, in words. Where its key lies makes no other judge."""
    judge: Endpoint | None = canary.evaluator if canary.mode in ("Shadow", "Replay") else None
    if judge is None:
        return ""
    revision = f" ({judge.revision})" if judge.revision else ""
    return f"{judge.model}{revision} at {judge.url}"


def _asked(spec: PlaybookSpec, canary: Canary) -> str:
    """Digest of what pairs are made of, Secrets aside."""
    told: dict[str, Any]
    if canary.mode == "Replay":
        upstream, requests = spec.delivery.gateway.upstream, canary.replay.requests
        told = {
            "upstream": upstream.url if upstream is not None else "",
            "requests": requests.model_dump(mode="json", exclude={"secret_ref"}) if requests else None,
        }
    elif canary.mode == "Prometheus" and canary.prometheus is not None:
        told = canary.prometheus.model_dump(mode="json", exclude={"token_secret_ref", "delay_seconds"})
    else:
        return ""
    text = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
