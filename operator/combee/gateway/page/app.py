"""The page as an ASGI application, below ``/-/``, which no Playbook can be called.

    /-/                                      the Playbooks that the visitor's key opens
    /-/sign-in, /-/sign-out                  exchange a key for a cookie, and remove the cookie
    /-/playbooks/NAME                        gates, canary, versions, history
    /-/playbooks/NAME/versions/DIGEST        one version
    /-/playbooks/NAME/diff?from=A&to=B       what changed between two, bullet by bullet

Every page but the sign-in form asks for the Playbook's key, as a request to the model does: as a bearer
token, or as the cookie. A missing Playbook and one that the key does not open get the same answer. Links are
relative, so that an ingress may put a path before them.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from combee.assembly.crash import bug_text
from combee.errors import ClusterError, UserError
from combee.gateway.asgi import Receive, Scope, Send, header, raw_path
from combee.gateway.directing import Published
from combee.gateway.keys import MOST_CHARACTERS, SecretKeys, bearer
from combee.gateway.metrics import Metrics
from combee.gateway.page import session
from combee.gateway.page.contents import content_of, difference_of
from combee.gateway.page.render import Answer, prepare, rendered, safe_headers
from combee.gateway.page.views import PlaybookView, Seen, VersionView, playbook_view
from combee.gateway.table import Route, Table
from combee.plan.playbook.serving import Version

log = logging.getLogger(__name__)
ROOT = "/-/"
MOST_FORM = 2 * MOST_CHARACTERS
FORM_SECONDS = 20.0
AT_ONCE = 2
"""Most pages made at the same time: further ones wait, so that requests to models do not."""
_NAME, _DIGEST = "[a-z0-9][a-z0-9.-]{0,252}", "[0-9a-f]{4,64}"
_PLAYBOOK = re.compile(rf"playbooks/({_NAME})")
_VERSION = re.compile(rf"playbooks/({_NAME})/versions/({_DIGEST})")
_DIFF = re.compile(rf"playbooks/({_NAME})/diff")
_RETURN = re.compile(rf"playbooks/{_NAME}(/versions/{_DIGEST}|/diff\?from={_DIGEST}&to={_DIGEST})?")
"""paths to which signing in may lead: only pages of this application."""
ContentOf = Callable[[Version], Awaitable[Published | None]]


class Refused(Exception):
    """An answer instead of a page."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a visitor who is let in."""

    path: str
    """the path below ``/-/``."""
    query: str
    opened: dict[str, Route]
    """the Playbooks that the key opens."""

    @property
    def root(self) -> str:
        """The way back to ``/-/``."""
        return "../" * self.path.count("/") or "./"


