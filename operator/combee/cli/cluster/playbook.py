"""``combee playbook``: what was learned, as it was published."""

from __future__ import annotations

from combee.api.playbook import Origin
from combee.api.stakes import Stakes
from combee.api.status import Phase
from combee.cli.cluster.place import Here, LiveRun, find, note, on_cluster, say
from combee.cli.cluster.versions import content, known
from combee.cli.where import Place
from combee.errors import UserError
from combee.names import PLAYBOOK_KIND, PROMPT_KEY, RUN_KIND
from combee.plan.playbook.authentic import refuse_replaced
from combee.report.text import visible


def run_playbook(name: str, place: Place) -> int:
    """Print the published playbook."""

    async def work(here: Here) -> int:
        if await here.kube.get(RUN_KIND, here.namespace, name) is None and await _active(here, name):
            return 0
        run = await find(here, name)
        published = run.status.published
        if not published:
            raise _none(here, run)
        config = await here.kube.get("ConfigMap", here.namespace, published)
        text = (config or {}).get("data", {}).get(PROMPT_KEY)
        if text is None:
            raise UserError(
                f"the ConfigMap {published} is gone or holds no {PROMPT_KEY}",
                where=f"status.published of {name}",
                fix=f"The store has it too: {here.command(f'report {name} -o {name}')}",
            )
        digests = run.status.state.get("content_digests") or {}
        refuse_replaced(
            (config or {})["data"], digests, f"ConfigMap {here.namespace}/{published}", [PROMPT_KEY]
        )
        say(text)
        task = run.raw["spec"]["task"]
        held_out = task["data"].get("heldOut") or {}
        kept_by, tuned = held_out.get("steward", ""), bool(held_out.get("usedForTuning"))
        _tell(Stakes(kept_by, tuned, task.get("failureCost", "")))
        return 0

    return on_cluster(place, work)


async def _active(here: Here, name: str) -> bool:
    """Return whether there is a Playbook of that name; print its active version if there is."""
    if await here.kube.get(PLAYBOOK_KIND, here.namespace, name) is None:
        return False
    version = (await known(here, name)).version(here, "active")
    say((await content(here, version)).text)
    _tell(Origin.model_validate(version["spec"].get("origin") or {}).stakes)
    return True


def _tell(stakes: Stakes) -> None:
    """Print what a reader of the playbook should know of its verdicts, beside the text and not in it."""
    for sentence in stakes.sentences():
        note(visible(sentence))


def _none(here: Here, run: LiveRun) -> UserError:
    phase, name = run.status.phase, run.name
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
