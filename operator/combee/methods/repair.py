"""Asking again for an answer that could not be used."""

from __future__ import annotations

from dataclasses import replace

from combee.records import Message, Prompt

REPAIR_KEEPS_CHARS = 6000
"""How much of an unusable answer is shown to the model that gave it, in characters."""


def repair_prompt(prompt: Prompt, broken_text: str, reason: str, round_number: int = 1) -> Prompt:
    """``prompt`` again, with the unusable answer and what is wrong with it: a repair round.

    Later rounds say which they are: an answer that was spoiled in the same way twice would otherwise
    make the same request, which the memo (or a model at temperature 0) answers with the same bytes.
    """
    shown = broken_text[:REPAIR_KEEPS_CHARS] or "(nothing)"
    form = (
        "one JSON object that follows the schema, and nothing else" if prompt.schema else "the answer alone"
    )
    again = f" (for the {round_number}. time)" if round_number > 1 else ""
    ask = f"This answer cannot be used{again}: {reason}. Give it again as {form}."
    return replace(prompt, messages=(*prompt.messages, Message("assistant", shown), Message("user", ask)))
