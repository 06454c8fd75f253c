"""Commands that wait follow their manager to another port, and never another manager at the same one."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.answers import job_details, job_list
from tests.cli.conftest import Tm
from tests.cli.counterpart import Answer, Counterpart, refusal, serving, stream
from tests.cli.test_live_daemon import Line
from tests.live.daemons import LiveDaemon, live, until

STANDBY = refusal(503, "unavailable", "This manager is a standby: ask the active one.")
GONE = Answer(body=b"", breaks=True)
END = 'event: end\ndata: {"state": "succeeded", "exit_code": 0}\n\n'
ABSENT = "The manager does not answer; waiting for it"


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Counterpart]]:
    """Two managers; nothing names either of them yet."""
    monkeypatch.setattr("trainmaster.client.polling.LONGEST_PAUSE_S", 0.01)
    monkeypatch.delenv("TRAINMASTER_URL", raising=False)
    with ExitStack() as stack:
        yield [stack.enter_context(serving()) for _ in range(2)]


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of the commands."""
    monkeypatch.setenv("TRAINMASTER_DATA", str(folder))
    return folder


def name_in(folder: Path, manager: Counterpart, pid: int = 1) -> None:
    (folder / "address").write_text(json.dumps({"url": manager.url, "pid": pid}))


def move_to_second(folder: Path, two: list[Counterpart], last: Answer) -> None:
    """Let the first manager know job 5 once, and the second be named when it is asked for again."""
    first, second = two
    name_in(folder, first)

    def leaves(_: object) -> Answer:
        name_in(folder, second)
        return last

    first.on("GET", "/jobs", job_list())
    first.on("GET", "/jobs/5", job_details("5"), leaves)


def elsewhere(job: dict[str, Any], store: str = "another") -> Answer:
    return Answer(body=job, store=store)


def log(text: str, id: str) -> str:
    content = json.dumps({"attempt": 1, "rank": 0, "bytes": text})
    return f"event: log\nid: {id}\ndata: {content}\n\n"


def test_a_waiting_command_asks_the_manager_that_the_file_names_by_now(
    tm: Tm, home: Path, two: list[Counterpart]
) -> None:
    _, second = two
    move_to_second(home, two, STANDBY)
    second.on("GET", "/jobs", job_list())
    second.on("GET", "/jobs/5", job_details("5", "succeeded", exit_code=0))
    said = tm("wait 5")
    assert (said.code, said.err) == (0, "")
    assert len([each for each in second.asked if each.path == "/jobs/5"]) == 1


def test_output_goes_on_at_the_other_manager_where_it_was(
    tm: Tm, home: Path, two: list[Counterpart]
) -> None:
    first, second = two
    move_to_second(home, two, GONE)
    first.on("GET", "/jobs/5/logs", stream(log("b25lCg==", "1;0.7.4"), breaks=True))
    second.on("GET", "/jobs/5", job_details("5", "succeeded", exit_code=0))
    second.on("GET", "/jobs/5/logs", stream(log("dHdvCg==", "1;0.7.8"), END))
    said = tm("logs -f 5")
    assert (said.code, said.out) == (0, "one\ntwo\n")
    (asked,) = (each for each in second.asked if each.path == "/jobs/5/logs")
    assert asked.headers["last-event-id"] == "1;0.7.4"


