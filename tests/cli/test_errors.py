"""Bad input: one sentence on standard error, exit code 2 or 1, nothing half-written."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.conftest import Tm

HEADER = "job_id,submit_s,gpus,duration_s\n"
GOOD = HEADER + "a,0,1,10\nb,5,2,20\n"

FILES = {
    "good.csv": GOOD,
    "no-gpus.csv": "job_id,submit_s,duration_s\na,0,10\n",
    "text.csv": HEADER + "a,0,1,10\nb,0,1,long\n",
    "negative.csv": HEADER + "a,0,1,-10\n",
    "twice.csv": HEADER + "a,0,1,10\nb,0,1,10\na,0,1,10\n",
    "zero.csv": HEADER,
    "empty.csv": "",
    "strange.csv": "x,y\n1,2\n",
    "gpus.csv": HEADER + "a,0,0,10\n",
    "nan.csv": HEADER + "a,0,1,nan\n",
    "short-row.csv": HEADER + "a,0,1\n",
    "bad.yaml": "racks: [\n",
    "list.yaml": "- 1\n- 2\n",
    "empty.yaml": "",
    "typo.yaml": "rack: []\n",
    "no-nodes.yaml": "racks: []\n",
    "bad-gpus.yaml": "nodes: {count: 2, gpus: many}\n",
    "bad-type.yaml": "types: {A100: {}}\nnodes: {count: 2, gpus: 4, type: A10O}\n",
    "bad-change.yaml": "nodes: {count: 2, gpus: 4}\nchanges: [{at_s: 1, drain: n7}]\n",
    "no-verb.yaml": "nodes: {count: 2, gpus: 4}\nchanges: [{at_s: 1}]\n",
    "same-name.yaml": "nodes: [{name: a, gpus: 4}, {name: a, gpus: 4}]\n",
    "uneven.yaml": "racks: [{nodes: {gpus: 1}}]\nnodes: {gpus: 1}\n",
    "deep.yaml": "fabrics: [{racks: [{nodes: {gpus: 1}}]}, {nodes: {gpus: 1}}]\n",
    "slots.yaml": "nodes: {cpu_slots: 4}\n",
    "perf.yaml": "sped: {}\n",
    "perf-word.yaml": "switch: {suspend_s: soon}\n",
    "cycle.yaml": "queues: [{name: a, parent: b}, {name: b, parent: a}]\n",
    "orphan.yaml": "queues: [{name: vision, parent: visoin}, {name: vis, weight: 2}]\n",
    "weight.yaml": "queues: [{name: a, weight: 0}]\n",
    "two-queues.yaml": "queues: [{name: a}, {name: a}]\n",
    "broken.py": "def plan(:\n",
    "raises.py": "1 / 0\n",
    "nothing.py": "X = 1\n",
}


class Case(NamedTuple):
    """A command line, and what it must answer."""

    arguments: str
    code: int
    fragment: str


RUN = "simulate good.csv --cluster 2x2"

CASES = {
    "a missing column": Case(
        "simulate no-gpus.csv --cluster 2x2",
        2,
        "no-gpus.csv line 1: the header has no column gpus.",
    ),
    "text for a number": Case(
        "simulate text.csv --cluster 2x2", 2, "line 3, column duration_s: 'long' is not a number"
    ),
    "a negative duration": Case(
        "simulate negative.csv --cluster 2x2", 2, "line 2, column duration_s: -10 is negative"
    ),
    "duplicate ids": Case(
        "simulate twice.csv --cluster 2x2", 2, "line 4, column job_id: 'a' is already on line 2"
    ),
    "zero jobs": Case("simulate zero.csv --cluster 2x2", 2, "zero.csv holds no jobs"),
    "an empty file": Case("simulate empty.csv --cluster 2x2", 2, "empty.csv is empty"),
    "no GPUs for a job": Case(
        "simulate gpus.csv --cluster 2x2", 2, "column gpus: 0 is less than 1"
    ),
    "a duration that is no number": Case(
        "simulate nan.csv --cluster 2x2", 2, "'nan' is not a finite number"
    ),
    "a row that ends early": Case(
        "simulate short-row.csv --cluster 2x2", 2, "the row has 3 fields"
    ),
    "a format nobody knows": Case("simulate strange.csv --cluster 2x2", 2, "in no trace format"),
    "a format that is misspelt": Case(
        "simulate good.csv --format nativ --cluster 2x2", 2, "did you mean native"
    ),
    "a file that is not there": Case(
        "simulate gone.csv --cluster 2x2", 2, "gone.csv cannot be read: no such file"
    ),
    "a file that may not be read": Case(
        "simulate locked.csv --cluster 2x2", 2, "locked.csv cannot be read: permission denied"
    ),
    "a directory as the trace": Case(
        "simulate folder --cluster 2x2", 2, "folder is a folder without"
    ),
    "an unknown policy": Case(f"{RUN} --policy tiresias", 2, "no policy 'tiresias'; did you mean"),
    "an unknown policy among good ones": Case(f"{RUN} --policy fifo,lass", 2, "did you mean las?"),
    "a policy named twice": Case(f"{RUN} --policy fifo,fifo", 2, "names fifo twice"),
    "an empty policy name": Case(f"{RUN} --policy fifo,,las", 2, "empty name"),
    "an unknown option": Case(
        f"{RUN} --policy las --set quantum=5",
        2,
        "las has no option 'quantum'; did you mean quantum_s?",
    ),
    "an option unknown to all": Case(
        f"{RUN} --policy fifo,las --set quantm_s=5",
        2,
        "none of the policies has an option 'quantm_s'; did you mean quantum_s?",
    ),
    "an option for a policy that is not named": Case(
        f"{RUN} --policy fifo --set las.quantum_s=5", 2, "--policy names fifo"
    ),
    "an option for a misspelt policy": Case(
        f"{RUN} --policy las --set laz.quantum_s=5", 2, "did you mean las?"
    ),
    "an option of one policy that it has not": Case(
        f"{RUN} --policy fifo,las --set fifo.quantum_s=5",
        2,
        "fifo has no option 'quantum_s'; `trainmaster policies fifo` lists them.",
    ),
    "an option given twice": Case(
        f"{RUN} --policy las --set quantum_s=5 --set quantum_s=9", 2, "quantum_s is given twice"
    ),
    "an option without a value": Case(f"{RUN} --policy las --set quantum_s", 2, "form key=value"),
    "a bad value": Case(
        f"{RUN} --policy las --set quantum_s=soon", 2, "las: quantum_s must be a number, not 'soon'"
    ),
    "a bad choice": Case(
        f"{RUN} --policy fifo --set backfill=some", 2, "one of none, skip, easy, not 'some'"
    ),
    "a policy file that is not there": Case(
        f"{RUN} --policy ./gone.py", 2, "there is no file gone.py"
    ),
    "a policy file that does not parse": Case(
        f"{RUN} --policy ./broken.py", 2, "broken.py:1 cannot be loaded: SyntaxError"
    ),
    "a policy file that raises": Case(
        f"{RUN} --policy ./raises.py", 2, "raises.py:1 cannot be loaded: ZeroDivisionError"
    ),
    "a policy file without a policy": Case(f"{RUN} --policy ./nothing.py", 2, "one policy class"),
    "no cluster": Case("simulate good.csv", 2, "--cluster is missing"),
    "bad cluster text": Case(
        "simulate good.csv --cluster 2y2", 2, "neither a file nor of the form"
    ),
    "a cluster of nothing": Case(
        "simulate good.csv --cluster 0x4", 2, "every number must be at least 1"
    ),
    "a cluster beyond belief": Case("simulate good.csv --cluster 99999x99999", 2, "more than"),
    "a cluster file that is not YAML": Case(
        "simulate good.csv --cluster bad.yaml", 2, "bad.yaml: line 2: this is not YAML"
    ),
    "a cluster file that is a list": Case(
        "simulate good.csv --cluster list.yaml", 2, "must map keys"
    ),
    "an empty cluster file": Case(
        "simulate good.csv --cluster empty.yaml", 2, "empty.yaml is empty"
    ),
    "a directory as the cluster": Case("simulate good.csv --cluster folder", 2, "is a directory"),
    "a key nobody knows": Case(
        "simulate good.csv --cluster typo.yaml",
        2,
        "typo.yaml: line 1: unknown key 'rack'; did you mean racks?",
    ),
    "a cluster without nodes": Case("simulate good.csv --cluster no-nodes.yaml", 2, "has no nodes"),
    "GPUs that are no number": Case(
        "simulate good.csv --cluster bad-gpus.yaml",
        2,
        "bad-gpus.yaml: line 1: nodes.gpus must be a whole number, not 'many'.",
    ),
    "a GPU type nobody declared": Case(
        "simulate good.csv --cluster bad-type.yaml", 2, "not among types; did you mean A100?"
    ),
    "a change of a node that is not there": Case(
        "simulate good.csv --cluster bad-change.yaml",
        2,
        "line 2: changes[1].drain names 'n7'",
    ),
    "a change without a verb": Case("simulate good.csv --cluster no-verb.yaml", 2, "one of drain,"),
    "two nodes of one name": Case(
        "simulate good.csv --cluster same-name.yaml", 2, "two nodes of the cluster are called 'a'"
    ),
    "nodes beside racks": Case("simulate good.csv --cluster uneven.yaml", 2, "not both"),
    "branches of unequal depth": Case("simulate good.csv --cluster deep.yaml", 2, "same levels"),
    "a cluster of CPUs": Case("simulate good.csv --cluster slots.yaml", 2, "no GPUs"),
    "a bad perf word": Case(f"{RUN} --perf idael", 2, "did you mean ideal"),
    "a bad perf key": Case(f"{RUN} --perf perf.yaml", 2, "perf.yaml: line 1: unknown key 'sped'"),
    "a bad perf value": Case(
        f"{RUN} --perf perf-word.yaml", 2, "switch.suspend_s must be a number"
    ),
    "failures of nobody": Case(f"{RUN} --failures stdy", 2, "is neither trace nor study"),
    "a rule that is misspelt": Case(
        f"{RUN} --failure-rules retry,input", 2, "there is no rule 'input'; did you mean inputs?"
    ),
    "a pre-run without end": Case(f"{RUN} --failure-rules prerun:x", 2, "number of seconds"),
    "no rule at all": Case(f"{RUN} --failure-rules ,", 2, "there is no rule ''"),
    "a length of another rule": Case(f"{RUN} --failure-rules retry:5", 2, "there is no rule"),
    "bad estimates": Case(f"{RUN} --estimates wild", 2, "none of exact, none and noisy:F"),
    "estimates that are too noisy": Case(f"{RUN} --estimates noisy:7", 2, "F from 0 to 1"),
    "a negative seed": Case(f"{RUN} --seed -1", 2, "'--seed'"),
    "a seed that is no number": Case(f"{RUN} --seed one", 2, "'--seed'"),
    "a negative horizon": Case(f"{RUN} --until-s -5", 2, "'--until-s'"),
    "a horizon that is no number": Case(f"{RUN} --until-s nan", 2, "--until-s"),
    "queues inside each other": Case(f"{RUN} --queues cycle.yaml", 2, "in a circle: a > b > a"),
    "a parent that is no queue": Case(f"{RUN} --queues orphan.yaml", 2, "did you mean vision?"),
    "a weight of nothing": Case(f"{RUN} --queues weight.yaml", 2, "weight must be at least 1"),
    "a queue defined twice": Case(f"{RUN} --queues two-queues.yaml", 2, "a second queue 'a'"),
    "a queues file that is not there": Case(f"{RUN} --queues gone.yaml", 2, "cannot be read"),
    "a misspelt command": Case("simulat", 2, "did you mean simulate?"),
    "two letters turned": Case("rnu", 2, "did you mean run?"),
    "a misspelt flag": Case(f"{RUN} --polcy fifo", 2, "no such option: --polcy"),
    "a stray argument": Case(f"{RUN} more", 2, "unexpected extra argument"),
    "JSON into a directory that is not there": Case(
        f"{RUN} --json no/out.json", 2, "no directory no"
    ),
    "JSON onto a directory": Case(f"{RUN} --json folder", 2, "is a directory; name a file"),
    "a report onto a file": Case(f"{RUN} --report good.csv", 2, "is a file; name a directory"),
    "a report where nothing may be written": Case(
        f"{RUN} --report sealed/out", 1, "does not let you"
    ),
    "a trace of no jobs": Case("trace generate --jobs 0", 2, "'--jobs'"),
    "a load of nothing": Case("trace generate --load 0", 2, "is not a load"),
    "a likeness nobody knows": Case("trace generate --like mars", 2, "'--like'"),
    "a trace into a directory that is not there": Case(
        "trace generate --out no/t.csv", 2, "no directory"
    ),
    "statistics of a bad trace": Case("trace stats negative.csv", 2, "-10 is negative"),
    "a plot of a strange kind": Case(
        "trace stats good.csv --plot t.gif", 2, "must end with one of"
    ),
    "a bad trace to convert": Case("trace convert twice.csv --out new.csv", 2, "already on line 2"),
    "an unknown policy to describe": Case("policies lass", 2, "did you mean las?"),
    "a name that is no name": Case("new policy My_Policy", 2, "use lower case and hyphens"),
    "a name that is taken": Case("new policy las", 2, "there is a policy 'las' already"),
    "a name that Python has": Case("new policy random", 2, "a module of Python itself"),
    "a data folder nowhere": Case(
        "up --data /proc/nowhere", 2, "the data folder /proc/nowhere cannot be written (no such"
    ),
    "a data folder nowhere, in the background": Case(
        "up -d --data /proc/nowhere", 2, "the data folder /proc/nowhere cannot be written (no such"
    ),
    "a data folder that is sealed": Case(
        "up --slots 1 --data sealed", 2, "sealed cannot be written (permission denied)"
    ),
    "a new policy nowhere": Case("new policy mine --dir gone", 2, "--dir gone is not a directory"),
}


@pytest.fixture
def table(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "folder").mkdir()
    (folder / "sealed").mkdir(mode=0o555)
    (folder / "locked.csv").write_text(GOOD)
    (folder / "locked.csv").chmod(0)
    return folder


NEEDS_PERMISSIONS = ("locked.csv", "sealed")


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_one_sentence_and_nothing_written(tm, table: Path, case: Case) -> None:
    if os.geteuid() == 0 and any(name in case.arguments for name in NEEDS_PERMISSIONS):
        pytest.skip("root may read and write everything")
    before = sorted(table.rglob("*"))
    said = tm(case.arguments)
    assert said.code == case.code, said.err
    assert case.fragment in said.err
    assert said.out == ""
    assert is_one_sentence(said.err), said.err
    assert sorted(table.rglob("*")) == before


NOWHERE = {
    "JSON": f"{RUN} --json /proc/out.json",
    "a report": f"{RUN} --report /proc/out",
    "a report deep in it": f"{RUN} --report /proc/a/b/out",
    "a trace": "trace generate --jobs 10 --out /proc/trace.csv",
    "a comparison": "compare good.csv --cluster 1x4 --policy fifo --out /proc/out",
    "a suite": "compare --suite small --out /proc/out",
}


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="nothing here refuses root a file")
@pytest.mark.parametrize("line", NOWHERE.values(), ids=list(NOWHERE))
def test_where_even_root_can_make_no_file_is_found_before_the_work(
    tm, table: Path, line: str
) -> None:
    before = sorted(table.rglob("*"))
    said = tm(line)
    assert said.code == 1
    assert "cannot be written" in said.err
    assert "choose another place" in said.err
    assert said.out == ""
    assert is_one_sentence(said.err), said.err
    assert sorted(table.rglob("*")) == before


def is_one_sentence(text: str) -> bool:
    """On one line, without a box or a traceback, closed by a full stop or a question mark."""
    return (
        text.startswith("Error: ")
        and text.count("\n") == 1
        and text.rstrip().endswith((".", "?"))
        and "Traceback" not in text
        and not set(text) & set("╭│╰─")
    )


def test_a_job_larger_than_the_cluster_is_rejected_with_a_warning(tm, write) -> None:
    write("big.csv", HEADER + "a,0,1,10\nhuge,0,4096,10\n")
    said = tm("simulate big.csv --cluster 2x2 --policy fifo,las")
    assert said.code == 0
    warning = "Warning: job huge needs 4,096 GPUs, the cluster has 4: rejected\n"
    assert said.err == warning
    assert "1 job" not in said.err


def test_many_rejected_jobs_are_counted(tm, write) -> None:
    write("big.csv", HEADER + "a,0,1,10\n" + "".join(f"h{n},0,99,10\n" for n in range(12)))
    said = tm("simulate big.csv --cluster 2x2 --policy fifo")
    assert said.code == 0
    assert said.err.count("needs 99 GPUs") == 5
    assert "7 more jobs rejected" in said.err


def test_jobs_that_want_what_the_cluster_has_not(tm, write) -> None:
    header = "job_id,submit_s,gpus,duration_s,gpu_type,gpu_memory_gib\n"
    write("picky.csv", header + "a,0,1,10,,\nb,0,1,10,H100,\nc,0,1,10,,9000\n")
    said = tm("simulate picky.csv --cluster 2x2 --policy fifo")
    assert said.code == 0
    assert "job b needs 1 GPU of type H100, the cluster has 0: rejected" in said.err
    assert "job c needs 9000 GiB on a GPU, the largest has 16: rejected" in said.err


def test_nothing_but_rejected_jobs_is_no_error(tm, write) -> None:
    write("big.csv", HEADER + "huge,0,4096,10\n")
    said = tm("simulate big.csv --cluster 2x2 --policy fifo --json -")
    summary = said.results()[0]["summary"]
    assert (summary["rejected"], summary["finished"], summary["avg_jct_s"]) == (1, 0, None)


def test_unsorted_submit_times_are_sorted_and_said_so(tm, write) -> None:
    write("unsorted.csv", HEADER + "a,50,1,10\nb,5,1,20\n")
    said = tm("simulate unsorted.csv --cluster 2x2 --policy fifo --json -")
    assert [job["job_id"] for job in said.results()[0]["jobs"]] == ["b", "a"]
    assert "Note: unsorted.csv: submit times were not in order; the jobs were sorted." in said.err


# -- a full disk -------------------------------------------------------------------------------------


def no_file_over(size: int) -> Callable[[], None]:
    """As a full disk does: every write beyond so many bytes fails."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


