"""A browser, a manager with four CPU slots, and its pages."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.chromium import ARGUMENTS, executable
from tests.live.daemons import LiveDaemon, live, until

RUNS = "TRAINMASTER_TEST_WEB"
collect_ignore_glob = [] if os.environ.get(RUNS) else ["*"]
SCREENSHOTS = "TRAINMASTER_SCREENSHOTS"
"""Set: pictures of the pages are written; else a run of the tests leaves the tree as it is."""
PICTURES = Path(__file__).parents[2] / "docs" / "screenshots"
PATIENCE_MS = 20_000
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
def pages_url(manager: LiveDaemon, tmp_path: Path) -> Iterator[str]:
    """Where the pages are served."""
    port = _free_port()
    token = (manager.folder / "admin-token").read_text().strip()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "trainmaster.api.web",
            "--url",
            str(manager.url),
            "--port",
            str(port),
        ],
        env=os.environ | {"TRAINMASTER_PAGE_TOKEN": token},
    )
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: _answers(url), "the pages to be served")
        yield url
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def page(browser: Browser, pages_url: str) -> Iterator[Page]:
    """A window at 1280x800, on the first page."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, base_url=pages_url)
    context.set_default_timeout(PATIENCE_MS)
    made = context.new_page()
    made.goto("/")
    yield made
    context.close()


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


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