def test_output_that_was_cut_after_the_end_is_asked_for_again(
    tm: Tm, two: list[Counterpart], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, _ = two
    monkeypatch.setenv("TRAINMASTER_URL", manager.url)
    manager.on("GET", "/jobs", job_list())
    manager.on("GET", "/jobs/5", job_details("5", "succeeded", exit_code=0))
    manager.on(
        *("GET", "/jobs/5/logs"),
        *(stream(log("b25lCg==", "1;0.7.4"), breaks=True), stream(log("dHdvCg==", "1;0.7.8"))),
        stream(END),
    )
    assert tm("logs -f 5").out == "one\ntwo\n"


def test_another_manager_at_the_same_address_is_not_taken_for_the_first(
    tm: Tm, two: list[Counterpart], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, _ = two
    monkeypatch.setenv("TRAINMASTER_URL", manager.url)
    theirs = elsewhere(job_details("5", "succeeded", exit_code=0))
    manager.on("GET", "/jobs", job_list())
    manager.on("GET", "/jobs/5", job_details("5"), GONE, theirs)
    said = tm("wait 5")
    assert said.code == 1
    absent, error = said.err.splitlines()
    assert absent.startswith(ABSENT)
    assert error.startswith(
        f"Error: Another manager, with jobs of its own, answers at {manager.url}"
    )


def test_a_manager_whose_port_another_took_is_waited_for_by_its_file(
    tm: Tm, home: Path, two: list[Counterpart]
) -> None:
    first, second = two
    name_in(home, first)
    job = job_details("5")

    def dies(_: object) -> Answer:
        (home / "address").unlink()
        return elsewhere(job)

    def comes_back(_: object) -> Answer:
        name_in(home, second)
        return elsewhere(job)

    first.on("GET", "/jobs", job_list())
    second.on("GET", "/jobs", job_list())
    first.on("GET", "/jobs/5", job, dies, comes_back)
    second.on("GET", "/jobs/5", job_details("5", "failed", exit_code=3))
    said = tm("wait 5")
    assert said.code == 3
    assert said.err.count(ABSENT) == 1
    assert "\nThe manager answers again.\n" in said.err


def test_a_manager_that_says_why_it_cannot_is_quoted(
    tm: Tm, home: Path, two: list[Counterpart]
) -> None:
    first, _ = two
    name_in(home, first)
    removed = refusal(503, "unavailable", "The database t.db was removed.")
    first.on("GET", "/jobs", job_list())
    last = job_details("5", "succeeded", exit_code=0)
    first.on("GET", "/jobs/5", job_details("5"), removed, last)
    said = tm("wait 5")
    assert (said.code, said.err.splitlines()) == (
        0,
        [
            "The database t.db was removed. Trying again (10 min at most) …",
            "The manager answers again.",
        ],
    )


def test_another_job_of_the_same_id_is_noticed(
    tm: Tm, two: list[Counterpart], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, _ = two
    monkeypatch.setenv("TRAINMASTER_URL", manager.url)
    manager.on("GET", "/jobs", job_list())
    manager.on("GET", "/jobs/5", job_details("5"), job_details("5", "succeeded", uuid="new"))
    said = tm("wait 5")
    assert said.code == 1
    assert "Job 5 is another job now" in said.err


def test_wait_gives_up_in_time_while_no_manager_answers(
    tm: Tm, two: list[Counterpart], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, _ = two
    monkeypatch.setenv("TRAINMASTER_URL", manager.url)
    manager.on("GET", "/jobs", job_list())
    manager.on("GET", "/jobs/5", job_details("5"), GONE)
    said = tm("wait 5 --timeout 1s")
    assert said.code == 124
    assert said.err.splitlines()[-1] == (
        "Error: the time of --timeout 1s is over, and the manager does not answer."
    )


@pytest.mark.parametrize("hangs_at", [0, 1])
def test_wait_gives_up_in_time_while_the_manager_hangs(
    tm: Tm, two: list[Counterpart], monkeypatch: pytest.MonkeyPatch, hangs_at: int
) -> None:
    manager, _ = two
    monkeypatch.setenv("TRAINMASTER_URL", manager.url)
    released = threading.Event()

    def hangs(_: object) -> Answer:
        released.wait(60)
        return GONE

    manager.on("GET", "/jobs", job_list())
    manager.on("GET", "/jobs/5", *[job_details("5")] * hangs_at, hangs)
    said = tm("wait 5 --timeout 500ms")
    was_released = released.is_set()
    released.set()
    assert (said.code, was_released) == (124, False)
    assert said.err == (
        "Error: the time of --timeout 500ms is over, and the manager does not answer.\n"
    )


@pytest.mark.parametrize(
    ("state", "said_of_it"), [("succeeded", "has ended"), ("running", "is running")]
)
def test_output_that_is_always_cut_is_given_up(
    tm: Tm, two: list[Counterpart], monkeypatch: pytest.MonkeyPatch, state: str, said_of_it: str
) -> None:
    manager, _ = two
    monkeypatch.setenv("TRAINMASTER_URL", manager.url)
    monkeypatch.setattr("trainmaster.cli.support.follow.ABSENT_S", 0.2)
    manager.on("GET", "/jobs", job_list())
    manager.on("GET", "/jobs/5", job_details("5", state))
    manager.on("GET", "/jobs/5/logs", GONE)
    said = tm("logs -f 5")
    assert (said.code, said.out) == (1, "")
    assert f"Error: Job 5 {said_of_it}, but its output cannot be read to its end" in said.err
    assert ("The output of job 5 does not come; trying again" in said.err) == (state == "running")


def test_a_server_that_is_not_a_manager_is_told_apart(
    tm: Tm, two: list[Counterpart], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends JSON, but no header of ours; its /healthz is not a manager's either."""
    monkeypatch.setattr("tests.cli.counterpart.STORE_HEADER", "X-Other")
    monkeypatch.setenv("TRAINMASTER_URL", two[0].url)
    two[0].on("GET", "/status", Answer(body=[1]))
    said = tm("status")
    assert said.code == 1
    assert said.err.startswith(f"Error: What answers at {two[0].url} is not a Trainmaster manager")


@pytest.mark.live
def test_run_follows_a_takeover_and_a_restart_on_another_port(tmp_path: Path) -> None:
    ticks = "touch begun; for i in $(seq 1 600); do echo $i; [ -e stop ] && exit 3; sleep 0.1; done"
    with live(tmp_path / "data", "--slots", "2") as leader:
        line = Line(leader, tmp_path)
        standby, next_one = (LiveDaemon(leader.folder, "--slots", "2") for _ in range(2))
        words = line.words("run", "--", "sh", "-c", ticks)
        run = subprocess.Popen(
            *(words,), cwd=tmp_path, env=line.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            until((tmp_path / "begun").exists, "the job to run")
            standby.start()
            until(lambda: "a standby" in (leader.folder / "out.txt").read_text(), "it to stand by")
            leader.kill()
            standby.until_active()
            assert standby.stop() == 0
            next_one.start()
            next_one.until_active()
            (tmp_path / "stop").touch()
            out, err = run.communicate(timeout=60)
        finally:
            run.kill()
            standby.kill()
            next_one.kill()
    assert run.returncode == 3, err
    numbers = [int(each) for each in out.split()]
    assert numbers == list(range(1, len(numbers) + 1))
