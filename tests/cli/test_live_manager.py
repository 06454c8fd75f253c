"""The commands about the manager itself, its nodes and queues, with a real one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.daemons import LiveDaemon, live, sweep, until

pytestmark = pytest.mark.live


class Line:
    """A terminal in some folder, with the manager's data folder in the environment."""

    def __init__(self, state: Path, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.state, self.folder = state, folder
        self.env = {**os.environ, "TRAINMASTER_DATA": str(state), "COLUMNS": "200"}
        self.env.pop("TRAINMASTER_URL", None)

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "trainmaster", *words],
            cwd=self.folder,
            env=self.env,
            text=True,
            capture_output=True,
            timeout=120,
        )

    def ok(self, *words: str) -> str:
        ended = self(*words)
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        return ended.stdout


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    with live(tmp_path_factory.mktemp("state"), "--slots", "2", "--policy", "fifo") as daemon:
        yield daemon


@pytest.fixture
def tm(daemon: LiveDaemon, tmp_path: Path) -> Line:
    return Line(daemon.folder, tmp_path / "code")


def test_status_says_where_it_is_and_what_it_does(tm: Line, daemon: LiveDaemon) -> None:
    id = daemon.submit(command="sleep 100")
    daemon.until_state(id, "running")
    said = json.loads(tm.ok("status", "--json"))
    assert (said["role"], said["url"]) == ("active", daemon.url)
    assert (said["policy"], said["devices"], said["used"]) == ("fifo", 2, 1)
    assert said["jobs"]["running"] == 1
    assert said["folder"] == str(daemon.folder)
    shown = tm.ok("status")
    assert "1 of 2 CPU slots in use" in shown
    assert "1 running" in shown
    tm.ok("cancel", id)
    assert tm("wait", id).returncode != 0


def test_a_port_that_is_in_use_says_by_whom(tm: Line, daemon: LiveDaemon, tmp_path: Path) -> None:
    address = str(daemon.url).removeprefix("http://")
    data, port = str(tmp_path / "other"), address.rpartition(":")[2]
    said = tm("up", "--data", data, "--slots", "1", "--port", port)
    assert (said.returncode, said.stderr) == (
        1,
        f"Error: {address} is in use by a Trainmaster: without --port the next free port is taken.\n",
    )


def test_wait_returns_the_code_of_the_job(tm: Line, daemon: LiveDaemon) -> None:
    code = daemon.submit(command="exit 3", retries=0)
    fine = daemon.submit(command="true")
    assert tm("wait", fine).returncode == 0
    assert tm("wait", code, fine).returncode == 3
    long = daemon.submit(command="sleep 100", name="long")
    assert tm("wait", "long", "--for", "running").returncode == 0
    said = tm("wait", "long", "--timeout", "0.2s")
    assert said.returncode == 124
    assert f"job {long} is still running" in said.stderr
    tm.ok("cancel", long)
    assert tm("wait", long, "--for", "running").returncode == 1
    assert tm("wait", long, "--for", "sleeping").returncode == 2


def test_a_drained_node_takes_nothing_new_over_a_restart(tm: Line, daemon: LiveDaemon) -> None:
    (node,) = json.loads(tm.ok("node", "list", "--json"))["nodes"]
    name = node["name"]
    there = daemon.submit(command="sleep 100")
    before = daemon.until_state(there, "running")
    assert f"Node {name} takes nothing new. 1 job there now" in tm.ok("node", "drain", name)
    daemon.kill()
    daemon.start()
    daemon.until_active()
    (node,) = json.loads(tm.ok("nodes", "--json"))["nodes"]
    assert node["state"] == "draining"
    later = daemon.submit(command="true")
    assert daemon.job(there)["pids"] == before["pids"]
    assert daemon.job(later)["state"] == "pending"
    assert f"Note: Node {name} is drained" in tm("ps").stderr
    assert f"{name} is drained" in tm.ok("explain", later)
    tm.ok("node", "undrain", name)
    assert tm("wait", later, "--timeout", "60s").returncode == 0
    tm.ok("cancel", there)
    refused = tm("node", "drain", "moon")
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: There is no node moon")


