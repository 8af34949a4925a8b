"""The Kubernetes API: plain dicts in and out, one deadline on every request, errors of ours.

Nothing is cached here and nothing is tried again: a tick that failed is a tick that comes again.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlencode

from combee import names
from combee.clients.kubernetes.kubeconfig import ONESELF, Identity, Login, login
from combee.errors import BugError, ClusterError
from combee.names import API_VERSION, PLAYBOOK_KIND, PLAYBOOK_VERSION_KIND, RUN_KIND
from combee.settings import kubeconfig

Object = dict[str, Any]
Page = Sequence[Object]
_JSON = "application/json"
_BARE = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PAGE = 500
"""Objects asked for at once; a longer list comes in pages."""

_CORE, _BATCH, _APPS = "/api/v1", "/apis/batch/v1", "/apis/apps/v1"
_OURS = f"/apis/{API_VERSION}"
PLACES: Mapping[str, tuple[str, str]] = {
    "Job": (_BATCH, "jobs"),
    "Pod": (_CORE, "pods"),
    "Node": (_CORE, "nodes"),
    "ConfigMap": (_CORE, "configmaps"),
    "Service": (_CORE, "services"),
    "Event": (_CORE, "events"),
    "Deployment": (_APPS, "deployments"),
    "PersistentVolumeClaim": (_CORE, "persistentvolumeclaims"),
    "ServiceAccount": (_CORE, "serviceaccounts"),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies"),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases"),
    "LLMInferenceService": ("/apis/serving.kserve.io/v1alpha2", "llminferenceservices"),
    "InferencePool": ("/apis/inference.networking.k8s.io/v1", "inferencepools"),
    "HTTPRoute": ("/apis/gateway.networking.k8s.io/v1", "httproutes"),
    "Gateway": ("/apis/gateway.networking.k8s.io/v1", "gateways"),
    "Workload": (f"/apis/{names.KUEUE}", "workloads"),
    "ResourceFlavor": (f"/apis/{names.KUEUE}", "resourceflavors"),
    "WorkloadPriorityClass": (f"/apis/{names.KUEUE}", "workloadpriorityclasses"),
    "SandboxTemplate": (f"/apis/{names.SANDBOXES}", "sandboxtemplates"),
    "SandboxWarmPool": (f"/apis/{names.SANDBOXES}", "sandboxwarmpools"),
    "SandboxClaim": (f"/apis/{names.SANDBOXES}", "sandboxclaims"),
    RUN_KIND: (_OURS, "promptlearningruns"),
    PLAYBOOK_KIND: (_OURS, "playbooks"),
    PLAYBOOK_VERSION_KIND: (_OURS, "playbookversions"),
}
"""kind -> (API, plural) of everything we speak about."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: its status and its body, parsed where it is JSON."""

    status: int
    body: Any


