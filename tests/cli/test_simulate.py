"""`simulate` for people and for programs: table, JSON, report, progress, interruption."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SUMMARY_KEYS = [
    *("jobs", "finished", "rejected", "unfinished", "load", "avg_jct_s", "avg_excess_s"),
    *("avg_jct_lower_bound_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_queue_s", "makespan_s"),
    *("gpu_util", "gpu_hours_wasted", "preemptions", "migrations", "max_rho", "p99_rho"),
    *("jain_index", "wall_s", "events"),
]
JOB_KEYS = [
    *("job_id", "submit_s", "start_s", "finish_s", "jct_s", "queue_s", "suspended_s", "gpu_s"),
    *("preemptions", "migrations", "status"),
]

Process = Callable[..., subprocess.CompletedProcess[str]]


def without_wall_time(text: str) -> str:
    return re.sub(r'"wall_s": [\d.e-]+', '"wall_s": 0', text)


def test_the_json_contract(tm, fig7: Path) -> None:
    said = tm("simulate fig7.csv --cluster 1x2 --policy fifo,las --json -")
    assert said.err == ""
    fifo, las = said.results()
    assert (fifo["policy"], las["policy"]) == ("fifo", "las")
    assert las["options"] == {"quantum_s": 60, "starve_after_s": 0, "min_run_s": 0}
    assert las["cluster"] == "1x2"
    assert [key for key in las["summary"] if key in SUMMARY_KEYS] == SUMMARY_KEYS
    assert [key for key in las["jobs"][0] if key in JOB_KEYS] == JOB_KEYS
    assert las["summary"]["load"] is None, "the span of arrivals is 0"


def test_the_same_bytes_again(tm, folder: Path) -> None:
    assert tm("trace generate --jobs 150 --gpus 16 --seed 4 --out t.csv").code == 0
    command = (
        "simulate t.csv --cluster 2x8 --policy fifo,srtf,srsf,las,tiresias-l --set quantum_s=3600"
        " --estimates noisy:0.5 --seed 7 --json -"
    )
    first, second = tm(command), tm(command)
    assert without_wall_time(first.out) == without_wall_time(second.out)
    assert first.out.count('"wall_s"') == 5


def test_the_same_bytes_whatever_the_hash_seed(process: Process, folder: Path) -> None:
    assert process("trace generate --jobs 150 --gpus 16 --out t.csv").returncode == 0
    (folder / "p.yaml").write_text("node_failures: {mtbf_h: 50}\ntable_error: 0.2\n")
    command = "simulate t.csv --cluster 2x8 --policy fifo,tiresias-l --perf p.yaml --json -"
    said = [process(command, env={"PYTHONHASHSEED": seed}).stdout for seed in "12"]
    assert without_wall_time(said[0]) == without_wall_time(said[1])


def test_failures_and_what_rules_save(tm, write: Callable[[str, str], Path]) -> None:
    trace = write(
        "failing.csv",
        "job_id,submit_s,gpus,duration_s,status,failed_attempts_s,failure_reasons\n"
        "a,0,4,30,failed,20;40,syntax-error;syntax-error;syntax-error\n"
        "b,0,1,600,,,\n",
    )
    line = f"simulate {trace} --cluster 1x8 --policy fifo"
    before = json.loads(tm(f"{line} --json -").out)["results"][0]
    assert "failures" not in before
    lost = {}
    for rules in ("", "retry", "prerun", "retry,prerun,inputs"):
        said = tm(f"{line} --failures trace --failure-rules '{rules}' --json -").out
        (result,) = json.loads(said)["results"]
        assert result["failures"]["rules"] == [each for each in rules.split(",") if each]
        lost[rules] = round(result["failures"]["gpu_hours"] * 3600)
    assert lost == {"": 360, "retry": 80, "prerun": 90, "retry,prerun,inputs": 20}
    shown = tm(f"{line} --failure-rules retry").out
    assert "failures with retry: 1 failed run of 1 job, 0.02 GPU hours lost." in shown
    assert "1 job not tried again (0 would have ended well)" in shown
    ideal = tm(f"{line} --failures trace --perf ideal")
    assert "0 failed runs" in ideal.out
    assert "no job fails under perf ideal" in ideal.err


def test_the_table_has_the_policies_side_by_side(tm, fig7: Path) -> None:
    said = tm("simulate fig7.csv --cluster 1x2 --policy srsf,las --set quantum_s=1 --perf ideal")
    assert said.code == 0
    assert said.err == ""
    lines = [line.split() for line in said.out.splitlines()]
    assert ["srsf", "las"] in lines
    assert ["mean", "JCT", "9.33", "s", "11.7", "s"] in lines
    assert ["preemptions", "0", "10"] in lines
    assert "fig7.csv on 1x2: 3 jobs, 2 GPUs, perf ideal" in said.out


def test_many_policies_on_a_narrow_screen_take_several_tables(
    tm, fig7: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainmaster.cli.support.console.WIDE", 60)
    monkeypatch.setenv("COLUMNS", "60")
    said = tm("simulate fig7.csv --cluster 1x2 --policy fifo,yarn-cs,srtf,srsf,las")
    assert said.out.count("mean JCT") == 2
    assert max(len(line.rstrip()) for line in said.out.splitlines()) <= 60
    assert "…" not in said.out


def test_json_goes_to_a_file_and_the_table_to_the_screen(tm, fig7: Path, folder: Path) -> None:
    said = tm("simulate fig7.csv --cluster 1x2 --policy fifo --json out.json")
    assert json.loads((folder / "out.json").read_text())["results"][0]["policy"] == "fifo"
    assert "mean JCT" in said.out
    assert sorted(path.name for path in folder.iterdir()) == ["fig7.csv", "out.json"]


def test_the_default_policy(tm, fig7: Path) -> None:
    assert [
        each["policy"] for each in tm("simulate fig7.csv --cluster 1x2 --json -").results()
    ] == ["trainmaster"]


def test_the_report(tm, write: Callable[[str, str], Path], folder: Path) -> None:
    write("t.csv", "job_id,submit_s,gpus,duration_s\na,0,1,10\nhuge,0,99,10\n")
    said = tm("simulate t.csv --cluster 1x2 --policy fifo,las --report out")
    assert said.code == 0
    assert "Report: out/index.html" in said.err
    page = (folder / "out/index.html").read_text()
    assert "job huge needs 99 GPUs, the cluster has 2: rejected" in page
    assert (folder / "out/jct_cdf.png").exists()
    assert len((folder / "out/gantt-fifo.csv").read_text().splitlines()) > 1, "stints were kept"


# -- options -----------------------------------------------------------------------------------------


def test_an_option_reaches_every_policy_that_has_it(tm, fig7: Path) -> None:
    said = tm(
        "simulate fig7.csv --cluster 1x2 --policy fifo,yarn-cs,las --set backfill=skip --json -"
    )
    fifo, yarn, las = (each["options"] for each in said.results())
    assert fifo["backfill"] == yarn["backfill"] == "skip"
    assert las == {"quantum_s": 60, "starve_after_s": 0, "min_run_s": 0}


def test_an_option_for_one_policy_goes_before_one_for_all(tm, fig7: Path) -> None:
    said = tm(
        "simulate fig7.csv --cluster 1x2 --policy fifo,yarn-cs"
        " --set yarn-cs.backfill=easy --set backfill=skip --json -"
    )
    assert [each["options"]["backfill"] for each in said.results()] == ["skip", "easy"]


# -- policies of one's own ---------------------------------------------------------------------------

OWN = '''
"""Largest first."""
from trainmaster.model.plan import Rank
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.config.options import NoOptions


class Largest(BasePolicy[NoOptions]):
    name = "largest"
    options_type = NoOptions

    def rank(self, view, record, now):
        return Rank(0, -record.demand.nominal.total_share)
'''


def test_a_policy_in_one_file(tm, fig7: Path, write: Callable[[str, str], Path]) -> None:
    write("mine.py", OWN)
    said = tm("simulate fig7.csv --cluster 1x2 --policy fifo,./mine.py --perf ideal --json -")
    own = said.results()[1]
    assert own["policy"] == "largest"
    assert [job["finish_s"] for job in own["jobs"]] == [2, 16, 8]


def test_a_policy_that_raises_is_reported(
    tm, fig7: Path, write: Callable[[str, str], Path]
) -> None:
    write("mine.py", OWN.replace("return Rank(0,", "return Rank(0 / 0,"))
    said = tm("simulate fig7.csv --cluster 1x2 --policy ./mine.py")
    assert said.code == 1
    assert "mine.py:" in said.err, "it says where"
    assert "Warning: largest raised an error 1 time, the first was ZeroDivisionError" in said.err
    assert "never starts" not in said.err, "the error is why"
    assert "unfinished jobs" in said.out


# -- long runs ---------------------------------------------------------------------------------------

SLOW = f"""{OWN}
    def plan(self, view, memo, now):
        time.sleep(PAUSE_S)
        if now > 200_000:
            Path("well-under-way").touch()
        return super().plan(view, memo, now)


