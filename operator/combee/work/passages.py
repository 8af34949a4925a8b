"""What a run starts from, and whether a text repeats passages of the training rows, which only steps that
read them can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from combee.methods.findings import Finding, verbatim
from combee.methods.protocol import Refusal
from combee.tasks.dataset import Dataset
from combee.tasks.traces import decode
from combee.work.context import WorkContext
from combee.work.proofs import can_be_proved, unproved

AT_ONCE = 100
"""How many recordings are compared with new entries at once: each of their words takes 8 bytes."""


async def leak_corpus(context: WorkContext) -> Any:
    """Return what rare passages of the train rows look like; each process derives it once."""
    if "leak_corpus" not in context.cache:
        train = await context.data.train()
        texts = [context.task.model_input(example) for example in train.examples]
        context.cache["leak_corpus"] = await asyncio.to_thread(context.method.leak_corpus, texts)
    return context.cache["leak_corpus"]


async def repeated(context: WorkContext, text: str) -> tuple[Finding, ...]:
    """Return the bullets of ``text`` that repeat rows, whoever wrote them. There are none where traces are
    learned from: each entry is compared with the traces that were read for it when it is learned."""
    if not text or (await context.data.train()).recordings:
        return ()
    return await asyncio.to_thread(verbatim, text, await leak_corpus(context))


async def start_of(context: WorkContext, train: str) -> Any:
    """Return the artifact that the run starts from; what models wrote of it in earlier runs is checked as if
    it were new: programs are run with their tests once more. ``train``: the digest of the train split."""
    await can_be_proved(context)
    text, method = context.initial_playbook, context.method
    if not text:
        return method.empty()
    artifact = method.started(text, train=train)
    if context.spec.task.data.forgotten and artifact == method.empty():
        context.progress.note(
            "task.initialPlaybook is not started from: not all runs behind it learned without the rows that "
            "are forgotten here"
        )
    inherited = method.inherited(artifact)
    if not inherited:
        return artifact
    # No recording was read for these entries.
    recordings = (await context.data.train()).recordings
    corpus = method.leak_corpus(()) if recordings else await leak_corpus(context)
    refused = await asyncio.to_thread(method.checks, artifact, inherited, corpus=corpus)
    refused += await unproved(context, artifact, inherited, refused, inherited=True)
    return method.with_refusals(artifact, refused)


def checked(
    method: Any, ledger: Any, new: Sequence[str], train: Dataset, example_ids: Iterable[str]
) -> list[Refusal]:
    """Return ``method.checks`` of new entries against the recordings that this iteration read: no lesson can
    repeat any other. ``AT_ONCE`` recordings are held at a time, and rare means rare among these."""
    refusals: dict[tuple[str, str], Refusal] = {}
    remaining = iter(sorted(example_ids))
    while ids := list(islice(remaining, AT_ONCE)):
        corpus = method.leak_corpus(_text(train.recordings[example_id]) for example_id in ids)
        for refusal in method.checks(ledger, new, corpus=corpus):
            refusals.setdefault((refusal.entry_digest, refusal.kind), refusal)
    return list(refusals.values())


def _text(load: Callable[[], bytes]) -> str:
    recording = decode(load())
    return "\n".join((recording.title, *recording.parts))
