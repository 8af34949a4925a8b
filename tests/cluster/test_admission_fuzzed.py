"""Random manifests, sent to a real API server with the chart's policies and to what ``combee validate`` asks.

The server takes nothing that validate refuses for a reason that a schema or a rule can state, and validate
takes nothing that the server refuses, but for what only a cluster knows. What may differ is listed by words.
The seed is printed; COMBEE_FUZZ_SEED gives another. A few hundred more are sent in test_tenant.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from tenants import EDITOR, Tenant, rented

from admission_cases import base, changed
from combee.api.cluster import check_cluster
from combee.api.load import KINDS, Resource, parse_resource, problems_in, resources_in
from combee.cli.validate import refused_of
from combee.errors import BugError
from fuzzed_manifests import junk, manifest_of, nearly_good, places

SEED = int(os.environ.get("COMBEE_FUZZ_SEED", "18"))
MANIFESTS, BATCH = 10_000, 2_000
AT_ONCE, CHUNK = 8, 200
MOST_MIB = 1024
HUGE: tuple[Any, ...] = (
    "x" * 60_000,
    "\U0001f600" * 5_000,
    ["a"] * 2_000,
    [{"name": "a"}] * 1_000,
    {f"k{number}": number for number in range(2_000)},
    10**4000,
)
ODD = (
    *("\ud800", "\ufeffa", "a\u200bb", "\u0430dmin", "e\u0301"),
    *("\U0010ffff", "\r\n", "\x7f", "\u2028", "%s%n"),
)
DEEP = {f"@deep{depth}": '{"a":[' * depth + "1" + "]}" * depth for depth in (20, 300, 6_000)}
"""What stands in a text in place of these words."""
WHERE = ("default", "../kube-system", "", "A_B", 7)

ONLY_VALIDATE = (
    "nothing is written here",  # the server drops a null without a word
    "half a character",  # the server puts another in its place
    *("Write one of ACE", "Write one of ParallelScan"),  # words that packages add to
    *("not stated (", "not sound ("),  # discipline, which the operator asks about
    *("prices say nothing of", "is the proposer's model", "sameAsProposer is given, and the models differ"),
    "a cluster starts the program of a container itself",
    "textgrad.constraints have ",  # CEL counts no bytes
    *("is an argument", "is not a template's to set", "Use a plain key such as team"),
)
"""Words of refusals that no schema and no rule of the CRDs states."""
ONLY_SERVER = (
    *("SecretNotAllowed: ", "DataNotAllowed: ", "PodsNotAllowed: ", "AddressNotAllowed: "),
    "cannot create resource",
)
"""Words of refusals that only a cluster can state."""


@dataclass(frozen=True)
class Asked:
    """A manifest, and what became of it."""

    number: int
    text: str
    refused_here: tuple[str, ...]
    refused_there: str

    def __str__(self) -> str:
        here = " | ".join(self.refused_here)
        return f"seed {SEED}, number {self.number}: here {here or 'taken'!r}, there {self.refused_there!r}"


def hostile(manifest: Any, r: random.Random) -> Any:
    """Put something in it that is huge, deep, odd or elsewhere."""
    found = list(places(manifest))
    if not found:
        return junk(r)
    at, (*path, key) = manifest, r.choice(found)
    for part in path:
        at = at[part]
    way = r.randrange(5)
    if way == 0:
        at[key] = r.choice(HUGE)
    elif way == 1:
        at[key] = r.choice(list(DEEP))
    elif way == 2 and isinstance(manifest.get("metadata"), dict):
        field = r.choice(("namespace", "labels", "annotations", "generateName", "name"))
        odd = r.choice((*WHERE, *ODD, "a..b/c", "A.b/c", "a/b/c", "-a", "x" * 64))
        manifest["metadata"][field] = r.choice((odd, {str(odd): "a"}, {"a": odd}))
    else:
        at[key] = r.choice(ODD)
    return manifest


def finite(value: Any) -> Any:
    """The same with numbers that JSON can write."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    return 10**400 if isinstance(value, float) and not math.isfinite(value) else value


