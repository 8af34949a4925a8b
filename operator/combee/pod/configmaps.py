"""The one thing that a pod asks of the API server: to make a ConfigMap, or find it made."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from combee.clients.backoff import retry_after_seconds, wait_seconds
from combee.errors import BugError, TransientError, UserError
from combee.pod.environment import Pod

ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
REQUEST_SECONDS = 15.0
DEADLINE_SECONDS = 90.0
_PASSING = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(slots=True)
class ConfigMaps:
    """The ConfigMaps of a namespace, as this pod's account may use them: create and get."""

    base_url: str
    namespace: str
    token: Callable[[], str]
    ca_file: Path
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def of(cls, pod: Pod) -> ConfigMaps:
        """Return those of the run's namespace. Raises BugError outside a cluster."""
        return cls.within(pod.namespace, pod.settings.api_server, pod.settings.path(ACCOUNT_FOLDER))

    @classmethod
    def within(cls, namespace: str, api_server: str, folder: Path) -> ConfigMaps:
        """Return a namespace's, by the account whose token is in ``folder``. BugError outside a cluster."""
        if not api_server or not (folder / "token").is_file():
            raise BugError("this runs in a pod with a service account's token")
        return cls(
            base_url=f"https://{api_server}",
            namespace=namespace,
            # The token is read for each request: the kubelet replaces it before it expires.
            token=lambda: (folder / "token").read_text(encoding="ascii").strip(),
            ca_file=folder / "ca.crt",
        )

    def ensure(self, wanted: dict[str, Any], *, may_differ: tuple[str, ...] = ()) -> None:
        """Create ``wanted``, or find one of that name with the same content, except for keys that
        ``may_differ``.

        Raises UserError (refused, or other content) and TransientError (no answer in time).
        """
        name, path = wanted["metadata"]["name"], f"/api/v1/namespaces/{self.namespace}/configmaps"
        creation = self._response("POST", path, wanted)
        if creation.status_code in (200, 201):
            return
        if creation.status_code != 409:
            raise self._refused(creation, "create")
        existing = self._response("GET", f"{path}/{name}", None)
        if existing.status_code != 200:
            raise self._refused(existing, "get")
        existing_data, wanted_data = (
            {key: text for key, text in data.items() if key not in may_differ}
            for data in (existing.json().get("data") or {}, wanted["data"])
        )
        if existing_data != wanted_data:
            raise UserError(
                f"the ConfigMap {name} exists with other content",
                where=f"configmaps/{name}",
                fix="Delete it; published versions are made by the operator alone",
            )

    def _response(self, method: str, path: str, body: dict[str, Any] | None) -> httpx2.Response:
        """Return the answer to a request, which is asked again while a failure may pass."""
        until, attempt = self.clock() + DEADLINE_SECONDS, 0
        while True:
            attempt += 1
            after: float | None = None
            try:
                answer = self._once(method, path, body)
            except httpx2.TransportError as error:
                what = type(error).__name__
            else:
                if answer.status_code not in _PASSING:
                    return answer
                what, after = str(answer.status_code), retry_after_seconds(answer.headers, time.time())
            wait = wait_seconds(path, attempt, after)
            if self.clock() + wait > until:
                raise TransientError(
                    f"the API server does not answer ({what})",
                    where=self.base_url,
                    fix="See whether pods of this namespace may reach it (a NetworkPolicy?)",
                )
            self.sleep(wait)

    def _once(self, method: str, path: str, body: dict[str, Any] | None) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.token()}", "Accept": "application/json"}
        context = ssl.create_default_context(cafile=str(self.ca_file))
        with httpx2.Client(
            verify=context, timeout=REQUEST_SECONDS, trust_env=False, follow_redirects=False
        ) as client:
            return client.request(method, self.base_url + path, headers=headers, json=body)

    def _refused(self, answer: httpx2.Response, verb: str) -> UserError:
        try:
            message = " ".join(str(answer.json().get("message", "")).split())[:300]
        except (ValueError, AttributeError):
            message = ""
        fix = "See the message of the API server"
        if answer.status_code in (401, 403):
            fix = "Give the publish account the chart's Role: create and get ConfigMaps"
        elif "quota" in message:
            fix = "Raise the namespace's quota of ConfigMaps"
        return UserError(
            f"the API server refuses to {verb} it ({answer.status_code}): {message}",
            where=f"configmaps in {self.namespace}",
            fix=fix,
        )
