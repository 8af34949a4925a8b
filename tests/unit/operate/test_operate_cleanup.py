"""The end of an uninstall: everything the operator made is deleted except data, once no operator writes."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from playbook_cluster import FakeKube, Object

from combee import names
from combee.api.stores import default_store
from combee.errors import ClusterError
from combee.objects.accounts import account_objects, isolation
from combee.objects.gateway import gateway_account
from combee.objects.sweep import sweep_job
from combee.objects.types import Settings
from combee.operator import cleanup, lease, main, program
from combee.plan.sweep import Memory
from combee.settings import CleanupSettings, read_settings

UNIT = Path(__file__).resolve().parents[1]
LABELS = {names.LABEL_NAME: "combee", names.LABEL_MANAGED_BY: names.MANAGED_BY}
EVERYWHERE = CleanupSettings((), "combee-cleanup-x", "system", made_accounts=True, log_level="INFO")
IN_TEAM = CleanupSettings(("team",), "combee-cleanup-x", "system", made_accounts=False, log_level="INFO")


class Server(FakeKube):
    """As much of an API server as lists by namespace."""

    async def list(self, kind: str, namespace: str, **more: Any) -> list[Object]:
        return [
            one
            for one in await super().list(kind, namespace, **more)
            if namespace in ("", one["metadata"]["namespace"])
        ]

    def fenced(self, fence: Callable[[], None]) -> Server:
        return self

    def names(self, *kinds: str) -> set[str]:
        return {name for kind in kinds or tuple(self.objects) for name in self.of(kind)}


async def server(holder: str = "") -> Server:
    """Something of every kind, made by the operator in two namespaces and by others, named
    ``<whose>-<kind>-<namespace>``; and a Lease that ``holder`` renewed now."""
    kube = Server()
    for kind in (*cleanup.AT_WORK, *cleanup.ACCOUNTS, "ConfigMap", names.PLAYBOOK_VERSION_KIND):
        for namespace in ("team", "other"):
            for whose, labels in (("ours", LABELS), ("theirs", {names.LABEL_MANAGED_BY: "Helm"})):
                meta = {"name": f"{whose}-{kind}-{namespace}", "namespace": namespace, "labels": labels}
                await kube.create({"kind": kind, "metadata": meta})
    renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    await kube.create(
        {"kind": "Lease", "metadata": {"name": lease.NAME, "namespace": "system"}, "spec": spec}
    )
    return kube


async def test_all_that_the_operator_made_goes_but_data_and_what_is_others() -> None:
    kube = await server()
    before = kube.names()
    await cleanup.clean(kube, EVERYWHERE)  # type: ignore[arg-type]
    gone = {
        f"ours-{kind}-{where}"
        for kind in (
            *("Deployment", "Job", "Service", "NetworkPolicy", "Workload"),
            *("SandboxTemplate", "SandboxWarmPool", "SandboxClaim"),
            *("RoleBinding", "ServiceAccount"),
        )
        for where in ("team", "other")
    }
    assert before - kube.names() == gone | {lease.NAME}


async def test_a_cluster_without_kueue_is_cleaned_up_like_any_other() -> None:
    kube = await server()
    listed = kube.list

    async def unserved(kind: str, namespace: str, **more: Any) -> list[Object]:
        if kind == "Workload":
            raise ClusterError("404 page not found", where=kind, status=404)
        return await listed(kind, namespace, **more)

    kube.list = unserved  # type: ignore[method-assign]
    await cleanup.clean(kube, EVERYWHERE)  # type: ignore[arg-type]
    assert not {name for name in kube.names("Job") if name.startswith("ours")}


async def test_where_it_served_some_namespaces_the_others_and_the_charts_accounts_are_not_touched() -> None:
    kube = await server()
    before = kube.names()
    await cleanup.clean(kube, IN_TEAM)  # type: ignore[arg-type]
    kinds = cleanup.AT_WORK
    assert before - kube.names() == {*(f"ours-{kind}-team" for kind in kinds), lease.NAME}


async def test_nothing_is_deleted_while_an_operator_holds_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = await server("combee-operator-1")
    before, looks, turn = kube.names(), list[set[str]](), asyncio.sleep

    async def sleep(_: float) -> None:
        looks.append(kube.names())
        held = kube.of("Lease").get(lease.NAME)
        if len(looks) == 3 and held:
            assert held["spec"]["holderIdentity"] == "combee-operator-1"
            held["spec"]["holderIdentity"] = ""
        await turn(0)

    monkeypatch.setattr(cleanup, "Fence", functools.partial(lease.Fence, sleep=sleep))
    await cleanup.clean(kube, EVERYWHERE)  # type: ignore[arg-type]
    assert looks[:3] == [before] * 3 and kube.names() < before


async def test_an_operator_that_is_gone_without_a_word_is_not_waited_for_longer_than_its_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kube, now, turn = await server("combee-operator-1"), [0.0], asyncio.sleep

    async def sleep(seconds: float) -> None:
        now[0] += seconds
        await turn(0)

    monkeypatch.setattr(cleanup, "Fence", functools.partial(lease.Fence, clock=lambda: now[0], sleep=sleep))
    await cleanup.clean(kube, EVERYWHERE)  # type: ignore[arg-type]
    assert lease.DURATION_SECONDS < now[0] < lease.DURATION_SECONDS + 30
    assert kube.names("Lease", "Job") == {"theirs-Job-team", "theirs-Job-other"}


async def test_the_lease_is_held_as_long_as_anything_is_to_be_deleted() -> None:
    class Watched(Server):
        async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> bool:
            if kind != "Lease":
                holders.add(self.of("Lease")[lease.NAME]["spec"]["holderIdentity"])
                assert uid == self.of(kind)[name]["metadata"]["uid"]
            return await super().delete(kind, namespace, name, uid=uid)

    holders: set[str] = set()
    kube = Watched((await server()).objects)
    await cleanup.clean(kube, EVERYWHERE)  # type: ignore[arg-type]
    assert holders == {EVERYWHERE.pod_name}


async def test_what_cannot_be_deleted_fails_it_and_leaves_the_lease_held_for_the_next_attempt() -> None:
    class Refusing(Server):
        async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> bool:
            raise ClusterError("not allowed", where=f"{kind} {name}", status=403)

    kube = Refusing((await server()).objects)
    with pytest.raises(ClusterError, match="not allowed"):
        await cleanup.clean(kube, EVERYWHERE)  # type: ignore[arg-type]
    assert kube.names("Lease") == {lease.NAME}


GOLDEN = sorted(
    path for path in UNIT.glob("*/golden/**/*.yaml") if path.relative_to(UNIT).parts[0] != "chart"
)


def test_whatever_the_operator_makes_is_data_or_is_found_by_its_labels() -> None:
    """A new kind of object is deleted at uninstall, or is listed here as data."""
    made = [one for path in GOLDEN for one in yaml.safe_load_all(path.read_text()) if one]
    settings = Settings(worker_image="w", make_accounts=True)
    made += [*account_objects("team", settings), *gateway_account("team"), *isolation("team")]
    made.append(sweep_job(Memory(default_store(), ()), "team", 0.0, settings))
    kinds = {one["kind"] for one in made}
    assert kinds == {*cleanup.AT_WORK, *cleanup.ACCOUNTS, "ConfigMap"}
    wanted = dict(pair.split("=") for pair in cleanup.MADE.split(","))
    for one in made:
        if one["kind"] != "ConfigMap":
            assert wanted.items() <= one["metadata"]["labels"].items(), one["metadata"]["name"]


def test_the_command_cleans_up_and_does_not_begin_to_operate(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[CleanupSettings] = []

    async def clean_up(settings: CleanupSettings) -> None:
        told.append(settings)

    monkeypatch.setattr(main, "clean_up", clean_up)
    monkeypatch.setattr(main, "to_stderr", lambda level: None)
    monkeypatch.setattr("sys.argv", ["combee-operator", "cleanup"])
    for name, value in {
        "POD_NAME": "combee-cleanup-x",
        "POD_NAMESPACE": "system",
        "COMBEE_NAMESPACES": "team",
        "COMBEE_MAKE_ACCOUNTS": "false",
        "COMBEE_LOG_LEVEL": "info",
    }.items():
        monkeypatch.setenv(name, value)
    program.main()
    assert told == [IN_TEAM] == [read_settings(CleanupSettings, "combee-operator cleanup")]


def test_the_command_without_its_namespace_says_so_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["combee-operator", "cleanup"])
    monkeypatch.setenv("POD_NAME", "combee-cleanup-x")
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    assert "POD_NAMESPACE is not set" in capsys.readouterr().err
