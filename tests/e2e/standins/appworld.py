"""What examples/appworld/solve.py asks of AppWorld's package, for tasks of a greenhouse in its layout.

It stands in where appworld, which needs pydantic before version 2 and data of its own, is not installed: the
names are AppWorld's, the world has one app, and a task is done when the answer is the ground truth's.
"""

import contextlib
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace


class AppWorld:
    """A task's world."""

    def __init__(self, task_id, experiment_name):
        folder = Path(os.environ["APPWORLD_ROOT"]) / "data" / "tasks" / task_id
        specs = json.loads((folder / "specs.json").read_text())
        self.truth = json.loads((folder / "ground_truth" / "metadata.json").read_text())
        self.right = json.loads((folder / "ground_truth" / "answer.json").read_text())
        self.task = SimpleNamespace(
            instruction=specs["instruction"], supervisor=SimpleNamespace(**specs["supervisor"])
        )
        self.answers = []
        self.output = Path(os.environ["APPWORLD_ROOT"]) / "experiments" / "outputs" / experiment_name

    def __enter__(self):
        self.output.mkdir(parents=True)
        return self

    def __exit__(self, *_):
        (self.output / "done").touch()

    def execute(self, code):
        printed = io.StringIO()
        greenhouse = SimpleNamespace(feel_soil=lambda: self.truth["soil"])
        supervisor = SimpleNamespace(complete_task=lambda answer=None: self.answers.append(answer))
        with contextlib.redirect_stdout(printed):
            exec(code, {"apis": SimpleNamespace(greenhouse=greenhouse, supervisor=supervisor)})
        return printed.getvalue()

    def task_completed(self):
        return bool(self.answers)

    def evaluate(self):
        success = self.answers == [self.right]
        failures = [] if success else [{"requirement": self.truth["lesson"], "trace": "", "label": None}]
        return SimpleNamespace(success=success, failures=failures)
