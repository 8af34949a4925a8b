"""Small tasks of our own, about watering plants, in the layouts in which benchmarks are published."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e2e_support import ROOT

GREENHOUSE = ROOT / "examples" / "data" / "greenhouse"
STANDINS = Path(__file__).with_name("standins")


def pots(split: str) -> list[dict[str, Any]]:
    """The rows of the greenhouse."""
    return [json.loads(line) for line in (GREENHOUSE / f"{split}.jsonl").read_text().splitlines()]


def asked(row: dict[str, Any]) -> str:
    return f"Pot {row['pot']}: a {row['plant']}. How much water?"


def lesson(row: dict[str, Any]) -> str:
    return f"A {row['plant']} in {row['soil']} soil needs {row['need']} ml."


def tau2_task(row: dict[str, Any]) -> dict[str, Any]:
    """A row as a task of tau2-bench."""
    instructions = {"domain": "greenhouse", "reason_for_call": asked(row), "task_instructions": "."}
    return {
        "id": row["id"],
        "description": {"purpose": None, "relevant_policies": None, "notes": None},
        "user_scenario": {"persona": None, "instructions": instructions},
        "initial_state": {"initialization_data": {"agent_data": {"soil": row["soil"]}}},
        "evaluation_criteria": {
            "actions": [],
            "communicate_info": [f"WATER {row['need']} ml"],
            "nl_assertions": [lesson(row)],
            "reward_basis": ["COMMUNICATE"],
        },
    }


def tau2_checkout(folder: Path) -> Path:
    """A checkout of tau2-bench with the one domain ``greenhouse``: 72 tasks, 24 of them to test with."""
    domain = folder / "data" / "tau2" / "domains" / "greenhouse"
    domain.mkdir(parents=True)
    train, test = pots("train") + pots("heldout")[24:], pots("heldout")[:24]
    (domain / "tasks.json").write_text(json.dumps([tau2_task(row) for row in train + test]))
    splits = {"train": [row["id"] for row in train], "test": [row["id"] for row in test]}
    splits["base"] = splits["train"] + splits["test"]
    (domain / "split_tasks.json").write_text(json.dumps(splits))
    return folder


def terminal_bench_tasks(folder: Path, images: Sequence[str]) -> Path:
    """48 tasks in Harbor's layout, of these images in turn: each is to write how much water a pot needs."""
    for number, row in enumerate([*pots("train")[:24], *pots("heldout")[:24]]):
        task = folder / f"{row['id']}"
        for part in ("environment", "solution", "tests"):
            (task / part).mkdir(parents=True)
        says = {
            "task.toml": f"""
                schema_version = "1.1"
                [verifier]
                timeout_sec = 60.0
                [agent]
                timeout_sec = 60.0
                [environment]
                docker_image = "{images[number % len(images)]}"
                cpus = 0.2
                memory_mb = 64
                """,
            "instruction.md": f"{asked(row)} It stands in {row['soil']} soil. Write it to /tmp/water.",
            "solution/solve.sh": f"#!/bin/sh\necho {row['need']} >/tmp/water\n",
            "tests/test.sh": f"""\
                #!/bin/sh
                . /tests/deep/need.sh
                [ "$(cat /tmp/water)" = "$need" ] && reward=1 || reward=0
                [ $reward = 1 ] || echo "{lesson(row)}"
                echo $reward >/logs/verifier/reward.txt
                """,
            "tests/deep/need.sh": f"need={row['need']}\n",
        }
        for name, content in says.items():
            (task / name).parent.mkdir(exist_ok=True)
            (task / name).write_text(textwrap.dedent(content))
        for script in ("solution/solve.sh", "tests/test.sh"):
            (task / script).chmod(0o755)
    return folder


def appworld_root(folder: Path) -> Path:
    """What AppWorld downloads: scenarios of two tasks each, one a soil and plant in train, two in dev."""
    kinds = {(row["plant"], row["soil"]): row for row in pots("train")}
    datasets = folder / "data" / "datasets"
    datasets.mkdir(parents=True)
    for dataset, letter, scenarios in (("train", "a", 1), ("dev", "b", 2), ("test_normal", "c", 1)):
        ids = []
        for number, row in enumerate([*kinds.values()] * scenarios):
            for task in (1, 2):
                ids.append(f"{letter}{number:02d}_{task}")
                _appworld_task(
                    folder / "data" / "tasks" / ids[-1], row | {"pot": f"{letter}-{number}-{task}"}
                )
        (datasets / f"{dataset}.txt").write_text("\n".join(ids) + "\n")
    return folder


def _appworld_task(folder: Path, row: dict[str, Any]) -> None:
    (folder / "ground_truth").mkdir(parents=True)
    person = {
        "first_name": "Ada",
        "last_name": "Green",
        "email": "ada@example.com",
        "phone_number": "5550100",
    }
    specs = {"instruction": asked(row), "supervisor": person, "datetime": "2023-05-18T12:00:00"}
    (folder / "specs.json").write_text(json.dumps(specs))
    (folder / "ground_truth" / "answer.json").write_text(json.dumps(row["need"]))
    truth = {"difficulty": 1, "soil": row["soil"], "lesson": lesson(row)}
    (folder / "ground_truth" / "metadata.json").write_text(json.dumps(truth))
