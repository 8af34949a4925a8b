"""What a prefix cache saves a map wave: the playbook first, as the product's prompts have it, against last.

The prompts are the product's own, sized like those measured on the H200. The simulated model's server says
how many of their tokens it had cached; seconds follow from these by the latency law, so that neither the
machine nor its load is in them."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.harness import FORMULA, MODEL, Row, formula_key, simulated
from combee.algo.latency import H200, retime
from combee.methods.ace.prompts import rollout_prompt
from combee.sim.prompts import tokens

MEASURED = {1: (4.47, 4.58), 16: (5.21, 6.55), 64: (7.76, 13.8), 256: (18.8, 50.5)}
"""Calls in flight -> seconds of the wave with vLLM (8B, bf16): playbook first, playbook last."""
PLAYBOOK_TOKENS, TASK_TOKENS, OUT_TOKENS = 4_096, 1_024, 256
INSTRUCTIONS = "Answer with the number alone."


def prefix(folder: Path) -> Row:
    """Waves of 1 to 256 rollouts."""
    table: dict[str, Any] = {}
    with simulated(folder, "--key", formula_key(folder), "--time-scale", "0") as url:
        first, last = 0.0, 0.0
        for n, measured in MEASURED.items():
            first, first_share = _wave(url, n, last=False)
            last, last_share = _wave(url, n, last=True)
            table[f"{n} at once"] = {
                "first s": round(first, 2),
                "cached": f"{first_share:.0%}",
                "last s": round(last, 2),
                "cached then": f"{last_share:.0%}",
                "last / first": round(last / first, 2),
                "H200 first s": measured[0],
                "H200 last s": measured[1],
                "H200 last / first": round(measured[1] / measured[0], 2),
            }
    return Row(
        name="prefix cache: playbook last / first, 256 rollouts at once",
        figure=round(last / first, 2),
        target=f"{MEASURED[256][1] / MEASURED[256][0]:.2f} on an H200",
        unit="x",
        how=f"the product's rollout prompt, {PLAYBOOK_TOKENS:,} tokens of playbook, {TASK_TOKENS:,} of task, "
        f"{OUT_TOKENS} out; cached tokens as the simulated model's server counts them, seconds by the "
        f"latency law; "
        "H200: measured with vLLM, 8B",
        detail=table,
    )


def _wave(url: str, n: int, *, last: bool) -> tuple[float, float]:
    """Seconds of a wave of ``n`` calls by the law, and the share of their prompt tokens that was cached."""
    _ask(url, messages(f"the one before, {n}", PLAYBOOK_TOKENS, TASK_TOKENS, last=last))
    with ThreadPoolExecutor(16) as pool:
        said = [messages(f"{k} of {n}, {last}", PLAYBOOK_TOKENS, TASK_TOKENS, last=last) for k in range(n)]
        used = list(pool.map(lambda one: _ask(url, one), said))
    chains = [[(prompt - cached, OUT_TOKENS)] for prompt, cached in used]
    share = sum(cached for _, cached in used) / sum(prompt for prompt, _ in used)
    return retime([chains], n, H200).seconds, share


def messages(name: str, playbook_tokens: int, task_tokens: int, *, last: bool) -> list[dict[str, str]]:
    """Return the product's prompt, or the same with its playbook moved behind the task."""
    playbook = _filled("- Use the formula that the task names, rule", playbook_tokens)
    task = _task(name, task_tokens)
    prompt = rollout_prompt(INSTRUCTIONS, "" if last else playbook, task)
    said = [{"role": one.role, "content": one.content} for one in prompt.messages]
    if last:
        said[-1]["content"] += f"\n\n# PLAYBOOK\n\n{playbook}\n"
    return said


def _task(name: str, count: int) -> str:
    row = json.loads((FORMULA / "train.jsonl").read_text().splitlines()[0])
    return _filled(f"Task {name}. {row['context']}\nFurther reading, page", count)


def _filled(line: str, count: int) -> str:
    """Numbered lines of about ``count`` tokens."""
    lines: list[str] = []
    made = 0
    while made < count:
        lines.append(f"{line} {len(lines)}.")
        made += tokens(f"{lines[-1]}\n")
    return "\n".join(lines)


def _ask(url: str, said: list[dict[str, str]]) -> tuple[int, int]:
    prompt, cached, _ = ask(url, {"model": MODEL, "messages": said, "max_tokens": OUT_TOKENS})
    return prompt, cached


def ask(url: str, body: dict[str, Any], timeout_seconds: float = 600.0) -> tuple[int, int, int]:
    """Return (prompt tokens, of these cached, completion tokens) of a chat as the server counts them."""
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=timeout_seconds) as response:
        usage = json.loads(response.read())["usage"]
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return usage["prompt_tokens"], cached, usage["completion_tokens"]