Process = Callable[..., subprocess.CompletedProcess[str]]

FULL_DISK = {
    "the report": ("--report out", "cannot write the report to out"),
    "a report in new folders": ("--report a/b/c", "cannot write the report to a/b/c"),
    "the JSON": ("--json out.json", "cannot write out.json"),
}


@pytest.mark.parametrize(("options", "fragment"), FULL_DISK.values(), ids=list(FULL_DISK))
def test_a_full_disk(process: Process, table: Path, options: str, fragment: str) -> None:
    before = sorted(table.rglob("*"))
    said = process(
        f"{RUN} --policy fifo {options}",
        env={"PYTHONDONTWRITEBYTECODE": "1"},
        before=no_file_over(64),
    )
    assert said.returncode == 1
    assert fragment in said.stderr
    assert "free some space" in said.stderr
    assert "Traceback" not in said.stderr
    assert "mean JCT" in said.stdout, "the numbers are not lost with the file"
    assert sorted(table.rglob("*")) == before


def test_a_full_disk_leaves_an_earlier_file_alone(process: Process, table: Path) -> None:
    (table / "out.json").write_text("earlier")
    assert process(f"{RUN} --json out.json", before=no_file_over(64)).returncode == 1
    assert (table / "out.json").read_text() == "earlier"


