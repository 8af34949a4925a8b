"""A start at 0.000 or 1.000: what is probably wrong, and three questions to see it by. Pure.

The page holds rows of data, so it stays in the run's folder of the store; what is said of it elsewhere holds
none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from combee.errors import TransientError
from combee.methods.protocol import CutError, ParseError
from combee.records import Example, Prompt, Trajectory

PAGE = "start.md"
"""The page's name in the run's folder of the store."""
QUESTIONS = 3
MOST = 0.5
"""What holds for a larger share of the questions is taken for the cause."""
LEAST_CHARS = 3
"""A target shorter than this stands in a question by chance."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question of the start. ``prompt`` is None where a program asks the model, and not this one."""

    example: Example
    prompt: Prompt | None
    reply: str
    """the first reply, as it came; empty where none did, or where a program asked."""
    trajectory: Trajectory


def cause(answered: Sequence[tuple[Example, Trajectory]]) -> str:
    """Return what is probably wrong with a start where all of these are wrong, or all right; '' where there
    are none, or some are right and others wrong. It repeats nothing of them."""
    scores = {trajectory.score for _, trajectory in answered}
    if scores == {1.0}:
        return f"Every question of select is right at the start: {_of_all_right(answered)}"
    if scores == {0.0}:
        return f"No question of select is right at the start: {_of_none_right(answered)}"
    return ""


def _of_all_right(answered: Sequence[tuple[Example, Trajectory]]) -> str:
    if _most([_holds(trajectory.input, example) for example, trajectory in answered]):
        return "the questions probably hold their own answers. Take the targets out of what the model reads"
    return "there is nothing left to learn on these rows. Give harder ones, or a smaller task model"


def _of_none_right(answered: Sequence[tuple[Example, Trajectory]]) -> str:
    errors = [trajectory.error for _, trajectory in answered]
    answers = Counter(trajectory.answer for _, trajectory in answered if trajectory.answer)
    if _most([error == CutError.code for error in errors]):
        return (
            "most answers were cut at their limit. Raise sampling.maxTokens, or give a reasoning model "
            "sampling.reasoningTokens"
        )
    if _most([error == ParseError.code for error in errors]):
        return (
            "most answers could not be read. Serve the model with structured outputs (vLLM has them on), or "
            "take one that follows a JSON schema"
        )
    if _most([error == TransientError.code for error in errors]):
        return "most questions got no answer. See whether the endpoint is healthy"
    if _most([bool(error) for error in errors]):
        return f"most rollouts failed ({Counter(filter(None, errors)).most_common(1)[0][0]})"
    if _most([_holds(trajectory.answer, example) for example, trajectory in answered]):
        return (
            "most answers hold the target and something else. Say in task.instructions what form an answer "
            "has, or compare less strictly"
        )
    if answers and answers.most_common(1)[0][1] > MOST * len(answered):
        return (
            "most questions get one and the same answer. The model probably does not read them: look at its "
            "chat template and at task.instructions"
        )
    return (
        "the model probably lacks what the questions ask for. Lessons can supply it where the feedback "
        "states it; otherwise look at whether the instructions and the comparison fit each other"
    )


def _most(held: Sequence[bool]) -> bool:
    return sum(held) > MOST * len(held)


def _holds(text: str, example: Example) -> bool:
    """Return whether ``text`` says the target among other things."""
    target, whole = (" ".join(one.casefold().split()) for one in (example.target, text))
    return len(target) >= LEAST_CHARS and target in whole


def page(why: str, questions: Sequence[Question]) -> str:
    """Return the page that shows each question's prompt, reply, what was read out of it, and score."""
    return "\n\n".join([f"# The start\n\n{why}.", *map(_shown, questions)]) + "\n"


def _shown(question: Question) -> str:
    trajectory = question.trajectory
    messages = [
        f"**{message.role}**\n\n{fenced(message.content)}"
        for message in (question.prompt.messages if question.prompt else ())
    ] or [fenced(trajectory.input)]
    read = trajectory.answer if not trajectory.error else f"nothing ({trajectory.error})"
    parts = {
        "Prompt": "\n\n".join(messages),
        "Reply": fenced(question.reply or trajectory.output),
        "What was read": fenced(read),
        "Target": fenced(question.example.target),
        "Score": f"{trajectory.score:.3f}. {' '.join(trajectory.feedback.split())}",
    }
    body = "\n\n".join(f"### {title}\n\n{text}" for title, text in parts.items())
    return f"## {question.example.id}\n\n{body}"


def fenced(text: str) -> str:
    """Return text as a block that nothing in it can end."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
