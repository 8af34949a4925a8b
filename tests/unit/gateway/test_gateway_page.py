"""The page: who gets in, with what headers, and that nothing that anybody wrote can act on it."""

from __future__ import annotations

import asyncio
import base64
import copy
import functools
import hashlib
import re
import threading
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any, cast
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from page_story import ACTIVE, CANDIDATE, NAMESPACE, told

from combee.errors import ClusterError, UserError
from combee.gateway.directing import Published
from combee.gateway.keys import SecretKeys
from combee.gateway.metrics import Metrics
from combee.gateway.page import app
from combee.gateway.page.app import AT_ONCE, Page
from combee.gateway.page.contents import content_of, difference_of
from combee.gateway.page.render import Answer, rendered, safe_headers
from combee.gateway.page.session import SESSION_SECONDS
from combee.gateway.page.views import Seen, playbook_view
from combee.gateway.proxy import Gateway
from combee.gateway.room import Room
from combee.gateway.table import Check, Route, Served, Table
from combee.gateway.upstream import Upstreams
from combee.plan.playbook.serving import Version
from combee.report.text import visible
from waiting import PATIENCE_SECONDS, until

KEY, OTHER, TOKEN = "the-key-of-formula", "the-key-of-another", "header.claims.signature"
BROWSER = "sec-fetch-site"


async def of_an_account(token: str) -> bool:
    if token == "api.server.away":
        raise ClusterError("away", where="POST", status=0)
    return token == TOKEN


@dataclass
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def cookie(self) -> str:
        """What a browser sends from now on."""
        return self.headers["set-cookie"].split(";")[0]


@dataclass
class Site:
    """Three Playbooks with keys of their own, and one that is not shown."""

    now: float = 1_800_000_000.0
    checks: dict[str, Check] = field(
        default_factory=lambda: {
            "formula": SecretKeys([KEY]),
            "another": SecretKeys([OTHER]),
            "by-token": of_an_account,
            "unshown": SecretKeys([KEY]),
        }
    )
    metrics: Metrics = field(default_factory=Metrics)
    namespace: str = NAMESPACE

    def page(self) -> Page:
        """A pod of the gateway."""
        served = Served(told().digests[ACTIVE], "")
        routes = {
            name: Route(name, served, "http://llm/v1", "upstream-key", check, page=name != "unshown")
            for name, check in self.checks.items()
        }
        seen = Seen(told().playbook, tuple(told().versions))

        async def content(version: Version) -> Published | None:
            text = told().contents.get(version.digest)
            return None if text is None else Published(text)

        return Page(
            lambda: Table(routes, known=True),
            lambda _: seen,
            content,
            self.metrics,
            self.namespace,
            lambda: self.now,
        )

    async def ask(
        self, path: str, method: str = "GET", body: str = "", scheme: str = "http", **headers: str
    ) -> Reply:
        return await ask(self.page(), path, method, body, scheme, **headers)

    async def sign_in(self, key: str = KEY, **headers: str) -> Reply:
        return await self.ask("/-/sign-in", "POST", urlencode({"key": key}), **headers)


