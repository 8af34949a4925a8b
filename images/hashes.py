"""Pins a list of packages to the wheels for this Python on this machine: images/hashes.py LIST.

Prints one entry a package with the hash of its wheel. A lock of every platform's wheels is a dozen times as long,
and vLLM's image is built for one.
"""

from __future__ import annotations

import json
import subprocess
import sys


def main() -> None:
    options = [
        "--dry-run",
        "--ignore-installed",
        "--no-deps",
        "--only-binary=:all:",
        "--report=-",
        "-r",
        sys.argv[1],
    ]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install", *options]
    report = json.loads(subprocess.run(pip, check=True, capture_output=True, text=True).stdout)  # noqa: S603
    wheels = {item["metadata"]["name"].lower().replace("_", "-"): item for item in report["install"]}
    for name, item in sorted(wheels.items()):
        print(f"{name}=={item['metadata']['version']} \\")
        print(f"    --hash=sha256:{item['download_info']['archive_info']['hashes']['sha256']}")


if __name__ == "__main__":
    main()
