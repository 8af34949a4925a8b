"""What is on a cluster, read over one connection that stays open.

Tests look again and again until something is so, and a kubectl that is started for each look takes a tenth of
a second of the very cores that the cluster runs on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from kubernetes import client, config

CORE = ("pods", "services", "configmaps", "events", "nodes", "persistentvolumeclaims")
GROUPS = {
    **dict.fromkeys(CORE, "api/v1"),
    "jobs": "apis/batch/v1",
    "deployments": "apis/apps/v1",
    **dict.fromkeys(("promptlearningruns", "playbooks", "playbookversions"), "apis/combee.dev/v1alpha1"),
}
SHORT = {
    "plr": "promptlearningruns",
    "pb": "playbooks",
    "pbv": "playbookversions",
    "pvc": "persistentvolumeclaims",
}
FLAGS = {"-l": "labelSelector", "--field-selector": "fieldSelector"}


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
    """Reads from the cluster of one kubeconfig."""

    def __init__(self, kubeconfig: str) -> None:
        self._api = config.new_client_from_config(kubeconfig)

    def read(self, asked: Question, namespace: str) -> Any:
        """Return one object, or a list of all. Raises NotThereError, or AssertionError with the server's
        message."""
        answers = [self._get(path) for path in asked.paths(namespace)]
        if asked.name:
            return answers[0]
        return {"kind": "List", "items": [one for answer in answers for one in _items(answer)]}

    def _get(self, path: str) -> Any:
        try:
            answer = self._api.rest_client.request(
                "GET", f"{self._api.configuration.host}{path}", headers=self._headers(), _request_timeout=60
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

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        self._api.update_params_for_auth(headers, [], ["BearerToken"], "", "GET", None)
        return headers


def _items(answer: Any) -> list[Any]:
    """The objects of a list; the server leaves out of each what kind it is of."""
    about = {"kind": answer["kind"].removesuffix("List"), "apiVersion": answer["apiVersion"]}
    return [{**about, **one} for one in answer["items"]]
