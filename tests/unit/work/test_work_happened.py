"""What happened is recorded with every call, and broken JSON is asked for again before it is guessed at."""

from __future__ import annotations

import contextlib
import json

import pytest

from combee.api.sampling import Sampling
from combee.clients.model.wire import Answered, Completion
from combee.errors import ContextLengthError, TransientError
from combee.methods.ace import AceMethod
from combee.methods.protocol import CutError, ParseError
from combee.methods.schemas import longest
from combee.plan.types import RoleUsage
from combee.records import Message, Prompt
from combee.work.asker import Asker, CallRow, decode_rows, is_broken_json
from combee.work.happened import happened, quantile

SHAPED = AceMethod().rollout_prompt("Solve.", "", "how much?")
PROMPT = Prompt((Message("user", "how much?"),), "answer", {"type": "object"})
GOOD = '{"reasoning": "r", "bullets": [], "answer": "12"}'
BROKEN = 'Sure, here is the result:\n{"reasoning" = "r", "bullets": [], "answer": "11",'


class Scripted:
    """A client that says one text after the other; an exception is raised."""

    def __init__(
        self,
        *texts: str | Exception,
        finish: str = "stop",
        context_tokens: int | None = None,
        prompt_tokens: int = 10,
        **fields: object,
    ) -> None:
        self.texts, self.finish, self.fields = list(texts), finish, fields
        self.context_tokens, self.prompt_tokens = context_tokens, prompt_tokens
        self.asked: list[int] = []
        self.requests: list[str] = []
        self.prompts: list[Prompt] = []
        self.samplings: list[Sampling] = []

    def key_of(self, request: object) -> str:
        return repr(request)

    async def ask(self, request, *_):
        self.asked.append(len(request.prompt.messages))
        self.requests.append(repr(request))
        self.prompts.append(request.prompt)
        self.samplings.append(request.sampling)
        text = self.texts.pop(0)
        if isinstance(text, Exception):
            raise text
        return Answered(
            Completion(text, self.prompt_tokens, 5, 2, 1.5, self.finish, 1, **self.fields), hit=False
        )


async def ask(client: Scripted, prompt: Prompt = PROMPT) -> tuple[Asker, str]:
    asker = Asker({"task": client}, {})
    reply = await asker.ask("task", prompt, AceMethod().parse_rollout, stage="map", chain=0)
    return asker, reply.answer


async def test_broken_json_is_asked_for_again_before_it_is_guessed_at() -> None:
    client = Scripted(BROKEN, GOOD)
    asker, answer = await ask(client)
    assert (answer, asker.repaired, asker.lost.total(), client.asked) == ("12", 1, 0, [1, 3])


async def test_an_answer_that_stays_useless_is_asked_for_three_times_more() -> None:
    client = Scripted("", "", "", GOOD)
    asker, answer = await ask(client)
    assert (answer, asker.repaired, asker.lost.total(), len(client.asked)) == ("12", 1, 0, 4)


async def test_no_two_rounds_of_a_repair_are_the_same_request() -> None:
    """An answer spoiled twice in the same way made the same request, and the memo returned the same bytes."""
    client = Scripted("", "", "", GOOD)
    await ask(client)
    assert len(set(client.requests)) == 4


@pytest.mark.parametrize("second", ["", TransientError("gone")])
async def test_the_guess_is_taken_when_asking_again_brings_nothing(second) -> None:
    asker, answer = await ask(Scripted(BROKEN, second))
    assert (answer, asker.repaired, asker.lost.total()) == ("11", 1, 0)


async def test_what_was_cut_keeps_what_it_says() -> None:
    asker, answer = await ask(Scripted(BROKEN, finish="length"))
    assert (answer, asker.repaired) == ("11", 0)


async def test_plain_text_and_fences_are_no_broken_json() -> None:
    for text in ("12", "\\boxed{12}", f"```json\n{GOOD}\n```", f"Here: {GOOD}. Done."):
        assert not is_broken_json(text)
        assert (await ask(Scripted(text)))[0].repaired == 0
    assert is_broken_json(BROKEN) and is_broken_json('{"a": [1, 2')


