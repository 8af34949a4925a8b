"""Renders the page's HTML and its security headers.

What a model, a person or another server wrote is hostile: jinja2 escapes all of it, and characters that hide
or act are made visible first, as in a run's report. The page needs no script, and the content security policy
allows no script, no style but the one whose digest it names, nothing from other sites, no frame around it and
no form that posts elsewhere.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from combee.gateway.page.plot import BOTTOM, HEIGHT, LEFT, RIGHT, WIDTH
from combee.report.text import count, visible

if TYPE_CHECKING:
    from jinja2 import Environment

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(:\d\d(\.\d+)?)?Z")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the browser."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


def rendered(template: str, *, status: int = 200, **context: Any) -> Answer:
    """Return a rendered page. This takes milliseconds: call it in a thread."""
    text = _environment().get_template(f"{template}.html.j2").render(**context)
    return Answer(status, text.encode("utf-8", "replace"), (("content-type", "text/html; charset=utf-8"),))


@functools.cache
def prepare() -> None:
    """Read and compile the templates once, before requests would have to wait for it."""
    environment = _environment()
    for name in environment.list_templates(extensions=["j2"]):
        environment.get_template(name)


@functools.cache
def safe_headers() -> tuple[tuple[str, str], ...]:
    """Return the headers that every answer of the page carries."""
    policy = (
        "default-src 'none'",
        f"style-src '{_style()[1]}'",
        "img-src data:",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
    return (
        ("content-security-policy", "; ".join(policy)),
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-robots-tag", "noindex"),
        ("cache-control", "no-store"),
    )


def moment(time: str) -> str:
    """Return a time of the API server as people read it.

    >>> moment("2026-01-02T03:04:05Z"), moment("now")
    ('2026-01-02 03:04', 'now')
    """
    match = _TIME.fullmatch(time)
    return f"{match[1]} {match[2]}" if match else time


@functools.cache
def _style() -> tuple[str, str]:
    """Return the style sheet, the report's first, and its digest as a policy names it."""
    report = files("combee.report").joinpath("templates/report.css").read_text("utf-8")
    style = report + files(__package__).joinpath("templates/page.css").read_text("utf-8")
    return style, f"sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}"


@functools.cache
def _environment() -> Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("combee.gateway.page", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_plain,
    )
    environment.filters.update(count=count, moment=moment)
    area = {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT, "bottom": HEIGHT - BOTTOM}
    environment.globals.update(style=_style()[0], area=area)
    return environment


def _plain(value: object) -> object:
    """Make visible what hides or acts in strings before jinja2 escapes them; our own markup stays as it
    is."""
    return visible(value) if type(value) is str else value
