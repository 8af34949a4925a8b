"""Copies that are refused, losses that proposers are told of, and kinds of edits that follow their lift."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from gepa_makers import GEPA, answer, lesson, pool_of, pools, rewrite, scored, settled, variant
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.alike import COPY, copy_of
from combee.algo.tokens import estimate_tokens
from combee.methods.components.losses import KEPT, tried, with_losses
from combee.methods.components.pool import Acceptance, Edited, Lost, Pool
from combee.methods.components.standing import members, pending
from combee.methods.gepa.edits import EDIT, EDITS, drawn_edits, edit_weights, lifts
from combee.methods.protocol import TRIED_TOKENS, Proposals, Rendered
from combee.records import Diversity, Trajectory
from combee.sim.embedding import embed

START = (
    "Answer the question. Read every figure twice, write the steps down in their order, and check the sum "
    "before the answer is given."
)
HOT = Diversity(0.9)
BATCH = {str(k): answer(str(k), 0.0) for k in range(4)}


def shown(pool: Pool, diversity: Diversity | None = None, count: int = 1) -> list[Rendered]:
    return GEPA.working(pool, budget_tokens=8000, verify="Off", variants=count, diversity=diversity)


def proposed(pool: Pool, *updates: object, iteration: int = 0, diversity: Diversity | None = None) -> Pool:
    (text,) = shown(pool, diversity)
    return GEPA.apply(pool, list(updates), [], iteration=iteration, ids=text.ids)  # type: ignore[arg-type]


def new(before: Pool, *updates: object) -> Proposals:
    after = proposed(before, *updates)
    return GEPA.proposals(before, after, list(updates), shown(before))  # type: ignore[arg-type]


def never_right(text: str, example: str) -> Trajectory:
    return answer(example, 0.0)


def prompts(pool: Pool, diversity: Diversity | None = None) -> tuple[str, str]:
    """What a call about records is asked, and the last one."""
    (part,) = GEPA.parts(
        shown(pool, diversity)[0], [GEPA.parse_reflection("", reflection_id="r-1", trajectory=BATCH["1"])]
    )
    leaf = GEPA.leaf_prompt(part.shown, part.reflections).messages[0].content
    return leaf, GEPA.merge_prompt(part.shown, [lesson("Divide by 4.")]).messages[0].content


def test_a_copy_of_what_leads_is_refused_without_a_rollout() -> None:
    start = GEPA.initial(START)
    copied = proposed(start, rewrite(START.replace("twice,", "twice -").lower()))
    assert pending(copied) == [] and len(copied.variants) == 1
    assert [(one.text, one.reason[:21]) for one in copied.lost] == [("", "refused without a try")]
    assert copied.drawn == 1
    other = proposed(start, rewrite(f"{START}\nState the unit."))
    assert len(pending(other)) == 1 and not other.lost


RULES = (
    "When the ratio asks for a share, divide the part by the whole and state two decimals.",
    "Read every figure in the table twice before a formula is chosen.",
    "For compound interest raise one plus the rate to the number of periods.",
    "Subtract depreciation before tax where operating income is asked.",
    "Convert quarterly rates to yearly ones by multiplying by four.",
    "Use average inventory where turnover is asked.",
    "State a loss as a negative number and never in brackets.",
)


@pytest.mark.parametrize("count", [4, 5, 6])
def test_an_embedder_would_refuse_what_adds_a_rule(count: int) -> None:
    """Why copies are found without a model: the cosine of two whole texts hides what one says more."""
    before, after = "\n".join(RULES[:count]), "\n".join(RULES[: count + 1])
    assert float(embed(before) @ embed(after)) > COPY
    assert not copy_of(after, [before])


def test_what_lost_its_minibatch_is_told_to_who_writes_a_text_and_to_no_agent() -> None:
    assert "TRIED AND REFUSED" not in "".join(prompts(GEPA.initial(START), HOT))
    lost = settled(
        proposed(GEPA.initial(START), rewrite(f"{START}\nGuess boldly.")), BATCH, never_right, ["s1"]
    )
    leaf, last = prompts(lost.artifact, HOT)
    assert "# TRIED AND REFUSED (1)" in last
    assert "- Guess boldly. (+0.0 in sum on 4 examples)" in last
    assert last.index("TRIED AND REFUSED") < last.index("# LESSONS")  # what varies comes last
    # Nor is a call that distils lessons, one by one, from records: they may be right.
    assert "Guess" not in leaf
    assert "Guess" not in "".join(prompts(lost.artifact))
    assert "Guess" not in GEPA.render(lost.artifact, budget_tokens=8000, verify="Off").text
    assert "Guess" not in shown(lost.artifact, HOT)[0].shown.text


def test_a_refused_text_with_private_data_is_told_to_nobody() -> None:
    grown = proposed(GEPA.initial(START), rewrite("Write to jane.doe@example.com first."))
    corpus = GEPA.leak_corpus([])
    refusals = GEPA.checks(grown, GEPA.new_entries(GEPA.initial(START), grown), corpus=corpus)
    assert [one.kind for one in refusals] == ["leak"]
    done = settled(GEPA.with_refusals(grown, refusals), BATCH, never_right, ["s1"])
    assert not done.artifact.lost and "jane" not in "".join(prompts(done.artifact, HOT))


@given(
    st.lists(
        st.builds(
            Lost,
            st.integers(0, 40),
            st.text("ab", max_size=3),
            st.sampled_from("xy"),
            st.text("w ", max_size=900),
            st.just("why"),
        ),
        max_size=20,
    )
)
def test_what_is_told_is_the_latest_and_bounded(facts: list[Lost]) -> None:
    pool = with_losses(GEPA.initial(START), frozenset(facts))
    assert pool.lost == frozenset(sorted(set(facts), reverse=True)[:KEPT])
    for name in "xy":
        assert sum(estimate_tokens(line) for of, line in tried(pool) if of == name) <= TRIED_TOKENS


def test_what_is_proposed_again_is_counted_as_repeated() -> None:
    start = GEPA.initial(START)
    bold, calm = f"{START}\nGuess boldly and never look back.", f"{START}\nState the unit."
    assert new(start) == Proposals(0, 0)
    assert new(start, rewrite(START)) == Proposals(1, 1)
    assert new(start, rewrite(bold)) == Proposals(1, 0)
    assert new(start, rewrite(bold), lesson("Round late.")) == Proposals(2, 0)
    lost = settled(proposed(start, rewrite(bold)), BATCH, never_right, ["s1"]).artifact
    assert new(lost, rewrite(bold)) == Proposals(1, 1)
    assert new(lost, rewrite(bold.replace("Guess", "guess") + " ")) == Proposals(1, 1)
    assert new(lost, rewrite(calm)) == Proposals(1, 0)


def test_pools_from_before_there_were_such_facts_are_read_and_keep_their_bytes() -> None:
    pool = GEPA.initial(START)
    body = json.loads(pool.to_json())
    assert not {"lost", "edits"} & body.keys()
    assert GEPA.from_json(pool.to_json()) == pool
    full = proposed(pool, rewrite(START.lower()), diversity=HOT)
    assert GEPA.from_json(full.to_json()).lost == full.lost != frozenset()


@given(pools, st.integers(1, 4), st.integers(0, 50))
def test_kinds_are_drawn_by_weight_from_the_pools_own_state(pool: Pool, count: int, drawn: int) -> None:
    pool = replace(pool, drawn=drawn)
    found = drawn_edits(pool, [], count)
    assert found == drawn_edits(pool, [], count) and set(found) <= EDITS.keys() and len(found) == count
    assert drawn_edits(pool, [("insert", 1.0), ("unknown", 5.0)], count) == ["insert"] * count
    assert drawn_edits(replace(pool, drawn=drawn + 1), [], count)[:-1] == found[1:]


def test_each_kind_comes_up_where_all_are_alike() -> None:
    pool = GEPA.initial(START)
    found = [drawn_edits(replace(pool, drawn=drawn), [], 1)[0] for drawn in range(600)]
    assert all(60 <= found.count(name) <= 140 for name in EDITS), found


@pytest.mark.parametrize("name", sorted(EDITS))
def test_the_last_call_is_asked_for_the_kind_that_was_drawn(name: str) -> None:
    drawn = Diversity(0.5, weights=((name, 1.0),))
    leaf, last = prompts(GEPA.initial(START), drawn)
    assert EDITS[name] in last and EDITS[name] not in leaf
    assert EDITS[name] not in prompts(GEPA.initial(START))[1]
    grown = proposed(GEPA.initial(START), rewrite("Be brief."), diversity=drawn)
    assert {one.edit for one in grown.edits} == {name} and len(grown.edits) == 1
    assert not proposed(GEPA.initial(START), rewrite("Be brief.")).edits


def test_a_fresh_iteration_builds_on_the_start_whatever_leads() -> None:
    start, good = variant(instructions="start"), variant(instructions="good")
    pool = replace(pool_of(start, good), scores=scored({start: {"a": 0.0}, good: {"a": 1.0}}))
    assert shown(pool, HOT)[0].text == "good"
    assert [one.text for one in shown(pool, replace(HOT, fresh=True))] == ["start"]
    texts = [one.text for one in shown(pool, replace(HOT, fresh=True), count=2)]
    assert texts[0] == "start" and len(set(texts)) == len(texts)


def test_a_lift_is_the_childs_mean_on_select_over_its_parents() -> None:
    start, good, bad = (variant(instructions=text) for text in ("start", "good", "bad"))
    pool = replace(
        pool_of(start, good),
        scores=scored({start: {"a": 0.0, "b": 1.0, "c": 0.0}, good: {"a": 1.0, "b": 1.0}}),
        edits=frozenset(
            {Edited(good.digest, "insert"), Edited(bad.digest, "delete"), Edited("0", "reorder")}
        ),
    )
    pool = replace(pool, judged=pool.judged | {Acceptance(bad.digest, False, -1.0, 4)})
    assert {name: found for name, found in lifts(pool).items() if found} == {"insert": [0.5], "delete": [0.0]}
    weights = edit_weights(pool)
    assert max(weights, key=weights.__getitem__) == "insert"
    assert sum(weights.values()) == pytest.approx(1) and members(pool)


@given(pools)
def test_weights_are_there_for_any_pool(pool: Pool) -> None:
    assert set(edit_weights(replace(pool, variants=frozenset()))) == EDITS.keys()
    assert EDIT not in GEPA.render(GEPA.initial(""), budget_tokens=9, verify="Off").ids


def test_components_that_are_tried_by_themselves_count_for_the_kind_of_their_child() -> None:
    """The joint child lost and lifted nothing; of its two parts the one that helps is in."""
    start = GEPA.initial('{"ask": "Ask.", "check": "Check."}')
    (text,) = shown(start, HOT)
    updates = [rewrite("Ask well.", "ask"), rewrite("Check badly.", "check")]
    joint = GEPA.apply(start, updates, [], iteration=0, ids=text.ids)

    def by_words(text: str, example: str) -> Trajectory:
        return answer(example, float("well" in text and "badly" not in text))

    after = settled(joint, BATCH, by_words, ["s1", "s2"]).artifact
    kind = text.ids[EDIT]
    assert sorted(lifts(after)[kind]) == [0.0, 0.0, 1.0]
    assert all(not own for name, own in lifts(after).items() if name != kind)
    assert edit_weights(after)[kind] == max(edit_weights(after).values()) > 1 / len(EDITS)
