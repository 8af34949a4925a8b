"""Rules that hold for all models at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from combee.api.common import Model
from combee.api.fields import fields_of, model_of
from combee.api.playbook import Playbook, PlaybookSpec, PlaybookVersion, VersionSpec
from combee.api.run import PromptLearningRun
from combee.api.status import RunStatus

OPERATOR = Path(__file__).parents[3] / "operator"


def models(model: type[Model]) -> Iterator[type[Model]]:
    yield model
    for field in fields_of(model).values():
        if (inner := model_of(field.annotation)) is not None:
            yield from models(inner)


@pytest.mark.parametrize("root", [PromptLearningRun, RunStatus, Playbook, PlaybookVersion])
def test_every_model_and_field_is_described(root: type[Model]) -> None:
    for model in models(root):
        assert model.__doc__
        for name, field in fields_of(model).items():
            assert field.description, f"{model.__name__}.{name}"
            assert field.description.endswith((".", ")")), field.description


@pytest.mark.parametrize("root", [PromptLearningRun, PlaybookSpec, VersionSpec])
def test_every_spec_model_is_strict_and_immutable(root: type[Model]) -> None:
    for model in models(root):
        assert model.model_config["extra"] == "forbid"
        assert model.model_config["frozen"] is True


def test_importing_the_spec_is_light() -> None:
    heavy = ("yaml", "numpy", "difflib", "openai")
    code = f"import sys, combee.api.run; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=OPERATOR
    )
    assert out.stdout.strip() == "[]"
