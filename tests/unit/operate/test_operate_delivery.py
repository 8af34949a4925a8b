"""Whose ConfigMap a Playbook may deliver into."""

from __future__ import annotations

from typing import Any

import pytest

from combee import names
from combee.observe.playbooks import foreign


def there(**labels: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "team", "name": "shared", "labels": labels}}


OURS = {names.LABEL_MANAGED_BY: names.MANAGED_BY}


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ({}, "not ours"),
        ({names.LABEL_MANAGED_BY: "helm"}, "not ours"),
        ({**OURS, names.LABEL_PLAYBOOK: "finer"}, "the Playbook finer is delivered there"),
        ({**OURS, names.LABEL_PLAYBOOK: "formula"}, ""),
        (OURS, ""),
    ],
)
def test_a_playbook_delivers_into_its_own_only(labels: dict[str, str], says: str) -> None:
    error = foreign(there(**labels), "formula")
    assert (says in str(error)) if says else error is None
