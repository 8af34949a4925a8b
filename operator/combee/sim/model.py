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
    lessons,
    prompts,
    reading,
    records,
    reflecting,
    roles,
)
from combee.sim.forms import Form
from combee.sim.keyfile import QuestionMatch, Questions, load
from combee.sim.params import Law, SimConfig
from combee.sim.prompts import Prompt, TextCache, read
from combee.sim.rulebook import Rulebook


@dataclass(frozen=True, slots=True)
class Reply:
    """The model's reply, before any limit on its length."""

    role: str
    text: str
    prompt: Prompt
    thought_tokens: int = 0
    """what it thought before the text, which nobody is shown."""


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
        """``plants``: lesson by example (its question or the question's digest), topic or ``*``. ``lenient``:
        models that judge leniently."""
        self.law, self.seed, self.lenient = law or Law(), seed, lenient
        self.questions = Questions(keys)
        self.plants = {self._example(name): lesson for name, lesson in (plants or {}).items()}
        planted_texts = tuple(
            dict.fromkeys(text for text in self.plants.values() if text != reflecting.WRONG_PLANT)
        )
        stated = {topic: rule for key in keys for topic, rule in key.get("rules", {}).items()}
        self.book = Rulebook(
            _weights(keys), seed, planted_texts, stated, self.law.harm_share, self.law.wording_share
        )
        self._readings: TextCache[reading.Reading] = TextCache(lambda text: reading.read(text, self.book))
        self._forms: TextCache[Form] = TextCache(lambda text: forms.from_schema(json.loads(text)), 2_000_000)

    def _example(self, name: str) -> str:
        if len(name) == 64 and " " not in name:
            return name[:16]
        match = self.questions.last_in(name)
        return match.question.id if match else name

    def respond(self, body: Mapping[str, Any]) -> Reply:
        """Return the reply to a chat completion request. Raises ValueError for a malformed request."""
        prompt = read(body)
        return self.reply(prompt)

    def reply(self, prompt: Prompt) -> Reply:
        """Return the reply to a prompt."""
        text = prompt.text
        form = self._forms(json.dumps(prompt.schema)) if prompt.schema else forms.from_example(text)
        role = self._shape_role(form)
        match: QuestionMatch | None = None
        if role != roles.AGGREGATE:
            match = self.questions.last_in(text)
        if role is None:
            outside = text[: match.start] + text[match.end :] if match else text
            lists = bool(items.items_in(text, self.book)) or bool(self._records(prompt))
            role = roles.role_of(form, outside, asks=match is not None, lists=lists)
        reply_text = {
            roles.ROLLOUT: self._rollout,
            roles.REFLECT: self._reflect,
            roles.JUDGE: self._judge,
            roles.AGGREGATE: self._aggregate,
        }.get(role, self._chat)(prompt, form, match)
        return Reply(role, reply_text, prompt, int(self.law.judge_thinking) if role == roles.JUDGE else 0)

    @staticmethod
    def _shape_role(form: Form | None) -> str | None:
        if form is not None and form.kind == "object":
            for cue in roles.TABLE:
                if cue.shape(form):
                    return cue.role
        return None

    def _around(self, text: str, match: QuestionMatch) -> tuple[reading.Reading, reading.Reading]:
        return self._readings(text[: match.start]), self._readings(text[match.end :])

    def _rollout(self, prompt: Prompt, form: Form | None, match: QuestionMatch | None) -> str:
        if match is None:
            return fill.rollout(form, "unknown", "Nothing here tells what is asked.", ())
        before, after = self._around(prompt.text, match)
        topic = match.question.topic
        seen = answering.Seen(
            before.support(topic) + after.support(topic),
            before.tokens + after.tokens,
            before.digest + after.digest,
        )
        reply = answering.answer(match.question, seen, self.book, self.law, self.seed, prompt.ordinal)
        return fill.rollout(form, reply.text, reply.reasoning, reply.cited)

    def _reflect(self, prompt: Prompt, form: Form | None, match: QuestionMatch | None) -> str:
        if match is None:
            return fill.reflect(form, "Nothing here tells what was asked.", (), ())
        question, trajectory = match.question, prompt.text[: match.start] + prompt.text[match.end :]
        wrong = reflecting.missed(trajectory, question)
        before, after = self._around(prompt.text, match)
        used = before.support(question.topic).named_in(prompt.text[match.end :]) + after.support(
            question.topic
        )
        reflection = reflecting.reflect(
            question, wrong, used, self.book, self.law, self.seed, prompt.ordinal, self.plants
        )
        diagnosis = lessons.DIAGNOSES[0 if wrong else 1]
        if not reflection.entries:
            return fill.reflect(form, diagnosis, (), reflection.tags)
        count = len(reflection.entries)
        frame = fill.frame_tokens(fill.reflect(form, diagnosis, [""] * count, ()))
        room = self.book.law(question.topic).tokens_a_lesson(frame) - frame / count
        lesson_tokens = max(60, min(int(room), lessons.LONGEST_LESSON))
        texts = [
            lessons.at_length(entry, lesson_tokens, detail_key) if detail_key else entry
            for entry, detail_key in reflection.entries
        ]
        if room > lessons.LONGEST_LESSON:
            diagnosis_tokens = prompts.tokens(diagnosis) + int((room - lesson_tokens) * count)
            diagnosis = lessons.at_length(diagnosis, diagnosis_tokens, question.id)
        return fill.reflect(form, diagnosis, texts, reflection.tags)

    def _aggregate(self, prompt: Prompt, form: Form | None, match: QuestionMatch | None) -> str:
        inputs = self._records(prompt) or items.items_in(prompt.text, self.book)
        return fill.aggregate(
            form, aggregating.aggregate(inputs, self.book, self.law, self.seed, prompt.ordinal)
        )

    def _records(self, prompt: Prompt) -> list[items.Item]:
        return records.read(
            prompt.text, self.questions, self.book, self.law, self.seed, prompt.ordinal, self.plants
        )

    def _judge(self, prompt: Prompt, form: Form | None, match: QuestionMatch | None) -> str:
        if match is None:
            return fill.judge(form, False, "Nothing here tells what was asked.")
        trajectory = prompt.text[: match.start] + prompt.text[match.end :]
        right = not reflecting.missed(trajectory, match.question)
        key = (self.seed, "judge", prompt.model, match.question.id, prompt.ordinal, str(right))
        says_right = answering.verdict(right, prompt.model in self.lenient, self.law, *key)
        return fill.judge(form, says_right, "Compared with what the question asks.")

    def _chat(self, prompt: Prompt, form: Form | None, match: QuestionMatch | None) -> str:
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
    """Return the model that a configuration describes. Raises DataError for unreadable key or plant files."""
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
    """Return the sha256 hex of the canonical request: sorted JSON without the streaming options."""
    plain = {k: v for k, v in body.items() if k not in ("stream", "stream_options")}
    return draws.digest(json.dumps(plain, sort_keys=True, ensure_ascii=False))
