"""A job from its submission to its end, as a person sees it: its page, and the page that submits."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import SCREENSHOTS, Screenshot, log_in, window
from tests.live.daemons import LiveDaemon, live, until
from trainmaster.gpu import fake_driver
from trainmaster.gpu.driver import FAKE_GPUS
from trainmaster.text.formatting import significant, utc_time

V1 = "/api/v1"
SOON_MS = 15_000
TRAINS = """
import math
import trainmaster_sdk
from trainmaster.gpu import fake_driver
fake_driver.allocate(11 << 30, util_ppm=830_000)
print("\\x1b[1;32mwandb\\x1b[0m: View run fine-7 at https://wandb.ai/ada/resnet/runs/x1y2z3", flush=True)
with trainmaster_sdk.run() as tm:
    found = tm.load()
    step = found.step if found else 0
    while step < 5000 and not tm.should_stop():
        fake_driver.step(0.05)
        step += 1
        loss = 2.5 * math.exp(-step / 80) + 0.05 * math.sin(step)
        tm.progress(step=step, loss=loss, total_steps=5000)
        print(f"step {step} loss {loss:.4f}", flush=True)
    tm.save({"step": step}, step)
"""
HOSTILE = (
    "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
    " \u202egnp.exe \u05e9\u05dc\u05d5\u05dd \x1b]0;owned\x07\x1b[31mred\x1b[0m {{ 7 * 7 }} **bold**"
)
"""What a program writes; the right-to-left word stays as it is."""
AS_TEXT = (
    "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
    " \\u202egnp.exe \u05e9\u05dc\u05d5\u05dd red {{ 7 * 7 }} **bold**"
)
MARKUP = "<img src=x onerror=alert(1)> **b** {{ 7 * 7 }}"
"""A name that a job may have."""


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    """One for all, with four GPUs that are played: its start takes longer than a test."""
    folder = tmp_path_factory.mktemp("job-page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FAKE_GPUS, str(fake_driver.make_folder(folder / "gpus", gpus=4)))
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        with live(folder / "state") as started:
            yield started


def number(page: Page, name: str) -> Locator:
    """What the top of the page calls so, such as `GPU-hours`."""
    return page.locator(f'[data-of="{name}"]')


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def state(page: Page, words: str) -> None:
    expect(page.locator(".q-badge").first).to_have_text(words, timeout=SOON_MS)


def ask(manager: LiveDaemon, path: str) -> Any:
    return manager.call("GET", f"{V1}{path}")


def becomes(manager: LiveDaemon, job: str, wanted: str) -> Any:
    def found() -> Any:
        row = ask(manager, f"/jobs/{job}")
        return row if row["state"] == wanted and row["transition"] is None else None

    return until(found, f"job {job} to be {wanted}")


def test_a_job_is_submitted_watched_suspended_resumed_and_cancelled(
    page: Page, manager: LiveDaemon, tmp_path: Path, screenshot: Screenshot
) -> None:
    (tmp_path / "train.py").write_text(TRAINS)
    page.goto("/submit")
    button(page, "Submit").click()
    expect(page.get_by_text("command is missing", exact=False)).to_be_visible()
    page.get_by_label("Command", exact=True).fill(f"{sys.executable} {tmp_path}/train.py")
    page.get_by_label("Folder", exact=True).fill(str(tmp_path))
    page.get_by_label("Name", exact=True).fill("resnet50")
    page.get_by_label("Environment variables", exact=True).fill("LR=0.1\nHF_TOKEN=hush")
    page.get_by_label("Priority", exact=True).fill("high")
    button(page, "Check").click()
    wrong = page.locator(".q-field", has=page.get_by_label("Priority", exact=True))
    expect(wrong.get_by_role("alert")).to_contain_text("priority must be a whole number")
    page.get_by_label("Priority", exact=True).fill("3")
    button(page, "Check").click()
    expect(page.get_by_text("It is expected to start now", exact=False)).to_be_visible()
    assert ask(manager, "/jobs?text=resnet50")["jobs"] == []
    screenshot(page, "submit", dark=True)
    button(page, "Submit").dblclick()

    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    state(page, "running")
    (row,) = ask(manager, "/jobs?text=resnet50")["jobs"]
    id = row["id"]
    assert page.url.endswith(f"/jobs/{id}")
    expect(page.get_by_text(re.compile(r"step \d+ loss \d\.\d{4}")).last).to_be_visible()
    link = page.get_by_role("link", name="https://wandb.ai/ada/resnet/runs/x1y2z3")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    expect(page.get_by_text("HF_TOKEN: '***'")).to_be_visible()
    expect(page.get_by_text("hush")).to_have_count(0)
    job = ask(manager, f"/jobs/{id}")
    assert (job["priority"], job["spec"]["env"]["LR"]) == (3, "0.1")
    explained = ask(manager, f"/jobs/{id}/explain")
    expect(page.get_by_text(explained["sentence"], exact=True)).to_be_visible()
    for entry in ask(manager, f"/jobs/{id}/story")["story"]:
        expect(page.get_by_text(entry["sentence"], exact=True).last).to_be_visible()
    expect(page.locator("canvas")).to_have_count(4, timeout=SOON_MS)
    used = ask(manager, f"/jobs/{id}/curves")["gpu"]
    assert {(each["util"], each["memory_bytes"]) for each in used} == {(0.83, 11 << 30)}
    page.wait_for_timeout(6_000 if screenshot_is_taken() else 0)
    screenshot(page, "job", dark=True)

    button(page, "Suspend").click()
    expect(page.get_by_text("until it is resumed", exact=False)).to_be_visible()
    page.get_by_role("dialog").get_by_role("button", name="Suspend").click()
    state(page, "suspended (user)")
    assert becomes(manager, id, "suspended")["suspended_by"] == "user"
    expect(button(page, "Suspend")).to_have_count(0)
    button(page, "Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    state(page, "running")

    button(page, "Change").click()
    page.get_by_label("Priority", exact=True).fill("7")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.get_by_text("queue default \N{MIDDLE DOT} priority 7", exact=False)).to_be_visible()
    assert ask(manager, f"/jobs/{id}")["priority"] == 7

    button(page, "Cancel").click()
    button(page, "Keep it").click()
    assert ask(manager, f"/jobs/{id}")["state"] == "running"
    button(page, "Cancel").click()
    page.get_by_text("Kill it at once", exact=False).click()
    button(page, "Cancel the job").click()
    state(page, "cancelled")
    ended = becomes(manager, id, "cancelled")
    expect(number(page, "GPU-hours")).to_have_text(significant(ended["gpu_s"] / 3600))
    expect(number(page, "Started")).to_have_text(utc_time(round(ended["start_s"] * 1000))[11:])
    expect(number(page, "Step")).to_have_text(f"{ended['progress']['step']:,} of 5,000")
    expect(button(page, "Cancel")).to_have_count(0)
    expect(button(page, "Clone")).to_be_visible()

    button(page, "Clone").click()
    page.wait_for_url(f"**/submit?clone={id}")
    expect(page.get_by_text("set HF_TOKEN again", exact=False)).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_have_value("resnet50")
    page.get_by_role("tab", name="Job file").click()
    expect(page.locator(".cm-content")).to_contain_text("name: resnet50")
    page.locator(".cm-content").fill("command: echo from-a-file\nretrys: 1\n")
    button(page, "Submit").click()
    expect(
        page.get_by_text("unknown key 'retrys'; did you mean retries?", exact=False)
    ).to_be_visible()
    page.locator(".cm-content").fill("command: echo from-a-file\nretries: 0\n")
    button(page, "Submit").click()
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    expect(page.get_by_text("from-a-file", exact=True)).to_be_visible()
    state(page, "succeeded")


def screenshot_is_taken() -> bool:
    return bool(os.environ.get(SCREENSHOTS))


def test_a_waiting_job_says_why_and_a_failed_one_what_was_wrong(
    page: Page, manager: LiveDaemon, tmp_path: Path
) -> None:
    workdir = str(tmp_path)
    holder = manager.submit(command="exec sleep 100", gpus=4, workdir=workdir, name="holder")
    becomes(manager, holder, "running")
    waiting = manager.submit(command="true", workdir=workdir, name="later", preemptible=True)
    until(lambda: ask(manager, f"/jobs/{waiting}")["reason"], "a reason")
    page.goto(f"/jobs/{waiting}")
    state(page, "pending")
    why = ask(manager, f"/jobs/{waiting}/explain")
    assert why["held_by"][0]["id"] == holder
    expect(page.get_by_role("link", name=f"{holder} holder")).to_be_visible()
    begin = why["sentence"].split(";")[0]
    assert "none are free" in begin
    expect(page.get_by_text(begin, exact=False).first).to_be_visible()
    expect(page.get_by_text("simulated; no interval is known")).to_be_visible()
    expect(button(page, "Move")).to_have_count(0)
    manager.call("POST", f"{V1}/jobs/{holder}/cancel?now=true")
    state(page, "succeeded")

    broken = manager.submit(
        command=[sys.executable, "-c", "import nosuchmodule"], workdir=workdir, retries=0
    )
    failed = becomes(manager, broken, "failed")
    page.goto(f"/jobs/{broken}")
    state(page, "failed")
    expect(page.get_by_text(failed["failure"]["title"], exact=True)).to_be_visible()
    expect(page.get_by_text(failed["failure"]["advice"], exact=True)).to_be_visible()
    expect(page.get_by_text("Blame: user", exact=False).first).to_be_visible()
    expect(page.get_by_text("ModuleNotFoundError", exact=False).first).to_be_visible()


def test_work_that_would_be_lost_is_asked_about(
    page: Page, manager: LiveDaemon, tmp_path: Path
) -> None:
    job = manager.submit(
        command="exec sleep 100", workdir=str(tmp_path), stays_in_memory=False, name="rigid"
    )
    becomes(manager, job, "running")
    page.goto(f"/jobs/{job}")
    button(page, "Suspend").click()
    page.get_by_role("dialog").get_by_role("button", name="Suspend").click()
    dialog = page.get_by_role("dialog", name=re.compile(""))
    expect(page.get_by_text("Work would be lost", exact=True)).to_be_visible()
    expect(page.get_by_text("of its work would be lost", exact=False)).to_be_visible()
    expect(page.get_by_text("--force")).to_have_count(0)
    assert ask(manager, f"/jobs/{job}")["state"] == "running"
    dialog.get_by_role("button", name="Suspend and lose it").click()
    state(page, "suspended (user)")


def test_names_and_output_are_shown_as_text(
    page: Page, manager: LiveDaemon, tmp_path: Path
) -> None:
    (tmp_path / "hostile.txt").write_text(HOSTILE + "\n" + "x" * 300_000 + "\n")
    command = "cat hostile.txt; yes 'a line of many' | head -n 200000; echo the end"
    job = manager.submit(
        command=command, workdir=str(tmp_path), name=MARKUP, env={"A": HOSTILE[:90]}
    )
    becomes(manager, job, "succeeded")
    page.on("dialog", lambda _: pytest.fail("a script of a job ran"))
    page.goto(f"/jobs/{job}")
    expect(page.get_by_text(f"{job} {MARKUP}")).to_be_visible()
    log = page.get_by_role("log")
    expect(log).to_contain_text(re.compile("a line of many\nthe end"))
    assert page.title() == f"Job {job} \N{MIDDLE DOT} Trainmaster"
    assert page.locator("img[src=x]").count() == 0
    assert log.evaluate("box => box.innerText.length") < 2_000_000
    page.wait_for_function("document.querySelector('[role=log]').scrollTop > 0")

    short = manager.submit(command="cat hostile.txt", workdir=str(tmp_path), name="short")
    becomes(manager, short, "succeeded")
    page.goto(f"/jobs/{short}")
    expect(page.get_by_role("log")).to_contain_text(AS_TEXT)
    expect(page.get_by_role("log")).to_contain_text("(300,000 characters)")
    assert page.title() == f"Job {short} \N{MIDDLE DOT} Trainmaster"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_an_array_leads_to_its_jobs_and_output_of_all_ranks_is_read(
    page: Page, manager: LiveDaemon, tmp_path: Path
) -> None:
    array = manager.submit(
        command="echo I am $TRAINMASTER_ARRAY_INDEX",
        array="0-2",
        workdir=str(tmp_path),
        name="sweep",
    )
    ranks = manager.submit(
        command="echo rank $RANK says hello", gpus=2, ranks="gpu", workdir=str(tmp_path)
    )
    becomes(manager, array, "succeeded")
    becomes(manager, ranks, "succeeded")
    page.goto(f"/jobs/{array}")
    expect(page.get_by_text(ask(manager, f"/jobs/{array}")["elements"]["sentence"])).to_be_visible()
    page.get_by_role("cell", name=f"{array}_2").click()
    page.wait_for_url(f"**/jobs/{array}_2")
    expect(page.get_by_text("I am 2", exact=True)).to_be_visible()
    expect(page.get_by_text("echo I am $TRAINMASTER_ARRAY_INDEX", exact=False)).to_be_visible()

    page.goto(f"/jobs/{ranks}")
    expect(page.get_by_text("rank 0 says hello")).to_be_visible()
    page.get_by_text("rank 0", exact=True).click()
    page.get_by_role("option", name="all 2 ranks").click()
    expect(page.get_by_role("log")).to_contain_text("[1] rank 1 says hello")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_viewer_may_do_nothing_and_a_user_only_with_its_own_jobs(
    browser: Browser, manager: LiveDaemon, tmp_path: Path
) -> None:
    ada = manager.bearer_of("ada")
    job = manager.call(
        "POST", f"{V1}/jobs", {"command": "sleep 30", "workdir": str(tmp_path)}, **ada
    )["jobs"][0]["id"]
    other = manager.submit(command="true", workdir=str(tmp_path), held=True)
    for user, role in (("ada", "user"), ("eve", "viewer")):
        token = manager.bearer_of(user, role)["Authorization"].removeprefix("Bearer ")
        assert manager.url is not None
        with window(browser, manager.url) as page:
            log_in(page, token)
            page.goto(f"/jobs/{other}")
            said = "There is no job" if role == "user" else "this needs user"
            expect(page.get_by_text(said, exact=False)).to_be_visible()
            page.goto(f"/jobs/{job}")
            if role == "user":
                expect(button(page, "Cancel")).to_be_visible()
                continue
            expect(page.get_by_text(said, exact=False)).to_be_visible()
            expect(button(page, "Cancel")).to_have_count(0)
            page.goto("/submit")
            expect(page.get_by_text("which submits no jobs", exact=False)).to_be_visible()
            expect(button(page, "Submit")).to_have_count(0)
    for id in (job, other):
        manager.call("POST", f"{V1}/jobs/{id}/cancel?now=true")
