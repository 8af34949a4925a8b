"""Types of text that few fields have: class paths, names of variables, amounts of resources."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, Field, Strict

from combee.api.common import Form, Quantity, Scalar, Str, refuse

CLASS_PATH = Form(
    "ClassPath",
    "[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*",
    "not a class path",
    'Write "module:Class", such as "acme.tasks:Invoices".',
)
ENV_NAME = Form(
    "EnvName",
    "[A-Za-z_][A-Za-z0-9_]*",
    "not a variable's name",
    "Use letters, digits and '_', not starting with a digit.",
)
FLOW_ID = Form(
    "FlowId",
    "[A-Za-z0-9]([-._/A-Za-z0-9]*[A-Za-z0-9])?",
    "not an id",
    "Use 1 to 253 of letters, digits, '-', '.', '_' and '/', starting and ending with a letter or digit.",
)
RESOURCE = "cpu|memory|ephemeral-storage|rdma/[a-zA-Z0-9][-a-zA-Z0-9_.]{0,61}"


def _known_resources(value: dict[str, str]) -> dict[str, str]:
    for name in value:
        if not re.fullmatch(RESOURCE, name):
            raise refuse(
                f"{name[:60]!r} cannot be asked for here",
                "Use cpu, memory, ephemeral-storage or rdma/...; GPUs are vllm.gpusPerReplica.",
            )
    return value


ClassPath = Annotated[str, Strict(), Field(max_length=500), CLASS_PATH]
EnvName = Annotated[str, Strict(), Field(max_length=253), ENV_NAME]
FlowId = Annotated[str, Strict(), Field(max_length=253), FLOW_ID]
"""what a server tells tenants apart by; it is sent as a header."""
ResourceList = Annotated[
    dict[Str, Quantity], Field(max_length=8), AfterValidator(_known_resources), Scalar("ResourceList")
]

_UNITS = {
    **{unit: Decimal(1000**power) for power, unit in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{
        f"{unit}i": Decimal(1024**power) for power, unit in enumerate(("K", "M", "G", "T", "P", "E"), start=1)
    },
    "m": Decimal("0.001"),
}


def in_bytes(quantity: str) -> int:
    """Return a quantity of memory or disk in bytes, rounded down.

    >>> in_bytes("1Gi"), in_bytes("1.5k"), in_bytes("2e3")
    (1073741824, 1500, 2000)
    """
    return int(_number(quantity))


def in_thousandths(quantity: str) -> int:
    """Return a quantity of CPU in thousandths of one, rounded down.

    >>> in_thousandths("2"), in_thousandths("250m"), in_thousandths("0.5")
    (2000, 250, 500)
    """
    return int(_number(quantity) * 1000)


def _number(quantity: str) -> Decimal:
    parts = re.fullmatch(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)", quantity)
    if parts is None:
        raise ValueError(f"{quantity!r} is no quantity")
    return Decimal(parts[1]) * _UNITS[parts[2]]
