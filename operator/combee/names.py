"""Every name and label the project gives out. Names are pure functions of what they name."""

from __future__ import annotations

import hashlib
import hmac

from combee.errors import BugError
from combee.steps import KINDS

PROGRAM = "combee"
"""What the operator and its pods tell the API server that they are, which notes it beside what they write."""
API_GROUP = "combee.dev"
API_VERSION = "combee.dev/v1alpha1"
RUN_KIND = "PromptLearningRun"
PLAYBOOK_KIND = "Playbook"
PLAYBOOK_VERSION_KIND = "PlaybookVersion"
KUEUE = "kueue.x-k8s.io/v1beta2"
"""Kueue's API, as versions from 0.15 on serve it."""
SANDBOXES = "extensions.agents.x-k8s.io/v1beta1"
"""The API of agent-sandbox's templates, warm pools and claims."""
CLAIMED_BY = "combee.dev/claimed-by"
"""the annotation that says whose a pod out of a warm pool is; one that waits there has none."""

VLLM_VERSION = "0.32.0"
"""The version of vLLM that engines are tested and documented with, and that the extra ``vllm`` installs."""
VLLM_IMAGE = f"docker.io/vllm/vllm-openai:v{VLLM_VERSION}"
START_DATE = "VLLM_SYSTEM_START_DATE"
"""The variable that gives vLLM the date for the system message of gpt-oss."""

MAX_NAME = 63
"""A Kubernetes label value, and so a pod's name, has at most this many characters."""

PROMPT_KEY, ARTIFACT_KEY, GATE_KEY = "prompt.md", "artifact.json", "gate.json"
METHOD_KEY, COMPONENTS_KEY, FINDINGS_KEY = "method", "prompt.json", "findings.json"
RETRIEVAL_KEY = "retrieval.json"
"""Keys of a published version's ConfigMap: the text that models are shown; what of its artifact the next run
may start from; its scores on gate; its base method, absent with ACE; its components by name, where it has
several; what is wrong with it; how much of the text one question is shown, where that is not all. The text,
the artifact and the components are files of a run's folder, too."""
SHOWN_KEYS = PROMPT_KEY, COMPONENTS_KEY, METHOD_KEY, RETRIEVAL_KEY, ARTIFACT_KEY
"""those of them that are delivered: scores on gate stay with the version."""
SERVED_KEYS = PROMPT_KEY, METHOD_KEY, RETRIEVAL_KEY
"""those of them that say what a gateway puts in front of a request."""
LESSONS_FILE = "lessons.md"
"""The file of a run's folder that says where each lesson comes from."""
LESSONS_MARK = "Notes for people on what was learned; prompt.md is what models are shown."
"""The line of such a file by which it is known: nothing may show it to a model."""

STORE_FOLDER = "/store"
"""where a pod has the claim that is its store."""

MANAGED_BY = "combee-operator"
LABEL_NAME = "app.kubernetes.io/name"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_RUN = f"{API_GROUP}/run"
LABEL_RUN_UID = f"{API_GROUP}/run-uid"
LABEL_STEP = f"{API_GROUP}/step"
LABEL_ITERATION = f"{API_GROUP}/iteration"
LABEL_ATTEMPT = f"{API_GROUP}/attempt"
LABEL_ENGINE = f"{API_GROUP}/engine"
LABEL_SHARED = f"{API_GROUP}/shared-engine"
"""on an engine that runs share: the digest of what they all declare."""
LABEL_DESK = f"{API_GROUP}/desk"
"""on the pods of steps that give rollouts to pods of the user's image."""
ROLLOUT = "rollout"
"""the component of what does rollouts in a user's image."""
GATEWAY = "combee-gateway"
"""the Deployment, Service and account of a namespace's gateway."""
LABEL_PLAYBOOK = f"{API_GROUP}/playbook"
LABEL_HISTORY = f"{API_GROUP}/history"
"""on a line of a Playbook's history: the Playbook."""
LABEL_CANARY = f"{API_GROUP}/canary"
"""the comparison that judged pairs belong to."""
LABEL_COMPARISON = f"{API_GROUP}/comparison"
"""on a run: the comparison that it is a cell of."""
CELL_ANNOTATION = f"{API_GROUP}/cell"
"""on a run of a comparison: which cell it is, as JSON."""
DIGEST_ANNOTATION = f"{API_GROUP}/digest"
"""of the artifact that a ConfigMap holds."""
DATA_ANNOTATION = f"{API_GROUP}/data"
"""of the delivered ConfigMap: SHA-256 of what was written into it."""
JUDGE_ANNOTATION = f"{API_GROUP}/judge"
"""on the ConfigMap that a Job of a canary makes: the Job's uid."""
PAIRS_KEY = "pairs.json"
READING_KEY = "reading.json"
LINE_KEY = "line.json"
"""keys of the ConfigMap that a Job of a canary makes: judged pairs, and what Prometheus said."""
LEARN_ANNOTATION = f"{API_GROUP}/learn"
"""on a Playbook: each new text asks for one run of ``spec.learn.template``."""


