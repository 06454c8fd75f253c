"""A what-if in the browser, and whether the present queue goes on as it was said."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser.conftest import Screenshot
from tests.live.daemons import LiveDaemon, until
from trainmaster.text.formatting import duration, share

ENDED = ("succeeded", "failed", "cancelled")
PATIENCE_MS = 60_000


def rows(manager: LiveDaemon) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = manager.call("GET", "/api/v1/jobs?limit=200")["jobs"]
    return found


def until_all_ended(manager: LiveDaemon) -> None:
    until(lambda: all(row["state"] in ENDED for row in rows(manager)), "all jobs to end")


def run_jobs(manager: LiveDaemon, lengths: Sequence[str], **fields: object) -> list[str]:
    return [
        manager.submit(command=f"sleep {each}", name=f"sleep-{each}", **fields) for each in lengths
    ]


def asked(manager: LiveDaemon, **question: object) -> dict[str, Any]:
    id = manager.call("POST", "/api/v1/whatif", question)["id"]

    def done() -> dict[str, Any] | None:
        row: dict[str, Any] = manager.call("GET", f"/api/v1/whatif/{id}")
        assert row["state"] in ("waiting", "running", "done"), row
        return row if row["state"] == "done" else None

    found: dict[str, Any] = until(done, "the what-if to be done")
    return found


def test_a_what_if_of_the_present_queue_predicts_the_order_of_starts(manager: LiveDaemon) -> None:
    run_jobs(manager, ("1.1", "2.2"))
    run_jobs(manager, ("1.1",), gpus=3)
    until_all_ended(manager)  # from now on it is known how long each takes
    run_jobs(manager, ("1.1", "2.2", "2.2", "2.2"))
    queue = run_jobs(manager, ("2.2", "1.1", "1.1", "2.2", "1.1"))
    last = manager.submit(command="sleep 1.1", name="last", depends_on=[queue[0]])
    wide = manager.submit(command="sleep 1.1", name="wide", gpus=3)
    predicted = asked(manager, queue_now=True)["result"]
    until_all_ended(manager)
    said = {each["job"]: each["sides"][0]["start_s"] for each in predicted["jobs"]}
    real = {row["id"]: row["start_s"] for row in rows(manager)}
    waited = [*queue, last, wide]
    apart = [
        (a, b)
        for a, b in combinations(waited, 2)
        if min(abs(said[a] - said[b]), abs(real[a] - real[b])) > 0.25
    ]
    assert len(apart) > 10
    for a, b in apart:
        assert (said[a] < said[b]) == (real[a] < real[b]), (a, b, said, real)


def test_a_what_if_compares_two_policies(
    page: Page, manager: LiveDaemon, screenshot: Screenshot
) -> None:
    manager.call("PUT", "/api/v1/queues/lab", {"weight": 2, "guaranteed_gpus": 2})
    run_jobs(manager, ("0.2", "0.6", "1.4", "0.4"), gpus=2)
    run_jobs(manager, ("0.3", "1.2", "0.2", "0.5", "0.9", "0.2"), queue="lab")
    until_all_ended(manager)
    page.goto("/whatif")
    expect(page.get_by_text("Policies are compared once there is 1 d of history")).to_be_visible()
    page.get_by_label("Under, instead of trainmaster").click()
    for name in ("fifo", "las"):
        page.get_by_role("option", name=name, exact=True).click()
    page.keyboard.press("Escape")
    page.get_by_label("More nodes").fill("1")
    page.get_by_role("button", name="Compare").click()
    headline = page.get_by_text("The model's mean is")
    expect(headline).to_be_visible(timeout=PATIENCE_MS)
    newest = manager.call("GET", "/api/v1/whatif")["whatifs"][0]["id"]
    result = manager.call("GET", f"/api/v1/whatif/{newest}")["result"]
    expect(page.get_by_text(result["headline"])).to_be_visible()
    table = page.get_by_role("table").first
    expect(table).to_contain_text("What happened")
    assert [side["name"] for side in result["sides"]] == [
        *("What happened", "trainmaster", "fifo, 1 more node", "las, 1 more node")
    ]
    for side in result["sides"]:
        expect(table).to_contain_text(duration(side["mean_jct_s"]))
        expect(table).to_contain_text(duration(side["mean_wait_s"]))
        expect(table).to_contain_text(share(side["utilisation"]))
    job = result["jobs"][0]
    link = page.get_by_role("link", name=job["job"], exact=True)
    expect(link).to_have_attribute("href", f"/jobs/{job['job']}")
    page.set_viewport_size({"width": 1280, "height": 1500})
    screenshot(page, "whatif", dark=True)
    page.reload()
    expect(page.get_by_text(result["headline"])).to_be_visible()
    page.get_by_label("Under, instead of trainmaster").click()
    page.get_by_role("option", name="gandiva", exact=True).click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("alert").filter(has_text="It was cancelled.")).to_be_visible()
