"""What a step works with, and where it leaves its results."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, TypeVar

from combee.algo.energy import Reading
from combee.algo.membership import split_select_gate
from combee.api.run import RunSpec
from combee.clients.model.chat import ChatClient
from combee.clients.model.memo import Memo
from combee.clients.model.wire import Budget, OnCall
from combee.clients.store.store import RESTORE, Store
from combee.errors import DamagedError, StoreError
from combee.jsonread import MALFORMED, read_json
from combee.methods.base import Method
from combee.methods.protocol import Rendered
from combee.plan.types import IterationPlan, Scorer, StepSummary
from combee.records import Example, Shown
from combee.tasks.clusters import clusters_of
from combee.tasks.dataset import Dataset
from combee.tasks.protocol import Task
from combee.tasks.traces import Recording
from combee.work.asker import Asker

Row = TypeVar("Row")


class Progress(Protocol):
    """Listens to what a step is doing; it must not raise and must not block."""

    def begin(self, stage: str, total: int) -> None:
        """Start a stage of ``total`` units."""

    def advance(self, units: int = 1) -> None:
        """Count ``units`` more of the current stage as done."""

    def note(self, text: str) -> None:
        """Say something that a person should know; it holds no prompt and no data."""


class Data(Protocol):
    """The run's splits, each read when first asked for. Map and reduce never ask for heldOut."""

    async def train(self) -> Dataset:
        """Return the rows to learn from."""

    async def held_out(self) -> Dataset | None:
        """Return the rows to select and gate on; None where nothing is rolled out."""

    async def test(self) -> Dataset | None:
        """Return the rows that are scored once, at the very end; None where there are none."""


class Runner(Protocol):
    """Rolls out an example where a rollout is more than one call of the task model."""

    async def run(
        self,
        asker: Asker,
        example: Example,
        shown: Shown,
        *,
        stage: str,
        chain: int,
        ordinal: int,
        reflected: bool = False,
        least_temperature: float = 0.0,
    ) -> Recording:
        """Return what was done with the artifact; the call graph has it as one call of the task model. Raises
        ``LOSSES`` for what only concerns this example. ``ordinal`` numbers repeats of the same rollout;
        ``reflected``: whether it will be reflected on, and not only scored. ``least_temperature`` is that
        of the calls that name none."""
        ...


@dataclass(frozen=True, slots=True)
class Accounts:
    """Where a run's calls and rollouts are stored, counted and charged."""

    store: Store
    prefix: str
    """the run's folder in the store, ``runs/<name>-<uid8>``."""
    on_call: OnCall
    budget: Budget
    progress: Progress
    memo: Memo
    """what remembers the answers: the store's, or that of a run that is done again."""


@dataclass(frozen=True, slots=True)
class WorkContext:
    """Everything a step may touch. ``concurrency`` is this process's share of the run's slots."""

    spec: RunSpec
    prefix: str
    """the run's folder in the store, ``runs/<name>-<uid8>``."""
    store: Store
    clients: Mapping[str, ChatClient]
    task: Task
    method: Method[Any]
    data: Data
    concurrency: int
    slots: int
    """the slots of the whole run, on which modelled time is computed."""
    clock: Callable[[], float]
    progress: Progress
    initial_playbook: str = ""
    runner: Runner | None = None
    """what makes rollouts; None where a rollout is one call of the task model."""
    energy: Callable[[], Awaitable[Reading]] | None = None
    """what reads the GPUs' counters; None where the run names none. It raises UnreadableError."""
    memo: Memo | None = None
    """what remembers the outcomes of tests of programs; None where none is let in."""
    before: StepSummary | None = None
    """what the shard left, where it is done again because a file of it is damaged; None for any other."""
    cache: dict[str, Any] = field(default_factory=dict)
    """values that are costly to derive and the same for every step of this process."""

    def asker(self, plan: IterationPlan | None = None, *, scored_by: Scorer = "evaluator") -> Asker:
        """Return an asker with an empty call graph. The plan of an iteration knows how the server counts, and
        who scores; ``scored_by`` says it where there is none."""
        samplings = {role: model.sampling for role, model in self.spec.roles().items()}
        if plan is None:
            return Asker(self.clients, samplings, scored_by=scored_by)
        return Asker(self.clients, samplings, plan.token_factor, plan.scored_by)

    def rendered(self, artifact: Any) -> Rendered:
        """Return what a model is shown of an artifact, within the run's token budget."""
        budget_tokens = self.spec.method.render_token_budget
        return self.method.render(artifact, budget_tokens=budget_tokens, verify=self.spec.verify)

    def shown_for(self, shown: Shown, example: Example) -> Shown:
        """Return the part of an artifact that an agent is shown for one example, mostly all of it."""
        if (retrieval := self.spec.method.retrieval) is None:
            return shown
        chosen = self.method.choosing(shown.text, retrieval)
        return replace(shown, text=chosen(self.task.model_input(example)))