class Kube:
    """A connection to one cluster. Made by ``Kube.connect``; closed with ``aclose``."""

    def __init__(
        self,
        client: Any,
        *,
        namespace: str,
        deadline_seconds: float,
        identity: Identity = ONESELF,
        program: str = names.PROGRAM,
    ) -> None:
        self._client = client
        self.namespace = namespace
        """the namespace that the configuration names."""
        self.identity = identity
        """whom every request acts as, besides whoever makes it."""
        # The API server notes beside each field which program wrote it: the first word of this.
        self._headers = (*identity.headers(), ("User-Agent", program))
        self._deadline_seconds = deadline_seconds
        self._fence: Callable[[], None] = lambda: None

    def fenced(self, fence: Callable[[], None]) -> Kube:
        """The same connection; every write asks ``fence`` first. That raises where none may be made."""
        fenced = copy.copy(self)
        fenced._fence = fence
        return fenced

    @classmethod
    async def connect(
        cls,
        *,
        context: str | None = None,
        identity: Identity = ONESELF,
        as_a_person: bool = False,
        deadline_seconds: float = 10.0,
    ) -> Kube:
        """By the pod's own account inside a cluster, else by KUBECONFIG; ``as_a_person``: as kubectl chooses,
        by KUBECONFIG where there is one. ``identity`` goes before the one that the configuration names.
        ClusterError when there is no way to a cluster, or none that is as kubectl's."""
        from kubernetes.aio import client, config  # it takes a second to import

        configuration = client.Configuration()
        configuration.retries = False
        files = kubeconfig()
        by_file = context is not None or not _in_cluster() or (as_a_person and _any_file(files))
        try:
            if by_file:
                chosen = await login(configuration, files, context)
            else:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
                chosen = Login(_own_namespace(), ONESELF)
            return cls(
                client.ApiClient(configuration),
                namespace=chosen.namespace,
                deadline_seconds=deadline_seconds,
                identity=identity.over(chosen.identity),
                program="kubectl-combee" if as_a_person else names.PROGRAM,
            )
        except (config.ConfigException, OSError) as error:
            raise ClusterError(
                f"no cluster is configured ({str(error).splitlines()[0][:200]})",
                where="KUBECONFIG",
                fix="Point KUBECONFIG at a cluster; `kubectl version` tells whether it answers",
            ) from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """The object, or None when there is none."""
        answer = await self.request("GET", place(kind, namespace, name), quiet=(404,))
        return None if answer.status == 404 else answer.body

    async def list(
        self,
        kind: str,
        namespace: str,
        *,
        labels: str = "",
        fields: str = "",
        bare: bool = False,
        cached: bool = False,
    ) -> list[Object]:
        """All objects that a label and a field selector match; ``namespace`` "" is all namespaces. ``bare``:
        only their metadata, whatever else they hold. ``cached``: as the API server last heard of them, which
        is cheap and may be a little late."""
        # The few that a label picks are asked for at once: the API server answers that from its cache, while
        # it may read and decode everything there is in the namespace for a page of them.
        query = {"labelSelector": labels} if labels else {"limit": str(PAGE)}
        query |= {"fieldSelector": fields} if fields else {}
        query |= {"resourceVersion": "0"} if cached else {}
        return [one async for page in self._pages(place(kind, namespace), query, bare=bare) for one in page]

    def pages(self, kind: str, namespace: str) -> AsyncIterator[Page]:
        """The same page by page, for whoever keeps little of many objects."""
        return self._pages(place(kind, namespace), {"limit": str(PAGE)})

    async def _pages(self, path: str, query: Mapping[str, str], *, bare: bool = False) -> AsyncIterator[Page]:
        more = ""
        while True:
            pointer = {"continue": more} if more else {}
            answer = await self.request(
                "GET", path, query={**query, **pointer}, accept=_BARE if bare else _JSON
            )
            yield answer.body.get("items") or []
            more = answer.body.get("metadata", {}).get("continue", "")
            if not more:
                return

    async def create(self, body: Mapping[str, Any]) -> Object | None:
        """The object made, or None when one of its name is there already (409)."""
        self._fence()
        meta = body["metadata"]
        answer = await self.request(
            "POST", place(body["kind"], meta.get("namespace", "")), body=body, quiet=(409,)
        )
        if answer.status == 409 and _reason(answer.body) != "AlreadyExists":
            raise _refused(answer, f"{body['kind']} {meta.get('name', '')}")
        return None if answer.status == 409 else answer.body

    async def patch(
        self,
        kind: str,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        part: Literal["", "status", "scale"] = "",
    ) -> Object | None:
        """The object after a merge patch; None when there is none. A ``resourceVersion`` in the patch
        that is not the object's any more raises ClusterError with status 409."""
        self._fence()
        path = place(kind, namespace, name) + (f"/{part}" if part else "")
        answer = await self.request(
            "PATCH", path, body=body, quiet=(404,), content="application/merge-patch+json"
        )
        return None if answer.status == 404 else answer.body

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "", version: str = "") -> bool:
        """Delete the object (only that of ``uid``, and only as it was at ``version``, if given) and what it
        owns; False: there was none."""
        self._fence()
        wanted = {"uid": uid, "resourceVersion": version}
        body: Object = {"propagationPolicy": "Background"}
        if preconditions := {name: value for name, value in wanted.items() if value}:
            body["preconditions"] = preconditions
        answer = await self.request("DELETE", place(kind, namespace, name), body=body, quiet=(404, 409))
        return answer.status not in (404, 409)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        quiet: tuple[int, ...] = (),
        content: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        """One request. ClusterError for a status from 300 on that is not in ``quiet``, and for no answer."""
        try:
            response = await self._reply(method, path, query, body, content, self._deadline_seconds, accept)
            async with asyncio.timeout(self._deadline_seconds):  # wait_for may swallow a cancellation
                raw = await response.read()
        except (BugError, ClusterError):
            raise
        except (OSError, TimeoutError, ValueError) as error:
            raise _unanswered(error, f"{method} {path}") from None
        except Exception as error:  # the client library wraps connection errors in classes of its own
            raise ClusterError(
                f"the request could not be made ({type(error).__name__})", where=f"{method} {path}"
            ) from None
        answer = Answer(response.status, _parsed(raw))
        if answer.status >= 300 and answer.status not in quiet:
            raise _refused(answer, f"{method} {path}")
        return answer

    async def stream(
        self, path: str, *, query: Mapping[str, str], silence_seconds: float | None = None
    ) -> AsyncIterator[bytes]:
        """The body of a GET as it comes, such as a log that is being written; no deadline but
        ``silence_seconds`` between two pieces. ClusterError as of ``request``, and when it is cut off."""
        from aiohttp import ClientError, ClientTimeout

        where = f"GET {path}"
        timeout = ClientTimeout(total=None, sock_connect=self._deadline_seconds, sock_read=silence_seconds)
        try:
            response = await self._reply("GET", path, query, None, "application/json", timeout)
            if response.status >= 300:
                async with asyncio.timeout(self._deadline_seconds):
                    raw = await response.read()
                raise _refused(Answer(response.status, _parsed(raw)), where)
            async with response.response as body:
                async for piece in body.content.iter_any():
                    yield piece
        except (OSError, TimeoutError, ClientError) as error:
            raise _unanswered(error, where) from None

    async def _reply(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
        content: str,
        wait: Any,
        accept: str = "application/json",
    ) -> Any:
        """The answer whose body is still to be read."""
        from multidict import CIMultiDict

        url = f"{self._client.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        headers: CIMultiDict[str] = CIMultiDict({"Accept": accept, "Content-Type": content})
        for name, value in self._headers:
            headers.add(name, value)
        bearer = (await self._client.configuration.auth_settings()).get("BearerToken")
        if bearer is not None:
            headers[bearer["key"]] = bearer["value"]
        return await self._client.call_api(method, url, headers, body=body, _request_timeout=wait)


