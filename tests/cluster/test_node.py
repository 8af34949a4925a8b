"""The test node is what the other tests take it for."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_tools import NODE, Cluster, eventually, restricted_pod, run_python

Kubectl = Callable[..., str]


@pytest.fixture
def own(cluster: Cluster) -> Cluster:
    if not cluster.own:
        pytest.skip("a fact of the project's own test node, and KUBECONFIG names another cluster")
    return cluster


def test_the_node_is_ready_and_of_the_version_we_support(cluster: Cluster) -> None:
    nodes = cluster.get("nodes")["items"]
    assert nodes
    for node in nodes:
        assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
        assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.")


def test_helm_takes_the_nodes_kubernetes_for_granted_where_it_asks_no_cluster(
    own: Cluster, tmp_path: Path
) -> None:
    """``helm template`` took 1.20 before, which the chart refuses."""
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: asks, version: 0.1.0}\n")
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates/asked.yaml").write_text("minor: {{ .Capabilities.KubeVersion.Minor | quote }}\n")
    program = shutil.which("helm", path=own.environment["PATH"])
    assert program is not None
    asked = subprocess.run(
        [program, "template", str(tmp_path)], env=own.environment, capture_output=True, text=True, check=True
    )
    server = json.loads(own.kubectl("get", "--raw", "/version"))
    assert f'minor: "{server["minor"]}"' in asked.stdout


def test_names_of_services_resolve_in_a_pod(cluster: Cluster, namespace: str) -> None:
    program = """
        import socket
        for name in ("kubernetes.default", "kubernetes.default.svc.cluster.local"):
            print(socket.gethostbyname(name))
    """
    address = cluster.get("service", "kubernetes", namespace="default")["spec"]["clusterIP"]
    assert run_python(cluster, namespace, program).split() == [address, address]


def test_a_headless_service_resolves_to_its_ready_pods(
    cluster: Cluster, kubectl: Kubectl, namespace: str
) -> None:
    for name in ("a", "b"):
        pod = restricted_pod(name, cluster.image("worker"), ["sleep", "600"])
        pod["metadata"]["labels"] = {"app": "both"}
        kubectl("create", "-f", "-", stdin=pod)
    spec = {"clusterIP": "None", "selector": {"app": "both"}, "ports": [{"port": 8000}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "both"}, "spec": spec}
    kubectl("create", "-f", "-", stdin=service)
    kubectl("wait", "--for=condition=Ready", "pod", "a", "b", "--timeout=240s")
    addresses = kubectl("get", "pods", "-l", "app=both", "-o", "jsonpath={.items[*].status.podIP}").split()
    program = f"""
        import socket, time
        seen = []
        for _ in range(500):
            try:
                seen = socket.gethostbyname_ex("both.{namespace}.svc")[2]
            except socket.gaierror:
                pass
            if len(seen) == 2:
                break
            time.sleep(.2)
        print(*seen)
    """
    assert sorted(run_python(cluster, namespace, program).split()) == sorted(addresses)


def test_a_claim_is_bound_and_a_user_other_than_root_writes_to_it(
    cluster: Cluster, kubectl: Kubectl, namespace: str
) -> None:
    resources = {"requests": {"storage": "1Gi"}}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "store"},
        "spec": {
            "accessModes": ["ReadWriteMany" if cluster.own else "ReadWriteOnce"],
            "resources": resources,
        },
    }
    kubectl("create", "-f", "-", stdin=claim)
    volume = {"name": "store", "persistentVolumeClaim": {"claimName": "store"}}
    program = """
        import os
        open("/store/new", "x").write("kept")
        os.link("/store/new", "/store/name")
        print(open("/store/name").read(), os.getuid())
    """
    mount = {"volumeMounts": [{"name": "store", "mountPath": "/store"}]}
    printed = run_python(cluster, namespace, program, volumes=[volume], container=mount)
    assert printed.split() == ["kept", "10001"]


def test_a_restricted_namespace_refuses_a_pod_of_root(cluster: Cluster, namespace: str) -> None:
    pod = restricted_pod("root", cluster.image("worker"), ["true"])
    pod["spec"]["securityContext"] = {}
    result = cluster.try_kubectl("create", "-f", "-", namespace=namespace, stdin=pod)
    assert result.returncode != 0
    assert 'violates PodSecurity "restricted' in result.stderr


def test_the_node_hands_out_eight_gpus(own: Cluster) -> None:
    status = own.get("node", "node1")["status"]
    assert (status["capacity"]["nvidia.com/gpu"], status["allocatable"]["nvidia.com/gpu"]) == ("8", "8")


def test_of_two_conditional_puts_from_a_pod_one_wins(own: Cluster, namespace: str) -> None:
    program = f"""
        import botocore.session
        from botocore.exceptions import ClientError
        s3 = botocore.session.get_session().create_client(
            "s3", region_name="us-east-1", endpoint_url="http://minio.minio.svc:9000",
            aws_access_key_id="combee-test", aws_secret_access_key="combee-test-secret",
        )
        for body in (b"first", b"second"):
            try:
                s3.put_object(Bucket="combee", Key="{namespace}/x", Body=body, IfNoneMatch="*")
                print("written")
            except ClientError as error:
                print(error.response["Error"]["Code"])
        print(s3.get_object(Bucket="combee", Key="{namespace}/x")["Body"].read().decode())
    """
    assert run_python(own, namespace, program).split() == ["written", "PreconditionFailed", "first"]


def test_the_log_of_requests_says_who_asked_for_what(own: Cluster, kubectl: Kubectl, namespace: str) -> None:
    kubectl("get", "secret", "nobody-has-this", "--ignore-not-found")
    logs = own.part("log", "audit")
    line = eventually(
        "the request is in the log",
        lambda: [x for x in open(logs.strip()) if namespace in x and "nobody-has-this" in x],  # noqa: SIM115
        seconds=180,
    )[0]
    assert '"username":"admin"' in line and '"verb":"get"' in line


def test_two_ups_change_nothing(own: Cluster) -> None:
    def state() -> tuple[str, str]:
        parts = [
            own.part("pids", p).split()[0]
            for p in ("etcd", "apiserver", "containerd", "kubelet", "coredns", "minio")
        ]
        return " ".join(parts), own.kubectl("get", "node", "-o", "jsonpath={.items[*].metadata.uid}")

    before = state()
    for _ in range(2):
        subprocess.run([NODE / "node.sh", "bare"], check=True, capture_output=True, env=own.environment)
    assert state() == before
