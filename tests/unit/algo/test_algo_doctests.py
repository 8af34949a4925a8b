"""Every public function of combee.algo has an example in its docstring."""

import importlib
import inspect
import pkgutil

import pytest

import combee.algo

MODULES = [f"combee.algo.{info.name}" for info in pkgutil.iter_modules(combee.algo.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_public_functions_are_documented_with_an_example(name: str) -> None:
    module = importlib.import_module(name)
    for label, member in inspect.getmembers(module, inspect.isfunction):
        if member.__module__ == name and not label.startswith("_"):
            assert ">>>" in (member.__doc__ or ""), f"{name}.{label} has no example"