def step_name(
    run: str, uid: str, iteration: int, kind: str, attempt: int = 0, *, max_index: int = 99999
) -> str:
    """Return the name of a step: ``formula-3fa9c1d2-i003-map-a0`` for iteration 3 of the run formula.

    It has at most 63 characters together with the index ``-<max_index>`` that an Indexed Job appends: the
    run's name is cut (to 30 characters at most) and the rest never is. BugError: no such kind.
    """
    if kind not in KINDS:
        raise BugError(f"unknown step kind {kind!r}", fix=f"one of {', '.join(KINDS)}")
    tail = f"-{uid[:8]}-i{iteration:03d}-{kind}-a{attempt}"
    room = MAX_NAME - len(tail) - len(f"-{max_index}")
    return run[: min(30, room)].rstrip("-.") + tail


def attempt_name(step: str, attempt: int) -> str:
    """Name the Job of a step's attempt: ``formula-3fa9c1d2-i003-map-a2``. BugError: ``step`` is none."""
    head, dash, tail = step.rpartition("-a")
    if not dash or not tail.isdigit():
        raise BugError(f"{step!r} is not the name of a step")
    return f"{head}-a{attempt}"


def run_config_name(run: str, uid: str) -> str:
    """Name the ConfigMap that shows a run's pods what the run is: ``formula-3fa9c1d2-run``."""
    return f"{_short(run)}-{uid[:8]}-run"


def engine_name(run: str, uid: str, index: int, engine: str) -> str:
    """Name an engine's Deployment and Service: ``formula-3fa9c1d2-e0-main``; the index keeps cut names apart.

    A Service's name begins with a letter, which a run's need not: ``7b`` -> ``r7b-3fa9c1d2-e0-main``.
    """
    return f"{_lettered(run)}-{uid[:8]}-e{index}-{engine[:16]}".rstrip("-.")


def shared_engine_name(digest: str, engine: str) -> str:
    """Name the Deployment and Service of an engine that runs share: ``shared-1b2c3d4e5f60-main``."""
    return f"shared-{digest[:12]}-{engine[:16]}".rstrip("-.")


def prefetch_name(run: str, uid: str, index: int) -> str:
    """Name the Job that loads an engine's weights into its cache: ``formula-3fa9c1d2-e0-fetch``."""
    return f"{_lettered(run)}-{uid[:8]}-e{index}-fetch"


def rollouts_name(run: str, uid: str) -> str:
    """Name the Service where pods of a user's image find rollouts, and the warm pool and template of such
    pods: ``formula-3fa9c1d2-rollouts``."""
    return f"{_lettered(run)}-{uid[:8]}-rollouts"


def rollout_job_name(run: str, uid: str, attempt: int) -> str:
    """Name the Job of such pods, the first one or one that follows: ``formula-3fa9c1d2-rollouts-a0``."""
    return f"{rollouts_name(run, uid)}-a{attempt}"


def sandbox_claim_name(run: str, uid: str, attempt: int) -> str:
    """Name the SandboxClaim of one such pod out of a warm pool: ``formula-3fa9c1d2-rollouts-c0``."""
    return f"{rollouts_name(run, uid)}-c{attempt}"


def workload_name(run: str, uid: str) -> str:
    """Name the Workload by which a run has a place in its queue: ``formula-3fa9c1d2``."""
    return f"{_short(run)}-{uid[:8]}"


def pod_set_name(index: int, engine: str) -> str:
    """Name the set of an engine's pods in a Workload: ``engine-0-main``; the index keeps cut names apart."""
    return f"engine-{index}-{engine}"[:MAX_NAME].rstrip("-")


def published_name(playbook: str, digest: str) -> str:
    """Name the immutable ConfigMap of one version of a Playbook: ``formula-1b2c3d4e5f60``."""
    return f"{playbook[:50].rstrip('-.')}-{digest[:12]}"


