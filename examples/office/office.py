"""Made-up facts of one office, each asked about in many words: the model cannot know them, a playbook can tell."""

import re

from combee.records import Example, Score
from combee.tasks.dataset import Fields, read_jsonl

FACTS = {
    "tiger": "The wifi password is tiger.",
    "rocket": "The printer is called Rocket.",
    "maple": "The meeting room is called Maple.",
    "olive": "The training room is called Olive.",
    "pepper": "The office cat is called Pepper.",
    "green": "The visitor badge is green.",
    "amber": "The fire signal is amber.",
}


class Office:
    name = "Office"
    instructions = "You answer questions about our office."
    answer_schema_description = "A short answer."

    def read_rows(self, data, where):
        return read_jsonl(data, where=where, fields=Fields(input="question", target="target"))

    def model_input(self, example: Example) -> str:
        return example.input

    def parse_answer(self, text: str) -> str:
        return " ".join(text.lower().split())[:200]

    def score(self, answer: str, example: Example) -> Score:
        """Right is the fact that was asked for, and no other one beside it."""
        right = FACTS.keys() & set(re.findall(r"\w+", answer)) == {example.target}
        return Score(float(right), right, "" if right else f"The right answer is: {FACTS[example.target]}")
