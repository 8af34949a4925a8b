"""Who speaks to a cluster, read from a kubeconfig as kubectl reads it.

The library goes on as somebody else, or as nobody, where it cannot do what the configuration says:
impersonation is left out, and a login program that fails is passed over. Here that is refused: nobody acts
with other rights than kubectl would give them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

from combee.errors import ClusterError

LISTED = 10
SKEW = timedelta(seconds=30)
"""A token is renewed so long before it runs out."""
_LIBRARY = "kubernetes.aio.config.kube_config"
_LEGAL = "!#$&'*+-.^_`|~"
"""besides letters and digits, what a header's name may hold."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom to act as, besides being oneself; all empty: as nobody else."""

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def over(self, other: Identity) -> Identity:
        """What is said here, and where nothing is, what ``other`` says: as flags are to a file."""
        return Identity(
            self.user or other.user,
            self.groups or other.groups,
            self.uid or other.uid,
            self.extra or other.extra,
        )

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers that ask for it; groups and extras repeat theirs. ClusterError without a user."""
        if not self.user:
            if self.groups or self.uid or self.extra:
                raise ClusterError(
                    "groups, uid or extra of an impersonation without its user",
                    where="KUBECONFIG",
                    fix="Name the user, too: --as NAME, or `as` in the kubeconfig",
                )
            return ()
        named = [
            ("Impersonate-User", self.user),
            *([("Impersonate-Uid", self.uid)] if self.uid else []),
            *(("Impersonate-Group", group) for group in self.groups),
            *((f"Impersonate-Extra-{quote(k, safe=_LEGAL)}", v) for k, values in self.extra for v in values),
        ]
        if not all(value.isprintable() for _, value in named):
            raise ClusterError(
                "an impersonation with unprintable characters",
                where="KUBECONFIG",
                fix="Write the name as the cluster knows it",
            )
        return tuple(named)


ONESELF = Identity()
"""Nobody else."""


@dataclass(frozen=True, slots=True)
class Login:
    """What a kubeconfig says besides what the client was given."""

    namespace: str
    identity: Identity


async def login(configuration: Any, files: str, context: str | None) -> Login:
    """Give the client's ``configuration`` what ``files`` (paths as KUBECONFIG lists them) say of ``context``
    (None: the current one). ClusterError for what kubectl would refuse, or what we cannot do as it does."""
    import yaml
    from kubernetes.aio.config import ConfigException
    from kubernetes.aio.config import kube_config as library

    try:
        with _complaints() as complaints:
            merged = library.KubeConfigMerger(files)  # type: ignore[no-untyped-call]
            if merged.config is None:
                raise ClusterError(
                    f"no cluster is configured (no file at {files[:200]})", where="KUBECONFIG", fix=_POINT
                )
            name = context or _current(merged)
            about = _entry(merged.config.value, "contexts", name, "context")
            user = _user(merged.config.value, about, name)
            loader = library.KubeConfigLoader(
                merged.config,
                config_base_path=None,
                active_context=name,
                config_persister=lambda _: merged.save_changes(),  # type: ignore[no-untyped-call]
            )
            await loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
            if complaints:
                raise _refused(complaints[0], f"user {about.get('user')!r} of context {name!r}")
    except (ConfigException, yaml.YAMLError, LookupError, AttributeError, TypeError, ValueError) as error:
        ours = isinstance(error, LookupError | AttributeError | TypeError)
        problem = "it is no kubeconfig" if ours else next(iter(str(error).splitlines()), "")
        raise ClusterError(f"it cannot be read ({problem[:200]})", where="KUBECONFIG", fix=_POINT) from None
    _check_proxy(str(configuration.proxy or ""))
    configuration.refresh_api_key_hook = _renewing(loader)
    return Login(str(about.get("namespace") or "default"), _identity(user))


_POINT = "Point KUBECONFIG at a cluster; `kubectl version` tells whether it answers"


def _refused(complaint: str, where: str) -> ClusterError:
    return ClusterError(
        f"its login program gave no credentials ({complaint.removeprefix('exec: ')[:200]})",
        where=where,
        fix="See what it says: kubectl auth whoami",
    )


def _current(merged: Any) -> str:
    """The current context: of several files the first that names one, as for kubectl."""
    named = [(merged.config_files[path] or {}).get("current-context") for path in merged.paths]
    current = next((str(name) for name in named if name), "")
    if not current:
        known = _known(merged.config.value, "contexts")
        raise ClusterError("no context is current", where="KUBECONFIG", fix=f"Choose one: --context. {known}")
    return current


def _entry(config: Mapping[str, Any], kind: str, name: str, what: str) -> dict[str, Any]:
    """What a configuration says of a context, cluster or user. ClusterError naming those that are there."""
    for one in config[kind]:
        if one.value["name"] == name:
            return dict(one.value[what] or {})
    raise ClusterError(f"no {what} {name[:200]!r}", where="KUBECONFIG", fix=_known(config, kind))


def _known(config: Mapping[str, Any], kind: str) -> str:
    names = sorted(str(one.value["name"])[:200] for one in config[kind])
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"There are: {', '.join(names[:LISTED])}{more}" if names else "There is none"


def _user(config: Mapping[str, Any], about: Mapping[str, Any], context: str) -> dict[str, Any]:
    """What is said of a context's user; empty where it names none, which only a server without TLS takes."""
    cluster = _entry(config, "clusters", str(about.get("cluster", "")), "cluster")
    if not about.get("user"):
        if str(cluster.get("server", "")).startswith("https"):
            raise ClusterError(
                f"context {context!r} names no user",
                where="KUBECONFIG",
                fix="Name one: kubectl config set-context NAME --user=USER",
            )
        return {}
    user = _entry(config, "users", str(about["user"]), "user")
    provider = (user.get("auth-provider") or {}).get("name")
    if provider not in (None, "oidc", "gcp"):
        raise ClusterError(
            f"auth-provider {provider!r} is not known here",
            where=f"user {about['user']!r}",
            fix="Use the login program (exec) of your cloud, as kubectl does since 1.26",
        )
    return user


