"""Hosts are looked at when they are connected to: real servers, and names that lead where a test says."""

from __future__ import annotations

import contextlib
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
from combee.clients.reach import Reach, check_by_name, resolve_now
from combee.clients.store.s3 import s3_options
from combee.clients.store.store import Store
from combee.errors import AddressNotAllowedError, CombeeError, UserError
from combee.gateway.upstream import NoAnswerError, Upstreams
from host_lists import REFUSED, TAKEN
from tls_server import TlsServer, make_certificate, serving

METADATA = "169.254.169.254"
KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
NO_HOST = ("http://169%2e254.169.254/", "http://evil\\x/y/", "http://１６９.254.169.254/")
"""are none to a resolver."""


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
        if name not in known.of or options.get("flags") == socket.AI_NUMERICHOST:
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


def proxied(monkeypatch: pytest.MonkeyPatch, proxy: Answering) -> None:
    """All hosts are asked by a proxy, which the chart allows."""
    monkeypatch.setenv("COMBEE_ALLOWED_HOSTS", "127.0.0.1")
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv(name.upper(), proxy.url)
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")


BY_PROXY = {who: asks for who, asks in ASKING.items() if who in ("a model", "Prometheus")}
"""Who asks by a proxy. The others look up names themselves, and are not let in by one."""


