"""What each kind of step may see: the least-privilege table. One place, read by volumes and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Data = Literal["train", "heldOut", "test", "initialPlaybook"]
Role = Literal["task", "proposer", "embedder"]


@dataclass(frozen=True, slots=True)
class Uses:
    """What a kind of step mounts (data and their credentials, the keys of roles) and may write."""

    data: tuple[Data, ...] = ()
    roles: tuple[Role, ...] = ()
    plan: bool = False
    """the iteration's frozen plan."""
    writes_store: bool = True


USES: Mapping[str, Uses] = {
    # Sees that the embedder embeds before anything is spent.
    "profile": Uses(data=("train", "heldOut", "test", "initialPlaybook"), roles=("task", "embedder")),
    # Learns from train, and so must not be able to look at what it will be judged by.
    "map": Uses(data=("train",), roles=("task", "proposer"), plan=True),
    "reduce": Uses(roles=("proposer", "embedder"), plan=True),
    # Replays entries on train rows, then scores the artifact on heldOut.
    "finish": Uses(data=("train", "heldOut"), roles=("task",), plan=True),
    "evaluate": Uses(data=("heldOut", "test"), roles=("task",)),
    # Copies the artifact into a ConfigMap with its account's token: it sees no data and no model.
    "publish": Uses(writes_store=False),
}