def _identity(user: Mapping[str, Any]) -> Identity:
    """Whom a kubeconfig's user acts as."""
    extra: Mapping[str, Sequence[str]] = user.get("as-user-extra") or {}
    return Identity(
        user=str(user.get("as") or ""),
        groups=tuple(map(str, user.get("as-groups") or ())),
        uid=str(user.get("as-uid") or ""),
        extra=tuple((str(key), tuple(map(str, values or ()))) for key, values in sorted(extra.items())),
    )


def _check_proxy(address: str) -> None:
    scheme = urlsplit(address).scheme
    if address and scheme not in ("http", "https"):
        raise ClusterError(
            f"a proxy of scheme {scheme or '(none)'!r}, and only http and https proxies are known here",
            where="proxy-url of the cluster",
            fix="Use an http proxy, or forward a port: kubectl proxy",
        )


def _renewing(loader: Any) -> Any:
    """A hook that asks the login program again before its token runs out: to watch a run may take hours."""

    async def renew(configuration: Any) -> None:
        ends = getattr(loader, "exec_plugin_expiry", None)
        if ends is not None and ends - SKEW <= datetime.now(UTC):
            await loader.load_from_exec_plugin()
            configuration.api_key["BearerToken"] = loader.token

    return renew


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """What the library says in its log of a login that failed: it raises nothing, and goes on without."""
    complaints: list[str] = []

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            complaints.append(" ".join(record.getMessage().split()))

    log, heard = logging.getLogger(_LIBRARY), Heard(logging.ERROR)
    before = log.level, log.propagate
    log.addHandler(heard)
    log.setLevel(logging.ERROR)
    log.propagate = False  # it is said once, by us
    try:
        yield complaints
    finally:
        log.removeHandler(heard)
        log.setLevel(before[0])
        log.propagate = before[1]