def _unanswered(error: Exception, where: str) -> ClusterError:
    return ClusterError(f"the Kubernetes API does not answer ({type(error).__name__})", where=where)


def place(kind: str, namespace: str, name: str = "") -> str:
    """The path of a kind's objects, or of one of them."""
    try:
        api, plural = PLACES[kind]
    except KeyError:
        raise BugError(f"unknown kind {kind!r}") from None
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{api}{inside}/{plural}" + (f"/{quote(name, safe='')}" if name else "")


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode("utf-8", "replace")


def _reason(body: Any) -> str:
    return str(body.get("reason", "")) if isinstance(body, dict) else ""


def _refused(answer: Answer, where: str) -> ClusterError:
    message = answer.body.get("message", "") if isinstance(answer.body, dict) else str(answer.body)
    what = " ".join(str(message).split())[:500] or f"HTTP {answer.status}"
    return ClusterError(what, where=where, status=answer.status)


_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def _in_cluster() -> bool:
    from pathlib import Path

    return Path(_ACCOUNT, "token").is_file()


def _own_namespace() -> str:
    from pathlib import Path

    return Path(_ACCOUNT, "namespace").read_text().strip()


def _any_file(files: str) -> bool:
    from pathlib import Path

    return any(Path(one).expanduser().is_file() for one in files.split(os.pathsep) if one)
