"""Leaves are told which entries lost their replays, where the manifest says so, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ace_makers import ACE, add, learn, reflection
from test_ace_proposed import RIGHT, WRONG, tried_out

from combee.algo.tokens import estimate_tokens
from combee.api.digests import canonical
from combee.api.load import parse_run
from combee.methods.ace import AceMethod, Ledger
from combee.methods.ace.change import with_verdicts
from combee.methods.ace.entries import entry_digest
from combee.methods.ace.refused import refused
from combee.methods.protocol import TRIED_TOKENS, Refusal, Verdict
from combee.methods.registry import method_of
from combee.records import Prompt

TELLING = AceMethod(tell_refused=True)


def leaf(method: AceMethod, ledger: Ledger) -> Prompt:
    """What a leaf is asked with the playbook of a ledger."""
    (text,) = method.working(ledger, budget_tokens=8000, verify="Replay")
    return method.leaf_prompt(text, [reflection(1, "Use 12 months")])


def test_what_lost_its_replay_stands_before_the_reflections_with_its_reason() -> None:
    plain, told = leaf(ACE, tried_out()), leaf(TELLING, tried_out())
    block, listed = told.messages[1].content.split("# REFLECTIONS")
    assert block.startswith("# TRIED AND REFUSED (1)\n")
    assert f"- {WRONG} (it does not fix its own example)\n" in block
    assert RIGHT not in block and "1@0" not in block
    assert f"# REFLECTIONS{listed}" == plain.messages[1].content
    assert replace(told, messages=plain.messages) == plain, "only the user's message differs"


@pytest.mark.parametrize("ledger", [Ledger(), learn(add(WRONG, "1@0"))], ids=["empty", "not replayed"])
def test_a_prompt_is_the_same_to_the_byte_where_nothing_was_refused(ledger: Ledger) -> None:
    assert leaf(TELLING, ledger) == leaf(ACE, ledger)


def test_agents_are_shown_none_of_it() -> None:
    for method in (ACE, TELLING):
        (text,) = method.working(tried_out(), budget_tokens=8000, verify="Replay")
        assert WRONG not in text.shown.text and "REFUSED" not in text.shown.text


@pytest.mark.parametrize("kind", ["leak", "injection"])
def test_a_private_or_hostile_entry_is_told_to_nobody(kind: str) -> None:
    refusal = Refusal(entry_digest(WRONG), "0" * 64, kind, "it copies a row")  # type: ignore[arg-type]
    assert refused(ACE.with_refusals(tried_out(), [refusal])) == ()


def test_an_entry_that_won_once_is_not_called_refused() -> None:
    assert refused(with_verdicts(tried_out(), [Verdict(entry_digest(WRONG), "5@0", True, 0)])) == ()


def test_what_is_told_is_bounded_and_the_order_of_facts_does_not_matter() -> None:
    texts = [f"Rule {k}: {'say it at length, ' * 12}." for k in range(40)]
    ledger = learn(*(add(text, f"{k}@0") for k, text in enumerate(texts)))
    verdicts = [Verdict(entry_digest(text), f"{k}@0", False, 0) for k, text in enumerate(texts)]
    lines = refused(with_verdicts(ledger, verdicts))
    assert 1 < len(lines) < len(texts)
    assert sum(estimate_tokens(line) for _, line in lines) <= TRIED_TOKENS
    assert lines == refused(with_verdicts(ledger, verdicts[::-1]))


def test_it_is_asked_for_in_the_manifest_and_one_that_does_not_keeps_its_digest() -> None:
    role = {"endpoint": {"url": "http://m/v1", "model": "m"}}
    spec = {
        "task": {"type": "Formula", "data": {"train": {"uri": "t.jsonl"}, "heldOut": {"uri": "h.jsonl"}}},
        "models": {"task": role, "proposer": role},
    }
    head = {"apiVersion": "combee.dev/v1alpha1", "kind": "PromptLearningRun", "metadata": {"name": "r"}}

    def made(**ace: bool) -> tuple[bool, dict[str, object]]:
        method = {"type": "ACE", **({"ace": ace} if ace else {})}
        parsed = parse_run({**head, "spec": {**spec, "method": method}}, "test").spec
        return method_of(parsed).tell_refused, canonical(parsed)["method"].get("ace", {})  # type: ignore[attr-defined]

    assert made()[0] is False and "tellRefused" not in made(reasoning=False)[1]
    assert made(tellRefused=True)[0] is True and made(tellRefused=True)[1]["tellRefused"] is True
    assert made(tellRefused=False)[1] == {
        key: value for key, value in made()[1].items() if key != "tellRefused"
    }
