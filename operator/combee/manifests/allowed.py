"""What a template may ask for: allow-lists, and the errors for what is not on them.

Everything that would change what runs, who it runs as, what it may see or which devices it gets is
absent on purpose. Container runtimes and device plugins read annotations and variables of their own
(``cdi.k8s.io/``, ``io.kubernetes.cri-o.``, ``NVIDIA_VISIBLE_DEVICES``), so these are lists of what is
known to be harmless rather than of what is known to be harmful.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from combee import names
from combee.api.parts import PodTemplate
from combee.api.run import RunSpec
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
"""keys, or prefixes ending in ``/``; a key with neither ``/`` nor ``.`` is the user's own."""
LABELS = ("app.kubernetes.io/part-of", "app.kubernetes.io/instance", "app.kubernetes.io/version")
"""labels of Kubernetes' own domains that say nothing to a controller."""
ENV_NAMES = (
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "HF_ENDPOINT",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "NO_PROXY",
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
"""secrets do not belong into a manifest, and nothing here loads code."""
RESOURCES = ("cpu", "memory", "ephemeral-storage")
RESOURCE_PREFIXES = ("rdma/",)

_OTHERS = ("kubernetes.io", "k8s.io", "x-k8s.io", names.API_GROUP)
_RESERVED_LABELS = ("job-name", "controller-uid", "pod-template-hash")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_QUANTITY = re.compile(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)(m|[kMGTPE]|[KMGTPE]i|[eE][0-9]{1,2})?\Z")


def check_templates(spec: RunSpec, annotations: Iterable[str] = ()) -> None:
    """Refuse a run whose templates ask for more than they may. ``annotations``: more allowed keys.

    Raises ManifestError with the path of the field and what to do.
    """
    if spec.workers.template is not None:
        check_template(spec.workers.template, "spec.workers.template", annotations)
    for index, engine in enumerate(spec.engines):
        check_template(engine.template, f"spec.engines[{index}].template", annotations)


def check_template(template: PodTemplate, where: str, annotations: Iterable[str] = ()) -> None:
    """Refuse what a template may not set. ``where`` is its path."""
    more = (*ANNOTATIONS, *annotations)
    for key, value in template.metadata.labels.items():
        _label(key, value, f"{where}.metadata.labels")
    for key in template.metadata.annotations:
        _annotation(key, more, f"{where}.metadata.annotations")
    for key, value in template.spec.node_selector.items():
        _syntax(key, value, f"{where}.spec.nodeSelector")
    seen: set[str] = set()
    for index, variable in enumerate(template.spec.env):
        _env(variable.name, seen, f"{where}.spec.env[{index}].name")
        seen.add(variable.name)
    if template.spec.resources is not None:
        _resources(template.spec.resources.requests, f"{where}.spec.resources.requests")
        _resources(template.spec.resources.limits, f"{where}.spec.resources.limits")


def _label(key: str, value: str, where: str) -> None:
    _syntax(key, value, where)
    if key in _RESERVED_LABELS or (_foreign(key) and key not in LABELS):
        raise ManifestError(
            f"label {key} is not a template's to set",
            where=where,
            fix="Use a key without prefix or with a domain of your own.",
        )


def _annotation(key: str, allowed: tuple[str, ...], where: str) -> None:
    _syntax(key, "", where)
    own = "/" not in key and "." not in key
    if own or any(key == one or (one.endswith("/") and key.startswith(one)) for one in allowed):
        return
    raise ManifestError(
        f"annotation {key} is not allowed",
        where=where,
        fix="Use a plain key such as team, or ask whoever runs the operator to allow it "
        f"(allowed here: {', '.join(allowed)}).",
    )


def _env(name: str, seen: set[str], where: str) -> None:
    if not _ENV.match(name):
        raise ManifestError(f"{name!r} is not the name of a variable", where=where, fix="Use A-Z, 0-9 and _.")
    if name in seen:
        raise ManifestError(f"{name} is set twice", where=where, fix="Keep one of them.")
    known = name in ENV_NAMES or name.startswith(ENV_PREFIXES)
    if not known or name in ENV_OURS or (ENV_NEVER.search(name) and name not in ENV_NAMES):
        raise ManifestError(
            f"variable {name} is not a template's to set",
            where=where,
            fix=f"Allowed: {', '.join(ENV_NAMES)} and names that begin with {', '.join(ENV_PREFIXES)}; "
            "never a secret, and nothing that loads code.",
        )


def _resources(given: Mapping[str, str], where: str) -> None:
    for name, amount in given.items():
        if name == "nvidia.com/gpu":
            raise ManifestError(
                "GPUs are not set here", where=f"{where}[{name!r}]", fix="Set vllm.gpusPerReplica."
            )
        if name not in RESOURCES and not name.startswith(RESOURCE_PREFIXES):
            raise ManifestError(
                f"resource {name} is not allowed", where=where, fix=f"Use {', '.join(RESOURCES)} or rdma/..."
            )
        if not _QUANTITY.match(amount):
            raise ManifestError(
                f"{amount!r} is not a quantity", where=f"{where}[{name!r}]", fix="Write 500m, 2 or 4Gi."
            )


def _syntax(key: str, value: str, where: str) -> None:
    prefix, slash, name = key.rpartition("/")
    right_prefix = not slash or (len(prefix) <= 253 and _DOMAIN.match(prefix))
    if not right_prefix or not _NAME.match(name):
        raise ManifestError(f"{key!r} is not a valid key", where=where, fix="Write name or domain/name.")
    if value and not _NAME.match(value):
        raise ManifestError(
            f"{value!r} is not a valid value of {key}",
            where=where,
            fix="Use at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends.",
        )


def _foreign(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return any(domain == other or domain.endswith(f".{other}") for other in _OTHERS)
