"""The screen's three modes against a clock that the test holds."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import jsonschema
import made_up
import pytest
from test_screen_progress import STATE

import sample_plan
from combee.cli.screen import Screen, choose_mode, final_screen
from combee.errors import EndpointError
from combee.generate.schemas import events_schema

PLAN = replace(sample_plan.PLAN, epoch=1)
ERROR = EndpointError(
    "it refused the key", where="http://llm:8000", fix="Give --secret deepseek/token=env:KEY"
)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def screen(mode, stream=None):
    clock, stream = Clock(), stream if stream is not None else io.StringIO()
    return Screen(mode, stream=stream, now=clock), clock, stream


def whole_run(shown, clock):
    with shown:
        shown.started("formula-ace", "out", resumed=False)
        shown.plan(PLAN)
        shown.progress(STATE)
        shown.note("the endpoint of task is being asked again (429)")
        clock.now += 2
        shown.progress(replace(STATE, stage="verify", stage_done=1, stage_total=9))
        shown.iteration(replace(STATE, stage="evaluate", heldout_last=0.87, heldout_best=0.87))
        shown.finished(made_up.result(), "out", command="combee run -f run.yaml -o out")


def test_plain_mode_line_by_line():
    shown, clock, stream = screen("plain")
    whole_run(shown, clock)
    before, _, last = stream.getvalue().partition("\nformula-ace learned")
    assert before.splitlines() == [
        "formula-ace: starts, results in out",
        "iteration 2: 84 examples: further growth saves little",
        (
            "[2:14] iteration 3 of about 6 · map 31/84 · batch 84 · examples 212/500 · 412 calls (40 from "
            "memory), "
            "64 in flight, 2 retrying · 1.24 M tokens · held-out 0.640 start, 0.861 best, 0.855 last "
            "(simulated model) "
            "· about 3 min 01 s left"
        ),
        "warning: the endpoint of task is being asked again (429)",
        (
            "[2:14] iteration 3 of about 6 · verify 1/9 · batch 84 · examples 212/500 · 412 calls (40 from "
            "memory), "
            "64 in flight, 2 retrying · 1.24 M tokens · held-out 0.640 start, 0.861 best, 0.855 last "
            "(simulated model) "
            "· about 3 min 01 s left"
        ),
        (
            "iteration 2 done: batch 84, examples 212/500, held-out 0.870 (the best so far, simulated "
            "model), "
            "1.24 M tokens in 2 min 14 s so far"
        ),
    ]
    assert "\x1b" not in stream.getvalue() and "out/report.html" in last


def test_plain_mode_says_little_when_nothing_changes():
    shown, clock, stream = screen("plain")
    for tick in range(200):
        shown.progress(replace(STATE, tokens=STATE.tokens + tick, elapsed_seconds=134 + tick / 5))
        clock.now += 0.2
    assert len(stream.getvalue().splitlines()) == 4


def test_plain_mode_says_at_most_a_line_a_second():
    shown, clock, stream = screen("plain")
    for tick in range(50):
        shown.progress(replace(STATE, iteration=tick))
        clock.now += 0.1
    assert len(stream.getvalue().splitlines()) == 5


def test_json_lines_follow_the_schema_and_name_their_events():
    shown, clock, stream = screen("json")
    whole_run(shown, clock)
    shown.error(ERROR)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == [
        *("started", "plan", "progress", "warning", "progress", "iteration", "finished", "error")
    ]
    check = jsonschema.Draft202012Validator(events_schema())
    for line in lines:
        check.validate(line)
    assert lines[-1]["fix"] == ERROR.fix and lines[1]["iteration"] == 2
    assert lines[-2]["gate"]["gain"] == 0.208 and lines[-2]["simulated"] is True


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_live_view_never_wraps_and_is_redrawn_at_most_four_times_a_second(width, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("LINES", "30")
    shown, clock, stream = screen("live", Terminal())
    drawn = []
    with shown:
        refresh = shown._live.update
        monkeypatch.setattr(shown._live, "update", lambda *a, **k: (drawn.append(a), refresh(*a, **k)))
        for _ in range(100):
            shown.progress(STATE)
            clock.now += 0.1
        lines = shown._console.render_lines(shown._view(STATE), pad=False)
    assert len(drawn) <= 40
    assert len(lines) == 6 and all(sum(s.cell_length for s in line) <= width for line in lines)
    assert stream.getvalue().endswith("\x1b[?25h") or "\x1b[?25h" in stream.getvalue()


def test_the_live_mode_ends_with_the_last_screen_in_full(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    shown, clock, stream = screen("live", Terminal())
    whole_run(shown, clock)
    last = stream.getvalue().rpartition("learned a better playbook")[2]
    assert "Look at" in last and "out/result.json" in last


def test_a_stream_that_is_not_utf8_gets_question_marks_and_no_crash():
    raw = io.BytesIO()
    shown, clock, _ = screen("plain", io.TextIOWrapper(raw, encoding="ascii"))
    whole_run(shown, clock)
    assert b"iteration 3 of about 6 ? map" in raw.getvalue()


@pytest.mark.parametrize(
    ("as_json", "stream", "term", "mode"),
    [
        (True, Terminal(), "xterm", "json"),
        (False, Terminal(), "xterm", "live"),
        (False, Terminal(), "dumb", "plain"),
        (False, io.StringIO(), "xterm", "plain"),
    ],
)
def test_the_mode_follows_the_stream(as_json, stream, term, mode, monkeypatch):
    monkeypatch.setenv("TERM", term)
    assert choose_mode(json=as_json, stream=stream) == mode


def test_an_error_is_one_line_with_its_fix():
    stream, errors = io.StringIO(), io.StringIO()
    Screen("plain", stream=stream, errors=errors).error(ERROR)
    assert errors.getvalue() == (
        "error: http://llm:8000: it refused the key. Give --secret deepseek/token=env:KEY\n"
    )
    assert stream.getvalue() == ""


def test_the_last_screen_of_a_run_that_learned():
    assert final_screen(made_up.result(), "out/", width=90) == FINAL


def test_the_last_screen_of_a_stopped_run():
    stopped = made_up.bare("Stopped", 130, reason="stopped by Ctrl-C")
    assert final_screen(stopped, "out", command="combee run -f a.yaml -o out", width=90) == STOPPED


@pytest.mark.parametrize("width", [20, 60, 80])
def test_the_last_screen_keeps_to_its_width(width):
    for line in final_screen(made_up.result(), "out", width=width).splitlines():
        assert len(line) <= max(width, 60)


def test_bullets_and_control_characters_stay_out_of_the_last_screen():
    result = made_up.result(reason="\x1b[2J done\nreally")
    text = final_screen(result, "out")
    assert "\x1b" not in text and not any(entry.text in text for entry in result.entries)


FINAL = """\
formula-ace learned a better playbook (simulated model)
  No better playbook in 1 iteration after the best one and the data is used up.
  held-out  0.640 → 0.848, +0.208 (95 % interval +0.136 to +0.280) (simulated model)
            The whole interval lies above zero: the gain is more than chance.
  cost      1.40 M tokens, 2,104 rollouts, 1 min 37 s (simulated model)
            67.2 k tokens and 101.2 rollouts for each point (0.01) of gain
  playbook  6 entries, 3,912 tokens, 1 left out (simulated model)
  refused   3 entries (1 replay, 1 leak, 1 injection)
  faults    the endpoint had a bad day: 52 requests sent again (32 × 429, 20 × 500), 12
            broken answers asked for once more, 4 slow calls raced; nothing was lost
  models    task: sim-120b at 127.0.0.1:8011, served by: simulated model (combee sim)
            proposer: sim-120b at 127.0.0.1:8011, served by: simulated model (combee sim)
  warning   train: rows 17 and 204 are identical and were merged

Look at
  out/report.html  the whole story, with figures
  out/prompt.md    what models are shown from now on
  out/lessons.md   what was learned, and from what
  out/result.json  every number, for programs

Next
  - Read lessons.md: every bullet names the examples it was learned from. Use prompt.md.
  - Settle 1 contested bullet: sources disagree about them.
  - Look at the refused entries of kind leak and injection: they say something about the
    data.
"""
STOPPED = """\
formula-ace was stopped
  Stopped by Ctrl-C.
  held-out  not measured
            The gate half was not looked at, so there is no unbiased before and after.
  cost      0 tokens, 0 rollouts, 0 s
  playbook  none was made

Look at
  out/report.html  the whole story, with figures
  out/result.json  every number, for programs

Next
  - Run `combee run -f a.yaml -o out` again to go on: finished calls are kept and not
    asked twice.
"""
