"""Who may look: logging in and out, what a viewer may not do, and what another site may not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import log_in, window
from tests.live.daemons import LiveDaemon, live, until


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    with live(tmp_path_factory.mktemp("login") / "state", "--slots", "2") as started:
        yield started


@pytest.fixture
def visitor(browser: Browser, pages_url: str) -> Iterator[Page]:
    """The window of somebody who is not logged in."""
    with window(browser, pages_url) as page:
        yield page


def new_token(manager: LiveDaemon, role: str) -> dict[str, Any]:
    made: dict[str, Any] = manager.call("POST", "/api/v1/tokens", {"user": "eve", "role": role})
    return made


def page_process(manager: LiveDaemon) -> psutil.Process | None:
    assert manager.process is not None
    for each in psutil.Process(manager.process.pid).children():
        if "trainmaster.api.web" in each.cmdline() and each.status() != psutil.STATUS_ZOMBIE:
            return each
    return None


def test_a_token_leads_to_the_page_that_one_wanted(manager: LiveDaemon, visitor: Page) -> None:
    wanted = "/?from=a%20link"
    visitor.goto(wanted)
    visitor.get_by_label("Token").fill("tm_wrong")
    visitor.get_by_role("button", name="Log in").click()
    expect(visitor.get_by_text("This token is not valid")).to_be_visible()
    visitor.get_by_label("Token").fill(new_token(manager, "operator")["token"])
    visitor.get_by_role("button", name="Log in").click()
    expect(visitor.get_by_text("eve (operator)").first).to_be_visible()
    assert visitor.url.endswith(wanted)
    visitor.get_by_role("button", name="Account").click()
    visitor.get_by_role("button", name="Log out").click()
    expect(visitor.get_by_label("Token")).to_be_visible()
    visitor.goto("/")
    expect(visitor.get_by_label("Token")).to_be_visible()


def test_a_viewer_sees_pages_and_is_refused_by_the_api(manager: LiveDaemon, visitor: Page) -> None:
    log_in(visitor, new_token(manager, "viewer")["token"])
    visitor.goto("/")
    expect(visitor.get_by_text("eve (viewer)").first).to_be_visible()
    node = manager.call("GET", "/api/v1/nodes")["nodes"][0]["name"]
    refused = visitor.request.post(f"/api/v1/nodes/{node}/drain")
    assert (refused.status, refused.json()["error"]["code"]) == (403, "not_allowed")


def test_who_looks_is_logged_out_when_the_token_is_revoked(
    manager: LiveDaemon, visitor: Page
) -> None:
    made = new_token(manager, "user")
    log_in(visitor, made["token"])
    visitor.goto("/")
    expect(visitor.get_by_text("eve (user)").first).to_be_visible()
    manager.call("DELETE", f"/api/v1/tokens/{made['id']}")
    expect(visitor.get_by_label("Token")).to_be_visible()


def test_a_page_says_when_it_is_away_and_comes_back_by_itself(
    manager: LiveDaemon, visitor: Page
) -> None:
    log_in(visitor, new_token(manager, "user")["token"])
    visitor.goto("/")
    expect(visitor.get_by_text("eve (user)").first).to_be_visible()
    visitor.evaluate("window.before = true")
    killed = page_process(manager)
    assert killed is not None
    visitor.context.set_offline(True)
    os.kill(killed.pid, signal.SIGKILL)
    expect(visitor.get_by_text("The manager does not answer.")).to_be_visible()
    visitor.context.set_offline(False)
    visitor.wait_for_function("!window.before && window.did_handshake")
    expect(visitor.get_by_text("eve (user)").first).to_be_visible()
    again = page_process(manager)
    assert again is not None
    assert again.pid != killed.pid
    assert Path(manager.folder, "pages.log").stat().st_mode & 0o777 == 0o600


def test_another_site_gets_no_websocket(manager: LiveDaemon, page: Page, pages_url: str) -> None:
    asking = """([url, from]) => new Promise((done) => {
        const socket = new WebSocket(url);
        socket.onopen = () => done("open");
        socket.onerror = () => done("refused");
    })"""
    client = page.evaluate("window.clientId")
    path = f"/_nicegui_ws/socket.io/?EIO=4&transport=websocket&client_id={client}"
    url = pages_url.replace("http", "ws") + path
    assert page.evaluate(asking, [url, ""]) == "open"
    other = "http://127.0.0.1:9"  # as a page that a job serves: the same site, but for its port
    page.route(f"{other}/**", lambda route: route.fulfill(body="<p>evil", content_type="text/html"))
    page.goto(f"{other}/")
    assert page.evaluate(asking, [url, ""]) == "refused"


def test_the_page_process_ends_with_a_manager_that_is_killed(
    tmp_path: Path, browser: Browser
) -> None:
    with live(tmp_path / "state", "--slots", "1") as manager:
        assert page_process(manager) is None, "nobody has looked yet"
        with window(browser, str(manager.url)) as page:
            log_in(page, (manager.folder / "admin-token").read_text().strip())
            page.goto("/")
            started = until(lambda: page_process(manager), "the process of the pages")
            manager.kill()
            until(lambda: not started.is_running() or started.status() == "zombie", "its end")
