"""profile: pin the data, score the untouched artifact on select, and time rollouts in waves.

A wave is a number of rollouts in flight together. There are two, a small one and the rest, so that it is
known before the first iteration how a call slows down beside others. The waves are the baseline evaluation
itself: what they cost extra is that the second waits for the first.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from combee.algo.calibration import Calibration
from combee.algo.clusters import by_cluster
from combee.algo.tokens import estimate_tokens
from combee.methods.protocol import Rendered
from combee.plan.engine import engine_digest
from combee.plan.types import Step, StepSummary
from combee.records import Example, Shown, Trajectory
from combee.steps import PROFILE
from combee.tasks.dataset import Dataset
from combee.work.aggregation.topk import probe
from combee.work.asker import Asker
from combee.work.calibrate import calibrated, check_opinion
from combee.work.callgraph import modelled_seconds
from combee.work.ceiling import Bounded, under_ceiling
from combee.work.context import WorkContext, held_out_split, put_json, write_receipt
from combee.work.happened import happened
from combee.work.passages import repeated, start_of
from combee.work.pool import pooled
from combee.work.rollouts import mean, refuse_a_bad_day, rollout
from combee.work.start import PAGE, QUESTIONS, Question, cause, page
from combee.work.traffic.record import redacted

WAVE = "wave"
"""What the stages of the waves begin with."""


def wave_sizes(count: int, sizes: tuple[int, ...], *, dynamic: bool) -> list[int]:
    """Deal ``count`` rollouts into a wave of the smallest batch size and one of all the others: two
    points tell how a call slows down beside others, and each wave more would keep slots empty."""
    first = min(sizes)
    return [first, count - first] if dynamic and count > first else [count] if count else []


async def run_profile(context: WorkContext, step: Step) -> StepSummary:
    """Run the profile step. Raises TransientError when most rollouts were lost."""
    started = context.clock()
    splits = await _splits(context)
    await check_opinion(context)
    select, gate = await held_out_split(context)
    artifact = await _start_of(context, splits["train"].digest)
    rendered, stale = _rendered(context, artifact)
    asker = context.asker()
    answered, waves = await _waves(context, asker, select, rendered.shown)
    refuse_a_bad_day([trajectory.error for trajectory in answered], "rollouts", step.name)
    pairs = list(zip(select, answered, strict=True))
    scored_seconds = round(context.clock() - started, 6)
    why = await _note_start(context, pairs, asker, rendered.shown)
    opinion, bounded = await _opinions(context, asker, pairs, rendered.shown)
    scores = bounded.scores or {example.id: made.score for example, made in pairs}
    summary = StepSummary(
        step=step.name,
        kind=step.kind,
        outputs={
            "artifact": await context.store.aput_blob(artifact.to_json()),
            "calls": await context.store.aput_blob(asker.encode()),
            "record": await put_json(context, _record(context, asker, [stale, why], opinion, bounded)),
            "scores": await put_json(context, scores),
            **{name: split.digest for name, split in splits.items()},
            "engine": engine_digest(context.spec),
        },
        counts={
            "train": splits["train"].places,
            "select": len(select),
            "gate": len(gate),
            **_look(context, gate),
            "test": len(splits["test"].examples) if "test" in splits else 0,
            **asker.counts(),
            "failed": sum(bool(trajectory.error) for trajectory in answered),
        },
        scores={
            "select": mean(by_cluster(scores, {one.id: one.cluster for one in select if one.cluster})),
            "tokenFactor": _token_factor(context, select, rendered.shown, asker),
            **((opinion.figures() if opinion else {}) | bounded.figures),
        },
        usage=asker.usage(),
        seconds={
            "wall": round(context.clock() - started, 6),
            "scored": scored_seconds,
            "modelled": round(modelled_seconds(asker.rows, context.slots), 6),
        },
        observations=tuple(waves),
    )
    return await write_receipt(context, summary)


def _look(context: WorkContext, gate: list[Example]) -> dict[str, int]:
    """Return how many clusters gate has and how often its rows are rolled out, as counts of the summary;
    nothing where rows have none, and where it is once."""
    clusters, repeats = {example.cluster for example in gate if example.cluster}, context.spec.task.repeats
    counts = {"gateClusters": len(clusters)} if clusters else {}
    return counts | ({"repeats": repeats} if repeats > 1 else {})


async def _start_of(context: WorkContext, train: str) -> Any:
    """Return the artifact that the run starts from; warn of entries that repeat rows."""
    artifact = await start_of(context, train)
    await _note_passages(context, context.rendered(artifact).text)
    return artifact


async def _opinions(
    context: WorkContext, asker: Asker, answered: list[tuple[Example, Trajectory]], shown: Shown
) -> tuple[Calibration | None, Bounded]:
    """Return what is thought of the evaluator, and whether its proxy scores."""
    opinion = await calibrated(context, asker, answered, shown)
    return opinion, await under_ceiling(context, asker, answered, opinion)


def _record(
    context: WorkContext, asker: Asker, start: list[str], opinion: Calibration | None, bounded: Bounded
) -> dict[str, Any]:
    """Return what the report shows of profile."""
    compared = str(opinion) if opinion else ""
    met = happened({PROFILE.name: asker.rows}, context.slots)
    words = ". ".join(filter(None, start))
    return {**met, **asker.counts(), "start": words, "calibration": compared, "scorer": bounded.words}


async def _splits(context: WorkContext) -> dict[str, Dataset]:
    """Return the splits that the run has, by name."""
    data = context.data
    named = {"train": await data.train(), "heldOut": await data.held_out(), "test": await data.test()}
    return {name: split for name, split in named.items() if split is not None}


def _rendered(context: WorkContext, artifact: Any) -> tuple[Rendered, str]:
    """Return what models are shown of the start, and what the method says of it, which is told, too."""
    rendered = context.rendered(artifact)
    note = context.method.start_note(artifact, rendered)
    if note:
        context.progress.note(note)
    return rendered, note


async def _note_passages(context: WorkContext, text: str) -> None:
    """Warn of entries of the initial playbook that repeat rows, since versions with them are refused."""
    findings = await repeated(context, text)
    if findings:
        which = ", ".join(finding.entry for finding in findings[:3]) + (", ..." if len(findings) > 3 else "")
        context.progress.note(
            f"task.initialPlaybook: {which}: {findings[0].reason}; "
            "no gate of a Playbook passes a version that holds it"
        )


async def _waves(
    context: WorkContext, asker: Asker, select: list[Example], shown: Shown
) -> tuple[list[Trajectory], list[tuple[int, float]]]:
    """Return what was done on each example, in order, and each wave's (size, modelled seconds)."""
    if context.spec.aggregation.traits.embeds:
        await probe(asker)
    context.progress.begin("profile", len(select))
    dynamic = context.spec.batching.mode == "Dynamic" and not context.spec.aggregation.traits.in_order
    answered: list[Trajectory] = []
    waves: list[tuple[int, float]] = []
    remaining = iter(select)
    for number, size in enumerate(wave_sizes(len(select), context.spec.batching.sizes, dynamic=dynamic)):
        stage = f"{WAVE} {number}"
        asker.replies |= {(stage, chain): "" for chain in range(min(size, QUESTIONS - len(answered)))}

        async def answer(item: tuple[int, Example], stage: str = stage) -> Trajectory:
            chain, example = item
            trajectory = await rollout(
                context, asker, example, shown, stage=stage, chain=chain, split="select"
            )
            context.progress.advance()
            return trajectory

        answered += await pooled(list(enumerate(islice(remaining, size))), answer, width=context.concurrency)
        rows = [row for row in asker.rows if row.stage == stage]
        waves.append((size, round(modelled_seconds(rows, context.slots), 6)))
    return answered, waves


