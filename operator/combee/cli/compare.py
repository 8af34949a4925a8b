"""``combee compare``."""

from __future__ import annotations

import asyncio
import json as jsonlib
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from combee.algo.latency import H200, LatencyLaw
from combee.api.methods import METHOD_NAMES
from combee.cli.errors import USER_ERROR, guarded, say, write
from combee.cli.interrupt import until_stopped
from combee.cli.options import CompareFlags
from combee.compare.launch import CellError
from combee.compare.run import Request, compare, write_runs
from combee.compare.strategies import parse_strategies
from combee.errors import BugError, CombeeError, UserError
from combee.local.flags import StandInFlags
from combee.names import LABEL_COMPARISON
from combee.plan.types import EXIT_CODES

MAX_SEEDS = 1000
MAX_SLOTS = 10_000
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def run_for_cluster(flags: CompareFlags, given: StandInFlags) -> int:
    """Write the cells as runs for ``kubectl apply``, and return the exit code."""

    def work() -> int:
        name = flags.for_cluster
        if not _LABEL.fullmatch(name):
            raise UserError(
                "not a name of at most 40 small letters, digits and dashes",
                where="--for-cluster",
                fix="Write one such as --for-cluster formula-methods",
            )
        made = write_runs(read_flags(flags, given), name)
        write(
            sys.stdout,
            f"{len(made)} runs in {flags.output}\n\nkubectl apply -f {flags.output}\n"
            f"kubectl get plr -l {LABEL_COMPARISON}={name}\nkubectl combee compare {name} -o {name}\n",
        )
        return 0

    return guarded(work)


def run_compare(flags: CompareFlags, given: StandInFlags) -> int:
    """Check, run the cells and print the table; return the exit code."""
    started = time.monotonic()

    def tell(text: str) -> None:
        seconds = time.monotonic() - started
        if flags.json:
            event = {"event": "progress", "seconds": round(seconds, 3), "text": text}
            write(sys.stdout, jsonlib.dumps(event) + "\n")
        else:
            write(sys.stderr, f"{seconds:7.0f} s  {text}\n")

    try:
        done = asyncio.run(until_stopped(compare(read_flags(flags, given), tell)))
    except KeyboardInterrupt:
        tell("stopped; finished cells are kept, the same command goes on")
        return EXIT_CODES["Stopped"]
    except CombeeError as error:
        say(error, as_json=flags.json)
        if isinstance(error, CellError):  # one that was killed has none of ours
            known = error.exit_code in (USER_ERROR, EXIT_CODES["Stopped"])
            return error.exit_code if known else EXIT_CODES["Failed"]
        return EXIT_CODES["Failed"] if isinstance(error, BugError) else USER_ERROR
    files = [str(flags.output / name) for name in ("compare.json", "compare.md", "compare.html")]
    finished = {"event": "finished", "files": files}
    write(sys.stdout, jsonlib.dumps(finished) + "\n" if flags.json else done.markdown)
    return 0


def read_flags(flags: CompareFlags, given: StandInFlags) -> Request:
    """Parse the flags. Raises UserError naming the wrong one."""
    return Request(
        manifests=flags.filename or [],
        strategies=parse_strategies(
            flags.strategies, _numbers(flags.sizes, "--sizes") if flags.sizes else []
        ),
        seeds=parse_seeds(flags.seeds),
        out=flags.output,
        engines=parse_engines(given.engines),
        given=replace(given, engines=()),
        jobs=flags.jobs,
        slots=parse_slots(flags.slots) if flags.slots else (),
        law=parse_law(flags.latency_law) if flags.latency_law else H200,
        evaluate_every=flags.evaluate_every,
        methods=parse_methods(flags.methods) if flags.methods else (),
    )


def parse_slots(text: str) -> list[int]:
    """Parse numbers of slots, smallest first, each once. Raises UserError for one that no run can have."""
    numbers = sorted(set(_numbers(text, "--slots")))
    if not 1 <= numbers[0] <= numbers[-1] <= MAX_SLOTS:
        raise UserError(
            f"not from 1 to {MAX_SLOTS}",
            where="--slots",
            fix="Write them with commas, such as --slots 8,64,256",
        )
    return numbers


def parse_law(text: str) -> LatencyLaw:
    """Parse the three parts of a latency law, in seconds. Raises UserError for what is none."""
    try:
        decode, beside, reading = (float(part) for part in text.split(","))
        return LatencyLaw(decode, beside, reading)
    except (ValueError, BugError):
        raise UserError(
            "not three numbers of seconds, the first above 0 and the others at least 0",
            where="--latency-law",
            fix="Write seconds for a token, more for each call beside, and to read a token of a prompt, "
            "such as --latency-law 0.0047,0.00013,0.000027; python -m bench.engine measures them",
        ) from None


def parse_methods(text: str) -> list[str]:
    """Parse base methods separated by commas, each once. Raises UserError naming those there are."""
    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in METHOD_NAMES.words():
            raise UserError(
                f"unknown method {name!r}",
                where="--methods",
                fix=f"Write names with commas, of {', '.join(METHOD_NAMES.words())}",
            )
    return names


def parse_engines(values: Sequence[str]) -> dict[str, list[str]]:
    """Parse NAME=URL flags. A name that is given more than once has a server for each seed, in order."""
    servers: dict[str, list[str]] = {}
    for value in values:
        name, equals, url = value.partition("=")
        if not equals or not name or not url:
            raise UserError(
                "not of the form NAME=URL",
                where=f"--engine {name}",
                fix="Write --engine NAME=URL, such as main=http://127.0.0.1:8000/v1",
            )
        servers.setdefault(name, []).append(url)
    return servers


def parse_seeds(text: str) -> list[int]:
    """Parse the seeds: ``10`` is 0 to 9; ``3,5,8`` and ``3,`` are those."""
    numbers = _numbers(text, "--seeds")
    if "," in text:
        return list(dict.fromkeys(numbers))
    if not 1 <= numbers[0] <= MAX_SEEDS:
        raise UserError(
            f"not from 1 to {MAX_SEEDS}", where="--seeds", fix="Write how many, such as --seeds 10"
        )
    return list(range(numbers[0]))


def _numbers(text: str, flag: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise UserError(
            "not whole numbers with commas", where=flag, fix=f"Write {flag} 10 or {flag} 25,50,100"
        )
    return [int(part) for part in parts]
