"""Weights from an image or a claim: the pod that copies them, and the servers that read the copy."""

from __future__ import annotations

import copy
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from manifests_makers import OWNER, PLAIN, SETTINGS, run_of
from pod_security import violations

from combee.errors import ManifestError
from combee.names import prefetch_name
from combee.objects.engine_pods import COPY
from combee.objects.engines import check_run, engine_deployment, prefetch_job

IMAGE = {"image": {"reference": "registry.example.com/models/tiny:2", "path": "weights/tiny"}}
CLAIM = {"pvc": {"claimName": "shared", "path": "weights/tiny"}}
SAME_CLAIM = {"pvc": {"claimName": "models", "path": "by-hand/tiny"}}


def made(source: dict[str, Any], **vllm: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The specs of the pod that copies, and of a server."""
    spec = copy.deepcopy(PLAIN)
    cache = {"claimName": "models", "source": source}
    spec["engines"][0]["vllm"] |= {"model": "acme/tiny", "replicas": 2, "modelCache": cache, **vllm}
    run = run_of(spec)
    job = prefetch_job(run, OWNER, 0, SETTINGS)
    assert job is not None
    server = engine_deployment(run, OWNER, 0, SETTINGS)
    assert server["spec"]["replicas"] == 2
    return tuple(one["spec"]["template"]["spec"] for one in (job, server))  # type: ignore[return-value]


def mounts(container: dict[str, Any]) -> dict[str, bool]:
    """Path -> whether it may be written to."""
    return {mount["mountPath"]: not mount.get("readOnly", False) for mount in container["volumeMounts"]}


@pytest.mark.parametrize("source", [IMAGE, CLAIM, SAME_CLAIM])
def test_servers_read_the_very_copy_under_the_name_of_the_model_and_ask_no_hub(
    source: dict[str, Any],
) -> None:
    copier, server = made(source)
    (vllm,), (fetch,) = server["containers"], copier["containers"]
    folder = vllm["command"][2]
    assert folder.startswith("/models/acme-tiny-") and folder == fetch["args"][1]
    assert "--served-model-name=acme/tiny" in vllm["args"]
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in vllm["env"]
    assert mounts(vllm) == {"/models": False, "/tmp": True, "/dev/shm": True}
    assert "startupProbe" in vllm
    assert "nvidia.com/gpu" not in str(vllm["resources"])
    for pod in (copier, server):
        assert violations({"spec": pod}) == []
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_an_images_folder_is_copied_by_a_container_of_it_with_a_shell_of_ours() -> None:
    copier, _ = made(IMAGE)
    (shell,), (fetch,) = copier["initContainers"], copier["containers"]
    assert fetch["image"] == IMAGE["image"]["reference"]
    assert fetch["command"][:3] == ["/combee/bin/busybox", "sh", "-c"] and fetch["env"] == []
    assert fetch["args"] == [
        "/weights/tiny",
        fetch["args"][1],
        prefetch_name(OWNER.name, OWNER.uid, 0),
    ]
    assert mounts(fetch) == {"/combee/bin": False, "/models": True, "/tmp": True}
    assert shell["image"] == SETTINGS.worker_image and mounts(shell) == {"/combee/bin": True}


@pytest.mark.parametrize(("source", "volume"), [(CLAIM, "source"), (SAME_CLAIM, "models")])
def test_a_claims_folder_is_copied_by_the_worker_which_may_not_write_to_it(
    source: dict[str, Any], volume: str
) -> None:
    copier, _ = made(source)
    (fetch,) = copier["containers"]
    assert fetch["image"] == SETTINGS.worker_image and "initContainers" not in copier
    assert fetch["args"][0] == f"/source/{source['pvc']['path']}"
    assert mounts(fetch) == {"/source": False, "/models": True, "/tmp": True}
    assert [m["name"] for m in fetch["volumeMounts"] if m["mountPath"] == "/source"] == [volume]


def test_other_weights_are_another_folder_and_the_same_are_the_same_for_every_run() -> None:
    newer = {"image": {**IMAGE["image"], "reference": "registry.example.com/models/tiny:3"}}
    folders = [
        made(source, **vllm)[0]["containers"][0]["args"][1]
        for source, vllm in [
            (IMAGE, {}),
            (IMAGE, {"args": ["--max-num-seqs=8"]}),
            (newer, {}),
            (CLAIM, {}),
            (CLAIM, {"revision": "2"}),
        ]
    ]
    assert folders[0] == folders[1] and len(set(folders)) == 4


@pytest.mark.parametrize(
    ("reference", "allowed"),
    [
        ("registry.example.com/models/tiny:2", True),
        ("combee/sim:1", True),
        ("registry.example.com/modelsx/tiny:2", False),
        (SETTINGS.vllm_image, False),
    ],
)
def test_an_image_of_weights_must_be_one_that_engines_may_name(reference: str, allowed: bool) -> None:
    spec = copy.deepcopy(PLAIN)
    source = {"image": {"reference": reference, "path": "weights"}}
    spec["engines"][0]["vllm"]["modelCache"] = {"claimName": "models", "source": source}
    if allowed:
        check_run(run_of(spec), SETTINGS)
        return
    with pytest.raises(ManifestError) as caught:
        check_run(run_of(spec), SETTINGS)
    assert str(caught.value) == (
        f"spec.engines[0].vllm.modelCache.source.image.reference: image {reference} is not allowed here. "
        "Use one that is allowed (registry.example.com/models, combee/sim:); the chart's value engineImages "
        "lists them."
    )


def copied(origin: Path, to: Path, name: str = "job") -> subprocess.CompletedProcess[str]:
    """The script of the pod, on this machine's own programs: ``env cp`` is what ``busybox cp`` is there."""
    words = ["sh", "-c", COPY, "env", str(origin), str(to), name]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]}
    )


def listed(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_copy_is_whole_or_is_not_there(tmp_path: Path) -> None:
    hub, claim = tmp_path / "hub", tmp_path / "claim"
    (hub / "blobs").mkdir(parents=True)
    (hub / "tiny" / "more").mkdir(parents=True)
    claim.mkdir()
    (hub / "blobs" / "0a").write_text("weights")
    (hub / "tiny" / "model.safetensors").symlink_to("../blobs/0a")
    (hub / "tiny" / "more" / "config.json").write_text("{}")
    # What a pod that was killed in the middle left.
    (claim / "tiny.part-job").mkdir()
    (claim / "tiny.part-job" / "half").write_text("we")
    done = copied(hub / "tiny", claim / "tiny")
    assert (done.returncode, done.stderr) == (0, "")
    assert listed(claim) == {"tiny/model.safetensors": "weights", "tiny/more/config.json": "{}"}
    assert not (claim / "tiny" / "model.safetensors").is_symlink(), "a link would point into the source"


def test_what_is_there_is_not_copied_again(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    done = copied(tmp_path / "gone", tmp_path / "tiny")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/tiny is there\n")


def test_a_folder_that_is_not_there_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    done = copied(tmp_path / "gone", tmp_path / "tiny")
    assert done.returncode == 1 and f"the source has no folder {tmp_path}/gone" in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