async def held_out_split(context: WorkContext) -> tuple[list[Example], list[Example]]:
    """Return heldOut's halves: select chooses, gate decides, neither teaches. Without heldOut both are empty.

    They are a pure function of the data's digest and its ids.
    """
    data = await context.data.held_out()
    if data is None:
        return [], []
    by_id = {example.id: example for example in data.examples}
    select, gate = split_select_gate(list(by_id), data.digest, clusters_of(data))
    return [by_id[example_id] for example_id in select], [by_id[example_id] for example_id in gate]


def receipt_path(context: WorkContext | Accounts, step: str, shard: int = 0) -> str:
    """Return the path of a shard's receipt, which is the last thing it writes."""
    return f"{context.prefix}/steps/{step}/{shard:05d}.manifest.json"


def served_path(prefix: str, role: str) -> str:
    """Return the path of what the server of a role said of itself to a run's pods."""
    return f"{prefix}/models/{role}.json"


async def read_receipt(context: WorkContext | Accounts, step: str, shard: int = 0) -> StepSummary | None:
    """Return a shard's receipt, or None when the shard is not finished. A damaged one counts as missing."""
    path = receipt_path(context, step, shard)
    data = await context.store.aget(path)
    return None if data is None else decoded_receipt(data, path)


async def done_before(context: WorkContext, step: str, shard: int) -> StepSummary | None:
    """Return the receipt of a shard that need not be done: None, too, where it is done again."""
    return None if context.before is not None else await read_receipt(context, step, shard)


async def context_tokens(store: Store, prefix: str, role: str) -> int | None:
    """Return the length of a model's context, which a cluster's pods note and obey."""
    path = served_path(prefix, role)
    data = await store.aget(path)
    try:
        tokens = read_json(data).get("contextTokens") if data else None
        return int(tokens) if tokens else None
    except (ValueError, AttributeError, TypeError):
        where = f"{store.uri}/{path}"
        raise DamagedError("what the server said is damaged", where=where, fix=RESTORE) from None


OBSERVED = frozenset({"calls", "record"})
"""Outputs that hold what clocks and servers were seen to do: a step that is done again leaves others."""
_CHECKSUM, _SHA256 = "receipt", "sha256:"
"""The checksum's name among a receipt's outputs, where earlier versions let it stand."""


def encoded_receipt(summary: StepSummary, path: str) -> bytes:
    """Return the bytes of the receipt at ``path``, with its checksum."""
    plain = summary.to_plain()
    plain["outputs"] = {**plain["outputs"], _CHECKSUM: _checksum(plain, path)}
    return json.dumps(plain, indent=1, sort_keys=True, ensure_ascii=False).encode()


