"""The static rulebook: the rule of each topic, its statements, and where a text states it.

A rule = topic + right anchor + one typically wrong anchor. Rules come from key files (any task), which may
state them in words, and for the planted task from the procedure's name. The rules that the model does not
know are drawn by hash until their share of the questions is the task's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from combee.sim import draws, lessons, planted, wordings
from combee.sim.params import TASK_LAWS, TaskLaw

_CODES = re.compile(r"(?<!\w)[A-Z]{2}-\d{4}(?!\w)")
_NAMED = re.compile(r'"(?=([^"\\\n]{1,160})\\?")')
_LINES = re.compile(r"multiply the input by (\d+) and add (\d+)")
_TOPIC = re.compile(r"question uses ([^,\n]{1,200}),")
_BLURRED = re.compile(re.escape(lessons.PLATITUDE) + r"[^\n.]{0,60}? on ([^,\n]{1,200}),")
_BACK = 240
_SOME_TOPIC = "this kind of task"
HURT_TOPICS = 3
"""Topics that a filler harms which harms others than its own."""


@dataclass(frozen=True, slots=True)
class Rule:
    """``name`` is the topic's name in sentences; a line states the rule when it holds topic and anchor.

    An anchor is what lessons say to do, or the code of a convention.
    """

    task: str
    topic: str
    name: str
    right: str
    wrong: str
    known: bool

    def named_in(self, line: str) -> bool:
        """Return whether a line holds the topic."""
        return self.topic in line or self.name in line

    def phrase(self, side: str) -> str:
        """Return the rule in words, with the anchor of ``side``, ``right`` or ``wrong``."""
        anchor = self.right if side == "right" else self.wrong
        return f"work under convention {anchor}" if _CODES.fullmatch(anchor) else anchor


@dataclass(frozen=True, slots=True)
class Hit:
    """A lesson in a text. ``kind``: right, wrong, note, blur or plant; ``key`` names it."""

    kind: str
    key: str
    position: int
    name: str
    """the topic's name in sentences."""


