"""TextGrad: what is asked about an attempt, how criticism becomes one rewrite, and when a rewrite is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from gepa_makers import answer, lesson, rewrite
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.tokens import estimate_tokens
from combee.methods.components.pool import Acceptance, Gradient, Pool
from combee.methods.components.prompts import EVERY
from combee.methods.components.standing import best, members, scores
from combee.methods.protocol import VARIANT, ParseError
from combee.methods.textgrad import Terms, TextGradMethod
from combee.methods.textgrad.momentum import EARLIER_TOKENS, earlier, noted
from combee.methods.verification import Verified
from combee.records import Prompt, Reflection, Trajectory

METHOD = TextGradMethod(Terms(seed=7))
MOMENTUM = TextGradMethod(Terms(seed=7, momentum=2, constraints=("At most ten rules.", "No [r-1] names.")))
WHOLE = TextGradMethod(Terms(seed=7, whole_texts=True))
START = METHOD.initial("Answer.")
SELECT = ("s1", "s2", "s3", "s4")
WRONG = answer("1", 0.0)


def told(prompt: Prompt | None) -> str:
    assert prompt is not None
    return "\n".join(message.content for message in prompt.messages)


def criticised(text: str, trajectory: Trajectory = WRONG, name: str = "r-1") -> Reflection:
    return METHOD.parse_reflection(text, reflection_id=name, trajectory=trajectory)


def texts_of(reflection: Reflection) -> dict[str, str]:
    return {one.id.removeprefix("r-1."): one.text for one in reflection.lessons}


def settled(
    pool: Pool, score: Callable[[str, str], float | None], method: TextGradMethod = METHOD
) -> Verified:
    """Drive a verification; ``score`` says what a text scores on a row of select, None where it is lost."""
    trying = method.verification(pool, trajectories={}, budget_tokens=8000, verify="Replay")
    try:
        asked = next(trying)
        while True:
            assert not asked.rollouts
            values = [(row, score(page.text, row)) for page in asked.sweep for row in SELECT]
            asked = trying.send(
                [
                    answer(row, value or 0.0, error="" if value is not None else "lost")
                    for row, value in values
                ]
            )
    except StopIteration as done:
        return done.value


def proposed(pool: Pool, text: str, iteration: int = 0, method: TextGradMethod = METHOD) -> Pool:
    updates = [rewrite(text), lesson(f"Lesson of {text}", "1@0")]
    return method.apply(pool, updates, [], iteration=iteration, ids={VARIANT: best(pool).digest})


def test_an_attempt_that_came_out_right_is_not_criticised_and_no_call_is_made() -> None:
    assert METHOD.reflect_prompt("Answer.", answer("1", 1.0), 1, None) is None
    assert criticised("", answer("1", 1.0)).lessons == ()
    asked = told(METHOD.reflect_prompt("Answer.", WRONG, 1, None))
    assert "# INSTRUCTIONS\n\nAnswer." in asked and "It is 42." in asked


def test_a_row_is_tried_again_with_what_was_said_of_it() -> None:
    asked = told(METHOD.retry_prompt("Solve.", "Answer.", "What is 6 times 7?", criticised("Multiply.")))
    assert "Answer.\nMultiply." in asked and asked.endswith("# TASK\n\nWhat is 6 times 7?")


def test_with_several_parts_a_remark_says_which_it_concerns() -> None:
    several = METHOD.initial('{"ask": "Ask.", "check": "Check."}')
    (shown,) = METHOD.working(several, budget_tokens=8000, verify="Replay")
    asked = METHOD.reflect_prompt(shown.text, WRONG, 1, None)
    part = asked.schema["properties"]["criticism"]["items"]["properties"]["part"]
    assert part["enum"] == [EVERY, "ask", "check"]
    alone = METHOD.reflect_prompt("Answer.", WRONG, 1, None)
    assert "part" not in alone.schema["properties"]["criticism"]["items"]["properties"]
    given = criticised(
        '{"criticism": [{"text": "Late.", "part": "ask"}, {"text": "Twice.", "part": "check"},'
        ' {"text": "Once.", "part": "check"}, {"text": "Brief.", "part": "*"}]}'
    )
    assert texts_of(given) == {"*": "Brief.", "ask": "Late.", "check": "Twice. Once."}
    parts = {part.name: part for part in METHOD.parts(shown, [given])}
    asked_of = {name: told(METHOD.leaf_prompt(part.shown, part.reflections)) for name, part in parts.items()}
    assert "[r-1] Brief. Late." in asked_of["ask"] and "[r-1] Brief. Twice. Once." in asked_of["check"]


def test_a_tasks_own_records_are_told_by_part() -> None:
    records = (("ask", "Asked too late."), ("check", "Checked in vain."))
    asked = told(
        METHOD.reflect_prompt("# ask\n\nAsk.\n\n# check\n\nCheck.", replace(WRONG, records=records), 1, None)
    )
    assert "## ask\n\nAsked too late.\n\n## check\n\nChecked in vain." in asked


@pytest.mark.parametrize(
    ("text", "remarks"),
    [
        ("Say how to round.", {"*": "Say how to round."}),
        ('{"criticism": ["Round late."]}', {"*": "Round late."}),
        ('Here: {"criticism": [{"text": "Round [r-2] late."}, {"text": 4}, 7]}', {"*": "Round (r-2] late."}),
        ('{"criticism": [{"text": "Late.", "part": "# ask"}]}', {"ask": "Late."}),
        ('{"criticism": []}', {}),
    ],
)
def test_criticism_is_read_with_tolerance(text: str, remarks: dict[str, str]) -> None:
    assert texts_of(criticised(text)) == remarks


@pytest.mark.parametrize("text", ["", " \n", '{"criticism": "none"}', "{broken", '{"other": []}'])
def test_what_holds_no_criticism_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        criticised(text)


def test_the_step_is_given_what_most_attempts_bear_out_within_the_caps_and_no_lesson_stands_below_it() -> (
    None
):
    lessons = [lesson(f"Rule number {k}.", *(f"{n}@0" for n in range(k))) for k in range(1, 41)]
    grouping = METHOD.group(lessons, cap=32)
    (cluster,) = grouping.clusters
    assert [one.text for one in cluster] == [f"Rule number {k}." for k in range(40, 8, -1)]
    assert len(grouping.passed) == 8
    updates = [*grouping.passed, *METHOD.reconcile_merge(cluster, [rewrite("Answer right.")])]
    pool = METHOD.apply(START, updates, [], iteration=0)
    assert {one.text for one in pool.variants} == {"Answer.", "Answer right."}
    assert METHOD.apply(START, grouping.passed, [], iteration=0).variants == START.variants


def test_constraints_and_earlier_steps_are_told_last_and_first_and_only_where_there_are_any() -> None:
    (shown,) = METHOD.working(START, budget_tokens=8000, verify="Replay")
    plain = told(METHOD.merge_prompt(shown, [lesson("Round late.")]))
    assert "- Round late. (1 record)" in plain
    assert "CONSTRAINTS" not in plain and "EARLIER" not in plain
    pool = settled(
        proposed(START, "Answer right.", method=MOMENTUM), lambda text, row: 1.0 if "right" in text else 0.0
    )
    (shown,) = MOMENTUM.working(pool.artifact, budget_tokens=8000, verify="Replay")
    (part,) = MOMENTUM.parts(shown, [criticised("Late.")])
    asked = told(MOMENTUM.merge_prompt(part.shown, [lesson("Round late.")]))
    sections = [line for line in asked.splitlines() if line.startswith("# ")]
    assert sections == ["# EARLIER STEPS", "# LESSONS (1)", "# CONSTRAINTS (2)"]
    assert "- Lesson of Answer right. (iteration 0, kept: +4.0 on 4 examples)" in asked
    assert "- At most ten rules.\n- No (r-1] names." in asked
    assert "EARLIER" not in told(MOMENTUM.leaf_prompt(part.shown, part.reflections))


def test_where_no_other_call_follows_all_criticism_goes_into_one_step_as_the_paper_sums_it() -> None:
    (shown,) = WHOLE.working(START, budget_tokens=8000, verify="Replay")
    reflections = [criticised(f"Remark {k}.", answer(str(k), 0.0), f"r-{k}") for k in range(60)]
    (part,) = WHOLE.parts(shown, reflections)
    asked = WHOLE.leaf_prompt(part.shown, part.reflections)
    assert asked.schema is None
    assert [line for line in told(asked).splitlines() if line.startswith("- Remark")] == [
        f"- Remark {k}. (1 record)" for k in range(60)
    ]
    (update,) = WHOLE.parse_leaf("```\nAnswer right.\n```", reflections=part.reflections, playbook=part.shown)
    assert (update.op, update.text, len(update.sources)) == ("UPDATE", "Answer right.", 60)
    merged = told(WHOLE.merge_prompt(part.shown, [update, rewrite("Answer soon.")]))
    assert "# PROPOSALS (2)" in merged


@pytest.mark.parametrize(("gain", "kept"), [(1.0, True), (0.0, False), (-1.0, False)])
def test_a_rewrite_is_kept_when_it_scores_more_on_select_and_else_the_text_of_before_stays(
    gain: float, kept: bool
) -> None:
    done = settled(proposed(START, "Answer right."), lambda text, row: 1.0 + gain * ("right" in text))
    pool = done.artifact
    assert best(pool).text == ("Answer right." if kept else "Answer.")
    assert (done.candidates, done.decided, done.passed) == (1, 1, int(kept))
    assert set(scores(pool)) == set(members(pool)) and len(members(pool)) == 1 + kept
    assert dict(done.known) == dict.fromkeys(SELECT, (1.0 + max(gain, 0.0), None))
    again = proposed(pool, "Answer right.", iteration=1)
    assert settled(again, lambda text, row: 1.0).candidates == 0


def test_the_start_is_scored_with_the_first_rewrite_and_not_again() -> None:
    pool = proposed(START, "Answer right.")
    asked = next(METHOD.verification(pool, trajectories={}, budget_tokens=8000, verify="Replay"))
    assert [page.text for page in asked.sweep] == ["Answer.", "Answer right."]
    kept = settled(pool, lambda text, row: float("right" in text)).artifact
    later = next(
        METHOD.verification(proposed(kept, "Be right."), trajectories={}, budget_tokens=8000, verify="Off")
    )
    assert [page.text for page in later.sweep] == ["Be right."]
    assert settled(kept, lambda text, row: pytest.fail("nothing is to be scored")).artifact == kept


def test_a_rewrite_that_was_hardly_answered_has_no_verdict_and_may_come_again() -> None:
    def score(text: str, row: str) -> float | None:
        return None if "right" in text and row != "s1" else 0.0

    done = settled(proposed(START, "Answer right."), score)
    assert (done.candidates, done.decided, best(done.artifact).text) == (1, 0, "Answer.")
    again = settled(proposed(done.artifact, "Answer right.", 1), lambda text, row: float("right" in text))
    assert (again.decided, best(again.artifact).text) == (1, "Answer right.")


def test_without_momentum_nothing_of_a_step_is_remembered() -> None:
    assert proposed(START, "Answer right.").gradients == frozenset()
    assert b"gradients" not in proposed(START, "Answer right.").to_json()


def test_with_momentum_the_latest_steps_are_remembered_with_what_became_of_them() -> None:
    pool = START
    for iteration, text in enumerate(("Answer right.", "Answer wrong.", "Answer Answer right.")):
        grown = proposed(pool, text, iteration, MOMENTUM)
        pool = settled(grown, lambda text, row: float("right" in text), MOMENTUM).artifact
    assert sorted({fact.iteration for fact in pool.gradients}) == [1, 2]
    assert [line for _, line in earlier(pool)] == [
        "Lesson of Answer Answer right. (iteration 2, not kept: +0.0 on 4 examples)",
        "Lesson of Answer wrong. (iteration 1, not kept: -4.0 on 4 examples)",
    ]
    assert METHOD.from_json(pool.to_json()) == pool


def test_momentum_remembers_the_criticism_itself_where_one_call_was_given_it() -> None:
    reflections = [criticised("Remark.", name="r-1")]
    pool = noted(START, [], reflections, names=["instructions"], variant="", iteration=3, momentum=1)
    assert earlier(pool) == (("instructions", "Remark. (iteration 3, not tried)"),)


def test_of_long_criticism_as_much_is_told_as_fits_the_latest_first() -> None:
    long = (Gradient(k // 8, "instructions", k % 8, f"{k} {'x' * 590}", "") for k in range(64))
    lines = [line for _, line in earlier(replace(START, gradients=frozenset(long)))]
    assert len(lines) == 12 and lines[0].startswith("56 x") and lines[-1].startswith("51 x")
    assert sum(map(estimate_tokens, lines)) <= EARLIER_TOKENS


@pytest.mark.parametrize(("cap", "kept"), [(24_000, 1), (9_000, 1), (6_000, 1), (4_100, 0)])
def test_a_rewrites_call_fits_and_leaves_out_the_oldest_steps_first(cap: int, kept: int) -> None:
    constraints = tuple(f"{k} {'x' * 297}" for k in range(8))
    method = TextGradMethod(Terms(7, 3000, momentum=16, constraints=constraints, call_tokens=cap))
    started = method.initial("word " * 2300)
    text = best(started).digest
    steps = (Gradient(k // 8, "instructions", k % 8, f"step {k // 8} {'x' * 590}", "") for k in range(64))
    (shown,) = method.working(replace(started, gradients=frozenset(steps)), budget_tokens=3000, verify="Off")
    assert shown.variant == text
    (part,) = method.parts(shown, [criticised("Late.")])
    lessons = [lesson(f"Rule number {k}: {'y ' * 500}", f"{k}@0") for k in range(60)]
    (cluster,) = method.group(lessons, cap=32, max_tokens=cap).clusters
    asked = method.merge_prompt(part.shown, cluster)
    assert sum(estimate_tokens(message.content) for message in asked.messages) <= cap
    told_of = [line.split(" ")[2] for line in told(asked).splitlines() if line.startswith("- step")]
    assert told_of == sorted(told_of, reverse=True) and set(told_of[:1]) == {"7"} if kept else not told_of
    assert told(asked).count("- Rule number") >= 1 and "- 7 xxx" in told(asked)


facts = st.builds(
    Gradient,
    st.integers(0, 5),
    st.sampled_from(["ask", "check"]),
    st.integers(0, 40),
    st.text("ab ", max_size=400),
    st.sampled_from(["", "v"]),
)


@given(st.frozensets(facts, max_size=60), st.frozensets(facts, max_size=60))
def test_what_is_told_of_earlier_steps_is_bounded_and_does_not_depend_on_the_order_of_joins(
    one: frozenset[Gradient], other: frozenset[Gradient]
) -> None:
    a, b = replace(START, gradients=one), replace(START, gradients=other)
    lines = earlier(a.join(b))
    assert lines == earlier(b.join(a))
    spent: Mapping[str, int] = {
        name: sum(estimate_tokens(line) for component, line in lines if component == name)
        for name, _ in lines
    }
    assert all(tokens <= EARLIER_TOKENS for tokens in spent.values())
    assert METHOD.from_json(a.to_json()) == a


def test_the_same_text_again_is_counted_as_repeated_whatever_the_lessons_were() -> None:
    (shown,) = METHOD.working(START, budget_tokens=8000, verify="Replay")
    updates = [rewrite("Answer."), lesson("A new lesson.")]
    found = METHOD.proposals(START, START, updates, [shown])
    assert (found.made, found.repeated) == (1, 1)
    judged = replace(START, judged=frozenset({Acceptance("x", False, 0.0, 4)}))
    assert METHOD.proposals(judged, judged, [rewrite("Other."), lesson("A.")], [shown]).repeated == 0


class Constant:
    """As the textgrad package's test double: one answer to everything."""

    def __call__(self, prompt: str, system_prompt: str) -> str:
        return "Hello World"


