"""`submit` and `run`: what is sent, sent once; output as it comes; exit codes; Ctrl-C."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.answers import end, job_details, job_list, job_row
from tests.cli.conftest import Tm
from tests.cli.counterpart import Answer, Asked, Counterpart, refusal, serving, stream

FILE = "name: bert\ncommand: python train.py\ngpus: 2\nenv: {LR: 0.1, COPIED: }\n"
PATIENCE_S = 60.0


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counterpart]:
    with serving() as counterpart:
        monkeypatch.setenv("TRAINMASTER_URL", counterpart.url)
        monkeypatch.setenv("TRAINMASTER_USER", "ada")
        monkeypatch.setenv("COPIED", "from here")
        monkeypatch.setattr("trainmaster.client.manager_api.RETRIES_S", (0.01,) * 3)
        yield counterpart


NO_JOBS = job_list()


def accepted(*ids: str) -> dict[str, Any]:
    return {"jobs": [{"id": id, "name": f"job-{id}", "ids": [id]} for id in ids]}


def array(id: str, *elements: str) -> dict[str, Any]:
    return {"jobs": [{"id": id, "name": "sweep", "ids": list(elements)}]}


def row(state: str, code: int | None = None, id: str = "5", **more: Any) -> dict[str, Any]:
    """For a list; `details` is the same for GET /jobs/{job}."""
    return job_row(id, state, **_known(state, code), **more)


def details(state: str, code: int | None = None, **more: Any) -> dict[str, Any]:
    return job_details("5", state, **_known(state, code), **more)


def _known(state: str, code: int | None) -> dict[str, Any]:
    started = None if state == "pending" else 1.0
    return {"name": "x", "exit_code": code, "start_s": started}


def sent_jobs(daemon: Counterpart) -> list[dict[str, Any]]:
    (body,) = daemon.bodies("POST", "/jobs")
    found: list[dict[str, Any]] = body["jobs"]
    return found


# -- submit ----------------------------------------------------------------------------------------------


def test_a_file_is_sent_with_its_submitters_surroundings(
    tm: Tm, daemon: Counterpart, write, folder: Path
) -> None:
    write("train.yaml", FILE)
    daemon.on("POST", "/jobs", accepted("5"))
    assert tm("submit train.yaml").out == "Submitted job 5 (job-5).\n"
    (spec,) = sent_jobs(daemon)
    assert (spec["name"], spec["gpus"], spec["command"]) == ("bert", 2, "python train.py")
    assert (spec["user"], spec["workdir"]) == ("ada", str(folder))
    assert (spec["env"]["LR"], spec["env"]["COPIED"]) == ("0.1", "from here")
    assert spec["env"]["PATH"] == os.environ["PATH"]
    assert len(daemon.asked[0].headers["idempotency-key"]) >= 32


def test_settings_go_before_the_file(tm: Tm, daemon: Counterpart, write) -> None:
    write("train.yaml", FILE)
    daemon.on("POST", "/jobs", accepted("5"))
    settings = (
        "--set gpus=0.5 --set env.LR=1 --set name=other --set array=0-9%2 --set depends_on=12_3"
    )
    assert tm(f"submit train.yaml --held {settings}").code == 0
    (spec,) = sent_jobs(daemon)
    assert (spec["gpus"], spec["name"], spec["array"]) == (0.5, "other", "0-9%2")
    assert spec["env"]["LR"] == "1"
    assert spec["depends_on"] == "12_3"
    assert spec["held"] is True


def test_several_files_and_documents_are_one_submission(tm: Tm, daemon: Counterpart, write) -> None:
    write("a.yaml", "command: one\n---\ncommand: two\n")
    write("b.yaml", "command: three\n")
    daemon.on("POST", "/jobs", accepted("5", "6", "7"))
    said = tm("submit a.yaml b.yaml --parsable")
    assert said.out == "5\n6\n7\n"
    assert [spec["command"] for spec in sent_jobs(daemon)] == ["one", "two", "three"]


def test_a_job_that_is_not_to_be_preempted(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("POST", "/jobs", accepted("5"))
    assert tm("run -d --no-preempt -- true").code == 0
    (sent,) = sent_jobs(daemon)
    assert sent["preemptible"] is False


def test_standard_input(daemon: Counterpart, folder: Path) -> None:
    daemon.on("POST", "/jobs", accepted("5"))
    ended = subprocess.run(
        [sys.executable, "-m", "trainmaster", "submit", "-", "--json"],
        input="command: x\n",
        text=True,
        capture_output=True,
        cwd=folder,
    )
    assert json.loads(ended.stdout) == accepted("5")


def test_what_was_answered_is_what_json_says(tm: Tm, daemon: Counterpart, write) -> None:
    """A single job has itself in `ids`, as the API has it."""
    write("train.yaml", FILE)
    for answer in (accepted("5"), array("6", "6_0", "6_1")):
        daemon.on("POST", "/jobs", answer)
        assert json.loads(tm("submit train.yaml --json").out) == answer
        assert json.loads(tm("run -d --json -- true").out) == answer


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("command: x\ngpu: 2\n", "line 2: unknown key 'gpu'; did you mean gpus?"),
        ("command: [x\n", "this is not YAML"),
        ("command: x\n\tgpus: 2\n", "line 2"),
        ("gpus: 2\n", "command is missing"),
        ("- a\n- b\n", "A job must be a mapping"),
        ("", "has no job in it"),
        ("command: x\ngpus: many:2:3\n", "gpus must be"),
        (
            "command: x\nenv: {NOT_SET_ANYWHERE: }\n",
            "bad.yaml: line 2: NOT_SET_ANYWHERE is not set here",
        ),
        ("command: x\nenv: 5\n", "env must be"),
        (
            "command: x\nenv: {A: true}\n",
            "env has A = true: a value is a text or a number; quote it",
        ),
    ],
)
def test_a_bad_file_is_named_with_its_line_and_nothing_is_sent(
    tm: Tm, daemon: Counterpart, write, text: str, sentence: str
) -> None:
    write("bad.yaml", text)
    said = tm("submit bad.yaml")
    assert said.code == 2
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert daemon.asked == []


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("gpu=2", "Error: --set: unknown key 'gpu'; did you mean gpus?\n"),
        ("gpus=many:2:3", "Error: --set: gpus must be"),
    ],
)
def test_a_mistake_of_an_option_is_not_blamed_on_the_file(
    tm: Tm, daemon: Counterpart, write, setting: str, sentence: str
) -> None:
    write("ok.yaml", FILE)
    said = tm(f"submit ok.yaml --set {setting}")
    assert said.code == 2
    assert said.err.startswith(sentence)
    write("bad.yaml", "command: x\nmem_ory: 2\n")
    assert "bad.yaml: line 2: unknown key" in tm("submit bad.yaml --set gpus=2").err
    write("worse.yaml", "command: x\ngpus: many:2:3\n")
    daemon.on("POST", "/jobs", accepted("5"))
    assert tm("submit worse.yaml --set gpus=2").code == 0, "what --set replaces is not looked at"


def test_what_only_the_daemon_can_judge_is_found_in_the_files(
    tm: Tm, daemon: Counterpart, write
) -> None:
    write("good.yaml", FILE)
    write("bad.yaml", "command: x\nname: y\ndata: [/here, /nope]\n")
    sentence = "data /nope does not exist on the manager's machine: mount it."
    daemon.on("POST", "/jobs", refusal(422, "refused", sentence))
    said = tm("submit good.yaml bad.yaml")
    assert (said.code, said.err) == (1, f"Error: bad.yaml: line 3: {sentence}\n")
    daemon.on("POST", "/jobs", refusal(422, "refused", "data /other does not exist."))
    said = tm("submit good.yaml bad.yaml")  # asked for by itself, the first is refused so too
    assert said.err == "Error: good.yaml: data /other does not exist.\n"
    assert tm("submit bad.yaml").err == "Error: data /other does not exist.\n"


def test_a_broken_line_is_tried_again_with_the_same_key(tm: Tm, daemon: Counterpart, write) -> None:
    write("train.yaml", FILE)
    cut = Answer(body=b"", breaks=True)
    half = Answer(body=b'{"jobs": [', breaks=True)
    daemon.on("POST", "/jobs", cut, half, accepted("5"))
    assert tm("submit train.yaml --parsable").out == "5\n"
    assert len(daemon.asked) == 3
    assert len({asked.headers["idempotency-key"] for asked in daemon.asked}) == 1


def test_a_line_that_stays_broken_is_given_up(tm: Tm, daemon: Counterpart, write) -> None:
    write("train.yaml", FILE)
    daemon.on("POST", "/jobs", Answer(body=b"", breaks=True))
    said = tm("submit train.yaml")
    assert (said.code, said.out) == (1, "")
    assert "No Trainmaster answers at" in said.err
    assert len(daemon.asked) == 4


def test_a_refused_submission_is_not_tried_again(tm: Tm, daemon: Counterpart, write) -> None:
    write("train.yaml", FILE)
    daemon.on("POST", "/jobs", refusal(409, "conflict", "The key was used before."))
    said = tm("submit train.yaml")
    assert (said.code, said.err) == (1, "Error: The key was used before.\n")
    assert len(daemon.asked) == 1


NOT_YET = refusal(503, "unavailable", "This manager is being started.")


def test_a_daemon_that_is_not_ready_yet_is_asked_again(tm: Tm, daemon: Counterpart, write) -> None:
    write("train.yaml", FILE)
    daemon.on("POST", "/jobs", NOT_YET, accepted("5"))
    assert tm("submit train.yaml --parsable").out == "5\n"
    assert len({asked.headers["idempotency-key"] for asked in daemon.asked}) == 1
    daemon.on("POST", "/jobs", NOT_YET)
    said = tm("submit train.yaml")
    assert (said.code, said.err) == (1, "Error: This manager is being started.\n")


def test_waiting_goes_on_while_the_daemon_recovers(
    tm: Tm, daemon: Counterpart, write, monkeypatch
) -> None:
    monkeypatch.setattr("trainmaster.client.polling.LONGEST_PAUSE_S", 0.01)
    write("train.yaml", FILE)
    daemon.on("POST", "/jobs", accepted("5"))
    daemon.on("GET", "/jobs/5", details("running"), NOT_YET, NOT_YET, details("succeeded", 0))
    assert tm("submit train.yaml --wait").code == 0
    daemon.on(
        "GET", "/jobs/5", details("running"), NOT_YET, details("running"), details("succeeded", 0)
    )
    daemon.on("GET", "/jobs/5/logs", NOT_YET, NOT_YET, served_once(log(b"one\n", "1")))
    said = tm("run -- true")
    assert (said.code, said.out) == (0, "one\n"), said.err
    write("sweep.yaml", FILE + "array: 0-1\n")
    daemon.on("POST", "/jobs", array("6", "6_0", "6_1"))
    none, both = job_list(), job_list(row("succeeded", 0), row("succeeded", 0))
    daemon.on("GET", "/jobs", NOT_YET, none, NOT_YET, both)
    assert tm("submit sweep.yaml --wait").code == 0


def test_a_dry_run_submits_nothing(tm: Tm, daemon: Counterpart, write) -> None:
    write("train.yaml", FILE)
    sheet = details("pending") | {
        "gpus": 2,
        "queue": "default",
        "user": "ada",
        "remarks": ["Mind this."],
    }
    forecast = {"start_s": None, "basis": "nothing is known", "sentence": ""}
    daemon.on("POST", "/jobs", {"jobs": [{"job": sheet, "forecast": forecast}]})
    out = tm("submit train.yaml --dry-run").out
    assert "Would submit x: 2 GPUs, queue default, user ada." in out
    assert "Expected start: not known (nothing is known)." in out
    assert "Note: Mind this." in out
    assert daemon.asked[0].query == {"dry_run": "true"}
    assert json.loads(tm("run --dry-run --json -- true").out)["jobs"][0]["job"]["gpus"] == 2


@pytest.mark.parametrize(
    ("ahead_s", "sentence"),
    [
        (-1, "Nothing is in its way."),
        (300, "Other jobs would run first."),
        (None, "It is not known yet"),
    ],
)
def test_a_dry_run_says_what_the_forecast_says(
    tm: Tm, daemon: Counterpart, ahead_s: int | None, sentence: str
) -> None:
    start = None if ahead_s is None else time.time() + ahead_s
    sheet = details("pending") | {"gpus": 1, "queue": "default", "user": "ada", "remarks": []}
    forecast = {"start_s": start, "basis": "", "sentence": ""}
    daemon.on("POST", "/jobs", {"jobs": [{"job": sheet, "forecast": forecast}]})
    assert f"  {sentence}" in tm("run --dry-run -- true").out


def test_waiting_returns_the_jobs_own_code(tm: Tm, daemon: Counterpart, write) -> None:
    write("train.yaml", FILE)
    daemon.on("POST", "/jobs", accepted("5"))
    daemon.on("GET", "/jobs/5", details("pending"), details("running"), details("failed", 42))
    said = tm("submit train.yaml --wait")
    assert said.code == 42
    assert "job 5 failed with exit code 42" in said.err


def test_waiting_for_an_array_returns_the_highest_code(tm: Tm, daemon: Counterpart, write) -> None:
    write("train.yaml", FILE)
    daemon.on("POST", "/jobs", array("5", "5_0", "5_1", "5_2"))
    ends = [row("succeeded", 0, "5_0"), row("failed", 3, "5_1"), row("failed", 2, "5_2")]

    def jobs(asked: Asked) -> Answer:
        assert asked.query["array"] == "5"
        live = "state" in asked.query
        polls = [each for each in daemon.asked if "state" in each.query]
        found = ([row("running", None, "5_1")] if len(polls) < 3 else []) if live else ends
        return Answer(body=job_list(*found))

    daemon.on("GET", "/jobs", jobs)
    said = tm("submit train.yaml --wait --json")
    assert said.code == 3
    assert [each["state"] for each in json.loads(said.out)["jobs"]] == [
        *("succeeded", "failed", "failed")
    ]


def test_a_file_names_its_keys(tm: Tm, folder: Path, daemon: Counterpart) -> None:
    (folder / "job.yaml").write_text("command: sleep 1\nmax_runtime: 60\n")
    said = tm("submit job.yaml")
    assert said.code == 2
    assert "job.yaml: line 2: max_runtime must be a length of time with its unit" in said.err
    (folder / "other.yaml").write_text("command: sleep 1\nresources: {gpus: 2}\n")
    assert "unknown key 'resources'; did you mean gpus?" in tm("submit other.yaml").err


# -- run -------------------------------------------------------------------------------------------------


def log(content: bytes, id: str, rank: int = 0) -> str:
    said = {"attempt": 1, "rank": rank, "bytes": base64.b64encode(content).decode()}
    return f"event: log\nid: {id}\ndata: {json.dumps(said)}\n\n"


END = 'event: end\ndata: {"state": "succeeded"}\n\n'


@pytest.fixture
def umask() -> Iterator[Callable[[int], object]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def test_every_flag_has_its_field(tm: Tm, daemon: Counterpart, write, folder: Path, umask) -> None:
    umask(0o027)
    write("more.env", "B=2\n")
    (folder / "sub").mkdir()
    daemon.on("POST", "/jobs", accepted("5"))
    said = tm(
        "run -n bert -q vision --gpus H100:2 --cpus 4 --mem 16G -t 1:30:00 --priority 3 --retries 1"
        " --after 3 --after 4:any --array 0-9%2 --env A=1 --env COPIED --env-file more.env"
        " --workdir sub --no-snapshot --ranks gpu --container docker:reg/image:tag -d"
        " -- python train.py -n 3 --gpus 9"
    )
    assert (said.code, said.out) == (0, "5\n")
    (spec,) = sent_jobs(daemon)
    spec["env"] = {name: spec["env"][name] for name in spec["env"].keys() & {"A", "B", "COPIED"}}
    assert spec == {
        "command": ["python", "train.py", "-n", "3", "--gpus", "9"],
        "name": "bert",
        "queue": "vision",
        "gpus": "H100:2",
        "cpus": 4.0,
        "memory": "16G",
        "max_runtime": "1:30:00",
        "priority": 3,
        "retries": 1,
        "depends_on": ["3", "4:any"],
        "array": "0-9%2",
        "env": {"A": "1", "B": "2", "COPIED": "from here"},
        "workdir": str(folder / "sub"),
        "snapshot": False,
        "ranks": "gpu",
        "container": {"docker": "reg/image:tag"},
        "user": "ada",
        "umask": "027",
    }
    from trainmaster.config.job_file import job_file_of

    job_file_of(spec)


@pytest.mark.parametrize(
    ("options", "retries"),
    [
        ("", 0),
        ("--on-hang report", 0),
        ("--on-hang restart", 1),
        ("--on-hang restart --retries 3", 3),
    ],
)
def test_a_restart_after_a_hang_is_a_retry(
    tm: Tm, daemon: Counterpart, options: str, retries: int
) -> None:
    daemon.on("POST", "/jobs", accepted("5"))
    assert tm(f"run -d {options} -- make").code == 0
    assert sent_jobs(daemon)[0]["retries"] == retries


def test_a_restart_without_a_retry_is_refused(tm: Tm, daemon: Counterpart) -> None:
    said = tm("run -d --on-hang restart --retries 0 -- make")
    assert (said.code, daemon.bodies("POST", "/jobs")) == (2, [])
    assert "--on-hang restart is a retry, and retries 0 allows none" in said.err


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("run -d -- 'cd x && make'", "cd x && make"),
        ("run -d -- make", ["make"]),
        ("run -d make -j 4", ["make", "-j", "4"]),
        ("run -d -- sh -c 'a b'", ["sh", "-c", "a b"]),
    ],
)
def test_one_word_with_spaces_is_a_line_for_the_shell(
    tm: Tm, daemon: Counterpart, line: str, command: object
) -> None:
    daemon.on("POST", "/jobs", accepted("5"))
    assert tm(line).code == 0
    assert sent_jobs(daemon)[0]["command"] == command


def test_output_is_written_byte_by_byte_and_the_code_is_the_jobs_own(
    process: Callable[..., subprocess.CompletedProcess[str]], daemon: Counterpart, folder: Path
) -> None:
    content = bytes(range(256)) * 400
    daemon.on("POST", "/jobs", accepted("5"))
    waits = {"code": "NotEnoughFree", "sentence": "It needs 1 GPU and none are free."}
    daemon.on(
        *("GET", "/jobs/5"),
        *(details("pending", reason=waits), details("pending", reason=waits)),
        *(details("running"), details("failed", 9)),
    )
    daemon.on(
        "GET", "/jobs/5/logs", stream(log(content[:5000], "1"), log(content[5000:], "2"), END)
    )
    ended = subprocess.run(
        [sys.executable, "-m", "trainmaster", "run", "--", "true"], cwd=folder, capture_output=True
    )
    assert ended.returncode == 9
    # the last look after the end begins where the one before stopped
    asked = [each for each in daemon.asked if each.path == "/jobs/5/logs"]
    assert asked[0].query == {"rank": "0", "follow": "true"}
    assert asked[-1].headers["last-event-id"] == "2"
    assert ended.stdout[: len(content)] == content
    notes = ended.stderr.decode().splitlines()
    assert notes[0] == "Submitted job 5 (job-5)."
    assert notes.count("Job 5 is pending: It needs 1 GPU and none are free.") == 1
    assert notes[-1] == "Job 5 failed with exit code 9."


def served_once(*events: str) -> Callable[[Asked], Answer]:
    """A log that goes on after the last event seen, as the daemon's does."""
    ids = [each.partition("id: ")[2].split("\n")[0] for each in events]

    def answer(asked: Asked) -> Answer:
        seen = asked.headers.get("last-event-id")
        rest = events[ids.index(seen) + 1 :] if seen else events
        return stream(*rest, END)

    return answer


