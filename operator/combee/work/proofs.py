"""Programs of a playbook, each run once in a run with its own test.

What that shows is remembered as an answer of a model is, so that a step that is done again, and a run that is
replayed, runs none of them. Another run runs them again: a test that was ended on a busy machine may pass.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any

from combee.algo.seeds import digest_of
from combee.api.method_options import MOST_TEST_SECONDS
from combee.clients.model.recorded import Recorded
from combee.clients.model.wire import Completion
from combee.clients.sandbox.proof import proved
from combee.errors import BugError
from combee.methods.protocol import Refusal
from combee.work.context import WorkContext

AT_ONCE = 4
MOST = 100
"""New programs of one iteration that are run; those beyond, by their digests, are refused unseen."""
SAMPLE = '''\
def twice(number):
    """Return twice a number."""
    return 2 * number


def test_twice():
    assert twice(2) == 4'''
"""A program that passes wherever one can be confined."""


async def unproved(
    context: WorkContext,
    artifact: Any,
    entries: Sequence[str],
    refused: Sequence[Refusal],
    *,
    inherited: bool = False,
) -> list[Refusal]:
    """Return the refusals of those entries that are programs and do not pass their own tests; what is
    ``refused`` already is not run. Those that are ``inherited`` were let in once, by
    options that nobody knows: all of them are run, for the longest that a run may allow."""
    before = {one.entry_digest for one in refused}
    programs = context.method.programs(artifact, [one for one in entries if one not in before])
    slots = asyncio.Semaphore(AT_ONCE)
    stated = None if inherited else context.spec.method.programs
    seconds = stated.test_seconds if stated else MOST_TEST_SECONDS
    most = len(programs) if inherited else MOST
    tried, beyond = list(programs)[:most], list(programs)[most:]
    whys = await asyncio.gather(*(_why(context, programs[digest], seconds, slots) for digest in tried))
    reasons = dict(zip(tried, whys, strict=True))
    reasons |= dict.fromkeys(beyond, f"more than {MOST} programs came with it")
    return [
        Refusal(digest, _named(programs[digest]), "program", why) for digest, why in reasons.items() if why
    ]


def _named(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def can_be_proved(context: WorkContext) -> None:
    """Raise UserError where the run takes programs and none can be confined here and now; a run that is done
    again by its record runs none."""
    if context.spec.method.programs is not None and not isinstance(context.memo, Recorded):
        await proved(SAMPLE, MOST_TEST_SECONDS)


async def _why(context: WorkContext, program: str, seconds: int, slots: asyncio.Semaphore) -> str:
    """Return why a program does not pass, or empty."""
    if context.memo is None:
        raise BugError("a step that lets programs in has no memo")

    async def run() -> Completion:
        proof = await proved(program, seconds)
        return Completion(proof.why, 0, 0, 0, proof.seconds, "stop", 1)

    key = digest_of(["program", context.prefix, program, seconds])
    return (await context.memo.once(key, run, slot=slots)).completion.text
