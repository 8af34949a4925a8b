"""How many tokens a run takes, before a call is made. Pure.

What is read is known: the rows, with the base method's words around them, and the playbook that the run
starts from. What models write is not, nor how much of it comes to be shown. So three estimates are
given, for models that write little, as usual and much; docs/method.md compares them with runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from combee.algo.ranges import NONE, Range
from combee.plan.expected import ANSWER_TOKENS
from combee.strategies import ENTRIES_PER_LEAF, ENTRY_TOKENS, REFLECTION_TOKENS

VERDICT_TOKENS = 60
"""an evaluator's reply, a word for each criterion."""
FORM_TOKENS = 350
"""the words of the base method in a call that reflects or aggregates; ACE's have 330 and 400."""


@dataclass(frozen=True, slots=True)
class Writing:
    """How much models write: tokens of an answer and of a reflection, and entries that come to be shown as a
    multiple of what the base method keeps; and the share of a range of counts that comes about."""

    answer: float
    reflection: float
    kept: float
    share: float

    def of(self, counts: Range) -> float:
        """Return the count that comes about.

        >>> Writing(30, 100, 1, 0.25).of(Range(10, 30))
        15.0
        """
        return counts.low + self.share * (counts.high - counts.low)


LITTLE = Writing(answer=30, reflection=100, kept=1 / 3, share=0.0)
USUAL = Writing(answer=ANSWER_TOKENS, reflection=REFLECTION_TOKENS, kept=1, share=0.25)
MUCH = Writing(answer=600, reflection=600, kept=3, share=0.5)
ALL = Writing(answer=600, reflection=600, kept=1e9, share=1.0)
"""As much, with all that may be tried, and the playbook at its budget from the first call on."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The calls of a run, and what they are given."""

    rollouts: Range
    reflections: Range
    aggregator_calls: Range
    examples: int
    """examples that are learned from, over all epochs."""
    input_tokens: float
    """of a rollout's prompt without a playbook."""
    start_tokens: float
    """of the playbook that the run starts from."""
    budget_tokens: int
    """the most tokens of a playbook."""
    shown_tokens: int
    """of these, the most that a rollout and the reflection on it are shown."""
    leaf_inputs: int
    """reflections, or trajectories where none are made, that an aggregator call is given."""
    kept: float
    """entries for each example that come to be shown, as the base method expects them."""
    reflects: bool
    embeds: bool
    evaluations: Range = NONE
    """answers that an evaluator scores, rollouts and calibration alike."""
    referee_calls: Range = NONE
    proxy_calls: Range = NONE
    """answers on which a proxy is compared with the evaluator."""


def tokens(counts: Counts, writing: Writing) -> int:
    """Return the tokens that a run takes with models that write so much."""
    return round(sum(read + written for read, written in usage(counts, writing).values()))


def usage(counts: Counts, writing: Writing) -> dict[str, tuple[float, float]]:
    """Return role -> (tokens read, tokens written) of a run with models that write so much.

    A call shows the playbook as it stands halfway, on average; a retry, a repair and a race are left out.
    """
    whole = _playbook(counts, writing, counts.budget_tokens)
    prompt = counts.input_tokens + _playbook(counts, writing, counts.shown_tokens)
    given = writing.reflection if counts.reflects else counts.input_tokens + writing.answer
    written = ENTRY_TOKENS * min(ENTRIES_PER_LEAF, counts.leaf_inputs)
    rollouts, reflections = writing.of(counts.rollouts), writing.of(counts.reflections)
    calls = writing.of(counts.aggregator_calls)
    evaluated_tokens = verdict_prompt(counts.input_tokens, writing.answer)
    evaluations, refereed = writing.of(counts.evaluations), writing.of(counts.referee_calls)
    compared = writing.of(counts.proxy_calls)
    return {
        "task": (rollouts * prompt, rollouts * writing.answer),
        "proposer": (
            reflections * (prompt + writing.answer + FORM_TOKENS)
            + calls * (FORM_TOKENS + whole + given * counts.leaf_inputs),
            reflections * writing.reflection + calls * written,
        ),
        "evaluator": (evaluations * evaluated_tokens, evaluations * VERDICT_TOKENS),
        "proxy": (compared * evaluated_tokens, compared * VERDICT_TOKENS),
        "referee": (refereed * evaluated_tokens, refereed * VERDICT_TOKENS),
        "embedder": (reflections * writing.reflection if counts.embeds else 0.0, 0.0),
    }


def verdict_prompt(input_tokens: float, answer_tokens: float) -> float:
    """Return the tokens of what an evaluator is shown."""
    return FORM_TOKENS + input_tokens + answer_tokens


def _playbook(counts: Counts, writing: Writing, most: int) -> float:
    """Return the mean tokens of what is shown of the playbook over a run in which it grows by an equal amount
    each example, until ``most`` are shown."""
    start = min(counts.start_tokens, most)
    room = most - start
    grown = ENTRY_TOKENS * counts.kept * writing.kept * counts.examples
    return start + (grown / 2 if grown <= room else room - room * room / (2 * grown))
