"""The live commands against a daemon's HTTP side: what is asked, what is said, exit codes."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.answers import (
    NOW,
    end,
    forecast,
    job_details,
    node_list,
    node_row,
    story_entry,
)
from tests.cli.answers import job_list as listed
from tests.cli.answers import job_row as job
from tests.cli.conftest import Tm
from tests.cli.counterpart import Answer, Counterpart, refusal, serving
from trainmaster.cli.support.lazy_commands import COMMANDS, STUDIES
from trainmaster.client import address
from trainmaster.failures.failure_report import failure_report
from trainmaster.model.failure_report import FailedRun, JobEnd, as_json
from trainmaster.model.units import GIB


def waiting(id: str, **more: Any) -> dict[str, Any]:
    reason = {"code": "NotEnoughFree", "sentence": "It needs 8 GPUs and 5 are free."}
    held = {"nodes": [], "devices": [], "start_s": None, "run_s": 0, "gpu_s": 0}
    return job(id, "pending", reason=reason, **held) | more


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counterpart]:
    with serving() as counterpart:
        monkeypatch.setenv("TRAINMASTER_URL", counterpart.url)
        monkeypatch.setenv("TRAINMASTER_USER", "ada")
        yield counterpart


# -- no daemon, or another one ---------------------------------------------------------------------------


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    for name in ("TRAINMASTER_URL", "TRAINMASTER_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "share"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setattr(address, "PORT", 1)
    monkeypatch.setattr(address, "SYSTEM_SOCKET", folder / "run" / "manager.sock")
    return folder


def test_without_a_daemon_one_sentence_says_how_to_start_one(tm: Tm, alone: Path) -> None:
    said = tm("ps")
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        "Error: No Trainmaster runs here: start one with `trainmaster up`,"
        " or say where it is with --url.\n"
    )


def test_an_address_where_nobody_answers_is_named(tm: Tm, alone: Path) -> None:
    (alone / ".trainmaster").mkdir()
    address = alone / ".trainmaster" / "address"
    address.write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": 1}))
    said = tm("ps")
    assert said.code == 1
    assert said.err == (
        "Error: No Trainmaster answers at http://127.0.0.1:1: start one with `trainmaster up`.\n"
    )


def test_something_else_that_answers_is_told_apart(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/jobs", Answer(200, b"<html>hello</html>", "text/html"))
    assert "is not a Trainmaster manager" in tm("ps").err
    daemon.on("GET", "/jobs", Answer(500, b"<html>oh</html>", "text/html"))
    said = tm("ps")
    assert (said.code, said.err) == (
        1,
        "Error: The manager answered 500 Internal Server Error; its log says more.\n",
    )


def test_a_daemon_that_is_busy_is_not_called_absent(
    tm: Tm, daemon: Counterpart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainmaster.client.manager_api.PATIENCE_S", 0.1)
    released = threading.Event()

    def late(_asked: object) -> Answer:
        released.wait(60)
        return Answer(body=node_list())

    daemon.on("GET", "/nodes", late)
    said = tm("nodes")
    released.set()
    assert said.code == 1
    assert "has not answered for 0.1 s" in said.err


def test_a_refusal_is_the_daemons_own_sentence(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/jobs/99", refusal(404, "not_found", "There is no job 99."))
    said = tm("show 99")
    assert (said.code, said.out, said.err) == (1, "", "Error: There is no job 99.\n")
    daemon.on("PATCH", "/jobs/9", refusal(422, "refused", "queue must not be empty."))
    assert tm("set 9 queue=x").code == 1, "2 is for what is wrong without asking anybody"


# -- ps --------------------------------------------------------------------------------------------------


def test_live_jobs_with_where_or_why_in_the_last_column(tm: Tm, daemon: Counterpart) -> None:
    progress = {"step": 30, "total_steps": 120, "at_s": NOW} | dict.fromkeys(
        ("loss", "samples_per_s", "steps_per_s")
    )
    daemon.on("GET", "/jobs", listed(waiting("3"), job("2", progress=progress)))
    lines = tm("ps").out.splitlines()
    assert lines[0].split() == (
        [
            "id",
            "name",
            "user",
            "queue",
            "state",
            "gpus",
            "waited",
            "run",
            "progress",
            "where",
            "or",
            "why",
        ]
    )
    assert lines[1].endswith("It needs 8 GPUs and 5 are free.")
    assert lines[2].rstrip().endswith("n0")
    assert "25% (30/120)" in lines[2]
    assert "2m05s" in lines[2]
    (asked,) = daemon.asked
    assert "running" in asked.query["state"]
    assert "succeeded" not in asked.query["state"]


def test_the_last_column_of_an_ended_job_says_why(tm: Tm, daemon: Counterpart) -> None:
    missing = "The command 'x' was not found."
    late = "It has run for its time limit of 2 s."
    daemon.on(
        *("GET", "/jobs"),
        listed(
            job("4", "timed_out", exit_code=143, end_reason=end("TimeLimit", late)),
            job("3", "failed", exit_code=127, end_reason=end("NotStarted", missing)),
            job("2", "failed", exit_code=2, end_reason=end("ExitCode", "")),
        ),
    )
    lines = tm("ps -a").out.splitlines()
    assert "timed out" in lines[1]
    assert lines[1].rstrip().endswith(late)
    assert lines[2].rstrip().endswith(f"exit code 127: {missing}")
    assert lines[3].rstrip().endswith("exit code 2")


@pytest.mark.parametrize("command", ["ps", "ls"])
def test_the_names_of_the_list(tm: Tm, daemon: Counterpart, command: str) -> None:
    daemon.on("GET", "/jobs", listed(job("2")))
    assert "job-2" in tm(command).out


def test_a_plain_user_sees_its_own_jobs_and_of_others_little(tm: Tm, daemon: Counterpart) -> None:
    daemon.caller |= {"user": "bob", "role": "user"}
    hidden = job("7", user="eve", name="", submit_s=0, queue_s=0, waiting_s=None, run_s=0)
    hidden |= {"start_s": None, "nodes": [], "devices": [], "progress": None}
    daemon.on("GET", "/jobs", listed(hidden))
    said = tm("ps --all-users")
    assert daemon.asked[-1].query.get("user") is None
    assert said.out.splitlines()[1].split() == (
        ["7", "-", "eve", "default", "running", *("2", "-", "-", "-", "-")]
    )
    tm("ps")
    assert daemon.asked[-1].query["user"] == "bob"
    tm("ps --user eve")
    assert daemon.asked[-1].query["user"] == "eve"
    tm("history")
    assert daemon.asked[-1].query["user"] == "bob"
    daemon.caller["role"] = "operator"
    tm("ps")
    assert "user" not in daemon.asked[-1].query
    daemon.on("GET", "/jobs", listed())
    daemon.caller["role"] = "user"
    assert tm("ps").out.startswith("No jobs. `trainmaster run")


def test_what_is_asked_for_reaches_the_daemon(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/jobs", listed())
    assert tm("ps -a --me -q vision --limit 5").out == "No job matches.\n"
    assert daemon.asked[0].query == {"user": "ada", "queue": "vision", "limit": "100"}
    tm("ps --state 'Pending,timed out'")
    assert daemon.asked[1].query["state"] == "pending,timed_out"
    said = tm("ps --state done")
    assert said.code == 2
    assert "`done` is not a job state: choose from pending, running, suspended" in said.err


def test_all_pages_are_read(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/jobs", listed(job("9"), job("8"), next="8"), listed(job("7")))
    said = tm("ps --json")
    assert [each["id"] for each in json.loads(said.out)["jobs"]] == ["9", "8", "7"]
    assert [asked.query.get("before") for asked in daemon.asked] == [None, "8"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ps", "No jobs."),
        ("ps -a", "No jobs."),
        ("ps --user eve", "No job matches. Add -a for ended ones."),
        ("ps --state timed_out", "No job matches."),
        ("ps -q vision", "No job matches. Add -a for ended ones."),
    ],
)
def test_an_empty_list_says_whether_anything_was_left_out(
    tm: Tm, daemon: Counterpart, line: str, said: str
) -> None:
    daemon.on("GET", "/jobs", listed())
    assert tm(line).out.startswith(said)


def test_a_limit_counts_lines_and_cuts_no_array(tm: Tm, daemon: Counterpart) -> None:
    elements = [job(f"4_{at}", array="4", array_index=at) for at in (2, 1, 0)]
    daemon.on("GET", "/jobs", listed(job("5"), *elements, job("3"), job("2")))
    lines = tm("ps --limit 2").out.splitlines()
    assert [line.split()[0] for line in lines] == ["id", "5", "4_[0-2]"]
    assert "3 running" in lines[2]


def test_arrays_are_folded_unless_each_is_wanted(tm: Tm, daemon: Counterpart) -> None:
    elements = [
        waiting(f"4_{index}", name="sweep", array="4", array_index=index) for index in (2, 1)
    ]
    running = job("4_0", name="sweep", array="4", array_index=0)
    daemon.on("GET", "/jobs", listed(*elements, running, job("3")))
    lines = tm("ps").out.splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("4_[0-2]")
    assert "2 pending, 1 running" in lines[1]
    assert "3x2" in lines[1]
    assert lines[1].endswith("It needs 8 GPUs and 5 are free.")
    assert len(tm("ps -r").out.splitlines()) == 5


def test_wide_says_more(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/jobs", listed(job("2", priority=7)))
    out = tm("ps -o wide").out
    assert "n0:0, n0:1" in out
    assert "priority" in out
    assert json.loads(tm("ps -o json").out)["jobs"][0]["priority"] == 7


def test_watching_goes_on_until_it_is_interrupted(daemon: Counterpart, folder: Path) -> None:
    daemon.on("GET", "/jobs", listed(job("2")), listed(job("3")))
    watching = subprocess.Popen(
        [sys.executable, "-m", "trainmaster", "ps", "--watch"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert watching.stdout is not None
        seen = ""
        while "job-3" not in seen:
            line = watching.stdout.readline()
            assert line, seen
            seen += line
        watching.send_signal(signal.SIGINT)
        _, err = watching.communicate(timeout=60)
    finally:
        watching.kill()
        watching.communicate()
    assert "job-2" in seen
    assert (watching.returncode, err) == (130, "")


def in_terminal(*words: str, until: str) -> str:
    """What a command writes to a screen of 60 x 5, up to this text; then Ctrl-C ends one that watches."""
    screen, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 5, 60, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    program = [sys.executable, "-m", "trainmaster", *words]
    running = subprocess.Popen(program, stdout=end, stderr=end, env=env | {"TERM": "xterm"})
    os.close(end)
    said = b""
    try:
        while until.encode() not in said:
            said += os.read(screen, 1 << 16)
        if "--watch" in words:
            running.send_signal(signal.SIGINT)
        with suppress(OSError):  # the other side is closed
            while piece := os.read(screen, 1 << 16):
                said += piece
    finally:
        running.kill()
        running.wait()
        os.close(screen)
    return said.decode()


def test_a_terminal_has_colours_and_is_filled_by_watch(daemon: Counterpart, process) -> None:
    rows = [job("9"), *(waiting(str(8 - each)) for each in range(8))]
    daemon.on("GET", "/jobs", listed(*rows))
    shown = in_terminal("ps", until="job-1").splitlines()
    assert shown[0].startswith("\x1b[1mid\x1b[0m  \x1b[1mname\x1b[0m")
    assert "\x1b[32mrunning\x1b[0m" in shown[1]
    assert shown[2].endswith("…")
    assert len(shown) == 10
    watched = in_terminal("ps", "--watch", until="job-6")
    assert watched.startswith("\x1b[?1049h")
    assert watched.endswith("\x1b[?1049l")
    assert "job-5" not in watched, "there is no line for it"
    rows[1]["name"] = "x" * 120
    daemon.on("GET", "/jobs", listed(*rows))
    watched = re.sub(r"\x1b\[[?0-9;]*\w", "", in_terminal("ps", "--watch", until="job-6"))
    assert max(map(len, watched.splitlines())) <= 60


def test_names_with_markup_are_shown_as_they_are(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/jobs", listed(job("2", name="[bold]x[/]")))
    assert "[bold]x[/]" in tm("ps").out


def test_an_array_is_listed_by_its_name(tm: Tm, daemon: Counterpart) -> None:
    summary = {"jobs": 1, "states": {}, "unsuccessful": [], "sentence": "1 job."}
    daemon.on("GET", "/jobs/sweep", job_details("7", elements=summary))
    daemon.on("GET", "/jobs/alone", job_details("8"))
    daemon.on("GET", "/jobs", listed(job("7_0", array="7", array_index=0)))
    assert "7_0" in tm("ps --array sweep").out
    assert daemon.asked[-1].query["array"] == "7"
    said = tm("ps --array alone")
    assert (said.code, "alone is a job and not an array" in said.err) == (2, True)


# -- one job ---------------------------------------------------------------------------------------------


def test_show(tm: Tm, daemon: Counterpart) -> None:
    sheet = job_details(
        "2",
        spec={"command": ["python", "train.py", "--name", "a b"]},
        pids=[11, 12],
        remarks=["It cannot be resized."],
        saved_at_s=NOW,
        progress={"step": 30, "steps_per_s": 0.25, "at_s": NOW}
        | dict.fromkeys(("total_steps", "loss", "samples_per_s")),
    )
    daemon.on("GET", "/jobs/bert", sheet)
    said = tm("show bert")
    assert "step 30" in said.out
    assert "4.00 s/step" in said.out
    assert "python train.py --name 'a b'" in said.out
    assert "n0:0, n0:1" in said.out
    assert said.err == "Note: It cannot be resized.\n"
    assert json.loads(tm("show bert --json").out) == sheet


def test_one_of_a_thing_is_not_many(tm: Tm, daemon: Counterpart) -> None:
    why = "It has run for its time limit of 2 s."
    end_reason = end("TimeLimit", why)
    ended = job_details(
        "2", "timed_out", attempt=2, restarts=1, preemptions=1, end_reason=end_reason
    )
    daemon.on("GET", "/jobs/2", ended)
    said = tm("show 2").out
    assert "2 (1 restart, 1 preemption)" in said
    assert why in said


def test_explain_with_an_expected_start(tm: Tm, daemon: Counterpart) -> None:
    shown = ("id", "name", "user", "queue", "state", "gpus", "devices")
    answer = {
        "id": "3",
        "name": "job-3",
        "state": "pending",
        "suspended_by": None,
        "array": None,
        "code": "NotEnoughFree",
        "sentence": "It needs 8 GPUs and 5 are free.",
        "numbers": {"need": 8, "free": 5, "largest_block": 3, "until_s": None},
        "held_by": [{name: job("2")[name] for name in shown}],
        "forecast": forecast(time.time() + 700, "declared run times"),
        "end": None,
        "remarks": [],
    }
    daemon.on("GET", "/jobs/3/explain", answer)
    out = tm("explain 3").out
    assert "It needs 8 GPUs and 5 are free. (NotEnoughFree)" in out
    assert "needed 8, free 5, free together 3" in out
    assert "job 2 job-2 of ada, running, holds n0:0, n0:1" in out
    assert "Expected start: in 11m" in out
    assert "(declared run times)" in out
    assert json.loads(tm("explain 3 --json").out)["code"] == "NotEnoughFree"


def test_story(tm: Tm, daemon: Counterpart) -> None:
    told = [
        story_entry(NOW, "submitted", "Submitted."),
        story_entry(NOW + 75, "started", "Started on n0."),
    ]
    daemon.on("GET", "/jobs/2/story", {"story": told})
    lines = tm("story 2").out.splitlines()
    assert lines[2].split("  ")[-1].strip() == "Started on n0."
    assert "1m15s" in lines[2]
    assert json.loads(tm("story 2 --json").out)["story"] == told
    daemon.on("GET", "/jobs/2/story", {"story": []})  # adopted after it had ended
    daemon.on("GET", "/jobs", listed())
    assert "under a database that is gone" in tm("story 2").out


def test_the_story_of_an_array_is_that_of_its_elements(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/jobs/4/story", {"story": []})
    daemon.on("GET", "/jobs", listed(job("4_1", array="4"), job("4_0", array="4")))
    for id in ("4_0", "4_1"):
        told = story_entry(NOW, "submitted", f"Submitted {id}.")
        daemon.on("GET", f"/jobs/{id}/story", {"story": [told]})
    lines = tm("story 4").out.splitlines()
    assert [lines[0], lines[3]] == ["Job 4_0", "Job 4_1"]
    assert "Submitted 4_0." in lines[2]
    daemon.on("GET", "/jobs", listed(*(job(f"4_{at}", array="4") for at in range(21))))
    said = tm("story 4")
    assert said.code == 2
    assert "Array 4 has 21 jobs: name one, as in `trainmaster story 4_0`." in said.err


@pytest.mark.parametrize("action", ["cancel", "suspend", "resume"])
def test_a_action_for_several_jobs_goes_on_after_a_refusal(
    tm: Tm, daemon: Counterpart, action: str
) -> None:
    daemon.on("POST", f"/jobs/1/{action}", job("1"))
    daemon.on("POST", f"/jobs/2/{action}", refusal(409, "conflict", "Job 2 has ended."))
    daemon.on("POST", f"/jobs/a b/{action}", job("7"))
    said = tm(f"{action} 1 2 'a b' 1")
    assert said.code == 1
    assert said.err == "Error: Job 2 has ended.\n"
    assert "Job 1 " in said.out
    assert "Job a b " in said.out
    assert [each.path for each in daemon.asked if each.method == "POST"] == [
        *(f"/jobs/1/{action}", f"/jobs/2/{action}", f"/jobs/a b/{action}"),
    ]
    found = json.loads(tm(f"{action} 1 2 --json").out)["jobs"]
    assert [each["done"] for each in found] == [True, False]


def test_a_resumed_job_that_waits_for_more_than_room_says_so(tm: Tm, daemon: Counterpart) -> None:
    why = "Waiting to resume: its processes are stopped in memory on n0 and can go on only there."
    reason = {"code": "StoppedOnNode", "sentence": why}
    daemon.on("POST", "/jobs/1/resume", job("1", reason=reason))
    assert " ".join(tm("resume 1").out.split()) == f"Job 1 does not continue yet. {why}"


def test_suspending_by_force(tm: Tm, daemon: Counterpart) -> None:
    lost = (
        "Job 1 can be neither suspended in memory nor told to save: 2 h of its work would be lost."
    )
    daemon.on("POST", "/jobs/1/suspend", refusal(409, "work_would_be_lost", lost))
    said = tm("suspend 1")
    assert (said.code, said.err) == (1, f"Error: {lost}\n")
    daemon.on("POST", "/jobs/1/suspend", job("1"))
    assert tm("suspend --force 1").code == 0
    assert daemon.asked[-1].query == {"force": "true"}


def test_lost_work_has_a_column_where_there_is_any(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/jobs", listed(job("3"), job("2", lost_s=7300.0)))
    heading, third, second = tm("ps").out.splitlines()
    assert " lost " in heading
    assert "2h01m" in second
    assert "2h01m" not in third
    daemon.on("GET", "/jobs", listed(job("3")))
    assert " lost " not in tm("ps").out
    daemon.on("GET", "/jobs/2", job_details("2", lost_s=7300.0))
    assert "2h01m of its work" in tm("show 2").out


@pytest.mark.parametrize("missing", ["lost_s", "run_s", "nodes", "devices", "reason", "gpu_s"])
def test_an_older_manager_may_not_send_a_field(tm: Tm, daemon: Counterpart, missing: str) -> None:
    row, details = job("3"), job_details("3")
    del row[missing], details[missing]
    daemon.on("GET", "/jobs", _unchecked(listed(row)))
    daemon.on("GET", "/jobs/3", _unchecked(details))
    for line in ("ps", "ps -o wide", "show 3"):
        said = tm(line)
        assert (said.code, said.err) == (0, "")


def _unchecked(body: dict[str, Any]) -> Answer:
    """An answer that is not as the API describes it now."""
    return Answer(200, json.dumps(body).encode(), "application/json")


def test_move_and_set(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("POST", "/jobs/2/move", job("2"))
    assert tm("move 2 --to n1").out == "Job 2 moves to n1.\n"
    assert daemon.bodies("POST", "/jobs/2/move") == [{"node": "n1"}]
    assert tm("move 2 --to n1 --force").code == 0
    assert daemon.bodies("POST", "/jobs/2/move")[-1] == {"node": "n1", "force": True}
    daemon.on("PATCH", "/jobs/2", job("2"))
    assert tm("set 2 preemptible=false").code == 0
    assert daemon.bodies("PATCH", "/jobs/2").pop() == {"preemptible": False}
    daemon.asked.clear()
    assert tm("set 2 priority=10 max_runtime=4h name=x=y").code == 0
    assert daemon.bodies("PATCH", "/jobs/2") == [
        {"priority": 10, "max_runtime": "4h", "name": "x=y"}
    ]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("set 2 prio=1", "A job's `prio` cannot be changed: did you mean priority?"),
        ("set 2 preemptible=no", "preemptible `no` is not true or false"),
        ("set 2 priority", "Setting `priority` has no value: write key=value."),
        ("set 2 priority=high", "priority `high` is not a whole number: write priority=10."),
        ("set 2 grace_period=2", "grace_period must be a length of time with its unit: 2s or 2m?"),
        ("set 2 max_runtime=4x", "max_runtime must be a length of time such as"),
        ("set 2 queue=a/b", "queue must be 1 to 100 characters without a slash"),
        ("set 2 name=12", "name must not look like a job's id"),
        ("set 2 priority=5000000", "priority must be"),
        ("history --since never", "--since `never` is not a point of time"),
        ("history --json --csv -", "--json and --csv exclude each other"),
        ("history --state running", "No job ends as `running`"),
        ("history --failures --limit 3", "leave --state and --limit out"),
        ("run -t soon:ish -- true", "--time must be a length of time such as 90s"),
        ("run --env NOT_SET_ANYWHERE -- true", "NOT_SET_ANYWHERE is not set here"),
        ("run --container lxc:x -- true", "--container `lxc:x` is not a container"),
        ("run --", "missing argument"),
        ("submit none.yaml", "none.yaml cannot be read: no such file or directory."),
    ],
)
def test_mistakes_are_named_before_anything_is_asked(
    tm: Tm, daemon: Counterpart, line: str, sentence: str
) -> None:
    said = tm(line)
    assert said.code == 2
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert daemon.asked == []


def test_a_time_limit_is_shown_as_people_write_it(tm: Tm, daemon: Counterpart) -> None:
    for stated, shown in {"60s": "1m", "1:30:00": "1h30m", "90": "90s"}.items():
        spec = {"command": "true", "max_runtime": stated}
        daemon.on("GET", "/jobs/1", job_details("1", "running", spec=spec))
        assert f"may run for  {shown} " in " ".join(f"{tm('show 1').out} ".split("\n"))


def test_set_says_what_was_typed(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("PATCH", "/jobs/5", job("5"))
    assert tm("set 5 preemptible=false").out == "Job 5: preemptible false.\n"


def test_set_knows_the_word_of_run(tm: Tm, daemon: Counterpart) -> None:
    assert "did you mean max_runtime?" in tm("set 1 time=4h").err
    said = tm("set 1 max_runtime=4")
    assert (said.code, "4s or 4m?" in said.err) == (2, True)


# -- the cluster -----------------------------------------------------------------------------------------


def test_nodes_of_unequal_speed_say_how_fast_they_are(tm: Tm, daemon: Counterpart) -> None:
    def node(name: str, kind: str, speed: float, source: str) -> dict[str, object]:
        return node_row(name, kind, speed=speed, speed_source=source)

    found = [node("n0", "H100", 1.0, "measured"), node("n1", "cpu", 0.013, "stated")]
    daemon.on("GET", "/nodes", node_list(*found, node("n2", "T4", 1.0, "assumed")))
    said = tm("nodes").out
    assert all(each in said for each in ("H100 (1x)", "cpu (0.013x)", "T4 (1x?)"))


def test_nodes(tm: Tm, daemon: Counterpart) -> None:
    node = node_row(
        "n0",
        devices=[{"name": "n0:0", "jobs": ["2", "3"]}, {"name": "n0:1", "jobs": []}],
        frozen=["4"],
        remarks=["CPU limits need cgroups."],
    )
    daemon.on("GET", "/nodes", node_list(node))
    said = tm("nodes")
    assert said.out.splitlines()[1].split() == [
        "n0",
        "up",
        "H100",
        "2",
        "1",
        "16",
        "64",
        "GiB",
        "2,",
        "3",
        "4",
    ]
    assert said.err == "Note: n0: CPU limits need cgroups.\n"
    assert tm("nodes --devices").out.splitlines()[1].split() == [
        "n0",
        "n0:0",
        "H100",
        "up",
        "2,",
        "3",
    ]
    assert json.loads(tm("nodes --json").out)["nodes"] == [node]


def test_nodes_with_gpus_say_what_is_in_use(tm: Tm, daemon: Counterpart) -> None:
    read = {
        "uuid": "GPU-0",
        "bookable_bytes": 40 * GIB,
        "memory_bytes": 80 * GIB,
        "memory_used_bytes": 5 * GIB,
        "util": 0.42,
        "temperature_c": 51,
        "power_w": 300,
        "power_limit_w": 700,
        "ecc_errors": 2,
        "xid_events": 1,
        "last_xid": 79,
        "mig": None,
        "nvlink": ["n0:1"],
        "near": ["n0:1", "n0:2"],
        "trouble": None,
    }
    unread = {"uuid": "GPU-1", "bookable_bytes": 40 * GIB, "memory_bytes": None, "util": None}
    gpus = [read, unread | {"memory_used_bytes": None, "trouble": "GPU is lost"}]
    devices = [{"name": f"n0:{number}", "jobs": [], "gpu": gpu} for number, gpu in enumerate(gpus)]
    daemon.on("GET", "/nodes", node_list(node_row("n0", devices=devices)))
    heading, row = tm("nodes").out.splitlines()[:2]
    assert heading.split()[-3:] == ["GPU", "memory", "busy"]
    assert "5.0 of 80 GiB" in row
    assert row.rstrip().endswith("42 %")
    _, first, second = tm("nodes --devices").out.splitlines()[:3]
    for words in ("5.0 of 80 GiB", "42 %", "51 C", "300 of 700 W", "40 GiB to book, 2 ECC, XID 79"):
        assert words in first
    assert "NVLink: n0:1; PCIe switch: n0:2" in first
    assert "GPU is lost" in second


def test_show_says_what_a_job_uses_on_its_gpus(tm: Tm, daemon: Counterpart) -> None:
    uses = [
        {"device": "n0:0", "uuid": "GPU-0", "memory_bytes": 5 * GIB, "util": 0.42},
        {"device": "n0:1", "uuid": "GPU-1", "memory_bytes": 3 * GIB, "util": None},
    ]
    daemon.on("GET", "/jobs/1", job_details("1", gpu_use=uses))
    said = tm("show 1").out
    assert "5.0 GiB on n0:0, 3.0 GiB on n0:1" in said
    assert "42 % of n0:0" in said


QUEUE = {
    "name": "vision",
    "parent": None,
    "weight": 2,
    "guaranteed_gpus": 4,
    "maximum_gpus": None,
    "allow_unpreemptible": True,
    "is_defined": True,
    "running": 1,
    "pending": 2,
    "suspended": 0,
    "gpus": 2.5,
}


def test_queues(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/queues", {"queues": [QUEUE]})
    assert tm("queues").out.splitlines()[1].split() == [
        "vision",
        "-",
        "2",
        "4",
        "-",
        "2.5",
        "1",
        "2",
        "0",
    ]
    assert json.loads(tm("queues --json").out)["queues"] == [QUEUE]


def test_defining_a_queue_keeps_what_is_not_mentioned(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/queues", {"queues": [QUEUE]})
    daemon.on("PUT", "/queues/vision", QUEUE)
    daemon.on("PUT", "/queues/a b", QUEUE)
    assert tm("queue set vision --maximum 12").code == 0
    tm("queue set 'a b' --parent vision")
    (old,) = daemon.bodies("PUT", "/queues/vision")
    kept = {"weight": 2, "guaranteed_gpus": 4, "allow_unpreemptible": True}
    assert old == {**kept, "maximum_gpus": 12.0}
    assert daemon.bodies("PUT", "/queues/a b") == [{"parent": "vision"}]
    daemon.on("PUT", "/queues/vision", {**QUEUE, "allow_unpreemptible": False})
    said = tm("queue set vision --forbid-unpreemptible").out
    assert said == "Queue vision: weight 2, guaranteed 4, no unpreemptible jobs.\n"


def test_policy(tm: Tm, daemon: Counterpart) -> None:
    sheet = {"name": "las", "options": {"quantum_s": 60}, "since_s": time.time(), "trouble": None}
    daemon.on("GET", "/policy", sheet)
    daemon.on("PUT", "/policy", {**sheet, "trouble": "ZeroDivisionError"})
    said = tm("policy")
    assert "las" in said.out
    assert "quantum_s" in said.out
    said = tm("policy set las quantum_s=30 min_run_s=5")
    options = {"quantum_s": "30", "min_run_s": "5"}
    assert daemon.bodies("PUT", "/policy") == [
        {"name": "las", "options": options, "source": "", "files": {}}
    ]
    assert said.err == "Warning: ZeroDivisionError\n"
    assert json.loads(tm("policy --json").out)["name"] == "las"


def test_history(tm: Tm, daemon: Counterpart) -> None:
    ended = job("2", "failed", exit_code=3, finish_s=NOW + 200, gpu_s=7200.0)
    daemon.on("GET", "/jobs", listed(ended))
    out = tm("history --since 7d --user bob").out
    assert "2.00" in out
    assert "1 job, 2.00 GPU hours." in out
    query = daemon.asked[0].query
    assert query["user"] == "bob"
    assert query["state"] == "succeeded,failed,timed_out,cancelled"
    assert abs(float(query["since"]) - (time.time() - 7 * 86400)) < 600
    (row,) = csv.DictReader(io.StringIO(tm("history --csv -").out))
    assert (row["id"], row["exit_code"], row["gpu_s"]) == ("2", "3", "7200.0")
    assert row["prerun_s"] == ""
    assert "pre-run" not in out


def test_history_has_the_run_time_of_preruns(tm: Tm, daemon: Counterpart) -> None:
    tried = {"result": "passed", "sentence": "Passed.", "attempt": 1, "run_s": 90.0}
    daemon.on("GET", "/jobs", listed(job("2", "succeeded", prerun=tried, run_s=250.0)))
    out = tm("history").out
    assert "pre-run" in out.splitlines()[0]
    assert "1m30s" in out
    (row,) = csv.DictReader(io.StringIO(tm("history --csv -").out))
    assert (row["prerun_s"], row["run_s"]) == ("90.0", "250.0")


def test_history_of_failures(tm: Tm, daemon: Counterpart) -> None:
    report = failure_report(
        [
            FailedRun(
                "1", "missing-file", 90_000, 1000, "user", "ada", "train", ("n0:1",), "/data/x"
            ),
            FailedRun("2", "nccl-timeout", 3_600_000, 8000, "unknown", "bob", "big", ("n0:0",)),
        ],
        [JobEnd("succeeded", 3_600_000_000), JobEnd("failed", 3_600_000_000)],
    )
    daemon.on("GET", "/failures", as_json(report))
    out = tm("history --failures --since 7d --user bob").out
    assert "2 failed runs of 2 jobs, 8.03 GPU hours lost." in out
    lines = [line.split() for line in out.splitlines()]
    assert [
        "missing-file",
        "user",
        *["1", "1", "1", "1.50", "1.50", "1.50", "2.44", "1", "0", "0", "0.03", "0.31"],
    ] in lines
    assert ["/data/x", "1", "1", "0.03", "0.31", "missing-file"] in lines
    assert ["n0:0", "1", "1", "8.00", "99.69", "nccl-timeout"] in lines
    assert ["succeeded", "1", "50.0", "1.00", "50.00"] in lines
    assert daemon.asked[0].query["user"] == "bob"
    assert "state" not in daemon.asked[0].query
    rows = list(csv.DictReader(io.StringIO(tm("history --failures --csv -").out)))
    assert [(row["reason"], row["trials_more"]) for row in rows] == [
        ("nccl-timeout", "1"),
        ("missing-file", "0"),
    ]
    assert json.loads(tm("history --failures --json").out)["trials"] == 2
    daemon.on("GET", "/failures", as_json(failure_report([])))
    assert tm("history --failures").out == "No run has failed that matches.\n"


def test_history_of_forecasts(tm: Tm, daemon: Counterpart) -> None:
    row = {"basis": "steps", "words": "its steps", "forecasts": 40, "within": 33}
    row |= {"median_error": 0.0612}
    row_shown = ["its steps", "40", "82 %", "6 %"]
    daemon.on("GET", "/calibration", {"rows": [row], "memory": []})
    shown = [line.split("  ") for line in tm("history --calibration").out.splitlines()]
    assert [cell.strip() for cell in shown[-1] if cell.strip()] == row_shown
    assert json.loads(tm("history --calibration --json").out)["rows"][0]["within"] == 33
    of_memory = {"source": "learned", "same_arguments": True, "estimates": 20, "within": 18}
    of_memory |= {"words": "earlier runs with the same arguments", "covered": 19}
    of_memory |= {"median_error": 0.0123}
    daemon.on("GET", "/calibration", {"rows": [row], "memory": [of_memory]})
    shown = [line.split("  ") for line in tm("history --calibration").out.splitlines()]
    memory_shown = ["earlier runs with the same arguments", "20", "90 %", "95 %", "1 %"]
    assert [cell.strip() for cell in shown[-1] if cell.strip()] == memory_shown
    daemon.on("GET", "/calibration", {"rows": [], "memory": []})
    assert tm("history --calibration").out == "No forecast of run time has come true yet.\n"
    refused = tm("history --calibration --me")
    assert refused.code == 2
    assert "--calibration is of all jobs" in refused.err


def test_record_writes_whole_files_only(tm: Tm, daemon: Counterpart, folder: Path) -> None:
    trace = b"job_id,submit_s,gpus,duration_s\n1,0,1,\xff\n"
    daemon.on("GET", "/record/trace", Answer(200, trace, "text/csv"))
    daemon.on("GET", "/jobs", listed())
    assert tm("record --out mine.csv").code == 0
    assert (folder / "mine.csv").read_bytes() == trace
    daemon.on("GET", "/record/events", Answer(200, b"{}\n", breaks=True))
    assert tm("record --format events --out mine.csv").code == 1
    assert (folder / "mine.csv").read_bytes() == trace
    assert [each.name for each in folder.iterdir()] == ["mine.csv"]
    assert tm("record --out no/such/folder.csv").code == 1


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"succeeded": 2}, ["wrote 2 jobs to mine.csv"]),
        (
            {"succeeded": 2, "cancelled": 1, "running": 1, "pending": 2},
            [
                "wrote 2 jobs to mine.csv",
                "left out 1 job that ended without being started",
                "left out 3 jobs that have not ended yet",
            ],
        ),
    ],
)
def test_record_says_what_it_leaves_out(
    tm: Tm, daemon: Counterpart, counts: dict[str, int], said: list[str]
) -> None:
    trace = b"job_id,submit_s,gpus,duration_s\n1,0,1,1\n2,0,1,1\n"
    daemon.on("GET", "/record/trace", Answer(200, trace, "text/csv"))
    daemon.on("GET", "/jobs", listed() | {"counts": counts})
    assert tm("record --out mine.csv").err.splitlines() == [f"Note: {each}" for each in said]


def test_guarantees_that_cannot_be_kept_are_warned_of(tm: Tm, daemon: Counterpart) -> None:
    policy = {"name": "fifo", "options": {"queues": "mine"}, "since_s": 1.0, "trouble": None}
    policy["obeys_queues"] = False
    queue = {**QUEUE, "guaranteed_gpus": 9}
    daemon.on("GET", "/queues", {"queues": [queue]})
    daemon.on("PUT", "/queues/vision", queue)
    daemon.on("GET", "/status", status())
    daemon.on("GET", "/policy", policy)
    daemon.on("PUT", "/policy", policy)
    said = tm("queue set vision --guaranteed 9")
    assert said.code == 0
    assert "Warning: queues are guaranteed 9 GPUs together, and there are 4\n" in said.err
    assert "Warning: the policy fifo does not look at queues" in tm("policy set fifo").err
    daemon.on("GET", "/queues", {"queues": [{**QUEUE, "guaranteed_gpus": 0}]})
    assert "Warning: the policy fifo does not look at queues" in tm("queue set vision").err
    daemon.on("GET", "/policy", {**policy, "name": "fair", "options": {}, "obeys_queues": True})
    daemon.on("GET", "/status", status(devices=16))
    assert tm("policy set fair").err == ""


@pytest.mark.parametrize("verb", ["set", "rm"])
def test_a_queue_with_a_slash_in_its_name_is_refused_without_asking(tm: Tm, verb: str) -> None:
    said = tm(f"queue {verb} a/b")
    assert said.code == 2
    assert said.err == (
        "Error: the name of a queue must be 1 to 100 characters without a slash, a space at its ends,"
        " or a sign that is not printable (a line break, an escape, a change of direction, a sign without"
        " a width), not 'a/b'.\n"
    )


def status(**more: object) -> dict[str, object]:
    known = {"role": "active", "trouble": None, "notes": [], "version": "0", "pid": 1}
    known |= {"engine": "local", "cluster": None, "fence_s": None}
    known |= {"folder": "/x", "database": "sqlite:////x", "policy": "fifo", "devices": 4, "used": 0}
    return known | {"device_type": "slot", "jobs": {}} | more


def test_states_are_words_for_people(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/status", status(jobs={"running": 0, "timed_out": 2}))
    assert "2 timed out" in tm("status").out


# -- exec ------------------------------------------------------------------------------------------------


def test_exec_runs_in_the_jobs_surroundings(process, daemon: Counterpart, folder: Path) -> None:
    (folder / "there").mkdir()
    env = {"RANK": "0", "GREETING": "hello world"}
    daemon.on("GET", "/jobs/2", job_details("2"))
    daemon.on("GET", "/jobs/2/environment", {"workdir": str(folder / "there"), "environment": env})
    ended = process("exec 2 -- sh -c 'echo $GREETING from $PWD; exit 5'")
    assert ended.returncode == 5, ended.stderr
    assert ended.stdout == f"hello world from {folder / 'there'}\n"
    missing = process("exec 2 -- no-such-program --flag")
    assert missing.returncode == 127
    assert missing.stderr == "Error: no-such-program cannot be run: no such file or directory.\n"
    daemon.on("GET", "/jobs/2/environment", {"workdir": "/gone/away", "environment": env})
    assert "/gone/away, cannot be entered" in process("exec 2 -- true").stderr


def test_exec_takes_nothing_from_another_users_job_that_could_run_its_code(
    process, daemon: Counterpart, folder: Path
) -> None:
    """The newest job of a name was submitted by somebody who wants others to run it."""
    evil = folder / "evil"
    evil.mkdir()
    (evil / "env").write_text("#!/bin/sh\necho attacker code runs\n")
    (evil / "env").chmod(0o755)
    hers = {"PATH": f"{evil}:/usr/bin:/bin", "LD_PRELOAD": "/x.so", "CUDA_INJECTION64_PATH": "/x"}
    given = {"CUDA_VISIBLE_DEVICES": "GPU-1", "RANK": "0", "TRAINMASTER_JOB": "7"}
    answer = {"workdir": str(evil), "environment": hers | given}
    daemon.on("GET", "/jobs/resnet", job_details("7", user="mallory"))
    daemon.on("GET", "/jobs/7/environment", answer)
    said = process("exec resnet -- env")
    assert said.returncode == 0, said.stderr
    assert said.stderr == "Note: job 7 is mallory's: only its devices and ranks are used.\n"
    found = dict(line.partition("=")[::2] for line in said.stdout.splitlines())
    assert found.items() >= given.items()
    assert found["PATH"] == os.environ["PATH"]
    assert not {"LD_PRELOAD", "CUDA_INJECTION64_PATH"} & found.keys()
    assert process("exec resnet -- pwd").stdout.strip() == str(folder)
    daemon.caller["user"] = "mallory"
    daemon.on("GET", "/jobs/resnet", job_details("7", user="mallory"))
    daemon.on("GET", "/jobs/7/environment", {**answer, "environment": {"PATH": str(evil)}})
    assert process("exec resnet -- env", env={"TRAINMASTER_USER": ""}).stdout == (
        "attacker code runs\n"
    )


# -- help ------------------------------------------------------------------------------------------------


WITHOUT_MANAGER = {"up", "import", "backup", "doctor", "restore"}
"""Commands that ask none."""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_and_is_loaded_only_when_called(tm: Tm, name: str) -> None:
    said = tm(f"{name} --help")
    assert said.code == 0
    assert "Examples" in said.out
    has_url = name not in WITHOUT_MANAGER and COMMANDS[name].panel != STUDIES
    assert ("--url" in said.out) == has_url
    assert f"  trainmaster {'ps' if name == 'ls' else name}" in said.out
    assert not any(noise in said.out for noise in ("<bool>", "<list", "[["))
    assert not re.search(r"^Usage:.*\{", said.out)
    assert "\n\n  trainmaster" not in said.out, "examples are compact"


WITH_JSON = (
    *("ps", "show", "story", "explain", "history", "status", "version", "run", "submit", "outputs"),
    *("queue list", "node list", "policy list", "policies", "trace formats", "compare"),
)


@pytest.mark.parametrize("command", WITH_JSON)
def test_json_is_a_flag(tm: Tm, command: str) -> None:
    (line,) = [each for each in tm(f"{command} --help").out.splitlines() if "  --json" in each]
    assert line.split()[1] in ("Write", "With"), "no placeholder of a file, but the help itself"


def loaded_by(*words: str) -> list[str]:
    """The modules that a command loads."""
    program = (
        f"import sys; sys.argv = {['tm', *words]!r}\n"
        "from trainmaster.cli.main import run\n"
        "try: run()\n"
        "except SystemExit: pass\n"
        "print(*sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return ended.stdout.splitlines()[-1].split()


def test_a_list_loads_neither_what_checks_options_nor_what_draws_in_a_terminal(
    process, daemon: Counterpart
) -> None:
    daemon.on("GET", "/jobs", listed(job("2"), waiting("3")))
    loaded = loaded_by("ps", "--user", "ada")
    assert "trainmaster.cli.support.plain_table" in loaded
    assert not {"pydantic", "rich.console", "rich.table", "rich.text"} & set(loaded)


def test_the_overview_loads_no_command(process) -> None:
    loaded = loaded_by("--help")
    assert "trainmaster.cli.support.lazy_commands" in loaded
    assert not {f"trainmaster.cli.{each.file or name}" for name, each in COMMANDS.items()} & set(
        loaded
    )
    assert not {"http.client", "pydantic", "fastapi", "httpx"} & set(loaded)


def test_a_wrong_name_is_answered_with_the_right_one(tm: Tm) -> None:
    for typed, meant in {"sumbit": "submit", "lgos": "logs", "sho": "show"}.items():
        assert f"did you mean {meant}?" in tm(f"{typed} x").err
    bogus = tm("bogus")
    assert bogus.code == 2
    assert bogus.err == "Error: no such command 'bogus'; `trainmaster --help` lists all.\n"


def test_a_relative_input_is_taken_from_the_folder_of_the_user(
    tm: Tm, daemon: Counterpart, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    path = folder / "data.rec"
    daemon.on("DELETE", f"/inputs/{path}", {"path": str(path), "waiting": []})
    said = tm("inputs", "unblock", "data.rec")
    assert (said.code, said.out) == (0, f"Input {path} is used again.\n"), said.err