class Echo:
    """As the textgrad package's test double: the prompt is the answer."""

    def __call__(self, prompt: str, system_prompt: str) -> str:
        return prompt


Engine = Callable[[str, str], str]


@pytest.mark.parametrize("engine", [Constant(), Echo()], ids=["constant", "echo"])
def test_engines_of_textgrads_own_tests_drive_a_step_of_one_call(engine: Engine) -> None:
    """Criticism and the rewrite are plain text there and here. Its sum is no call; ours, the leaf of a tree,
    asks for JSON that cites, which neither engine gives: it has no step by the tree."""

    def said(prompt: Prompt) -> str:
        *system, user = (message.content for message in prompt.messages)
        return engine(user, "\n".join(system))

    (shown,) = WHOLE.working(START, budget_tokens=8000, verify="Replay")
    reflection = WHOLE.parse_reflection(
        said(WHOLE.reflect_prompt(shown.text, WRONG, 1, None)), reflection_id="r-1", trajectory=WRONG
    )
    assert len(reflection.lessons) == 1
    (part,) = WHOLE.parts(shown, [reflection])
    asked = WHOLE.leaf_prompt(part.shown, part.reflections)
    updates = WHOLE.parse_leaf(said(asked), reflections=part.reflections, playbook=part.shown)
    pool = WHOLE.apply(START, updates, [reflection], iteration=0, ids=shown.ids)
    assert {one.text for one in pool.variants} - {"Answer."} == {
        "Hello World" if isinstance(engine, Constant) else told(asked).strip()
    }
    with pytest.raises(ParseError):
        METHOD.parse_leaf(
            said(METHOD.leaf_prompt(part.shown, part.reflections)), reflections=[], playbook=shown
        )
