"""Where the private texts of rows and answers end up in a run's folder: in the places that docs/record.md
names, and in no other."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_support import ENDED, FORMULA, MODEL, Manifest, Sim, combee, process, result_of
from test_privacy import Echo

from combee.plan.types import StepSummary

pytestmark = pytest.mark.e2e

PLANTED = {
    "an e-mail address": "jane.doe@example.com",
    "a telephone number": "+49 170 1234567",
    "a social security number": "123-45-6789",
    "a card number": "4111 1111 1111 1111",
    "a bank account": "DE89 3704 0044 0532 0130 00",
    "an access key": "sk-abcdefghijklmnopqrstuvwx12",
}
NAME = "Jane Q. Vantablack"
"""A person's name, which no pattern finds. It is in rows only; no model repeats it."""
MAY_HOLD = frozenset({"memo", "reflections", "leaves", "updates", "artifact"})
"""What is kept to the byte, since later calls are made of it: replies, and what the proposer made of them. An
artifact still has the entries that were refused."""


def sentence(number: int) -> str:
    """One planted text of each row, in turn."""
    return f"Contact {list(PLANTED.values())[number % len(PLANTED)]}."


@pytest.fixture
def echo(quick: Sim) -> Iterator[Echo]:
    """A model that repeats the planted texts in what it thinks of a row, and in what it writes of
    every third request, as a careless one does."""
    server = Echo(quick.url)

    def answer(request: dict[str, Any], raw: bytes, key: str) -> tuple[int, bytes]:
        address = quick.url + "/chat/completions"
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(address, raw, headers)) as reply:
            body = json.loads(reply.read())
        texts = " ".join(message["content"] for message in request["messages"])
        repeated = " ".join(text for text in PLANTED.values() if text in texts)
        choice = body["choices"][0]["message"]
        said = json.loads(choice["content"])
        for name in ("reasoning", "diagnosis"):
            if isinstance(said, dict) and isinstance(said.get(name), str):
                said[name] = f"{said[name]} {repeated}"
        for entry in written(said) if len(raw) % 3 == 0 else ():
            entry["text"] = f"{entry['text']} {repeated or PLANTED['an e-mail address']}"
        choice["content"] = json.dumps(said)
        return 200, json.dumps(body).encode()

    server.fault = answer
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def path(echo: Echo, manifest: Manifest, tmp_path: Path) -> Path:
    for name, count in (("train", 60), ("heldout", 60)):
        rows = [json.loads(line) for line in (FORMULA / f"{name}.jsonl").read_text().splitlines()[:count]]
        planted = [
            json.dumps({**row, "context": f"{NAME}. {sentence(number)}\n{row['context']}"}) + "\n"
            for number, row in enumerate(rows)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(planted))
    secret = {"name": "llm", "key": "token"}
    role = {"endpoint": {"url": echo.url, "model": MODEL, "apiKeySecretRef": secret}}
    return manifest(
        train=tmp_path / "train.jsonl",
        held_out=tmp_path / "heldout.jsonl",
        engines=[],
        models={"task": role, "proposer": role},
        batching={"mode": "Fixed", "size": 30, "reason": "test"},
        workers={"concurrency": 8, "hedgeBudget": 0},
    )


def written(said: Any) -> Iterator[dict[str, Any]]:
    """The entries that an aggregator's reply writes, wherever they stand in it."""
    if isinstance(said, dict) and isinstance(said.get("text"), str):
        yield said
    for part in said.values() if isinstance(said, dict) else said if isinstance(said, list) else ():
        yield from written(part)


def run(path: Path, out: Path) -> subprocess.CompletedProcess[str]:
    flags = ("--secret", "llm/token=env:COMBEE_TEST_KEY")
    return process("run", "-f", path, "-o", out, *flags, COMBEE_TEST_KEY="none")


def kinds_of(out: Path) -> dict[str, str]:
    """The digest of each blob -> what it is, by the names that the steps and their shards give it."""
    read = [StepSummary.decode(file.read_bytes()) for file in (out / "steps").glob("*.json")]
    steps = [summary.outputs for summary in read if summary is not None]
    shards = [json.loads(file.read_text())["outputs"] for file in receipts(out)]
    return {digest: name for named in (*steps, *shards) for name, digest in named.items()}


def receipts(out: Path) -> list[Path]:
    return sorted((out / "store/runs").rglob("*.manifest.json"))


def place_of(file: Path, out: Path, kinds: dict[str, str]) -> str:
    """What a file of a run's folder is: the memo, an output of a step by its name, or its path."""
    parts = file.relative_to(out).parts
    if parts[:2] == ("store", "memo"):
        return "memo"
    if parts[:2] == ("store", "blobs"):
        return kinds.get(file.name, f"a blob that no step names, {file.name}")
    return "/".join(parts)


def holding(out: Path, text: str) -> Counter[str]:
    """How often a text is in the files of a run's folder, by place."""
    kinds, counts = kinds_of(out), Counter[str]()
    for file in out.rglob("*"):
        if file.is_file() and (count := file.read_bytes().count(text.encode())):
            counts[place_of(file, out, kinds)] += count
    return counts


def test_private_texts_are_only_where_the_page_says(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(path, out)
    assert done.returncode in ENDED, done.stderr
    total = Counter[str]()
    for what, text in PLANTED.items():
        places = holding(out, text)
        assert set(places) <= MAY_HOLD, f"{what}: {places}"
        assert text not in done.stdout + done.stderr
        total += places
    # The model did repeat them, so that what was kept of its answers was redacted.
    assert set(total) == MAY_HOLD
    refused = [one for one in result_of(out)["entries"] if one["leftOut"] == "leak"]
    assert refused and {one["text"] for one in refused} == {"[it repeats private or copied text]"}
    marks = sum((holding(out, f"[{what}]") for what in PLANTED), Counter[str]())
    print(done.returncode, f"{total=}", f"{marks=}")
    assert marks["trajectories"] and any(place.endswith("changed.md") for place in marks)
    # What no pattern finds is only on the page that shows three questions of gate to people.
    assert {place.rpartition("/")[2] for place in holding(out, NAME)} <= {"changed.md", "start.md"}


def test_a_run_with_private_rows_is_replayed_to_the_byte(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(path, out).returncode in ENDED
    done = combee("replay", out, "-f", path)
    assert done.returncode == 0 and "identical" in done.stdout, done.stdout + done.stderr
    # An earlier release kept the rows, too: its record is compared by what would be kept now.
    for receipt in receipts(out):
        told = json.loads(receipt.read_text())
        if (digest := told["outputs"].get("trajectories")) is not None:
            lines = blob(out, digest).read_text().splitlines()
            whole = [json.dumps(json.loads(line) | {"input": f"the row of {NAME}"}) + "\n" for line in lines]
            data = "".join(whole).encode()
            older = hashlib.sha256(data).hexdigest()
            blob(out, older).parent.mkdir(exist_ok=True)
            blob(out, older).write_bytes(data)
            told["outputs"]["trajectories"] = older
            receipt.write_text(json.dumps(told))
    again = combee("replay", out, "-f", path)
    assert again.returncode == 0 and "identical" in again.stdout, again.stdout + again.stderr


def blob(out: Path, digest: str) -> Path:
    return out / "store" / "blobs" / digest[:2] / digest
