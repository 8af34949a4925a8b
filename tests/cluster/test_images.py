"""The images hold what they must, and nothing that they need not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cluster_tools import VERSION, Cluster, restricted_pod, run_python

READ_ONLY = {
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    },
    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
}
TMP = [{"name": "tmp", "emptyDir": {}}]


@pytest.mark.parametrize("image", ["worker", "operator", "sim"])
def test_an_image_runs_on_a_read_only_root_without_pip_wheels_or_sources_to_compile(
    cluster: Cluster, namespace: str, image: str
) -> None:
    program = """
        import importlib.util, os, pathlib, subprocess, sys
        import combee, numpy, pydantic
        site = pathlib.Path(combee.__file__).parent.parent
        helped = subprocess.run(["combee", "--help"], capture_output=True).returncode
        print(combee.__version__, os.getuid(), helped)
        print("pip" if list(site.glob("pip*")) else "no pip", *pathlib.Path("/").glob("build/**/*.whl"))
        sources = [p for p in (site / "combee").rglob("*.py")]
        sources += [module.__file__ for module in sys.modules.values() if getattr(module, "__cached__", None)]
        missing = [p for p in sources if not pathlib.Path(importlib.util.cache_from_source(p)).exists()]
        print(len(sources) > 50, *missing)
    """
    printed = run_python(cluster, namespace, program, image=image, container=READ_ONLY, volumes=TMP)
    assert printed.splitlines() == [f"{VERSION} 10001 0", "no pip", "True"]


def test_the_simulated_model_takes_the_place_of_vllm(
    cluster: Cluster, kubectl: Callable[..., str], namespace: str
) -> None:
    command = [
        "vllm",
        "serve",
        "openai/gpt-oss-120b",
        "--port=8000",
        "--host=0.0.0.0",
        "--max-model-len=65536",
    ]
    probe = {"readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1}}
    engine = restricted_pod(
        "engine", cluster.image("sim"), command, container={**READ_ONLY, **probe}, volumes=TMP
    )
    kubectl("create", "-f", "-", stdin=engine)
    kubectl("wait", "--for=condition=Ready", "pod/engine", "--timeout=240s")
    address = kubectl("get", "pod", "engine", "-o", "jsonpath={.status.podIP}")
    program = f"""
        import json, urllib.request
        models = json.load(urllib.request.urlopen("http://{address}:8000/v1/models"))
        print(*[model["id"] for model in models["data"]])
    """
    assert run_python(cluster, namespace, program).split() == ["openai/gpt-oss-120b"]


def test_the_simulated_model_starts_offline_only_from_what_was_fetched(
    cluster: Cluster, namespace: str
) -> None:
    program = """
        import os, subprocess
        env = {**os.environ, "HF_HOME": "/tmp/models", "HF_HUB_OFFLINE": "1"}
        def ran(*words, seconds=150):
            try:
                return subprocess.run(words, env=env, capture_output=True, text=True, timeout=seconds)
            except subprocess.TimeoutExpired:
                return None
        refused = ran("vllm", "serve", "a/b", "--port=8000")
        print(refused.returncode, "a/b is not in the cache" in refused.stderr)
        print(ran("hf", "download", "a/b", "--exclude=original/*").stdout.strip())
        print(ran("vllm", "serve", "a/b", "--port=8000", seconds=5))
    """
    printed = run_python(cluster, namespace, program, image="sim", container=READ_ONLY, volumes=TMP)
    assert printed.splitlines() == ["1 True", "fetched a/b to /tmp/models/hub/models--a--b/refs", "None"]
