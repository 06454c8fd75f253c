"""`trainmaster compare` as its users have it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Tm
from trainmaster.evaluation import trial_cache

Write = Callable[[str, str], Path]

ROWS = "".join(f"j{n},{40 * n},{1 + n % 2},{60 + 90 * (n % 7)}\n" for n in range(60))
TRACE = f"job_id,submit_s,gpus,duration_s\n{ROWS}"


@pytest.fixture
def own(write: Write) -> Path:
    return write("trace.csv", TRACE)


# -- suites ------------------------------------------------------------------------------------------


def test_a_part_of_a_suite_leaves_a_report_and_all_scores(tm: Tm, folder: Path) -> None:
    said = tm("compare --suite small --only order --seeds 2 --out here --processes 2")
    assert said.code == 0, said.err
    assert "order: generated on 4x4, ideal" in said.out
    assert "tiresias-l tuned" in said.out
    assert "10 trials done in" in said.err
    assert "Report: here/small-part/index.html" in said.err
    assert (folder / "here/small-part/index.html").is_file()
    scores = json.loads((folder / "here/small-part/scores.json").read_text())
    assert [each["contender"] for each in scores["trials"]][::2] == [
        *("fifo", "las", "tiresias-l tuned", "trainmaster", "srsf")
    ]
    assert scores["trials"][4]["score"]["chosen"] is not None


def test_run_again_it_only_reads_and_says_so_and_gives_the_same_bytes(tm: Tm) -> None:
    line = "compare --suite small --only order --seeds 1 --out here --processes 1 --json"
    first, second = tm(line), tm(line)
    assert (first.code, second.code) == (0, 0)
    assert first.out == second.out
    assert "5 of 5 trials are in the cache." in second.err
    assert "done in" not in second.err
    assert [each["seed"] for each in json.loads(first.out)["trials"]] == [0, 0, 0, 0, 0]


def test_suites_are_listed(tm: Tm) -> None:
    said = tm("compare --list")
    assert said.code == 0
    assert "small: A small comparison (31 trials)" in said.out
    listed = json.loads(tm("compare --list --json").out)["suites"]
    small = next(each for each in listed if each["suite"] == "small")
    assert [each["experiment"] for each in small["experiments"]] == ["order", "placement"]
    assert sum(each["trials"] for each in small["experiments"]) == small["trials"] == 31


def test_the_list_cuts_no_name_on_a_narrow_screen(tm: Tm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    said = tm("compare --list").out
    assert "placement-generated" in said
    assert "\N{HORIZONTAL ELLIPSIS}" not in said


def test_one_suite_is_listed_with_all_that_takes_part(tm: Tm) -> None:
    said = tm("compare --list --suite small")
    assert said.code == 0, said.err
    assert "contenders: fifo, las, tiresias-l tuned, trainmaster, srsf" in said.out
    assert "workloads: generated, head of line" in said.out
    assert "published" not in said.out
    (suite,) = json.loads(tm("compare --list --suite small --only order --json").out)["suites"]
    assert [each["experiment"] for each in suite["experiments"]] == ["order"]


def test_ctrl_c_ends_it_with_a_sentence_and_the_same_command_goes_on(folder: Path) -> None:
    command = [sys.executable, "-m", "trainmaster", "compare", "--suite", "small"]
    command += ["--out", "here", "--processes", "1"]
    started = subprocess.Popen(
        command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    trials = folder / "here" / ".trials"
    while started.poll() is None and not (trials.is_dir() and list(trials.glob("*.json"))):
        time.sleep(0.02)
    os.kill(started.pid, signal.SIGINT)
    _, words = started.communicate(timeout=60)
    assert started.returncode == 130, words
    assert "trials are done and kept; run the same command again to continue." in words
    assert "Traceback" not in words
    kept = len(list(trials.glob("*.json")))
    assert 0 < kept < 31
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert f"{kept} of 31 trials are in the cache." in ended.stderr
    assert len(list(trials.glob("*.json"))) == 31
    assert (folder / "here/small/index.html").is_file()


# -- traces of one's own -----------------------------------------------------------------------------


def test_a_trace_of_ones_own(tm: Tm, own: Path, folder: Path) -> None:
    said = tm("compare trace.csv --cluster 1x4 --policy fifo,las,srsf --perf ideal --processes 1")
    assert said.code == 0, said.err
    assert "own: trace.csv on 1x4, perf ideal, estimates none, 48 measured jobs, load" in said.out
    assert "srsf (bound)" in said.out
    assert sorted(each.name for each in folder.iterdir()) == ["trace.csv"]


def test_its_report_goes_into_the_folder_that_was_named(tm: Tm, own: Path, folder: Path) -> None:
    line = "compare trace.csv --cluster 1x4 --policy fifo,las --perf ideal --processes 1 --out here"
    said = tm(line)
    assert "Report: here/index.html" in said.err
    assert {each.name for each in (folder / "here").iterdir()} >= {
        *("index.html", "README.md", "scores.csv", "scores.json", ".trials")
    }
    assert tm(line).code == 0


def test_a_report_takes_no_page_of_others(tm: Tm, own: Path, write: Write) -> None:
    page = write("README.md", "Our project\n")
    said = tm("compare trace.csv --cluster 1x4 --policy fifo --perf ideal --out .")
    assert said.code == 1
    assert "--out . has a README.md already; name another directory." in said.err
    assert page.read_text() == "Our project\n"


def test_the_default_policies_are_those_that_the_help_names(tm: Tm, own: Path) -> None:
    said = tm("compare trace.csv --cluster 1x4 --perf ideal --processes 1 --json")
    labels = [each["contender"] for each in json.loads(said.out)["trials"]]
    assert f"default: {','.join(labels)}" in tm("compare --help").out


QUEUED = "job_id,submit_s,gpus,duration_s,queue\n" + "".join(
    f"j{n},{10 * n},1,400,{'ab'[n % 2]}\n" for n in range(40)
)


def test_queues_are_what_their_file_says(tm: Tm, write: Write) -> None:
    write("trace.csv", QUEUED)
    write("queues.yaml", "queues:\n  - {name: a, maximum_gpus: 1}\n  - {name: b}\n")
    line = "compare trace.csv --cluster 1x4 --policy fair,fifo --perf ideal --processes 1 --json"
    plain, bound = tm(line), tm(f"{line} --queues queues.yaml")
    assert bound.code == 0, bound.err
    assert "Note" not in bound.err
    free, held = (
        [each["score"]["mean_jct_s"] for each in json.loads(said.out)["trials"]]
        for said in (plain, bound)
    )
    assert held[0] > free[0], "queue a may hold one GPU only"
    assert held[1] > free[1], "nor may it under fifo, which does not look at queues"


def test_trials_with_other_queues_are_other_trials(tm: Tm, write: Write, folder: Path) -> None:
    write("trace.csv", QUEUED)
    line = "compare trace.csv --cluster 1x4 --policy fair --perf ideal --processes 1 --out here"
    for most in (1, 2):
        write("q.yaml", f"queues:\n  - {{name: a, maximum_gpus: {most}}}\n  - {{name: b}}\n")
        assert tm(f"{line} --queues q.yaml").code == 0
    assert len(list((folder / "here/.trials").glob("*.json"))) == 2


def test_undefined_queues_are_named(tm: Tm, write: Write) -> None:
    write("trace.csv", QUEUED)
    write("queues.yaml", "queues:\n  - {name: a, weight: 2}\n")
    line = "compare trace.csv --cluster 1x4 --policy fair --perf ideal --processes 1"
    said = tm(f"{line} --queues queues.yaml")
    assert "Warning: 1 queue of the trace not defined: b;" in said.err


def test_settings_reach_the_policies_that_have_them(tm: Tm, own: Path) -> None:
    line = "compare trace.csv --cluster 1x4 --policy fifo,las --perf ideal --processes 1 --json"
    said = tm(f"{line} --set backfill=skip --set las.quantum_s=600")
    trials = json.loads(said.out)["trials"]
    assert [each["settings"] for each in trials] == [{"backfill": "skip"}, {"quantum_s": "600"}]


def test_seeds_are_for_what_is_left_to_chance(tm: Tm, own: Path) -> None:
    line = "compare trace.csv --cluster 1x4 --policy fifo --perf ideal --json --processes 1"
    fixed = tm(f"{line} --seeds 3")
    assert "nothing is random here" in fixed.err
    assert [each["seed"] for each in json.loads(fixed.out)["trials"]] == [0]
    drawn = tm(f"{line} --seeds 3 --estimates noisy:0.3")
    assert [each["seed"] for each in json.loads(drawn.out)["trials"]] == [0, 1, 2]


def test_a_policy_in_a_file_takes_part(tm: Tm, own: Path, write: Write) -> None:
    write(
        "mine.py",
        "from trainmaster.policies.fifo import Fifo\n\n\nclass Mine(Fifo):\n    name = 'mine'\n",
    )
    line = "compare trace.csv --cluster 1x4 --policy fifo,./mine.py --perf ideal --json"
    said = tm(f"{line} --processes 1")
    assert said.code == 0, said.err
    fifo, mine = json.loads(said.out)["trials"]
    assert mine["contender"] == "mine"
    assert mine["score"]["mean_jct_s"] == fifo["score"]["mean_jct_s"]


def test_how_many_gpus_fewer(tm: Tm, own: Path) -> None:
    line = "compare trace.csv --cluster 4x2 --fewer-gpus --policy srsf --against fifo --perf ideal"
    said = tm(f"{line} --processes 1")
    assert said.code == 0, said.err
    assert said.out.startswith("fifo on 4x2 has an excess of ")
    assert "Tried: 4 nodes: excess" in said.err
    found = json.loads(tm(f"{line} --processes 1 --json").out)
    assert found["excess_s"] <= found["target_s"]
    assert found["gpus_fewer"] == (4 - found["enough"]) * 2


def test_nodes_without_which_a_job_cannot_run_are_not_taken(tm: Tm, write: Write) -> None:
    rows = "".join(f"j{n},{40 * n},1,60,1,1\n" for n in range(40))
    columns = "job_id,submit_s,gpus,duration_s,min_gpus,max_gpus"
    write("trace.csv", f"{columns}\n{rows}wide,1700,8,600,2,8\n")
    line = "compare trace.csv --cluster 4x2 --fewer-gpus --policy las --against fifo --perf ideal"
    said = tm(f"{line} --processes 1 --json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert (found["enough"], found["too_few"]) == (4, None)
    resizing = json.loads(tm(f"{line} --processes 1 --json".replace("las", "max-min")).out)
    assert resizing["too_few"] == 3


def test_where_no_job_fits_there_is_nothing_to_equal(tm: Tm, write: Write) -> None:
    write("trace.csv", "job_id,submit_s,gpus,duration_s\na,0,9,10\n")
    said = tm(
        "compare trace.csv --cluster 1x1 --fewer-gpus --policy las --against fifo --perf ideal"
    )
    assert said.code == 1
    assert "none fits: there is nothing to match." in said.err


# -- bad input ---------------------------------------------------------------------------------------

MISTAKES = {
    "nothing named": ("compare", "name a suite"),
    "both named": ("compare trace.csv --suite small", "or a trace of your own, not both"),
    "unknown suite": ("compare --suite smal", "there is no suite 'smal'; did you mean small?"),
    "a list of an unknown suite": ("compare --list --suite smal", "did you mean small?"),
    "a list of a trace": ("compare trace.csv --list", "--list shows what suites there are"),
    "a list of nothing's experiments": ("compare --list --only x", "name that as well"),
    "unknown experiment": (
        "compare --suite small --only x",
        "small has no experiment 'x'; it has order, placement.",
    ),
    "policies of a suite": (
        "compare --suite small --policy fifo",
        "--policy goes with a trace of your own",
    ),
    "experiments of a trace": ("compare trace.csv --only x", "--only chooses experiments of a"),
    "no cluster": ("compare trace.csv", "needs --cluster, such as --cluster 32x4"),
    "bad cluster": ("compare trace.csv --cluster 3", "--cluster 3 is neither a file nor"),
    "no such trace": ("compare none.csv --cluster 1x4", "none.csv"),
    "bad policy": ("compare trace.csv --cluster 1x4 --policy fif", "did you mean fifo?"),
    "bad setting": (
        "compare trace.csv --cluster 1x4 --policy fifo --set backfill=x",
        "backfill must be one of none, skip, easy",
    ),
    "bad estimates": (
        "compare trace.csv --cluster 1x4 --policy fifo --estimates noisy:2",
        "--estimates noisy:2 is none of",
    ),
    "bad perf": (
        "compare trace.csv --cluster 1x4 --policy fifo --perf idael",
        "did you mean ideal",
    ),
    "no data": ("compare --suite small --data nowhere", "--data nowhere is not a directory"),
    "no seeds": ("compare --suite small --seeds 0", "--seeds"),
    "against alone": (
        "compare trace.csv --cluster 1x4 --policy fifo --against las",
        "--against goes with --fewer-gpus",
    ),
    "fewer without against": (
        "compare trace.csv --cluster 1x4 --policy fifo --fewer-gpus",
        "--fewer-gpus needs --policy and --against",
    ),
    "fewer of several": (
        "compare trace.csv --cluster 1x4 --policy fifo,srsf --against las --fewer-gpus",
        "compares one --policy with one --against",
    ),
    "fewer of a file": (
        "compare trace.csv --cluster c.yaml --policy fifo --against las --fewer-gpus",
        "--fewer-gpus takes nodes from a shape",
    ),
    "fewer than itself": (
        "compare trace.csv --cluster 1x4 --policy fifo --against fifo --fewer-gpus",
        "--policy and --against are both fifo",
    ),
    "fewer than itself, nowhere": (
        "compare trace.csv --policy fifo --against fifo --fewer-gpus",
        "name another policy in one of them",
    ),
    "queues of a suite": (
        "compare --suite small --queues q.yaml",
        "--queues goes with a trace of your own",
    ),
    "queues that are not there": (
        "compare trace.csv --cluster 1x4 --policy fair --queues none.yaml",
        "the queues file none.yaml cannot be read",
    ),
    "nothing that can be run": (
        "compare --suite philly-82k --out here",
        "nothing of it can be run here",
    ),
    "a level that is not there": (
        "compare trace.csv --cluster 1x4 --policy fifo --perf rakc.yaml",
        "the cluster has no level 'rakc'; did you mean rack?",
    ),
    "the suite's own folder is a file": (
        "compare --suite small --out held",
        "held/small is a file",
    ),
    "out is a file": ("compare --suite small --out trace.csv", "trace.csv is a file"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(
    tm: Tm, own: Path, write: Write, folder: Path, mistake: str
) -> None:
    write("rakc.yaml", "base: default\nspeed:\n  default: {rakc: 0.5}\n")
    (folder / "held").mkdir()
    (folder / "held" / "small").touch()
    line, words = MISTAKES[mistake]
    said = tm(line)
    assert said.code == 2
    assert words in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_a_trace_that_cannot_be_read_is_not_blamed_on_the_output(
    tm: Tm, write: Write, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(trial_cache, "file_digest", denied)
    (folder / "philly").mkdir()
    write("philly/philly-82k.csv", "")
    said = tm("compare --suite philly-82k --data . --out here")
    assert said.code == 2
    assert "philly-82k.csv cannot be read: permission denied" in said.err
    assert "cannot write" not in said.err


def test_a_trial_that_fails_is_named_and_the_others_are_kept(
    tm: Tm, own: Path, write: Write, folder: Path
) -> None:
    write(
        "bad.py",
        "from trainmaster.policies.fifo import Fifo\n\n\nclass Bad(Fifo):\n    name = 'bad'\n\n"
        "    def plan(self, view, memo, now):\n        raise RuntimeError('no idea')\n",
    )
    line = "compare trace.csv --cluster 1x4 --policy fifo,./bad.py --perf ideal --out here"
    said = tm(f"{line} --processes 1")
    assert said.code == 1
    assert (
        "own: bad on trace.csv, perf ideal, estimates none, seed 0: bad raised an error" in said.err
    )
    assert "no idea" in said.err
    assert "Error: 1 trial failed." in said.err
    assert "fifo" in said.out
    assert len(list((folder / "here/.trials").glob("*.json"))) == 1
