"""What a new user of the command line stumbled over, one test each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.answers import job_details, job_list
from tests.cli.conftest import Tm
from tests.cli.counterpart import Answer, Counterpart, refusal, serving
from trainmaster.api.command_parsing import program_of


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counterpart]:
    with serving() as counterpart:
        monkeypatch.setenv("TRAINMASTER_URL", counterpart.url)
        monkeypatch.setenv("TRAINMASTER_USER", "ada")
        yield counterpart


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
    tm: Tm, manager: Counterpart, flags: str
) -> None:
    said = tm(f"run {flags} -- python train.py")
    assert said.code == 2
    assert said.err.startswith(f"Error: {WRONG_FLAGS[flags]}")
    assert said.err.count("\n") == 1
    assert not manager.asked


def test_what_the_manager_refuses_of_a_flag_is_named_as_it_was_typed(
    tm: Tm, manager: Counterpart
) -> None:
    no = "gpus must be a number, or TYPE:NUMBER with a type that is here (slot), not 'two'."
    manager.on("POST", "/jobs", refusal(422, "refused", no))
    said = tm("run --gpus two -- true")
    assert said.err == f"Error: --{no}\n"


def test_a_file_names_its_keys(tm: Tm, folder: Path, manager: Counterpart) -> None:
    (folder / "job.yaml").write_text("command: sleep 1\nmax_runtime: 60\n")
    said = tm("submit job.yaml")
    assert said.code == 2
    assert "job.yaml: line 2: max_runtime must be a length of time with its unit" in said.err
    (folder / "other.yaml").write_text("command: sleep 1\nresources: {gpus: 2}\n")
    assert "unknown key 'resources'; did you mean gpus?" in tm("submit other.yaml").err


def test_set_knows_the_word_of_run(tm: Tm, manager: Counterpart) -> None:
    assert "did you mean max_runtime?" in tm("set 1 time=4h").err
    said = tm("set 1 max_runtime=4")
    assert (said.code, "4s or 4m?" in said.err) == (2, True)


def test_a_time_limit_is_shown_as_people_write_it(tm: Tm, manager: Counterpart) -> None:
    for stated, shown in {"60s": "1m", "1:30:00": "1h30m", "90": "90s"}.items():
        spec = {"command": "true", "max_runtime": stated}
        manager.on("GET", "/jobs/1", job_details("1", "running", spec=spec))
        assert f"may run for  {shown} " in " ".join(f"{tm('show 1').out} ".split("\n"))


def test_logs_of_a_job_that_has_not_started_say_so(tm: Tm, manager: Counterpart) -> None:
    pending = job_details("3", "pending", start_s=None, nodes=[], devices=[])
    manager.on("GET", "/jobs", job_list())
    manager.on("GET", "/jobs/3", pending)
    manager.on("GET", "/jobs/3/logs", Answer(200, b"", "application/octet-stream"))
    said = tm("logs 3")
    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("Note: job 3 has not started yet")


QUEUE = {
    "name": "vision",
    "parent": None,
    "weight": 1,
    "guaranteed_gpus": 9,
    "maximum_gpus": None,
    "allow_unpreemptible": True,
    "is_defined": True,
    "running": 0,
    "pending": 0,
    "suspended": 0,
    "gpus": 0,
}


def status(**more: object) -> dict[str, object]:
    known = {"role": "active", "trouble": None, "notes": [], "version": "0", "pid": 1}
    known |= {"folder": "/x", "database": "sqlite:////x", "policy": "fifo", "devices": 4, "used": 0}
    return known | {"device_type": "slot", "jobs": {}} | more


def test_guarantees_that_cannot_be_kept_are_warned_of(tm: Tm, manager: Counterpart) -> None:
    policy = {"name": "fifo", "options": {"queues": "mine"}, "since_s": 1.0, "trouble": None}
    policy["obeys_queues"] = False
    manager.on("GET", "/queues", {"queues": [QUEUE]})
    manager.on("PUT", "/queues/vision", QUEUE)
    manager.on("GET", "/status", status())
    manager.on("GET", "/policy", policy)
    manager.on("PUT", "/policy", policy)
    said = tm("queue set vision --guaranteed 9")
    assert said.code == 0
    assert "Warning: queues are guaranteed 9 GPUs together, and there are 4\n" in said.err
    assert "Warning: the policy fifo does not look at queues" in tm("policy set fifo").err
    manager.on("GET", "/queues", {"queues": [{**QUEUE, "guaranteed_gpus": 0}]})
    assert "Warning: the policy fifo does not look at queues" in tm("queue set vision").err
    manager.on("GET", "/policy", {**policy, "name": "fair", "options": {}, "obeys_queues": True})
    manager.on("GET", "/status", status(devices=16))
    assert tm("policy set fair").err == ""


@pytest.mark.parametrize("verb", ["set", "rm"])
def test_a_queue_with_a_slash_in_its_name_is_refused_without_asking(tm: Tm, verb: str) -> None:
    said = tm(f"queue {verb} a/b")
    assert said.code == 2
    assert said.err == (
        "Error: the name of a queue must be 1 to 100 characters without a slash, a control character"
        " such as a line break, or a space at its ends, not 'a/b'.\n"
    )


@pytest.mark.parametrize(
    ("command", "name"),
    {
        "env | grep X": "env",
        "A=1 env B=2 python train.py": "train.py",
        "cat data | wc -l": "cat",
        "time": "time",
    }.items(),
)
def test_a_job_is_named_by_what_it_runs_first(command: str, name: str) -> None:
    assert program_of(command) == name


def test_a_load_in_percent_is_refused(tm: Tm) -> None:
    said = tm("trace generate --load 90 --jobs 10")
    assert (said.code, said.out) == (2, "")
    assert "0.9 for 90 %" in said.err


def test_a_trace_with_other_columns_is_told_the_native_ones(tm: Tm, folder: Path) -> None:
    (folder / "w.csv").write_text("id,submit,gpu,length\n1,0,1,1\n")
    said = tm("simulate w.csv --cluster 1x2")
    assert said.code == 2
    assert "the columns job_id, submit_s, gpus, duration_s" in said.err


def test_a_misspelt_performance_model_is_asked_about(tm: Tm, fig7: Path) -> None:
    assert tm("simulate fig7.csv --cluster 1x2 --perf idael").err.endswith("did you mean ideal?\n")


BAD_POLICY = """
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.config.options import NoOptions

