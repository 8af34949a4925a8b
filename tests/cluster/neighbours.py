"""Other projects on the cluster of the tests: their own definitions, from their Go modules."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from cluster_tools import Cluster, eventually

DEFINITIONS = {
    "sigs.k8s.io/gateway-api@v1.4.1": (
        "config/crd/standard/gateway.networking.k8s.io_gateways.yaml",
        "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
    ),
    "sigs.k8s.io/gateway-api-inference-extension@v1.5.0": (
        "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml",
    ),
    "github.com/kserve/kserve@v0.19.0": (
        "config/crd/minimal/llmisvc/serving.kserve.io_llminferenceservices.yaml",
    ),
}
"""Go module -> files of it. All are under Apache-2.0; nothing of them is kept here."""


def go() -> str:
    """The go command; the test fails where a cluster is required, and is skipped elsewhere without one."""
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found is None:
        message = "no Go: the definitions of other projects cannot be had (https://go.dev/dl)"
        if os.environ.get("COMBEE_REQUIRE_CLUSTER") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return found


def module_folder(module: str) -> Path:
    """The folder of a Go module, which Go fetches once and checks against its public checksum."""
    with tempfile.TemporaryDirectory() as outside:  # of any module, whose own versions would count
        done = subprocess.run(
            [go(), "mod", "download", "-json", module], cwd=outside, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(json.loads(done.stdout)["Dir"])


def define(cluster: Cluster) -> None:
    """Install the kinds that ``engines[].ref`` reads; they stay."""
    files = [str(module_folder(module) / file) for module, names in DEFINITIONS.items() for file in names]
    flags = [word for file in files for word in ("-f", file)]
    cluster.kubectl("apply", "--server-side", "--force-conflicts", *flags)
    kinds = {"Gateway", "HTTPRoute", "InferencePool", "LLMInferenceService"}
    eventually("their kinds are listed", lambda: kinds <= cluster.reader.kinds())
