"""The simulated model's settings: the mechanism's parameters, the faults on request, the server.

The parameters were fitted by Monte Carlo against the Combee paper's published curves (arXiv 2604.04247;
updates per epoch are ACE's, accuracies GEPA's, so the joint fit is an inference). ``reading_length``,
``obedience`` and the shares of slips and of wrong, misled, harmful and reworded lessons have no calibration
data: they are assumptions, meant to be swept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

INFINITE = math.inf


@dataclass(frozen=True, slots=True)
class TaskLaw:
    """The model's behaviour on one task. Shares and probabilities in [0, 1], lengths in tokens."""

    unknown: float
    """share of the rules, weighted by how often they are asked, that the model does not know."""
    top: float
    """probability of a right answer when the rule is known or read."""
    guess: float
    """probability of a right answer when the rule is neither known nor read."""
    lessons: float
    """lessons per trajectory on average."""
    reflection_tokens: int
    """mean tokens of a reflection, including those without a lesson: they are short, so where lessons are
    rare those with one are long."""

    def tokens_a_lesson(self, frame: float) -> float:
        """Return the tokens that a reflection spends on one lesson, including its frame; ``frame``: tokens of
        a reflection without lessons."""
        empty = max(0.0, 1.0 - self.lessons)
        return (self.reflection_tokens - empty * frame) / self.lessons


TASK_LAWS = {
    "formula": TaskLaw(unknown=0.28, top=0.875, guess=0.05, lessons=1.145, reflection_tokens=200),
    "finer": TaskLaw(unknown=0.125, top=0.75, guess=0.05, lessons=0.487, reflection_tokens=315),
    "planted": TaskLaw(unknown=1.0, top=0.875, guess=0.05, lessons=1.0, reflection_tokens=175),
    "reply": TaskLaw(unknown=0.6, top=0.9, guess=0.05, lessons=1.0, reflection_tokens=175),
    "any": TaskLaw(unknown=0.6, top=0.9, guess=0.05, lessons=1.0, reflection_tokens=175),
}


@dataclass(frozen=True, slots=True)
class Law:
    """The mechanism of context overload; every field can be swept."""

    capacity: float = 11.5
    """C: raw reflections load a call with 1/C each."""
    root_capacity: float = 50.0
    """Ce: short entries load a call with 1/Ce each."""
    token_capacity: float = 9_600.0
    """Td, tokens of lessons at which the token term of the load is 1."""
    blur_length: float = 20_000.0
    """Tb, tokens of lessons at which half the entries become platitudes."""
    reading_length: float = 60_000.0
    """L0, tokens of artifact at which half the rules are overlooked."""
    obedience: float = 0.3
    """probability that a wrong rule is obeyed although the right one is known; an unknown rule always is."""
    recovery: float = 0.9
    """probability that a missed unknown rule is recovered by the proposer."""
    wrong_share: float = 0.01
    """share of the other lessons that state a wrong rule."""
    misled_share: float = 0.0
    """share of the rules that the proposer gets wrong whenever it states them, whatever the example."""
    harm_share: float = 0.0
    """share of the fillers that are read as a wrong statement of the rules of three other topics, which is
    never cited."""
    wording_share: float = 0.0
    """share of the statements in words alone: without name in quotation marks, rules in varied wording."""
    slip_share: float = 0.3
    """share of the answers whose luck also depends on the artifact read."""
    salience_power: float = 0.5
    salience_rule: float = 4.0
    """weight of a lesson in a call: count ** salience_power, times salience_rule when it is a rule."""
    invented: float = 0.02
    """probability that an entry also cites an id that does not exist."""
    judge_flip: float = 0.06
    judge_leniency: float = 0.10
    judge_thinking: float = 0.0
    """tokens that a judge thinks before its verdict: counted as written, and not shown."""

    def unlimited(self) -> Law:
        """Return the same model, with calls that carry everything they are given."""
        return replace(
            self, capacity=INFINITE, root_capacity=INFINITE, token_capacity=INFINITE, blur_length=INFINITE
        )


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults on request. Shares in [0, 1], ``*_one_in`` 0 = never.

    Drawn by (seed, request digest, attempt), so that a retry may succeed and order never matters.
    """

    error_rate: float = 0.0
    rate_limit_rate: float = 0.0
    retry_after_seconds: float = 1.0
    slow_one_in: int = 0
    slow_factor: float = 10.0
    hang_one_in: int = 0
    truncate_rate: float = 0.0
    malform_rate: float = 0.0
    reset_rate: float = 0.0

    @property
    def any(self) -> bool:
        """Whether any fault is set."""
        return bool(
            self.error_rate
            or self.rate_limit_rate
            or self.slow_one_in
            or self.hang_one_in
            or self.truncate_rate
            or self.malform_rate
            or self.reset_rate
        )


@dataclass(frozen=True, slots=True)
class SimConfig:
    """All settings of ``combee sim serve``."""

    model: str = "simulated"
    served_names: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    port_file: Path | None = None
    max_model_len: int = 131_072
    """tokens of context, prompt and completion together."""
    max_num_seqs: int = 1_024
    """most requests running at once; the others wait."""
    prefix_cache_tokens: int = 800_000
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    seed: int = 0
    time_scale: float = 1.0
    """seconds waited per modelled second; 0 answers at once."""
    keys: tuple[Path, ...] = ()
    log: Path | None = None
    plant: Path | None = None
    lenient_judges: tuple[str, ...] = ()
    law: Law = field(default_factory=Law)
    faults: Faults = field(default_factory=Faults)

    @property
    def names(self) -> tuple[str, ...]:
        """The model names that requests may use."""
        return self.served_names or (self.model,)