def test_a_stream_that_breaks_goes_on_where_it_was(
    tm: Tm, daemon: Counterpart, monkeypatch
) -> None:
    monkeypatch.setattr("trainmaster.client.polling.LONGEST_PAUSE_S", 0.01)
    events = (log(b"one\n", "1"), log(b"two\n", "2"), log(b"three\n", "3"))
    whole = served_once(*events)
    daemon.on("POST", "/jobs", accepted("5"))
    daemon.on(
        *("GET", "/jobs/5/logs"),
        *(stream(*events[:2], breaks=True), Answer(body=b"", breaks=True), whole),
    )
    daemon.on(
        *("GET", "/jobs/5"),
        *(
            details("running"),
            details("running"),
            Answer(body=b"", breaks=True),
            details("succeeded", 0),
        ),
    )
    said = tm("run -- true")
    assert (said.code, said.out) == (0, "one\ntwo\nthree\n")


def test_a_follower_is_told_that_a_job_is_suspended_and_resumed(
    tm: Tm, daemon: Counterpart
) -> None:
    daemon.on("POST", "/jobs", accepted("5"))
    daemon.on("GET", "/jobs/5", details("running"), details("succeeded", 0))
    said = [
        {"state": "running", "transition": None, "sentence": None},
        {"state": "suspended", "transition": None, "sentence": "Others go first."},
        {"state": "suspended", "transition": "starting", "sentence": None},
        {"state": "running", "transition": None, "sentence": None},
    ]
    sent = [f"event: state\ndata: {json.dumps(each)}\n\n" for each in said]
    daemon.on("GET", "/jobs/5/logs", served_once(log(b"one\n", "1"), *sent, log(b"two\n", "2")))
    found = tm("run -- true")
    assert found.out == "one\ntwo\n"
    assert found.err == (
        "Submitted job 5 (job-5).\nJob 5 is suspended: Others go first.\nJob 5 runs again.\n"
    )


