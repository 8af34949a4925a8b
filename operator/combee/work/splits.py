"""heldOut in two halves, by hash: select chooses, gate decides, and neither teaches."""

from __future__ import annotations

from combee.algo.membership import split_select_gate
from combee.records import Example
from combee.work.context import WorkContext


async def held_out_split(context: WorkContext) -> tuple[list[Example], list[Example]]:
    """(select, gate), a pure function of the data's digest and its ids; both empty without heldOut."""
    data = await context.data.held_out()
    if data is None:
        return [], []
    by_id = {example.id: example for example in data.examples}
    select, gate = split_select_gate(list(by_id), data.digest)
    return [by_id[example_id] for example_id in select], [by_id[example_id] for example_id in gate]