def test_a_full_disk_under_a_generated_trace(process: Process, folder: Path) -> None:
    said = process("trace generate --out t.csv", before=no_file_over(64))
    assert said.returncode == 1
    assert is_one_sentence(said.stderr)
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_device_as_standard_output(table: Path) -> None:
    command = "python3 -m trainmaster trace generate > /dev/full"
    said = subprocess.run(
        ["bash", "-c", command.replace("python3", sys.executable)],
        cwd=table,
        text=True,
        capture_output=True,
    )
    assert said.returncode == 1
    assert is_one_sentence(said.stderr), said.stderr
    assert "no space left" in said.stderr


# -- what nobody expected ---------------------------------------------------------------------------


def test_a_defect_of_ours_is_one_sentence_too(
    tm, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("trainmaster.sim.driver.Simulation.run", broken)
    said = tm(RUN)
    assert said.code == 1
    assert is_one_sentence(said.err)
    assert "KeyError: 'oops'" in said.err
    assert "trainmaster --debug" in said.err


def test_the_traceback_is_there_for_those_who_ask(process: Process, table: Path) -> None:
    said = process("simulate negative.csv --cluster 2x2", env={"TRAINMASTER_DEBUG": "1"})
    assert "Traceback" in said.stderr
    assert said.returncode == 1


def test_a_reader_that_goes_away_is_no_error(folder: Path) -> None:
    command = f"{sys.executable} -m trainmaster trace generate --jobs 20000 | head -1"
    said = subprocess.run(["bash", "-c", command], cwd=folder, text=True, capture_output=True)
    assert said.stdout.startswith("job_id,")
    assert said.stderr == ""


def test_a_job_that_only_some_policies_reject_names_them(tm, write) -> None:
    """An elastic job is too large for the cluster only where it cannot start smaller."""
    header = "job_id,submit_s,gpus,duration_s,min_gpus,max_gpus\n"
    write("big.csv", header + "a,0,1,10,,\nwide,0,8,10,2,8\n")
    said = tm("simulate big.csv --cluster 1x4 --policy max-min,fifo,srtf --perf ideal")
    assert "Warning: job wide needs 8 GPUs, the cluster has 4: rejected by fifo, srtf\n" in said.err
    row = next(line for line in said.out.splitlines() if "rejected jobs" in line)
    assert row.split()[-3:] == ["0", "1", "1"]
    assert "rejected jobs" not in tm("simulate big.csv --cluster 1x8 --policy fifo").out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--policy nope", "there is no policy 'nope'"),
        ("--policy srsf", "works in simulations only"),
        ("--slots x", "--slots x is neither a number"),
        ("--set keep", "--set `keep` has no value: write key=value"),
        ("--set nope=1", "nope"),
    ],
)
def test_a_daemon_that_cannot_be_is_not_announced(
    tm: Tm, folder: Path, flags: str, said: str
) -> None:
    answer = tm(f"up --data state --port 0 {flags}")
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert not (folder / "state").exists()


REFUSED_STARTS = {
    "--database nonsense": "nonsense is not the address of a database: write postgresql://",
    "--database foo://bar": "There is no store of the kind foo://",
    "--data text.txt": "text.txt is a file: name a folder.",
    "--slots 0": "--slots 0 must be from 1 to 4,096 slots in all.",
    "--slots two": "--slots two is neither a number nor of the form 2x4 (nodes x slots), nor auto.",
    "--limit max_grace=5": "the limit max_grace must be a length of time with its unit: 5s or 5m?\n",
    "--max-grace 5": "the limit max_grace must be a length of time with its unit: 5s or 5m?\n",
}


@pytest.mark.parametrize("flags", REFUSED_STARTS)
def test_a_start_that_makes_no_sense_is_refused_and_leaves_nothing(
    tm: Tm, folder: Path, monkeypatch: pytest.MonkeyPatch, flags: str
) -> None:
    (folder / "text.txt").touch()
    monkeypatch.setenv("TRAINMASTER_DATA", str(folder / "state"))
    said = tm(f"up --port 0 {flags}")
    assert said.code == 2
    assert REFUSED_STARTS[flags] in said.err
    assert said.err.startswith("Error: ")
    assert said.err.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["text.txt"]
