"""Which hosts the clients of a pod may ask. They are resolved here, and what they resolve to is looked at.

Admission reads what manifests say; a name can lead anywhere by the time it is asked. So where the operator
tells a pod its namespace, names and addresses are looked at just before a connection is made to one of them,
by admission's rule: not the node, a metadata service, the API server, or a service of another namespace,
unless the chart's allowedHosts has the host. Private addresses pass: a cluster's own model servers have them.
A laptop reaches what it likes. A proxy is looked at as any host is. It resolves names itself, so a host is
looked at by its name before it is asked for it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from combee.errors import AddressNotAllowedError, UserError
from combee.settings import ReachSettings, read_settings

_METADATA = frozenset(
    map(ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"))
)
"""Of clouds, besides those that are link-local."""
_NODE = ip_network("0.0.0.0/8")
_NODE_NAMES = frozenset(
    (
        "localhost",
        "metadata",
        "metadata.google.internal",
        "metadata.goog",
        "instance-data",
        "instance-data.ec2.internal",
    )
)
"""of a node and of metadata services, as admission has them, besides a.localhost and ip6-localhost."""
_NO_NAME = frozenset("%\\。")
"""No name has them. A proxy may take them for what they stand for: a byte, the end of the host, a dot."""
_EMBEDDING = tuple(map(ip_network, ("::/96", "::ffff:0:0/96", "64:ff9b::/96")))
"""IPv6 addresses whose last 32 bits are an IPv4 address that they lead to."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What a pod may ask. A host is one name or address, without a port."""

    namespace: str
    allowed_hosts: tuple[str, ...]
    api_server: str
    """the API server's address."""

    def allows(self, host: str) -> bool:
        """Return whether the chart allows a host by name."""
        host = host.lower().rstrip(".")
        return (f"[{host}]" if ":" in host else host) in self.allowed_hosts

    def check(self, host: str, addresses: list[str], name: str = "") -> None:
        """Raise AddressNotAllowedError unless ``host`` may be asked at all of ``addresses``. ``name``: the
        whole name that it was found under."""
        if self.allows(host):
            return
        if name and (is_internal(host, self.namespace) or is_internal(name, self.namespace)):
            raise _not_allowed(
                host, name, "a name of the API server, a pod or a service of another namespace"
            )
        for address in addresses:
            if str(_plain(address)) == self.api_server or leads_inside(address):
                raise _not_allowed(host, address, "the node, a metadata service or the API server")


def reach() -> Reach | None:
    """Return what this process may ask; None where nobody limits it."""
    limits = read_settings(ReachSettings, "combee")
    return Reach(limits.namespace, limits.allowed_hosts, limits.api_server) if limits.namespace else None


def is_internal(name: str, namespace: str) -> bool:
    """Return whether a name is the API server's, a pod's, or that of a service of another namespace.

    >>> is_internal("llm.mine.svc", "mine"), is_internal("llm.other.svc.cluster.local", "mine")
    (False, True)
    """
    labels = name.lower().rstrip(".").split(".")
    whole = f".{'.'.join(labels)}."
    if whole == ".kubernetes." or whole.endswith(".kubernetes.default."):
        return True
    if "pod" in labels[1:] or ".kubernetes.default.svc." in whole:
        return True
    services = [at for at, label in enumerate(labels) if at and label == "svc"]
    own = len(services) == 1 and services[0] > 1 and labels[services[0] - 1] == namespace
    return bool(services) and not own


def leads_inside(address: str) -> bool:
    """Return whether an address is the node's own, link-local, or a metadata service's.

    >>> leads_inside("::ffff:169.254.169.254"), leads_inside("10.0.0.7"), leads_inside("2001:db8::1")
    (True, False, False)
    """
    ip = _plain(address)
    return ip.is_loopback or ip.is_link_local or ip in _METADATA or ip in _NODE