def restore_name(playbook: str, digest: str, slot: int) -> str:
    """Name the Job that publishes a version once more: ``formula-1b2c3d4e5f60-restore-5e2a10``."""
    return f"{playbook[:34].rstrip('-.')}-{digest[:12]}-restore-{slot:x}"


def playbook_label(playbook: str) -> str:
    """Return a Playbook's name as a label's value."""
    return playbook[:MAX_NAME].rstrip("-.")


def history_name(playbook: str, number: int) -> str:
    """Name the immutable ConfigMap of one line of a Playbook's history: ``formula-history-000042``."""
    return f"{history_prefix(playbook)}{number:06d}"


def history_prefix(playbook: str) -> str:
    """Return how the names of all lines of a Playbook's history begin."""
    return f"{playbook}-history-"


def history_labels(playbook: str) -> dict[str, str]:
    """Return the labels of the lines of a Playbook's history. They have not LABEL_PLAYBOOK, by which a
    Playbook's ConfigMaps are listed again and again: lines only grow in number."""
    return {
        LABEL_NAME: "combee",
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_COMPONENT: "history",
        LABEL_HISTORY: playbook_label(playbook),
    }


def delivered_name(playbook: str, chosen: str = "") -> str:
    """Name the ConfigMap that services mount: as the Playbook says, else ``formula-playbook``."""
    return chosen or f"{playbook}-playbook"


def traffic_folder(playbook: str, comparison: str = "") -> str:
    """Return the folder of sampled traffic: ``traffic/formula/pairs/<comparison>``, or all of a Playbook's.

    Below it are ``pairs/<comparison>`` (both answers to a request), ``requests`` (requests and answers
    captured) and what ``work.traffic.sweeping`` knows.
    """
    return f"traffic/{playbook}/pairs/{comparison}" if comparison else f"traffic/{playbook}"


def captured_folder(playbook: str) -> str:
    """Return where captured requests and their answers are in a store."""
    return f"traffic/{playbook}/requests"


def canary_labels(playbook: str, comparison: str) -> dict[str, str]:
    """Return the labels of what a canary's comparison makes: Jobs that judge, and the pairs they judged."""
    return {
        LABEL_NAME: "combee",
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_COMPONENT: "canary",
        LABEL_PLAYBOOK: playbook_label(playbook),
        LABEL_CANARY: comparison,
    }


def pairs_name(playbook: str, digest: str) -> str:
    """Name a ConfigMap of judged pairs: ``formula-pairs-1b2c3d4e5f60``."""
    return f"{_short(playbook)}-pairs-{digest[:16]}"


def judge_name(playbook: str, comparison_digest: str, slot: int) -> str:
    """Name the Job that judges a comparison in a span of time: ``formula-judge-1b2c3d4e-90371234``."""
    return f"{_short(playbook)}-judge-{comparison_digest[:8]}-{slot}"


def datawatch_name(playbook: str, digest: str, slot: int) -> str:
    """Name the Job that looks at a Playbook's data in a span of time: ``formula-data-1b2c3d4e-6001234``."""
    return f"{_short(playbook)}-data-{digest[:8]}-{slot}"


PROGRAM_MODULES = (
    "bisect", "calendar", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions",
    "functools", "heapq", "itertools", "json", "math", "operator", "re", "statistics", "string", "textwrap",
    "typing", "unicodedata",
)  # fmt: skip
"""What a program of a playbook may import."""


def rollout_token(uid: str) -> str:
    """Return what a run's pods show at its desks. No user's container gets it, nor the uid it is made of."""
    return hmac.new(uid.encode(), b"combee rollouts", hashlib.sha256).hexdigest()


def run_labels(run: str, uid: str, component: str) -> dict[str, str]:
    """Return the labels that every object made for a run carries."""
    return {
        LABEL_NAME: "combee",
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_COMPONENT: component,
        LABEL_RUN: run,
        LABEL_RUN_UID: uid,
    }


def _short(run: str) -> str:
    return run[:30].rstrip("-.")


def _lettered(run: str) -> str:
    return _short(run) if run[0].isalpha() else _short(f"r{run}")


def plan_name(run: str, uid: str, iteration: int) -> str:
    """Name an iteration's frozen plan: ``formula-3fa9c1d2-i003-plan``."""
    return f"{_short(run)}-{uid[:8]}-i{iteration:03d}-plan"
