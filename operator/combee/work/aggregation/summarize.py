"""``Summarize``: the aggregator is given summaries of the reflections in place of them.

Reflections are packed, in the batch's order, into calls within ``maxFanIn`` and ``maxInputTokens``, and each
call gives a short text. Where the summaries are too many for one aggregator call, they are summarized again.
An entry made from a summary is traced to those reflections behind it whose lessons it still states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from combee.algo.selection import first_that_fit
from combee.algo.tree import Caps, pack
from combee.algo.tree import Level as Groups
from combee.methods.base import Method
from combee.methods.protocol import Update
from combee.records import Reflection
from combee.work.aggregation.calls import one_call
from combee.work.reduction import Reduction, prompt_tokens

STAGE = "summary level"
Behind = dict[str, tuple[Reflection, ...]]
"""The id of a summary -> the reflections that it sums up."""


@dataclass(slots=True)
class _State:
    """The current summaries: ``items`` with their ``tokens``; ``behind`` tells where each comes from."""

    items: list[Reflection]
    tokens: list[int]
    behind: Behind = field(default_factory=dict)
    count: int = 0
    """the number of summaries asked for so far."""


async def summarize(reduction: Reduction) -> list[Update]:
    """Return the updates of one call over the summaries, traced to the reflections behind them."""
    items, behind = await summaries(reduction)
    method = reduction.context.method
    return await one_call(reduction, items, lambda updates: traced(method, updates, behind))


async def summaries(reduction: Reduction) -> tuple[list[Reflection], Behind]:
    """Return the summaries for the aggregator, and what is behind each."""
    plan = reduction.plan
    overhead = prompt_tokens(reduction.context.method.summary_prompt([]), plan)
    caps = Caps(plan.max_fan_in, plan.max_input_tokens, overhead)
    state = _State(list(reduction.reflections), reduction.tokens)
    level = 0
    while True:
        groups = pack(state.tokens, caps)
        if level and len(groups) >= len(state.items):
            break
        level += 1
        await _summarized(reduction, state, groups, level)
        state.tokens = reduction.tokens_of(state.items)
        if len(pack(state.tokens, reduction.caps)) <= 1:
            break
    return _fitting(reduction, state), state.behind


def _fitting(reduction: Reduction, state: _State) -> list[Reflection]:
    """Return the summaries that fit into one call: all, unless two do not fit into ``maxInputTokens``."""
    count = len(state.items)
    chosen = first_that_fit(
        range(count), state.tokens, most=reduction.plan.max_fan_in, room=reduction.caps.room
    )
    items = [state.items[index] for index in chosen]
    if len(items) < count:
        reduction.note(
            f"{count - len(items)} of {count} summaries do not fit into "
            f"{reduction.plan.max_input_tokens} tokens and were left out: raise maxInputTokens"
        )
    ids = {reflection.id for item in items for reflection in state.behind[item.id]}
    reduction.left_out = sum(reflection.id not in ids for reflection in reduction.reflections)
    return items


async def _summarized(reduction: Reduction, state: _State, groups: Groups, level: int) -> None:
    """Make one level of calls and put their summaries into the state."""
    method, stage = reduction.context.method, f"{STAGE} {level}"
    first, items = state.count, state.items

    async def summary_of(number: int, group: tuple[int, ...]) -> Reflection | None:
        name, members = f"s-{first + number + 1:05d}", [items[index] for index in group]
        return await reduction.ask(
            method.summary_prompt(members),
            lambda text: method.parse_summary(text, summary_id=name, reflections=members),
            stage,
            number,
            "a summary",
        )

    answers = await reduction.side_by_side(stage, groups, summary_of)
    before = state.behind or {reflection.id: (reflection,) for reflection in reduction.reflections}
    pairs = [(summary, group) for summary, group in zip(answers, groups, strict=True) if summary is not None]
    state.behind = {
        summary.id: tuple(origin for index in group for origin in before[items[index].id])
        for summary, group in pairs
    }
    state.items, state.count = [summary for summary, _ in pairs], first + len(groups)
    statements = [
        update for summary in state.items for update in _statements(summary, state.behind[summary.id])
    ]
    reduction.report(stage, len(groups), len(items), statements)


def _statements(summary: Reflection, behind: Sequence[Reflection]) -> list[Update]:
    """Return what a summary says as retention reads it: each line as an update from all that is behind it."""
    sources = frozenset(reflection.trajectory_id for reflection in behind)
    return [Update("ADD", "", lesson.text, sources, cited=sources) for lesson in summary.lessons]


def traced(
    method: Method[Any], updates: Sequence[Update], behind: Mapping[str, Sequence[Reflection]]
) -> list[Update]:
    """Return ``updates``, made from summaries, with the reflections behind the summaries as sources.

    An update cites all that is behind its summaries. Its sources are those whose lessons it still states.
    Where it states none, as with a citation that nothing backs, it is the first alone and replay must decide.
    """
    return [_traced(method, update, behind) for update in updates]


def _traced(method: Method[Any], update: Update, behind: Mapping[str, Sequence[Reflection]]) -> Update:
    origins = {r.id: r for name in sorted(update.sources | update.cited) for r in behind.get(name, ())}
    group = [origins[name] for name in sorted(origins)]
    if not group:
        return update
    cited = frozenset(reflection.trajectory_id for reflection in group)
    stated = method.carried_all(group, [replace(update, sources=cited, cited=cited)])
    backing = [r for r in group if any(lesson.id in stated for lesson in r.lessons)] or group[:1]
    return replace(update, sources=frozenset(r.trajectory_id for r in backing), cited=cited)
