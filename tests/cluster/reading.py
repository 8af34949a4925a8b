"""What is on a cluster, read over one connection that stays open.

Tests look again and again until something is so, and a kubectl that is started for each look takes a tenth of
a second of the very cores that the cluster runs on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from kubernetes import client, config

CORE = ("pods", "services", "serviceaccounts", "configmaps", "events", "nodes", "persistentvolumeclaims")
GROUPS = {
    **dict.fromkeys(CORE, "api/v1"),
    "jobs": "apis/batch/v1",
    "deployments": "apis/apps/v1",
    "endpointslices": "apis/discovery.k8s.io/v1",
    "leases": "apis/coordination.k8s.io/v1",
    **dict.fromkeys(("promptlearningruns", "playbooks", "playbookversions"), "apis/combee.dev/v1alpha1"),
}
SHORT = {
    "plr": "promptlearningruns",
    "pb": "playbooks",
    "pbv": "playbookversions",
    "pvc": "persistentvolumeclaims",
}
FLAGS = {"-l": "labelSelector", "--field-selector": "fieldSelector"}
JSON = "application/json"
ALL_KINDS = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
TABLE = f"{JSON};as=Table;g=meta.k8s.io;v=v1"
MERGED, APPLIED = "application/merge-patch+json", "application/apply-patch+yaml"
AS_TEST = "fieldManager=test&force=true&fieldValidation=Strict"
ONLY_METADATA = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class NotThereError(AssertionError):
    """There is no such object."""


@dataclass(frozen=True)
class Question:
    """What ``kubectl get`` is asked: one object, or the objects of some kinds."""

    kinds: tuple[str, ...]
    name: str = ""
    chosen: str = ""
    """the query string of the selectors."""

    def paths(self, namespace: str) -> list[str]:
        """Where each kind is read."""
        place = f"/namespaces/{namespace}" if namespace else ""
        name = f"/{self.name}" if self.name else ""
        query = f"?{self.chosen}" if self.chosen else ""
        return [f"/{GROUPS[kind]}{place}/{kind}{name}{query}" for kind in self.kinds]


def question(*arguments: str) -> Question | None:
    """What the arguments of ``kubectl get`` ask; None where they ask for more than is read here.

    >>> question("plr,pods", "-l", "a=b").paths("team")
    ['/apis/combee.dev/v1alpha1/namespaces/team/promptlearningruns?labelSelector=a%3Db',
    '/api/v1/namespaces/team/pods?labelSelector=a%3Db']
    >>> question("pod", "x", "-o", "wide")
    """
    words, selectors = list(arguments), dict[str, str]()
    plain: list[str] = []
    while words:
        word = words.pop(0)
        flag, _, value = word.partition("=")
        if word in FLAGS and words:
            selectors[FLAGS[word]] = words.pop(0)
        elif flag in FLAGS and value:
            selectors[FLAGS[flag]] = value
        elif word.startswith("-"):
            return None
        else:
            plain.append(word)
    kinds = tuple(_plural(kind) for kind in plain[0].split(","))
    one = plain[1:]
    if len(one) > 1 or not set(kinds) <= set(GROUPS) or (one and (len(kinds) > 1 or selectors)):
        return None
    return Question(kinds, "".join(one), urlencode(selectors))


def _plural(kind: str) -> str:
    return SHORT.get(kind) or (kind if kind.endswith("s") else f"{kind}s")


class Reader:
    """Reads from the cluster of one kubeconfig, and writes what a test writes often."""

    def __init__(self, kubeconfig: str) -> None:
        self._api = config.new_client_from_config(kubeconfig)

    def read(self, asked: Question, namespace: str) -> Any:
        """Return one object, or a list of all. Raises NotThereError, or AssertionError with the server's
        message."""
        answers = [self._get(path) for path in asked.paths(namespace)]
        if asked.name:
            return answers[0]
        return {"kind": "List", "items": [one for answer in answers for one in _items(answer)]}

    def row(self, kind: str, name: str, namespace: str) -> dict[str, str]:
        """What ``kubectl get -o wide`` shows of an object, by column: the server makes them."""
        (path,) = Question((_plural(kind),), name).paths(namespace)
        table = self._get(path, TABLE)
        names = [column["name"].upper() for column in table["columnDefinitions"]]
        cells = ["" if cell is None else str(cell) for cell in table["rows"][0]["cells"]]
        return dict(zip(names, cells, strict=True))

    def write(
        self,
        kind: str,
        body: dict[str, Any] | str,
        namespace: str,
        *,
        name: str = "",
        form: str = JSON,
        user: str = "",
        **more: str,
    ) -> tuple[int, Any]:
        """(status, answer) of the server when ``user`` creates an object, or changes the one of a name.

        ``form`` is what the body is, ``more`` the query."""
        query = urlencode({"fieldValidation": "Strict", **more})
        (path,) = Question((_plural(kind),), name, query).paths(namespace)
        headers = {**self._headers(JSON), "Content-Type": form}
        if user:
            headers["Impersonate-User"] = user
        sent = body if isinstance(body, str) else json.dumps(body)
        status, text = self._send("PATCH" if name else "POST", path, sent, headers)
        return status, json.loads(text)

    def apply(self, objects: Iterable[dict[str, Any]], namespace: str = "") -> None:
        """Do what ``kubectl apply --server-side`` does. Raises AssertionError with the server's message."""
        for one in objects:
            self._ask("PATCH", f"{self._path_of(one, namespace)}?{AS_TEST}", json.dumps(one), APPLIED)

    def delete(self, one: dict[str, Any], namespace: str = "") -> None:
        """Delete an object, without waiting until it is gone."""
        self._ask("DELETE", self._path_of(one, namespace))

    def delete_jobs(self, namespace: str) -> None:
        """Delete all Jobs of a namespace and their pods, without waiting until they are gone."""
        (path,) = Question(("jobs",), "", "propagationPolicy=Background").paths(namespace)
        self._ask("DELETE", path)

    def log(self, pod: str, namespace: str) -> str:
        """What a pod of one container has printed."""
        return self._ask("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log")

    def _path_of(self, one: dict[str, Any], namespace: str) -> str:
        path, plural, scope = self._places[one["apiVersion"], one["kind"]]
        inside = f"/namespaces/{namespace}" if scope == "Namespaced" else ""
        return f"{path}{inside}/{plural}/{one['metadata']['name']}"

    def kinds(self) -> set[str]:
        """The kinds that the server lists now."""
        return {kind for _, kind in self._listed()}

    @cached_property
    def _places(self) -> dict[tuple[str, str], tuple[str, str, str]]:
        """What the server listed when it was first asked."""
        return self._listed()

    def _listed(self) -> dict[tuple[str, str], tuple[str, str, str]]:
        """(path of its version, plural, scope) of each (version, kind) that the server has."""
        return {
            (version, one["responseKind"]["kind"]): (f"{root}/{version}", one["resource"], one["scope"])
            for root, version, resources in self._versions()
            for one in resources
            if "responseKind" in one
        }

    def _ask(self, verb: str, path: str, body: str = "", form: str = JSON) -> str:
        status, text = self._send(verb, path, body, {**self._headers("*/*"), "Content-Type": form})
        assert status < 300, f"{verb} {path}: {status} {text[:500]}"
        return text

    def _send(self, verb: str, path: str, body: str, headers: dict[str, str]) -> tuple[int, str]:
        url = f"{self._api.configuration.host}{path}"
        pool = self._api.rest_client.pool_manager
        answer = pool.request(verb, url, body=body, headers=headers, timeout=60)
        return answer.status, answer.data.decode()

    def names(self, namespace: str) -> set[str]:
        """``kind.group/name`` of all that is in a namespace, of every kind that the server lists; of all that
        is in none where it is empty."""
        place = f"/namespaces/{namespace}" if namespace else ""
        scope = "Namespaced" if namespace else "Cluster"
        return {
            f"{kind}/{one['metadata']['name']}"
            for path, plural, kind in self._kinds(scope)
            for one in self._get(f"{path}{place}/{plural}", ONLY_METADATA)["items"] or ()
        }

    def _kinds(self, scope: str) -> Iterator[tuple[str, str, str]]:
        """(path of its version, plural, kind.group) of each kind that is listed, in its first version."""
        groups: dict[str, dict[str, tuple[str, Any]]] = {}
        for root, version, resources in reversed(list(self._versions())):
            group = version.rpartition("/")[0]
            groups[group] = groups.get(group, {}) | {
                one["resource"]: (f"{root}/{version}", one) for one in resources
            }
        for name, found in groups.items():
            for plural, (path, one) in found.items():
                if one["scope"] == scope and "list" in one["verbs"]:
                    kind = one["responseKind"]["kind"].lower()
                    yield path, plural, f"{kind}.{name}" if name else kind

    def _versions(self) -> Iterator[tuple[str, str, list[Any]]]:
        """(/api or /apis, version with its group, resources) of all that the server has."""
        for root in ("/api", "/apis"):
            for group in self._get(root, ALL_KINDS)["items"]:
                for version in group["versions"]:
                    name = [group["metadata"].get("name", ""), version["version"]]
                    # An API that another server gives has none until that server answers.
                    yield root, "/".join(filter(None, name)), version.get("resources", [])

    def _get(self, path: str, form: str = JSON) -> Any:
        try:
            answer = self._api.rest_client.request(
                "GET",
                f"{self._api.configuration.host}{path}",
                headers=self._headers(form),
                _request_timeout=60,
            )
            text = answer.read()
        except client.ApiException as error:
            if error.status == 404:
                raise NotThereError(f"GET {path}: it is not there") from None
            raise AssertionError(f"GET {path}: {error.status} {error.body}") from None
        except Exception as error:  # the server is away: urllib3 has a dozen words for it
            raise AssertionError(f"GET {path}: {error}") from None
        if answer.status == 404:
            raise NotThereError(f"GET {path}: it is not there")
        assert answer.status == 200, f"GET {path}: {answer.status} {text.decode()[:500]}"
        return json.loads(text)

    def _headers(self, form: str) -> dict[str, str]:
        headers = {"Accept": form}
        self._api.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
        return headers


def _items(answer: Any) -> list[Any]:
    """The objects of a list; the server leaves out of each what kind it is of."""
    about = {"kind": answer["kind"].removesuffix("List"), "apiVersion": answer["apiVersion"]}
    return [{**about, **one} for one in answer["items"]]
