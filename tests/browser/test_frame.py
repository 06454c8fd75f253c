"""What is around every page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.live.daemons import LiveDaemon, live


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    with live(tmp_path_factory.mktemp("frame") / "state", "--slots", "4") as started:
        yield started


def test_the_first_page_has_its_name_and_says_who_looks(page: Page) -> None:
    expect(page).to_have_title("Overview · Trainmaster")
    expect(page.get_by_text("(admin)").first).to_be_visible()
    expect(page.get_by_text("Policy trainmaster").first).to_be_visible()


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_blocked(
    page: Page, pages_url: str
) -> None:
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.reload()
    expect(page.locator("header")).to_be_visible()
    page.wait_for_function("window.did_handshake")
    assert asked
    assert [url for url in asked if not url.startswith((pages_url, "data:", "blob:"))] == []
    assert [each for each in said if each.startswith("error")] == []


def test_keys_lead_to_pages_to_the_search_and_to_their_list(page: Page) -> None:
    page.keyboard.press("?")
    expect(page.get_by_text("Search for a job")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_text("Search for a job")).to_be_hidden()
    page.keyboard.press("/")
    page.keyboard.type("go nj")  # in a field keys are letters
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?text=go%20nj")
    page.goto("/?elsewhere")
    page.wait_for_function("window.did_handshake")
    page.keyboard.press("/")
    page.keyboard.type("12")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/12")
    page.goto("/?elsewhere")
    page.wait_for_function("window.did_handshake")
    page.keyboard.type("go")
    page.wait_for_url("**/")


def test_light_and_dark_follow_the_system_until_one_is_chosen(page: Page) -> None:
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("document.body.classList.contains('body--dark')")
    page.get_by_role("button", name="Account").click()
    page.get_by_role("button", name="Light").click()
    page.wait_for_function("document.body.classList.contains('body--light')")
    page.reload()
    page.wait_for_function("window.did_handshake")
    page.wait_for_function("document.body.classList.contains('body--light')")


def test_on_a_phone_pages_are_in_a_drawer(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    link = page.get_by_role("link", name="Nodes")
    expect(link).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    expect(link).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
