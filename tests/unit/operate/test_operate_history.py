"""Which ConfigMaps are lines of a Playbook's history."""

from __future__ import annotations

from typing import Any, cast

from playbook_cluster import FakeKube

from combee import names
from combee.api.playbook_status import HistoryLine, Trail
from combee.clients.kubernetes.kube import Kube
from combee.observe.history import filed_lines
from combee.operator.playbooks.history import History
from combee.plan.playbook.trail import appended
from combee.records import Owner

NAMES = ("formula-history-000002", "formula-history-000001", "other-history-000003", "formula-history-x")


class Listing:
    """A cluster with ConfigMaps of these names, all with the label."""

    def __init__(self, *called: str) -> None:
        self.called = called

    async def list(self, kind: str, namespace: str, labels: str) -> list[dict[str, Any]]:
        assert (kind, namespace, labels) == ("ConfigMap", "team", f"{names.LABEL_HISTORY}=formula")
        return [{"metadata": self.meta(one), "data": {names.LINE_KEY: one}} for one in self.called]

    def meta(self, name: str) -> dict[str, Any]:
        """Labels may be anybody's; what counts is who wrote the line."""
        fields = {"f:data": {f"f:{names.LINE_KEY}": {}}}
        labelled = {"manager": "kubectl-label", "time": "t2", "fieldsV1": {"f:metadata": {"f:labels": {}}}}
        writer = "kubectl-create" if name.endswith("1") else names.PROGRAM
        return {
            "name": name,
            "managedFields": [{"manager": writer, "time": "t1", "fieldsV1": fields}, labelled],
        }


async def test_lines_come_by_number_and_other_config_maps_are_none() -> None:
    lines = await filed_lines(cast(Kube, Listing(*NAMES)), "team", "formula")
    assert [(one.number, one.text) for one in lines] == [(1, NAMES[1]), (2, NAMES[0])]
    assert [one.writer for one in lines] == ["kubectl-create at t1", "combee at t1"]


async def test_a_number_that_no_status_can_hold_is_no_line() -> None:
    forged = "formula-history-" + "9" * 40
    lines = await filed_lines(cast(Kube, Listing(NAMES[1], forged)), "team", "formula")
    assert [one.number for one in lines] == [1]


async def test_a_line_that_is_gone_since_it_was_written_is_written_again() -> None:
    """As after a cluster came back from a snapshot that was taken between the line and its status."""
    kube, owner = FakeKube(), Owner("formula", "team", "uid-1")
    history = History(kube)  # type: ignore[arg-type]
    trail = appended(Trail(), HistoryLine(event="Made"), HistoryLine(event="Promoted"))
    await history.file(owner, trail)
    written = dict(kube.of("ConfigMap"))
    assert len(written) == 2 and await history.filed(owner, trail) == 2
    for name, known in (("formula-history-000002", 1), ("formula-history-000001", 0)):
        del kube.of("ConfigMap")[name]
        assert await history.filed(owner, trail) == known
    await history.file(owner, trail)
    assert kube.of("ConfigMap").keys() == written.keys()
    assert await history.filed(owner, trail) == 2
