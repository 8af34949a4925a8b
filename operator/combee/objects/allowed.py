"""What a template may ask for: allow-lists, and the errors for what is not on them.

Everything that would change what runs, who it runs as, what it may see or which devices it gets is
absent on purpose. Container runtimes and device plugins read annotations and variables of their own
(``cdi.k8s.io/``, ``io.kubernetes.cri-o.``, ``NVIDIA_VISIBLE_DEVICES``), so these are lists of what is
known to be harmless rather than of what is known to be harmful.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from combee import names
from combee.api.cluster import check_cluster
from combee.api.parts import PodTemplate
from combee.api.run import PromptLearningRun, RunSpec
from combee.errors import ManifestError

ANNOTATIONS = (
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "karpenter.sh/do-not-disrupt",
    "kubernetes.io/egress-bandwidth",
    "kubernetes.io/ingress-bandwidth",
    "linkerd.io/inject",
    "prometheus.io/",
    "sidecar.istio.io/inject",
)
"""Keys, or prefixes ending in ``/``; a key with neither ``/`` nor ``.`` is the user's own."""
LABELS = ("app.kubernetes.io/part-of", "app.kubernetes.io/instance", "app.kubernetes.io/version")
"""Labels of Kubernetes' own domains that mean nothing to a controller."""
ENV_NAMES = (
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "HF_ENDPOINT",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "NO_PROXY",
    "TIKTOKEN_ENCODINGS_BASE",
    "TOKENIZERS_PARALLELISM",
    "TZ",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
ENV_PREFIXES = (
    "CUDA_",
    "GLOO_",
    "HF_HUB_",
    "MKL_",
    "NCCL_",
    "OMP_",
    "OPENBLAS_",
    "OTEL_",
    "PYTORCH_",
    "TORCH",
    "TRITON_",
    "UCX_",
    "VLLM_",
)
ENV_OURS = ("HF_HUB_CACHE", "HF_HUB_OFFLINE", "VLLM_PORT")
ENV_NEVER = re.compile(
    r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|HEADERS|_PATH)\Z|PLUGIN|PRELOAD|INJECTION|LIBRAR|MODULE_DIR"
)
"""Secrets do not belong in a manifest, and no variable may load code."""
_OTHERS = ("kubernetes.io", "k8s.io", "x-k8s.io", names.API_GROUP)
_RESERVED_LABELS = ("job-name", "controller-uid", "pod-template-hash")


def refused(run: PromptLearningRun) -> Iterator[ManifestError]:
    """Yield all that every cluster refuses of a run which its models accept, with path and fix."""
    yield from check_cluster(run)
    yield from refused_parts(run.spec)


def refused_parts(spec: RunSpec) -> Iterator[ManifestError]:
    """Yield what a run's templates and engines ask for and may not, however a cluster is set up."""
    if spec.workers.template is not None:
        yield from _refused(spec.workers.template, "spec.workers.template")
    for index, engine in enumerate(spec.engines):
        yield from _refused(engine.template, f"spec.engines[{index}].template")
        if engine.vllm is not None and engine.vllm.model.startswith("-"):
            where = f"spec.engines[{index}].vllm.model"
            yield ManifestError(
                f"model {engine.vllm.model[:60]} is an argument", where=where, fix="Name a model."
            )


def check_template(template: PodTemplate, where: str) -> None:
    """Raise ManifestError for the first thing that a template may not set. ``where`` is its path.

    ``api.parts`` has already checked how keys and amounts are written, and which resources there are.
    """
    for error in _refused(template, where):
        raise error


def _refused(template: PodTemplate, where: str) -> Iterator[ManifestError]:
    for key in template.metadata.labels:
        if key in _RESERVED_LABELS or (_foreign(key) and key not in LABELS):
            yield ManifestError(
                f"label {key} is not a template's to set",
                where=f"{where}.metadata.labels",
                fix="Use a key without prefix or with a domain of your own.",
            )
    for key in template.metadata.annotations:
        own = "/" not in key and "." not in key
        if not own and not any(key == one or (one[-1] == "/" and key.startswith(one)) for one in ANNOTATIONS):
            yield ManifestError(
                f"annotation {key} is not allowed",
                where=f"{where}.metadata.annotations",
                fix=f"Use a plain key such as team, or one of: {', '.join(ANNOTATIONS)}.",
            )
    for index, variable in enumerate(template.spec.env):
        name = variable.name
        known = name in ENV_NAMES or name.startswith(ENV_PREFIXES)
        if not known or name in ENV_OURS or (ENV_NEVER.search(name) and name not in ENV_NAMES):
            yield ManifestError(
                f"variable {name} is not a template's to set",
                where=f"{where}.spec.env[{index}].name",
                fix=f"Allowed: {', '.join(ENV_NAMES)} and names that begin with {', '.join(ENV_PREFIXES)}; "
                "never a secret, and nothing that loads code.",
            )


def _foreign(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return any(domain == other or domain.endswith(f".{other}") for other in _OTHERS)
