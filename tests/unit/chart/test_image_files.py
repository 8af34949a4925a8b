"""The Dockerfiles keep to what buildah and docker have in common and to our rules for images. vLLM's, which
is not built here, is among them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

IMAGES = Path(__file__).resolve().parents[3] / "images"
FILES = sorted(path.parent.name for path in IMAGES.glob("*/Dockerfile"))
KNOWN = {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "RUN", "USER", "WORKDIR"}
GIVEN = {"wheels", "package", "data", "bin/", "weights/", "program", "task", "rootfs.tar"}
"""what images/context.py and the node's images.sh lay into a context."""


def instructions(image: str) -> list[tuple[str, str]]:
    """(word, rest) of each, its lines joined."""
    text = (IMAGES / image / "Dockerfile").read_text()
    lines = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", text)).splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]


def test_all_images_are_looked_at() -> None:
    assert FILES == ["base", "office", "operator", "sim", "smollm2", "vllm", "vllm-cpu", "worker"]


@pytest.mark.parametrize("image", FILES)
def test_only_what_every_builder_knows(image: str) -> None:
    for word, rest in instructions(image):
        assert word in KNOWN, word
        assert "<<" not in rest and "http" not in rest, rest
        mounts = re.findall(r"--mount=(\S+)", rest)
        assert all(re.fullmatch(r"type=bind,source=\w+,target=/\w+", mount) for mount in mounts), mounts
        if word in ("CMD", "ENTRYPOINT"):
            assert rest.startswith("["), "a shell would get the signals"
    assert instructions(image)[-1][0] in ("CMD", "COPY")


@pytest.mark.parametrize("image", FILES)
def test_every_stage_begins_with_what_is_named_and_pinned(image: str) -> None:
    known, stages = {"scratch"}, set[str]()
    for word, rest in instructions(image):
        if word == "ARG":
            name, _, default = rest.partition("=")
            known.add(f"${{{name}}}")
            assert not default or re.search(r":[^:/]*\d+\.\d+\.\d+[^:/]*$", default), f"{default} moves"
        if word == "FROM":
            base, _, stage = rest.partition(" AS ")
            assert base in known | stages, base
            stages.add(stage)
        if word in ("COPY", "ADD"):
            (source,) = rest.split()[-2:-1]
            if found := re.match(r"--from=(\w+)", rest):
                assert found[1] in stages, rest
            else:
                assert source in GIVEN, rest


ON_THE_WORKERS = ("office", "sim")


@pytest.mark.parametrize("image", [image for image in FILES if image not in ("base", "smollm2")])
def test_nobody_runs_as_root_and_home_can_be_written(image: str) -> None:
    last = [rest for word, rest in instructions(image) if word == "USER"][-1:]
    of = instructions("worker" if image in ON_THE_WORKERS else image)
    assert last == ([] if image in ON_THE_WORKERS else ["10001:10001"])
    assert ("USER", "10001:10001") in of and ("WORKDIR", "/tmp") in of
    assert any(word == "ENV" and "HOME=/tmp" in rest for word, rest in of)
    after = [word for word, _ in of[of.index(("USER", "10001:10001")) :]]
    assert "RUN" not in after


def test_an_image_of_weights_holds_nothing_else() -> None:
    assert [word for word, _ in instructions("smollm2")][-3:] == ["FROM", "USER", "COPY"]
    assert ("FROM", "scratch") in instructions("smollm2")


def test_vllms_base_is_an_argument_that_must_be_given() -> None:
    assert instructions("vllm")[:2] == [("ARG", "BASE"), ("FROM", "${BASE}")]