async def _note_start(
    context: WorkContext, answered: list[tuple[Example, Trajectory]], asker: Asker, shown: Shown
) -> str:
    """Return what is probably wrong with a start at 0.000 or 1.000, and leave the page that shows it."""
    why = cause(answered)
    if why:
        method, task, path = context.method, context.task, f"{context.prefix}/{PAGE}"
        replies = asker.replies.values()
        questions = [
            Question(
                example,
                None
                if context.runner
                else method.rollout_prompt(
                    task.instructions, context.shown_for(shown, example).text, task.model_input(example)
                ),
                reply,
                trajectory,
            )
            for (example, trajectory), reply in zip(answered, replies, strict=False)
        ]
        await context.store.aput(path, redacted(page(why, questions)).encode())
        context.progress.note(f"{why}. {len(questions)} of them are shown in {context.store.uri}/{path}")
    return why


def _token_factor(context: WorkContext, examples: list[Example], shown: Shown, asker: Asker) -> float:
    """Return the tokens that the server counted for each we estimated, within [0.25, 4]; 1 when unknown."""
    method, task = context.method, context.task
    prompts = (
        method.rollout_prompt(
            task.instructions, context.shown_for(shown, example).text, task.model_input(example)
        )
        for example in examples
    )
    estimated = sum(estimate_tokens(message.content) for prompt in prompts for message in prompt.messages)
    rollouts = [row for row in asker.rows if row.role == "task" and row.stage.startswith(WAVE)]
    actual = sum(row.prompt_tokens for row in rollouts)
    if not estimated or not actual or len(rollouts) != len(examples):
        return 1.0
    return round(min(4.0, max(0.25, actual / estimated)), 4)
