"""Makes what tests of ``decide_playbook`` need: a world of versions to which plans are applied tick by
tick."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from combee.algo.tally import LeftOut, Pair
from combee.api.playbook import PlaybookSpec, VersionSpec
from combee.api.playbook_status import PlaybookStatus, VersionStatus
from combee.methods.findings import Finding
from combee.plan.cluster.hardware import EngineGpus
from combee.plan.gatescores import GateScores
from combee.plan.playbook.decide import decide_playbook
from combee.plan.playbook.readings import Reading
from combee.plan.playbook.trail import FiledLine, filed
from combee.plan.playbook.types import About, PlaybookPlan, PlaybookSeen, RunSeen, VersionSeen

NOW = 1_800_000_000.0
HELD_OUT = "e" * 64
CANARY: dict[str, Any] = {
    "mode": "Shadow",
    "durationSeconds": 60,
    "deadlineSeconds": 3600,
    "minSamples": 20,
    "epsilon": 0.05,
    "watchSeconds": 0,
    "evaluator": {"url": "http://judge/v1", "model": "judge"},
}
MIX = (math.sqrt(5) - 1) / 2
"""Its multiples modulo 1 fill the unit interval evenly, in any stretch of them."""
WAIVED: dict[str, Any] = {"waived": "a test of the other gates"}
GATEWAY: dict[str, Any] = {"gateway": {"enabled": True, "upstream": {"url": "http://llm/v1"}}}


def digest_of(name: str) -> str:
    """``a`` -> 64 digits that begin with it."""
    return (name + "0" * 64)[:64]


def when(seconds: float) -> str:
    return f"t{seconds:.0f}" if seconds else ""


def gate(better: float, *, rows: int = 200, held_out: str = HELD_OUT, base: float = 0.5) -> GateScores:
    """Scores of a version that is ``better`` than what it was learned from, which scored ``base``."""
    right, more = int(rows * base), round(rows * (base + better))
    return GateScores(
        held_out,
        {f"x{i}": float(i < right) for i in range(rows)},
        {f"x{i}": float(i < more) for i in range(rows)},
    )


@dataclass
class World:
    """Versions, statuses and what is delivered; ``tick`` decides and writes the plan. Its canary is waived,
    and its failureCost Low, unless ``spec`` says something else."""

    spec: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, VersionSeen] = field(default_factory=dict)
    status: PlaybookStatus = field(default_factory=PlaybookStatus)
    delivered: str | None = None
    runs: dict[str, RunSeen] = field(default_factory=dict)
    pairs: dict[str, tuple[Pair, ...]] = field(default_factory=dict)
    left_out: dict[str, tuple[LeftOut, ...]] = field(default_factory=dict)
    readings: dict[str, tuple[Reading, ...]] = field(default_factory=dict)
    not_judged: dict[str, str] = field(default_factory=dict)
    now: float = NOW
    generation: int = 1
    learn_request: str = ""
    unreadable: str = ""
    blocked: str = ""
    allow_waived: bool = True
    discipline: Any = "Advisory"
    nodes: EngineGpus = field(default_factory=EngineGpus)
    data_marks: dict[str, str] = field(default_factory=dict)
    lines: dict[int, FiledLine] = field(default_factory=dict)
    """what is in ConfigMaps of the history."""
    reread: bool = False
    """whether they are read, although the status says where they end."""

    def add(
        self,
        name: str,
        *,
        parent: str = "",
        better: float | None = 0.2,
        scores: GateScores | None = None,
        findings: Iterable[Finding] | None = (),
        **about: Any,
    ) -> World:
        """A version made now, of digest ``name``."""
        digest = digest_of(name)
        spec = VersionSpec.model_validate(
            {
                "playbookRef": {"name": "formula"},
                "digest": digest,
                "configMapName": f"formula-{digest[:12]}",
                **({"parentDigest": digest_of(parent)} if parent else {}),
                **about,
            }
        )
        measured = scores if scores is not None else None if better is None else gate(better)
        self.versions[name] = VersionSeen(
            name=f"formula-{digest[:12]}",
            generation=1,
            created=f"{len(self.versions):04d}",
            spec=spec,
            status=VersionStatus(),
            gate=measured,
            findings=None if findings is None else tuple(findings),
        )
        return self

    def decide(self, name: str, decision: str) -> World:
        """Somebody sets the decision of a version."""
        version = self.versions[name]
        spec = version.spec.model_copy(update={"decision": decision})
        self.versions[name] = replace(version, spec=spec, generation=version.generation + 1)
        return self

    def change(self, **spec: Any) -> World:
        """Somebody changes the Playbook's spec."""
        self.spec = {**self.spec, **spec}
        self.generation += 1
        return self

    def change_version(self, name: str, **changed: Any) -> World:
        self.versions[name] = replace(self.versions[name], **changed)
        return self

    def plan(self) -> PlaybookPlan:
        """What is decided now; nothing is written."""
        usual = {"failureCost": "Low", "canary": WAIVED, "delivery": GATEWAY}
        spec = PlaybookSpec.model_validate({**usual, **self.spec})
        texts = self.learn_request, self.unreadable
        here = {"allow_waived": self.allow_waived, "discipline": self.discipline, "nodes": self.nodes}
        about = About("formula", self.generation, spec, when, *texts, **here)
        seen = PlaybookSeen(
            now=self.now,
            versions=tuple(self.versions.values()),
            runs=tuple(self.runs.values()),
            delivered=self.delivered,
            pairs=self.pairs,
            left_out=self.left_out,
            readings=self.readings,
            not_judged=self.not_judged,
            blocked=self.blocked,
            data_marks=self.data_marks,
            trail=tuple(self.lines.values()) if self.reread or self.lines_are_needed else None,
            filed=max(self.lines, default=0),
        )
        return decide_playbook(about, self.status, seen)

    def write(self, plan: PlaybookPlan) -> None:
        """Make the plan true."""
        self.status = PlaybookStatus.model_validate(plan.status.dump())
        self.file()
        for key, version in list(self.versions.items()):
            if version.name in plan.prune_versions:
                del self.versions[key]
                continue
            self.versions[key] = replace(
                version, status=VersionStatus.model_validate(plan.versions[version.name].dump())
            )
        self.delivered = plan.deliver.digest
        for wish in plan.runs:
            self.runs[wish.name] = RunSeen(wish.name, f"{len(self.runs):04d}", over=False)
        for name in plan.prune_runs:
            del self.runs[name]

    @property
    def lines_are_needed(self) -> bool:
        """Whether the operator reads the lines for the next decision."""
        statuses = [version.status for version in self.versions.values()]
        unknown = any(one.conditions and not one.state.get("noted") for one in statuses)
        return self.status.trail is None or unknown

    def file(self) -> None:
        """Write the pending lines of the history. None is ever written over."""
        assert self.status.trail is not None
        for line in map(filed, self.status.trail.pending):
            assert self.lines.setdefault(line.number, line) == line

    def tick(self, seconds: float = 1.0) -> PlaybookPlan:
        """Decide and write, a while later."""
        self.now += seconds
        plan = self.plan()
        self.write(plan)
        return plan

    def settle(self) -> World:
        """Tick until nothing changes."""
        for _ in range(10):
            before = self.status
            plan = self.tick(0)
            if self.status == before and not plan.events:
                return self
        raise AssertionError("it does not settle")

    def judged(
        self,
        name: str,
        differences: Iterable[float],
        *,
        latency: float | None = None,
        cost: float | None = None,
        within: tuple[float, float] | None = None,
    ) -> World:
        """Pairs of the test of a version come in, numbered on from those before. They were asked ``within``
        two times, mixed well: in the canary's shortest time where that is not given."""
        test, thresholds = self.versions[name].status.test, self.versions[name].status.thresholds
        assert test is not None and thresholds is not None, "no test is under way"
        before = self.pairs.get(test.id, ())
        since = float(test.since[1:])
        first, last = within or (since, since + thresholds.duration_seconds)
        new = tuple(
            Pair(
                "gateway-0",
                len(before) + i,
                difference,
                latency,
                time=first + (last - first) * (MIX * i % 1),
                cost_ratio=cost,
            )
            for i, difference in enumerate(differences)
        )
        self.pairs[test.id] = (*before, *new)
        return self

    @property
    def active(self) -> str:
        """The name of the active version."""
        return self.named(self.status.active_digest)

    @property
    def phases(self) -> Mapping[str, str]:
        return {name: str(version.status.phase) for name, version in self.versions.items()}

    def named(self, digest: str) -> str:
        return next((name for name in self.versions if digest_of(name) == digest), "")

    def why(self, type_: str, name: str | None = None) -> tuple[str, str]:
        """Status and reason of a condition, of the Playbook or of a version."""
        of = self.status.conditions if name is None else self.versions[name].status.conditions
        return next((c.status, c.reason) for c in of if c.type == type_)

    def says(self, type_: str, name: str | None = None) -> str:
        of = self.status.conditions if name is None else self.versions[name].status.conditions
        return next(c.message for c in of if c.type == type_)
