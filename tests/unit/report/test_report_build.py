"""The report: whole for every kind of end, escaped, self-contained, equal for equal results."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import made_up
import pytest

from combee.algo.gates import examples_needed
from combee.report import strategist, views, words
from combee.report.build import build_report, lessons_markdown
from combee.report.figures import figures
from combee.report.parts import Servers
from combee.report.result import to_bytes
from combee.report.tables import tables

HOSTILE = (
    "</li></style></svg><script>alert(1)</script><img src=x onerror=alert(2)> {{ 7*7 }} & &lt;b&gt; "
    "[click](https://evil.example/x) ![i](http://evil.example/y) `code` www.evil.example | cell\n# heading "
    "\x1b[2J\u202e"
)
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks that tags are balanced."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def made(result):
    return build_report(result, lessons_markdown=lessons_markdown(result))


@pytest.fixture(scope="module")
def full():
    return made(made_up.result())


@pytest.fixture(scope="module")
def drawn():
    return figures(made_up.result())


def unsure(**change):
    """A result whose gain on gate is one example of 125: seven came right, six went wrong."""
    held_out = json.loads(to_bytes(made_up.result()))["heldOut"]
    few = {"best": 0.648, "gain": 0.008, "low": -0.048, "high": 0.064, "discordant": 13}
    change = {"outcome": "Unsure", "exitCode": 6, **change}
    return made_up.result(heldOut={**held_out, "gate": {**held_out["gate"], **few}}, **change)


def ends():
    gate = json.loads(to_bytes(made_up.result()))["heldOut"]
    no_gate = {**gate, "gate": None}
    return {
        "learned": made_up.result(),
        "failed at once": made_up.bare(),
        "stopped": made_up.bare("Stopped", 130, reason="stopped by Ctrl-C"),
        "budget": made_up.result(outcome="BudgetExhausted", exitCode=4, heldOut=no_gate, costPerPoint=None),
        "unsure": unsure(),
        "nothing better": made_up.result(
            outcome="NothingBetter", exitCode=3, entries=[], refusals=[], playbook=None
        ),
        "only the start": made_up.bare("Stopped", 130, heldOut={"baseline": {"select": 0.6}}),
        "bare iteration": made_up.bare(
            iterations=[made_up.iteration(1, None, 10, retention=None, verification=None, observations=[])]
        ),
        "one observation": made_up.bare(iterations=[made_up.iteration(1, 0.0, 10)]),
    }


@pytest.mark.parametrize("name", list(ends()))
def test_a_whole_report_for_every_end(name):
    result = ends()[name]
    report = made(result)
    page = Page(report.html)
    head = words.headline(result)
    for said in (page.text, report.markdown):
        assert head.title in said and head.verdict in said
    for table in tables(result).values():
        assert (table.title in page.text) if table.rows else (table.missing in report.markdown)


def test_the_report_says_who_keeps_heldout_what_it_was_used_for_and_what_an_error_costs(full):
    stakes = {"steward": "data-platform", "usedForTuning": True, "failureCost": "A wrong figure"}
    report = made(made_up.result(setup={"task": "Formula", **stakes}))
    page = Page(report.html).text
    for said in (page, report.markdown.replace("\\", "")):
        assert "data-platform keeps heldOut." in said
        assert "heldOut was used for tuning before" in said
        assert "rong answer costs" in said and "A wrong figure" in said
    for said in (Page(full.html).text, full.markdown):
        assert "keeps heldOut" not in said and "tuning" not in said.casefold() and "costs" not in said


def test_the_page_needs_nothing_from_outside(full):
    page = Page(full.html)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "iframe", "object", "embed", "link", "img", "base", "form", "image"}
    for _, attributes in page.tags:
        assert not [
            name for name in attributes if name.startswith("on") or name in {"src", "style", "xlink:href"}
        ]
        assert (attributes.get("href") or "#").startswith("#")
    assert "http://" not in full.html and "https://" not in full.html and "url(http" not in full.html


def test_the_policy_allows_this_style_sheet_only(full):
    style = re.search("<style>(.*?)</style>", full.html, re.S).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(a["content"] for t, a in Page(full.html).tags if a.get("http-equiv"))
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")


def test_hostile_texts_stay_texts(full):
    data = json.loads(to_bytes(made_up.result(run=HOSTILE[:150], reason=HOSTILE)))
    for entry in data["entries"]:
        entry.update(text=HOSTILE, section=HOSTILE, id=HOSTILE, sources=[HOSTILE])
    for refusal in data["refusals"]:
        refusal["reason"] = HOSTILE
    for it in data["iterations"]:
        it["batchReason"] = HOSTILE
        it["retention"]["levels"][0]["level"] = HOSTILE
    data["models"]["task"].update(model=HOSTILE, servedBy=HOSTILE)
    data["data"]["warnings"] = [HOSTILE]
    data["setup"].update(steward=HOSTILE, failureCost=HOSTILE)
    result = made_up.read_back(data)
    report = made(result)
    page = Page(report.html)
    tame = Page(full.html)
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in tame.tags}
    assert "<script>alert(1)</script>" in page.text and "{{ 7*7 }}" in page.text
    for text in (report.html, report.markdown, lessons_markdown(result)):
        assert "\x1b" not in text and "\u202e" not in text
    for text in (report.markdown, lessons_markdown(result)):
        assert not re.search(r"(?<!\\)<(script|img)", text)
        assert not re.search(r"(?<!\\)\]\(", text) and "https://" not in text and "\n# heading" not in text


def test_equal_results_give_equal_bytes(full):
    assert made(made_up.result()) == full


def test_numbers_of_a_simulated_model_say_so(full):
    page = Page(full.html)
    assert "Numbers made with a simulated model" in page.text
    assert "served by: simulated model (combee sim)" in page.text
    marked = sum(1 for tag, a in page.tags if a.get("class") == "mark")
    groups = sum(
        tag in {"table", "figure"} or "tile" in (a.get("class") or "").split() for tag, a in page.tags
    )
    assert marked >= groups
    headings = [line for line in full.markdown.splitlines() if line.startswith("## ")]
    numbers = [
        line
        for line in headings
        if line[3:].split(" (")[0] in {t.title for t in tables(made_up.result()).values()}
    ]
    assert numbers and all(line.endswith("(simulated model)") for line in numbers)


def test_a_real_model_is_not_called_simulated():
    models = {"task": {"model": "gpt-oss-120b", "endpointHost": "llm:8000", "servedBy": "vllm"}}
    report = made(made_up.result(models=models))
    assert "simulated model" not in report.html and "simulated model" not in report.markdown
    assert "served by: vllm" in report.markdown


def test_every_figure_has_words_and_axes_with_units(drawn):
    assert list(drawn) == [
        "gain",
        "score-iterations",
        "score-tokens",
        "batch-size",
        "delay",
        "residuals",
        "path",
        "latency",
        "prefix",
        "levels",
        "rarity",
    ]
    ids = []
    for figure in drawn.values():
        page = Page(figure.svg)
        assert page.tags[0][1]["role"] == "img" and page.tags[0][1]["aria-label"] == figure.alt
        assert not re.search(r"#0\d0\d0\d|style=", figure.svg)
        ids += re.findall(r'\bid="([^"]+)"', figure.svg)
        for target in re.findall(r'(?:href="#|url\(#)([^")]+)', figure.svg):
            assert f'id="{target}"' in figure.svg
    assert len(ids) == len(set(ids))
    assert (
        "batch size b (examples)" in drawn["delay"].svg and "time of an iteration (s)" in drawn["delay"].svg
    )


def test_the_model_that_was_planned_with_is_drawn_and_its_rivals_are_told():
    power = {"name": "power", "a": 9.0, "alpha": 0.5, "f": 0.0, "aicc": -41.5, "relativeError": 0.02}
    line = {"name": "T_iter", "a": 9.05, "alpha": 1.0, "f": 0.131, "aicc": -12.0, "relativeError": 0.2}
    base = made_up.iteration(5, 0.8, 84)
    fit = {**base["delayFit"], "model": power, "models": [line, power], "changedBy": 3.0}
    result = made_up.result(iterations=[{**base, "delayFit": fit}])
    drawn, told = figures(result), tables(result)["delay"].note
    assert "T(b) = 9 s × b^0.50." in drawn["delay"].caption and "b½" not in drawn["delay"].caption
    for text in (drawn["delay"].caption, told):
        assert (
            "AICc (the lowest describes these times best): T_iter -12.0, power -41.5. Planned with power."
            in text
        )
    assert "Iterations became 3 times as long" in told
    assert tables(result)["delay"].rows[0][2] == "28 s"
    assert "observed against fitted (%)" in drawn["residuals"].svg


def test_a_report_says_why_the_lowest_was_not_planned_with():
    line = {"name": "T_iter", "a": 9.05, "alpha": 1.0, "f": 0.131, "aicc": -40.0, "relativeError": 0.2}
    power = {"name": "power", "a": 9.0, "alpha": 0.5, "f": 0.0, "aicc": -41.5, "relativeError": 0.02}
    base = made_up.iteration(5, 0.8, 84)
    fit = {**base["delayFit"], "model": line, "models": [line, power]}
    told = tables(made_up.result(iterations=[{**base, "delayFit": fit}]))["delay"].note
    assert "Planned with T_iter: laws that fit about as well ask for other sizes" in told


def test_where_the_time_went_and_how_long_calls_took(drawn):
    made_tables = tables(made_up.result())
    rows = {(row[0], row[1]): row for row in made_tables["path"].rows}
    assert list(rows) == [
        ("profile", "wave 0"),
        ("map", "map"),
        ("reduce", "leaf round 1"),
        ("reduce", "merge"),
        ("finish", "replay round 1"),
        ("finish", "select"),
        ("evaluate", "gate best"),
    ]
    assert rows["map", "map"][2:] == ("604", "20 s", "38 %", "22 s")
    assert rows["reduce", "merge"][-1] == "", "the wall time of a step is said once"
    assert ("map", "map", "604", "1.0 s", "1.6 s", "2.0 s", "2.4 s") in made_tables["latency"].rows
    assert "not model time" in drawn["path"].svg and "leaf round 1" in drawn["latency"].svg
    many = made_up.result(iterations=[made_up.iteration(k + 1, 0.5, 10) for k in range(20)])
    path = figures(many)["path"].svg
    assert "20 iterations" in path and "time of all iterations (s)" in path
    assert "time of an iteration (s)" in drawn["path"].svg


def test_what_became_of_the_replies_is_said_by_stage_where_some_were_not_used():
    assert tables(made_up.result())["replies"].rows == ()
    base = made_up.iteration(1, 0.5, 10)
    stages = [{**one, "cut": 3, "unparsable": 1} if one["step"] == "map" else one for one in base["stages"]]
    rows = {
        row[1]: row[2:]
        for row in tables(made_up.result(iterations=[{**base, "stages": stages}]))["replies"].rows
    }
    assert rows["map"] == ("20", "16", "3", "1") and rows["merge"][1:] == (rows["merge"][0], "0", "0")


def test_faults_are_said_in_one_line_and_a_table():
    result = made_up.result()
    said = words.faults(result)
    assert said == (
        "the endpoint had a bad day: 52 requests sent again (32 × 429, 20 × 500), 12 broken answers asked "
        "for once "
        "more, 4 slow calls raced; nothing was lost"
    )
    report = made(result)
    assert said in Page(report.html).text and "broken answers asked" in report.markdown
    assert [row[:2] for row in tables(result)["faults"].rows] == [
        ("429", "32"),
        ("500", "20"),
        ("broken answers", "12"),
        ("stragglers", "4"),
    ]
    bad = [made_up.iteration(1, 0.5, 10, failed=1)]
    assert words.faults(made_up.result(faults={"lost": 2}, iterations=bad)) == (
        "the endpoint: calls failed; 2 calls brought no usable answer (2 unanswered), 1 example counts as "
        "wrong for it"
    )
    assert words.faults(made_up.result(faults={"hedges": 3})) == (
        "the endpoint: 3 slow calls raced; nothing was lost"
    )
    assert words.faults(made_up.bare()) == ""


def test_unsure_says_how_many_rows_would_show_the_gain_and_that_a_person_may_promote_it():
    head = words.headline(unsure())
    assert (head.title, head.tone) == ("found a gain that chance could make", "neutral")
    assert head.verdict.startswith("The interval includes zero: the difference can be chance.")
    read, rows, promote, *_ = words.next_steps(unsure())
    needed = 2 * examples_needed(0.008, discordance=13 / 125, confidence=0.95)
    assert read.startswith("Read lessons.md") and f"about {needed:,} heldOut rows" in rows
    assert "kubectl combee playbook promote" in promote
    here = words.next_steps(unsure(), command="combee run -f run.yaml -o out")[2]
    assert "may use it" in here and "kubectl" not in here, "a laptop has no Playbook"


@pytest.mark.parametrize(("outcome", "code"), [("BudgetExhausted", 4), ("Stopped", 130)])
def test_a_run_that_ended_early_claims_a_better_playbook_only_where_it_is_shown(outcome, code):
    shown = made_up.result(outcome=outcome, exitCode=code)
    assert words.headline(shown).title.endswith("with a better playbook so far")
    doubtful = unsure(outcome=outcome, exitCode=code)
    assert words.headline(doubtful).title.endswith("with a gain that chance could make so far")
    assert not any("playbook promote" in step for step in words.next_steps(doubtful))


def test_nothing_better_says_why_as_far_as_the_numbers_do():
    weak = made_up.iteration(1, 0.02, 10)
    lost = {**weak["retention"], "distinct": 9, "carried": 2}
    start = {"baseline": {"select": 0.04}, "best": {"select": 0.04, "iteration": 0}}
    common = {"outcome": "NothingBetter", "exitCode": 3, "heldOut": start}
    why = words.next_steps(made_up.result(**common, iterations=[{**weak, "retention": lost}]))
    assert why[0].startswith(
        "On select the task model scores 0.040 without a playbook and at most 0.020 with"
    )
    assert "Of 9 distinct lessons the aggregator brought 2" in why[1] and why[2].startswith(
        "Read the entries"
    )
    able = {**made_up.iteration(1, 0.5, 10), "retention": {**lost, "carried": 9}}
    (only,) = words.next_steps(
        made_up.result(**common, iterations=[able], entries=[], refusals=[], playbook=None)
    )
    assert only.startswith("Try more examples")


def test_concurrency_that_followed_the_server_is_shown_with_the_faults():
    limits = [
        {"role": "task", "call": 64, "before": 64, "after": 32, "reason": "429"},
        {"role": "task", "call": 96, "before": 32, "after": 36},
    ]
    result = made_up.result(faults={"limits": limits})
    (row,) = tables(result)["faults"].rows
    assert row[:2] == ("concurrency, task", "2")
    assert row[2] == "64 to 32 at call 64 (429), 32 to 36 at call 96; lowest 32, last 36"
    assert row[2] in Page(made(result).html).text


def test_lineage_is_told_beside_the_entry(full):
    page = Page(full.html).text
    for told in (
        "stems from form-0a0a0a, form-ffffff",
        "replayed on example 17: fixed it, left 2 controls (5, 9) right",
        "replayed on example 20: did not fix it",
        "taken up by form-000001",
        "left out: what replaced it stands",
    ):
        assert told in page
    assert "fixed it, left 2 controls" in lessons_markdown(made_up.result())


def test_no_figure_without_numbers():
    assert figures(made_up.bare()) == {}


def test_the_playbook_names_every_source():
    text = lessons_markdown(made_up.result())
    for entry in made_up.result().entries:
        if entry.rendered:
            assert entry.id in text and all(source in text for source in entry.sources)
    assert "Divide by two" not in text and "contested: other sources say otherwise" in text


@pytest.mark.parametrize(
    ("low", "high", "gain", "said"),
    [
        (0.01, 0.2, 0.1, "more than chance"),
        (-0.02, 0.1, 0.04, "can be chance. With 125 examples a true gain of 0.079 shows"),
        (-0.2, -0.05, -0.1, "does harm"),
    ],
)
def test_the_verdict_follows_the_interval(low, high, gain, said):
    gate = {
        "baseline": 0.6,
        "best": 0.6 + gain,
        "gain": gain,
        "low": low,
        "high": high,
        "n": 125,
        "discordant": 9,
    }
    result = made_up.result(heldOut={"gate": gate, "smallestDetectableGain": 0.079})
    assert said in words.verdict(result)


def test_a_choice_that_fitted_select_is_warned_about():
    held_out = json.loads(to_bytes(made_up.result()))["heldOut"]
    held_out["gate"] = {**held_out["gate"], "best": 0.7, "gain": 0.06, "low": 0.01, "high": 0.1}
    assert any(
        "fitted the select half" in warning for warning in words.warnings(made_up.result(heldOut=held_out))
    )


def test_a_proposer_that_repeated_itself_is_warned_about_once_enough_examples_speak_for_it():
    told = {}
    for size, proposals in ((40, (5, 5)), (3, (5, 5)), (40, (5, 4)), (40, (0, 0))):
        iterations = json.loads(to_bytes(made_up.result()))["iterations"]
        counts = dict(zip(("proposed", "repeated"), proposals, strict=True))
        iterations[1] |= {"batchSize": size, "proposals": counts}
        result = made_up.result(iterations=iterations)
        told[size, proposals] = [one for one in words.warnings(result) if "repeated itself" in one]
    assert [len(one) for one in told.values()] == [1, 0, 0, 0]
    assert "in 1 iteration (40 examples)" in told[40, (5, 5)][0]


def test_partial_credit_stands_beside_the_exact_score_where_the_task_has_it():
    gate = json.loads(to_bytes(made_up.result()))["heldOut"]
    gate["gate"] |= {"partialBaseline": 0.791, "partialBest": 0.875}
    result = made_up.result(heldOut=gate)
    assert words.gate_line(result.held_out.gate).endswith("; partial credit 0.791 → 0.875")
    assert "partial credit 0.791 → 0.875" in tables(result)["paired"].note
    assert "partial credit" not in words.gate_line(made_up.result().held_out.gate)
    assert "partial credit" not in tables(made_up.result())["paired"].note
    report = build_report(result, lessons_markdown="")
    assert "examples; partial credit 0.791 → 0.875</span>" in report.html
    (line,) = [line for line in report.markdown.splitlines() if line.startswith("| held-out, gate half |")]
    assert line.endswith("; partial credit 0.791 → 0.875 |")


def test_what_the_prefix_cache_saved_by_step_role_and_iteration():
    made = made_up.result()
    rows = {(row[0], row[1]): row[2:] for row in tables(made)["prefix"].rows}
    assert rows["step", "map"] == ("1,208,000", "906,000", "75 %", "28 s")
    assert rows["role", "task"][1] == f"{made.usage['task'].cached_tokens:,}"
    figure = figures(made)["prefix"]
    assert "map 20 s, 28 s more with nothing cached" in figure.alt and "one H200" in figure.caption
    *before, last = (it.model_copy(update={"cached_tokens": 1_000_000}) for it in made.iterations)
    last = last.model_copy(update={"observations": tuple((float(it.batch_size), 9.0) for it in before)})
    learned = made.model_copy(update={"iterations": (*before, last)})
    assert [s for _, s in views.uncached(learned)] == pytest.approx([40.0] * len(before))
    assert "Hollow" in figures(learned)["delay"].caption
    bare = made.model_copy(update={"iterations": (), "profile": None, "evaluation": None, "usage": {}})
    assert tables(bare)["prefix"].rows == () and "prefix" not in figures(bare)


def test_what_the_servers_were_seen_to_do_is_added_up_over_iterations():
    made = made_up.result()
    looks = (
        Servers(looks=1, waiting=8, waiting_most=8, kv_use_most=0.995, prompt_tokens=0, cached_tokens=0),
        Servers(looks=3, waiting=4, waiting_most=9, kv_use_most=None, prompt_tokens=1000, cached_tokens=720),
    )
    seen = [
        it.model_copy(update={"stages": (it.stages[0].model_copy(update={"servers": look}), *it.stages[1:])})
        for it, look in zip(made.iterations, looks, strict=False)
    ]
    (row,) = tables(made.model_copy(update={"iterations": tuple(seen)}))["servers"].rows
    assert row == ("map", "map", "4", "5.0", "9", ">99 %", "72 %")


def test_the_batches_that_calls_joined_are_added_up_over_iterations():
    made = made_up.result()
    joined = ({"1": 2, "64": 10}, {"1": 1, "8": 3})
    seen = [
        it.model_copy(update={"stages": (it.stages[0].model_copy(update={"in_flight": one}), *it.stages[1:])})
        for it, one in zip(made.iterations, joined, strict=False)
    ]
    learned = made.model_copy(update={"iterations": tuple(seen)})
    table = tables(learned)["in_flight"]
    assert table.columns == ("step", "stage", "#1", "#8 to 15", "#64 to 127")
    assert table.rows == (("map", "map", "3", "3", "10"),)
    assert "| map | map | 3 | 3 | 10 |" in build_report(learned, lessons_markdown="").markdown
    (section,) = (one for one in strategist.sections(learned) if one.title == "Dynamic Batching Policy")
    assert dict(section.lines)["calls in flight when one went"] == (
        "1 (3 calls), 8 to 15 (3 calls), 64 to 127 (10 calls)"
    )
    assert "in_flight" in section.tables
    assert "Memory answered every call." in build_report(made, lessons_markdown="").markdown


def test_servers_that_showed_nothing_are_said_to_have_shown_nothing():
    made = made_up.result()
    assert tables(made)["servers"].rows == ()
    assert "No server showed" in build_report(made, lessons_markdown="").markdown
    look = Servers(looks=1, waiting=0, waiting_most=0)
    first, *rest = made.iterations
    stages = (first.stages[0].model_copy(update={"servers": look}), *first.stages[1:])
    only = made.model_copy(update={"iterations": (first.model_copy(update={"stages": stages}), *rest)})
    assert tables(only)["servers"].rows == (("map", "map", "1", "0.0", "0", "", ""),)


def test_a_program_keeps_its_lines_and_ends_no_block() -> None:
    program = 'def days(a):\n    """<script>alert(1)</script> ``` & [x](y)"""\n    return a\n\n\n## ORDERS'
    entries = [
        {"id": "prog-1", "section": "programs", "text": program, "verified": "replay", "rendered": True}
    ]
    result = made_up.result(entries=entries)
    lessons = lessons_markdown(result)
    assert "\n- A program:\n\n      def days(a):\n" in lessons
    assert "\n          return a\n\n\n      ## ORDERS\n" in lessons
    page = build_report(result, lessons_markdown=lessons).html
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page
    assert "    return a\n" in page.partition("<pre>")[2].partition("</pre>")[0]
