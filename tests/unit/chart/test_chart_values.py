"""Values: typos are refused with their place, and what is set arrives in the operator."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

import pytest
import yaml
from chart_tools import CHART, REPOSITORY, SERVER, helm, objects

from combee import __version__
from combee.operator.main import object_settings
from combee.settings import OperatorSettings, read_settings

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("namespace=team-a", "at '': additional properties 'namespace' not allowed"),
        ("admissionPolicy.instal=false", "at '/admissionPolicy': additional properties 'instal' not allowed"),
        ("operator.resource.limits.cpu=1", "at '/operator': additional properties 'resource' not allowed"),
        ("worker.resources.limit.cpu=1", "at '/worker/resources': additional properties 'limit' not allowed"),
        ("namespaces=team-a", "at '/namespaces': got string, want array"),
        ("namespaces={Team}", "at '/namespaces/0': 'Team' does not match pattern"),
        ("namespaces={a,a}", "at '/namespaces': items at 0 and 1 are equal"),
        ("operator.replicas=11", "at '/operator/replicas': maximum: got 11, want 10"),
        ("operator.resyncSeconds=1", "at '/operator/resyncSeconds': minimum: got 1, want 5"),
        ("operator.logLevel=debug", "at '/operator/logLevel': value must be one of 'DEBUG', 'INFO'"),
        ("operator.cleanUpOnUninstall=never", "at '/operator/cleanUpOnUninstall': got string, want boolean"),
        ("image.worker=", "at '/image/worker': '' does not match pattern"),
        ("image.pullPolicy=Sometimes", "at '/image/pullPolicy': value must be one of 'Always'"),
        ("allowCustomTasks=perhaps", "at '/allowCustomTasks': got string, want boolean"),
        ("discipline=Lax", "at '/discipline': value must be one of 'Strict', 'Advisory'"),
        (
            "playbooks.allowWaivedCanary=sometimes",
            "at '/playbooks/allowWaivedCanary': got string, want boolean",
        ),
        ("prefetch.resource.limits.cpu=1", "at '/prefetch': additional properties 'resource' not allowed"),
        ("engine.sharedMemory=much", "at '/engine/sharedMemory': 'much' does not match pattern"),
        ("store.size=large", "at '/store/size': 'large' does not match pattern"),
        ("store.accessModes={ReadOnlyMany}", "at '/store/accessModes/0': value must be one of"),
        ("metrics.port=80", "at '/metrics/port': minimum: got 80, want 1,024"),
        (
            "metrics.serviceMonitor.interval=often",
            "at '/metrics/serviceMonitor/interval': 'often' does not match",
        ),
    ],
)
def test_a_wrong_value_is_refused_and_named(given: str, says: str) -> None:
    refused = helm("template", "combee", str(CHART), "--kube-version", SERVER, "--set", given)
    assert refused.returncode == 1
    assert says in refused.stderr


def test_every_value_has_a_schema_and_every_schema_a_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    del schema["properties"]["global"]  # helm's own
    assert _keys_of_schema(schema) == set(_leaves(VALUES))


def test_the_chart_and_its_images_have_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    built = (REPOSITORY / "images/build.sh").read_text()
    assert "name=$REGISTRY/combee-$1:$VERSION" in built
    for name in ("operator", "worker"):
        assert VALUES["image"][name] == f"localhost/combee-{name}:{__version__}"
        assert (REPOSITORY / "images" / name / "Dockerfile").is_file()


def test_the_operator_reads_what_the_chart_sets_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = _environment("everything")
    read = {stated.metadata["variable"][0] for stated in fields(OperatorSettings)}
    # The accounts have the names that the chart's bindings have.
    assert read - set(environment) == {"COMBEE_WORKER_ACCOUNT", "COMBEE_PUBLISH_ACCOUNT"}
    assert set(environment) - {"HTTPS_PROXY", "NO_PROXY"} <= read, "but for extraEnv"
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = read_settings(OperatorSettings, "combee-operator")
    assert settings.namespaces == ()
    assert settings.engine_images == ("localhost/combee-sim", "registry.example.com/vllm")
    assert settings.engine_arguments == ("--trust-remote-code",)
    assert settings.allow_custom_tasks and settings.secret_policy and settings.make_accounts
    assert not settings.allow_waived_canary
    assert settings.discipline == "Advisory" and settings.read_nodes and settings.agent_sandbox
    made = object_settings(settings)
    assert made.worker_image == "registry.example.com/combee-worker:0.1.0"
    assert made.image_pull_secrets == ("registry",)
    assert made.worker_resources == VALUES["worker"]["resources"]
    assert made.worker_scratch == VALUES["worker"]["scratch"]
    assert made.engine_resources == VALUES["engine"]["resources"]
    assert made.engine_shared_memory == "16Gi"
    assert made.prefetch_resources["limits"] == {"cpu": "8", "memory": "4Gi"}


@pytest.mark.parametrize(
    ("way", "names", "secrets", "accounts"),
    [
        ("default", "", "true", "true"),
        ("namespaces", "team-a,team-b", "true", "false"),
        ("one-namespace", "team-a", "false", "false"),
        ("secured-off", "", "false", "true"),
    ],
)
def test_what_the_operator_may_take_for_granted(way: str, names: str, secrets: str, accounts: str) -> None:
    environment = _environment(way)
    assert environment["COMBEE_NAMESPACES"] == names
    assert environment["COMBEE_SECRET_POLICY"] == secrets
    assert environment["COMBEE_MAKE_ACCOUNTS"] == accounts


def test_who_cannot_install_the_policy_can_say_that_it_is_there() -> None:
    off, present = "admissionPolicy.install=false", "admissionPolicy.present=true"
    made = helm("template", "x", str(CHART), "--kube-version", SERVER, "--set", f"{off},{present}")
    assert 'COMBEE_SECRET_POLICY, value: "true"' in made.stdout
    assert "ValidatingAdmissionPolicy" not in made.stdout


def test_the_table_of_values_is_complete_and_has_their_defaults() -> None:
    page = (REPOSITORY / "docs/install.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \| `(.*?)` \|", page, re.MULTILINE)
    assert [name for name, _ in rows] == _leaves(VALUES)
    for name, default in rows:
        value: Any = VALUES
        for part in name.split("."):
            value = value[part]
        assert json.loads(default) == value, name


def _environment(way: str) -> dict[str, str]:
    (deployment,) = objects(way, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry.get("value", "of the pod") for entry in container["env"]}


def _leaves(values: dict[str, Any], path: str = "") -> list[str]:
    return [
        leaf
        for key, value in values.items()
        for leaf in (
            _leaves(value, f"{path}{key}.") if isinstance(value, dict) and value else [f"{path}{key}"]
        )
    ]


def _keys_of_schema(schema: dict[str, Any], path: str = "") -> set[str]:
    """Paths of the leaves; a part whose keys are the user's, such as limits, has the keys of values.yaml."""
    if "properties" not in schema:
        at: Any = VALUES
        for part in path.rstrip(".").split("."):
            at = at[part]
        return set(_leaves(at, path)) if isinstance(at, dict) and at else {path.rstrip(".")}
    return {
        leaf for key, part in schema["properties"].items() for leaf in _keys_of_schema(part, f"{path}{key}.")
    }
