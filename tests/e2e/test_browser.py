"""The pages for people, in a real Chromium: the gateway's, and a run's report."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from browsing import CONTRAST, MISSING, PATIENCE, Tab, chromium, program, tab
from e2e_support import ROOT
from gateway_parts import ApiServer, Running, content, gateway, secret
from playwright.sync_api import Browser, expect

for folder in ("gateway", "report"):
    sys.path.insert(0, str(ROOT / "tests" / "unit" / folder))

import made_up  # noqa: E402
from page_story import ACTIVE, CANDIDATE, FIRST, NAME, WORSE, Story, story  # noqa: E402

from combee.names import published_name  # noqa: E402
from combee.report.build import build_report, lessons_markdown  # noqa: E402

pytestmark = pytest.mark.e2e
KEY = "key-of-a-person"
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not program():
        if os.environ.get("COMBEE_REQUIRE_BROWSER") == "1":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with chromium() as running:
        yield running


@dataclass
class Scene:
    """A gateway that serves one Playbook with a life behind it."""

    api: ApiServer
    gateway: Running
    story: Story

    def at(self, path: str) -> str:
        """An address of the page's."""
        return f"{self.gateway.url}/-/{path}"

    def sign_in(self, one: Tab, path: str = f"playbooks/{NAME}") -> None:
        """As a person does who opens a link."""
        one.page.goto(self.at(path))
        one.page.get_by_label("Key of the gateway").fill(KEY)
        one.page.get_by_role("button", name="Sign in").click()
        one.page.get_by_role("button", name="Sign out").wait_for()


@pytest.fixture(scope="module")
def scene(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("gateway")
    told = story("http://127.0.0.1:9/v1", keys={"secretRef": {"name": "keys"}})
    secret(folder, "keys", NAME, one=KEY)
    with ApiServer() as api:
        api.put("playbooks", told.playbook)
        for version in told.versions:
            api.put("playbookversions", version)
        for digest, text in told.contents.items():
            api.put("configmaps", content(NAME, digest, text))
        with gateway(api, folder) as running:
            yield Scene(api, running, told)


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_person_signs_in_sees_versions_compares_two_and_sees_the_curve(
    scene: Scene, browser: Browser, scripts: bool
) -> None:
    with tab(browser, java_script_enabled=scripts) as one:
        scene.sign_in(one)
        page = one.page
        assert page.url == scene.at(f"playbooks/{NAME}")
        rows = page.locator("table.versions tbody tr")
        expect(rows).to_have_count(4)
        for short, phase in (
            (ACTIVE, "Active"),
            (CANDIDATE, "Candidate"),
            (FIRST, "Previous"),
            (WORSE, "Refused"),
        ):
            expect(rows.filter(has_text=short)).to_contain_text(phase)
        curves = page.locator("svg.figure")
        expect(curves).to_have_count(3)
        for at in range(3):
            box = curves.nth(at).locator("polygon").bounding_box()
            assert box is not None and box["width"] > 100 and box["height"] > 20
        page.get_by_label(f"Compare from {FIRST}").check()
        page.get_by_label(f"Compare to {CANDIDATE}").check()
        page.get_by_role("button", name="Compare").click()
        expect(page.locator("h1")).to_have_text(f"{FIRST} → {CANDIDATE}")
        expect(page.locator("li.came").filter(has_text="keep the sign")).to_be_visible()
        expect(page.get_by_text('<script>alert("a bullet")</script> is text')).to_be_visible()
        page.get_by_role("link", name=NAME).click()
        page.get_by_label(f"Compare from {ACTIVE}").check()
        page.get_by_role("button", name="Compare").click()
        expect(page.locator("li.reworded del")).to_have_text("two")
        expect(page.locator("li.reworded ins")).to_have_text("three")
        page.get_by_role("link", name=CANDIDATE).click()
        expect(page.locator("h1")).to_contain_text(CANDIDATE)
        expect(page.get_by_text("run formula-ace-4, iteration 5")).to_be_visible()
        expect(page.locator("svg.figure")).to_be_visible()
        if scripts:
            one.flawless()
        assert one.wrong == []
        assert {address for address in one.asked if not address.startswith(("data:", scene.at("")))} == set()


def test_the_key_is_not_in_the_browser_and_signing_out_ends_it(scene: Scene, browser: Browser) -> None:
    with tab(browser) as one:
        scene.sign_in(one)
        (cookie,) = one.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/-")
        assert KEY not in cookie["value"]
        assert one.page.evaluate("document.cookie") == ""
        one.page.get_by_role("button", name="Sign out").click()
        one.page.get_by_label("Key of the gateway").wait_for()
        assert one.context.cookies() == []
        one.page.goto(scene.at(""))
        one.page.get_by_label("Key of the gateway").wait_for()
        one.flawless()


def test_a_wrong_key_is_told_beside_the_field(scene: Scene, browser: Browser) -> None:
    with tab(browser) as one:
        one.page.goto(scene.at(""))
        one.page.get_by_label("Key of the gateway").fill("wrong")
        one.page.get_by_role("button", name="Sign in").click()
        expect(one.page.get_by_role("alert")).to_have_text("This key opens nothing here.")
        assert one.context.cookies() == []


def test_no_script_can_be_put_into_the_page_and_no_frame_around_it(scene: Scene, browser: Browser) -> None:
    with tab(browser) as one:
        scene.sign_in(one)
        one.page.evaluate(
            "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 1\">')"
        )
        add = (
            "script => { const one = document.createElement('script'); "
            "one.textContent = script; document.body.append(one); }"
        )
        one.page.evaluate(add, "window.ran = 1")
        one.page.wait_for_function("window.violations.length >= 2")
        assert one.page.evaluate("window.ran") is None
        one.page.goto("about:blank")
        with one.page.expect_event("requestfailed"):
            one.page.set_content(f'<iframe src="{scene.at("sign-in")}"></iframe>')
        # What it shows instead comes a moment after the refusal is told.
        one.page.frames[-1].wait_for_url(re.compile("^chrome-error:"), wait_until="commit")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [{"width": 1280, "height": 900}, PHONE], ids=["desk", "phone"])
