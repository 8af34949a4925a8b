"""Names that packages add: known ones, available ones, and the message for a broken package."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from pydantic import ValidationError

from combee import extensions
from combee.api.aggregation import Aggregation, Traits
from combee.api.method_options import Options
from combee.api.methods import Method
from combee.errors import ManifestError
from combee.strategies import cost_of
from combee.tasks.registry import task_for
from combee.work.aggregation.table import reduce_of

Declare = Callable[..., None]


class Thorough:
    """A strategy of a package."""

    traits = Traits(in_order=True)

    @staticmethod
    def cost(how: Any, batch: Any) -> str:
        return "its cost"

    @staticmethod
    def reduce(reduction: Any) -> str:
        return "its updates"


class Learner:
    """A method of a package, as far as a manifest asks it."""

    class Options(Options):
        """Its options."""

        depth: int = 3


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Declare]:
    """Declares names of a group, as an installed package does."""
    module = types.ModuleType("a_package")
    module.__dict__.update(Thorough=Thorough, Learner=Learner)
    monkeypatch.setitem(sys.modules, "a_package", module)

    def declared(group: str, **values: str) -> None:
        points = {name: EntryPoint(name, value, group) for name, value in values.items()}
        monkeypatch.setattr(extensions, "_declared", lambda of: points if of == group else {})

    yield declared


def test_a_strategy_of_a_package_has_its_traits_cost_and_work(declare: Declare) -> None:
    declare(extensions.STRATEGIES, Thorough="a_package:Thorough")
    how = Aggregation.model_validate({"strategy": "Thorough"})
    assert how.traits.in_order
    nothing: Any = None
    assert cost_of(how)(how, nothing) == "its cost"
    assert reduce_of("Thorough")(nothing) == "its updates"


def test_options_of_a_packages_method_are_read_by_its_own_model(declare: Declare) -> None:
    declare(extensions.METHODS, Learner="a_package:Learner")
    method = Method.model_validate({"type": "Learner", "options": {"depth": 5, "renderTokenBudget": 500}})
    assert isinstance(method.stated, Learner.Options)
    assert (method.stated.depth, method.render_token_budget) == (5, 500)
    assert method.budget_field == "spec.method.options.renderTokenBudget"
    assert Method.model_validate(method.dump()) == method
    with pytest.raises(ValidationError, match="depth of method Learner"):
        Method.model_validate({"type": "Learner", "options": {"depth": "deep"}})
    with pytest.raises(ValidationError, match="ace is given with type Learner"):
        Method.model_validate({"type": "Learner", "ace": {}})


def test_what_the_product_has_is_never_replaced(declare: Declare) -> None:
    declare(extensions.STRATEGIES, Naive="a_package:Thorough")
    how = Aggregation.model_validate({"strategy": "Naive"})
    assert how.traits.one_call and not how.traits.in_order
    assert cost_of(how) is not Thorough.cost


def test_a_name_that_a_crd_would_refuse_is_refused(declare: Declare) -> None:
    declare(extensions.STRATEGIES, **{"in-thirds": "a_package:Thorough"})
    with pytest.raises(ValidationError, match="not a name that manifests can have"):
        Aggregation.model_validate({"strategy": "in-thirds"})


def test_a_package_that_cannot_be_imported_is_named(declare: Declare) -> None:
    declare(extensions.METHODS, Gone="no_such_package:Gone")
    with pytest.raises(ManifestError, match="no_such_package:Gone cannot be imported: ModuleNotFoundError"):
        Method.model_validate({"type": "Gone"})


def test_a_task_of_a_package_is_kept_to_the_protocol(declare: Declare) -> None:
    declare(extensions.TASKS, Half="a_package:Learner")
    with pytest.raises(ManifestError, match="a_package:Learner has no method read_rows"):
        task_for("Half")
    with pytest.raises(ManifestError, match="Use Formula, FiNER, Reply, Traces, Half"):
        task_for("Other")