class Page:
    """The page's ASGI application. ``look`` returns the current table, ``seen`` a Playbook and its versions,
    and ``content`` a version's content by digest and ConfigMap."""

    def __init__(
        self,
        look: Callable[[], Table],
        seen: Callable[[str], Seen],
        content: ContentOf,
        metrics: Metrics,
        namespace: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._look, self._seen, self._published, self._metrics = look, seen, content, metrics
        self._namespace, self._clock = namespace, clock
        self._cookie = session.cookie_name(namespace)
        self._turn = asyncio.Semaphore(AT_ONCE)
        prepare()

    def takes(self, scope: Scope) -> bool:
        """Return whether a request is for the page and any Playbook is shown."""
        path = raw_path(scope)
        return (path == ROOT[:-1] or path.startswith(ROOT)) and bool(self._pages())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        answer = Answer(500)
        try:
            answer = await self._answer(scope, receive)
        except Refused as refused:
            answer = refused.answer
        except Exception as error:
            log.error(bug_text(error), extra={"part": "page"})
            answer = await self._problem(500, "Something went wrong", "The gateway's log says what.")
        finally:
            self._metrics.page.labels(str(answer.status)).inc()
        headers = [*safe_headers(), *answer.headers, ("content-length", str(len(answer.body)))]
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
        await send({"type": "http.response.body", "body": answer.body})

    def _pages(self) -> dict[str, Route]:
        return {name: route for name, route in self._look().routes.items() if route.page}

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        path, method = raw_path(scope).removeprefix(ROOT[:-1]).removeprefix("/"), scope["method"]
        query = scope["query_string"].decode("latin-1")
        if raw_path(scope) == ROOT[:-1]:
            return Answer(308, headers=(("location", "-/"),))
        if path in ("sign-in", "sign-out") and method == "POST":
            if header(scope, b"sec-fetch-site") not in ("", "same-origin", "none"):
                return await self._problem(403, "Not from here", "This form was sent by another site.")
            return await (self._sign_in if path == "sign-in" else self._sign_out)(scope, receive)
        if method not in ("GET", "HEAD"):
            return Answer(405, headers=(("allow", "GET, HEAD"),))
        if path == "sign-in":
            return await self._form(_returned(query))
        visit = Visit(path, query, await self._opened(scope))
        if not visit.opened:
            return self._ask_for_key(scope, visit)
        async with self._turn:
            return await self._page(visit)

    async def _page(self, visit: Visit) -> Answer:
        if visit.path == "":
            views = [await self._view(route) for _, route in sorted(visit.opened.items())]
            return await self._render("index", visit, playbooks=views, title="Playbooks")
        if match := _PLAYBOOK.fullmatch(visit.path):
            view = await self._view(await self._route(visit, match[1]))
            return await self._render("playbook", visit, playbook=view, title=view.name)
        if match := _VERSION.fullmatch(visit.path):
            return await self._version(visit, match[1], match[2])
        if match := _DIFF.fullmatch(visit.path):
            return await self._diff(visit, match[1])
        return await self._missing(visit, "There is no such page.")

    async def _version(self, visit: Visit, name: str, digest: str) -> Answer:
        view = await self._view(await self._route(visit, name))
        version = await self._named_version(visit, view, digest)
        published = await self._content(visit, version)
        content = await asyncio.to_thread(content_of, published.text, published.method)
        title = f"{version.short} of {name}"
        return await self._render(
            "version", visit, playbook=view, version=version, content=content, title=title
        )

    async def _diff(self, visit: Visit, name: str) -> Answer:
        view = await self._view(await self._route(visit, name))
        fields = _fields(visit.query)
        pair = [(fields.get(side) or [""])[0] for side in ("from", "to")]
        if not all(re.fullmatch(_DIGEST, digest) for digest in pair):
            return await self._missing(visit, "Choose two versions to compare.")
        before, after = [await self._named_version(visit, view, digest) for digest in pair]
        old, new = [await self._content(visit, version) for version in (before, after)]
        difference = await asyncio.to_thread(difference_of, old.text, new.text, (old.method, new.method))
        title = f"{before.short} to {after.short} of {name}"
        context: dict[str, Any] = {"playbook": view, "before": before, "after": after, "title": title}
        return await self._render("diff", visit, diff=difference, **context)

    async def _route(self, visit: Visit, name: str) -> Route:
        route = visit.opened.get(name)
        if route is None:
            message = "There is no such Playbook here, or your key does not open it."
            raise Refused(await self._missing(visit, message))
        return route

    async def _named_version(self, visit: Visit, view: PlaybookView, digest: str) -> VersionView:
        version = view.version(digest)
        if version is None:
            message = f"{view.name} has no version {digest}, or several whose digests begin so."
            raise Refused(await self._missing(visit, message))
        return version

    async def _content(self, visit: Visit, version: VersionView) -> Published:
        try:
            published = await self._published(version.standing)
        except ClusterError as error:
            log.warning("no content", extra={"digest": version.short, "error": str(error)})
            message = "The API server cannot be asked for this version's content. Try again in a moment."
            raise Refused(await self._problem(503, "Not at the moment", message, visit)) from None
        except UserError as error:
            raise Refused(await self._problem(409, "Replaced", str(error), visit)) from None
        if published is None:
            named = f"its ConfigMap {version.standing.config_map}"
            message = f"The content of {version.short} is gone: {named} is not there."
            raise Refused(await self._missing(visit, message))
        return published

    async def _view(self, route: Route) -> PlaybookView:
        seen = self._seen(route.playbook)
        return await asyncio.to_thread(playbook_view, route.playbook, seen, route.served.digest)

    async def _opened(self, scope: Scope) -> dict[str, Route]:
        """Return the Playbooks that the request's key, token or cookie opens."""
        token = bearer(header(scope, b"authorization"))
        credentials = session.Shown(token=token)
        if not token:
            credentials = session.from_cookies(header(scope, b"cookie"), self._cookie)
        return await self._opened_by(credentials) if credentials != session.NOTHING_SHOWN else {}

    async def _opened_by(self, credentials: session.Shown) -> dict[str, Route]:
        opened, unknown = {}, 0
        for name, route in self._pages().items():
            try:
                if await session.opens(credentials, route.allowed, self._namespace, self._clock()):
                    opened[name] = route
            except ClusterError as error:
                unknown += 1
                log.warning("no review", extra={"playbook": name, "error": str(error)})
        if unknown and not opened:
            message = "Nobody can say at the moment whether the key is good. Try again."
            raise Refused(await self._problem(503, "Not at the moment", message))
        return opened

    def _ask_for_key(self, scope: Scope, visit: Visit) -> Answer:
        if header(scope, b"authorization"):
            return Answer(401, b"The key does not fit.\n", (("content-type", "text/plain; charset=utf-8"),))
        page = f"{visit.path}?{visit.query}" if visit.query else visit.path
        more = f"?{page}" if _RETURN.fullmatch(page) else ""
        return Answer(303, headers=(("location", f"{visit.root}sign-in{more}"),))

    async def _form(self, wanted: str, *, status: int = 200, error: str = "") -> Answer:
        return await self._render("sign-in", None, status=status, wanted=wanted, error=error, title="Sign in")

    async def _sign_in(self, scope: Scope, receive: Receive) -> Answer:
        form = _fields(await _body(receive))
        key, page = (form.get("key") or [""])[0].strip(), _returned((form.get("to") or [""])[0])
        opened = await self._opened_by(session.Shown(token=key)) if key else {}
        if not opened:
            return await self._form(page, status=401, error="This key opens nothing here.")
        of_secret = any(isinstance(route.allowed, SecretKeys) for route in opened.values())
        value = session.cookie_value(key, of_secret=of_secret, namespace=self._namespace, now=self._clock())
        if value is None:
            message = "This token is longer than what a browser keeps; send it as a bearer token."
            return await self._form(page, status=400, error=message)
        return self._with_cookie(scope, value, f"./{page}")

    async def _sign_out(self, scope: Scope, receive: Receive) -> Answer:
        return self._with_cookie(scope, "", "sign-in")

    def _with_cookie(self, scope: Scope, value: str, location: str) -> Answer:
        forwarded = header(scope, b"x-forwarded-proto").split(",")[0].strip().lower()
        schemes = scope.get("scheme"), forwarded
        cookie = session.set_cookie(self._cookie, value, secure="https" in schemes)
        return Answer(303, headers=(("location", location), ("set-cookie", cookie)))

    async def _missing(self, visit: Visit, message: str) -> Answer:
        return await self._problem(404, "Not here", message, visit)

    async def _problem(self, status: int, title: str, message: str, visit: Visit | None = None) -> Answer:
        return await self._render("problem", visit, status=status, title=title, message=message)

    async def _render(
        self, template: str, visit: Visit | None, *, status: int = 200, **context: Any
    ) -> Answer:
        root = visit.root if visit is not None else "./"
        common = {"root": root, "namespace": self._namespace, "signed_in": visit is not None}
        # A visitor's page has its turn already.
        async with self._turn if visit is None else nullcontext():
            return await asyncio.to_thread(partial(rendered, template, status=status, **common, **context))


def _returned(page: str) -> str:
    """Return the page to show after signing in; empty for the start page."""
    return page if _RETURN.fullmatch(page) else ""


def _fields(text: str) -> dict[str, list[str]]:
    """Return the fields of a form; none when there are too many."""
    try:
        return parse_qs(text, max_num_fields=8)
    except ValueError:
        return {}


async def _body(receive: Receive) -> str:
    """Return a form's body. Raises Refused when it is too large or late."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(FORM_SECONDS):
            while True:
                message = await receive()
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if message["type"] == "http.disconnect" or size > MOST_FORM:
                    raise Refused(Answer(413))
                if not message.get("more_body", False):
                    return b"".join(parts).decode("utf-8", "replace")
    except TimeoutError:
        raise Refused(Answer(408)) from None
