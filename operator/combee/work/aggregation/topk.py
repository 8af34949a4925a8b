"""``TopK``: the aggregator is given those reflections that are most like all of the batch.

Every reflection is embedded; the ``maxFanIn`` nearest to their centre go into the one aggregator call,
as far as ``maxInputTokens`` holds. What is left out is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from combee.algo.seeds import digest_of
from combee.algo.selection import central_first, first_that_fit
from combee.algo.tokens import estimate_tokens
from combee.algo.tree import Caps, pack
from combee.clients.model.embedding import MAX_TEXTS, MAX_TOKENS, PROBE, embedding_prompt, vectors_of
from combee.clients.model.forms import EMBEDDER
from combee.errors import ContextLengthError, EndpointError
from combee.methods.protocol import Update
from combee.records import Reflection
from combee.work.aggregation.calls import one_call
from combee.work.asker import LOSSES, Asker
from combee.work.reduction import Reduction

STAGE = "embed"
Vector = NDArray[np.float32]


async def probe(asker: Asker) -> None:
    """Have the embedder embed a word, so that its faults are known before anything is spent."""
    await asker.ask(EMBEDDER, PROBE, vectors_of, stage=STAGE, chain=0)


async def central(reduction: Reduction) -> list[Update]:
    """Return the updates of one call over the nearest."""
    return await one_call(reduction, await nearest(reduction))


async def nearest(reduction: Reduction) -> list[Reflection]:
    """Return the nearest reflections in the batch's order. Raises EndpointError for a useless embedder."""
    reflections = reduction.reflections
    texts = [text_of(reflection) for reflection in reflections]
    before = len(reduction.asker.rows)
    vectors = await _embedded(reduction, list(dict.fromkeys(texts)))
    placed = [index for index, text in enumerate(texts) if text in vectors]
    chosen = await _chosen(reduction, placed, [vectors[texts[index]] for index in placed]) if placed else ()
    calls = len(reduction.asker.rows) - before
    reduction.left_out = len(reflections) - len(chosen)
    held = {lesson.id for index in chosen for lesson in reflections[index].lessons}
    reduction.levels.append(reduction.lessons.level("nearest", calls, len(reflections), held))
    _note(reduction, len(reflections) - len(placed), len(placed), chosen)
    return [reflections[index] for index in chosen]


def text_of(reflection: Reflection) -> str:
    """Return what is embedded of a reflection: all that an aggregator would read of it."""
    return "\n".join([reflection.text, *(lesson.text for lesson in reflection.lessons)]).strip()


async def _chosen(reduction: Reduction, placed: Sequence[int], vectors: list[Vector]) -> tuple[int, ...]:
    sizes = sorted({vector.size for vector in vectors})
    if len(sizes) > 1:
        raise EndpointError(
            f"embeddings of {' and '.join(map(str, sizes))} dimensions in one batch",
            where="spec.models.embedder",
            fix="The model there has changed: state its revision, and begin anew",
        )
    keys = [digest_of([text_of(reduction.reflections[i]), reduction.reflections[i].id]) for i in placed]
    order = await asyncio.to_thread(central_first, np.stack(vectors), keys)
    nearest_first = [placed[index] for index in order]
    return first_that_fit(
        nearest_first, reduction.tokens, most=reduction.plan.max_fan_in, room=reduction.caps.room
    )


def _note(reduction: Reduction, unplaced: int, placed: int, chosen: Sequence[int]) -> None:
    if unplaced:
        reduction.note(f"{unplaced} reflections have no embedding and were left out")
    if len(chosen) < min(placed, reduction.plan.max_fan_in):
        reduction.note(
            f"{len(chosen)} reflections fit into {reduction.plan.max_input_tokens} tokens, maxFanIn allows "
            f"{reduction.plan.max_fan_in}"
        )


async def _embedded(reduction: Reduction, texts: list[str]) -> dict[str, Vector]:
    """Return the texts' vectors, without those whose calls were lost."""
    sizes = [estimate_tokens(text) for text in texts]
    groups = pack(sizes, Caps(MAX_TEXTS, MAX_TOKENS))

    async def embed(chain: int, group: tuple[int, ...]) -> dict[str, Vector]:
        return await _ask(reduction, [texts[index] for index in group], chain)

    parts = await reduction.side_by_side(STAGE, groups, embed)
    return {text: vector for part in parts for text, vector in part.items()}


async def _ask(reduction: Reduction, texts: list[str], chain: int) -> dict[str, Vector]:
    """Make one call; where the texts are too long together for the server, ask for each half."""
    try:
        vectors = await reduction.asker.ask(
            EMBEDDER, embedding_prompt(texts), vectors_of, stage=STAGE, chain=chain
        )
    except ContextLengthError as error:
        if len(texts) == 1:
            reduction.lost(error, "an embedding")
            return {}
        half = len(texts) // 2
        first = await _ask(reduction, texts[:half], chain)
        return first | await _ask(reduction, texts[half:], chain)
    except LOSSES as error:
        reduction.lost(error, "a call for embeddings")
        return {}
    return dict(zip(texts, vectors, strict=True))
