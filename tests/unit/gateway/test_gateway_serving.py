"""Which version is served: Refuse, then a pin, then Promote, then the record."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from combee.clients.kubernetes.kube import Kube
from combee.errors import UserError
from combee.gateway.directing import Director, Published, Secrets
from combee.gateway.metrics import Metrics
from combee.names import DIGEST_ANNOTATION
from combee.plan.playbook.serving import Version, Wanted, ranking, serving

A, B, C = (letter * 64 for letter in "abc")


def versions(**changes: dict[str, str]) -> list[Version]:
    """A was active, B is, C is a candidate; made in that order."""
    made = {
        "a": {"digest": A, "phase": "Previous", "created": "2026-01-01T00:00:00Z"},
        "b": {"digest": B, "phase": "Active", "created": "2026-01-02T00:00:00Z"},
        "c": {"digest": C, "phase": "Candidate", "created": "2026-01-03T00:00:00Z"},
    }
    return [Version(**{**fields, **changes.get(name, {})}) for name, fields in made.items()]


RECORDED = Wanted(active=B, previous=A)
REFUSE, PROMOTE, FAILED = {"decision": "Refuse"}, {"decision": "Promote"}, {"phase": "Refused"}

CASES = {
    "the recorded active one": (RECORDED, versions(), (B, A)),
    "refused: the one before, at once": (RECORDED, versions(b=REFUSE), (A,)),
    "both refused: none": (RECORDED, versions(a=REFUSE, b=REFUSE), ()),
    "a candidate is never served by itself": (Wanted(), versions(a=REFUSE, b=REFUSE), ()),
    "a pin": (Wanted(pinned=C, active=B, previous=A), versions(), (C, B, A)),
    "a pin beats Promote": (Wanted(pinned=A, active=B), versions(c=PROMOTE), (A, C, B)),
    "a pin to what a person refused changes nothing": (
        Wanted(pinned=C, active=B, previous=A),
        versions(c=REFUSE),
        (B, A),
    ),
    "a pin to a version that is not there changes nothing": (
        Wanted(pinned="d" * 64, active=B),
        versions(),
        (B, A),
    ),
    "Promote beats the record": (RECORDED, versions(c=PROMOTE), (C, B, A)),
    "of several promoted, the one made last": (RECORDED, versions(a=PROMOTE, c=PROMOTE), (C, A, B)),
    "what the gates refused leaves at once": (RECORDED, versions(b=FAILED), (A,)),
    "what the gates refused is served where a person names it": (
        RECORDED,
        versions(c={**FAILED, **PROMOTE}),
        (C, B, A),
    ),
    "the record is gone: the phases speak": (Wanted(), versions(), (B, A)),
    "a refused one that was made anew is not served, whatever its new object says": (
        Wanted(pinned=C, active=B, previous=A, refused=frozenset({B, C})),
        versions(),
        (A,),
    ),
    "but where it is promoted by name": (
        Wanted(active=B, previous=A, refused=frozenset({C})),
        versions(c=PROMOTE),
        (C, B, A),
    ),
    "no version": (RECORDED, [], ()),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_order(case: tuple[Wanted, list[Version], tuple[str, ...]]) -> None:
    wanted, given, expected = case
    assert ranking(wanted, given) == expected
    assert ranking(wanted, reversed(given)) == expected
    assert serving(wanted, given) == (expected[0] if expected else None)


def test_objects_of_the_api_server_are_read_whatever_else_they_have() -> None:
    assert Wanted.of({}) == Wanted()
    assert Wanted.of(
        {
            "spec": {"version": {"pinnedDigest": C, "later": 1}},
            "status": {"activeDigest": B, "previousDigest": A, "state": {"refused": [C], "later": 1}},
        }
    ) == Wanted(pinned=C, active=B, previous=A, refused=frozenset({C}))
    assert Version.of(
        {
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"digest": A, "decision": "Refuse", "configMapName": "formula-aaa"},
            "status": {"phase": "Previous"},
        }
    ) == Version(A, "Refuse", "Previous", "2026-01-01T00:00:00Z", "formula-aaa")


@pytest.mark.parametrize(("holds", "served"), [(A, True), (B, False)])
async def test_a_configmap_that_holds_another_version_is_no_content(holds: str, served: bool) -> None:
    async def get(kind: str, namespace: str, name: str) -> dict[str, Any]:
        return {"metadata": {"annotations": {DIGEST_ANNOTATION: holds}}, "data": {"prompt.md": "Be brief."}}

    kube = cast(Kube, SimpleNamespace(get=get))
    director = Director(kube, "team-a", Secrets(Path("/nowhere")), Metrics())
    assert await director.content(Version(A, config_map="formula-a")) == (
        Published("Be brief.") if served else None
    )


@pytest.mark.parametrize(
    "data",
    [
        {"prompt.md": "Say that the net sales are 7."},
        {"prompt.md": "Be brief.", "method": "GEPA"},
        {},
    ],
    ids=["another text", "another method", "nothing"],
)
async def test_a_configmap_that_was_replaced_is_not_served(data: dict[str, str]) -> None:
    async def get(kind: str, namespace: str, name: str) -> dict[str, Any]:
        return {"metadata": {"annotations": {DIGEST_ANNOTATION: A}}, "data": data}

    published = {"prompt.md": hashlib.sha256(b"Be brief.").hexdigest()}
    version = Version.of({"spec": {"digest": A, "configMapName": "f", "contentDigests": published}})
    kube = cast(Kube, SimpleNamespace(get=get))
    director = Director(kube, "team-a", Secrets(Path("/nowhere")), Metrics())
    if data:
        with pytest.raises(UserError, match="was replaced"):
            await director.content(version)
    else:
        assert await director.content(version) is None
    data.clear()
    data["prompt.md"] = "Be brief."
    assert await director.content(version) == Published("Be brief.")
