"""The command line against a real daemon with real processes: one session of a user's day."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_live_shell import Person, nobody_is_left
from tests.live.daemons import LiveDaemon, live, until

pytestmark = pytest.mark.live

__all__ = ["nobody_is_left"]

STAYS = "trap 'exit 0' TERM; echo begun; while :; do sleep 0.05; done"


class Line:
    """The command line in a folder, pointed to one daemon."""

    def __init__(self, daemon: LiveDaemon, folder: Path) -> None:
        self.daemon, self.folder = daemon, folder
        self.env = {**os.environ, "TRAINMASTER_DATA": str(daemon.folder), "COLUMNS": "200"}
        self.env.pop("TRAINMASTER_URL", None)

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "trainmaster", *words]

    def run(self, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words),
            cwd=self.folder,
            env=self.env,
            input=typed,
            text=True,
            capture_output=True,
            timeout=120,
        )

    def ok(self, *words: str, typed: str = "") -> str:
        ended = self.run(*words, typed=typed)
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        return ended.stdout

    def start(self, *words: str) -> str:
        """A job of its own, detached: its id."""
        return self.ok("run", "-d", "--no-snapshot", *words).strip()


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    base = tmp_path_factory.mktemp("live")
    (base / "code").mkdir()
    with live(
        base / "state", "--slots", "2", "--policy", "fifo", "--set", "backfill=skip"
    ) as daemon:
        yield Line(daemon, base / "code")


@pytest.fixture(autouse=True)
def nothing_left(tm: Line) -> Iterator[None]:
    """Jobs of one test are not in the way of the next."""
    yield
    left = [job["id"] for job in json.loads(tm.ok("ps", "--json", "-r"))["jobs"]]
    if left:
        tm.run("cancel", *left)
        until(lambda: not json.loads(tm.ok("ps", "--json"))["jobs"], "no job to be left")


def test_run_shows_the_output_and_returns_the_code(tm: Line) -> None:
    ended = tm.run("run", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert ended.returncode == 3, ended.stderr
    assert sorted(ended.stdout.split()) == ["err", "out"]
    assert "failed with exit code 3" in ended.stderr
    assert tm.run("run", "--", "true").returncode == 0


def test_nobody_else_reads_the_state(tm: Line) -> None:
    names = ("trainmaster.db", "address", "manager.log")
    assert {(tm.daemon.folder / name).stat().st_mode & 0o777 for name in names} == {0o600}


def test_a_snapshot_is_the_code_as_it_was_submitted(tm: Line) -> None:
    (tm.folder / "word.txt").write_text("before")
    held = ("submit", "-", "--held", "--parsable", "--snapshot")
    first = tm.ok(*held, typed="command: cat word.txt\n").strip()
    (tm.folder / "word.txt").write_text("after")
    tm.ok("resume", first)
    tm.daemon.until_state(first, "succeeded")
    assert tm.ok("logs", first) == "before"
    assert tm.ok("run", "--", "cat", "word.txt") == "after"


def test_an_array_is_waited_for_and_folded(tm: Line) -> None:
    file = tm.folder / "sweep.yaml"
    file.write_text(
        "name: sweep\ncommand: exit $TRAINMASTER_ARRAY_INDEX\narray: 0-3%2\nretries: 0\n"
    )
    ended = tm.run("submit", "sweep.yaml", "--wait", "--json")
    assert ended.returncode == 3, ended.stderr
    found = {job["id"].split("_")[1]: job["exit_code"] for job in json.loads(ended.stdout)["jobs"]}
    assert found == {"0": 0, "1": 1, "2": 2, "3": 3}
    lines = [line for line in tm.ok("ps", "-a").splitlines() if "sweep" in line]
    assert len(lines) == 1
    assert "_[0-3]" in lines[0]
    assert "1 succeeded, 3 failed" in lines[0]


def test_an_array_is_cancelled_whole_by_id_or_by_name(tm: Line) -> None:
    for name, target in (("by-id", None), ("by-name", "by-name")):
        array = tm.start("--array", "0-5%2", "-n", name, "--", "sh", "-c", STAYS)
        until(lambda id=array: f"{id}_1" in tm.ok("ps", "-r", "--state", "running"), "two of them")
        tm.ok("cancel", target or array)
        until(lambda: not json.loads(tm.ok("ps", "--json"))["jobs"], "all of it to be cancelled")
        rows = json.loads(tm.ok("ps", "-a", "--array", array, "--json"))["jobs"]
        assert [row["state"] for row in rows] == ["cancelled"] * 6


def test_a_waiting_job_is_explained_and_goes_when_there_is_room(tm: Line) -> None:
    first = tm.start("--gpus", "2", "--no-preflight", "-n", "holder", "--", "sh", "-c", STAYS)
    tm.daemon.until_state(first, "running")
    second = tm.start("--gpus", "1", "-n", "waiter", "--", "true")
    until(lambda: "NotEnoughFree" in tm.ok("explain", second), "a reason")
    said = tm.ok("explain", second)
    assert "holder" in said
    assert "Expected start: " in said
    assert "waiter" in tm.ok("ps", "--state", "pending")
    tm.ok("set", second, "priority=5")
    assert json.loads(tm.ok("show", second, "--json"))["priority"] == 5
    tm.ok("cancel", "holder")
    tm.daemon.until_state(second, "succeeded")
    assert tm.daemon.until_state(first, "cancelled")
    told = [each["what"] for each in json.loads(tm.ok("story", second, "--json"))["story"]]
    assert told[0] == "submitted"
    assert tm.run("cancel", first).returncode == 1


def test_suspend_and_resume(tm: Line) -> None:
    job = tm.start("--", "sh", "-c", STAYS)
    tm.daemon.until_state(job, "running")
    tm.ok("suspend", job)
    tm.daemon.until_state(job, "suspended")
    tm.ok("resume", job)
    tm.daemon.until_state(job, "running")


def test_logs_are_followed_and_binary_safe(tm: Line) -> None:
    job = tm.start("--", sys.executable, "-c", "import os; os.write(1, bytes(range(256)) * 1000)")
    raw = subprocess.run(
        tm.words("logs", "-f", job), cwd=tm.folder, env=tm.env, capture_output=True, timeout=120
    )
    assert raw.stdout == bytes(range(256)) * 1000
    assert tm.ok("logs", job, "--tail", "0") == ""
    assert tm.run("logs", job, "--rank", "7").returncode == 1


def test_every_rank_of_a_gang(tm: Line) -> None:
    out = tm.ok(
        "run",
        "--gpus",
        "2",
        "--ranks",
        "gpu",
        "--all-ranks",
        "--no-preflight",
        "--",
        "sh",
        "-c",
        "echo I am $RANK of $WORLD_SIZE",
    )
    assert sorted(out.splitlines()) == ["[0] I am 0 of 2", "[1] I am 1 of 2"]


def test_exec_is_in_the_surroundings_of_the_job(tm: Line) -> None:
    job = tm.start("--env", "COLOUR=blue", "--", "sh", "-c", STAYS)
    tm.daemon.until_state(job, "running")
    out = tm.ok("exec", job, "--", "sh", "-c", "echo $TRAINMASTER_JOB $COLOUR; pwd")
    assert out.splitlines() == [f"{job} blue", str(tm.folder)]


def test_the_daemon_may_be_restarted_while_one_waits(tm: Line) -> None:
    waiting = subprocess.Popen(
        tm.words(
            "run",
            "--no-snapshot",
            "--",
            "sh",
            "-c",
            "until [ -e go ]; do sleep 0.05; done; echo gone; exit 4",
        ),
        cwd=tm.folder,
        env=tm.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: json.loads(tm.ok("ps", "--state", "running", "--json"))["jobs"], "the job")
        port = str(tm.daemon.url).rpartition(":")[2]
        tm.daemon.kill()
        tm.daemon.arguments = (*tm.daemon.arguments, "--port", port)
        tm.daemon.start()
        tm.daemon.until_active()
        (tm.folder / "go").touch()
        out, err = waiting.communicate(timeout=120)
    finally:
        waiting.kill()
        waiting.communicate()
    assert (waiting.returncode, out) == (4, "gone\n"), err


def test_two_interruptions_end_the_job(tm: Line) -> None:
    waiting = subprocess.Popen(
        tm.words("run", "-n", "stopped", "--no-snapshot", "--", "sh", "-c", STAYS),
        cwd=tm.folder,
        env=tm.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert waiting.stdout is not None
    assert waiting.stderr is not None
    try:
        assert waiting.stdout.readline() == "begun\n"
        waiting.send_signal(signal.SIGINT)
        while "Ctrl-C again" not in waiting.stderr.readline():
            pass
        waiting.send_signal(signal.SIGINT)
        waiting.communicate(timeout=120)
    finally:
        waiting.kill()
        waiting.communicate()
    assert waiting.returncode == 130
    assert json.loads(tm.ok("show", "stopped", "--json"))["state"] == "cancelled"


def test_queues_and_the_policy_are_changed_at_once(tm: Line) -> None:
    tm.ok("queue", "set", "vision", "--weight", "2", "--maximum", "1")
    tm.ok("queue", "set", "vision", "--guaranteed", "1")
    (vision,) = [
        each for each in json.loads(tm.ok("queues", "--json"))["queues"] if each["name"] == "vision"
    ]
    assert (vision["weight"], vision["maximum_gpus"], vision["guaranteed_gpus"]) == (2, 1, 1)
    tm.ok("queue", "rm", "vision")
    tm.ok("policy", "set", "tiresias-l", "promote_knob=2")
    said = json.loads(tm.ok("policy", "--json"))
    assert (said["name"], said["options"]["promote_knob"]) == ("tiresias-l", 2)
    refused = tm.run("policy", "set", "srtf")
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    tm.ok("policy", "set", "fifo", "backfill=skip")


def test_nodes_and_history_and_a_record_that_simulates(tm: Line) -> None:
    assert tm.run("run", "-n", "recorded", "--", "sleep", "0.2").returncode == 0
    assert "up" in tm.ok("nodes")
    assert len(tm.ok("nodes", "--devices").splitlines()) == 3
    assert "recorded" in tm.ok("history", "--since", "1h")
    assert "recorded" in tm.ok("history", "--csv", "-")
    tm.ok("record", "--out", "mine.csv")
    tm.ok("simulate", "mine.csv", "--cluster", "1x2", "--policy", "fifo")
    tm.ok("record", "--format", "events", "--out", "log.jsonl")
    lines = (tm.folder / "log.jsonl").read_text().splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_a_dry_run_leaves_no_job(tm: Line) -> None:
    before = tm.ok("ps", "-a", "--json")
    said = tm.ok("run", "--dry-run", "--gpus", "2", "--", "true")
    assert "Would submit" in said
    assert "Expected start" in said
    assert len(json.loads(tm.ok("ps", "-a", "--json"))["jobs"]) == len(json.loads(before)["jobs"])


def test_a_session_is_suspended_when_idle_and_goes_on(tm: Line) -> None:
    url = f"unix:{tm.daemon.socket}"
    person = Person(url, "-n", "play", "--idle", "3s", "--command", "/bin/sh")
    person.type("WORD=kept; echo here-$((1 + 1))\r")
    person.sees(b"here-2")
    person.sees(b"was unused and is being suspended")
    assert person.code() == 0
    tm.daemon.until_state("play", "suspended")
    again = Person(url, "play")
    again.sees(b"here-2")
    again.type("echo again-$WORD; exit 6\r")
    again.sees(b"again-kept")
    assert again.code() == 6
    tm.daemon.until_state("play", "failed")


def test_save_says_whether_the_program_hears_it(tm: Line) -> None:
    handler = (
        "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: print('saving', flush=True))"
    )
    ready = "print('ready', flush=True); time.sleep(60)"
    deaf = tm.start("--", "sh", "-c", STAYS)
    hears = tm.start("--", sys.executable, "-c", f"{handler}; {ready}")
    for job, word in ((deaf, "begun"), (hears, "ready")):
        until(lambda job=job, word=word: word in tm.daemon.log(job), "both to run")
    said = tm.run("save", deaf)
    assert said.returncode == 1
    assert said.stdout == ""
    assert "neither reports through the SDK nor has a handler for SIGUSR1" in said.stderr
    assert tm.ok("save", hears) == f"Job {hears} is asked to save.\n"
    until(lambda: "saving" in tm.daemon.log(hears), "the signal to come")


def test_a_job_is_suspended_once(tm: Line) -> None:
    job = tm.start("--held", "--", "true")
    said = tm.run("suspend", job)
    assert said.returncode == 1
    assert f"Job {job} is suspended or held already: `trainmaster resume {job}`" in said.stderr


def test_a_queue_that_nobody_named_before_is_pointed_out_once(tm: Line) -> None:
    words = ("run", "-d", "--held", "-q", "seismology", "--", "true")
    tried = tm.run("run", "--dry-run", *words[3:])
    assert "no job was in a queue seismology before" in tried.stdout + tried.stderr
    refused = tm.run("run", "-d", "--gpus", "500", *words[3:])
    assert refused.returncode == 1
    said = tm.run(*words)
    assert "no job was in a queue seismology before" in said.stderr
    assert tm.run(*words).stderr == ""
    ids = [row["id"] for row in json.loads(tm.ok("ps", "--json"))["jobs"]]
    tm.ok("cancel", *ids)
    until(lambda: not json.loads(tm.ok("ps", "--json"))["jobs"], "all jobs to end")
    tm.daemon.stop()
    tm.daemon.start()
    tm.daemon.until_active()
    assert tm.run(*words).stderr == "", "the store knows its jobs"


def test_cores_of_a_small_job_that_the_machine_does_not_have_are_named(tm: Line) -> None:
    file = tm.folder / "small.yaml"
    file.write_text("command: 'true'\ngpus: 0.1\ncpus: 5000\nmemory: 1G\n")
    for words in (("submit", "--dry-run", str(file)), ("submit", str(file))):
        said = tm.run(*words)
        assert said.returncode == 1
        assert "0.1 GPUs, 1 GiB of memory, 5000 cores, but this machine has" in said.stderr


def test_of_several_files_the_one_that_is_refused_is_named(tm: Line) -> None:
    good, bad = tm.folder / "good.yaml", tm.folder / "bad.yaml"
    good.write_text("command: 'true'\ngpus: 1\n")
    bad.write_text("command: 'true'\ngpus: NOWHERE:1\n")
    said = tm.run("submit", str(good), str(bad))
    assert said.returncode == 1
    assert f"{bad}: " in said.stderr
    assert "'NOWHERE', a type that is not here" in said.stderr


def test_a_secret_that_is_not_there_is_named_by_its_option(tm: Line) -> None:
    missing = tm.folder / "nope"
    said = tm.run("run", "-d", "--no-snapshot", "--secret", f"TOK={missing}", "--", "true")
    assert said.returncode != 0
    assert f"--secret TOK={missing} does not exist" in said.stderr
    assert "--data" not in said.stderr


def test_gpu_memory_that_no_device_has_is_named(tm: Line) -> None:
    file = tm.folder / "large.yaml"
    file.write_text("command: 'true'\ngpu_memory: 500GiB\n")
    said = tm.run("submit", str(file))
    assert said.returncode == 1
    assert (
        "500.0 GiB of GPU memory on each (gpu_memory), but this machine has 2 slots" in said.stderr
    )
