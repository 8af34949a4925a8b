"""What a real model server takes for a map wave, by the clock: `python -m bench.engine URL MODEL`.

Waves of 1 to 256 rollouts at once, with the product's prompt, which has the playbook first, and with the
playbook moved behind the task. One call that shares the playbook goes before each wave, so that the prefix
cache holds what it can. The latency law is fitted to all waves, and its error stands beside each. The server
must count cached tokens (vLLM: --enable-prompt-tokens-details) and know `ignore_eos`, so that every call
writes as many tokens. Prints a table in Markdown."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
from scipy.optimize import nnls

from bench.prefix import ask, messages
from combee.algo.latency import LatencyLaw


@dataclass(frozen=True)
class Wave:
    """``calls`` at once: the median of the repeats."""

    calls: int
    last: bool
    """Whether the playbook stands behind the task."""
    seconds: float
    prompt_tokens: float
    """Of one call."""
    cached_tokens: float
    """Of one call, as the server counts them."""
    out_tokens: int

    @property
    def uncached_in_flight(self) -> float:
        """Return the prompt tokens of the whole wave that were read."""
        return self.calls * (self.prompt_tokens - self.cached_tokens)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, exit code 0. A server that refuses a call raises."""
    asked = _parser().parse_args(arguments)
    sizes = (asked.playbook_tokens, asked.task_tokens, asked.out_tokens)
    counts = [int(one) for one in asked.calls.split(",")]
    waves = [
        measure(asked.url, asked.model, calls, sizes, asked.repeats, last=last)
        for last in (False, True)
        for calls in counts
    ]
    law = fit(waves)
    print(table(waves, law))
    if asked.json:
        asked.json.write_text(json.dumps({"law": asdict(law), "waves": list(map(asdict, waves))}, indent=1))
    return 0


def measure(
    url: str, model: str, calls: int, sizes: tuple[int, int, int], repeats: int, *, last: bool
) -> Wave:
    """Return the median of ``repeats`` waves. Tasks are new in each wave: only its playbook is cached."""
    playbook, task, out = sizes
    seen: list[tuple[float, float, float]] = []
    with ThreadPoolExecutor(calls) as pool:
        for repeat in range(repeats):
            name = f"{'last' if last else 'first'}, {calls}, {repeat}, {time.time_ns()}"
            _ask(url, model, messages(f"before {name}", playbook, task, last=last), 1)
            bodies = [messages(f"{k} of {name}", playbook, task, last=last) for k in range(calls)]
            begun = time.monotonic()
            used = list(pool.map(lambda body: _ask(url, model, body, out), bodies))
            seconds = time.monotonic() - begun
            seen.append((seconds, *(sum(column) / calls for column in zip(*used, strict=True))))
    seconds, prompt, cached = (median(column) for column in zip(*seen, strict=True))
    return Wave(calls, last, seconds, prompt, cached, out)


def fit(waves: Sequence[Wave]) -> LatencyLaw:
    """Return the law whose relative errors have the least squares, its three parts at least 0."""
    columns = np.array(
        [(one.out_tokens, one.out_tokens * one.calls, one.uncached_in_flight) for one in waves]
    )
    seconds = np.array([one.seconds for one in waves])
    scale = columns.max(axis=0)
    parts, _ = nnls(columns / scale / seconds[:, None], np.ones(len(waves)))
    return LatencyLaw(*(float(part) for part in parts / scale))


def table(waves: Sequence[Wave], law: LatencyLaw) -> str:
    """Return a row for each number of calls at once, and the law below."""
    first = ("at once", "playbook first", "cached", "tokens/s", "law")
    heads = (*first, "playbook last", "cached then", "law then", "last / first")
    lines = [heads, ("---",) * len(heads)]
    behind = {one.calls: one for one in waves if one.last}
    for one in (wave for wave in waves if not wave.last):
        then = behind[one.calls]
        lines.append(
            (
                str(one.calls),
                f"{one.seconds:.2f} s",
                f"{one.cached_tokens / one.prompt_tokens:.0%}",
                f"{one.calls * one.out_tokens / one.seconds:,.0f}",
                f"{_error(one, law):+.0%}",
                f"{then.seconds:.2f} s",
                f"{then.cached_tokens / then.prompt_tokens:.0%}",
                f"{_error(then, law):+.0%}",
                f"{then.seconds / one.seconds:.2f}",
            )
        )
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    decode, each = law.decode_seconds * 1e3, law.decode_per_concurrent * 1e6
    parts = (law.decode_seconds, law.decode_per_concurrent, law.prefill_seconds_per_token)
    return (
        f"{rows}\n\nLaw: {decode:.2f} ms a token, {each:.1f} µs more for each call beside, "
        f"{law.prefill_seconds_per_token * 1e6:.2f} µs to read a token; prompts of "
        f"{waves[0].prompt_tokens:,.0f} tokens, {waves[0].out_tokens} out.\n"
        f"combee compare --latency-law {','.join(f'{part:.3g}' for part in parts)}"
    )


def _error(wave: Wave, law: LatencyLaw) -> float:
    """Return how much longer the law takes than the clock, relatively."""
    return law.seconds(wave.out_tokens, wave.calls, wave.uncached_in_flight) / wave.seconds - 1


def _ask(url: str, model: str, said: list[dict[str, str]], out: int) -> tuple[int, int]:
    """(prompt tokens, of these cached) of an answer of so many tokens."""
    body = {"model": model, "messages": said, "max_tokens": out, "ignore_eos": True, "temperature": 0.7}
    prompt, cached, written = ask(url, body)
    if written != out:
        raise RuntimeError(f"{url} wrote {written} tokens instead of {out}: no ignore_eos?")
    return prompt, cached


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("url", help="as http://127.0.0.1:8000/v1")
    parser.add_argument("model", help="the name that the server serves it by")
    parser.add_argument("--calls", default="1,8,64,256", help="calls at once, with commas")
    parser.add_argument("--playbook-tokens", type=int, default=4_096)
    parser.add_argument("--task-tokens", type=int, default=1_024)
    parser.add_argument("--out-tokens", type=int, default=256)
    parser.add_argument(
        "--repeats", type=int, default=3, help="waves of each kind, of which the median counts"
    )
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