def test_every_page_is_legible_and_as_wide_as_the_window(
    scene: Scene, browser: Browser, scheme: Any, size: Any
) -> None:
    with tab(browser, color_scheme=scheme, viewport=size) as one:
        paths = ["sign-in", "", f"playbooks/{NAME}", f"playbooks/{NAME}/versions/{CANDIDATE}"]
        paths.append(f"playbooks/{NAME}/diff?from={ACTIVE}&to={CANDIDATE}")
        scene.sign_in(one)
        for path in paths:
            one.page.goto(scene.at(path))
            ratio, text = one.page.evaluate(CONTRAST)
            assert ratio >= 4.5, (path, text)
            wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert one.page.evaluate(wide) <= 0, path
        one.flawless()


def test_a_rollback_is_seen_on_the_next_look(scene: Scene, browser: Browser) -> None:
    name = published_name(NAME, scene.story.digests[ACTIVE])
    with tab(browser) as one:
        scene.sign_in(one)
        served = one.page.locator(".tile").filter(has_text="Served here now")
        expect(served).to_contain_text(ACTIVE)
        scene.api.edit("playbookversions", name, lambda body: body["spec"].update(decision="Refuse"))
        try:
            until = time.monotonic() + PATIENCE / 1000
            while FIRST not in served.inner_text() and time.monotonic() < until:
                one.page.wait_for_timeout(100)
                one.page.reload()
            assert FIRST in served.inner_text()
            expect(served).to_contain_text("not what the operator recorded as active")
        finally:
            scene.api.edit("playbookversions", name, lambda body: body["spec"].update(decision="Auto"))
        one.flawless()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_runs_report_opens_by_itself_and_its_plots_are_there(
    browser: Browser, tmp_path: Path, scheme: Any
) -> None:
    result = made_up.result()
    file = tmp_path / "report.html"
    file.write_text(build_report(result, lessons_markdown=lessons_markdown(result)).html, "utf-8")
    with tab(browser, color_scheme=scheme, offline=True) as one:
        one.page.goto(file.as_uri())
        plots = one.page.locator("svg.figure")
        assert plots.count() >= 6
        for at in range(plots.count()):
            box = plots.nth(at).bounding_box()
            assert box is not None and box["width"] > 150 and box["height"] > 80
            assert plots.nth(at).locator("path, use, text").count() > 3
        expect(one.page.locator("h1")).to_contain_text(result.run)
        one.flawless()
        assert one.asked == [file.as_uri()]