def test_all_ranks_have_their_number(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("POST", "/jobs", accepted("5"))
    daemon.on("GET", "/jobs/5", details("running"), details("succeeded", 0))
    events = (log(b"a\nb", "1"), log(b"x\n", "2", 1), log(b"c\n", "3"))
    daemon.on("GET", "/jobs/5/logs", served_once(*events))
    assert tm("run --all-ranks -- true").out == "[0] a\n[1] x\n[0] bc\n"
    asked = [each for each in daemon.asked if each.path == "/jobs/5/logs"]
    assert asked[0].query["rank"] == "all"


def test_a_cancelled_job_is_no_success(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("POST", "/jobs", accepted("5"))
    daemon.on("GET", "/jobs/5", details("cancelled"))
    daemon.on("GET", "/jobs/5/logs", stream(END))
    said = tm("run -- true")
    assert said.code == 1
    assert "Job 5 was cancelled." in said.err


def test_a_waiting_user_is_told_why_a_job_did_not_succeed(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("POST", "/jobs", accepted("5"))
    late = end("TimeLimit", "It has run for its time limit of 2 s.")
    ended = details("timed_out", 143) | {"end_reason": late}
    daemon.on("GET", "/jobs/5", ended)
    daemon.on("GET", "/jobs/5/logs", stream(END))
    said = tm("run --time 2s -- sleep 9")
    assert said.code == 124
    assert "Job 5 timed out: It has run for its time limit of 2 s." in said.err


WRONG_FLAGS = {
    "--time 60": "--time must be a length of time with its unit: 60s or 60m?",
    "--time 4x": "--time must be a length of time such as",
    "--deadline 2": "--deadline must be a length of time with its unit: 2s or 2m?",
    "--grace 30": "--grace must be a length of time with its unit: 30s or 30m?",
    "--gpus 2.5": "--gpus must be whole GPUs or a part of one",
    "--array 5-1": "--array must be a number of elements",
    "--mem lots": "--mem must be a size such as",
}


@pytest.mark.parametrize("flags", WRONG_FLAGS)
def test_a_wrong_flag_is_bad_usage_and_named_as_it_was_typed(
    tm: Tm, daemon: Counterpart, flags: str
) -> None:
    said = tm(f"run {flags} -- python train.py")
    assert said.code == 2
    assert said.err.startswith(f"Error: {WRONG_FLAGS[flags]}")
    assert said.err.count("\n") == 1
    assert not daemon.asked


def test_what_the_manager_refuses_of_a_flag_is_named_as_it_was_typed(
    tm: Tm, daemon: Counterpart
) -> None:
    no = "gpus names 'two', a type that is not here (types: slot): it is a number, or TYPE:NUMBER."
    daemon.on("POST", "/jobs", refusal(422, "refused", no))
    said = tm("run --gpus two -- true")
    assert said.err == f"Error: --{no}\n"


@pytest.mark.parametrize("line", ["NOT_SET_ANYWHERE", "1X=3", "=3"])
def test_a_bad_line_of_an_env_file_is_named(tm: Tm, folder: Path, line: str) -> None:
    (folder / "e.env").write_text(f"A=1\n{line}\n")
    said = tm("run -d --env-file e.env -- true")
    assert said.code == 2
    assert said.err.startswith("Error: e.env, line 2: ")


# -- Ctrl-C ----------------------------------------------------------------------------------------------


class Running:
    """`trainmaster run`, waiting for a job that goes on until it is cancelled."""

    def __init__(self, daemon: Counterpart, folder: Path) -> None:
        self.cancelled = threading.Event()
        self.followed = threading.Event()
        daemon.on("POST", "/jobs", accepted("5"))
        daemon.on("GET", "/jobs/5", self._row)
        daemon.on("GET", "/jobs/5/logs", self._log)
        daemon.on("POST", "/jobs/5/cancel", self._cancel)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainmaster", "run", "--", "sleep", "1000"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _row(self, _asked: Asked) -> Answer:
        return Answer(
            body=details("cancelled", 143) if self.cancelled.is_set() else details("running")
        )

    def _log(self, _asked: Asked) -> Answer:
        self.followed.set()
        self.cancelled.wait(0.2)
        return stream(": ping\n\n")

    def _cancel(self, _asked: Asked) -> Answer:
        self.cancelled.set()
        return Answer(body=row("running"))

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def say(self, text: str) -> str:
        """Read standard error up to a line that says this."""
        assert self.process.stderr is not None
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if text in line:
                return "".join(lines)
        raise AssertionError(f"no {text!r} in {lines}")

    def end(self) -> int:
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def running(daemon: Counterpart, folder: Path) -> Iterator[Running]:
    found = Running(daemon, folder)
    try:
        assert found.followed.wait(PATIENCE_S)
        time.sleep(0.05)
        yield found
    finally:
        found.cancelled.set()
        found.process.kill()
        found.process.communicate()


def test_one_interruption_leaves_the_job_running(running: Running) -> None:
    running.interrupt()
    running.say("Job 5 goes on. Ctrl-C again cancels it.")
    running.say("`trainmaster logs -f 5` shows its output, `trainmaster cancel 5` ends it.")
    assert running.end() == 130
    assert not running.cancelled.is_set()


def test_two_interruptions_cancel_it(running: Running) -> None:
    running.interrupt()
    running.say("Ctrl-C again cancels it.")
    running.interrupt()
    running.say("Job 5 is being cancelled.")
    assert running.end() == 130
    assert running.cancelled.is_set()


def test_a_user_who_stops_waiting_is_told_that_the_jobs_go_on(
    daemon: Counterpart, write, folder: Path
) -> None:
    write("train.yaml", FILE)
    asked = threading.Event()

    def running(_asked: Asked) -> Answer:
        asked.set()
        return Answer(body=details("running"))

    daemon.on("POST", "/jobs", accepted("5"))
    daemon.on("GET", "/jobs/5", running)
    waiting = subprocess.Popen(
        [sys.executable, "-m", "trainmaster", "submit", "train.yaml", "--wait"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert asked.wait(PATIENCE_S)
        time.sleep(0.05)
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=PATIENCE_S)
    finally:
        waiting.kill()
        waiting.communicate()
    assert (waiting.returncode, out) == (130, "Submitted job 5 (job-5).\n")
    assert err == "Note: the jobs go on; `trainmaster cancel 5` ends them\n"


# -- logs ------------------------------------------------------------------------------------------------


def test_logs_are_the_bytes_that_were_written(daemon: Counterpart, folder: Path) -> None:
    content = bytes(range(256)) * 4096
    daemon.on("GET", "/jobs/a b", job_details("5"))
    daemon.on("GET", "/jobs/a b/logs", Answer(200, content, "text/plain"))
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "trainmaster",
            "logs",
            "a b",
            *["--rank", "3", "--attempt", "2", "--tail", "10"],
        ],
        cwd=folder,
        capture_output=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == content
    assert daemon.asked[-1].query == {"rank": "3", "attempt": "2", "tail": "10"}


def test_logs_followed_to_the_end(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/jobs", NO_JOBS)
    daemon.on("GET", "/jobs/5", details("running"), details("failed", 3))
    daemon.on("GET", "/jobs/5/logs", served_once(log(b"one\n", "1"), log(b"two\n", "2")))
    said = tm("logs -f 5 --tail 1")
    assert (said.code, said.out) == (0, "one\ntwo\n")


def test_logs_of_all_ranks_one_after_the_other(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/jobs", NO_JOBS)

    def content(asked: Asked) -> Answer:
        if int(asked.query["rank"]) > 1:
            return refusal(404, "not_found", "Job 5 has no rank 2.")
        return Answer(200, f"I am {asked.query['rank']}\n".encode(), "text/plain")

    daemon.on("GET", "/jobs/5", details("running"))
    daemon.on("GET", "/jobs/5/logs", content)
    assert tm("logs 5 --all-ranks").out == "[0] I am 0\n[1] I am 1\n"
    daemon.on("GET", "/jobs/5", details("pending"))
    assert tm("logs 5 --all-ranks").out == ""


def test_logs_cut_short_are_no_success(tm: Tm, daemon: Counterpart) -> None:
    daemon.on("GET", "/jobs", NO_JOBS)
    daemon.on("GET", "/jobs/5", job_details("5"))
    daemon.on("GET", "/jobs/5/logs", Answer(200, b"half", "text/plain", breaks=True))
    said = tm("logs 5")
    assert (said.code, said.out) == (1, "half")


def test_logs_do_not_show_a_prerun_as_the_run_after_it(tm: Tm, daemon: Counterpart) -> None:
    prerun = {"result": "passed", "sentence": "", "attempt": 1, "run_s": 1.0}
    daemon.on("GET", "/jobs", NO_JOBS)
    daemon.on("GET", "/jobs/5", job_details("5", attempt=1, prerun=prerun | {"result": "running"}))
    daemon.on("GET", "/jobs/5/logs", Answer(200, b"first\n", "text/plain"))
    said = tm("logs 5")
    assert (said.out, said.err) == (
        "first\n",
        "The output of the pre-run of job 5, on one device:\n",
    )
    daemon.on("GET", "/jobs/5", job_details("5", attempt=2, prerun=prerun))
    daemon.on("GET", "/jobs/5/logs", refusal(404, "not_found", "Job 5 has no attempt 2."))
    said = tm("logs 5")
    assert (said.code, said.out) == (0, "")
    assert said.err.startswith(
        "Job 5 has written nothing yet on all its devices: `trainmaster logs 5"
    )


def test_logs_of_a_job_that_has_not_started_say_so(tm: Tm, daemon: Counterpart) -> None:
    pending = job_details("3", "pending", start_s=None, nodes=[], devices=[])
    daemon.on("GET", "/jobs", job_list())
    daemon.on("GET", "/jobs/3", pending)
    daemon.on("GET", "/jobs/3/logs", Answer(200, b"", "application/octet-stream"))
    said = tm("logs 3")
    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("Note: job 3 has not started yet")


# -- arrays ----------------------------------------------------------------------------------------------


def an_array(daemon: Counterpart) -> None:
    """Two elements that write: the second one fails once, and ends in the middle of a line."""
    written = {"5_0": {1: b"zero\nmore\n"}, "5_1": {1: b"first\n", 2: b"again\nand on"}}
    looks = iter(
        [
            [row("running", id="5_0", attempt=1), row("running", id="5_1", attempt=1)],
            [row("succeeded", 0, id="5_0", attempt=1), row("running", id="5_1", attempt=2)],
        ]
    )
    ended = [row("succeeded", 0, id="5_0", attempt=1), row("failed", 7, id="5_1", attempt=2)]

    def jobs(asked: Asked) -> Answer:
        assert asked.query["array"] == "5"
        found = ended[:1] if asked.query["limit"] == "1" else next(looks, ended)
        return Answer(body=job_list(*found[::-1]))

    def logs(id: str) -> Callable[[Asked], Answer]:
        def answer(asked: Asked) -> Answer:
            content = written[id][int(asked.query["attempt"])][int(asked.query["from"]) :]
            return Answer(200, content, "text/plain")

        return answer

    daemon.on("GET", "/jobs", jobs)
    for id in written:
        daemon.on("GET", f"/jobs/{id}/logs", logs(id))


WRITTEN = b"[5_0] zero\n[5_0] more\n[5_1] first\n[5_1] again\n[5_1] and on\n"


@pytest.mark.parametrize("line", ["run --array 2 -- x", "logs -f 5"])
def test_what_the_elements_of_an_array_write_is_shown_with_their_ids(
    daemon: Counterpart, folder: Path, line: str
) -> None:
    daemon.on("POST", "/jobs", array("5", "5_0", "5_1"))
    an_array(daemon)
    ended = subprocess.run(
        [sys.executable, "-m", "trainmaster", *line.split()], cwd=folder, capture_output=True
    )
    assert ended.stdout == WRITTEN
    if line.startswith("run"):
        assert ended.returncode == 7
        assert b"Job 5_1 failed with exit code 7." in ended.stderr


def test_the_logs_of_an_array_so_far(daemon: Counterpart, tm: Tm, folder: Path) -> None:
    an_array(daemon)
    ended = subprocess.run(
        [sys.executable, "-m", "trainmaster", "logs", "5"], cwd=folder, capture_output=True
    )
    assert ended.stdout == b"[5_0] zero\n[5_0] more\n[5_1] first\n"
    said = tm("logs 5 --tail 3")
    assert said.code == 2
    assert "name one, as in 5_0" in said.err
