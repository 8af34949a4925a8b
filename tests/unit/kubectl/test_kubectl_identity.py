"""Who `kubectl combee` is on a cluster: what a kubeconfig and kubectl's flags say, or nobody at all."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import kr8s.asyncio
import lightkube
import pytest
from lightkube.resources.core_v1 import Namespace

from combee.cli.main import _exit_code
from combee.cli.where import Place
from combee.clients.kubernetes import kube
from combee.clients.kubernetes.kube import Kube
from combee.clients.kubernetes.kubeconfig import ONESELF, Identity
from combee.errors import ClusterError


@dataclass
class Server:
    """An API server that keeps who asked for what, and finds nothing."""

    address: str
    asked: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)

    def identities(self) -> list[list[tuple[str, str]]]:
        """The Impersonate headers of each request."""
        return [
            [(name, value) for name, value in headers if name.startswith("Impersonate-")]
            for _, headers in self.asked
        ]

    def tokens(self) -> list[str]:
        return [dict(headers).get("Authorization", "") for _, headers in self.asked]


@pytest.fixture
def server() -> Iterator[Server]:
    asked: list[tuple[str, list[tuple[str, str]]]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((self.path, [(name.title(), value) for name, value in self.headers.items()]))
            version = {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
            body = json.dumps({"kind": "List", "items": [], "metadata": {}, **version}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = do_DELETE = answer

        def log_message(self, *_: Any) -> None:
            pass

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    yield Server(f"http://127.0.0.1:{serving.server_address[1]}", asked)
    serving.shutdown()
    serving.server_close()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes kubeconfigs of one context each and points KUBECONFIG at them."""

    def write(server: Server, user: dict[str, Any], *names: str, **cluster: Any) -> None:
        paths = []
        for name in names or ("c",):
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": name, "cluster": {"server": server.address, **cluster}}],
                "users": [{"name": f"user-{name}", "user": user}],
                "contexts": [
                    {"name": name, "context": {"cluster": name, "user": f"user-{name}", "namespace": name}}
                ],
                "current-context": name,
            }
            paths.append(tmp_path / f"{name}.yaml")
            paths[-1].write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", ":".join(map(str, paths)))

    return write


def requests(identity: Identity = ONESELF, **more: Any) -> str:
    """One request of each kind that the commands make; the namespace."""

    async def make() -> str:
        api = await Kube.connect(identity=identity, as_a_person=True, **more)
        try:
            await api.get("Pod", "a", "b")
            await api.list("Pod", "a")
            await api.create({"kind": "Pod", "metadata": {"namespace": "a", "name": "b"}})
            await api.patch("Pod", "a", "b", {})
            await api.delete("Pod", "a", "b")
            async for _ in api.stream("/api/v1/namespaces/a/pods/b/log", query={}):
                pass
            return api.namespace
        finally:
            await api.aclose()

    return asyncio.run(make())


JANE = {
    "as": "jane",
    "as-uid": "7",
    "as-groups": ["devs", "on call, weekends"],
    "as-user-extra": {"example.com/team a": ["x", "y"]},
}


def test_every_request_acts_as_whom_the_kubeconfig_names(server: Server, files: Any) -> None:
    files(server, {"token": "admin", **JANE})
    assert requests() == "c"
    expected = [
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "devs"),
        ("Impersonate-Group", "on call, weekends"),
        ("Impersonate-Extra-Example.Com%2Fteam%20A", "x"),
        ("Impersonate-Extra-Example.Com%2Fteam%20A", "y"),
    ]
    said = [[(n.title(), v) for n, v in one] for one in server.identities()]
    assert said == [[(n.title(), v) for n, v in expected]] * 6
    assert server.tokens() == ["Bearer admin"] * 6


async def _by_kr8s(path: str) -> None:
    api = await kr8s.asyncio.api(kubeconfig=path)
    await api.version()


async def _by_lightkube(path: str) -> None:
    client = lightkube.AsyncClient(config=lightkube.KubeConfig.from_file(path))
    await client.get(Namespace, name="a")


@pytest.mark.parametrize("request_by", [_by_kr8s, _by_lightkube])
def test_other_libraries_act_as_the_administrator_who_asked_to_be_jane(
    server: Server, files: Any, request_by: Any
) -> None:
    """Why clients/kubernetes is ours (docs/architecture.md): the day this fails, look at that table again."""
    files(server, {"token": "admin", **JANE})
    asyncio.run(request_by(os.environ["KUBECONFIG"]))
    assert server.asked and not any(server.identities())
    assert set(server.tokens()) == {"Bearer admin"}


def test_flags_go_before_the_file_one_by_one(server: Server, files: Any) -> None:
    files(server, {"token": "admin", "as": "jane", "as-groups": ["devs"]})
    requests(Identity("bob"))
    assert server.identities() == [[("Impersonate-User", "bob"), ("Impersonate-Group", "devs")]] * 6


def test_nobody_else_is_nobody_else(server: Server, files: Any) -> None:
    files(server, {"token": "me"})
    requests()
    assert server.identities() == [[]] * 6