def decoded_receipt(data: bytes, path: str) -> StepSummary | None:
    """Return the summary in the receipt at ``path``, or None for one that is damaged or that was written for
    another step or shard. An earlier version's has no checksum."""
    try:
        plain = json.loads(data)
        outputs = plain["outputs"]
        # Known by either: a damaged name of it must not make it one of the outputs.
        stated = [name for name, one in outputs.items() if name == _CHECKSUM or one.startswith(_SHA256)]
        if stated and outputs.pop(stated[0]) != _checksum(plain, path):
            return None
        summary = StepSummary.from_plain(plain)
        return summary if summary.step == _place(path)[0] else None
    except (*MALFORMED, RecursionError):
        return None


def _checksum(plain: Mapping[str, Any], path: str) -> str:
    data = json.dumps([*_place(path), plain], sort_keys=True).encode()
    return _SHA256 + hashlib.sha256(data).hexdigest()[:16]


def _place(path: str) -> list[str]:
    """Return the step and the file of a receipt: in another's place it is none."""
    return path.split("/")[-2:]


async def write_receipt(context: WorkContext, summary: StepSummary, shard: int = 0) -> StepSummary:
    """Write a shard's receipt and return the one that counts: the first that was written, unless it is
    damaged, or its step is done again. Raises StoreError where anything else than before came out."""
    path = receipt_path(context, summary.step, shard)
    if context.before is not None:
        summary = _as_before(context.before, summary)
        await context.store.aput(path, encoded_receipt(summary, path))
        return summary
    data = encoded_receipt(summary, path)
    if await context.store.aput_new(path, data):
        return summary
    written = await read_receipt(context, summary.step, shard)
    if written is None:
        await context.store.aput(path, data)
    return written or summary


def _as_before(before: StepSummary, made: StepSummary) -> StepSummary:
    """Return what a step left before with the files that are there now. What it asked is charged already."""
    if before.error or made.error:
        return made
    compared = before.outputs.keys() - OBSERVED
    if other := sorted(name for name in compared if made.outputs.get(name) != before.outputs[name]):
        raise StoreError(f"{other[0]} of {before.step} comes out otherwise")
    return replace(before, outputs={**before.outputs, **made.outputs})


async def require_receipts(context: WorkContext, step: str, shards: int) -> list[StepSummary]:
    """Return the receipts of all shards of a finished step. Raises DamagedError when one is missing."""
    receipts = await asyncio.gather(*(read_receipt(context, step, shard) for shard in range(shards)))
    missing = next((shard for shard, receipt in enumerate(receipts) if receipt is None), None)
    if missing is not None:
        where = f"{context.store.uri}/{receipt_path(context, step, missing)}"
        raise DamagedError("the receipt of a finished step is damaged or missing", where=where, fix=RESTORE)
    return [receipt for receipt in receipts if receipt is not None]


def line_of(row: Any) -> bytes:
    """Return a dataclass as one line of JSON with its sets sorted. An empty ``variant`` is left out."""
    return json_line(asdict(row))


def json_line(fields: dict[str, Any]) -> bytes:
    """Return the fields of a dataclass as such a line."""
    if not fields.get("variant"):
        fields.pop("variant", None)
    return (json.dumps(fields, sort_keys=True, ensure_ascii=False, default=sorted) + "\n").encode()


async def put_json(context: WorkContext, value: Any) -> str:
    """Store a value as JSON and return its digest."""
    return await context.store.aput_blob(json.dumps(value, sort_keys=True).encode())


async def put_lines(context: WorkContext, lines: Iterable[bytes]) -> str:
    """Store lines of ``line_of`` as one blob and return its digest."""
    return await context.store.aput_blob(b"".join(lines))


async def get_lines(context: WorkContext, digest: str, make: Callable[[dict[str, Any]], Row]) -> list[Row]:
    """Return ``make`` of each row of a blob of JSON lines; what it drops is held for one row at a time."""
    data = await context.store.aget_blob(digest)
    return [make(json.loads(line)) for line in io.BytesIO(data) if line.strip()]


def total(summaries: list[StepSummary], count: str) -> int:
    """Return the sum of one count."""
    return sum(summary.counts.get(count, 0) for summary in summaries)
