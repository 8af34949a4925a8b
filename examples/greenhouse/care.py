"""Water one plant: a task in a container of its own, in one file and with nothing but Python's standard library.

The agent may look at the soil (a tool), then says how much water the plant gets. What is right is the row's ``need``.
It reads the two files in $COMBEE_TASK, asks the model at $OPENAI_BASE_URL, and leaves two files in $COMBEE_OUT.
"""

import json
import os
import re
import urllib.request
from pathlib import Path

TASK, OUT = Path(os.environ["COMBEE_TASK"]), Path(os.environ["COMBEE_OUT"])
MOST_STEPS = 4
SOIL = {
    "type": "function",
    "function": {
        "name": "feel_soil",
        "description": "How wet the soil is.",
        "parameters": {"type": "object"},
    },
}


def ask(messages: list) -> dict:
    """The model's next message."""
    body = {"model": os.environ["OPENAI_MODEL"], "messages": messages, "tools": [SOIL], "max_tokens": 512}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]


def work(example: dict, artifact: str) -> list:
    """The conversation, to its end."""
    messages = [
        {"role": "system", "content": f"You water plants. End with: WATER <n> ml.\n\n{artifact}"},
        {"role": "user", "content": f"Pot {example['pot']}: a {example['plant']}. How much water?"},
    ]
    for _ in range(MOST_STEPS):
        message = ask(messages)
        messages.append(message)
        if not message.get("tool_calls"):
            break
        for call in message["tool_calls"]:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": example["soil"]})
    return messages


def main() -> None:
    """Roll out once, and score it."""
    example = json.loads((TASK / "example.json").read_text())
    messages = work(example, (TASK / "artifact.md").read_text())
    said = re.search(r"WATER (\d+) ml", messages[-1].get("content") or "")
    right = said is not None and int(said.group(1)) == example["need"]
    feedback = "" if right else f"A {example['plant']} in {example['soil']} soil needs {example['need']} ml."
    (OUT / "trajectory.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages))
    (OUT / "reward.json").write_text(json.dumps({"reward": float(right), "feedback": feedback}))


if __name__ == "__main__":
    main()
