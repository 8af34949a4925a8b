"""A Playbook's life as the API server holds it, decided by the product itself, for tests of the page."""

from __future__ import annotations

import functools
import json
import random
import re
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "plan"))

from playbook_bench import CANARY, NOW, World, digest_of

Object = dict[str, Any]
NAMESPACE, NAME = "team-a", "formula"
FIRST, ACTIVE, WORSE, CANDIDATE = "3fa9c1d2e4b7", "9b04e7d1c6a2", "c5d81f03b96e", "71e2a8f40dc3"
"""first digits of four versions: the first one, the active one, one that traffic refused, one under test."""
NOTE = "## strategies\n[str-1] helpful=4 harmful=0 :: Read the question twice before choosing a formula.\n"
BEFORE = f"""{NOTE}
## formulas and calculations
[cal-1] helpful=9 harmful=1 :: Gross margin = (revenue - cost of goods sold) / revenue; answer with \
two decimals.
[cal-2] helpful=3 harmful=0 :: For CAGR take the number of periods, not of data points.
[cal-3] helpful=2 harmful=2 :: Days sales outstanding uses 360 days.
"""
AFTER = f"""{NOTE}
## formulas and calculations
[cal-1] helpful=12 harmful=1 :: Gross margin = (revenue - cost of goods sold) / revenue; answer with \
three decimals.
[cal-2] helpful=5 harmful=0 :: For CAGR take the number of periods, not of data points.

## mistakes to avoid
[mis-1] helpful=1 harmful=0 :: If working capital is negative, keep the sign: the ratio is below zero.
[mis-2] helpful=1 harmful=0 :: <script>alert("a bullet")</script> is text, and so is \
<img src=x onerror=alert(1)>.
"""


@dataclass
class Story:
    """Objects by name."""

    playbook: Object
    versions: list[Object]
    contents: dict[str, str]
    """digest -> text."""
    digests: dict[str, str] = field(default_factory=dict)


def story(upstream: str = "http://llm/v1", **gateway: Any) -> Story:
    """One version became active after the other, the first with a waived canary, the last by one that is
    watched; one was refused by traffic; one is under test."""
    delivery = {"gateway": {"enabled": True, "upstream": {"url": upstream}, **gateway}}
    canary = {
        **CANARY,
        "durationSeconds": 6 * 3600,
        "deadlineSeconds": 3 * 86_400,
        "watchSeconds": 14 * 86_400,
        "minSamples": 200,
        "trafficPercent": 10,
    }
    draws = random.Random(4)
    world = World().change(delivery=delivery).add(FIRST, **_origin(1)).settle().change(canary=canary)
    world.add(ACTIVE, parent=FIRST, better=0.21, **_origin(2)).tick(3600)
    _judge(world, ACTIVE, draws, [0, 0, 0, 0.25, -0.25, 0.5], 60)
    assert world.active == ACTIVE
    world.add(WORSE, parent=ACTIVE, better=0.19, **_origin(3)).tick(3600)
    _judge(world, WORSE, draws, [0, 0, -0.25, -0.5, 0.25], 40)
    assert world.phases[WORSE] == "Refused"
    world.add(CANDIDATE, parent=ACTIVE, better=0.24, **_origin(4)).tick(3600)
    _judge(world, CANDIDATE, draws, [0, 0, 0.25, -0.25, 0.5, -0.5], 16, also=ACTIVE)
    assert world.phases[CANDIDATE] == "Candidate"
    return _told(world, delivery, canary)


@functools.cache
def told() -> Story:
    """The story as most tests read it; it takes a while to tell."""
    return story()


def _origin(number: int) -> Object:
    models = {"task": "gpt-oss-120b", "proposer": "gpt-oss-120b", "evaluator": "deepseek-chat"}
    origin = {
        "iteration": 4,
        "method": "ACE",
        "models": models,
        "seed": 7,
        "rollouts": 1800,
        "tokens": 4_210_000,
    }
    return {"origin": origin, "runRef": {"name": f"formula-ace-{number}"}}


def _judge(
    world: World, name: str, draws: random.Random, differences: list[float], looks: int, also: str = ""
) -> None:
    """Pairs come in bit by bit, until the test is over or has been looked at so often."""
    for _ in range(looks):
        if world.versions[name].status.test is None or world.active == name:
            return
        within = world.now, world.now + 1200
        world.judged(name, draws.choices(differences, k=draws.randint(10, 40)), within=within)
        if also:
            world.judged(also, draws.choices([0, 0, 0.25, -0.25], k=draws.randint(10, 40)))
        world.tick(1200)


def _told(world: World, delivery: Object, canary: Object) -> Story:
    texts = {FIRST: NOTE, ACTIVE: BEFORE, WORSE: BEFORE, CANDIDATE: AFTER}
    versions = [
        {
            "metadata": {"name": one.name, "creationTimestamp": f"t{NOW + 40_000 * at:.0f}"},
            "spec": one.spec.dump(),
            "status": one.status.dump(),
        }
        for at, one in enumerate(world.versions.values())
    ]
    playbook = {
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"delivery": delivery, "canary": canary},
        "status": world.status.dump(),
    }
    digests = {name: digest_of(name) for name in texts}
    return Story(
        _dated(playbook), _dated(versions), {digests[name]: text for name, text in texts.items()}, digests
    )


def _dated(told: Any) -> Any:
    """With times as an API server writes them."""

    def real(found: re.Match[str]) -> str:
        return datetime.fromtimestamp(int(found[1]), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    return json.loads(re.sub(r"\bt(\d{10})\b", real, json.dumps(told)))
