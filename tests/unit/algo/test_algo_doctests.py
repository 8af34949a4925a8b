"""Every example in a docstring of combee.algo runs, and every public function has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import combee.algo

MODULES = [f"combee.algo.{info.name}" for info in pkgutil.iter_modules(combee.algo.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), verbose=False)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_public_functions_are_documented_with_an_example(name: str) -> None:
    module = importlib.import_module(name)
    for label, member in inspect.getmembers(module, inspect.isfunction):
        if member.__module__ == name and not label.startswith("_"):
            assert ">>>" in (member.__doc__ or ""), f"{name}.{label} has no example"