import time
from pathlib import Path

PAUSE_S = 0.02
"""


@pytest.fixture
def slow(folder: Path, write: Callable[[str, str], Path]) -> list[str]:
    """A run that takes half a minute if it is left alone."""
    write("slow.py", SLOW)
    rows = "".join(f"j{n},{n * 10},1,5\n" for n in range(1500))
    write("t.csv", "job_id,submit_s,gpus,duration_s\n" + rows)
    line = "simulate t.csv --cluster 1x1 --policy fifo,./slow.py,las --perf ideal"
    return [sys.executable, "-m", "trainmaster", *line.split()]


def wait_for(path: Path) -> None:
    for _ in range(600):
        if path.exists():
            return
        time.sleep(0.1)
    pytest.fail(f"{path.name} did not appear")


def test_an_interruption_shows_what_is_known(slow: list[str], folder: Path) -> None:
    command = [*slow, "--json", "out.json", "--report", "out"]
    with subprocess.Popen(
        command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        wait_for(folder / "well-under-way")
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert "Traceback" not in err
    assert (
        "Interrupted: these are the results up to where it came, 1 of the policies not begun."
        in err
    )
    assert "largest (cut)" in out
    assert "unfinished jobs" in out
    assert "≥" in out
    fifo, cut = json.loads((folder / "out.json").read_text())["results"]
    assert fifo["summary"]["unfinished"] == 0
    assert 0 < cut["summary"]["unfinished"] < 1500
    assert cut["summary"]["avg_jct_s"] is None
    assert cut["summary"]["avg_jct_lower_bound_s"] is not None
    assert "was interrupted" in (folder / "out/index.html").read_text()


def test_a_long_run_on_a_terminal_shows_its_progress(slow: list[str], folder: Path) -> None:
    """The bar is on standard error; standard output stays clean."""
    (folder / "quick.py").write_text(SLOW.replace("0.02", "0.0005"))
    ours, theirs = pty.openpty()
    command = [part.replace("fifo,./slow.py,las", "./quick.py") for part in slow]
    with subprocess.Popen(
        [*command, "--json", "-"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120"},
    ) as run:
        os.close(theirs)
        out, _ = run.communicate(timeout=60)
    shown = b""
    while select.select([ours], [], [], 0)[0]:
        try:
            shown += os.read(ours, 65536)
        except OSError:
            break
    os.close(ours)
    assert run.returncode == 0
    assert json.loads(out)["results"][0]["summary"]["finished"] == 1500
    text = shown.decode()
    assert "largest" in text
    assert "/1500" in text
    assert "simulated" in text


def test_without_a_terminal_there_is_no_progress_bar(
    process: Process, slow: list[str], folder
) -> None:
    (folder / "quick.py").write_text(SLOW.replace("0.02", "0.0005"))
    said = process("simulate t.csv --cluster 1x1 --policy ./quick.py --perf ideal")
    assert said.returncode == 0
    assert said.stderr == ""


def test_a_trace_with_other_columns_is_told_the_native_ones(tm, folder: Path) -> None:
    (folder / "w.csv").write_text("id,submit,gpu,length\n1,0,1,1\n")
    said = tm("simulate w.csv --cluster 1x2")
    assert said.code == 2
    assert "the columns job_id, submit_s, gpus, duration_s" in said.err


def test_a_misspelt_performance_model_is_asked_about(tm, fig7: Path) -> None:
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
    tm, folder: Path, fig7: Path, returned: str, blamed: str
) -> None:
    (folder / "mine.py").write_text(BAD_POLICY.format(returned=returned))
    said = tm("simulate fig7.csv --cluster 1x2 --policy ./mine.py")
    assert said.code == 1
    assert blamed in said.err
    assert said.err.count("Warning") == 1, "no second guess at why jobs do not start"
    assert "Traceback" not in said.err
    assert "Traceback" in tm("--debug simulate fig7.csv --cluster 1x2 --policy ./mine.py").err