def _plain(address: str) -> IPv4Address | IPv6Address:
    """Return an address, or the IPv4 address that it leads to."""
    ip = ip_address(address)
    embeds = isinstance(ip, IPv6Address) and any(ip in network for network in _EMBEDDING)
    return IPv4Address(int(ip) & 0xFFFFFFFF) if embeds else ip


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a name, in the order to try them. Raises OSError when there is none, and
    AddressNotAllowedError when it may not be asked."""
    loop = asyncio.get_running_loop()
    return _addresses(
        host, await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
    )


def resolve_now(host: str, port: int) -> list[str]:
    """Do as ``resolve``, on a thread that may wait."""
    return _addresses(
        host, socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
    )


def check_by_name(host: str, *, services: bool = False) -> None:
    """Raise AddressNotAllowedError unless a proxy may be asked for ``host``; it alone finds out where a name
    leads. ``services``: whether names of the API server, pods and other namespaces' services pass."""
    limits, host = reach(), unicodedata.normalize("NFKC", host).lower().rstrip(".")
    if limits is None or limits.allows(host):
        return
    if ":" in host:
        host = host.partition("%")[0]  # of an IPv6 address its zone
    if any(letter in _NO_NAME or letter.isspace() for letter in host):
        raise _not_allowed(host, host, "a name that each program reads in its own way")
    addresses: list[str] = []
    with suppress(OSError, UnicodeError):
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        addresses = [str(one[4][0]) for one in answers]
    limits.check(host, addresses, "" if services else host)
    if host in _NODE_NAMES or host.endswith(".localhost") or host.startswith("ip6-"):
        raise _not_allowed(host, host, "the node or a metadata service")


def checked_sockets(url: str = "") -> dict[str, Any]:
    """Return aiohttp's options for an S3 client that connects to no address which may not be asked, wherever
    it is redirected, unless the chart allows by name what it connects to: the proxy, or else the endpoint.
    Raises AddressNotAllowedError. ``url``: the endpoint; without one it is AWS.

    A proxy is looked at as any host is. Of an endpoint's names only the node's and metadata services' are
    refused: it stands in a Secret or in the environment, neither of which an editor of runs can write, and
    often a store is a service of another namespace. Raises UserError for a proxy that is no address.
    """
    if (limits := reach()) is None:
        return {}
    parts, proxy = urlsplit(url), _s3_proxy(url)
    host = parts.hostname or ""
    if proxy:
        check_by_name(proxy)
        with suppress(OSError):
            resolve_now(proxy, 0)
    if host:
        check_by_name(host, services=True)
        with suppress(OSError):
            answers = socket.getaddrinfo(host, parts.port or parts.scheme, type=socket.SOCK_STREAM)
            limits.check(host, [str(one[4][0]) for one in answers])
    return {} if limits.allows(proxy or host) else {"socket_factory": _checked_socket}


def _s3_proxy(url: str) -> str:
    """Return the host of the proxy that botocore asks for ``url``, "" where it asks none. AWS has many hosts,
    so for them it is a proxy whatever NO_PROXY says."""
    parts = urlsplit(url or "https:")
    proxy = "" if url and proxy_bypass(parts.netloc) else getproxies().get(parts.scheme, "")
    if not proxy:
        return ""
    try:
        address = urlsplit(proxy if proxy.startswith(("http:", "https:", "//")) else f"//{proxy}")
        host = address.hostname if address.port != 0 else None
    except ValueError:
        host = None
    if not host or any(letter.isspace() for letter in host):
        # Its value may hold a password, and is not repeated.
        raise UserError(
            f"{parts.scheme.upper()}_PROXY is not the address of a proxy",
            where="the environment",
            fix="Write it like http://proxy.example.com:3128",
        )
    return host


def _checked_socket(place: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, (address, *_) = place
    if (limits := reach()) is not None:
        try:
            limits.check(address, [address])
        except AddressNotAllowedError as error:
            # What connects tries the next address after an OSError, and after no other error.
            raise PermissionError(errno.EACCES, str(error)) from None
    return socket.socket(family, kind, protocol)


def _addresses(host: str, answers: list[tuple[Any, ...]]) -> list[str]:
    addresses = list(dict.fromkeys(str(one[4][0]) for one in answers))
    if (limits := reach()) is not None:
        limits.check(host, addresses, next((one[3] for one in answers if one[3]), host))
    return addresses


def _not_allowed(host: str, where: str, what: str) -> AddressNotAllowedError:
    leads = "it is" if host == where else f"it leads to {where},"
    return AddressNotAllowedError(
        f"{leads} {what}",
        where=host,
        fix=f"Ask whoever installed the chart to allow the host {host}: the value allowedHosts",
    )
