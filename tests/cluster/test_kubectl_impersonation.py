"""Who acts as another with `kubectl combee` has the rights of the other, on a real API server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_tools import Cluster, eventually
from runs import quickstart
from test_kubectl_combee import combee, refused

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def place(cluster: Cluster, namespace: str) -> str:
    """A namespace with a run. Only the group ``lookers`` may read runs there, and nobody may do more."""
    run = next(one for one in quickstart() if one["kind"] == "PromptLearningRun")
    cluster.kubectl("create", "-f", "-", namespace=namespace, stdin=run)
    rights = ("--verb=get,list", "--resource=promptlearningruns.combee.dev")
    cluster.kubectl("create", "role", "looks", *rights, namespace=namespace)
    bound = ("create", "rolebinding", "looks", "--role=looks", "--group=lookers")
    cluster.kubectl(*bound, namespace=namespace)
    return namespace


def acting_as(cluster: Cluster, path: Path, **user: Any) -> str:
    """A copy of the cluster's kubeconfig whose user acts as another."""
    config = yaml.safe_load(cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "yaml"))
    config["users"][0]["user"] |= user
    path.write_text(json.dumps(config))
    return str(path)


def test_flags_and_kubeconfig_give_the_rights_of_the_other_and_no_more(
    cluster: Cluster, place: str, tmp_path: Path
) -> None:
    def status(*flags: str, **more: str) -> subprocess.CompletedProcess[str]:
        return combee(cluster, "status", "quickstart", "-n", place, *flags, **more)

    assert status().returncode == 0
    assert "jane may not get promptlearningruns" in refused(status("--as", "jane"))
    looks = ("--as", "jane", "--as-group", "others", "--as-group", "lookers")
    eventually("jane may look", lambda: status(*looks).returncode == 0)
    suspending = combee(cluster, "suspend", "quickstart", "-n", place, *looks)
    assert "jane may not patch promptlearningruns" in refused(suspending)
    jane = acting_as(cluster, tmp_path / "jane", **{"as": "jane"})
    assert "jane may not get promptlearningruns" in refused(status(KUBECONFIG=jane))
    looker = acting_as(cluster, tmp_path / "looker", **{"as": "jane", "as-groups": ["lookers"]})
    assert status(KUBECONFIG=looker).returncode == 0
    assert "bob may not get" in refused(status("--as", "bob", "--as-group", "x", KUBECONFIG=looker))
    assert "without its user" in refused(status("--as-group", "system:masters"))


def test_who_may_not_act_as_another_is_told_so(cluster: Cluster, place: str, tmp_path: Path) -> None:
    cluster.kubectl("create", "serviceaccount", "weak", namespace=place)
    token = cluster.kubectl("create", "token", "weak", namespace=place).strip()
    weak = acting_as(cluster, tmp_path / "weak")
    config = json.loads(Path(weak).read_text())
    config["users"][0]["user"] = {"token": token, "as": "admin", "as-groups": ["system:masters"]}
    Path(weak).write_text(json.dumps(config))
    said = refused(combee(cluster, "status", "-n", place, KUBECONFIG=weak))
    assert f"system:serviceaccount:{place}:weak may not impersonate users" in said


def test_a_login_program_gives_a_client_certificate(cluster: Cluster, place: str, tmp_path: Path) -> None:
    config = json.loads(Path(acting_as(cluster, tmp_path / "config")).read_text())
    user = config["users"][0]["user"]
    if not {"client-certificate-data", "client-key-data"} <= set(user):
        pytest.skip("the cluster's user has no client certificate")
    program = (
        "import base64, json, sys; "
        "one, two = (base64.b64decode(word).decode() for word in sys.argv[1:]); "
        "status = {'clientCertificateData': one, 'clientKeyData': two}; "
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential', "
        "'status': status}))"
    )
    arguments = ["-c", program, user["client-certificate-data"], user["client-key-data"]]
    run = {"command": "python3", "args": arguments, "apiVersion": "client.authentication.k8s.io/v1"}
    config["users"][0]["user"] = {"exec": {**run, "interactiveMode": "Never"}}
    (tmp_path / "config").write_text(json.dumps(config))
    done = combee(cluster, "status", "quickstart", "-n", place, KUBECONFIG=str(tmp_path / "config"))
    assert done.returncode == 0, done.stderr


def test_a_context_that_is_not_there(cluster: Cluster) -> None:
    said = refused(combee(cluster, "status", "--context", "nope"))
    known = cluster.kubectl("config", "get-contexts", "-o", "name").split()
    assert "no context 'nope'. There are: " in said and known[0] in said
