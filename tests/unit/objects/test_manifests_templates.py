"""What a template may ask for, and the words with which the rest is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from manifests_makers import FULL, OWNER, PLAIN, SETTINGS, run_of, step_of

from combee.api.parts import PodTemplate
from combee.errors import ManifestError
from combee.objects.allowed import check_template
from combee.objects.engines import check_model_cache, check_run, engine_image
from combee.objects.jobs import step_job
from combee.objects.overrides import resources_of
from combee.objects.types import Settings

ALLOWED: dict[str, dict[str, Any]] = {
    "labels of one's own": {"metadata": {"labels": {"team": "a", "acme.example.com/cost": "7"}}},
    "labels for people": {"metadata": {"labels": {"app.kubernetes.io/part-of": "billing"}}},
    "a plain annotation": {"metadata": {"annotations": {"note": "anything\nat all: {}"}}},
    "known annotations": {
        "metadata": {
            "annotations": {
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "prometheus.io/port": "8000",
            }
        }
    },
    "variables": {"spec": {"env": [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "VLLM_LOGGING_LEVEL"}]}},
    "resources": {"spec": {"resources": {"requests": {"cpu": "1500m"}, "limits": {"memory": "1.5Gi"}}}},
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "our label": ({"metadata": {"labels": {"combee.dev/run": "x"}}}, "metadata.labels"),
    "a managed label": ({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}}, "metadata.labels"),
    "Kubernetes' label": (
        {"metadata": {"labels": {"batch.kubernetes.io/job-name": "x"}}},
        "metadata.labels",
    ),
    "a controller's label": ({"metadata": {"labels": {"pod-template-hash": "x"}}}, "metadata.labels"),
    "Kueue's label": ({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "x"}}}, "metadata.labels"),
    "seccomp": (
        {"metadata": {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}}},
        "metadata.annotations",
    ),
    "apparmor": (
        {
            "metadata": {
                "annotations": {"container.apparmor.security.beta.kubernetes.io/worker": "unconfined"}
            }
        },
        "metadata.annotations",
    ),
    "kubectl": ({"metadata": {"annotations": {"kubectl.kubernetes.io/x": "y"}}}, "metadata.annotations"),
    "devices by annotation": ({"metadata": {"annotations": {"cdi.k8s.io/x": "y"}}}, "metadata.annotations"),
    "a runtime's annotation": (
        {"metadata": {"annotations": {"io.kubernetes.cri-o.Devices": "/dev/kmsg"}}},
        "metadata.annotations",
    ),
    "networks by annotation": (
        {"metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "host"}}},
        "metadata.annotations",
    ),
    "a prefix that only begins alike": (
        {"metadata": {"annotations": {"prometheus.io.example.com/x": "y"}}},
        "metadata.annotations",
    ),
    **{
        f"variable {name}": ({"spec": {"env": [{"name": name, "value": "x"}]}}, "spec.env[0].name")
        for name in (
            "LD_PRELOAD",
            "PYTHONPATH",
            "PATH",
            "HOME",
            "COMBEE_STEP",
            "JOB_COMPLETION_INDEX",
            "NVIDIA_VISIBLE_DEVICES",
            "OPENAI_API_KEY",
            "VLLM_API_KEY",
            "HF_TOKEN",
            "HF_HUB_OFFLINE",
            "HF_HUB_TOKEN",
            "NCCL_NET_PLUGIN",
            "OMP_TOOL_LIBRARIES",
            "VLLM_NCCL_SO_PATH",
            "CUDA_INJECTION64_PATH",
            "AWS_SECRET_ACCESS_KEY",
            "KUBERNETES_SERVICE_HOST",
        )
    },
}


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(name: str) -> None:
    check_template(PodTemplate.model_validate(ALLOWED[name]), "spec.workers.template")


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_its_path_and_what_to_do(name: str) -> None:
    given, path = REFUSED[name]
    with pytest.raises((ManifestError, ValueError)) as caught:
        check_template(PodTemplate.model_validate(given), "spec.workers.template")
    if isinstance(caught.value, ManifestError):
        assert caught.value.where == f"spec.workers.template.{path}"
        assert caught.value.fix


def test_a_run_is_checked_as_a_whole_and_no_object_is_made_of_a_bad_template() -> None:
    bad = {"metadata": {"annotations": {"cdi.k8s.io/x": "y"}}}
    for spec, path in (
        ({**PLAIN, "workers": {"template": bad}}, "spec.workers.template.metadata.annotations"),
        (_with_engine(template=bad), "spec.engines[0].template.metadata.annotations"),
        (_with_engine(image="elsewhere/vllm:1"), "spec.engines[0].vllm.image"),
    ):
        with pytest.raises(ManifestError) as caught:
            check_run(run_of(spec), SETTINGS)
        assert caught.value.where == path
    check_run(run_of(FULL), SETTINGS)
    with pytest.raises(ManifestError):
        step_job(run_of({**PLAIN, "workers": {"template": bad}}), OWNER, step_of("map"), 0, SETTINGS)


@pytest.mark.parametrize(
    ("image", "allowed"),
    [
        (None, True),
        ("vllm/vllm-openai:v0.32.0", True),
        ("vllm/vllm-openai:v0.25.0", False),
        ("registry.example.com/models/vllm:1", True),
        ("registry.example.com/models:1", True),
        ("registry.example.com/models@sha256:00", True),
        ("registry.example.com/models-of-a-stranger/vllm:1", False),
        ("registry.example.com.evil.example/models/vllm:1", False),
        ("combee/sim:1.2.3", True),
        ("combee/simulated:1", False),
    ],
)
def test_engine_images_are_those_of_the_chart(image: str | None, allowed: bool) -> None:
    engine = run_of(_with_engine(image=image)).spec.engines[0]
    if allowed:
        assert engine_image(engine, SETTINGS) == (image or SETTINGS.vllm_image)
        return
    with pytest.raises(ManifestError) as caught:
        engine_image(engine, SETTINGS)
    assert str(caught.value) == (
        f"spec.engines[0].vllm.image: image {image} is not allowed here. Leave image out, or use one that is "
        "allowed (registry.example.com/models, combee/sim:); the chart's value engineImages lists them."
    )


def test_an_engine_without_any_image_is_refused_and_says_what_to_do() -> None:
    engine = run_of(PLAIN).spec.engines[0]
    with pytest.raises(ManifestError, match=r"no image for engines.*Name one.* image\.vllm\."):
        engine_image(engine, Settings("worker:1"))


@pytest.mark.parametrize(
    ("modes", "replicas", "right"),
    [
        (["ReadWriteOnce"], 1, True),
        (["ReadWriteOnce"], 2, False),
        (["ReadWriteOncePod"], 2, False),
        (["ReadWriteOnce", "ReadWriteMany"], 2, True),
        (["ReadOnlyMany"], 2, True),
    ],
)
def test_servers_share_a_cache_only_where_the_claim_can(modes: list[str], replicas: int, right: bool) -> None:
    spec = copy.deepcopy(FULL)
    spec["engines"][0]["vllm"]["replicas"] = replicas
    engine = run_of(spec).spec.engines[0]
    if right:
        check_model_cache(engine, modes)
    else:
        with pytest.raises(ManifestError, match="ReadWriteMany"):
            check_model_cache(engine, modes)


def test_a_template_replaces_all_that_is_said_of_a_resource() -> None:
    template = PodTemplate.model_validate({"spec": {"resources": {"limits": {"memory": "8Gi"}}}})
    base = {"requests": {"cpu": "1", "memory": "16Gi"}, "limits": {"memory": "32Gi"}}
    assert resources_of(template, base, gpus=2) == {
        "requests": {"cpu": "1"},
        "limits": {"memory": "8Gi", "nvidia.com/gpu": "2"},
    }
    assert resources_of(None, base) == base


@pytest.mark.parametrize(
    ("asked", "limits"),
    [
        ({"memory": "1Gi"}, {"cpu": "2", "memory": "2Gi"}),
        ({"memory": "4Gi", "cpu": "100m"}, {"cpu": "2", "memory": "4Gi"}),
        ({"cpu": "2500m"}, {"cpu": "2500m", "memory": "2Gi"}),
        ({"ephemeral-storage": "1Gi"}, {"cpu": "2", "memory": "2Gi"}),
    ],
)
def test_a_template_that_only_asks_keeps_the_charts_limits_and_never_asks_for_more(
    asked: dict[str, str], limits: dict[str, str]
) -> None:
    template = PodTemplate.model_validate({"spec": {"resources": {"requests": asked}}})
    base = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
    assert resources_of(template, base) == {"requests": {**base["requests"], **asked}, "limits": limits}


def _with_engine(image: str | None = None, template: dict[str, Any] | None = None) -> dict[str, Any]:
    spec = copy.deepcopy(PLAIN)
    if image is not None:
        spec["engines"][0]["vllm"]["image"] = image
    if template is not None:
        spec["engines"][0]["template"] = template
    return spec
