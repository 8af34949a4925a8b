"""Playbooks on a real cluster: versions made by hand, as runs make them, and what is served."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from cluster_tools import Cluster, eventually
from reading import APPLIED, MERGED

from combee.names import DIGEST_ANNOTATION, published_name
from combee.objects.versions import version_labels
from combee.plan.gatescores import GateScores

HELD_OUT = "cd" * 32
WAIVED = {"waived": "a test on heldOut alone"}


def scores(right: int, rows: int = 100) -> dict[str, float]:
    """The first ``right`` of the rows are right."""
    return {str(row): float(row < right) for row in range(rows)}


@dataclass
class Playbooks:
    """One Playbook of a namespace, called formula."""

    cluster: Cluster
    namespace: str
    name: str = "formula"

    def apply(self, **spec: Any) -> None:
        """Apply the Playbook, as GitOps tools do: by the server, and whatever others wrote. Its canary is
        waived unless one is given, and may be one of seconds; None leaves it out."""
        meta = {"name": self.name}
        spec = {
            name: part
            for name, part in {"failureCost": "Low", "canary": WAIVED, **spec}.items()
            if part is not None
        }
        body = {"apiVersion": "combee.dev/v1alpha1", "kind": "Playbook", "metadata": meta, "spec": spec}
        self._write("pb", body, name=self.name, form=APPLIED, fieldManager="kubectl", force="true")

    def _write(self, kind: str, body: dict[str, Any], **more: str) -> None:
        status, said = self.cluster.reader.write(kind, body, self.namespace, **more)
        assert status in (200, 201), said

    def version(
        self,
        text: str,
        *,
        right: int | None = None,
        base: int = 50,
        held_out: str = HELD_OUT,
        parent: str = "",
        decision: str = "Auto",
        models: dict[str, str] | None = None,
    ) -> str:
        """Make a version with its content as a run would; returns its digest."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        name = published_name(self.name, digest)
        data = {"prompt.md": text}
        spec: dict[str, Any] = {
            "playbookRef": {"name": self.name},
            "digest": digest,
            "configMapName": name,
            "decision": decision,
        }
        if parent:
            spec["parentDigest"] = parent
        if right is not None:
            data["gate.json"] = GateScores.paired(held_out, scores(base), scores(right)).to_json()
            gain = (right - base) / 100
            spec["scores"] = {
                "gate": {
                    "baseline": base / 100,
                    "best": right / 100,
                    "low": gain,
                    "high": gain,
                    "rows": 100,
                }
            }
            spec["origin"] = {"dataDigests": {"heldOut": held_out}, "models": models or {}}
        meta = {"name": name, "labels": version_labels(self.name)}
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**meta, "annotations": {DIGEST_ANNOTATION: digest}},
            "immutable": True,
            "data": data,
        }
        version = {
            "apiVersion": "combee.dev/v1alpha1",
            "kind": "PlaybookVersion",
            "metadata": meta,
            "spec": spec,
        }
        self._write("configmap", config)
        self._write("pbv", version)
        return digest

    def get(self) -> dict[str, Any]:
        return self.cluster.get("playbook", self.name, namespace=self.namespace)

    def status(self) -> dict[str, Any]:
        return self.get().get("status", {})

    def versions(self) -> dict[str, dict[str, Any]]:
        """By digest."""
        found = self.cluster.get("playbookversions", namespace=self.namespace)["items"]
        mine = [one for one in found if one["spec"]["playbookRef"]["name"] == self.name]
        return {one["spec"]["digest"]: one for one in mine}

    def phase(self, digest: str) -> str:
        return self.versions()[digest].get("status", {}).get("phase", "")

    def delivered(self) -> tuple[str, str]:
        """(digest, text) of the ConfigMap that services mount; empty where there is none."""
        found = self.cluster.find("configmap", f"{self.name}-playbook", namespace=self.namespace)
        if found is None:
            return "", ""
        return found["metadata"]["annotations"][DIGEST_ANNOTATION], found["data"]["prompt.md"]

    def delivered_uid(self) -> str:
        """Which object services mount: one that was gone for a moment comes back as another."""
        found = self.cluster.get("configmap", f"{self.name}-playbook", namespace=self.namespace)
        return str(found["metadata"]["uid"])

    def decide(self, digest: str, decision: str) -> None:
        """What ``kubectl combee playbook`` does."""
        change = {"spec": {"decision": decision}}
        self._write("pbv", change, name=published_name(self.name, digest), form=MERGED)

    def row(self) -> dict[str, str]:
        """What ``kubectl get pb -o wide`` shows of it, by column."""
        return self.cluster.reader.row("pb", self.name, self.namespace)

    def tells(self, *reasons: str, of: str = "") -> dict[str, str]:
        """Wait for Events of these reasons about the Playbook and about that version; return messages by
        reason."""

        def told() -> dict[str, str]:
            events = self.cluster.get("events", namespace=self.namespace)["items"]
            about = [one for one in events if one["involvedObject"]["kind"] == "Playbook"]
            mine = [
                one
                for one in about
                if one["involvedObject"]["name"] == self.name and of[:12] in one["message"]
            ]
            found = {one["reason"]: one["message"] for one in mine}
            return found if found.keys() >= set(reasons) else {}

        got: dict[str, str] = eventually(f"Events tell of {', '.join(reasons)}", told)
        return got

    def shows(self, **columns: str) -> None:
        """Wait until ``kubectl get pb`` shows these values, 12 digits of a digest; ``HELD_OUT`` is the column
        HELD-OUT."""
        wanted = {name.replace("_", "-"): value[:12] for name, value in columns.items()}
        shown: dict[str, str] = {}

        def true() -> bool:
            shown.update(self.row())
            return wanted.items() <= shown.items()

        try:
            eventually(f"kubectl get pb shows {wanted}", true)
        except BaseException:
            print(shown)
            raise

    def condition(self, type: str) -> dict[str, Any]:
        found = [c for c in self.status().get("conditions", ()) if c["type"] == type]
        return found[0] if found else {}

    def comes_to(self, digest: str, phase: str) -> None:
        """Wait until a version's status has a phase: delivery comes before the status."""
        eventually(f"{digest[:12]} is {phase}", lambda: self.phase(digest) == phase)

    def serves(self, digest: str, *, seconds: float = 180) -> None:
        """Wait until a version is active and delivered, and says so."""

        def true() -> bool:
            active = self.status().get("activeDigest", "") == digest and self.delivered()[0] == digest
            return active and self.phase(digest) == "Active"

        try:
            eventually(f"{digest[:12]} is served", true, seconds=seconds)
        except BaseException:
            print(self.cluster.kubectl("describe", "pb", self.name, namespace=self.namespace)[-5000:])
            print(self.cluster.kubectl("get", "pbv", "-o", "wide", namespace=self.namespace))
            raise
