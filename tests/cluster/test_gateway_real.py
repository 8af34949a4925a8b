"""The gateway in a namespace of a real cluster: made by the operator, and serving without it."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pytest
from cluster_tools import eventually, restricted_pod
from gateways import forwarded, gateway_ready
from playbooks import Playbooks
from runs import Operator

from combee.names import GATEWAY
from combee.objects.gateway import gateway_account

KEY, UPSTREAM_KEY = "key-of-the-client", "key-of-the-upstream"
GOOD, BETTER = (
    "## general\n[x-1] helpful=0 harmful=0 :: Divide first.\n",
    "## general\n[x-2] helpful=0 harmful=0 :: Round.\n",
)

# Answers with the first message that it was sent, to those who have its key.
ECHO = f"""
import http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        good = self.headers.get("Authorization") == "Bearer {UPSTREAM_KEY}"
        message = {{"role": "assistant", "content": body["messages"][0]["content"]}}
        choice = {{"index": 0, "message": message, "finish_reason": "stop"}}
        answer = json.dumps({{"choices": [choice]}}).encode()
        self.send_response(200 if good else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
"""


def prepare(there: Playbooks) -> None:
    """Secrets, the upstream, and what the chart makes for a gateway in a list of namespaces."""
    secrets = {"gateway-keys": {"one": KEY}, "llm": {"token": UPSTREAM_KEY}}
    meta = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}
        for name, data in secrets.items()
    ]
    pod = restricted_pod("llm", there.cluster.image("worker"), ["python", "-c", ECHO])
    pod["metadata"]["labels"] = {"app": "llm"}
    service = {"selector": {"app": "llm"}, "ports": [{"port": 8000}]}
    account, binding = gateway_account(there.namespace)
    binding["roleRef"]["kind"] = "Role"
    rules = [
        {
            "apiGroups": ["combee.dev"],
            "resources": ["playbooks", "playbookversions"],
            "verbs": ["get", "list", "watch"],
        },
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]
    role = {
        "apiVersion": binding["apiVersion"],
        "kind": "Role",
        "metadata": {"name": GATEWAY},
        "rules": rules,
    }
    objects = [
        *meta,
        pod,
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "llm"}, "spec": service},
        account,
        role,
        binding,
    ]
    there.cluster.kubectl("apply", "-f", "-", namespace=there.namespace, stdin=objects)


def gateway_spec(**more: Any) -> dict[str, Any]:
    upstream = {"url": "http://llm:8000/v1", "apiKeySecretRef": {"name": "llm", "key": "token"}}
    return {"enabled": True, "upstream": upstream, "keys": {"secretRef": {"name": "gateway-keys"}}, **more}


@dataclass
class Client:
    """Asks the gateway on one connection."""

    connection: http.client.HTTPConnection

    def ask(self, key: str = KEY, playbook: str = "formula") -> tuple[int, str, str]:
        """(status, digest, what the model was told first)."""
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "2+2?"}]})
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self.connection.request("POST", f"/{playbook}/v1/chat/completions", body, headers)
        answer = self.connection.getresponse()
        said = json.loads(answer.read())
        told = said["choices"][0]["message"]["content"] if answer.status == 200 else said["error"]["code"]
        return answer.status, answer.getheader("x-combee-digest") or "", told

    def page(self, path: str, **headers: str) -> tuple[int, str]:
        """(status, what people see) of the page."""
        self.connection.request("GET", f"/-/{path}", headers=headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read().decode()

    def sign_in(self, key: str) -> str:
        """The cookie that a browser keeps for a key."""
        self.connection.request("POST", "/-/sign-in", urlencode({"key": key}))
        answer = self.connection.getresponse()
        answer.read()
        return (answer.getheader("Set-Cookie") or "").split(";")[0]


@contextmanager
def client(there: Playbooks) -> Iterator[Client]:
    """Requests to the gateway's Service."""
    with forwarded(there) as port:
        yield Client(http.client.HTTPConnection("127.0.0.1", port, timeout=120))


@pytest.mark.slow
def test_a_gateway_serves_switches_and_rolls_back_within_a_second_without_the_operator(
    there: Playbooks, operator: Operator
) -> None:
    prepare(there)
    there.apply(delivery={"gateway": gateway_spec()})
    gateway_ready(there)
    first = there.version(GOOD, right=70)
    there.serves(first)
    with client(there) as asking:
        eventually("the first version is in front", lambda: asking.ask()[1] == first)
        assert asking.ask()[2].endswith(GOOD.strip())
        assert asking.ask(key="guess")[0] == 401
        second = there.version(BETTER, right=90, base=70, parent=first)
        there.serves(second)
        eventually("the second version is in front", lambda: asking.ask()[1] == second, every=0.05)
        operator.kill()
        began = time.monotonic()
        there.decide(second, "Refuse")
        decided = time.monotonic()
        while (got := asking.ask())[1] != first:
            assert got[0] == 200 and time.monotonic() - decided < 180
        print(
            f"without the operator: the version before is in front {time.monotonic() - decided:.3f} s "
            f"after kubectl ended, "
            f"which took {decided - began:.2f} s"
        )
        cookie = {"Cookie": asking.sign_in(KEY)}
        status, seen = asking.page(f"playbooks/{there.name}/diff?from={first}&to={second}", **cookie)
        assert status == 200 and "Divide first." in seen and "Round." in seen
        whole = asking.page(f"playbooks/{there.name}", **cookie)[1]
        assert "<td>Refuse</td>" in whole and "not what the operator recorded as active" in whole
        assert asking.page(f"playbooks/{there.name}") == (303, "")
    # Half of the container's limit, as the kubelet tells it.
    program = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8081/metrics').read().decode())"
    told = ("exec", f"deployment/{GATEWAY}", "--", "python", "-c", program)
    metrics = there.cluster.kubectl(*told, namespace=there.namespace)
    assert "combee_gateway_body_bytes_limit 2.68435456e+08" in metrics
    logs = there.cluster.kubectl("logs", f"deployment/{GATEWAY}", namespace=there.namespace)
    assert "switched" in logs
    assert not [word for word in ("2+2", "Divide", KEY, UPSTREAM_KEY) if word in logs]


@pytest.mark.slow
def test_service_accounts_are_let_in_by_the_api_servers_word_and_the_gateway_goes_with_its_playbook(
    there: Playbooks, operator: Operator
) -> None:
    prepare(there)
    spec = gateway_spec(keys={"tokenReview": {}})
    there.apply(delivery={"gateway": spec})
    gateway_ready(there)
    cluster, name = there.cluster, f"{there.namespace}-tokenreview"
    may = ("--clusterrole=system:auth-delegator", f"--serviceaccount={there.namespace}:{GATEWAY}")
    with client(there) as asking:
        account = ("create", "serviceaccount", "app")
        cluster.kubectl(*account, namespace=there.namespace)
        token = cluster.kubectl(
            "create", "token", "app", "--audience=combee-gateway", namespace=there.namespace
        ).strip()
        other = cluster.kubectl("create", "token", "app", namespace=there.namespace).strip()
        assert asking.ask(key=token)[2] == "no_review"
        cluster.kubectl("create", "clusterrolebinding", name, *may)
        try:
            eventually("the token is good", lambda: asking.ask(key=token)[0] == 200)
            assert asking.ask(key=token)[1] == "none"
            assert asking.page(f"playbooks/{there.name}", Cookie=asking.sign_in(token))[0] == 200
            assert [asking.ask(key=key)[2] for key in (other, "guess")] == ["invalid_api_key"] * 2
        finally:
            cluster.kubectl("delete", "clusterrolebinding", name)
    operator.kill()
    cluster.kubectl("delete", "playbook", there.name, namespace=there.namespace)

    def gone() -> bool:
        left = cluster.get("deployments,services", namespace=there.namespace)["items"]
        return not any(GATEWAY in one["metadata"]["name"] for one in left)

    eventually("the gateway is gone with its last Playbook, without the operator", gone)
