"""Whether a model's context has room for a prompt and its reply. Pure.

vLLM gives a reply what the prompt leaves of the context, however little that is, and only cuts it there.
"""

from __future__ import annotations

from combee.clients.model.body import prompt_tokens
from combee.clients.model.wire import ChatRequest, Completion
from combee.errors import ContextLengthError

SURE = 0.9
"""The share of a prompt's expected tokens that it certainly has: the factor is a mean over many prompts."""
LEAST_FACTOR = 0.6
"""Tokens for each estimated one where none were counted yet: few vocabularies need less."""


def check_room(request: ChatRequest, context_tokens: int, token_factor: float | None, where: str) -> None:
    """Raise ContextLengthError where the prompt certainly leaves less than the reply may need.

    ``token_factor``: the tokens that the server counted for each estimated one; None: not known yet.
    """
    factor = LEAST_FACTOR if token_factor is None else SURE * token_factor
    expected_tokens = int(factor * prompt_tokens(request.prompt))
    if expected_tokens + request.output_tokens > context_tokens:
        left_tokens = context_tokens - expected_tokens
        raise _no_room(f"about {expected_tokens:,}", left_tokens, request, context_tokens, where)


def check_cut(request: ChatRequest, done: Completion, context_tokens: int, where: str) -> None:
    """Raise ContextLengthError where a reply was cut because the prompt left it no more room."""
    left_tokens = context_tokens - done.prompt_tokens
    if done.finish_reason == "length" and done.completion_tokens >= left_tokens < request.output_tokens:
        raise _no_room(f"{done.prompt_tokens:,}", left_tokens, request, context_tokens, where)


def _no_room(prompt: str, left: int, request: ChatRequest, context: int, where: str) -> ContextLengthError:
    return ContextLengthError(
        f"a prompt of {prompt} tokens leaves {max(0, left):,} of the model's {context:,} for a reply of "
        f"{request.output_tokens:,}",
        where=where,
        fix="Lower method.renderTokenBudget, aggregation.maxInputTokens, sampling.maxTokens or "
        "sampling.reasoningTokens, or serve the model with a longer context",
    )