async def test_what_is_lost_is_counted_once() -> None:
    for client in (Scripted("", "", "", ""), Scripted(TransientError("gone"))):
        asker = Asker({"task": client}, {})
        with pytest.raises((ParseError, TransientError)):
            await asker.ask("task", PROMPT, AceMethod().parse_rollout, stage="map", chain=0)
        assert asker.lost.total() == asker.counts()["lost"] == 1


async def test_a_call_that_failed_though_it_was_sent_is_a_rollout_with_what_it_may_have_used() -> None:
    class Deaf(Scripted):
        async def ask(self, request, unanswered):
            unanswered(700)
            raise TransientError("gone")

    part, asker = Asker({"task": Deaf()}, {}), Asker({}, {})
    with pytest.raises(TransientError):
        await part.ask("task", PROMPT, AceMethod().parse_rollout, stage="map", chain=0)
    asker.take_in(part, 0)
    assert asker.usage() == {"task": RoleUsage(lost_tokens=700)}
    assert (asker.counts()["rollouts"], asker.rows) == (1, [])


CUT = '{"reasoning": "and again and again and ag'


async def test_an_answer_that_was_cut_is_asked_for_once_more_and_shorter() -> None:
    client = Scripted(CUT, GOOD, finish="length")
    asker, answer = await ask(client, SHAPED)
    assert (answer, asker.repaired, asker.lost.total()) == ("12", 1, 0)
    first, second = client.prompts
    assert second.max_output_tokens == first.max_output_tokens and longest(second.schema) < longest(
        first.schema
    )
    assert [message.role for message in second.messages] == [message.role for message in first.messages]
    assert "too long" in second.messages[-1].content and CUT not in second.messages[-1].content


async def test_what_is_lost_is_counted_by_its_fate() -> None:
    cases = {
        "cut": (Scripted(CUT, CUT, finish="length"), CutError, 2),
        "unparsable": (Scripted("", "", "", ""), ParseError, 4),
        "unanswered": (Scripted(TransientError("gone")), TransientError, 1),
    }
    for fate, (client, error, calls) in cases.items():
        asker = Asker({"task": client}, {})
        with pytest.raises(error):
            await asker.ask("task", PROMPT, AceMethod().parse_rollout, stage="map", chain=0)
        assert asker.lost == {fate: 1} and len(client.asked) == calls
        assert asker.counts() == {
            "rollouts": len(asker.rows),
            "repaired": int(fate != "unanswered"),
            "lost": 1,
            **({fate: 1} if fate != "unanswered" else {}),
        }


async def test_a_manifests_room_is_that_of_every_answer() -> None:
    client = Scripted(GOOD)
    asker = Asker({"task": client}, {"task": Sampling(maxTokens=160, reasoningTokens=500)})
    await asker.ask("task", SHAPED, AceMethod().parse_rollout, stage="map", chain=0)
    (prompt,) = client.prompts
    assert prompt.max_output_tokens == 160 and longest(prompt.schema) <= 160 * 4


async def test_a_repeat_is_drawn_at_a_temperature_and_a_higher_one_stays() -> None:
    for own, least, drawn in ((0.0, 0.7, 0.7), (1.0, 0.7, 1.0), (0.0, 0.0, 0.0)):
        client = Scripted(GOOD)
        asker = Asker({"task": client}, {"task": Sampling(temperature=own)})
        parse = AceMethod().parse_rollout
        await asker.ask("task", PROMPT, parse, stage="map", chain=0, least_temperature=least)
        assert client.samplings[0].temperature == drawn


async def test_a_prompt_that_leaves_too_little_room_is_not_asked() -> None:
    client = Scripted(GOOD, context_tokens=1000)
    asker = Asker({"task": client}, {}, token_factor=1.0)
    with pytest.raises(ContextLengthError, match="of the model's 1,000 for a reply of 1,024") as caught:
        await asker.ask("task", PROMPT, AceMethod().parse_rollout, stage="map", chain=0)
    assert client.asked == [] and "sampling.maxTokens" in caught.value.fix and asker.lost == {"unanswered": 1}