@pytest.mark.parametrize("who", BY_PROXY)
@pytest.mark.parametrize(
    "host", [METADATA, "prometheus.monitoring.svc", "metadata.google.internal", "10.96.0.1"]
)
async def test_no_proxy_is_asked_for_a_host_that_is_refused_by_name(
    who: str, host: str, hosts: Names, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxied(monkeypatch, server)
    with pytest.raises(AddressNotAllowedError, match=f"{host}: it .* allow the host {host}"):
        await ASKING[who](f"http://{host}")
    assert server.asked == []
    monkeypatch.setenv("COMBEE_ALLOWED_HOSTS", f"127.0.0.1,{host}")
    await ASKING[who](f"http://{host}")
    assert server.asked[0].headers["Host"] == host


@pytest.mark.parametrize("who", BY_PROXY)
async def test_a_proxy_is_looked_at_as_any_host_is(
    who: str, hosts: Names, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor of runs chooses it, in a template."""
    proxied(monkeypatch, server)
    monkeypatch.delenv("COMBEE_ALLOWED_HOSTS")
    with pytest.raises(AddressNotAllowedError, match=r"127\.0\.0\.1: it is the node"):
        await ASKING[who]("http://llm.example.com")
    assert server.asked == []


async def test_a_proxy_of_an_exporter_of_energy_is_looked_at(
    hosts: Names, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxied(monkeypatch, server)
    monkeypatch.delenv("COMBEE_ALLOWED_HOSTS")
    hosts.of = {"dcgm.example.com": ("10.0.0.7",)}
    with pytest.raises(UnreadableError, match=r"127\.0\.0\.1: it is the node"):
        await ASKING["GPUs' energy"]("http://dcgm.example.com")
    assert server.asked == []


@pytest.mark.parametrize("who", BY_PROXY)
async def test_a_proxy_resolves_the_names_that_it_is_asked_for(
    who: str, hosts: Names, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxied(monkeypatch, server)
    hosts.of = {"llm.example.com": (METADATA,)}
    await ASKING[who]("http://llm.example.com")
    assert (len(server.asked), hosts.looked_up) == (1, [])


def test_no_proxy_is_asked_for_data_at_an_address_that_is_refused(
    hosts: Names, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxied(monkeypatch, server)
    for read in (headers_of, lambda uri: fetched(uri).__enter__()):
        with pytest.raises(AddressNotAllowedError, match=f"{METADATA}: it is the node"):
            read(f"https://{METADATA}/rows.jsonl")
    monkeypatch.delenv("COMBEE_ALLOWED_HOSTS")
    with pytest.raises(AddressNotAllowedError, match=r"127\.0\.0\.1: it is the node"):
        headers_of("https://data.example.com/rows.jsonl")
    assert server.asked == []


def test_no_proxy_is_asked_for_an_s3_endpoint_at_an_address_that_is_refused(
    hosts: Names, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name of a service passes, as it does without a proxy."""
    proxied(monkeypatch, server)
    for host in (METADATA, "metadata"):
        with pytest.raises(AddressNotAllowedError, match=f"{host}: it is the node"):
            s3_options({**KEYS, "AWS_ENDPOINT_URL": f"http://{host}:9000"})
    options = s3_options({**KEYS, "AWS_ENDPOINT_URL": "http://minio.stores.svc:9000"})
    options["config_kwargs"]["retries"] = {"mode": "standard", "max_attempts": 1}
    store = Store.open("s3://bucket/runs", options=options)
    try:
        assert server.asked == []
        with contextlib.suppress(CombeeError):
            store.get("a")
        assert server.asked[0].headers["Host"] == "minio.stores.svc:9000"
    finally:
        store.close()


def test_a_proxy_to_an_s3_endpoint_that_the_chart_allows_is_looked_at(
    hosts: Names, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMBEE_ALLOWED_HOSTS", "minio.stores.svc")
    asked = {**KEYS, "AWS_ENDPOINT_URL": "http://minio.stores.svc:9000"}
    assert "connector_args" not in s3_options(asked)["config_kwargs"]
    monkeypatch.setenv("http_proxy", server.url)
    with pytest.raises(AddressNotAllowedError, match=r"127\.0\.0\.1: it is the node"):
        s3_options(asked)


@pytest.mark.parametrize("settings", [{"no_proxy": "a.example.com"}, {"https_proxy": "http://10.0.0.7:3128"}])
def test_an_s3_endpoint_that_the_chart_allows_may_lead_anywhere_beside_proxies_of_others(
    settings: dict[str, str], hosts: Names, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.of = {"minio.stores.svc": ("127.0.0.1",)}
    monkeypatch.setenv("COMBEE_ALLOWED_HOSTS", "minio.stores.svc")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    url = f"http://minio.stores.svc:{server.port}"
    store = Store.open("s3://bucket/runs", options=s3_options({**KEYS, "AWS_ENDPOINT_URL": url}))
    try:
        store.get("a")
        assert server.asked[0].headers["Host"] == f"minio.stores.svc:{server.port}"
    finally:
        store.close()


AT_AWS: list[dict[str, str]] = [{}, KEYS, {**KEYS, "AWS_ENDPOINT_URL": "https://s3.example.com"}]


@pytest.mark.parametrize("secret", AT_AWS)
@pytest.mark.parametrize(
    ("proxy", "host"),
    [
        (f"http://{METADATA}", METADATA),
        ("127.0.0.1:3128", "127.0.0.1"),
        ("http://me:pw@x.other.svc:8080", "x.other.svc"),
        ("//x.other:8080", "x.other"),
        ("http://proxy.example.com", "proxy.example.com"),
    ],
)
def test_a_proxy_to_s3_is_looked_at_by_name_and_address(
    secret: dict[str, str], proxy: str, host: str, hosts: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.of = {"x.other": ("10.96.7.7",), "proxy.example.com": (METADATA,), "s3.example.com": ("10.0.0.7",)}
    hosts.whole = {"x.other": "x.other.svc.cluster.local"}
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(AddressNotAllowedError, match=f"{host}: it .* allow the host {host}"):
        s3_options(secret)
    monkeypatch.setenv("COMBEE_ALLOWED_HOSTS", host)
    assert "connector_args" not in s3_options(secret)["config_kwargs"]


def test_a_store_without_a_secret_looks_at_its_proxy(hosts: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", f"http://{METADATA}")
    with pytest.raises(AddressNotAllowedError, match=METADATA):
        Store.open("s3://bucket/runs")


@pytest.mark.parametrize("secret", AT_AWS)
def test_s3_is_connected_to_only_at_addresses_that_were_looked_at(
    secret: dict[str, str], hosts: Names
) -> None:
    factory = s3_options(secret)["config_kwargs"]["connector_args"]["socket_factory"]
    with pytest.raises(PermissionError, match="the node"):
        factory((socket.AF_INET, socket.SOCK_STREAM, 0, "", (METADATA, 443)))


def test_a_proxy_that_an_s3_endpoint_is_not_asked_by_is_not_looked_at(
    hosts: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.of = {"minio.stores.svc": ("10.0.0.7",)}
    monkeypatch.setenv("http_proxy", "http://x.other.svc:8080")
    monkeypatch.setenv("no_proxy", ".svc")
    assert s3_options({**KEYS, "AWS_ENDPOINT_URL": "http://minio.stores.svc:9000"})["endpoint_url"]
    with pytest.raises(AddressNotAllowedError, match=r"x\.other\.svc"):
        s3_options({**KEYS, "AWS_ENDPOINT_URL": "http://s3.example.com"})


@pytest.mark.parametrize("secret", [{}, KEYS])
@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_an_s3_endpoint_of_the_environment_is_looked_at_as_a_secrets_is(
    name: str, secret: dict[str, str], hosts: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://metadata:9000")
    monkeypatch.setenv(name, "http://metadata.google.internal:9000")
    hosts.of = {"metadata.google.internal": ("10.0.0.7",), "metadata": ("10.0.0.7",)}
    with pytest.raises(AddressNotAllowedError, match=r"metadata\.google\.internal: it is the node"):
        s3_options(secret)
    monkeypatch.setenv(name, "http://minio.stores.svc:9000")
    hosts.of = {"minio.stores.svc": ("10.0.0.7",)}
    assert "endpoint_url" not in s3_options(secret), "the client itself reads it"
    if secret:
        assert s3_options({**secret, "AWS_ENDPOINT_URL": "http://minio.stores.svc:9000"})["endpoint_url"]
    monkeypatch.setenv(name, "minio:9000")
    with pytest.raises(UserError, match=f"{name} is not an http"):
        s3_options(secret)


@pytest.mark.parametrize("proxy", ["foo bar", "http://[foo", "http://foo:bar", "foo:99999", "http://:3128"])
def test_a_proxy_to_s3_that_is_no_address_is_named_and_not_quoted(
    proxy: str, hosts: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(UserError, match="HTTPS_PROXY is not the address of a proxy") as refused:
        s3_options()
    assert "foo" not in str(refused.value)


@pytest.mark.parametrize("host", ["a b.example.com", "llm。other。svc", "fe80::1%no-zone", "::1%25eth0"])
def test_what_a_proxy_may_read_in_another_way_is_refused(host: str, hosts: Names) -> None:
    with pytest.raises(AddressNotAllowedError):
        check_by_name(host)


def test_a_zone_is_no_part_of_an_address(hosts: Names) -> None:
    check_by_name("fd00::7%eth0")


@pytest.mark.parametrize("address", REFUSED)
def test_what_admission_refuses_is_refused_by_its_name(hosts: Names, address: str) -> None:
    with pytest.raises(AddressNotAllowedError):
        check_by_name(urlsplit(address).hostname or "")


@pytest.mark.parametrize("address", [address for address in TAKEN if address.startswith("http")])
def test_what_admission_takes_is_taken_by_its_name(hosts: Names, address: str) -> None:
    check_by_name(urlsplit(address).hostname or "")
    assert hosts.looked_up == []


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
