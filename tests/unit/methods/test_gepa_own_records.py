"""A task with its own records per component and several objectives: GEPA takes over both."""

from __future__ import annotations

from dataclasses import replace

from gepa_makers import GEPA, answer, rewrite, settled, variant

from combee.methods.components.pool import Pool
from combee.methods.components.standing import objectives, rendered_variant, scores
from combee.methods.gepa.draws import Draws
from combee.methods.gepa.pareto import choose_parents, fronts
from combee.records import Shown, Trajectory

BATCH = {str(k): answer(str(k), 0.0) for k in range(4)}
SELECT = ["s1", "s2"]


def reflected(records: tuple[tuple[str, str], ...] | None, k: int = 0):
    trajectory = replace(answer(str(k), 0.0), records=records)
    return GEPA.parse_reflection("", reflection_id=f"r-{k}", trajectory=trajectory)


def test_each_component_has_the_records_that_the_task_made_for_it() -> None:
    shown = rendered_variant(variant(ask="Ask.", check="Check.", idle="Wait."))
    first = reflected((("ask", "Inputs: 1 + 1?\nFeedback: add"), ("check", "Feedback: check")), 0)
    second = reflected((("ask", "Feedback: [r-9] add, too"),), 1)
    nothing = reflected((), 2)
    parts = GEPA.parts(shown, [first, second, nothing])
    assert [(part.shown.text, len(part.reflections)) for part in parts] == [("Ask.", 2), ("Check.", 1)]
    asked = GEPA.leaf_prompt(parts[0].shown, parts[0].reflections).messages[0].content
    assert "[r-0] Inputs: 1 + 1? Feedback: add\n[r-1] Feedback: (r-9] add, too" in asked
    assert "Feedback: check" not in asked


def test_a_component_is_reduced_by_its_own_records_alone_whatever_the_strategy() -> None:
    """What strategies read of a reflection, and what is counted of it, are its lessons."""
    shown = rendered_variant(variant(ask="Ask.", check="Check."))
    both = reflected((("ask", "Asked too late."), ("check", "Checked in vain.")))
    parts = GEPA.parts(shown, [both, reflected((("ask", ""), ("check", "Not checked.")), 1)])
    assert [[one.text for of in part.reflections for one in of.lessons] for part in parts] == [
        ["Asked too late."],
        ["Checked in vain.", "Not checked."],
    ]
    asked = GEPA.summary_prompt(parts[0].reflections).messages[-1].content
    assert "Asked too late." in asked and "Checked in vain." not in asked


def test_without_records_of_its_own_an_example_is_one_record_of_all_components() -> None:
    shown = rendered_variant(variant(ask="Ask.", check="Check."))
    parts = GEPA.parts(shown, [reflected(None)])
    assert [part.shown.text for part in parts] == ["Ask.", "Check."]
    assert "Given: asked" in GEPA.leaf_prompt(parts[1].shown, parts[1].reflections).messages[0].content


def test_what_is_tried_is_shown_with_its_components() -> None:
    pool = GEPA.initial('{"ask": "Ask.", "check": "Check."}')
    (working,) = GEPA.working(pool, budget_tokens=8000, verify="Off")
    trying = GEPA.verification(
        GEPA.apply(pool, [rewrite("Ask right.", "ask")], [], iteration=0, ids=working.ids),
        trajectories=BATCH,
        budget_tokens=8000,
        verify="Off",
    )
    minibatch = next(trying)
    components = (("ask", "Ask right."), ("check", "Check."))
    text = "# ask\n\nAsk right.\n\n# check\n\nCheck."
    assert {rollout.page.shown for rollout in minibatch.rollouts} == {Shown(text, components)}
    select = trying.send([answer(rollout.example_id, 1.0) for rollout in minibatch.rollouts])
    assert {page.shown.components for page in select.sweep} == {
        (("ask", "Ask."), ("check", "Check.")),
        components,
    }


def test_objectives_are_what_a_frontier_can_be_of() -> None:
    def answering(text: str, example: str) -> Trajectory:
        found = answer(example, float("right" in text))
        return replace(found, objectives=(("brief", 1 / len(text)), ("right", found.score)))

    start = GEPA.initial("Answer.")
    proposed = GEPA.apply(start, [rewrite("Answer right.")], [], iteration=0)
    pool: Pool = settled(proposed, BATCH, answering, SELECT).artifact
    assert objectives(pool) == ["brief", "right"]
    brief = scores(pool, "brief")
    assert sorted(tuple(sorted(found)) for found in brief.values()) == [("s1", "s2")] * 2
    assert fronts(pool, "Instance") != fronts(pool, "Objective")
    drawn = {choose_parents(pool, "Objective", Draws(seed))[0] for seed in range(40)}
    assert drawn == set(pool.by_digest)
    drawn = {choose_parents(pool, "Instance", Draws(seed))[0] for seed in range(40)}
    assert len(drawn) == 1
