"""CEL rules of change: what of a started run, and of a PlaybookVersion, can never be changed again.

A run has started when its status has startTime. They compare field by field, so that the message
names the field; a field added later is frozen by itself.
"""

from __future__ import annotations

from combee.api.cel import CLUSTER
from combee.api.common import Rule
from combee.api.fields import fields_of
from combee.api.playbook import PlaybookVersion, VersionSpec
from combee.api.run import Budget, PromptLearningRun, RunSpec, Workers

FREE = ("suspend", "budget.*", "workers.parallelism")
"""what may be changed in a started run; a budget may only grow."""
_LIMITS = ("rollouts", "tokens", "gpuSeconds", "wallClockSeconds", "money")
_RUNNING = "has(oldSelf.status) && has(oldSelf.status.startTime)"


def _given(side: str, path: str) -> str:
    """Return whether a field is there; of those above it budget alone has no default, and may be absent."""
    above = path.rpartition(".")[0]
    field = f"has({side}.{path})"
    return f"(has({side}.{above}) && {field})" if above == "spec.budget" else field


def _same(path: str) -> str:
    new, old = _given("self", path), _given("oldSelf", path)
    return f"{new} == {old} && (!{new} || self.{path} == oldSelf.{path})"


def _frozen(path: str) -> Rule:
    return Rule(
        PromptLearningRun,
        f"!({_RUNNING}) || ({_same(f'spec.{path}')})",
        f"spec.{path} cannot be changed once the run has started: make a new run "
        f"(only suspend, a larger budget and workers.parallelism can)",
        CLUSTER,
        f".spec.{path}",
    )


def _grows(limit: str) -> Rule:
    path = f"spec.budget.{limit}"
    new, old = _given("self", path), _given("oldSelf", path)
    return Rule(
        PromptLearningRun,
        f"!({_RUNNING}) || !{new} || ({old} && self.{path} >= oldSelf.{path})",
        f"spec.budget.{limit} can only be raised or removed once the run has started",
        CLUSTER,
        f".spec.budget.{limit}",
    )


def _recorded(name: str) -> Rule:
    return Rule(
        PlaybookVersion,
        _same(f"spec.{name}"),
        f"spec.{name} of a PlaybookVersion never changes: only decision can",
        CLUSTER,
        f".spec.{name}",
    )


RULES: tuple[Rule, ...] = (
    *(_frozen(name) for name in fields_of(RunSpec) if name not in ("suspend", "budget", "workers")),
    *(_frozen(f"workers.{name}") for name in fields_of(Workers) if name != "parallelism"),
    *(_frozen(f"budget.{name}") for name in fields_of(Budget) if name not in _LIMITS),
    *(_grows(limit) for limit in _LIMITS),
    *(_recorded(name) for name in fields_of(VersionSpec) if name != "decision"),
)
