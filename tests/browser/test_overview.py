"""The first page and the list of jobs: what a person sees is what the API answers."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Screenshot, log_in
from tests.live.daemons import LiveDaemon, live, until

HOSTILE = "<img src=x onerror=alert(1)>{{ 7*7 }}"
LONG = "a-very-long-name-" * 5
ARABIC = "تدريب-النموذج"
SEEN = """() => {
  const grid = document.querySelector('canvas[role=img]')?.picture;
  const places = (grid?.places ?? []).map((each) => each.slice(0, 2));
  return { squares: grid?.squares ?? [], places, size: grid?.size };
}"""
"""What the grid shows, and where."""
PIXELS = """([x, y, size]) => {
  const canvas = document.querySelector('canvas[role=img]'), ratio = window.devicePixelRatio;
  const at = [x, y, size, size].map((each) => Math.round(each * ratio));
  const seen = canvas.getContext('2d').getImageData(...at).data, found = new Set();
  for (let i = 0; i < seen.length; i += 4) found.add(seen.slice(i, i + 3).join(','));
  return [...found];
}"""
"""The colours of a square."""


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    with live(tmp_path_factory.mktemp("overview") / "state", "--slots", "6") as started:
        started.call("PUT", "/api/v1/queues/research", {"guaranteed_gpus": 3})
        yield started


@pytest.fixture(autouse=True)
def nothing_left(manager: LiveDaemon) -> Iterator[None]:
    yield
    for job in listed(manager):
        with contextlib.suppress(HTTPError):  # it has just ended
            manager.call("POST", f"/api/v1/jobs/{job['id'].partition('_')[0]}/cancel?now=true")
    until(lambda: not listed(manager), "all jobs to have ended")


def listed(manager: LiveDaemon) -> list[dict[str, Any]]:
    states = "pending,running,suspended"
    return list(manager.call("GET", f"/api/v1/jobs?state={states}&limit=1000")["jobs"])


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def submit(manager: LiveDaemon, name: str, command: str = "sleep 300", **more: Any) -> str:
    job = {"name": name, "command": command, "gpus": 1, "snapshot": False, "preflight": False}
    return str(manager.call("POST", "/api/v1/jobs", {**job, **more})["jobs"][0]["id"])


def runs(manager: LiveDaemon, job: str) -> None:
    is_there = lambda: manager.call("GET", f"/api/v1/jobs/{job}")["state"] == "running"  # noqa: E731
    until(is_there, f"job {job} to run")


def tile(page: Page, key: str) -> Locator:
    return page.locator(f'[data-tile="{key}"] .tm-value')


def row(page: Page, job: str) -> Locator:
    return page.locator("tr").filter(has=page.get_by_role("link", name=job, exact=True))


def shows(page: Page, wanted: Any) -> Any:
    """What the grid shows, once it is as wanted."""
    found: list[Any] = []

    def is_so() -> bool:
        found[:] = [page.evaluate(SEEN)]
        return bool(wanted(found[0]["squares"]))

    until(is_so, "the grid to show it")
    return found[0]


def test_every_number_of_the_first_page_is_the_apis(
    page: Page, manager: LiveDaemon, screenshot: Screenshot
) -> None:
    first = submit(manager, "resnet50", gpus=2, queue="research")
    submit(manager, "bert-large")
    runs(manager, first)
    submit(manager, "gpt-medium", gpus=6, queue="research")
    failed = submit(manager, "vit-large", f"echo '{OOM}' >&2; exit 1", retries=0)
    until(lambda: manager.call("GET", f"/api/v1/jobs/{failed}")["state"] == "failed", "a failure")

    def overview() -> dict[str, Any]:
        return dict(manager.call("GET", "/api/v1/overview"))

    until(lambda: overview()["gpus_used"] == 3 and overview()["oldest_wait"], "two jobs to run")
    said = overview()
    expect(tile(page, "gpus")).to_have_text(f"{said['gpus_used']} of {said['gpus']}")
    for key in ("running", "pending", "suspended"):
        expect(tile(page, key)).to_have_text(str(said[key]))
    expect(tile(page, "lost")).to_have_text(f"{said['lost_gpu_hours']:.2f}")
    assert said["utilisation"] is None  # CPU slots are not measured
    expect(tile(page, "utilisation")).to_have_text("–")
    assert said["oldest_wait"]["name"] == "gpt-medium"
    waits = page.locator('[data-tile="pending"] .tm-more')
    expect(waits).to_contain_text(said["oldest_wait"]["sentence"])
    (queue,) = (each for each in said["queues"] if each["name"] == "research")
    assert (queue["gpus"], queue["starved_gpus"], queue["waiting_gpus"]) == (2, 1, 6)
    expect(page.locator('[data-queue="research"]')).to_contain_text(
        "2 used of 3 guaranteed, 1 starved, 6 wanted"
    )
    (why,) = (each for each in said["failures"] if failed in each["jobs"])
    expect(page.get_by_text(re.compile(f"{why['runs']} run(s)? failed in 24 h"))).to_be_visible()
    expect(page.get_by_text(f"Policy: {said['policy']}")).to_be_visible()
    for job in listed(manager):
        expect(row(page, job["id"])).to_contain_text(job["state"])
    grid = manager.call("GET", "/api/v1/grid")
    seen = shows(page, lambda squares: sum(bool(each[0]) for each in squares) == 3)
    for device, job, share, how in grid["held"]:
        assert seen["squares"][device][0] == [[grid["jobs"][job]["id"], share, how]]
    tile(page, "running").click()
    page.wait_for_url("**/jobs?state=running")
    expect(page.locator("tbody tr")).to_have_count(said["running"])


def test_a_suspended_job_is_hatched_in_the_grid_and_in_the_timeline(
    page: Page, manager: LiveDaemon, screenshot: Screenshot
) -> None:
    other, job = submit(manager, "resnet50", gpus=2), submit(manager, "llama-8b", gpus=2)
    submit(manager, "lr-sweep", "sleep 0.5", array="0-7%1", queue="research")
    runs(manager, job)
    runs(manager, other)
    seen = shows(
        page, lambda squares: [job, 1, 0] in [piece for each in squares for piece in each[0]]
    )
    where = next(i for i, each in enumerate(seen["squares"]) if [job, 1, 0] in each[0])
    place = [*seen["places"][where], seen["size"]]
    plain = page.evaluate(PIXELS, place)
    page.wait_for_timeout(3000)  # that its bar is wide enough to be seen
    manager.call("POST", f"/api/v1/jobs/{job}/suspend?force=true")
    shows(page, lambda squares: [job, 1, 1] in squares[where][0])
    expect(tile(page, "suspended")).to_have_text("1")
    hatched = page.evaluate(PIXELS, place)
    assert len(hatched) > len(plain)
    page.mouse.move(0, 0)
    canvas = page.locator("canvas[role=img]").first
    canvas.hover(position={"x": place[0] + 5, "y": place[1] + 5})
    expect(page.get_by_role("tooltip").first).to_contain_text(f"{job} llama-8b")
    expect(page.get_by_role("tooltip").first).to_contain_text("suspended in memory")
    page.mouse.move(0, 0)
    spans = manager.call("GET", "/api/v1/timeline")["spans"]
    (span,) = (each for each in spans if each["job"] == job)
    assert (span["ended"], len(span["devices"]), span["goes_on"]) == ("suspended", 2, False)
    bars = "document.querySelectorAll('canvas[role=img]')[1].picture.said.bars"
    is_drawn = lambda: any(  # noqa: E731
        bar["job"] == job and not bar["held"] for bar in page.evaluate(bars)
    )
    until(is_drawn, "the timeline to show the suspension")
    screenshot(page, "overview", dark=True)
    manager.call("POST", f"/api/v1/jobs/{job}/resume")
    shows(page, lambda squares: any([job, 1, 0] in each[0] for each in squares))
    canvas.click(position={"x": place[0] + 5, "y": place[1] + 5})
    page.wait_for_url(re.compile("/jobs/"))


def test_an_array_unfolds_and_stays_open_and_in_place_when_something_comes(
    page: Page, manager: LiveDaemon, screenshot: Screenshot
) -> None:
    array = submit(manager, "sweep", array="0-29%2", queue="research")
    for number in range(12):
        submit(manager, f"train-{number}", gpus=6)
    page.goto("/jobs")
    folded = page.locator("tr").filter(has_text=f"{array} (30 jobs)")
    expect(folded).to_contain_text("2 running")
    expect(folded).to_contain_text("28 pending")
    expect(row(page, f"{array}_7")).to_have_count(0)
    page.get_by_label(f"Unfold {array}").click()
    expect(row(page, f"{array}_7")).to_contain_text("pending")
    waiting = next(each for each in listed(manager) if each["name"] == "train-3")
    expect(row(page, waiting["id"])).to_contain_text(waiting["reason"]["sentence"][:40])
    screenshot(page, "jobs", dark=True)
    page.evaluate("window.scrollTo(0, 400)")
    before = page.evaluate("window.scrollY")
    assert before > 200
    newest = submit(manager, "newest")
    expect(row(page, newest)).to_be_attached()
    expect(row(page, f"{array}_7")).to_be_attached()
    assert abs(page.evaluate("window.scrollY") - before) < 60  # one row was added above
    page.get_by_label("Name or id", exact=True).fill("train-3")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Name or id", exact=True).fill("nothing like it")
    expect(page.get_by_text("No job matches.")).to_be_visible()


def test_pages_of_many_jobs_follow_each_other(page: Page, manager: LiveDaemon) -> None:
    common = {"command": "sleep 300", "gpus": 6, "snapshot": False, "preflight": False}
    jobs = [{**common, "name": f"many-{number}"} for number in range(110)]
    manager.call("POST", "/api/v1/jobs", {"jobs": jobs})
    page.goto("/jobs?text=many")
    expect(page.locator("tbody tr")).to_have_count(100)
    page.get_by_role("button", name="Older").click()
    expect(page.get_by_text("Page 2")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(10)
    expect(page.get_by_text("many-0", exact=True)).to_be_visible()
    page.get_by_role("button", name="Newer").click()
    expect(page.get_by_text("many-109", exact=True)).to_be_visible()


@pytest.mark.parametrize("path", ["/", "/jobs"])
def test_hostile_names_are_text(page: Page, manager: LiveDaemon, path: str) -> None:
    asked: list[str] = []
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    ids = [submit(manager, name) for name in (HOSTILE, LONG, ARABIC)]
    runs(manager, ids[0])
    page.goto(path)
    for job, name in zip(ids, (HOSTILE, LONG, ARABIC), strict=True):
        expect(row(page, job)).to_contain_text(name)
    if path == "/":
        seen = shows(page, lambda squares: any(each[0] for each in squares))
        where = next(
            i for i, each in enumerate(seen["squares"]) if each[0] and each[0][0][0] == ids[0]
        )
        x, y = seen["places"][where]
        page.locator("canvas[role=img]").first.hover(position={"x": x + 4, "y": y + 4})
        expect(page.get_by_role("tooltip").first).to_contain_text(HOSTILE)
    assert page.locator("#content img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert asked == []


def test_on_a_phone_the_page_is_as_wide_as_the_screen(page: Page, manager: LiveDaemon) -> None:
    runs(manager, submit(manager, "resnet50", gpus=2))
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/")
    expect(tile(page, "running")).to_have_text("1")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_plain_user_sees_that_others_hold_gpus_and_not_which_job(
    page: Page, manager: LiveDaemon
) -> None:
    runs(manager, submit(manager, "secret-project", gpus=6))
    submit(manager, "secret-plans")
    until(lambda: manager.call("GET", "/api/v1/overview")["oldest_wait"], "a job to wait")
    made = manager.call("POST", "/api/v1/tokens", {"user": "bob", "role": "user"})
    bob = manager.bearer(made["token"])
    grid = manager.call("GET", "/api/v1/grid", **bob)
    assert grid["jobs"] == []
    assert [job for _, job, _, _ in grid["held"]] == [None] * 6
    spans = manager.call("GET", "/api/v1/timeline", **bob)["spans"]
    assert {(span["job"], span["name"]) for span in spans} == {(None, "")}
    wait = manager.call("GET", "/api/v1/overview", **bob)["oldest_wait"]
    assert (wait["name"], wait["sentence"]) == ("", None)
    page.context.clear_cookies()
    log_in(page, made["token"])
    page.goto("/")
    expect(tile(page, "gpus")).to_have_text("6 of 6")
    seen = shows(page, lambda squares: any(each[0] for each in squares))
    assert seen["squares"][0][0] == [[None, 1, 0]]
    expect(page.get_by_text("No job of yours waits or runs")).to_be_visible()
    assert "secret" not in page.content()
