"""A namespace with the chart's admission policies and no operator, and accounts that may do little there."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cluster_tools import Cluster, sharing
from reading import MERGED
from releases import Release

from admission_cases import Manifest

EDITOR = "alice"
TRUSTED = "bob"  # may get the Secret named theirs
STRONG = "carol"  # may create pods


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    said: dict[str, Any]

    @property
    def refused(self) -> bool:
        return self.status >= 400

    @property
    def text(self) -> str:
        """Why it is refused."""
        return str(self.said["message"]) if self.refused else ""


@dataclass(frozen=True)
class Tenant:
    """A namespace of the release, and accounts of it."""

    cluster: Cluster
    release: Release
    namespace: str

    def create(self, manifest: Manifest, user: str = "", *, keep: bool = False, **more: str) -> Answer:
        """Ask for it, by default without keeping it; ``more`` is the query."""
        query = more if keep else {"dryRun": "All", **more}
        kind = str(manifest["kind"]).lower()
        return Answer(*self.cluster.reader.write(kind, manifest, self.namespace, user=user, **query))

    def apply(self, manifest: Manifest) -> None:
        """Have it as it is written, by the administrator."""
        self.cluster.kubectl("apply", "-f", "-", namespace=self.namespace, stdin=manifest)

    def patch(
        self, name: str, change: dict[str, Any], user: str, *, kind: str = "plr", keep: bool = True
    ) -> str:
        """Why the server refuses a change; empty when it is made, be it with a warning."""
        query = {} if keep else {"dryRun": "All"}
        query |= {"name": name, "form": MERGED, "user": user}
        return Answer(*self.cluster.reader.write(kind, change, self.namespace, **query)).text


@contextmanager
def rented(cluster: Cluster) -> Iterator[Tenant]:
    """A tenant's namespace, which is deleted afterwards with the release."""
    namespace = f"test-{secrets.token_hex(4)}"
    meta = {"name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    with sharing():
        cluster.kubectl(
            "create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        )
        release = Release(cluster, namespace)
        tenant = Tenant(cluster, release, namespace)
        try:
            release.install(
                {"namespaces": [namespace], "operator": {"replicas": 0}, "store": {"create": False}}
            )
            _accounts(tenant)
            yield tenant
        finally:
            release.uninstall()
            cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def _accounts(tenant: Tenant) -> None:
    def bind(name: str, user: str, role: str) -> None:
        tenant.cluster.kubectl(
            *("create", "rolebinding", name, role, f"--user={user}"), namespace=tenant.namespace
        )

    def role(name: str, *rights: str) -> None:
        tenant.cluster.kubectl("create", "role", name, *rights, namespace=tenant.namespace)

    role("read-theirs", "--verb=get", "--resource=secrets", "--resource-name=theirs")
    role("make-pods", "--verb=create", "--resource=pods")
    role("make-runs", "--verb=create", "--resource=promptlearningruns.combee.dev")
    for user in (EDITOR, TRUSTED, STRONG):
        bind(f"{user}-edits", user, f"--clusterrole=combee-operator-{tenant.release.namespace}-editor")
    bind("bob-reads", TRUSTED, "--role=read-theirs")
    mounts = "--resource=configmaps,persistentvolumeclaims"
    role("mount-theirs", "--verb=get", mounts, "--resource-name=theirs")
    bind("bob-mounts", TRUSTED, "--role=mount-theirs")
    bind("carol-pods", STRONG, "--role=make-pods")
    # What the operator will be given once Playbooks make runs.
    bind("operator-runs", tenant.release.account, "--role=make-runs")
    tenant.cluster.kubectl(
        "create", "secret", "generic", "theirs", "--from-literal=token=x", namespace=tenant.namespace
    )
