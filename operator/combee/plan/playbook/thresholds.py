"""What a candidate is judged by, frozen when its canary begins: a later change starts it anew."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from combee.algo.canary import Rules
from combee.algo.verdict import number
from combee.api.canary import Canary
from combee.api.common import yaml_name
from combee.api.parts import Endpoint
from combee.api.playbook import PlaybookSpec
from combee.api.playbook_status import Thresholds

_RULES = ("epsilon", "min_samples", "duration_seconds", "deadline_seconds", "max_latency_ratio")
_LATER = ("evaluator", "asked")
"""Fields that earlier operators did not record: a comparison that began under one of them goes on."""
_BY_TIME = ("Shadow", "Prometheus")
"""Modes whose pairs are live traffic; Replay asks as fast as it can, given requests in a hash's order."""
_SOURCES = {"Replay": "the requests or the upstream", "Prometheus": "what Prometheus is asked"}


def thresholds_of(spec: PlaybookSpec) -> Thresholds:
    """Return the thresholds that ``spec`` has now. The share of traffic looked at is not among them."""
    gate, canary = spec.held_out, spec.canary
    figures = {name: getattr(gate, name) for name in ("min_score", "min_gain", "confidence")}
    if canary is not None and canary.mode is not None:
        figures |= {name: getattr(canary, name) for name in ("mode", *_RULES)}
        evaluator = evaluator_of(canary) if canary.mode in ("Shadow", "Replay") else ""
        figures |= {"evaluator": evaluator, "asked": _sources(spec, canary)}
    thresholds = Thresholds(**figures)
    return thresholds.model_copy(update={"digest": _digest(thresholds, spec)})


def policy_of(spec: PlaybookSpec, thresholds: Thresholds) -> str:
    """Return in words what lets a version become active: who promotes it, what heldOut and the canary must
    show."""
    least = "" if thresholds.min_score is None else f"minScore {number(thresholds.min_score)}, "
    gate = f"heldOut {least}minGain {number(thresholds.min_gain)}, confidence {number(thresholds.confidence)}"
    canary = "no canary"
    if spec.canary is not None and spec.canary.waived is not None:
        canary = f"canary waived: {spec.canary.waived}"
    elif thresholds.mode:
        bounds = f"epsilon {number(thresholds.epsilon)}, minSamples {thresholds.min_samples}"
        spans = f"{thresholds.duration_seconds} s, at most {thresholds.deadline_seconds} s"
        canary = f"canary {thresholds.mode}: {bounds}, {spans}"
    return f"{spec.version.policy}; {gate}; {canary}"


def unchanged(before: Thresholds, spec: PlaybookSpec) -> bool:
    """Return whether a comparison that was begun under ``before`` goes on under ``spec``."""
    now = thresholds_of(spec)
    if before.digest == now.digest:
        return True
    recorded = {name: getattr(before, name) for name in _LATER}
    same = not any(recorded.values()) or recorded == {name: getattr(now, name) for name in _LATER}
    return same and before.digest == _digest(now, spec, leave=_LATER)


def filled_in(before: Thresholds, now: Thresholds) -> Thresholds:
    """Return ``before``, of a comparison that goes on, with what an earlier release did not record."""
    return before.model_copy(update={name: getattr(now, name) for name in _LATER})


def changes(before: Thresholds, after: Thresholds) -> str:
    """Return what differs, as ``epsilon 0.005 -> 0.01``; where nothing else does, it is heldOut's digest."""
    texts = [
        f"{yaml_name(name)} {getattr(before, name)} -> {getattr(after, name)}"
        for name in Thresholds.model_fields
        if name not in ("digest", *_LATER) and getattr(before, name) != getattr(after, name)
    ]
    if before.evaluator and after.evaluator and before.evaluator != after.evaluator:
        texts.append(f"evaluator {before.evaluator} -> {after.evaluator}")
    if before.mode == after.mode and before.asked and before.asked != after.asked:
        texts.append(_SOURCES[after.mode])
    return ", ".join(texts) or "heldOut.digest"


def rules_of(thresholds: Thresholds) -> Rules:
    """Return the rules of a comparison under ``thresholds``."""
    figures = {name: getattr(thresholds, name) for name in _RULES}
    return Rules(**figures, by_time=thresholds.mode in _BY_TIME)


def _digest(thresholds: Thresholds, spec: PlaybookSpec, *, leave: tuple[str, ...] = ()) -> str:
    # A later field is left out where it is empty: the digest is then the one that earlier operators computed.
    figures = {k: v for k, v in thresholds.dump().items() if k not in leave and (v or k not in _LATER)}
    figures |= {"digest": "", "heldOut": spec.held_out.digest or ""}
    return hashlib.sha256(json.dumps(figures, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def evaluator_of(canary: Canary) -> str:
    """Return who judges, in words. It is the same judge wherever its key lies."""
    evaluator: Endpoint | None = canary.evaluator
    if evaluator is None:
        return ""
    revision = f" ({evaluator.revision})" if evaluator.revision else ""
    return f"{evaluator.model}{revision} at {evaluator.url}"


def _sources(spec: PlaybookSpec, canary: Canary) -> str:
    """Return a digest of what pairs are made of, Secrets aside."""
    identity: dict[str, Any]
    if canary.mode == "Replay":
        upstream, requests = spec.delivery.gateway.upstream, canary.replay.requests
        identity = {
            "upstream": upstream.url if upstream is not None else "",
            "requests": requests.model_dump(mode="json", exclude={"secret_ref"}) if requests else None,
        }
    elif canary.mode == "Prometheus" and canary.prometheus is not None:
        identity = canary.prometheus.model_dump(mode="json", exclude={"token_secret_ref", "delay_seconds"})
        for later in ("label_delay_seconds", "cost"):
            if not identity[later]:
                del identity[later]  # the digest is then the one that earlier operators computed
    else:
        return ""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
