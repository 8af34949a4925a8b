"""What no event told of is found by the next list."""

from __future__ import annotations

from typing import Any

from playbook_cluster import FakeKube

from combee import names
from combee.clients.kubernetes.kube import Object
from combee.errors import ClusterError
from combee.operator.census import Census

KINDS = (names.RUN_KIND, names.PLAYBOOK_KIND)
RUN, PLAYBOOK = ("team", "formula"), ("team", "sums")


async def there(kube: FakeKube, kind: str, key: tuple[str, str]) -> None:
    """An object that was made now."""
    await kube.create({"kind": kind, "metadata": {"namespace": key[0], "name": key[1]}})


async def test_what_was_made_or_changed_since_the_list_before_is_woken_once() -> None:
    kube, woken = FakeKube(), list[tuple[str, str]]()
    census = Census(kube, (), dict.fromkeys(KINDS, woken.append))  # type: ignore[arg-type]
    await census.look()
    assert woken == []
    await there(kube, names.RUN_KIND, RUN)
    await there(kube, names.PLAYBOOK_KIND, PLAYBOOK)
    await census.look()
    await census.look()
    assert woken == [RUN, PLAYBOOK]
    await kube.patch(names.RUN_KIND, *RUN, {"spec": {"suspend": True}})
    await census.look()
    assert woken == [RUN, PLAYBOOK, RUN]


async def test_a_version_that_went_back_is_a_change() -> None:
    kube, woken = FakeKube(versions=100), list[tuple[str, str]]()
    census = Census(kube, (), dict.fromkeys(KINDS, woken.append))  # type: ignore[arg-type]
    await there(kube, names.RUN_KIND, RUN)
    await census.look()
    kube.of(names.RUN_KIND)[RUN[1]]["metadata"]["resourceVersion"] = "7"
    await census.look()
    assert woken == [RUN, RUN]


class Partly(FakeKube):
    """Lists one namespace, and refuses the others."""

    async def list(self, kind: str, namespace: str, **asked: Any) -> list[Object]:
        if namespace != "team":
            raise ClusterError("you may not list them", where=namespace, status=403)
        return await super().list(kind, namespace, **asked)


async def test_a_namespace_that_cannot_be_listed_keeps_no_other_from_being_woken() -> None:
    kube, woken = Partly(), list[tuple[str, str]]()
    census = Census(kube, ("gone", "team"), dict.fromkeys(KINDS, woken.append))  # type: ignore[arg-type]
    await there(kube, names.RUN_KIND, RUN)
    await there(kube, names.PLAYBOOK_KIND, PLAYBOOK)
    await census.look()
    await census.look()
    assert woken == [RUN, PLAYBOOK]
