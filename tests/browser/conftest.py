"""A browser, a manager with four CPU slots, and its pages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.chromium import ARGUMENTS, executable
from tests.live.daemons import LiveDaemon, live

RUNS = "TRAINMASTER_TEST_WEB"
collect_ignore_glob = [] if os.environ.get(RUNS) else ["*"]
SCREENSHOTS = "TRAINMASTER_SCREENSHOTS"
"""Set: pictures of the pages are written; else a run of the tests leaves the tree as it is."""
PICTURES = Path(__file__).parents[2] / "docs" / "screenshots"
PATIENCE_MS = 20_000
expect.set_options(timeout=PATIENCE_MS)
SETTLE_MS = 700
"""Until charts are drawn, in the other colours too."""
Screenshot = Callable[..., None]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=executable(), args=list(ARGUMENTS), headless=True
        )
        yield started
        started.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LiveDaemon]:
    with live(tmp_path / "state", "--slots", "4") as started:
        yield started


@pytest.fixture
def pages_url(manager: LiveDaemon) -> str:
    """Where the pages are served."""
    assert manager.url is not None
    return manager.url


@pytest.fixture
def page(browser: Browser, manager: LiveDaemon, pages_url: str) -> Iterator[Page]:
    """A window at 1280x800 of an admin, on the first page."""
    with window(browser, pages_url) as made:
        log_in(made, (manager.folder / "admin-token").read_text().strip())
        made.goto("/")
        expect(made.locator("header")).to_be_visible()
        yield made


@contextmanager
def window(browser: Browser, url: str, width: int = 1280, height: int = 800) -> Iterator[Page]:
    """That of somebody who is not logged in."""
    context = browser.new_context(viewport={"width": width, "height": height}, base_url=url)
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()


def log_in(page: Page, token: str) -> None:
    """As the form of the login page does it."""
    answer = page.request.post("/login", form={"token": token, "then": "/"}, max_redirects=0)
    assert answer.status == 303, answer.text()


@pytest.fixture
def screenshot() -> Screenshot:
    """`screenshot(page, "jobs")` writes docs/screenshots/jobs.png, and with `dark=True` jobs-dark.png too."""

    def take(page: Page, name: str, *, dark: bool = False) -> None:
        if not os.environ.get(SCREENSHOTS):
            return
        PICTURES.mkdir(exist_ok=True)
        shown = {"": "light", "-dark": "dark"} if dark else {"": "light"}
        for suffix, scheme in shown.items():
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(SETTLE_MS)
            page.screenshot(path=PICTURES / f"{name}{suffix}.png", animations="disabled")
        page.emulate_media(color_scheme="light")

    return take
