"""Which GPUs a run's own engines get, as the labels say of the nodes that their pods may use. Pure.

It is told only where it is certain before anything starts: each node with enough GPUs that nodeSelector,
required affinity and taints leave must bear a label that names them, and all must name the same. Anything
else is a reason to ask. What passes by itself, such as a node that is not ready, keeps no node out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from combee.api.common import one_line
from combee.api.discipline import untyped
from combee.api.engines import Engine
from combee.api.parts import Toleration
from combee.api.run import RunSpec

GPU = "nvidia.com/gpu"
"""What pods of engines ask a node for."""
LABELS = (
    ("nvidia.com/gpu.product", "nvidia.com/gpu.memory"),
    ("karpenter.k8s.aws/instance-gpu-name", "karpenter.k8s.aws/instance-gpu-memory"),
    ("cloud.google.com/gke-accelerator", ""),
)
"""Labels that name a node's GPUs and their memory in MiB: of NVIDIA's discovery, of Karpenter, of GKE."""
PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of the taints of a node that is not ready, cordoned or new: they go."""
_SHOWN_BYTES = 40


@dataclass(frozen=True, slots=True)
class Node:
    """A node with GPUs."""

    gpus: int
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...] = ()

    @property
    def named(self) -> str:
        """Its GPUs as its labels name them; empty where none does."""
        for product, memory in LABELS:
            if name := self.labels.get(product, ""):
                mib = self.labels.get(memory, "")
                return f"{name}, {mib} MiB each" if mib.isdecimal() else name
        return ""


@dataclass(frozen=True, slots=True)
class EngineGpus:
    """What the nodes say of the engines whose GPUs a run does not name, by the engines' names."""

    hardware: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    """why they do not tell."""


def node_of(raw: Mapping[str, Any]) -> Node | None:
    """Return what is read of a Node object; None where it has no GPUs."""
    status = raw.get("status", {})
    gpus = str((status.get("allocatable") or status.get("capacity") or {}).get(GPU, "0"))
    if not gpus.isdecimal() or not int(gpus):
        return None
    taints = tuple(raw.get("spec", {}).get("taints") or ())
    return Node(int(gpus), raw["metadata"].get("labels") or {}, taints)


def engine_gpus(spec: RunSpec, nodes: Sequence[Node] | None) -> EngineGpus:
    """Return what the nodes say. ``nodes``: those with GPUs; None where the operator may not read them."""
    hardware: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for engine in untyped(spec):
        name, why = _gpus_of(engine, nodes)
        if why:
            unknown[engine.name] = why
        else:
            servers = engine.server
            hardware[engine.name] = f"{servers.replicas} x {servers.gpus_per_replica} {name}"
    return EngineGpus(hardware, unknown)


def with_hardware(spec: RunSpec, known: EngineGpus) -> RunSpec:
    """Return the spec with the hardware of its engines stated as the nodes told it."""
    engines = tuple(
        engine.model_copy(update={"hardware": known.hardware[engine.name]})
        if engine.only_counts_gpus and engine.name in known.hardware
        else engine
        for engine in spec.engines
    )
    return spec.model_copy(update={"engines": engines})


def _gpus_of(engine: Engine, nodes: Sequence[Node] | None) -> tuple[str, str]:
    """Return the name of the GPUs that an engine gets, or else why it is not known."""
    if nodes is None:
        return "", "The operator may not read nodes (the chart's readNodes)"
    fit = [node for node in nodes if _fits(engine, node)]
    if not fit:
        lacks = f"No node that its pods may use has {engine.server.gpus_per_replica} GPUs now"
        return "", f"{lacks}; kubectl get nodes -L {LABELS[0][0]} lists them"
    names = sorted({node.named for node in fit})
    if "" in names:
        return "", "A node that its pods may use has no label that names its GPUs"
    if len(names) > 1:
        some = " and ".join(one_line(name, _SHOWN_BYTES) for name in names[:2])
        return "", f"Its pods may use nodes of {some}: a nodeSelector decides it, too"
    return names[0], ""


def _fits(engine: Engine, node: Node) -> bool:
    pod = engine.template.spec
    selected = all(node.labels.get(key) == value for key, value in pod.node_selector.items())
    tolerated = all(_tolerated(taint, pod.tolerations) for taint in node.taints)
    enough = node.gpus >= engine.server.gpus_per_replica
    return enough and selected and tolerated and _attracts(pod.affinity, node.labels)


def _tolerated(taint: Mapping[str, str], tolerations: Sequence[Toleration]) -> bool:
    """Return whether a taint keeps no pod out that asks for GPUs and tolerates ``tolerations``. A taint that
    is named after the GPUs is tolerated by clusters for whoever asks for them."""
    key, effect = taint["key"], taint.get("effect", "")
    if effect == "PreferNoSchedule" or key == GPU or key.startswith(PASSING):
        return True
    return any(
        one.effect in (None, "", effect)
        and (
            (one.operator == "Exists" and one.key in (None, "", key))
            or (one.operator != "Exists" and one.key == key and (one.value or "") == taint.get("value", ""))
        )
        for one in tolerations
    )


def _attracts(affinity: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether required node affinity leaves a node of these labels; what is not a demand on labels
    leaves all."""
    required = ((affinity or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = (required or {}).get("nodeSelectorTerms") or ()
    demands = [term.get("matchExpressions") or () for term in terms]
    return not terms or any(all(_holds(one, labels) for one in demand) for demand in demands)


def _holds(demand: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether a label meets a demand; one that cannot be read keeps no node out."""
    value, values = labels.get(demand.get("key", "")), demand.get("values") or ()
    match demand.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as than if value is not None and _whole(value) and values and _whole(values[0]):
            return int(value) > int(values[0]) if than == "Gt" else int(value) < int(values[0])
    return True


def _whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
