"""``combee suspend`` and ``resume``: one field, and what follows from it."""

from __future__ import annotations

from combee.api.status import Phase
from combee.cli.cluster.place import Here, find, on_cluster, say
from combee.cli.where import Place
from combee.errors import UserError
from combee.names import RUN_KIND

SUSPENDED = (
    "its Jobs are deleted and its engines scaled to 0 (GPUs are free in seconds); what was asked of the "
    "models is kept, and the iteration under way is done again from there"
)


def run_suspend(name: str, place: Place, *, suspend: bool) -> int:
    """Set spec.suspend and say what happens."""

    async def work(here: Here) -> int:
        run = await find(here, name)
        phase, spec = run.status.phase, run.raw.get("spec") or {}
        if phase.over:
            raise UserError(
                f"{name} is over ({phase.value}): there is nothing to {'suspend' if suspend else 'resume'}",
                fix=f"See what came of it: {here.command(f'status {name}')}",
            )
        if (spec.get("suspend") is True) == suspend:
            say(f"{name} is {'suspended already' if suspend else 'not suspended'} ({phase.value})")
            return 0
        patch = {"spec": {"suspend": suspend}}
        if await here.kube.patch(RUN_KIND, here.namespace, name, patch) is None:
            raise UserError(f"{name} was deleted meanwhile", fix="Apply its manifest again")
        if suspend:
            say(f"{name} is being suspended: {SUSPENDED}.\nGo on with: {here.command(f'resume {name}')}")
        else:
            begun = run.status.start_time or phase is Phase.SUSPENDED
            where = f"at iteration {run.status.iteration + 1}" if begun else "from the start"
            say(f"{name} goes on {where}.\nWatch it with: {here.command(f'status {name}')}")
        return 0

    return on_cluster(place, work)