def test_a_queue_that_nothing_is_in_can_be_removed(tm: Line, daemon: LiveDaemon) -> None:
    tm.ok("queue", "set", "vision", "--weight", "2")
    tm.ok("queue", "set", "night", "--parent", "vision")
    assert "has queues in it (night)" in tm("queue", "rm", "vision").stderr
    job = daemon.submit(command="true", queue="night", held=True)
    refused = tm("queue", "rm", "night")
    assert refused.returncode == 1
    assert f"`trainmaster set {job} queue=NAME`" in refused.stderr
    tm.ok("cancel", job)
    tm.ok("queue", "rm", "night", "vision")
    names = [each["name"] for each in json.loads(tm.ok("queue", "list", "--json"))["queues"]]
    assert names == ["default"]
    assert tm("queue", "rm", "vision").returncode == 1


def test_save_asks_for_a_checkpoint(tm: Line, daemon: LiveDaemon) -> None:
    program = "trap 'echo saved; exit 0' USR1; echo ready; while :; do sleep 0.05; done"
    id = daemon.submit(command=program)
    until(lambda: "ready" in daemon.log(id), "the program to be ready")
    assert f"Job {id} is asked to save." in tm.ok("save", id)
    daemon.until_state(id, "succeeded")
    refused = tm("save", id)
    assert refused.returncode == 1


def test_json_for_users_has_no_names_of_the_code(tm: Line, daemon: LiveDaemon) -> None:
    id = daemon.submit(command="true")
    daemon.until_state(id, "succeeded")
    for words in (("show", id), ("story", id), ("explain", id), ("ps", "-a"), ("history",)):
        assert '"trainmaster.' not in tm.ok(*words, "--json")
    assert "record" not in json.loads(tm.ok("show", id, "--json"))