class Mine(BasePolicy[NoOptions]):
    name = "mine"
    options_type = NoOptions

    def rank(self, view, record, now):
        return {returned}
"""


@pytest.mark.parametrize(
    ("returned", "blamed"),
    {"1 / 0": "mine.py:10)", "7": "with what mine returned)"}.items(),
    ids=["raises", "returns a number"],
)
def test_a_policy_that_raises_is_blamed_in_its_own_file(
    tm: Tm, folder: Path, fig7: Path, returned: str, blamed: str
) -> None:
    (folder / "mine.py").write_text(BAD_POLICY.format(returned=returned))
    said = tm("simulate fig7.csv --cluster 1x2 --policy ./mine.py")
    assert said.code == 1
    assert blamed in said.err
    assert said.err.count("Warning") == 1, "no second guess at why jobs do not start"
    assert "Traceback" not in said.err
    assert "Traceback" in tm("--debug simulate fig7.csv --cluster 1x2 --policy ./mine.py").err


WITH_JSON = (
    *("ps", "show", "story", "explain", "history", "status", "version", "run", "submit", "outputs"),
    *("queue list", "node list", "policy list", "policies", "trace formats", "compare"),
)


@pytest.mark.parametrize("command", WITH_JSON)
def test_json_is_a_flag(tm: Tm, command: str) -> None:
    (line,) = [each for each in tm(f"{command} --help").out.splitlines() if "  --json" in each]
    assert line.split()[1] in ("Write", "With"), "no placeholder of a file, but the help itself"
