"""Hosts are looked at when they are connected to: real servers, and names that lead where a test says."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from answering import Answering, Reply, Request, answering, in_json
from combee.clients.connecting import within_reach
from combee.clients.data.remote import fetched, headers_of
from combee.clients.energy import EnergyMeter, UnreadableError
from combee.clients.model.connection import ConnectionPool
from combee.clients.model.wire import Endpoint
from combee.clients.prometheus import PrometheusApi
from combee.clients.reach import Reach, resolve_now
from combee.clients.store.s3 import s3_options
from combee.clients.store.store import Store
from combee.errors import AddressNotAllowedError, CombeeError
from combee.gateway.upstream import NoAnswerError, Upstreams
from host_lists import REFUSED, TAKEN
from tls_server import TlsServer, make_certificate, serving

METADATA = "169.254.169.254"


@dataclass
class Names:
    """A hosts file: where names lead, and under which whole names; and what was looked up."""

    of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)
    looked_up: list[str] = field(default_factory=list)


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Names:
    """A pod of the namespace mine, and its names."""
    known, real = Names(), socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *arguments: Any, **options: Any) -> list[Any]:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if name not in known.of:
            return real(host, port, *arguments, **options)
        known.looked_up.append(name)
        found = [one for address in known.of[name] for one in real(address, port, *arguments, **options)]
        whole = known.whole.get(name, name)
        return [(*one[:3], whole if at == 0 else "", one[4]) for at, one in enumerate(found)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setenv("COMBEE_REACH_FROM", "mine")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    return known


def models(request: Request) -> Reply:
    if request.path == "/api/v1/query_range":
        return in_json({"status": "success", "data": {"resultType": "matrix", "result": []}})
    if request.path == "/metrics":
        return 200, {}, b'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{UUID="GPU-1"} 3500000\n'
    return in_json({"object": "list", "data": [{"id": "m", "object": "model"}]})


@pytest.fixture
def server() -> Iterator[Answering]:
    with answering(models) as made:
        yield made


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def https(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[TlsServer]:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[1]))
    with serving(certificate) as made:
        yield made


async def ask_models(url: str, *, balanced: bool) -> None:
    pool = ConnectionPool()
    try:
        await pool.to(Endpoint(url, "m", balanced=balanced)).models()
    finally:
        await pool.aclose()


async def ask_prometheus(url: str) -> None:
    api = PrometheusApi.open(url, "", "spec.canary.prometheus.url")
    try:
        await api.query_range("up", 0, 10, 10)
    finally:
        await api.aclose()


async def ask_upstream(url: str) -> None:
    async with Upstreams() as upstreams:
        answer = await upstreams.ask("GET", f"{url}/models", [], "", b"")
        async with answer:
            await answer.read()


ASKING = {
    "a model": lambda url: ask_models(url, balanced=False),
    "the servers of a model": lambda url: ask_models(url, balanced=True),
    "Prometheus": ask_prometheus,
    "GPUs' energy": lambda url: EnergyMeter(f"{url}/metrics").read(),
    "an upstream": ask_upstream,
}
KINDS: dict[str, type[Exception]] = {"GPUs' energy": UnreadableError, "an upstream": NoAnswerError}
"""errors of what cannot be had, where it ends nothing; elsewhere it is AddressNotAllowedError itself."""


@pytest.mark.parametrize("who", ASKING)
@pytest.mark.parametrize("named", [True, False])
async def test_nobody_is_asked_at_an_address_that_is_not_allowed(
    who: str, named: bool, hosts: Names, server: Answering
) -> None:
    host = "llm.example.com" if named else "127.0.0.1"
    hosts.of = {"llm.example.com": ("127.0.0.1",)}
    with pytest.raises(KINDS.get(who, AddressNotAllowedError)) as error:
        await ASKING[who](f"http://{host}:{server.port}")
    leads = "it leads to 127.0.0.1, the" if named else "it is the"
    assert f"{host}: {leads} node, a metadata service or the API server. Ask" in str(error.value)
    assert f"to allow the host {host}: the value allowedHosts" in str(error.value)
    assert server.asked == []


@pytest.mark.parametrize("who", ASKING)
async def test_what_is_connected_to_is_what_was_looked_at(
    who: str, hosts: Names, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMBEE_ALLOWED_HOSTS", "prometheus.monitoring.svc,llm.example.com")
    hosts.of = {"llm.example.com": ("127.0.0.1",)}
    await ASKING[who](f"http://llm.example.com:{server.port}")
    assert len(server.asked) == 1
    assert hosts.looked_up == ["llm.example.com"]
    assert server.asked[0].headers["Host"] == f"llm.example.com:{server.port}"


@pytest.mark.parametrize("who", ASKING)
async def test_outside_a_pod_nothing_is_looked_at(
    who: str, hosts: Names, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COMBEE_REACH_FROM")
    await ASKING[who](server.url)
    assert len(server.asked) == 1


@pytest.mark.parametrize("who", ASKING)
async def test_one_address_of_several_is_enough_to_refuse_a_name(
    who: str, hosts: Names, server: Answering
) -> None:
    hosts.of = {"llm.example.com": ("10.0.0.7", METADATA)}
    with pytest.raises(KINDS.get(who, AddressNotAllowedError), match=METADATA):
        await ASKING[who](f"http://llm.example.com:{server.port}")


async def test_the_next_address_is_asked_where_one_takes_no_connection(
    hosts: Names, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMBEE_ALLOWED_HOSTS", "llm.example.com")
    hosts.of = {"llm.example.com": ("127.0.0.2", "127.0.0.1")}
    with within_reach(httpx2.HTTPTransport()) as transport, httpx2.Client(transport=transport) as client:
        assert client.get(f"http://llm.example.com:{server.port}/v1/models").status_code == 200
    await ask_models(f"http://llm.example.com:{server.port}", balanced=False)
    assert len(server.asked) == 2


def test_a_pool_of_another_form_is_no_way_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMBEE_REACH_FROM", "mine")
    transport = httpx2.HTTPTransport()
    monkeypatch.setattr(transport, "_pool", object())
    with pytest.raises(CombeeError, match="connections cannot be looked at"):
        within_reach(transport)


def where(request: Request, port: int) -> Reply:
    """Redirect to the path, as a host."""
    return 302, {"Location": f"https://{request.path[1:]}:{port}/rows.jsonl"}, b""


def test_data_and_its_redirects_are_looked_at(
    hosts: Names, https: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMBEE_ALLOWED_HOSTS", "localhost")
    hosts.of = {"localhost": ("127.0.0.1",), "data.example.com": (METADATA,)}
    https.answer = lambda request: (
        (200, {}, b"{}\n") if request.path == "/rows.jsonl" else where(request, https.port)
    )
    with fetched(f"{https.url}/localhost") as file:
        assert file.read() == b"{}\n"
    assert headers_of(f"{https.url}/rows.jsonl")["content-length"] == "3"
    about = "data.example.com: it leads to 169.254.169.254, the node, a metadata service or the API server"
    with pytest.raises(AddressNotAllowedError, match=about), fetched(f"{https.url}/data.example.com"):
        pass
    with (
        pytest.raises(AddressNotAllowedError, match=r"127\.0\.0\.1: it is the node"),
        fetched(f"{https.url}/127.0.0.1"),
    ):
        pass
    monkeypatch.delenv("COMBEE_ALLOWED_HOSTS")
    seen = len(https.asked)
    with pytest.raises(AddressNotAllowedError, match="localhost: it leads to 127"), fetched(https.url):
        pass
    with pytest.raises(AddressNotAllowedError, match="localhost: it leads to 127"):
        headers_of(https.url)
    assert len(https.asked) == seen


KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}


def test_an_s3_endpoint_is_looked_at(hosts: Names, server: Answering) -> None:
    hosts.of = {"s3.example.com": ("127.0.0.1",)}
    hosts.whole = {"minio.stores": "minio.stores.svc.cluster.local"}
    for host in ("s3.example.com", "127.0.0.1"):
        with pytest.raises(AddressNotAllowedError, match=f"{host}: it .*127.*allowedHosts|{host}: it is the"):
            s3_options({**KEYS, "AWS_ENDPOINT_URL": f"http://{host}:{server.port}"})
    hosts.of |= {"minio.stores": ("10.0.0.7",)}
    assert s3_options({**KEYS, "AWS_ENDPOINT_URL": "http://minio.stores:9000"})["endpoint_url"]
    assert server.asked == []


def test_an_s3_endpoint_that_leads_elsewhere_later_gets_no_connection(
    hosts: Names, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.of = {"s3.example.com": ("10.0.0.7",)}
    options = s3_options({**KEYS, "AWS_ENDPOINT_URL": f"http://s3.example.com:{server.port}"})
    options["config_kwargs"]["retries"] = {"mode": "standard", "max_attempts": 1}
    hosts.of = {"s3.example.com": ("127.0.0.1",)}
    store = Store.open("s3://bucket/runs", options=options)
    try:
        with pytest.raises(CombeeError):
            store.get("a")
        assert server.asked == []
        monkeypatch.setenv("COMBEE_ALLOWED_HOSTS", "127.0.0.1")
        store.get("a")
        assert server.asked != []
    finally:
        store.close()


KNOWN = {"localhost": "127.0.0.1", "loopback": "127.0.0.1", "metadata": METADATA}
"""where names with these words lead, wherever somebody asks."""
NO_HOST = ("http://169%2e254.169.254/", "http://evil\\x/y/", "http://１６９.254.169.254/")
"""are none to a resolver."""


@pytest.mark.parametrize("address", [address for address in REFUSED if address not in NO_HOST])
def test_what_admission_refuses_is_refused_when_it_is_asked(hosts: Names, address: str) -> None:
    host = (urlsplit(address).hostname or "").rstrip(".")
    if host[-1].isalpha() and not host.startswith(("0x", "fe80")):
        hosts.of = {host: (next((KNOWN[word] for word in KNOWN if word in host), "10.0.0.7"),)}
    with pytest.raises(AddressNotAllowedError):
        resolve_now(host, 80)


@pytest.mark.parametrize("address", [address for address in TAKEN if address.startswith("http")])
def test_what_admission_takes_may_be_asked(hosts: Names, address: str) -> None:
    host = urlsplit(address).hostname or ""
    hosts.of = {host: ("10.0.0.7", "2001:db8::7", "fd00::7")}
    assert resolve_now(host, 80) == ["10.0.0.7", "2001:db8::7", "fd00::7"]


@pytest.mark.parametrize(
    ("host", "whole"),
    [
        ("prometheus.monitoring", "prometheus.monitoring.svc.cluster.local"),
        ("www.example.com", "prometheus.monitoring.svc.cluster.local"),
        ("kubernetes.default", "kubernetes.default.svc.corp.internal"),
        ("10-0-0-1.mine.pod", "10-0-0-1.mine.pod.cluster.local"),
    ],
)
def test_a_name_is_looked_at_as_it_was_found(hosts: Names, host: str, whole: str) -> None:
    hosts.of, hosts.whole = {host: ("10.96.7.7",)}, {host: whole}
    with pytest.raises(AddressNotAllowedError, match=f"{host}: it leads to {whole}, a name of the API"):
        resolve_now(host, 80)


def test_a_service_of_the_own_namespace_may_be_asked(hosts: Names) -> None:
    hosts.of, hosts.whole = {"llm": ("10.96.7.7",)}, {"llm": "llm.mine.svc.cluster.local"}
    assert resolve_now("llm", 8000) == ["10.96.7.7"]


@pytest.mark.parametrize(
    "address",
    ["10.96.0.1", METADATA, "127.8.8.8", "0.0.0.0", "::", "::1", "fe80::1", "::ffff:127.0.0.1",
     "::ffff:10.96.0.1", "64:ff9b::a9fe:a9fe", "::169.254.169.254", "fd00:ec2::254", "100.100.100.200"],
)  # fmt: skip
def test_a_public_name_may_not_lead_there(address: str) -> None:
    limits = Reach("mine", (), "10.96.0.1")
    with pytest.raises(AddressNotAllowedError, match=f"llm.example.com: it leads to {address}"):
        limits.check("llm.example.com", [address], "llm.example.com")


@pytest.mark.parametrize("host", ["llm.example.com", "LLM.example.com.", "fd00::7"])
def test_a_host_that_the_chart_allows_may_lead_anywhere(host: str) -> None:
    Reach("mine", ("llm.example.com", "[fd00::7]"), "").check(host, [METADATA], "a.b.svc")
