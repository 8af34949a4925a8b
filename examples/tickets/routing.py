"""A task of one's own: which team does a support ticket belong to?"""

from collections.abc import Iterable

from combee.records import Example, Score
from combee.tasks.dataset import Dataset, Fields, read_jsonl


class Routing:
    """Rows ``{"id", "text", "queue"}``; an answer is right when it is the code of the ticket's queue."""

    name = "Routing"
    instructions = (
        "You route support tickets. Answer with the code of the one team that the ticket belongs to, such as ABC-1. "
        "The codes are this company's own: rely on the playbook for them."
    )
    answer_schema_description = "The code of the team, without other words."

    def read_rows(self, data: Iterable[bytes], where: str) -> Dataset:
        return read_jsonl(data, where=where, fields=Fields(input="text", target="queue"))

    def model_input(self, example: Example) -> str:
        return f"Ticket: {example.input}"

    def parse_answer(self, text: str) -> str:
        return text.strip().strip(".").upper()

    def score(self, answer: str, example: Example) -> Score:
        right = self.parse_answer(answer) == example.target
        said = "It is the right team." if right else f"The ticket belongs to {example.target}."
        return Score(float(right), right, said)