def test_the_page_of_a_standby_says_so(daemon: LiveDaemon) -> None:
    before = json.loads((daemon.folder / "address").read_text())
    with_port = ("--slots", "2", "--port", "0")
    command = [sys.executable, "-m", "trainmaster", "up", "--data", str(daemon.folder), *with_port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as standby:
        try:
            assert standby.stdout is not None
            url = standby.stdout.readline().split()[2].rstrip(",")
            asked = urllib.request.Request(url, headers=daemon.bearer())
            with pytest.raises(urllib.error.HTTPError) as answer:
                urllib.request.urlopen(asked, timeout=60)
            page = answer.value.read().decode()
            assert answer.value.code == 503
            assert page.count("This manager is a standby: another one leads.") == 1
            assert json.loads((daemon.folder / "address").read_text()) == before
        finally:
            standby.terminate()


def test_version_and_the_words_of_other_systems(tm: Line) -> None:
    said = json.loads(tm.ok("version", "--json"))
    assert said["version"] == said["manager"]
    stop = tm("stop")
    assert stop.returncode == 2
    assert "`trainmaster down` stops the manager" in stop.stderr


def test_debug_shows_where_an_error_came_from(tm: Line) -> None:
    assert "Traceback" not in tm("show", "nobody").stderr
    assert "Traceback" in tm("--debug", "show", "nobody").stderr


def test_up_in_the_background_and_down(tmp_path: Path) -> None:
    tm = Line(tmp_path / "state", tmp_path / "code")
    arguments = ("--data", str(tm.state), "--port", "0")
    try:
        said = tm.ok("up", "-d", *arguments, "--slots", "2")
        assert "last start" not in said
        assert said.startswith("Trainmaster at http://127.0.0.1:")
        assert f"export TRAINMASTER_DATA={tm.state}" in said
        job = tm.ok("run", "-d", "--no-snapshot", "--", "sleep", "300").strip()
        tm.ok("wait", job, "--for", "running")
        goes_on = f"1 job goes on; `trainmaster up --data {tm.state}` finds it again."
        assert goes_on in tm.ok("down")
        assert tm("status").returncode == 1
        assert f"Stopped. {goes_on}" in (tm.state / "up.out").read_text()
        said = tm.ok("up", "-d", *arguments)
        assert "Found 1 running job." in said
        assert "\n2 CPU slots, as at the last start: --slots says otherwise.\n" in said
        assert json.loads(tm.ok("status", "--json"))["devices"] == 2
        assert json.loads(tm.ok("show", job, "--json"))["restarts"] == 0
        second = tm.ok("up", "-d", *arguments)
        assert "a standby: another one leads on this database" in second
        assert re.search(r"`kill \d+` stops it", second)
        said = tm.ok("down", "--jobs")
        assert said.startswith("1 job cancelled. The manager at http://127.0.0.1:")
        assert re.search(r"Its standby \(process \d+\) takes over: `trainmaster down` stops", said)
        until(lambda: tm("status").returncode == 0, "the standby to lead")
        assert "takes over" not in tm.ok("down")
        refused = tm("up", "-d", "--data", str(tmp_path / "other"), "--policy", "nothing")
        assert refused.returncode == 2
        assert refused.stderr.startswith("Error: there is no policy 'nothing'")
    finally:
        tm("down")
        sweep(tm.state)


@pytest.mark.parametrize("files", ["trainmaster.db", "trainmaster.db*"])
def test_a_database_that_is_removed_meanwhile_is_named_and_the_way_out_works(
    tmp_path: Path, files: str
) -> None:
    tm = Line(tmp_path / "state", tmp_path / "code")
    start = ("up", "-d", "--data", str(tm.state), "--port", "0")
    try:
        tm.ok(*start, "--slots", "2")
        job = tm.ok("run", "-d", "--no-snapshot", "--", "sleep", "300").strip()
        tm.ok("wait", job, "--for", "running")
        for file in tm.state.glob(files):
            file.unlink()
        until(lambda: tm("status").returncode == 1, "the manager to notice")
        for words in (["ps"], ["story", job], ["cancel", "nobody"], ["status"]):
            said = tm(*words)
            assert said.returncode == 1
            assert "was removed or exchanged while in use: put it back, or stop the" in said.stderr
        output = tm.state / "up.out"
        until(lambda: "was removed or exchanged while in use" in output.read_text(), "the terminal")
        address = (tm.state / "address").read_text()
        for more in ([], ["--adopt"]):
            refused = tm(*start, *more)
            assert refused.returncode == 1
            assert "stop that manager with `trainmaster down` (jobs go on)" in refused.stderr
        assert (tm.state / "address").read_text() == address
        assert "Jobs go on. The manager at http://127.0.0.1:" in tm.ok("down")
        tm.ok(*start, "--adopt")
        assert json.loads(tm.ok("show", job, "--json"))["state"] == "running"
    finally:
        tm("down", "--jobs")
        sweep(tm.state)


WAITS = """
import sys, time
from trainmaster.cli.main import main
pause = time.sleep
def sleep(seconds):
    print("has asked", flush=True)
    pause(seconds)
time.sleep = sleep
sys.exit(main(["wait", sys.argv[1]]))
"""


def test_who_waits_for_a_job_is_told_that_down_cancelled_it(tmp_path: Path) -> None:
    tm = Line(tmp_path / "state", tmp_path / "code")
    try:
        tm.ok("up", "-d", "--data", str(tm.state), "--port", "0", "--slots", "1")
        job = tm.ok("run", "-d", "--no-snapshot", "--", "sleep", "300").strip()
        tm.ok("wait", job, "--for", "running")
        with subprocess.Popen(
            [sys.executable, "-c", WAITS, job],
            env=tm.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as waiting:
            assert waiting.stdout is not None
            assert waiting.stdout.readline() == "has asked\n"
            tm.ok("down", "--jobs")
            _, said = waiting.communicate(timeout=60)
        assert said.startswith(f"Note: job {job} was cancelled")
    finally:
        tm("down", "--jobs")
        sweep(tm.state)


WITHOUT_PSYCOPG = """
import sys
from trainmaster.cli.main import main
sys.modules["psycopg"] = None
sys.exit(main(["up", "--port", "0", "--data", sys.argv[1], "--database", "postgresql://ada@box/tm"]))
"""


def test_a_database_without_its_package_is_refused_before_anything_is_said(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT_PSYCOPG, str(tmp_path / "data")],
        text=True,
        capture_output=True,
        timeout=120,
    )
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith("Error: PostgreSQL needs one more package")