async def test_a_reply_that_the_context_cut_is_no_answer_but_is_charged() -> None:
    """The server gives a reply what the prompt leaves, here 5 tokens, and says that it reached a limit."""
    client = Scripted(GOOD, finish="length", context_tokens=1045, prompt_tokens=1040)
    asker = Asker({"task": client}, {"task": Sampling(maxTokens=20)})
    with pytest.raises(ContextLengthError, match="a prompt of 1,040 tokens leaves 5 of the model's 1,045"):
        await asker.ask("task", PROMPT, AceMethod().parse_rollout, stage="map", chain=0)
    assert asker.usage()["task"].prompt_tokens == 1040
    assert [row.unusable for row in asker.rows] == ["cut"]


async def test_rows_carry_what_happened_and_old_rows_are_read() -> None:
    asker, _ = await ask(Scripted(GOOD, retried_for=("429", "500"), hedged=True))
    (row,) = decode_rows(asker.encode())
    assert row == asker.rows[0] and row.retried_for == ("429", "500") and row.hedged
    quiet, _ = await ask(Scripted(GOOD))
    assert len(json.loads(quiet.encode())) == 9, "nothing happened, nothing is written"
    old = decode_rows(b'["task", "map", 0, 1.5, 10, 5, 2, false, 1]\n')
    assert old == quiet.rows and old[0].retried_for == () and not old[0].hedged


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("reduce round 2", "leaf round 2"),
        ("reduce", "one call"),
        ("leaf round 1", "leaf round 1"),
        ("map", "map"),
    ],
)
def test_stages_that_earlier_versions_wrote_have_the_names_of_today(written: str, name: str) -> None:
    (read,) = decode_rows(f'["proposer", "{written}", 0, 1.5, 10, 5, 2, false, 1]\n'.encode())
    assert read.stage == name


def row(stage: str, seconds: float, *reasons: str, hit: bool = False, hedged: bool = False) -> CallRow:
    return CallRow("task", stage, int(1000 * seconds), seconds, 1, 1, 0, hit, 1, reasons, hedged)


def test_time_by_stage_and_faults_by_reason() -> None:
    mapped = [row("map", k / 10, "429") for k in range(1, 11)]
    late = [row("select", 2.0, "500", "429", hedged=True), row("select", 1.9, "500", hit=True, hedged=True)]
    told = happened({"map": mapped, "finish": late}, slots=2)
    assert told["faults"] == {"429": 11, "500": 1}, "an answer from the memo met no fault this time"
    assert told["hedges"] == 1
    first, second = told["stages"]
    assert (first["step"], first["stage"], first["calls"]) == ("map", "map", 10)
    assert [first[name] for name in ("p50", "p90", "p99", "max")] == [0.5, 0.9, 1.0, 1.0]
    assert 2.75 <= first["scheduledSeconds"] <= 3.5 and second["scheduledSeconds"] == 2.0
    assert happened({}, slots=1) == {"stages": [], "faults": {}, "hedges": 0, "limits": []}


def test_changes_of_a_roles_concurrency_are_recorded_in_order() -> None:
    later, sooner = row("map", 0.2), row("map", 0.1)
    later.limits, sooner.limits = ((96, 32, 36, ""),), ((64, 64, 32, "429"),)
    asker = Asker({}, {}, rows=[later, sooner], stages=["map"])
    told = happened({"map": decode_rows(asker.encode())}, slots=2)["limits"]
    assert told == [
        {"role": "task", "call": 64, "before": 64, "after": 32, "reason": "429"},
        {"role": "task", "call": 96, "before": 32, "after": 36, "reason": ""},
    ]


