"""Terminal-Bench, and other tasks in Harbor's layout: one folder a task.

A task's folder has ``task.toml``, ``instruction.md``, ``environment/`` and ``tests/test.sh``. The folders are
those of a checkout, or of its ``tasks``. A row names the task's image and has a digest of its tests, not the
tests: they are in the image of the program that plays.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

from combee.assembly.benchmarks.layout import Row, Splits, read_text, row_id, wrong

CONFIG, INSTRUCTION, SCRIPT = "task.toml", "instruction.md", Path("tests", "test.sh")
FIX = "Give a folder whose folders are tasks: git clone https://github.com/laude-institute/terminal-bench-2"
_SECONDS, _CPUS, _MEMORY_MB = 600.0, 1, 2048
"""What a task has that does not say: Harbor leaves it to where the task is played."""
_UNITS: Mapping[str, float] = {"G": 1024, "M": 1, "K": 1 / 1024}
_NOT_PLAYED: Mapping[tuple[str, ...], str] = {
    ("steps",): "it has several steps",
    ("environment", "gpus"): "it needs a GPU",
    ("environment", "tpu"): "it needs a TPU",
    ("environment", "mcp_servers"): "it has MCP servers",
    ("environment", "env"): "it sets variables of its environment",
    ("environment", "healthcheck"): "it has a health check",
    ("verifier", "environment"): "its tests have an environment of their own",
    ("verifier", "env"): "it sets variables of its tests",
    ("agent", "user"): "it names the agent's user",
    ("verifier", "user"): "it names the tests' user",
}
"""field -> what a task has that sets it, and that examples/terminal-bench does not give."""


def read_terminal_bench(checkout: Path, image_prefix: str = "", leave_out: Collection[str] = ()) -> Splits:
    """Return all tasks as train. ``image_prefix``: where the images of tasks that name none were pushed, each
    by its folder's name. Raises DataError for another layout, and for a task that cannot be played."""
    tasks = _tasks(checkout) or _tasks(checkout / "tasks")
    if not tasks:
        wrong(f"there is no folder with a {CONFIG} in it", checkout, FIX)
    names = {task.name for task in tasks}
    for name in leave_out:
        if name not in names:
            wrong(f"there is no task {name!r} to leave out", checkout, "Set --leave-out to a task's folder")
    played = [task for task in tasks if task.name not in leave_out]
    if not played:
        wrong("every task of it is left out", checkout, "Leave fewer out")
    return {"train": [_row(task, image_prefix) for task in played]}


def digest_of(folder: Path) -> str:
    """Return a digest of all files below a folder, their names and contents."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for part in (path.relative_to(folder).as_posix().encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _tasks(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))


def _row(task: Path, image_prefix: str) -> Row:
    config = _config(task / CONFIG)
    environment = _table(config, "environment", task)
    _refuse_what_is_not_played(task, config)
    instruction = read_text(task / INSTRUCTION, FIX).strip()
    if not instruction:
        wrong("it is empty", task / INSTRUCTION, FIX)
    if not (task / SCRIPT).is_file():
        wrong(f"there is no {SCRIPT} in it", task, FIX)
    return {
        "id": row_id(task.name),
        "task": task.name,
        "instruction": instruction,
        "image": _image(task, environment, image_prefix),
        "cpus": _number(environment, "cpus", _CPUS, task),
        "memoryMb": _memory_mb(environment, task),
        "agentSeconds": _number(_table(config, "agent", task), "timeout_sec", _SECONDS, task),
        "verifierSeconds": _number(_table(config, "verifier", task), "timeout_sec", _SECONDS, task),
        "workdir": str(environment.get("workdir") or ""),
        "testsDigest": digest_of(task / SCRIPT.parent),
    }


def _config(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path, FIX))
    except tomllib.TOMLDecodeError:
        wrong("it is not valid TOML", path, FIX)


def _table(config: Mapping[str, Any], name: str, task: Path) -> Mapping[str, Any]:
    table = config.get(name, {})
    if not isinstance(table, dict):
        wrong(f"[{name}] is no table", task / CONFIG, FIX)
    return table


def _refuse_what_is_not_played(task: Path, config: Mapping[str, Any]) -> None:
    for (table, *field), what in _NOT_PLAYED.items():
        if _table(config, table, task).get(field[0]) if field else config.get(table):
            _not_played(what, task)
    environment = _table(config, "environment", task)
    if str(environment.get("os") or "linux").lower() != "linux":
        _not_played("it is not of Linux", task)
    if (task / "environment" / "docker-compose.yaml").is_file():
        _not_played("its environment is of several containers", task)


def _not_played(what: str, task: Path) -> NoReturn:
    wrong(
        f"{what}, which is not played here",
        task,
        f"Leave the task out with --leave-out {task.name}, or "
        "play it with harbor itself (docs/benchmarks.md)",
    )


def _image(task: Path, environment: Mapping[str, Any], prefix: str) -> str:
    image = environment.get("docker_image") or (prefix and f"{prefix}{task.name}")
    if not isinstance(image, str) or not image:
        wrong(
            "its environment names no docker_image",
            task / CONFIG,
            f"Build its environment/, push it as PREFIX{task.name}, and set --image-prefix PREFIX, such as "
            "registry.example.com/terminal-bench/",
        )
    return image


def _memory_mb(environment: Mapping[str, Any], task: Path) -> float:
    """Return ``memory_mb``, or ``memory`` as earlier tasks have it: "2G"."""
    text = environment.get("memory")
    if text is None:
        return _number(environment, "memory_mb", _MEMORY_MB, task)
    digits, unit = str(text)[:-1], str(text)[-1:].upper()
    if unit not in _UNITS or not digits.isdecimal():
        wrong("memory is no amount such as 2G", task / CONFIG, FIX)
    return int(digits) * _UNITS[unit]


def _number(table: Mapping[str, Any], field: str, default: float, task: Path) -> float:
    value = table.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        wrong(f"{field} is no number above 0", task / CONFIG, FIX)
    return value
