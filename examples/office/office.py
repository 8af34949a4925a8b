"""Made-up facts of one office, each asked about in many words: the model cannot know them, a playbook can tell."""
from combee.records import Example, Score
from combee.tasks.dataset import Fields, read_jsonl

FACTS = {
    "tiger": "The wifi password is tiger.",
    "4417": "The help desk extension is 4417.",
    "lisbon": "The head office is in Lisbon.",
    "friday": "The cleaning day is Friday.",
    "pepper": "The office cat is called Pepper.",
    "green": "The visitor badge is green.",
    "nine": "The library is on floor nine.",
    "cocoa": "The drink in the lobby is cocoa.",
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
        right = [fact for fact in FACTS if fact in answer] == [example.target]
        return Score(float(right), right, "" if right else f"Right would have been: {FACTS[example.target]}")
