"""Makes the folder that an image is built from: wheels with checked hashes, this package's own wheel, files.

    python images/context.py worker build/images/worker

What is built and when is decided by content: the folder is left as it is, to the last timestamp, when nothing
it is made of has changed, so that buildah and docker find their layers again. Needs pip, setuptools and packaging.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from packaging.requirements import Requirement

IMAGES = Path(__file__).resolve().parent
REPOSITORY = IMAGES.parent
PYTHON_VERSION = "3.11"
"""The Python of the images' base, whatever Python runs this."""

FILES = {
    "sim": {
        "data": REPOSITORY / "examples" / "data",
        "bin": IMAGES / "sim" / "bin",
        "weights": IMAGES / "sim" / "weights",
    },
    "smollm2": {"program": IMAGES / "smollm2" / "convert.py"},
    "office": {"task": REPOSITORY / "examples" / "office" / "office.py"},
}
"""What an image is given beside its Dockerfile: folder in its context -> where it comes from."""
GLIBC = (17, 28, 34, *range(18, 28), *range(29, 34), 35, 36)
"""The minor versions of glibc that wheels may be built for: up to the base's, the usual ones first."""
WITH_US = ("worker", "operator")
"""The images that hold this package."""


def pinned(lock: str) -> Iterator[str]:
    """The entries of a lock file that hold on Linux with ``PYTHON_VERSION``, hashes included."""
    target = {
        "python_version": PYTHON_VERSION,
        "python_full_version": f"{PYTHON_VERSION}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    for entry in re.split(r"\n(?=\S)", re.sub(r"(?m)^\s*#.*\n?", "", lock)):
        if not entry.strip():
            continue
        requirement = Requirement(entry.split(" \\\n")[0].strip())
        if requirement.marker is None or requirement.marker.evaluate(target):
            requirement.marker = None
            hashes = re.findall(r"--hash=\S+", entry)
            yield " \\\n    ".join([str(requirement), *hashes])


def pip(*arguments: str | Path) -> None:
    subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *map(str, arguments)], check=True
    )


def download(requirements: Path, folder: Path) -> None:
    """The wheels of a list with hashes, for the images' Python on this kind of processor."""
    processor = platform.machine()
    kinds = [f"manylinux_2_{glibc}_{processor}" for glibc in GLIBC] + [f"manylinux2014_{processor}"]
    for_the_image = ["--python-version", PYTHON_VERSION, "--implementation", "cp"]
    for_the_image += [f"--platform={kind}" for kind in kinds]
    pip(
        "download",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        *for_the_image,
        "-r",
        requirements,
        "-d",
        folder,
    )


def build_own_wheel(folder: Path) -> None:
    """This package's wheel, built from a copy: the working tree gets no build folder, and an old one is not used."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch)
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(REPOSITORY / "operator", copy / "operator", ignore=ignore)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(REPOSITORY / name, copy)
        pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, copy)


def own_wheel(folder: Path) -> Path:
    """``folder``, with this package's wheel: built once for all images beside it."""
    own = [REPOSITORY / name for name in ("operator", "pyproject.toml", "README.md", "LICENSE")]
    once(folder, digest(*own), build_own_wheel)
    return folder


def files_below(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(
        f
        for f in path.rglob("*")
        if f.is_file() and "__pycache__" not in f.parts and ".egg-info" not in str(f)
    )


def digest(*paths: Path) -> str:
    """sha256 over names and contents of all files below ``paths``."""
    total = hashlib.sha256()
    for path in paths:
        for file in files_below(path):
            total.update(f"{file.relative_to(path.parent)}\0{file.stat().st_mode & 0o111}\0".encode())
            total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def once(target: Path, made_of: str, make: Callable[[Path], None]) -> None:
    """Makes the folder ``target``, unless it was made of the same before. All its files get one timestamp."""
    stamp = target.with_name(f".{target.name}.made-of")
    if target.is_dir() and stamp.is_file() and stamp.read_text() == made_of:
        return
    stamp.unlink(missing_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    make(target)
    for path in [*target.rglob("*"), target]:
        os.utime(path, (0, 0))
    stamp.write_text(made_of)


def add_wheels(context: Path, lock: Path, pip_lock: Path) -> None:
    """``wheels``: what the image installs, the list with its hashes, and the pip that installs it."""

    def make(wheels: Path) -> None:
        listed = wheels / "requirements.txt"
        listed.write_text("\n".join(pinned(lock.read_text())) + "\n")
        download(listed, wheels)
        download(pip_lock, wheels)

    once(context / "wheels", digest(lock, pip_lock), make)


def add_files(context: Path, folder: str, source: Path) -> None:
    def make(target: Path) -> None:
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)

    once(context / folder, digest(source), make)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the folder that an image is built from.")
    parser.add_argument("image", choices=sorted(path.parent.name for path in IMAGES.glob("*/Dockerfile")))
    parser.add_argument("context", type=Path)
    arguments = parser.parse_args()
    image, context = arguments.image, arguments.context
    context.mkdir(parents=True, exist_ok=True)
    shutil.copy2(IMAGES / image / "Dockerfile", context / "Dockerfile")
    if (lock := IMAGES / image / "requirements.lock").exists():
        add_wheels(context, lock, IMAGES / "pip.lock")
    if image in WITH_US:
        add_files(context, "package", own_wheel(context.parent / "package"))
    for folder, source in FILES.get(image, {}).items():
        add_files(context, folder, source)


if __name__ == "__main__":
    main()