def test_a_quantile_is_always_one_that_was_measured() -> None:
    hundred = [float(k) for k in range(1, 101)]
    assert [quantile(hundred, share) for share in (0.5, 0.9, 0.99)] == [50.0, 90.0, 99.0]
    assert quantile([3.0], 0.5) == quantile([3.0], 0.99) == 3.0


def _call(chain: int, look: tuple[int, float | None, int, int] | None, stage: str = "rollout") -> CallRow:
    return CallRow("task", stage, chain, 1.0, 10, 5, 2, False, 1, look=look)


def test_what_servers_were_seen_to_do_is_said_by_stage() -> None:
    looks = [(4, 0.5, 0, 0), None, (1, 0.25, 300, 200), (1, None, 100, 20)]
    rows = [_call(chain, look) for chain, look in enumerate(looks)] + [_call(9, None, "reflect")]
    rolled, reflected = happened({"map": rows}, 4)["stages"]
    assert rolled["servers"] == {
        "looks": 3,
        "waiting": 2.0,
        "waitingMost": 4,
        "kvUseMost": 0.5,
        "promptTokens": 400,
        "cachedTokens": 220,
    }
    assert "servers" not in reflected


def test_the_batches_that_calls_joined_are_counted_by_stage() -> None:
    rows = [_call(chain, None) for chain in range(7)] + [_call(9, None, "reflect")]
    for row, in_flight in zip(rows, (1, 2, 3, 4, 63, 64, 0), strict=False):
        row.in_flight = in_flight
    asker = Asker({}, {}, rows=rows, stages=["rollout", "reflect"])
    rolled, reflected = happened({"map": decode_rows(asker.encode())}, 4)["stages"]
    assert rolled["inFlight"] == {"1": 1, "2": 2, "4": 1, "32": 1, "64": 1}
    assert "inFlight" not in reflected, "memory answered, or an earlier version wrote it"


def test_a_cache_that_no_server_speaks_of_is_not_empty_but_unknown() -> None:
    (stage,) = happened({"map": [_call(0, (0, None, 0, 0))]}, 4)["stages"]
    assert stage["servers"]["kvUseMost"] is None


@pytest.mark.parametrize(
    ("texts", "finish", "fates"),
    [
        ([GOOD], "stop", [""]),
        ([GOOD], "length", [""]),
        ([BROKEN, GOOD], "stop", ["unparsable", ""]),
        ([BROKEN, ""], "stop", ["unparsable", "unparsable"]),
        (["", "", "", GOOD], "stop", ["unparsable", "unparsable", "unparsable", ""]),
        ([CUT, GOOD], "length", ["cut", ""]),
        ([CUT, ""], "length", ["cut", "cut"]),
    ],
)
async def test_every_reply_that_could_not_be_used_is_counted_in_its_stage(texts, finish, fates) -> None:
    asker = Asker({"task": Scripted(*texts, finish=finish)}, {})
    with contextlib.suppress(ParseError):
        await asker.ask("task", SHAPED, AceMethod().parse_rollout, stage="map", chain=0)
    rows = decode_rows(asker.encode())
    assert [row.unusable for row in rows] == fates
    (stage,) = happened({"map": rows}, slots=1)["stages"]
    told = (stage["calls"], stage["cut"], stage["unparsable"])
    assert told == (len(fates), fates.count("cut"), fates.count("unparsable"))


@pytest.mark.parametrize("unusable", ["", "cut"])
@pytest.mark.parametrize("look", [None, (0, None, 0, 0), (3, 0.5, 10, 4)])
@pytest.mark.parametrize("limits", [(), ((7, 8, 4, "429"),)])
@pytest.mark.parametrize("hedged", [False, True])
def test_looks_are_kept_with_the_calls(unusable, look, limits, hedged) -> None:
    row = CallRow("task", "rollout", 0, 1.0, 10, 5, 2, False, 1, ("429",), hedged, limits, look, unusable)
    plain = CallRow("task", "rollout", 1, 1.0, 10, 5, 2, False, 1)
    asker = Asker({}, {}, stages=["rollout"], rows=[row, plain])
    assert decode_rows(asker.encode()) == [row, plain]
