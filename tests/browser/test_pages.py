"""Pages of nodes, queues, users and usage: the API's numbers, and what operators do there."""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Screenshot, log_in
from tests.live.daemons import LiveDaemon, live
from trainmaster.gpu import fake_driver
from trainmaster.gpu.driver import FAKE_GPUS

V1 = "/api/v1"
COMPUTES = """
from trainmaster.gpu import fake_driver
fake_driver.allocate(40 << 30, util_ppm=800_000)
while True:
    fake_driver.step(0.05)
"""
HOSTILE = "=<img src=x onerror=alert(1)>"
FAILS = "raise MemoryError('CUDA out of memory')"


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveDaemon]:
    """With four GPUs that are played, two queues, and jobs that run, wait and have failed."""
    monkeypatch.setenv(FAKE_GPUS, str(fake_driver.make_folder(tmp_path / "gpus", gpus=4)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with live(tmp_path / "state") as started:
        started.call("PUT", f"{V1}/prices", {"prices": {"H200": 3.2}, "currency": "EUR"})
        terms = {"weight": 2, "guaranteed_gpus": 2, "maximum_gpus": 4}
        started.call("PUT", f"{V1}/queues/vision", terms)
        failing = [sys.executable, "-c", FAILS]
        failed = started.submit(command=failing, name="fails", queue="vision", gpus=1, retries=0)
        started.until_state(failed, "failed")
        computing = [sys.executable, "-c", COMPUTES]
        runs = started.submit(command=computing, name=HOSTILE, queue="vision", gpus=3)
        started.until_state(runs, "running")
        started.submit(command=computing, name="bert", gpus=4, priority=-5)
        yield started


def cells(page: Page, row: str) -> list[str]:
    """Of the first row of a table that begins with that."""
    found = page.locator("tbody tr").filter(has=page.get_by_role("cell", name=row, exact=True))
    return [each.strip() for each in found.first.locator("td").all_inner_texts()]


def test_pages_show_what_the_api_says_and_operators_act_there(
    page: Page, manager: LiveDaemon, screenshot: Screenshot
) -> None:
    """One manager for all: to start it with its jobs takes longest."""
    nodes(page, manager, screenshot)
    queues(page, manager, screenshot)
    usage_and_users(page, manager, screenshot)


def nodes(page: Page, manager: LiveDaemon, screenshot: Screenshot) -> None:
    (node,) = manager.call("GET", f"{V1}/nodes")["nodes"]
    name = node["name"]
    page.goto("/nodes")
    expect(page.get_by_role("cell", name="3 of 4")).to_be_visible()
    assert cells(page, name)[:3] == [name, "up", "H200"]
    screenshot(page, "nodes")

    page.get_by_role("link", name=name, exact=True).click()
    expect(page.locator("canvas").first).to_be_visible()
    expect(page.get_by_role("cell", name=HOSTILE)).to_be_visible()
    assert page.locator("img[src=x]").count() == 0
    expect(page.get_by_role("cell", name="80.0 %").first).to_be_visible()
    screenshot(page, "node", dark=True)

    page.get_by_role("button", name="Drain", exact=True).click()
    page.get_by_role("button", name="Not now").click()
    expect(page.locator(".q-dialog")).to_have_count(0)
    assert manager.call("GET", f"{V1}/nodes")["nodes"][0]["state"] == "up"
    page.get_by_role("button", name="Drain", exact=True).click()
    page.locator(".q-dialog").get_by_role("button", name="Drain").click()
    expect(page.get_by_text("draining", exact=True)).to_be_visible()
    assert manager.call("GET", f"{V1}/nodes")["nodes"][0]["state"] == "draining"
    expect(page.locator(".q-dialog")).to_have_count(0)
    page.get_by_role("button", name="Undrain").click()
    page.locator(".q-dialog").get_by_role("button", name="Undrain").click()
    expect(page.get_by_text("up", exact=True)).to_be_visible()

    page.goto(f"/nodes/{name}/1")
    expect(page.get_by_text(f"/ {name}:1")).to_be_visible()
    expect(page.get_by_text("1 of 1")).to_be_visible()
    page.goto("/nodes/none")
    expect(page.get_by_text("There is no node none.")).to_be_visible()


def queues(page: Page, manager: LiveDaemon, screenshot: Screenshot) -> None:
    page.goto("/queues")
    row = next(r for r in manager.call("GET", f"{V1}/queues")["queues"] if r["name"] == "vision")
    expect(page.get_by_role("cell", name="vision")).to_be_visible()
    assert cells(page, "vision")[2:10] == ["2", "2", "4", "3", "1", "0", "1", "0"]
    assert (row["gpus"], row["running"]) == (3, 1)
    screenshot(page, "queues")
    page.goto("/queues/default")
    expect(page.get_by_role("cell", name="bert")).to_be_visible()
    expect(page.get_by_role("cell", name="needs 4 GPUs")).to_be_visible()
    page.get_by_role("button", name="Change").click()
    page.get_by_label("Weight").fill("7")
    page.locator(".q-dialog").get_by_role("button", name="Change").click()
    expect(page.get_by_text("Changed default.")).to_be_visible()
    rows = {r["name"]: r for r in manager.call("GET", f"{V1}/queues")["queues"]}
    assert rows["default"]["weight"] == 7
    assert rows["vision"]["weight"] == 2


def usage_and_users(page: Page, manager: LiveDaemon, screenshot: Screenshot) -> None:
    page.goto("/usage")
    expect(page.get_by_role("cell", name="vision")).to_be_visible()
    for name in ("running", "failed", "H200"):
        expect(page.get_by_role("cell", name=name, exact=True)).to_be_visible()
    reason = manager.call("GET", f"{V1}/failures")["reasons"][0]
    expect(page.get_by_role("cell", name=reason["reason"], exact=True).first).to_be_visible()
    screenshot(page, "usage", dark=True)

    with page.expect_download() as coming:
        page.get_by_role("button", name="CSV").nth(3).click()
    table = list(csv.DictReader(io.StringIO(Path(coming.value.path()).read_text())))
    assert coming.value.suggested_filename == "usage-by-outcome.csv"
    said = manager.call("GET", f"{V1}/usage?by=outcome")["rows"]
    assert {row["outcome"] for row in table} == {row["outcome"] for row in said}
    hours = {row["outcome"]: row["gpu_hours"] for row in said}
    assert (
        float(next(row["gpu_hours"] for row in table if row["outcome"] == "failed"))
        == hours["failed"]
    )

    user = manager.call("GET", f"{V1}/caller")["user"]
    page.get_by_role("link", name=user, exact=True).click()
    expect(page).to_have_title(f"User {user} · Trainmaster")
    expect(page.get_by_role("cell", name=HOSTILE)).to_be_visible()
    expect(page.get_by_role("cell", name="bert")).to_be_visible()
    screenshot(page, "user")
    page.goto("/users")
    expect(page.get_by_role("link", name=user, exact=True)).to_be_visible()

    made = manager.call("POST", f"{V1}/tokens", {"user": "ada", "role": "user"})
    log_in(page, made["token"])
    page.goto(f"/users/{user}")
    expect(page.get_by_text("You see of other users' jobs only")).to_be_visible()
    expect(page.get_by_role("cell", name="running")).to_be_visible()
    expect(page.get_by_text(HOSTILE)).to_have_count(0)
    page.goto("/nodes")
    page.get_by_role("link", name=manager.call("GET", f"{V1}/nodes")["nodes"][0]["name"]).click()
    expect(page.get_by_text("No job is here that you may see.")).to_be_visible()
    expect(page.get_by_role("button", name="Drain")).to_have_count(0)


def test_two_policies_are_compared_to_the_end(
    page: Page, manager: LiveDaemon, screenshot: Screenshot, tmp_path: Path
) -> None:
    page.goto("/lab")
    page.get_by_label("Cluster: nodes").fill("2x4")
    page.get_by_label("Jobs", exact=True).fill("60")
    page.get_by_text("cancel").nth(1).click()  # las is taken out
    screenshot(page, "lab-form")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_text("under fifo, trainmaster")).to_be_visible()
    expect(page.get_by_text("60 jobs of a trace like philly")).to_be_visible(timeout=60_000)
    (found,) = manager.call("GET", f"{V1}/lab")["comparisons"]
    result = manager.call("GET", f"{V1}/lab/{found['id']}")["result"]
    for metric in result["metrics"]:
        shown = cells(page, metric["label"])[1:3]
        assert [each.removesuffix(" ★") for each in shown] == metric["words"]
        assert [each.endswith("★") for each in shown] == metric["best"]
    assert page.locator("canvas").count() == 4
    screenshot(page, "lab", dark=True)
    with page.expect_download() as coming:
        page.get_by_role("button", name="Full report").click()
    with zipfile.ZipFile(coming.value.path()) as report:
        assert "index.html" in report.namelist()

    page.goto("/lab")
    hostile = tmp_path / "<b>trace.csv"
    hostile.write_text("job_id,submit_s,gpus,duration_s\na,0,1,x\n")
    page.get_by_text("Upload one").click()
    page.locator("input[type=file]").set_input_files(hostile)
    expect(page.locator(".q-uploader__file--uploaded")).to_be_visible()
    page.get_by_role("button", name="Compare").click()
    said = "The trace line 2, column duration_s: 'x' is not a number."
    expect(page.get_by_text(said)).to_be_visible(timeout=60_000)
    expect(page.get_by_text("<b>trace.csv on 8x8")).to_be_visible()
