"""Whether a text repeats passages of the training rows, which only steps that read them can tell."""

from __future__ import annotations

import asyncio
from typing import Any

from combee.plan.playbook.content import verbatim
from combee.plan.playbook.types import Finding
from combee.work.context import WorkContext


async def leak_corpus(context: WorkContext) -> Any:
    """What rare passages of the train rows look like; derived once a process."""
    if "leak_corpus" not in context.cache:
        train = await context.data.train()
        texts = [context.task.model_input(example) for example in train.examples]
        context.cache["leak_corpus"] = await asyncio.to_thread(context.method.leak_corpus, texts)
    return context.cache["leak_corpus"]


async def repeated(context: WorkContext, text: str) -> tuple[Finding, ...]:
    """The bullets of ``text`` that repeat rows, whoever wrote them. None where traces are learned from: each entry
    is held against the traces that were read for it, when it is learned."""
    if not text or (await context.data.train()).recordings:
        return ()
    return await asyncio.to_thread(verbatim, text, await leak_corpus(context))
