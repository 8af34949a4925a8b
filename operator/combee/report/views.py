"""Numbers that a figure and its table share, taken from the result once. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from combee.algo.grouping import grouped
from combee.report.prefix import saved_seconds
from combee.report.result import DelayFit, DelayModel, Result


@dataclass(frozen=True, slots=True)
class ScorePoint:
    """A look at the select half after ``iteration`` (0: the start), and the tokens of iterations so far."""

    iteration: int
    tokens: int
    score: float
    best: bool


def score_points(result: Result) -> tuple[ScorePoint, ...]:
    """Return the baseline and every evaluated iteration, in order."""
    held_out = result.held_out
    best = held_out.best.iteration if held_out and held_out.best else None
    points = []
    if held_out and held_out.baseline:
        points.append(ScorePoint(0, 0, held_out.baseline.select, best == 0))
    spent = 0
    for it in result.iterations:
        spent += it.tokens
        if it.select is not None:
            points.append(ScorePoint(it.iteration, spent, it.select, best == it.iteration))
    return tuple(points)


def select_size(result: Result) -> int:
    """Return the number of examples in the select half; 0 when unknown."""
    return result.data.held_out.select if result.data and result.data.held_out else 0


@dataclass(frozen=True, slots=True)
class Kept:
    """Lessons of one kind over all iterations: how many went in, and how many were still there afterwards."""

    label: str
    calls: int
    inputs: int
    lessons: int
    carried: int


def levels(result: Result) -> tuple[Kept, ...]:
    """Return retention by level of the reduce, summed over the iterations, in order of first appearance."""
    return _by_label(
        Kept(level.level, level.calls, level.inputs, level.lessons, level.carried)
        for it in result.iterations
        if it.retention
        for level in it.retention.levels
    )


def rarity(result: Result) -> tuple[Kept, ...]:
    """Return retention by the number of trajectories that brought the lesson, summed over the iterations."""
    return _by_label(
        Kept(band.copies, 0, 0, band.distinct, band.carried)
        for it in result.iterations
        if it.retention
        for band in it.retention.by_rarity
    )


def _by_label(parts: Iterable[Kept]) -> tuple[Kept, ...]:
    return tuple(
        Kept(
            label,
            sum(one.calls for one in kept),
            sum(one.inputs for one in kept),
            sum(one.lessons for one in kept),
            sum(one.carried for one in kept),
        )
        for label, kept in grouped(parts, lambda one: one.label).items()
    )


@dataclass(frozen=True, slots=True)
class Delay:
    """The last fitted delay curve (None without a fit) and the observations that it stands on."""

    fit: DelayFit | None
    observations: tuple[tuple[float, float], ...]

    def predict(self, size: float) -> float | None:
        """Return the fitted seconds of an iteration of ``size`` > 0 examples, by the model planned with."""
        if self.fit is None:
            return None
        model = self.fit.model
        return self.fit.c0 + self.fit.c1 * size if model is None else curve(model, size)

    @property
    def errors(self) -> tuple[float, ...]:
        """The observed time over the fitted, less 1, of each observation: +0.2 is 20 % slower than fitted."""
        fitted = [self.predict(size) for size, _ in self.observations]
        if any(not seconds for seconds in fitted):
            return ()
        pairs = zip(self.observations, fitted, strict=True)
        return tuple(seconds / (expected or 1.0) - 1 for (_, seconds), expected in pairs)


def curve(model: DelayModel, size: float) -> float:
    """Return the seconds of an iteration of ``size`` > 0 examples by one model."""
    growing: float = size ** (1 - model.alpha)
    return model.a * growing + model.f * size


def formula(model: DelayModel) -> str:
    """Return the model's law with its numbers."""
    if model.name == "T_iter":
        return f"T(b) = {model.a:.3g} s + {model.f:.3g} s × b"
    power = f"{model.a:.3g} s × b^{1 - model.alpha:.2f}"
    return f"T(b) = {power}" if model.name == "power" else f"T(b) = {power} + {model.f:.3g} s × b"


NOT_THE_LOWEST = (
    ": laws that fit about as well ask for other sizes, and its size is in the middle of all of theirs"
)


def rivals(fit: DelayFit) -> str:
    """Return why this model was taken: every model's AICc in words; empty where there was no competition."""
    if fit.model is None or len(fit.models) < 2:
        return ""
    scored = [(one.aicc, one.name) for one in fit.models if one.aicc is not None]
    scores = ", ".join(f"{name} {aicc:.1f}" for aicc, name in scored)
    why = "" if not scored or min(scored)[1] == fit.model.name else NOT_THE_LOWEST
    return f"AICc (the lowest describes these times best): {scores}. Planned with {fit.model.name}{why}."


def uncached(result: Result) -> tuple[tuple[float, float], ...]:
    """Return the observations behind the newest fit as they would have been with no prompt token cached, by
    the latency law; none where nobody can tell which iterations they are."""
    for index in reversed(range(len(result.iterations))):
        it = result.iterations[index]
        if it.delay_fit:
            seen = it.observations
            its = result.iterations[max(0, index - len(seen)) : index]
            if [float(one.batch_size) for one in its] != [size for size, _ in seen]:
                return ()
            return tuple(
                (size, seconds + saved_seconds(one.cached_tokens))
                for one, (size, seconds) in zip(its, seen, strict=True)
            )
    return ()


def delay(result: Result) -> Delay:
    """Return the newest fit of the run, with its observations, or else the newest observations."""
    fitted = next((it for it in reversed(result.iterations) if it.delay_fit), None)
    observed = fitted or next((it for it in reversed(result.iterations) if it.observations), None)
    return Delay(fitted.delay_fit if fitted else None, observed.observations if observed else ())
