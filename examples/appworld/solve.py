"""Solve one task of AppWorld: one rollout, in AppWorld's own world, scored by its tests.

The agent writes Python that calls the APIs of its apps, block by block, and reads what each block prints.

    python solve.py --root ROOT [--max-steps 40]

ROOT is the folder that `appworld download data --root ROOT` filled. AppWorld writes beside its data, which is
read-only here: it gets a folder of its own, with the data by a link.
"""

import argparse
import json
import os
import re
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

TASK, OUT = Path(os.environ["COMBEE_TASK"]), Path(os.environ["COMBEE_OUT"])
MOST_SHOWN = 8000
"""characters of what a block prints that the agent reads"""
BAD_REQUEST = 400
"""The model's server refuses a request, mostly since it is longer than the context: the agent's fault."""
INSTRUCTIONS = """\
You are an assistant who does a task for {name} (email {email}, phone {phone}).
You do it by calling APIs of their apps in Python. Answer with one block of Python each time, between ```python
and ```; you then read what it printed. Variables stay.
Call apis.APP.API(...). Find out first:
print(apis.api_docs.show_app_descriptions())
print(apis.api_docs.show_api_descriptions(app_name='supervisor'))
print(apis.api_docs.show_api_doc(app_name='supervisor', api_name='show_account_passwords'))
Once it is done call apis.supervisor.complete_task(), with answer=... where the task asks for one."""


def ask(messages: list) -> str:
    """What the model says next."""
    body = {"model": os.environ["OPENAI_MODEL"], "messages": messages, "max_tokens": 2048}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"] or ""


def work(world, artifact: str, most_steps: int) -> list:
    """The conversation, to its end."""
    person = world.task.supervisor
    name = f"{person.first_name} {person.last_name}"
    told = INSTRUCTIONS.format(name=name, email=person.email, phone=person.phone_number)
    messages = [
        {"role": "system", "content": f"{told}\n\n{artifact}"},
        {"role": "user", "content": world.task.instruction},
    ]
    for _ in range(most_steps):
        try:
            said = ask(messages)
        except urllib.error.HTTPError as error:
            if error.code != BAD_REQUEST:
                raise
            break
        messages.append({"role": "assistant", "content": said})
        blocks = re.findall(r"```(?:python)?\n(.*?)```", said, re.DOTALL)
        printed = (
            world.execute("\n".join(blocks)) if blocks else "There was no block of Python in your answer."
        )
        if world.task_completed():
            break
        messages.append({"role": "user", "content": f"It printed:\n{printed[:MOST_SHOWN]}"})
    return messages


def own_root(root: Path) -> Path:
    """A folder that can be written, with the data of ``root``."""
    folder = Path(tempfile.mkdtemp())
    (folder / "data").symlink_to((root / "data").resolve())
    return folder


def main() -> None:
    """Roll out once, and score it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--max-steps", type=int, default=40)
    words = parser.parse_args()
    os.environ["APPWORLD_ROOT"] = str(own_root(words.root))
    from appworld import AppWorld  # it reads APPWORLD_ROOT

    example = json.loads((TASK / "example.json").read_text())
    with AppWorld(task_id=example["id"], experiment_name="combee") as world:
        messages = work(world, (TASK / "artifact.md").read_text(), words.max_steps)
        tests = world.evaluate()
    failed = ". ".join(f"this should hold: {one['requirement']}" for one in tests.failures)
    (OUT / "trajectory.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages))
    (OUT / "reward.json").write_text(json.dumps({"reward": float(tests.success), "feedback": failed}))


if __name__ == "__main__":
    main()
