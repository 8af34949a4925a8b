"""The simulated model: a pure function from request, rulebook and seed to a reply.

It knows nothing about who calls it; equal requests get equal replies in every process and any order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from combee.errors import DataError
from combee.sim import (
    aggregating,
    answering,
    draws,
    fill,
    forms,
    items,
    judging,
    lessons,
    prompts,
    reading,
    records,
    reflecting,
    roles,
)
from combee.sim.forms import Form
from combee.sim.keyfile import Found, Questions, load
from combee.sim.params import Law, SimConfig
from combee.sim.prompts import Prompt, TextCache, read
from combee.sim.rulebook import Rulebook


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says, before any limit on its length."""

    role: str
    text: str
    prompt: Prompt


class Model:
    """Rulebook, questions and law of one simulated model; caches only what follows from texts."""

    def __init__(
        self,
        keys: list[dict[str, Any]],
        *,
        seed: int = 0,
        law: Law | None = None,
        plants: Mapping[str, str] | None = None,
        lenient: frozenset[str] = frozenset(),
    ) -> None:
        """``plants``: lesson by example (its question or the question's digest), topic or ``*``. ``lenient``: models that judge kindly."""
        self.law, self.seed, self.lenient = law or Law(), seed, lenient
        self.questions = Questions(keys)
        self.plants = {self._example(name): lesson for name, lesson in (plants or {}).items()}
        said = tuple(dict.fromkeys(text for text in self.plants.values() if text != reflecting.WRONG_PLANT))
        self.book = Rulebook(_weights(keys), seed, said)
        self._readings: TextCache[reading.Reading] = TextCache(lambda text: reading.read(text, self.book))
        self._forms: TextCache[Form] = TextCache(lambda text: forms.from_schema(json.loads(text)), 2_000_000)

    def _example(self, name: str) -> str:
        if len(name) == 64 and " " not in name:
            return name[:16]
        found = self.questions.last_in(name)
        return found.known.id if found else name

    def respond(self, body: Mapping[str, Any]) -> Reply:
        """The reply to a chat completion request. Raises ValueError on a request of another form."""
        prompt = read(body)
        return self.reply(prompt)

    def reply(self, prompt: Prompt) -> Reply:
        """The reply to a prompt."""
        text = prompt.text
        form = self._forms(json.dumps(prompt.schema)) if prompt.schema else forms.from_example(text)
        role = self._shape_role(form)
        found: Found | None = None
        if role != roles.AGGREGATE:
            found = self.questions.last_in(text)
        if role is None:
            outside = text[: found.start] + text[found.end :] if found else text
            lists = bool(items.items_in(text, self.book)) or bool(self._records(prompt))
            role = roles.role_of(form, outside, asks=found is not None, lists=lists)
        said = {
            roles.ROLLOUT: self._rollout,
            roles.REFLECT: self._reflect,
            roles.JUDGE: self._judge,
            roles.AGGREGATE: self._aggregate,
        }.get(role, self._chat)(prompt, form, found)
        return Reply(role, said, prompt)

    @staticmethod
    def _shape_role(form: Form | None) -> str | None:
        if form is not None and form.kind == "object":
            for cue in roles.TABLE:
                if cue.shape(form):
                    return cue.role
        return None

    def _around(self, text: str, found: Found) -> tuple[reading.Reading, reading.Reading]:
        return self._readings(text[: found.start]), self._readings(text[found.end :])

    def _rollout(self, prompt: Prompt, form: Form | None, found: Found | None) -> str:
        if found is None:
            return fill.rollout(form, "unknown", "Nothing here tells what is asked.", ())
        before, after = self._around(prompt.text, found)
        topic = found.known.topic
        seen = answering.Seen(
            before.support(topic) + after.support(topic),
            before.tokens + after.tokens,
            before.digest + after.digest,
        )
        said = answering.answer(found.known, seen, self.book, self.law, self.seed, prompt.ordinal)
        return fill.rollout(form, said.text, said.reasoning, said.cited)

    def _reflect(self, prompt: Prompt, form: Form | None, found: Found | None) -> str:
        if found is None:
            return fill.reflect(form, "Nothing here tells what was asked.", (), ())
        known, shown = found.known, prompt.text[: found.start] + prompt.text[found.end :]
        wrong = reflecting.missed(shown, known)
        before, after = self._around(prompt.text, found)
        used = before.support(known.topic).named_in(prompt.text[found.end :]) + after.support(known.topic)
        drawn = reflecting.reflect(
            known, wrong, used, self.book, self.law, self.seed, prompt.ordinal, self.plants
        )
        diagnosis = lessons.DIAGNOSES[0 if wrong else 1]
        if not drawn.entries:
            return fill.reflect(form, diagnosis, (), drawn.tags)
        many = len(drawn.entries)
        frame = fill.frame_tokens(fill.reflect(form, diagnosis, [""] * many, ()))
        room = self.book.law(known.topic).tokens_a_lesson(frame) - frame / many
        one = max(60, min(int(room), lessons.LONGEST_LESSON))
        told = [lessons.at_length(entry, one, more) if more else entry for entry, more in drawn.entries]
        if room > lessons.LONGEST_LESSON:
            rest = prompts.tokens(diagnosis) + int((room - one) * many)
            diagnosis = lessons.at_length(diagnosis, rest, known.id)
        return fill.reflect(form, diagnosis, told, drawn.tags)

    def _aggregate(self, prompt: Prompt, form: Form | None, found: Found | None) -> str:
        given = self._records(prompt) or items.items_in(prompt.text, self.book)
        return fill.aggregate(
            form, aggregating.aggregate(given, self.book, self.law, self.seed, prompt.ordinal)
        )

    def _records(self, prompt: Prompt) -> list[items.Item]:
        return records.read(
            prompt.text, self.questions, self.book, self.law, self.seed, prompt.ordinal, self.plants
        )

    def _judge(self, prompt: Prompt, form: Form | None, found: Found | None) -> str:
        if found is None:
            return fill.judge(form, False, "Nothing here tells what was asked.")
        shown = prompt.text[: found.start] + prompt.text[found.end :]
        right = not reflecting.missed(shown, found.known)
        key = (self.seed, "judge", prompt.model, found.known.id, prompt.ordinal, str(right))
        says = judging.verdict(right, prompt.model in self.lenient, self.law, *key)
        return fill.judge(form, says, "Compared with what the question asks.")

    def _chat(self, prompt: Prompt, form: Form | None, found: Found | None) -> str:
        if form is not None:
            return fill.dumps(fill.neutral(form))
        return "This is a simulated model; it plays the roles of prompt learning and nothing else."


def _weights(keys: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    weights: dict[str, dict[str, float]] = {}
    for key in keys:
        topics = weights.setdefault(key["task"], {})
        for topic, count in key["topics"].items():
            topics[topic] = topics.get(topic, 0.0) + float(count)
    return weights


def from_config(config: SimConfig) -> Model:
    """The model a configuration describes. Raises DataError on unreadable key or plant files."""
    plants: dict[str, str] = {}
    if config.plant is not None:
        try:
            plants = {str(k): str(v) for k, v in json.loads(config.plant.read_bytes()).items()}
        except (OSError, ValueError, AttributeError) as error:
            raise DataError(f"is no JSON object of lessons ({error})", where=str(config.plant)) from error
    keys = [load(path) for path in config.keys]
    lenient = frozenset(config.lenient_judges)
    return Model(keys, seed=config.seed, law=config.law, plants=plants, lenient=lenient)


def request_digest(body: Mapping[str, Any]) -> str:
    """sha256 hex of the canonical request: sorted JSON without how the answer is to be sent."""
    plain = {k: v for k, v in body.items() if k not in ("stream", "stream_options")}
    return draws.digest(json.dumps(plain, sort_keys=True, ensure_ascii=False))
