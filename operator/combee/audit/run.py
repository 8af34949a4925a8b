"""The whole audit: replay, fresh answers, other seeds, a second class of hardware; then the stamps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Literal

from combee import __version__
from combee.algo.latency import LatencyLaw
from combee.assembly.context import run_prefix
from combee.audit.again import Done, rescored, share_memo, whole_run, with_seed
from combee.audit.cost import other_seeds
from combee.audit.timed import speed_up
from combee.clients.store.store import Store
from combee.errors import CombeeError, UserError
from combee.local.meter import Listener
from combee.local.record import Record, read_record
from combee.local.replay import replay
from combee.local.session import Prepared
from combee.report.audit import AUDIT_FILE, Audit, OtherClass, playbook_digest, to_bytes
from combee.report.result import Result
from combee.report.stamps import Seen, claims_gain, pooled, stamps

Split = Literal["gate", "test"]


@dataclass(frozen=True, slots=True)
class Request:
    """What ``combee audit`` was asked for."""

    folder: Path
    """the record: what ``combee run`` or ``combee report`` left."""
    store: str
    """the run's store; empty for the folder's own."""
    out: Path
    recorded: Prepared
    """the run, for its replay."""
    live: Prepared
    """the same with servers to ask."""
    second: Prepared | None = None
    """the same with a second engine's servers."""
    law: LatencyLaw | None = None
    """a second class by which the recorded calls are timed."""


def result_in(request_folder: Path, store: str, recorded: Prepared) -> Result:
    """Return the result that is audited. Raises UserError for a run without one, or one that goes on."""
    record = read_record(request_folder, store, recorded)
    record.store.close()
    result = record.result
    if result is None or result.outcome in ("Stopped", "Failed"):
        how = "is not over" if result is None else f"ended {result.outcome}"
        raise UserError(
            f"the run {how}: there is no claim to audit",
            where=str(request_folder),
            fix="Go on with the same combee run command, and audit what it leaves",
        )
    return result


async def audit(request: Request, listener: Callable[[str], Listener], tell: Callable[[str], None]) -> Audit:
    """Do the audit, write audit.json into ``request.out`` and return it.

    ``listener`` makes one for a named part. What is finished is kept, and the same call goes on. Raises
    UserErrors; cancelled, it stops cleanly.
    """
    result = result_in(request.folder, request.store, request.recorded)
    seen, taken = await _replayed(request, tell)
    rescored_on: Split | None = None
    if claims_gain(result):
        record = read_record(request.folder, request.store, request.recorded)
        try:
            await share_memo(record.store, taken, request.out)
            rescored_on = "test" if "test" in request.live.splits else "gate"
            tell(f"{rescored_on} is scored again by fresh answers")
            fresh = await rescored(request.live, record, request.out / "rescored", listener(rescored_on))
            seen = await _again(replace(seen, rescored=fresh), request, result, record, listener, tell)
        finally:
            record.store.close()
    made = _audit(result, request, seen, rescored_on)
    store = Store.open(str(request.out))
    store.put(AUDIT_FILE, to_bytes(made))
    store.close()
    return made


async def _replayed(request: Request, tell: Callable[[str], None]) -> tuple[Seen, frozenset[str]]:
    """Replay the record, which asks nobody; return what differs, and which answers the run took."""
    record = read_record(request.folder, request.store, request.recorded)
    tell("the record is replayed")
    try:
        replayed = await replay(request.recorded, record)
    except CombeeError as error:
        return Seen(not_replayed=f"it cannot be replayed: {error}"), frozenset()
    until = replayed.end if replayed.ended_early else ""
    return Seen(differences=len(replayed.differences), replayed_until=until), replayed.taken


async def _again(
    seen: Seen,
    request: Request,
    result: Result,
    record: Record,
    listener: Callable[[str], Listener],
    tell: Callable[[str], None],
) -> Seen:
    done: list[Done] = []
    for seed in other_seeds(result):
        name = f"seed {seed}"
        tell(f"{name}: the run is done again")
        prepared = replace(request.live, run=with_seed(request.live.run, seed, result))
        folder = request.out / "seeds" / f"s{seed}"
        done.append(await whole_run(prepared, folder, listener(name), request.out / "memo"))
    together = pooled([one.scores for one in done], request.live.run.spec.seed)
    seen = replace(seen, seeds=[one.run for one in done], pooled=together)
    return replace(seen, other=await _other(request, result, record, listener, tell))


async def _other(
    request: Request,
    result: Result,
    record: Record,
    listener: Callable[[str], Listener],
    tell: Callable[[str], None],
) -> OtherClass | None:
    """Do the run on the second engine, whose answers are its own, or time the recorded calls by a law."""
    law, second = request.law, request.second
    timed = None
    if law is not None:
        prefix = run_prefix(record.who.name, record.who.uid)
        timed = await speed_up(record, prefix, request.live.run.spec.workers.concurrency, law)
    if second is None:
        return None if law is None else OtherClass(law=astuple(law), law_speed_up=timed)
    tell("second engine: the run is done again")
    run = with_seed(second.run, second.run.spec.seed, result)
    done = await whole_run(
        replace(second, run=run), request.out / "engine", listener("second engine"), memo=None
    )
    hosts = ", ".join(sorted({model.endpoint_host for model in done.result.models.values()}))
    return OtherClass(
        law=astuple(law) if law else (),
        law_speed_up=timed,
        run=done.run.model_copy(update={"engine": hosts or "unknown"}),
    )


def _audit(result: Result, request: Request, seen: Seen, rescored_on: Split | None) -> Audit:
    """Return audit.json's content."""
    engine = seen.other.run if seen.other else None
    runs = [*seen.seeds, *([engine] if engine else [])]
    return Audit(
        run=result.run,
        manifest_digest=result.manifest_digest,
        playbook=playbook_digest(result),
        simulated=result.simulated or any(one.simulated for one in runs),
        stamps=stamps(result, seen),
        rescored_on=rescored_on,
        rescored=seen.rescored,
        seeds=tuple(seen.seeds),
        pooled=seen.pooled,
        other=seen.other,
        differences=seen.differences,
        release=__version__,
    )