async def ask(
    app: Any, path: str, method: str = "GET", body: str = "", scheme: str = "http", **headers: str
) -> Reply:
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body.encode(), "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    raw, _, query = path.partition("?")
    scope = {
        "type": "http",
        "scheme": scheme,
        "method": method,
        "path": raw,
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "headers": [
            (name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()
        ],
    }
    await app(scope, receive, send)
    head = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
    return Reply(int(sent[0]["status"]), head, b"".join(one.get("body", b"") for one in sent[1:]).decode())


PATHS = [
    "/-/",
    "/-/playbooks/formula",
    f"/-/playbooks/formula/versions/{CANDIDATE}",
    f"/-/playbooks/formula/diff?from={ACTIVE}&to={CANDIDATE}",
]


# -- who gets in ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PATHS, "/-/playbooks/nothing", "/-/x"])
@pytest.mark.parametrize(
    "cookie", ["", "combee-page-team-a=", "combee-page-team-a=s.9999999999.x", "combee-page-team-a=t.a.b.c"]
)
async def test_without_a_key_there_is_only_the_way_to_the_form(path: str, cookie: str) -> None:
    reply = await Site().ask(path, cookie=cookie)
    assert (reply.status, reply.text) == (303, "")
    assert re.fullmatch(r"(\./|(\.\./)+)sign-in(\?playbooks/[a-z0-9/?&=]+)?", reply.headers["location"])


@pytest.mark.parametrize("path", PATHS)
async def test_a_bearer_token_opens_it_and_a_wrong_one_is_told(path: str) -> None:
    assert (await Site().ask(path, authorization=f"Bearer {KEY}")).status == 200
    wrong = await Site().ask(path, authorization="Bearer wrong")
    assert (wrong.status, "formula" in wrong.text) == (401, False)


async def test_a_key_signs_in_and_the_cookie_opens_what_the_key_opens_and_nothing_else() -> None:
    site = Site()
    reply = await site.sign_in()
    assert (reply.status, reply.headers["location"]) == (303, "./")
    names = re.findall(
        r'<h2><a href="\./playbooks/([^"]+)"', (await site.ask("/-/", cookie=reply.cookie)).text
    )
    assert names == ["formula"]
    there = await site.ask("/-/playbooks/formula", cookie=reply.cookie)
    assert (there.status, ACTIVE in there.text) == (200, True)
    hidden = await site.ask("/-/playbooks/another", cookie=reply.cookie)
    absent = await site.ask("/-/playbooks/nothing", cookie=reply.cookie)
    unshown = await site.ask("/-/playbooks/unshown", cookie=reply.cookie)
    assert hidden.status == absent.status == unshown.status == 404
    assert hidden.text == absent.text == unshown.text


async def test_the_cookie_is_the_browsers_alone_and_does_not_tell_the_key() -> None:
    site = Site()
    reply = await site.sign_in()
    name, value = reply.cookie.split("=", 1)
    assert name == "combee-page-team-a"
    attributes = set(reply.headers["set-cookie"].split("; ")[1:])
    assert attributes == {"HttpOnly", "SameSite=Strict", f"Max-Age={SESSION_SECONDS}"}
    assert KEY not in value and base64.b64encode(KEY.encode()).decode().rstrip("=") not in value
    for over_tls in ({"scheme": "https"}, {"x_forwarded_proto": "https"}):
        assert "Secure" in (await site.sign_in(**over_tls)).headers["set-cookie"].split("; ")


async def test_a_cookie_is_good_in_every_pod_until_its_time_is_over_or_its_key_is_gone() -> None:
    site = Site()
    cookie = (await site.sign_in()).cookie

    async def status() -> int:
        return (await site.ask("/-/playbooks/formula", cookie=cookie)).status

    assert await status() == 200
    site.now += SESSION_SECONDS - 1
    assert await status() == 200
    site.checks["formula"] = SecretKeys(["a-new-key", KEY])
    assert await status() == 200
    site.checks["formula"] = SecretKeys(["a-new-key"])
    assert await status() == 303
    site.checks["formula"] = SecretKeys([KEY])
    site.now += 2
    assert await status() == 303


async def test_a_cookie_cannot_be_made_longer_or_taken_to_another_namespace() -> None:
    site = Site()
    value = (await site.sign_in()).cookie.split("=", 1)[1]
    _, until, seal = value.split(".")
    for forged in (
        f"s.{int(until) + 60}.{seal}",
        f"s.{until}.{seal[:-2]}AA",
        f"s.{until}.",
        "s..",
        value + "x",
        "t." + seal,
    ):
        reply = await site.ask("/-/playbooks/formula", cookie=f"combee-page-team-a={forged}")
        assert reply.status == 303, forged
    elsewhere = Site(namespace="team-b")
    assert (await elsewhere.ask("/-/", cookie=f"combee-page-team-b={value}")).status == 303


async def test_a_service_accounts_token_signs_in_to_where_tokens_are_reviewed() -> None:
    site = Site()
    reply = await site.sign_in(TOKEN)
    assert reply.status == 303
    assert (await site.ask("/-/playbooks/by-token", cookie=reply.cookie)).status == 200
    assert (await site.ask("/-/playbooks/formula", cookie=reply.cookie)).status == 404
    away = await site.sign_in("api.server.away")
    assert (away.status, "set-cookie" in away.headers) == (503, False)


async def test_a_token_that_a_browser_would_not_keep_is_told_so() -> None:
    async def anything(token: str) -> bool:
        return True

    reply = await Site(checks={"by-token": anything}).sign_in("x" * 5000)
    assert (reply.status, "set-cookie" in reply.headers) == (400, False)
    odd = await Site(checks={"by-token": anything}).sign_in("a; Domain=evil.example")
    assert (odd.status, "set-cookie" in odd.headers) == (400, False)


@pytest.mark.parametrize("key", ["", "wrong", "x" * 40_000, KEY + "\0", KEY.upper()])
async def test_a_wrong_key_is_refused_and_not_repeated(key: str) -> None:
    reply = await Site().sign_in(key)
    assert reply.status in (401, 413)
    assert "set-cookie" not in reply.headers
    assert not key or key not in reply.text


async def test_another_sites_form_signs_nobody_in_or_out() -> None:
    for site in ("cross-site", "same-site"):
        for path in ("/-/sign-in", "/-/sign-out"):
            reply = await Site().ask(path, "POST", urlencode({"key": KEY}), **{BROWSER: site})
            assert (reply.status, "set-cookie" in reply.headers) == (403, False)
    assert (await Site().sign_in(**{BROWSER: "same-origin"})).status == 303


async def test_signing_out_takes_the_cookie_away() -> None:
    reply = await Site().ask("/-/sign-out", "POST")
    assert (reply.status, reply.headers["location"]) == (303, "sign-in")
    assert reply.headers["set-cookie"].startswith("combee-page-team-a=; Max-Age=0;")


@pytest.mark.parametrize(
    ("wanted", "location"),
    [
        ("playbooks/formula", "./playbooks/formula"),
        (
            f"playbooks/formula/diff?from={ACTIVE}&to={CANDIDATE}",
            f"./playbooks/formula/diff?from={ACTIVE}&to={CANDIDATE}",
        ),
        ("https://evil.example/", "./"),
        ("//evil.example", "./"),
        ("../formula/v1/models", "./"),
        ("playbooks/../../x", "./"),
        ("playbooks/a\r\nSet-Cookie: x=1", "./"),
    ],
)
async def test_after_signing_in_one_is_where_one_wanted_to_be_on_this_page_only(
    wanted: str, location: str
) -> None:
    reply = await Site().ask("/-/sign-in", "POST", urlencode({"key": KEY, "to": wanted}))
    assert (reply.status, reply.headers["location"]) == (303, location)


# -- what it answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        *((path, "GET", 200) for path in PATHS),
        *((path, "HEAD", 200) for path in PATHS),
        *((path, verb, 405) for path in PATHS for verb in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS")),
        ("/-", "GET", 308),
        ("/-/sign-in", "GET", 200),
        ("/-/playbooks/formula/diff", "GET", 404),
        ("/-/playbooks/formula/diff?from=zz&to=..", "GET", 404),
        ("/-/playbooks/formula/diff?" + "&".join(["from=abcd"] * 20), "GET", 404),
        ("/-/playbooks/formula/versions/abcdef", "GET", 404),
        ("/-/playbooks/formula/versions/../../x", "GET", 404),
        ("/-/%2e%2e/formula", "GET", 404),
    ],
)
async def test_it_reads_and_nothing_more_and_every_answer_has_the_headers(
    path: str, method: str, status: int
) -> None:
    reply = await Site().ask(path, method, authorization=f"Bearer {KEY}")
    assert reply.status == status
    assert {name: reply.headers[name] for name, _ in safe_headers()} == dict(safe_headers())


