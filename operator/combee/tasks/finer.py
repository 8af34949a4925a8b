"""FiNER: each row asks for the XBRL tags of several entities, four in the data, in their order.

Data: FiNER-139 (https://huggingface.co/datasets/nlpaueb/finer-139, CC BY-SA 4.0) in the rows of
https://github.com/ace-agent/ace; see examples/data/finer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from combee.records import Example, Score
from combee.tasks.protocol import ContextTask

MAX_TEXT = 20_000
"""most characters read of an answer, counted from its end."""
MAX_ANSWER = 2_000
"""most characters kept of an answer; the longest target in the data has 480."""

_FENCE = re.compile(r"^[ \t]*```.*$", re.M)
_LABEL = re.compile(r"\b(?:answers?|tags)\W{0,4}:", re.I)
_LIST = re.compile(r"\[([^\[\]]*)\]")
_AND = r"and[ \t]+(?=\w{0,150}[a-z0-9][A-Z])"
_SEPARATOR = re.compile(rf"[,;][ \t]*\n|[,;][ \t]*{_AND}|[ \t]{_AND}|[,;\n]")
_REMARK = re.compile(r"\([^()]*\)")
_NUMBERING = re.compile(r"^\W*\d{1,3}\s*[.)]\s*")
_PREFIX = re.compile(r"^\W*(?:us[-_ ]?gaap[-_ ]+)+", re.I)
_CAMEL = re.compile(r"[a-z0-9][A-Z]")
_OTHER = re.compile(r"[^A-Za-z0-9]+")
_TAG = re.compile(r"\s*(?:us-gaap:)?[A-Za-z][A-Za-z0-9]*\s*", re.I)


@dataclass(frozen=True, slots=True)
class FinerTask(ContextTask):
    """Rows ``{"context", "target"}``; an answer is right when every position holds the target's tag."""

    name: str = "FiNER"
    instructions: str = (
        "You tag figures in financial reports. Each question names some entities, each with its sentence. "
        "Choose for each entity the one US GAAP tag of the options given that says what the figure "
        "is, by the "
        "words around it rather than by its size. Answer with one tag for each entity, in the order asked."
    )
    answer_schema_description: str = (
        "The tags in the order of the entities, separated by commas, without other words."
    )

    def unfit_target(self, target: str) -> str | None:
        """Return what is wrong with a target that is not a list of tags."""
        valid = all(_TAG.fullmatch(part) for part in target.split(","))
        return None if valid else "is not a list of tags, separated by commas"

    def parse_answer(self, text: str) -> str:
        """Return the tags as one string: ``'["us-gaap:Revenues", "Goodwill"]'`` ->
        ``"Revenues,Goodwill"``."""
        return ",".join(tags_of(text))[:MAX_ANSWER].rstrip(",")

    def score(self, answer: str, example: Example) -> Score:
        """Return 1 when all tags are right, with none missing and none too many, else 0.

        ``partial`` is the share of positions with the right tag, out of the positions of the target or of the
        answer, whichever are more: nothing is padded or cut off. Case does not count. The feedback states the
        target and the wrong positions.
        """
        if self.unfit_target(example.target) is not None:
            return Score(0.0, False, "The target of this example is not a list of tags.")
        target_tags, tags = tags_of(example.target), tags_of(self.parse_answer(answer))
        expected = f"Expected {example.target}"
        if not any(tags):
            return Score(0.0, False, f"{expected}; the answer holds no tag.", partial=0.0)
        pairs = list(zip(tags, target_tags, strict=False))
        wrong = [
            position for position, (tag, target) in enumerate(pairs, 1) if tag.casefold() != target.casefold()
        ]
        right = len(pairs) - len(wrong)
        if right == len(target_tags) == len(tags):
            return Score(1.0, True, f"Right: expected {example.target}.", partial=1.0)
        partial = right / max(len(target_tags), len(tags))
        summary = f"{expected}, got {','.join(tags)[:MAX_ANSWER]}."
        return Score(
            0.0, False, f"{summary} {_verdict(right, wrong, len(tags), len(target_tags))}", partial=partial
        )


def tags_of(text: str) -> list[str]:
    """Return the tags in a model's reply, in order and as spelled there; never raises, never evaluates.

    Tags may be separated by commas, semicolons or lines, or stand in a JSON list, with numbering, bullets,
    quotes, remarks in brackets or a ``us-gaap:`` prefix; blanks inside a tag are removed. A single label such
    as ``Answer:`` cuts off the text before it. An empty position between two commas keeps its place, as
    ``""``. Linear in the text.
    """
    text = _FENCE.sub("", "\n".join(text[-MAX_TEXT:].splitlines()))
    labels = list(_LABEL.finditer(text))
    if len(labels) == 1 and re.search(r"\w", text[labels[0].end() :]):
        text = text[labels[0].end() :]
    lists = [inner for inner in _LIST.findall(text) if "," in inner]
    if lists:
        text = lists[-1]
    lines = (line for line in text.split("\n") if re.search(r"[^\W_]", line) and not _heading(line))
    tags = [_tag(piece) for piece in _SEPARATOR.split("\n".join(lines))]
    while tags and not tags[-1]:
        tags.pop()
    return tags


def _heading(line: str) -> bool:
    return line.rstrip(" \t*_").endswith(":")


def _tag(piece: str) -> str:
    """Return one tag without its surroundings: the only CamelCase word of a sentence, else its words
    joined."""
    piece = _NUMBERING.sub("", _REMARK.sub(" ", piece))
    piece = _PREFIX.sub("", piece.rpartition(":")[2])
    words = [word for word in (_OTHER.sub("", word) for word in piece.split()) if word]
    camel = [word for word in words if _CAMEL.search(word)]
    return camel[0] if len(camel) == 1 else "".join(words)


def _verdict(right: int, wrong: list[int], tag_count: int, target_count: int) -> str:
    parts = [f"{right} of {target_count} tags are right"]
    if wrong:
        parts.append(f"wrong at position {', '.join(map(str, wrong))}")
    if tag_count < target_count:
        parts.append(f"{target_count - tag_count} missing at the end")
    if tag_count > target_count:
        parts.append(f"{tag_count - target_count} too many")
    return "; ".join(parts) + "."
