"""``combee playbook``: what was learned, as it was published."""

from __future__ import annotations

from combee.api.status import Phase
from combee.cli.cluster.place import Found, Here, Place, find, on_cluster, say
from combee.errors import UserError

KEY = "playbook.md"


def run_playbook(name: str, place: Place) -> int:
    """Print the published playbook."""

    async def work(here: Here) -> int:
        found = await find(here, name)
        published = found.status.published
        if not published:
            raise _none(here, found)
        config = await here.kube.get("ConfigMap", here.namespace, published)
        text = (config or {}).get("data", {}).get(KEY)
        if text is None:
            raise UserError(
                f"the ConfigMap {published} is gone or holds no {KEY}",
                where=f"status.published of {name}",
                fix=f"The store has it too: {here.command(f'report {name} -o {name}')}",
            )
        say(text)
        return 0

    return on_cluster(place, work)


def _none(here: Here, found: Found) -> UserError:
    phase, name = found.status.phase, found.name
    if phase is Phase.NOTHING_BETTER:
        why, next_one = "nothing better than the start was found", f"report {name} -o {name}"
    elif phase is Phase.FAILED:
        why, next_one = "the run failed", f"why {name}"
    elif phase.over:
        why, next_one = f"the run ended without one ({phase.value})", f"report {name} -o {name}"
    elif phase is Phase.SUSPENDED:
        why, next_one = "the run is suspended", f"resume {name}"
    else:
        why, next_one = f"the run is not over ({phase.value})", f"status {name}"
    return UserError(f"{name} has published no playbook: {why}", fix=f"Next: {here.command(next_one)}")
