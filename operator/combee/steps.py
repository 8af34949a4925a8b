"""The kinds of step, one row each, in the order in which a run does them. The only place that lists them.

To add a kind: a row here, its work under ``work/`` with a line in ``work/steps.py``, and, unless it belongs
to an iteration, the moment at which ``plan/`` asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Data = Literal["train", "heldOut", "test", "initialPlaybook"]
Role = Literal["task", "proposer", "evaluator", "proxy", "referee", "embedder"]
Phase = Literal["", "Profiling", "Learning", "Evaluating", "Publishing"]


@dataclass(frozen=True, slots=True)
class Result:
    """What the summary of a step that did its work holds, because what follows reads it."""

    outputs: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()
    not_zero: tuple[str, ...] = ()
    """counts that are over 0."""


@dataclass(frozen=True, slots=True)
class StepKind:
    """One kind of step. Its data and roles say what it mounts: no step sees more than its row says."""

    name: str
    phase: Phase = ""
    """the phase of a run that asks for it; those of phase Learning are done in every iteration."""
    opens: bool = False
    """nothing comes before it: it accepts the data and makes the artifact that the run starts from."""
    sums_up: bool = False
    """the last of an iteration, which rolls up what the others spent."""
    looks_at_gate: bool = False
    """it compares the best artifact with the untouched one, whose digest it is given."""
    part: str = ""
    """what tables call the whole of it; empty: its stages speak for themselves."""
    data: tuple[Data, ...] = ()
    """splits that its pods mount, with their credentials."""
    roles: tuple[Role, ...] = ()
    """models that it asks, with their keys."""
    waits_for: tuple[str, ...] = ()
    """steps of the same iteration whose results it reads."""
    sharded: bool = False
    """many pods do it, each a shard, and leave their results in the store."""
    together: bool = False
    """several pods may do it, all of it: they divide its calls, and the first that is through leaves the
    result."""
    writes_store: bool = True
    command: str = "step"
    """what ``combee-worker`` is told to do."""
    own_account: bool = False
    """its pods hold the token of an account of their own, and run no code but the product's."""
    result: Result = Result()

    @property
    def planned(self) -> bool:
        """Whether it reads the frozen plan of an iteration."""
        return self.phase == "Learning"

    @property
    def asks_models(self) -> bool:
        """Whether it needs engines, spends of the budget and is charged for it."""
        return bool(self.roles)

    @property
    def rolls_out(self) -> bool:
        """Whether it does rollouts."""
        return "task" in self.roles


# Sees that the embedder embeds, whether the evaluator is calibrated and whether its proxy scores, before
# anything is learned.
PROFILE = StepKind(
    "profile",
    "Profiling",
    opens=True,
    part="profile",
    data=("train", "heldOut", "test", "initialPlaybook"),
    roles=("task", "evaluator", "proxy", "referee", "embedder"),
    result=Result(("artifact",), ("train", "select", "gate"), ("select",), not_zero=("train",)),
)
# Learns serially from a sample before anything is learned in parallel: train teaches, select scores.
DIAGNOSE = StepKind(
    "diagnose",
    "Profiling",
    part="diagnosis",
    data=("train", "heldOut"),
    roles=("task", "proposer", "evaluator", "proxy"),
    result=Result(
        ("verdict", "diagnosis"),
        ("at", "scored", "headroomRows", "headroomWrong", "headroomTried", "headroomOwn", "headroomOther"),
        ("start", "level", "low", "high", "gainLow"),
    ),
)
# Learns from train, and so must not be able to look at what it will be judged by.
MAP = StepKind(
    "map", "Learning", data=("train",), roles=("task", "proposer", "evaluator", "proxy"), sharded=True
)
# Aggregates what the map left, and sees no rows.
REDUCE = StepKind("reduce", "Learning", roles=("proposer", "embedder"), waits_for=("map",), together=True)
# Replays entries on train rows, then scores the artifact on heldOut.
FINISH = StepKind(
    "finish",
    "Learning",
    sums_up=True,
    data=("train", "heldOut"),
    roles=("task", "evaluator", "proxy"),
    waits_for=("map", "reduce"),
    result=Result(("artifact",)),
)
# The one look at the gate and test rows.
EVALUATE = StepKind(
    "evaluate",
    "Evaluating",
    looks_at_gate=True,
    part="gate",
    data=("heldOut", "test"),
    roles=("task", "evaluator"),
    result=Result(
        counts=("gateRows", "gateDiscordant"), scores=("gateBaseline", "gateBest", "gateLow", "gateHigh")
    ),
)
# Copies the artifact into a ConfigMap with its account's token: it sees no data and no model.
PUBLISH = StepKind(
    "publish",
    "Publishing",
    writes_store=False,
    command="publish",
    own_account=True,
    result=Result(("configMap",)),
)

KINDS: Mapping[str, StepKind] = {
    kind.name: kind for kind in (PROFILE, DIAGNOSE, MAP, REDUCE, FINISH, EVALUATE, PUBLISH)
}
ITERATION: tuple[StepKind, ...] = tuple(kind for kind in KINDS.values() if kind.planned)
"""The steps of an iteration."""
LEADING: tuple[str, ...] = tuple(kind.name for kind in ITERATION if not kind.sums_up)
"""The steps of an iteration before the one that sums it up."""
*_MOST, _LAST = (kind.name for kind in KINDS.values() if kind.command == "step")
WORK = f"{', '.join(_MOST)} or {_LAST}"
"""The kinds that ``combee-worker step`` does, as a text names them."""


def roles_ahead(kind: StepKind) -> frozenset[Role]:
    """Return the models that a step of this kind, or one that may follow it, asks. Those of an iteration come
    again and again.

    >>> "referee" in roles_ahead(PROFILE), "referee" in roles_ahead(DIAGNOSE), sorted(roles_ahead(EVALUATE))
    (True, False, ['evaluator', 'task'])
    """
    first = order_of(ITERATION[0].name) if kind.planned else order_of(kind.name)
    return frozenset(role for later in list(KINDS.values())[first:] for role in later.roles)


def kind_of(name: str) -> StepKind:
    """Return the kind of that name; a name that this version does not know is a kind that uses nothing."""
    return KINDS.get(name) or StepKind(name)


def order_of(name: str) -> int:
    """Return the kind's place among the kinds; an unknown one comes last.

    >>> sorted(["evaluate", "reduce", "map"], key=order_of)
    ['map', 'reduce', 'evaluate']
    """
    return list(KINDS).index(name) if name in KINDS else len(KINDS)


def turn_of(name: str, iteration: int) -> tuple[int, int, int]:
    """Return a key that sorts the steps of a whole run: phase, iteration and kind."""
    return get_args(Phase).index(kind_of(name).phase), iteration, order_of(name)