def made(number: int) -> tuple[str, str]:
    """(kind, text) of a manifest."""
    r = random.Random(f"{SEED}/admission/{number}")
    manifest = finite(nearly_good(r) if r.random() < 0.6 else manifest_of(r))
    if isinstance(manifest, dict) and r.random() < 0.08:
        manifest = hostile(manifest, r)
    text = json.dumps(manifest)
    for word, deep in DEEP.items():
        text = text.replace(f'"{word}"', deep)
    return str(manifest.get("kind")) if isinstance(manifest, dict) else "", text


def refused_here(text: str) -> tuple[tuple[str, ...], list[Resource]]:
    """What ``combee validate`` says against it, what it says of a cluster included; and what it read."""
    problems = problems_in(text, "m.yaml", refused_of)
    assert not [one for one in problems if isinstance(one, BugError)]
    read = [] if problems else resources_in(text, "")
    problems += [error for one in read for error in check_cluster(one)]
    return tuple(map(str, problems)), read


def differences(tenant: Tenant, numbers: range) -> list[Asked]:
    """Ask both of every manifest, and print the counts; return those on which they differ."""
    counts, slowest, unlike, before = Counter[str](), 0.0, list[Asked](), most_mib()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for start in range(numbers.start, numbers.stop, CHUNK):
            texts = {number: made(number) for number in numbers[start - numbers.start :][:CHUNK]}
            sent = {number: pool.submit(there, tenant, number, *one) for number, one in texts.items()}
            for number, (_, text) in texts.items():
                began = time.perf_counter()
                here, read = refused_here(text)
                slowest = max(slowest, time.perf_counter() - began)
                asked = compared(number, text, here, read, *sent[number].result())
                counts[f"{_word(here)}, {_word(asked.refused_there)}"] += 1
                unlike += [asked] if bool(here) != bool(asked.refused_there) else []
    taken = most_mib() - before
    print(
        f"seed {SEED}, {numbers}, here and there: {dict(counts)}; slowest {slowest:.2f} s, {taken} MiB more"
    )
    assert taken < MOST_MIB
    return unlike


def most_mib() -> int:
    """The most memory that this process, which other tests had before, ever took."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def compared(
    number: int, text: str, here: tuple[str, ...], read: list[Resource], status: int, said: Any
) -> Asked:
    """What both said. Where both take it, they have to read the same in it."""
    assert status < 500, (number, status, said)
    if status >= 300:
        return Asked(number, text, here, str(said.get("message")))
    stored = "" if here or parse_resource(said, "").spec == read[0].spec else "stored as something else"
    return Asked(number, text, here, stored)


def _word(refused: object) -> str:
    return "refused" if refused else "taken"


def there(tenant: Tenant, number: int, kind: str, text: str) -> tuple[int, Any]:
    """(status, answer) of the server; every other manifest is sent by who may read nothing."""
    path = kind.lower() if kind in KINDS else "plr"
    user = EDITOR if number % 2 else ""
    return tenant.cluster.reader.write(path, text, tenant.namespace, user=user, dryRun="All")


def listed(asked: Asked) -> bool:
    """Whether it is known why only one of them refuses."""
    if asked.refused_there:
        return any(word in asked.refused_there for word in ONLY_SERVER)
    return all(any(word in text for word in ONLY_VALIDATE) for text in asked.refused_here)


@pytest.fixture(scope="module")
def tenant(cluster: Cluster) -> Iterator[Tenant]:
    with rented(cluster) as made:
        asks = {"endpoint": {"url": "http://127.0.0.1/v1", "model": "m"}}
        node = changed(base("PromptLearningRun"), {"spec.models.evaluator": asks})
        eventually("the policies are in force", lambda: "AddressNotAllowed" in made.create(node).text)
        yield made


@pytest.mark.long
@pytest.mark.parametrize("start", range(0, MANIFESTS, BATCH))
def test_ten_thousand_manifests_are_taken_and_refused_by_both(tenant: Tenant, start: int) -> None:
    assert [str(one) for one in differences(tenant, range(start, start + BATCH)) if not listed(one)] == []
