"""The rows of the peers: each runs its own loop from a checkout the user gives, or says why it did not
run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.harness import FORMULA, MODEL, Row, formula_rows
from bench.learning import BEST, ROWS, SEEDS, SEQUENTIAL, SLOTS, STRATEGIES, comparison, worlds
from bench.peers.score import halves, score
from combee.algo.latency import H200, retime

LOOPS = Path(__file__).parent
AGGREGATE = "aggregate"
"""The label of gepa's aggregator calls, as its loop notes them."""


@dataclass(frozen=True)
class Peer:
    """A public repository at one commit. ``extra``: more arguments of its loop."""

    key: str
    title: str
    url: str
    commit: str
    loop: str
    needs: str
    """what its Python must have installed."""
    extra: tuple[str, ...] = ()


ACE_COMMIT = "ba78d343bf8cbe52f284da339a329a609565426a"
GEPA_COMMIT = "b265bf9ca77fd8e8d82039d9f74911b8780fe1ce"
_GEPA = ("https://github.com/gepa-ai/gepa", GEPA_COMMIT, "loop_gepa.py", "nothing but Python 3.11")
PEERS = (
    Peer(
        "ace",
        "ACE's own offline loop",
        "https://github.com/ace-agent/ace",
        ACE_COMMIT,
        "loop_ace.py",
        "openai python-dotenv numpy tiktoken",
    ),
    Peer("gepa", "gepa with its ComBEE reflection, b = 100", *_GEPA, extra=("100",)),
    Peer("gepa", "gepa with its ComBEE reflection, b = 250", *_GEPA, extra=("250",)),
)


@dataclass(frozen=True)
class Checkouts:
    """Where the peers are, by key, and the Python that runs them."""

    folders: dict[str, Path] = field(default_factory=dict)
    python: str = sys.executable


def rows(given: Checkouts) -> dict[str, Callable[[Path], Row]]:
    """Name on the command line -> row."""
    return {"-".join(("peer", p.key, *p.extra)): partial(peer_row, p, given) for p in PEERS}


def obstacle(peer: Peer, given: Checkouts) -> str:
    """Why the peer cannot be run; empty when it can."""
    get = f"git clone {peer.url} DIR && git -C DIR checkout {peer.commit}"
    what = f"needs commit {peer.commit} of {peer.url}"
    folder = given.folders.get(peer.key)
    if folder is None:
        return f"{what}: {get}; make bench {peer.key.upper()}=DIR"
    head = _git(folder, "rev-parse", "HEAD")
    if head.stdout.strip() != peer.commit:
        found = head.stdout.strip() or head.stderr.strip() or "no commit"
        return f"{what}, and {folder} has {found}: {get}"
    if _git(folder, "diff", "--quiet", "HEAD", "--", "*.py").returncode:
        return f"{what} as it is, and Python files in {folder} differ from it"
    return ""


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)


def peer_row(peer: Peer, given: Checkouts, folder: Path) -> Row:
    """Run the peer's loop on the rows, split and models of the learning-speed row, and compare its speed with
    ours."""
    name = f"{peer.title}, simulated model: its modelled time / ours"
    target = "> 1, held-out no better than ours"
    if why := obstacle(peer, given):
        return Row(name, None, target, "x", how=f"not run: {why}")
    with worlds(folder) as urls, ThreadPoolExecutor(2) as pool:
        seeds = list(pool.map(partial(_one_seed, peer, given, folder), urls, range(SEEDS)))
    found = comparison()[0][SLOTS]
    ours, reference = found[BEST], found[SEQUENTIAL]
    theirs = {key: fmean(seed[key] for seed in seeds) for key in seeds[0]}
    ratio = theirs["modelledSeconds"] / ours["modelledSeconds"]
    return Row(
        name=name,
        figure=round(ratio, 1),
        target=target,
        unit="x",
        met=ratio > 1 and theirs["heldOut"] <= ours["heldOut"]["mean"],
        how=f"{peer.url} at {peer.commit[:12]}, its own loop over the same {ROWS} Formula rows, {SEEDS} "
        f"seeds, {SLOTS} "
        "slots; its calls through the same latency law (a call of its main thread is a stage, calls of its "
        "other "
        f"threads between two of those are one stage); ours: {BEST}; its artifact as the playbook of our "
        f"rollout "
        "prompt on gate, our scorer",
        detail={
            "theirs": {key: round(value, 3) for key, value in theirs.items()},
            "speedUpAgainstSequential": round(reference["modelledSeconds"] / theirs["modelledSeconds"], 2),
            "ratioBySeed": [round(seed["modelledSeconds"] / ours["modelledSeconds"], 1) for seed in seeds],
            "heldOutBySeed": [round(seed["heldOut"], 3) for seed in seeds],
        }
        | {name: _ours(found[name]) for name in STRATEGIES},
    )


