"""Which GPUs an engine gets, as the nodes that its pods may use tell; and why they do not."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_bench import GPUS, NOW, run_of, spec_of
from hypothesis import given
from hypothesis import strategies as st

from combee.api.discipline import curve_is_from_here, hardware, untyped
from combee.api.status import RunStatus
from combee.plan.cluster.decide import decide_cluster
from combee.plan.cluster.hardware import EngineGpus, Node, engine_gpus, node_of, with_hardware
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import Seen
from combee.plan.cluster.status import About, run_status

H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"
PRODUCT = "nvidia.com/gpu.product"
SPEC = spec_of(**GPUS)


def node(product: str = H100, gpus: int = 8, taints: tuple[dict[str, str], ...] = (), **more: str) -> Node:
    return Node(gpus, {**({PRODUCT: product} if product else {}), **more}, taints)


def engine(**template: Any) -> Any:
    made = {**GPUS["engines"][0], **({"template": {"spec": template}} if template else {})}
    return spec_of(**{**GPUS, "engines": [made]})


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect}


def demand(operator: str, *values: str, key: str = PRODUCT) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


KNOWN: dict[str, tuple[Any, list[Node]]] = {
    "all nodes have the same": (SPEC, [node(), node(pool="b")]),
    "the others have too few": (SPEC, [node(), node(A100, gpus=1)]),
    "nodeSelector leaves one": (engine(nodeSelector={"pool": "a"}), [node(pool="a"), node(A100, pool="b")]),
    "affinity leaves one": (engine(affinity=demand("In", H100, "L4")), [node(), node(A100)]),
    "affinity shuts one out": (engine(affinity=demand("NotIn", A100)), [node(), node(A100)]),
    "affinity by a number": (
        engine(affinity=demand("Gt", "3", key="gen")),
        [node(gen="4"), node(A100, gen="3")],
    ),
    "affinity by a label that is there": (
        engine(affinity=demand("Exists", key="new")),
        [node(new=""), node(A100)],
    ),
    "a taint keeps one out": (SPEC, [node(), node(A100, taints=(taint("team", "b"),))]),
    "a toleration of another value does not help": (
        engine(tolerations=[{"key": "team", "operator": "Equal", "value": "a"}]),
        [node(), node(A100, taints=(taint("team", "b"),))],
    ),
}
NONE_NOW = (
    "No node that its pods may use has 2 GPUs now; kubectl get nodes -L nvidia.com/gpu.product lists them"
)
UNKNOWN: dict[str, tuple[Any, list[Node] | None, str]] = {
    "nodes may not be read": (SPEC, None, "The operator may not read nodes (the chart's readNodes)"),
    "there are none": (SPEC, [], NONE_NOW),
    "all are too small": (SPEC, [node(gpus=1)], NONE_NOW),
    "a node has no label": (
        SPEC,
        [node(), node("")],
        "A node that its pods may use has no label that names its GPUs",
    ),
    "two kinds fit": (
        SPEC,
        [node(), node(A100)],
        f"Its pods may use nodes of {A100} and {H100}: a nodeSelector decides it, too",
    ),
    "a taint that goes keeps nothing out": (
        SPEC,
        [node(), node(A100, taints=(taint("node.kubernetes.io/unschedulable"),))],
        f"Its pods may use nodes of {A100} and {H100}: a nodeSelector decides it, too",
    ),
    "a taint of the GPUs' own name is tolerated": (
        SPEC,
        [node(), node(A100, taints=(taint("nvidia.com/gpu"),))],
        f"Its pods may use nodes of {A100} and {H100}: a nodeSelector decides it, too",
    ),
    "a taint is tolerated": (
        engine(tolerations=[{"key": "team", "operator": "Exists"}]),
        [node(), node(A100, taints=(taint("team", "b"),))],
        f"Its pods may use nodes of {A100} and {H100}: a nodeSelector decides it, too",
    ),
    "of one kind in two sizes": (
        SPEC,
        [node(**{"nvidia.com/gpu.memory": "81559"}), node(**{"nvidia.com/gpu.memory": "40960"})],
        (
            f"Its pods may use nodes of {H100}, 40960 MiB each and {H100}, 81559 MiB each: "
            "a nodeSelector decides it, too"
        ),
    ),
}


@pytest.mark.parametrize(("spec", "nodes"), KNOWN.values(), ids=KNOWN)
def test_the_nodes_tell_where_only_one_kind_fits(spec: Any, nodes: list[Node]) -> None:
    said = engine_gpus(spec, nodes)
    assert said == EngineGpus({"main": f"2 x 2 {H100}"})
    assert hardware(with_hardware(spec, said)) == f"2 x 2 {H100}, shared by task model and proposer"
    assert engine_gpus(spec, nodes[::-1]) == said


@pytest.mark.parametrize(("spec", "nodes", "why"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_certain_is_told_as_a_reason(spec: Any, nodes: list[Node] | None, why: str) -> None:
    assert engine_gpus(spec, nodes) == EngineGpus({}, {"main": why})


@given(st.lists(st.sampled_from([node(), node(A100), node(""), node(gpus=1)]), max_size=6))
def test_more_nodes_never_make_it_known_but_the_first(nodes: list[Node]) -> None:
    """What is told is what each node that fits says; another node can only take certainty away."""
    said = engine_gpus(SPEC, nodes).hardware.get("main")
    more = engine_gpus(SPEC, [*nodes, node()]).hardware.get("main")
    fit = {one.named for one in nodes if one.gpus >= 2}
    assert (said is not None) == (len(fit) == 1 and "" not in fit)
    assert more is None or more == said or not fit


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ({PRODUCT: H100, "nvidia.com/gpu.memory": "81559"}, f"{H100}, 81559 MiB each"),
        ({PRODUCT: H100, "nvidia.com/gpu.memory": "much"}, H100),
        (
            {"karpenter.k8s.aws/instance-gpu-name": "l4", "karpenter.k8s.aws/instance-gpu-memory": "22888"},
            "l4, 22888 MiB each",
        ),
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}, "nvidia-tesla-t4"),
        ({PRODUCT: H100, "cloud.google.com/gke-accelerator": "other"}, H100),
    ],
)
def test_a_node_names_its_gpus_by_the_label_that_is_there(labels: dict[str, str], named: str) -> None:
    assert Node(8, labels).named == named


def test_of_a_node_without_gpus_nothing_is_kept() -> None:
    raw = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8"}}}
    assert node_of(raw) is None
    assert node_of({**raw, "status": {"allocatable": {"nvidia.com/gpu": "0"}}}) is None
    taints = [taint("team")]
    full = {
        "metadata": {"labels": {PRODUCT: H100}},
        "spec": {"taints": taints},
        "status": {"capacity": {"nvidia.com/gpu": "9"}, "allocatable": {"nvidia.com/gpu": "8"}},
    }
    assert node_of(full) == node(taints=(taints[0],))


def test_a_run_that_says_its_hardware_or_has_no_gpus_is_told_nothing() -> None:
    stated = {**GPUS, "engines": [{**GPUS["engines"][0], "hardware": "4x H100"}]}
    cpu = {**GPUS, "engines": [{"name": "main", "vllm": {"model": "m", "gpusPerReplica": 0}}]}
    for spec in (spec_of(**stated), spec_of(**cpu), spec_of()):
        assert (
            untyped(spec) == ()
            and engine_gpus(spec, None) == EngineGpus()
            and engine_gpus(spec, [node()]) == EngineGpus()
        )
    assert with_hardware(spec_of(**stated), EngineGpus({"main": "other"})) == spec_of(**stated)


def test_a_curve_is_compared_with_gpus_that_have_a_name() -> None:
    curve = {
        "method": "ACE",
        "curve": [{"examples": 1, "seconds": 1, "score": 0.5}],
        "source": "we, in May",
        "hardware": f"2 x 2 {H100}",
    }
    spec = spec_of(**GPUS, serialBaseline=curve)
    assert curve_is_from_here(spec) is None
    assert curve_is_from_here(with_hardware(spec, engine_gpus(spec, [node()]))) is True
    assert curve_is_from_here(with_hardware(spec, engine_gpus(spec, [node(A100)]))) is False


def test_what_the_nodes_told_is_kept_and_shown() -> None:
    said = engine_gpus(SPEC, [node()])
    memory = Memory(nodes=said)
    assert Memory.from_status(memory.to_status()).nodes == said
    facts = Seen(now=NOW)
    plan = decide_cluster(run_of(**GPUS), memory, facts)
    assert plan.memory.nodes == said
    about = About(with_hardware(SPEC, said), 1, "m", "image", "algorithm", str)
    status = run_status(about, RunStatus(resolved={"earlier": "value"}), plan, facts)
    assert status.resolved == {
        "earlier": "value",
        "engines.main.hardware": f"2 x 2 {H100} (labels of nodes)",
    }
    unknown = Memory(nodes=engine_gpus(SPEC, None))
    plan = decide_cluster(run_of(**GPUS), unknown, facts)
    status = run_status(About(SPEC, 1, "m", "image", "algorithm", str), RunStatus(), plan, facts)
    accepted = next(one for one in status.conditions if one.type == "PlanAccepted")
    assert (
        "spec.engines[0].hardware (which GPUs or CPUs answer there, and how many? The operator may not"
        in (accepted.message)
    )