@pytest.mark.parametrize(
    ("user", "flags", "said"),
    [
        ({"as-groups": ["devs"]}, [], "without its user"),
        ({}, ["--as-group", "devs"], "Name the user, too: --as NAME"),
        ({}, ["--as-uid", "7"], "without its user"),
        ({"as": "a\nb"}, [], "unprintable"),
        ({"exec": {"command": "false", "apiVersion": "v1"}, "token": "stronger"}, [],
         "its login program gave no credentials"),
        ({"exec": {"command": "/no/such/program", "apiVersion": "v1"}}, [], "/no/such/program"),
        ({"exec": {"command": "echo", "args": ['{"apiVersion": "v1", "kind": "x", "status": {}}'],
         "apiVersion": "v1"}}, [], "missing token"),
        ({"auth-provider": {"name": "azure"}, "token": "stronger"}, [],
         "auth-provider 'azure' is not known here"),
    ],
)  # fmt: skip
def test_who_cannot_be_who_the_configuration_says_asks_nothing(
    server: Server, files: Any, capsys: pytest.CaptureFixture[str], user: Any, flags: list[str], said: str
) -> None:
    files(server, user)
    assert _exit_code(["status", *flags]) == 2
    error = capsys.readouterr().err
    assert said in error and error.startswith("error: ") and error.count("\n") == 1, error
    assert server.asked == []


def test_flags_of_a_command_reach_the_requests(
    server: Server, files: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    files(server, {"token": "admin"})
    assert _exit_code(["status", "--as", "bob", "--as-group", "x", "--as-group", "y", "--as-uid", "7"]) == 0
    bob = [("Impersonate-User", "bob"), ("Impersonate-Uid", "7"), ("Impersonate-Group", "x"),
     ("Impersonate-Group", "y")]  # fmt: skip
    assert server.identities() == [bob]


def test_the_next_command_goes_to_the_same_place_as_the_same_one() -> None:
    place = Place("n", "c", Identity("system:serviceaccount:a:b", ("x y",), "7"))
    assert place.flags("m") == " -n m --context c --as system:serviceaccount:a:b --as-group 'x y' --as-uid 7"
    assert Place().flags("m") == " -n m"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--context", "nope"], "no context 'nope'. There are: one, two"),
        (["--context", "nope", "-n", "x"], "no context 'nope'"),
    ],
)
def test_a_context_that_is_not_there_names_those_that_are(
    server: Server, files: Any, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    files(server, {"token": "me"}, "two", "one")
    assert _exit_code(["status", *flags]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and len(error) < 200, error


def test_many_contexts_are_cut(server: Server, files: Any) -> None:
    files(server, {}, *(f"context-{k}" for k in range(13)))
    with pytest.raises(ClusterError, match=r"context-1, .* and 3 more"):
        requests(context="nope")


def test_of_several_files_the_first_current_context_counts(server: Server, files: Any) -> None:
    files(server, {"token": "me"}, "one", "two")
    assert requests() == "one"
    assert requests(context="two") == "two"


def one_context(of: dict[str, Any], **about: str) -> str:
    """A kubeconfig of one context, whose cluster is k and whose users are u."""
    config = {
        "clusters": [{"name": "k", "cluster": of}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", **about}}],
        "current-context": "c",
    }
    return json.dumps(config)


TLS, PLAIN = {"server": "https://h"}, {"server": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it cannot be read"),
        ("", "it cannot be read"),
        ("{clusters: [{}], contexts: [{}], current-context: c}", "it cannot be read"),
        ("{clusters: [], users: [], contexts: []}", "no context is current. Choose one: --context. There is"),
        (one_context(PLAIN, cluster="x"), "no cluster 'x'. There are: k"),
        (one_context(TLS), "context 'c' names no user"),
        (one_context(TLS, user="v"), "no user 'v'. There are: u"),
        (one_context({**TLS, "certificate-authority-data": "bm8="}, user="u"), "no cluster is configured"),
        (one_context({**PLAIN, "proxy-url": "socks5://h"}, user="u"), "only http and https proxies are"),
    ],
)
def test_a_bad_kubeconfig_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert _exit_code(["status"]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1, error


LOGIN = """
import json, pathlib, sys
count = pathlib.Path(sys.argv[1])
number = len(count.read_text()) if count.exists() else 0
count.write_text("x" * (number + 1))
ends = "2020-01-01T00:00:00Z" if number == 0 else "2099-01-01T00:00:00Z"
status = {"token": f"token-{number}", "expirationTimestamp": ends}
print(json.dumps({"apiVersion": "v1", "kind": "ExecCredential", "status": status}))
"""


def test_a_login_program_is_asked_again_before_its_token_runs_out(
    server: Server, files: Any, tmp_path: Path
) -> None:
    arguments = ["-c", LOGIN, str(tmp_path / "count")]
    files(server, {"exec": {"command": sys.executable, "args": arguments, "apiVersion": "v1"}})
    requests()
    assert server.tokens() == ["Bearer token-1"] * 6


def test_requests_go_through_the_clusters_proxy(server: Server, files: Any) -> None:
    nowhere = Server("http://cluster.invalid")
    files(nowhere, {"token": "me"}, **{"proxy-url": server.address})
    requests()
    assert [path.partition("/api")[0] for path, _ in server.asked] == ["http://cluster.invalid"] * 6


def test_a_person_in_a_pod_is_whom_the_kubeconfig_says_and_an_operator_is_the_pods_account(
    server: Server, files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "_in_cluster", lambda: True)
    files(server, {"token": "me", "as": "jane"})
    assert requests() == "c"
    with pytest.raises(ClusterError, match="no cluster is configured"):
        asyncio.run(Kube.connect())  # the account's own files are not there
    assert server.identities() == [[("Impersonate-User", "jane")]] * 6
