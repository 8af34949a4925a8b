"""What the plan layer and an executor tell each other: Step, StepSummary, IterationPlan, Snapshot, Outcome.

All of it is data. An ``IterationPlan`` holds parameters and a seed, never lists of ids: membership
and tree follow from it by pure functions, so that repeating it needs nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from combee.api.aggregation import Merge, Strategy
from combee.errors import BugError, UserError
from combee.jsonread import MALFORMED, finite, read_json
from combee.records import Diversity
from combee.steps import StepKind, kind_of
from combee.strategies import leaves_in_map

PLAN_VERSION = 6
"""Version 2 added ``trial``, 3 ``variants``, 4 ``diversity``, 5 ``scored_by`` and 6 ``reduce_shards``; a plan
is written as the oldest that holds it."""
SCORER_VERSION, DIVERSITY_VERSION, SEVERAL_TEXTS_VERSION, ONE_TEXT_VERSION = 5, 4, 3, 2
OLDEST_PLAN_VERSION = 1
"""A plan of version 1 says nothing of trials and is read as no trial."""
SUMMARY_VERSION = 1
EDIT = "edit."
"""What the names of ``scores`` begin with that are weights of kinds of edits."""
Scorer = Literal["evaluator", "proxy"]
"""The role that scores answers by a rubric."""
DAMAGED_FILE, WRITER = "damaged", "writer"
"""What the outputs of a step that met a damaged file name: the file, by its path in the store, and the step
that wrote it. The file is a parameter of the steps that are done again."""
STEP_LEFT = ".manifest.json"
"""How the path ends of the file in the store that says what a shard of a step left."""
_LOST = "lostTokens."
_GIVE_PLANS = "Give the folder `plans` of an earlier run"
MAX_SUMMARY_BYTES, POD_MESSAGE_BYTES = 2048, 12288
"""The most bytes of a summary; and what the API server keeps of all messages of a pod, in equal parts for its
containers (Kubernetes 1.34, ``normalizeStatus`` of the kubelet's status manager)."""


@dataclass(frozen=True, slots=True)
class IterationPlan:
    """The frozen decisions of one iteration, written before any of its work starts."""

    iteration: int
    epoch: int
    offset: int
    """the position of the batch's first example in the epoch's order."""
    batch_size: int
    batch_reason: str
    seed: int
    in_order: bool
    shards: int
    strategy: Strategy
    merge: Merge
    verify: Literal["Replay", "Support", "Off"]
    redundancy: Literal["Duplicate", "Retransmit"]
    copies: int
    max_rounds: int
    leaf_size: int
    max_fan_in: int
    max_input_tokens: int
    subgroups: str
    render_token_budget: int
    reflection_rounds: int
    evaluate: bool
    token_factor: float
    """how many tokens the server counts for each token we estimate; learned, frozen here."""
    trial: bool = False
    """whether its size was chosen to be measured."""
    variants: int = 1
    """the most texts of the artifact worked with side by side, each on its share of the batch."""
    diversity: Diversity | None = None
    """what keeps its proposals from being all alike; None where the manifest does not ask for it."""
    scored_by: Scorer = "evaluator"
    """who scores its map, replays and select by a rubric; without a rubric nobody is asked."""
    reduce_shards: int = 1
    """the pods that reduce it together."""
    version: int = PLAN_VERSION

    @property
    def least_temperature(self) -> float:
        """The least temperature of its proposer."""
        return self.diversity.temperature if self.diversity else 0.0

    @property
    def leaves_in_map(self) -> bool:
        """Whether the map makes the leaves."""
        return leaves_in_map(self.strategy, self.redundancy, self.leaf_size, self.subgroups)

    def pods(self, kind: StepKind) -> int:
        """Return how many pods do a step of a kind."""
        if kind.together:
            return self.reduce_shards
        return self.shards if kind.sharded else 1

    def to_json(self) -> bytes:
        """Return canonical bytes, of the oldest version that can hold the plan: equal plans, equal bytes."""
        body = asdict(self)
        for name, default, version in (
            ("reduce_shards", 1, SCORER_VERSION),
            ("scored_by", "evaluator", DIVERSITY_VERSION),
            ("diversity", None, SEVERAL_TEXTS_VERSION),
            ("variants", 1, ONE_TEXT_VERSION),
        ):
            if body[name] != default:
                break
            del body[name]
            body["version"] = version
        return (json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes, *, where: str) -> Self:
        """Read a plan of this version or an older one. Raises UserError naming ``where``."""
        try:
            version = read_json(data)["version"]
        except MALFORMED as error:
            raise UserError(f"not an iteration plan ({error})", where=where, fix=_GIVE_PLANS) from None
        if not isinstance(version, int) or not OLDEST_PLAN_VERSION <= version <= PLAN_VERSION:
            raise UserError(
                f"iteration plan of version {version}, this is version {PLAN_VERSION}",
                where=where,
                fix="Use the version of combee that wrote it",
            )
        try:
            plan: Self = _plan_type().validate_json(data, strict=True)
            return replace(plan, version=PLAN_VERSION)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise UserError(what, where=where, fix=_GIVE_PLANS) from None


@dataclass(frozen=True, slots=True)
class Clocks:
    """What the clocks showed when an iteration was planned, or learning stopped. It stands beside the plan
    and not in it: equal decisions have equal plans."""

    elapsed_seconds: float = 0.0
    """for how long the run had been active."""
    gpu_seconds: float = 0.0
    """seconds times GPUs that its engines had held."""

    def to_json(self) -> bytes:
        """Return the bytes of the file or the ConfigMap's key."""
        return (json.dumps(asdict(self), sort_keys=True) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes, *, where: str) -> Self:
        """Read them. Raises UserError naming ``where``."""
        try:
            return cls(**{name: finite(value) for name, value in read_json(data).items()})
        except MALFORMED as error:
            fix = "Take it from a copy of the folder"
            raise UserError(f"not what clocks showed ({error})", where=where, fix=fix) from None


@cache
def _plan_type() -> TypeAdapter[Any]:
    """Return an adapter that refuses wrong types, unknown and missing fields: a plan may be anybody's."""
    IterationPlan.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    return TypeAdapter(IterationPlan)


@dataclass(frozen=True, slots=True)
class Step:
    """A unit of work inside an iteration: one Job on a cluster, a few coroutines on a laptop."""

    name: str
    kind: str
    iteration: int
    seed: int
    shards: int = 1
    inputs: Mapping[str, str] = field(default_factory=dict)
    """the digests (or step names) of what it reads."""
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def results(self) -> int:
        """The number of results that it leaves: one of each shard, or one of all."""
        return self.shards if kind_of(self.kind).sharded else 1


@dataclass(frozen=True, slots=True)
class RoleUsage:
    """The model calls of one role. ``hits`` are those answered from the memo; ``calls`` includes them."""

    calls: int = 0
    hits: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    lost_tokens: int = 0
    """tokens of requests whose answers came to nothing: retried after a break, or raced."""

    def __add__(self, other: RoleUsage) -> RoleUsage:
        return RoleUsage(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens + self.lost_tokens


Usage = Mapping[str, RoleUsage]


def add_usage(*parts: Usage) -> dict[str, RoleUsage]:
    """Return the sum by role, with the roles sorted."""
    roles = sorted({role for part in parts for role in part})
    return {role: sum((part[role] for part in parts if role in part), RoleUsage()) for role in roles}


@dataclass(frozen=True, slots=True)
class StepSummary:
    """What the operator learns of a finished step; at most 2,048 bytes as JSON, less beside many sidecars."""

    step: str
    kind: str
    outputs: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    usage: Usage = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    observations: tuple[tuple[int, float], ...] = ()
    """(batch size, modelled seconds) pairs for the delay model."""
    error: str = ""
    """an error class's ``code``; empty when the step did its work."""
    message: str = ""
    version: int = SUMMARY_VERSION

    def encode(self, limit: int = MAX_SUMMARY_BYTES) -> bytes:
        """Return at most ``limit`` bytes: JSON behind its length and checksum, so that a cut message is
        noticed. What it says in words is cut; raises BugError where the rest is longer."""
        body = self.to_plain()
        body["usage"] = {role: list(numbers.values()) for role, numbers in body["usage"].items()}
        data = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        head = f"{len(data)} {hashlib.sha256(data).hexdigest()[:16]} ".encode()
        over = len(head) + len(data) - limit
        if over <= 0:
            return head + data
        if self.message:
            message = self.message.encode()[: -over - 8].decode(errors="ignore")
            return replace(self, message=message).encode(limit)
        raise BugError(f"step summary of {len(data)} bytes", where=self.step, fix=f"The limit is {limit}")

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """Return the summary, or None when missing, cut or damaged: the cheap ``finish`` then runs again."""
        try:
            length, checksum, body = data.split(b" ", 2)
            if int(length) != len(body) or hashlib.sha256(body).hexdigest()[:16] != checksum.decode():
                return None
            raw = json.loads(body)
            if raw["version"] not in (SUMMARY_VERSION, SUMMARY_VERSION - 1):
                return None
            return cls.from_plain(raw)
        except (*MALFORMED, RecursionError):
            return None

    def to_plain(self) -> dict[str, Any]:
        """Return plain JSON values that an earlier version reads too: it knows no lost tokens in usage, so
        they stand among the counts, which may be any."""
        body = asdict(self)
        lost = {_LOST + role: numbers.pop("lost_tokens") for role, numbers in body["usage"].items()}
        body["counts"] |= {name: tokens for name, tokens in lost.items() if tokens}
        return body

    @classmethod
    def from_plain(cls, raw: Mapping[str, Any]) -> Self:
        """Return the summary that ``to_plain``, ``encode`` or an earlier version of them wrote. Raises an
        error of MALFORMED for other data."""
        counts, usage = dict(raw["counts"]), {}
        for role, numbers in raw["usage"].items():
            used = RoleUsage(**numbers) if isinstance(numbers, dict) else RoleUsage(*numbers)
            usage[role] = replace(used, lost_tokens=counts.pop(_LOST + role, used.lost_tokens))
        observations = tuple((int(b), float(s)) for b, s in raw["observations"])
        return cls(**{**raw, "counts": counts, "usage": usage, "observations": observations})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was observed: finished steps by name, and frozen plans by iteration."""

    summaries: Mapping[str, StepSummary] = field(default_factory=dict)
    plans: Mapping[int, IterationPlan] = field(default_factory=dict)
    given_iterations: int | None = None
    """with ``--plans``: how many iterations the given plans hold; the run does exactly these."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    name: str
    """Learned | Unsure | NothingBetter | BudgetExhausted | Failed | Stopped"""
    reason: str


EXIT_CODES: Mapping[str, int] = {
    "Learned": 0,
    "NothingBetter": 3,
    "BudgetExhausted": 4,
    "Failed": 5,
    "Unsure": 6,
    "Stopped": 130,
}