async def test_the_policy_allows_the_one_style_sheet_and_nothing_that_acts() -> None:
    policy = dict(safe_headers())["content-security-policy"]
    text = (await Site().ask(PATHS[1], authorization=f"Bearer {KEY}")).text
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; form-action 'self'; base-uri "
        f"'none'; "
        "frame-ancestors 'none'"
    )
    assert dict(safe_headers())["x-frame-options"] == "DENY"
    assert dict(safe_headers())["cache-control"] == "no-store"


async def test_no_page_tells_a_key_or_the_operators_memory() -> None:
    for path in PATHS:
        text = (await Site().ask(path, authorization=f"Bearer {KEY}")).text
        assert KEY not in text and "upstream-key" not in text and "spans" not in text


async def test_content_that_cannot_be_had_is_told() -> None:
    site = Site()
    page = site.page()

    async def gone(version: Version) -> str | None:
        return None

    async def another(version: Version) -> str | None:
        raise UserError("prompt.md was replaced")

    async def away(version: Version) -> str | None:
        raise ClusterError("away", where="GET", status=0)

    for content, status in ((gone, 404), (away, 503), (another, 409)):
        page._published = content
        assert (await ask(page, PATHS[2], authorization=f"Bearer {KEY}")).status == status


async def test_a_fault_of_ours_is_one_line_in_the_log_and_no_detail_on_the_page(
    caplog: pytest.LogCaptureFixture,
) -> None:
    page = Site().page()

    def broken(name: str) -> Seen:
        raise ValueError("the words of somebody")

    page._seen = broken
    reply = await ask(page, PATHS[1], authorization=f"Bearer {KEY}")
    assert reply.status == 500
    assert "somebody" not in reply.text + caplog.text
    assert "ValueError" in caplog.text