def _ours(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "heldOut": round(row["heldOut"]["mean"], 3),
        "modelledSeconds": round(row["modelledSeconds"], 1),
        "calls": round(row["calls"]),
        "tokens": round(row["tokens"]),
        "artifactTokens": round(row["playbookTokens"]),
    }


def _one_seed(peer: Peer, given: Checkouts, folder: Path, url: str, seed: int) -> dict[str, float]:
    out = folder / f"{peer.key}-{seed}"
    select = folder / f"select-{seed}.jsonl"
    select.write_bytes(b"".join(_select_lines()))
    command = [given.python, str(LOOPS / peer.loop), str(given.folders[peer.key]), url, MODEL]
    files = [str(formula_rows(folder, ROWS)), str(select), str(out)]
    done = subprocess.run(
        [*command, *files, str(SLOTS), *peer.extra], capture_output=True, text=True, cwd=folder, check=False
    )
    if done.returncode or not (out / "calls.jsonl").exists():
        raise RuntimeError(
            f"{peer.title} ended with {done.returncode}; its Python ({given.python}) needs {peer.needs}: "
            + done.stderr[-1500:]
        )
    calls = [json.loads(line) for line in (out / "calls.jsonl").read_text().splitlines()]
    scored = score((out / "artifact.txt").read_text(), seed)
    return {
        "heldOut": scored.held_out,
        "modelledSeconds": modelled(calls),
        "secondsWithLevelOneAtOnce": modelled(level_one_at_once(calls)),
        "calls": len(calls),
        "stages": calls[-1][0],
        "tokens": sum(prompt + completion for _, _, prompt, _, completion in calls),
        "artifactTokens": scored.tokens,
        "rulesRight": scored.right,
        "rulesWrong": scored.wrong,
        "rulesUnknownToTheModel": scored.unknown,
    }


def _select_lines() -> list[bytes]:
    """The rows of heldOut's select half, as they are in the file. Ids are line numbers."""
    lines = (FORMULA / "heldout.jsonl").read_bytes().splitlines(keepends=True)
    return [lines[int(example.id) - 1] for example in halves()[0]]


def modelled(calls: Sequence[Sequence[Any]]) -> float:
    """Seconds of recorded calls (stage, label, prompt, cached, completion) under the latency law of every
    comparison: stages are barriers, the calls of one run side by side on the slots."""
    stages = [
        [[(max(0, prompt - cached), completion)] for _, _, prompt, cached, completion in together]
        for _, together in groupby(calls, key=lambda call: call[0])
    ]
    return retime(stages, SLOTS, H200).seconds


def level_one_at_once(calls: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """The same calls, those of gepa's first level side by side: of aggregator calls that follow each
    other the last is the second level. ACE has none."""
    found: list[Sequence[Any]] = []
    for label, group in groupby(calls, key=lambda call: call[1]):
        *first, last = group
        together = first if label == AGGREGATE else []
        apart = [] if together else first
        found += [*apart, *([together[0][0], *call[1:]] for call in together), last]
    return found


def from_arguments(named: Sequence[str], python: str | None) -> Checkouts:
    """``["ace=DIR", ...]`` as checkouts. ValueError for another form or an unknown name."""
    keys = {peer.key for peer in PEERS}
    folders = {}
    for text in named:
        key, _, folder = text.partition("=")
        if key not in keys or not folder:
            raise ValueError(
                f"--peer takes NAME=DIR with NAME one of {', '.join(sorted(keys))}, not {text!r}"
            )
        folders[key] = Path(folder).resolve()
    return Checkouts(folders, python or sys.executable)