class Rulebook:
    """All rules, and how to find their statements in any text."""

    def __init__(
        self,
        weights: Mapping[str, Mapping[str, float]],
        seed: int,
        plants: tuple[str, ...] = (),
        stated: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        harm_share: float = 0.0,
        wording_share: float = 0.0,
    ) -> None:
        """``weights``: per task, how often each topic is asked. ``plants``: texts of planted lessons.
        ``stated``: rules in words by topic, as in a key file. ``harm_share``, ``wording_share``: as in the
        law."""
        self._rules: dict[str, Rule] = {}
        self._anchors: dict[str, tuple[str, str]] = {}
        self._by_mark: dict[str, list[tuple[str, str, str]]] = {}
        """(statement, topic, side) by the name in it, as it stands in text and in a JSON string."""
        self._plants = plants
        self._seed, self._harm_share, self._wording_share = seed, harm_share, wording_share
        self._by_words: dict[tuple[str, str], tuple[str, str]] = {}
        """(topic, side) by the topic's name and the rule in words alone; empty where none is stated so."""
        for task, topics in weights.items():
            if task == "planted":
                continue
            unknown = _unknown(topics, TASK_LAWS[task].unknown, seed, task)
            for topic in sorted(topics):
                rule = stated.get(topic, {})
                right, wrong = (self._anchor(task, topic, side, rule) for side in ("right", "wrong"))
                name = rule.get("name", topic)
                self._rules[topic] = Rule(task, topic, name, right, wrong, topic not in unknown)
                for side, anchor in (("right", right), ("wrong", wrong)):
                    plain = wordings.unmarked(anchor) if wording_share else None
                    if plain is not None:
                        self._by_words[name, wordings.turned_back(plain)] = topic, side
        self._topics = tuple(self._rules)

    def _anchor(self, task: str, topic: str, side: str, rule: Mapping[str, str]) -> str:
        anchor = rule.get(side, "")
        mark = _NAMED.search(anchor)
        if mark is None or anchor in self._anchors:
            return self._new_code(task, topic, side)
        self._anchors[anchor] = (topic, side)
        for text in (anchor, anchor.replace('"', '\\"')):
            self._by_mark.setdefault(mark.group(1), []).append((text, topic, side))
        return anchor

    def _new_code(self, task: str, topic: str, side: str) -> str:
        attempt = 0
        while True:
            value = draws.number("rule", task, topic, side, attempt)
            first, second = chr(65 + value % 26), chr(65 + value // 26 % 26)
            code = f"{first}{second}-{1000 + value // 676 % 9000}"
            if code not in self._anchors:
                self._anchors[code] = (topic, side)
                return code
            attempt += 1

    def hurt_by(self, note: str, name: str) -> list[str]:
        """Return the topics whose questions a filler on the topic ``name`` harms."""
        if draws.unit(self._seed, "harm", note) >= self._harm_share:
            return []
        others = [topic for topic in self._topics if name not in (topic, self._rules[topic].name)]
        return sorted(others, key=lambda topic: draws.number(self._seed, "hurt", note, topic))[:HURT_TOPICS]

    def rule(self, topic: str) -> Rule:
        """Return the rule of a topic; rules of the planted task are created on first use."""
        if (rule := self._rules.get(topic)) is None:
            right, wrong = planted.line(topic, "right").phrase, planted.line(topic, "wrong").phrase
            rule = Rule("planted", topic, f"procedure {topic}", right, wrong, known=False)
            self._rules[topic] = rule
        return rule

    def has(self, topic: str) -> bool:
        """Return whether the topic has a rule here."""
        return topic in self._rules or re.fullmatch(r"P-\d{4}", topic) is not None

    def law(self, topic: str) -> TaskLaw:
        """Return the model's behaviour on the topic's task."""
        return TASK_LAWS[self.rule(topic).task]

    def rules_in(self, text: str) -> Iterator[tuple[str, str, int]]:
        """Yield (topic, side, position) of every anchor of a rule, wherever it stands."""
        for match in _CODES.finditer(text):
            if anchor := self._anchors.get(match.group()):
                yield anchor[0], anchor[1], match.start()
        for match in _NAMED.finditer(text):
            for statement, topic, side in self._by_mark.get(match.group(1), ()):
                start = match.start() - statement.index('"')
                if start >= 0 and text.startswith(statement, start):
                    yield topic, side, start
        if self._by_words:
            for match in wordings.STATED.finditer(text):
                if rule := self._by_words.get((match.group(1), wordings.turned_back(match.group(2)))):
                    yield *rule, match.start(2)
        if "multiply the input by " in text:
            for match in _LINES.finditer(text):
                if anchor := self._planted(text, match):
                    yield anchor[0], anchor[1], match.start()

    def _planted(self, text: str, match: re.Match[str]) -> tuple[str, str] | None:
        start = text.rfind("P-", max(0, match.start() - _BACK), match.start())
        topic = text[start : start + 6]
        if start < 0 or not re.fullmatch(r"P-\d{4}", topic):
            return None
        rule, phrase = self.rule(topic), match.group()
        if phrase not in (rule.right, rule.wrong):
            return None
        return topic, "right" if phrase == rule.right else "wrong"

    def lessons_in(self, text: str) -> list[Hit]:
        """Return every lesson in a text, by its anchor, in order; repeats count again."""
        hits = []
        plant_spans: list[tuple[int, int]] = []
        for index, plant in enumerate(self._plants):
            start = text.find(plant)
            while start >= 0:
                hits.append(Hit("plant", str(index), start, ""))
                plant_spans.append((start, start + len(plant)))
                start = text.find(plant, start + len(plant))
        for topic, side, position in self.rules_in(text):
            hits.append(Hit(side, topic, position, self.rule(topic).name))
        for note, position in lessons.notes_in(text):
            hits.append(Hit("note", note, position, _topic_before(text, position)))
        if lessons.PLATITUDE in text:
            for match in _BLURRED.finditer(text):
                hits.append(Hit("blur", draws.digest(match.group())[:16], match.start(), match.group(1)))
        if plant_spans:
            hits = [
                h for h in hits if h.kind == "plant" or not any(a <= h.position < b for a, b in plant_spans)
            ]
        return sorted(hits, key=lambda hit: hit.position)

    def entry(self, hit: Hit, *luck: str | int) -> str:
        """Return the lesson as a playbook entry of about 50 tokens (a planted lesson: verbatim)."""
        if hit.kind == "plant":
            return self._plants[int(hit.key)]
        if hit.kind == "note":
            return self.note_entry(hit.name, hit.key, *luck)
        if hit.kind == "blur":
            return lessons.platitude(hit.name, *luck)
        return self.rule_entry(self.rule(hit.key), hit.kind, *luck)

    def rule_entry(self, rule: Rule, side: str, *luck: str | int) -> str:
        """Return a rule as a lesson or an entry, a share of them in words alone."""
        phrase = rule.phrase(side)
        plain = wordings.unmarked(phrase) if self._in_words(*luck) else None
        if plain is None:
            return lessons.rule_entry(rule.name, phrase, *luck)
        return wordings.rule_entry(rule.name, plain, *luck)

    def note_entry(self, name: str, note: str, *luck: str | int) -> str:
        """Return a filler as a lesson or an entry, a share of them in words alone."""
        if not self._in_words(*luck):
            return lessons.note_entry(name, note, *luck)
        return wordings.note_entry(name, note, lessons.advice(note), *luck)

    def _in_words(self, *luck: str | int) -> bool:
        return bool(self._wording_share) and draws.unit("in words", *luck) < self._wording_share


def _topic_before(text: str, position: int) -> str:
    start = text.rfind("question uses ", max(0, position - _BACK), position)
    match = _TOPIC.match(text, start) if start >= 0 else None
    return match.group(1) if match else _SOME_TOPIC


def _unknown(weights: Mapping[str, float], share: float, seed: int, task: str) -> frozenset[str]:
    """Return topics whose joint weight is the share to within .012: tries hashed orders until one fits."""
    total = sum(weights.values()) or 1.0
    chosen: frozenset[str] = frozenset()
    for turn in range(300):
        order = sorted(weights, key=lambda topic, turn=turn: draws.number(seed, "unknown", task, turn, topic))  # type: ignore[misc]
        selected, selected_share = [], 0.0
        for topic in order:
            weight = weights[topic] / total
            if selected_share + weight <= share + 0.01:
                selected.append(topic)
                selected_share += weight
            if selected_share >= share - 0.01:
                break
        chosen = frozenset(selected)
        if abs(selected_share - share) < 0.012:
            break
    return chosen