async def test_forms_and_problems_take_turns_as_pages_do(monkeypatch: pytest.MonkeyPatch) -> None:
    page, lock, enough = Site().page(), threading.Lock(), threading.Event()
    now = most = 0

    def slow(*arguments: Any, **more: Any) -> Answer:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        enough.wait(PATIENCE_SECONDS)
        with lock:
            now -= 1
        return rendered(*arguments, **more)

    monkeypatch.setattr(app, "rendered", slow)
    asked = [asyncio.create_task(ask(page, "/-/sign-in")) for _ in range(AT_ONCE)]
    asked += [
        asyncio.create_task(ask(page, "/-/sign-in", "POST", **{BROWSER: "cross-site"}))
        for _ in range(AT_ONCE)
    ]
    await until(lambda: most >= AT_ONCE)
    enough.set()
    assert {reply.status for reply in await asyncio.gather(*asked)} == {200, 403}
    assert most == AT_ONCE


async def test_requests_are_counted_by_status() -> None:
    site = Site()
    await site.sign_in("wrong")
    await site.sign_in()

    def counted(code: str) -> float | None:
        return site.metrics.registry.get_sample_value("combee_gateway_page_requests_total", {"code": code})

    assert (counted("401"), counted("303"), counted("200")) == (1.0, 1.0, None)


async def test_the_gateway_hands_over_only_where_some_playbook_wants_to_be_shown() -> None:
    site = Site()
    table = Table(
        {"formula": Route("formula", Served("", ""), "http://llm/v1", "", SecretKeys([KEY]))}, known=True
    )
    hidden = Page(lambda: table, lambda _: Seen({}), cast(Any, None), site.metrics, NAMESPACE)
    for page, status in ((site.page(), 200), (hidden, 404), (None, 404)):
        gateway = Gateway(lambda: table, cast(Upstreams, None), Metrics(), Room(1 << 20), None, page)
        assert (await ask(gateway, "/-/", authorization=f"Bearer {KEY}")).status == status
    for path in ("/-x/", "/", "/--/v1/models", "/formula/-/"):
        gateway = Gateway(lambda: table, cast(Upstreams, None), Metrics(), Room(1 << 20), None, site.page())
        assert (await ask(gateway, path, authorization=f"Bearer {KEY}")).status == 404


# -- what anybody wrote --------------------------------------------------------------------------------

VOID = {"meta", "link", "input"}
HOSTILE = (
    "</li></style></svg></table><script>alert(1)</script><img src=x onerror=alert(2)> {{ 7*7 }} & &lt;b&gt; "
    '" onfocus=alert(3) x=" \' javascript:alert(4) \x1b[2J\u202e'
)
ATTRIBUTES = """
class href rel name content charset lang id aria-label aria-hidden aria-current aria-labelledby role
tabindex scope
method action type value required checked datetime viewbox x y x1 x2 y1 y2 cx cy r dy points fill fill-opacity
stroke-width stroke-dasharray font-size text-anchor
"""
ALLOWED = frozenset(ATTRIBUTES.split())
NAMES = """
html head meta link title style body a div nav form button span code main footer header p h1 h2 h3 ul li dl
dt dd section
table caption thead tbody tr th td time figure figcaption svg g line text polygon polyline circle strong
details summary
input label ins del b
"""
ELEMENTS = frozenset(NAMES.split())


