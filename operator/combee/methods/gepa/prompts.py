"""GEPA's two kinds of calls, with the kind of edit that is asked for and what did not get in before."""

from __future__ import annotations

from collections.abc import Sequence

from combee.methods.components import prompts
from combee.methods.gepa.edits import EDIT, with_edit
from combee.methods.gepa.templates import Templates
from combee.methods.protocol import Rendered, Update
from combee.methods.tried import tried_block
from combee.records import Message, Prompt


def map_prompt(
    shown: Rendered, records: Sequence[tuple[str, str]], templates: Templates, *, typed: bool
) -> Prompt:
    """Ask about records, (id, text) each, for lessons that cite them (``typed``), else for a new text."""
    if typed:  # a lesson that was in a change that lost may be right: this call is not told of it
        return prompts.lessons_prompt(shown, records, templates.map)
    return _rewrite(shown, prompts.records_side(records), templates.map, prompts.MAP_TOKENS)


def reduce_prompt(shown: Rendered, updates: Sequence[Update], templates: Templates) -> Prompt:
    """Ask to write a component anew with what was learned of it: lessons, or proposals of whole texts."""
    return _rewrite(shown, prompts.learned_side(updates), templates.reduce, prompts.REDUCE_TOKENS)


def _rewrite(shown: Rendered, side: str, template: str, tokens: int) -> Prompt:
    request = prompts.request_of(template, shown, f"{tried_block(shown.tried)}{side}")
    request = with_edit(request, shown.ids.get(EDIT, ""))
    return Prompt((Message("user", request),), max_output_tokens=tokens)
