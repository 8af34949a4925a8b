"""Play one task of Terminal-Bench: one rollout, in an environment of the task's image, scored by its tests.

The agent writes a block of shell commands at a time, and reads what they print. The environment is a pod that
serve.py starts, since a rollout's own pod may start none. Then the task's tests are put there and run, as
harbor does: the reward that they leave says whether the task is resolved.

    python play.py --environments http://HOST:8080 --tasks DIR [--max-steps 60]

DIR is the folder that `combee rows terminal-bench DIR` read, or its folder `tasks`.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

TASK, OUT = Path(os.environ["COMBEE_TASK"]), Path(os.environ["COMBEE_OUT"])
MOST_SHOWN = 8000
"""characters of what a block prints that the agent reads"""
MOST_FEEDBACK = 2000
"""characters of what the tests print that the reflection reads"""
COMMAND_SECONDS = 300
PLACE_SECONDS = 5
"""between two questions whether there is place for another environment"""
SPARE_SECONDS = 1800
"""How long an environment that is not given back outlives agent and tests: its image is pulled first."""
BAD_REQUEST, NOT_FOUND, FULL = 400, 404, 503
INSTRUCTIONS = """\
You do a task in a terminal of Linux. Answer with one block of shell commands each time, between ```sh and
```; you then read what they printed. Each block is run by a shell of its own, in the same folder, and nobody
answers questions that programs ask. Once the task is done, answer with the word DONE and without a block."""


class Environment:
    """A pod of the task's image, by serve.py."""

    def __init__(self, url: str, row: dict) -> None:
        self.url, self.row = f"{url.rstrip('/')}/environments", row

    def __enter__(self):
        seconds = self.row["agentSeconds"] + self.row["verifierSeconds"] + SPARE_SECONDS
        wanted = {name: self.row[name] for name in ("image", "task", "cpus", "memoryMb")}
        while True:
            try:
                made = self.ask("POST", json.dumps({**wanted, "seconds": seconds}).encode())
            except urllib.error.HTTPError as error:
                if error.code != FULL:
                    raise RuntimeError(f"there is no environment: {error.read().decode()[:500]}") from None
                time.sleep(PLACE_SECONDS)
            else:
                self.url += f"/{json.loads(made)['name']}"
                return self

    def __exit__(self, *_):
        self.ask("DELETE")

    def run(self, command: str, seconds: float) -> tuple[int, str]:
        """The exit code and output of a command in the task's folder."""
        if self.row["workdir"]:
            command = f"cd {shlex.quote(self.row['workdir'])} || exit\n{command}"
        body = json.dumps({"command": command, "seconds": max(seconds, 1)}).encode()
        ran = json.loads(self.ask("POST", body))
        return ran["code"], ran["output"]

    def put(self, path: str, content: bytes) -> None:
        """Write a file."""
        self.ask("PUT", content, path)

    def get(self, path: str) -> bytes | None:
        """Read a file; None where there is none."""
        try:
            return self.ask("GET", path=path)
        except urllib.error.HTTPError as error:
            if error.code != NOT_FOUND:
                raise
            return None

    def ask(self, method: str, body: bytes | None = None, path: str = "") -> bytes:
        request = urllib.request.Request(self.url + urllib.parse.quote(path), body, method=method)
        with urllib.request.urlopen(request) as answer:
            return answer.read()


def ask_model(messages: list) -> str:
    """What the model says next."""
    body = {"model": os.environ["OPENAI_MODEL"], "messages": messages, "max_tokens": 4096}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    with urllib.request.urlopen(request) as answer:
        said = json.load(answer)["choices"][0]["message"]["content"] or ""
    # What no program can be given as an argument goes.
    return said.replace("\0", "").encode(errors="replace").decode()


def work(environment: Environment, row: dict, artifact: str, most_steps: int) -> list:
    """The conversation, to its end or the end of the agent's time."""
    until = time.monotonic() + row["agentSeconds"]
    messages = [
        {"role": "system", "content": f"{INSTRUCTIONS}\n\n{artifact}"},
        {"role": "user", "content": row["instruction"]},
    ]
    for _ in range(most_steps):
        try:
            said = ask_model(messages)
        except urllib.error.HTTPError as error:
            # Mostly it is longer than the context: the agent's fault.
            if error.code != BAD_REQUEST:
                raise
            break
        messages.append({"role": "assistant", "content": said})
        blocks = re.findall(r"```(?:sh|bash|shell)?\n(.*?)```", said, re.DOTALL)
        left = until - time.monotonic()
        if left <= 0 or (not blocks and "DONE" in said):
            break
        if blocks:
            code, printed = environment.run("\n".join(blocks), min(left, COMMAND_SECONDS))
            shown = f"It ended with exit code {code} and printed:\n{printed[-MOST_SHOWN:]}"
        else:
            shown = "There was neither a block of shell commands nor the word DONE in your answer."
        messages.append({"role": "user", "content": shown})
    return messages


def tests_of(row: dict, tasks: Path) -> dict[str, bytes]:
    """The files of a task's tests, which must be those that the row was made of."""
    folder = next(
        (one for one in (tasks / row["task"], tasks / "tasks" / row["task"]) if one.is_dir()), tasks
    )
    paths = sorted(path for path in (folder / "tests").rglob("*") if path.is_file())
    files = {path.relative_to(folder / "tests").as_posix(): path.read_bytes() for path in paths}
    digest = hashlib.sha256()
    for name, content in files.items():
        for part in (name.encode(), content):
            digest.update(len(part).to_bytes(8, "big") + part)
    if digest.hexdigest() != row["testsDigest"]:
        raise SystemExit(
            f"the tests of {row['task']} are not those that its row was made of: make one of both anew"
        )
    return files


def scored(environment: Environment, row: dict, tests: dict[str, bytes]) -> tuple[bool, str]:
    """Whether the tests find the task resolved, and what they printed. The agent's leavings in their folders
    go before."""
    environment.run("mkdir -p /logs/agent /logs/verifier /logs/artifacts", COMMAND_SECONDS)
    environment.run("find /logs/verifier /tests -mindepth 1 -delete", COMMAND_SECONDS)
    for name, content in tests.items():
        environment.put(f"/tests/{name}", content)
    printed = "/logs/verifier/test-stdout.txt"
    runs = f"chmod +x /tests/test.sh; /tests/test.sh >{printed} 2>&1; code=$?; cat {printed}; exit $code"
    code, printed = environment.run(runs, row["verifierSeconds"])
    for path, read in (("reward.json", json.loads), ("reward.txt", float)):
        content = environment.get(f"/logs/verifier/{path}")
        if content is not None:
            reward = read(content.decode())
            return (reward["reward"] if isinstance(reward, dict) else reward) >= 1, printed
    raise SystemExit(
        f"the tests left no reward; they ended with exit code {code}: {printed[-MOST_FEEDBACK:]}"
    )


def main() -> None:
    """Roll out once, and score it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environments", required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--max-steps", type=int, default=60)
    words = parser.parse_args()
    row = json.loads((TASK / "example.json").read_text())
    tests = tests_of(row, words.tasks)
    with Environment(words.environments, row) as environment:
        messages = work(environment, row, (TASK / "artifact.md").read_text(), words.max_steps)
        resolved, printed = scored(environment, row, tests)
    feedback = "" if resolved else f"The tests printed: {printed[-MOST_FEEDBACK:]}"
    (OUT / "trajectory.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages))
    (OUT / "reward.json").write_text(json.dumps({"reward": float(resolved), "feedback": feedback}))


if __name__ == "__main__":
    main()
