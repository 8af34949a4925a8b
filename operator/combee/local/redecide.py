"""Plans and clocks of a run's folder that were damaged. What is decided again counts where it is what was
decided: a plan by the bytes that were frozen, and clocks by the decision that they lead to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from combee.api.digests import manifest_digest
from combee.assembly.decided import PLANS, clocks_file, plan_file, read_clocks, read_plans, stated_digest
from combee.assembly.folder import note_digest, read_clock, read_summaries, worked_seconds
from combee.clients.store.store import Store
from combee.errors import DamagedError
from combee.local.session import Prepared
from combee.plan.decide import Identity, Plan, decide
from combee.plan.state import RunState
from combee.plan.types import Clocks, IterationPlan, Snapshot, StepSummary
from combee.report.bundle import RESULT_FILE
from combee.steps import kind_of


@dataclass(frozen=True, slots=True)
class _Decided:
    """What a run's folder says of its decisions."""

    prepared: Prepared
    summaries: Mapping[str, StepSummary]
    plans: Mapping[int, IterationPlan]
    clocks: Mapping[int, Clocks]

    def before(self, iteration: int) -> Plan:
        """Return what is decided where the plan of an iteration is asked for."""
        run, given, state = self.prepared.run, self.prepared.plans, RunState()
        plans = {number: plan for number, plan in self.plans.items() if number < iteration}
        facts = Snapshot(self.summaries, plans, given_iterations=len(given) if given else None)
        while True:
            clocks = self.clocks.get(state.iteration, Clocks())
            plan = decide(
                spec=run.spec,
                who=Identity(run.name, manifest_digest(run)[:8]),
                state=state,
                snapshot=facts,
                elapsed_seconds=clocks.elapsed_seconds,
                gpu_seconds=clocks.gpu_seconds,
            )
            if plan.freeze is not None or plan.start or plan.outcome is not None:
                return plan
            state = plan.state

    def plan(self, iteration: int) -> IterationPlan | None:
        """Return the plan that is decided for an iteration; None where another is due, or none."""
        freeze = self.before(iteration).freeze
        if freeze is None or freeze.iteration != iteration:
            return None
        return self.prepared.plans.get(iteration, freeze)


def plan_again(prepared: Prepared, out: Path, file: Path) -> None:
    """Write a damaged plan again, or its digest where that is what was damaged. Raises CombeeError where
    neither stands as it was frozen."""
    store, iteration = Store.open(str(out)), int(file.stem[1:])
    known = _Decided(
        prepared, read_summaries(store), read_plans(out / PLANS, but=iteration), read_clocks(out)
    )
    plan, path = known.plan(iteration), plan_file(iteration)
    data = b"" if plan is None else plan.to_json()
    stated = stated_digest(file)
    if plan is None or not _is_frozen(data, stated, store.get(path)):
        raise DamagedError("what is decided now is another plan")
    store.put(path, data)
    note_digest(store, path, data)


def _is_frozen(data: bytes, stated: str, before: bytes | None) -> bool:
    """Return whether a plan is the frozen one, by the digest beside it or by its bytes. A plan without a
    digest was frozen by a session that died before anything followed from it."""
    return not stated or hashlib.sha256(data).hexdigest() == stated or data == before


def clocks_again(prepared: Prepared, out: Path, file: Path) -> None:
    """Write again what the clocks showed, near enough that the same is decided. Raises CombeeError where
    nothing recorded is."""
    store, iteration = Store.open(str(out)), int(file.stem[1:])
    summaries, plans = read_summaries(store), read_plans(out / PLANS)
    known = _Decided(prepared, summaries, plans, read_clocks(out, but=iteration))
    frozen, worked = plans.get(iteration), worked_seconds(_until(summaries.values(), iteration))
    total, _ = read_clock(store) or (worked, True)
    # Learning stops near the end of a run, and an iteration is planned once the steps before it are done.
    for seconds in (total, worked) if frozen is None else (worked, total):
        clocks = Clocks(round(seconds, 3))
        again = replace(known, clocks={**known.clocks, iteration: clocks}).plan(iteration)
        if again == frozen or (frozen is None and store.get(RESULT_FILE) is None):
            path = clocks_file(iteration)
            store.put(path, clocks.to_json())
            note_digest(store, path, clocks.to_json())
            return
    raise DamagedError("with the seconds of the steps another decision is made")


def _until(summaries: Iterable[StepSummary], iteration: int) -> Iterable[StepSummary]:
    """Return the summaries of what was done before an iteration was planned."""
    return (
        one
        for one in summaries
        if kind_of(one.kind).phase == "Profiling"
        or (kind_of(one.kind).planned and one.counts.get("iteration", 0) < iteration)
    )