class Parsed(HTMLParser):
    """Tags with the names of their attributes, in order; balanced; and the text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.links: list[str] = []
        self.inputs: list[dict[str, str | None]] = []
        self.labels: list[str | None] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]
        self.inputs += [dict(attrs)] if tag == "input" else []
        self.labels += [dict(attrs).get("for")] if tag == "label" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@functools.lru_cache(4)
def pages(words: str) -> dict[str, Parsed]:
    """Every page of a Playbook of which everything that anybody can write says ``words``."""
    playbook, versions = copy.deepcopy(told().playbook), copy.deepcopy(told().versions)
    status = playbook["status"]
    status |= {"message": words, "warnings": [words]}
    for entry in (*status["history"], *status["conditions"]):
        entry["message"] = words
    status["history"][0] |= {"by": words, "time": words}
    for one in versions:
        one["spec"]["runRef"]["name"] = (words + "x")[:253]
        one["spec"]["origin"] |= {"method": words[:63], "models": {"task": words[:253]}}
        one["metadata"]["creationTimestamp"] = words
        one["status"]["message"] = words
        for gate in ("content", "heldOut", "canary", "watch"):
            if gate in one["status"]:
                one["status"][gate] |= {"message": words, "against": words}
    view = playbook_view("formula", Seen(playbook, tuple(versions)), told().digests[ACTIVE])
    before, after = (view.version(one) for one in (ACTIVE, CANDIDATE))
    assert before is not None and after is not None
    line = " ".join(words.split()) or "x"
    bullets = f"[x-1] helpful=0 harmful=0 :: a {line}\n[x-2] helpful=0 harmful=0 :: {line}"
    text = f"{line}\n## {line}\n{bullets}\n{line}"
    old = f"## {line}\n[x-1] helpful=0 harmful=0 :: b {line}\n[x-3] helpful=0 harmful=0 :: c {line}"
    common = {"root": "../", "namespace": "team-a", "signed_in": True, "title": words}
    made = {
        "index": {"playbooks": [view]},
        "playbook": {"playbook": view},
        "version": {"playbook": view, "version": after, "content": content_of(text)},
        "diff": {"playbook": view, "before": before, "after": after, "diff": difference_of(old, text)},
        "problem": {"message": words},
        "sign-in": {"wanted": words, "error": words or "x"},
    }
    return {
        name: Parsed(rendered(name, **{**common, "signed_in": name != "sign-in"}, **context).body.decode())
        for name, context in made.items()
    }


def test_hostile_text_stands_on_every_page_as_text() -> None:
    for name, page in pages(HOSTILE).items():
        assert page.tags == pages("plain")[name].tags, name
        assert "<script>alert(1)</script>" in page.text, name
        assert "{{ 7*7 }}" in page.text and "\\u{202e}" in page.text, name
        assert "\x1b" not in page.text and "\u202e" not in page.text


letters = st.characters(exclude_categories=["Cs"])


@settings(max_examples=20, deadline=None)
@given(st.text(letters, max_size=60) | st.text("<>&\"'/=` \\{%}#[]:x-1", max_size=60))
def test_no_text_makes_or_changes_an_element(words: str) -> None:
    made = pages(words)
    for name, page in made.items():
        assert {tag for tag, _ in page.tags} <= ELEMENTS
        assert not [at for _, names in page.tags for at in names if at.startswith("on") or at == "style"]
        if words.strip() and name in ("index", "playbook", "problem"):
            assert page.tags == pages("plain")[name].tags
    assert visible(words) in made["problem"].text


def test_pages_have_no_attribute_that_acts_and_lead_nowhere_else() -> None:
    for name, page in pages("plain").items():
        extra = {
            "autocomplete",
            "spellcheck",
            "maxlength",
            "autofocus",
            "readonly",
            "for",
            "aria-invalid",
            "aria-describedby",
        }
        assert {at for _, names in page.tags for at in names} <= ALLOWED | (
            extra if name == "sign-in" else set()
        )
        for link in page.links:
            assert link.startswith("data:image/svg+xml,") or not re.match(r"[a-z]+:|//", link), link


def test_tables_have_captions_and_heads_and_controls_have_names() -> None:
    for name, page in pages("plain").items():
        tags = [tag for tag, _ in page.tags]
        assert tags.count("table") == tags.count("caption"), name
        assert tags.count("h1") == tags.count("main") == 1, name
        for tag, names in page.tags:
            assert tag != "svg" or {"role", "aria-label"} <= set(names)
            assert tag != "th" or "scope" in names
        for control in page.inputs:
            assert control["type"] == "hidden" or control.get("aria-label") or control["id"] in page.labels
