"""What becomes of a namespace's gateway, as a table."""

from __future__ import annotations

import pytest

from combee.api.gateway import Gateway
from combee.plan.gateway import DeploymentSeen, GatewayPlan, GatewaySeen, Served, decide_gateway
from combee.records import Owner

UPSTREAM = {"url": "http://llm/v1"}
PLAIN = Served(
    Owner("formula", "team", "u-1"), Gateway.model_validate({"enabled": True, "upstream": UPSTREAM})
)
KEYED = Served(
    Owner("keyed", "team", "u-2"),
    Gateway.model_validate({"enabled": True, "upstream": UPSTREAM, "keys": {"secretRef": {"name": "keys"}}}),
)
OURS, GOING = DeploymentSeen("d-1", ours=True), DeploymentSeen("d-1", ours=True, deleting=True)
FOREIGN = DeploymentSeen("d-2", ours=False)

CASES = {
    "nobody wants one": (GatewaySeen(), GatewayPlan()),
    "the first Playbook wants one": (
        GatewaySeen((PLAIN,)),
        GatewayPlan(serve=(PLAIN,), make_service=True, keeps=True),
    ),
    "all is there": (
        GatewaySeen((PLAIN, KEYED), deployment=OURS, has_service=True),
        GatewayPlan(serve=(PLAIN, KEYED), keeps=True),
    ),
    "its Service was deleted": (
        GatewaySeen((PLAIN,), deployment=OURS),
        GatewayPlan(serve=(PLAIN,), make_service=True, keeps=True),
    ),
    "its Deployment is on its way out": (
        GatewaySeen((PLAIN,), deployment=GOING),
        GatewayPlan(serve=(PLAIN,), keeps=True),
    ),
    "nobody wants it any more": (GatewaySeen(deployment=OURS), GatewayPlan(delete_uid="d-1")),
    "Secrets are guarded by no policy": (
        GatewaySeen((PLAIN, KEYED), deployment=OURS, has_service=True, secret_policy=False),
        GatewayPlan(refused=(KEYED,), serve=(PLAIN,), keeps=True),
    ),
    "the only one names a Secret that no policy guards": (
        GatewaySeen((KEYED,), deployment=OURS, secret_policy=False),
        GatewayPlan(refused=(KEYED,), delete_uid="d-1"),
    ),
    "its name is taken": (GatewaySeen((PLAIN,), deployment=FOREIGN), GatewayPlan(foreign=True)),
    "its name is taken and nobody wants one": (GatewaySeen(deployment=FOREIGN), GatewayPlan(foreign=True)),
    "a Playbook is of a later release": (GatewaySeen(unread=True), GatewayPlan(keeps=True)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_gateway_is_kept_as_the_table_says(case: str) -> None:
    seen, plan = CASES[case]
    assert decide_gateway(seen) == plan


def test_a_gateway_keeps_traffic_that_is_captured_or_mirrored() -> None:
    captured = Gateway.model_validate({"enabled": True, "upstream": UPSTREAM, "capture": {"enabled": True}})
    kept = [
        PLAIN.keeps_traffic,
        Served(PLAIN.owner, PLAIN.gateway, mirrors=True).keeps_traffic,
        Served(PLAIN.owner, captured).keeps_traffic,
    ]
    assert kept == [False, True, True]
