"""fair and two-level through the command line: the examples of sections 2 and 17, and bad input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HEADER = "job_id,submit_s,gpus,duration_s,queue"
BORROW = "\n".join(
    [HEADER, *(f"a{n},{n},4,10000,A" for n in range(4)), "b0,100,4,1000,B", "b1,100,4,1000,B", ""]
)
ORGS = "\n".join(
    [
        HEADER,
        "a,0,4,9000,org1",
        "x,1900,3,900,org2",
        "b,2000,4,700,org1",
        "c,2001,1,700,org1",
        *(f"y{n},2100,1,500,org2" for n in range(5)),
        "",
    ]
)
WEIGHTS = "\n".join([HEADER, *(f"{q}{n},0,1,100,{q}" for q in "ab" for n in range(8)), ""])

Write = Callable[[str, str], Path]


def starts(result: dict[str, Any]) -> dict[str, float]:
    return {job["job_id"]: job["start_s"] for job in result["jobs"]}


def preemptions(result: dict[str, Any]) -> dict[str, int]:
    return {job["job_id"]: job["preemptions"] for job in result["jobs"] if job["preemptions"]}


def test_borrowed_gpus_come_back(tm, write: Write) -> None:
    write("t.csv", BORROW)
    line = "simulate t.csv --cluster 2x8 --policy fair --perf ideal --json -"
    (on,), (off,) = tm(line).results(), tm(f"{line} --set preemption=off").results()
    assert (starts(on)["b0"], starts(on)["b1"]) == (400, 400)
    assert preemptions(on) == {"a2": 1, "a3": 1}
    assert starts(off)["b0"] == 10_000
    assert on["options"]["preempt_timeout_s"] == 300


def test_only_the_backfill_job_is_given_up(tm, write: Write) -> None:
    write("t.csv", ORGS)
    said = tm("simulate t.csv --cluster 1x8 --policy two-level,tiresias-l --perf ideal --json -")
    two_level, alone = said.results()
    assert starts(two_level)["y0"] == 2_100
    assert preemptions(two_level) == {"a": 1, "c": 1}
    assert starts(alone)["y0"] == 2_700


@pytest.mark.parametrize("policy", ["fair", "two-level"])
def test_weights_by_file_and_by_option(tm, write: Write, policy: str) -> None:
    write("t.csv", WEIGHTS)
    write("q.yaml", "queues: [{name: a, weight: 3}, {name: b, weight: 1}]\n")
    line = f"simulate t.csv --cluster 1x8 --policy {policy} --perf ideal --json -"
    by_file = tm(f"{line} --queues q.yaml")
    by_option = tm(f"{line} --set queues=a:3,b:1")
    over_file = tm(f"{line} --queues q.yaml --set queues=a:1")
    counts = [
        sum(start == 0 for job, start in starts(said.results()[0]).items() if job[0] == "a")
        for said in (by_file, by_option, over_file, tm(line))
    ]
    assert counts == [6, 6, 4, 4]
    assert by_option.results()[0]["options"]["queues"] == "a:3,b:1"


def test_a_maximum_is_kept_under_every_policy(tm, write: Write) -> None:
    write("t.csv", WEIGHTS)
    write("q.yaml", "queues: [{name: a, maximum_gpus: 2}, {name: b}]\n")
    line = "simulate t.csv --cluster 1x8 --perf ideal --queues q.yaml --json - --policy"
    fair = tm(f"{line} fair")
    assert sum(start == 0 for job, start in starts(fair.results()[0]).items() if job[0] == "a") == 2
    assert fair.err == ""
    both = tm(f"{line} fair,fifo")
    assert "Note" not in both.err
    for result in both.results():
        assert sum(start == 0 for job, start in starts(result).items() if job[0] == "a") == 2


def test_a_queue_that_nobody_defined_is_named_once(tm, write: Write) -> None:
    write("t.csv", WEIGHTS)
    line = "simulate t.csv --cluster 1x8 --policy fair,two-level --perf ideal"
    said = tm(f"{line} --set queues=a:1")
    warning = "1 queue of the trace not defined: b; such a queue has weight 1 and no bounds"
    assert said.err.count(warning) == 1
    assert "not defined" not in tm(line).err


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("queues=a:0", "fair: queues must be queues as name:weight"),
        ("queues=a:1,a:2", "each once"),
        ("queues=:1", "fair: queues must be"),
        ("queues=a:-1", "weights whole and at least 1, not 'a:-1'"),
        ("inner=fifoo", "fair: inner must be a policy (there is no policy 'fifoo'; did you mean"),
        ("inner=two-level", "a policy that does not divide between queues itself"),
        ("inner_options=colour=blue", "fifo has no option 'colour'"),
        ("inner_options=backfill", "key=value with semicolons between"),
        ("share_threshold=2", "a number from 0 to 1"),
    ],
)
def test_bad_input(tm, write: Write, setting: str, sentence: str) -> None:
    write("t.csv", WEIGHTS)
    said = tm(f"simulate t.csv --cluster 1x8 --policy fair --set {setting}")
    assert said.code == 2
    assert sentence in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("queues", "warning"),
    [
        ("{name: a, guaranteed_gpus: 100}", "queue a is guaranteed 100 GPUs, the cluster has 8"),
        (
            "{name: a, guaranteed_gpus: 6}, {name: b, guaranteed_gpus: 6.5}",
            "queues a, b are guaranteed 12.5 GPUs together, the cluster has 8",
        ),
        (
            "{name: a}, {name: b, parent: a, guaranteed_gpus: 9}",
            "queue a is guaranteed 9 GPUs, the cluster has 8",
        ),
    ],
)
def test_guarantees_that_cannot_be_met_are_said(
    tm, write: Write, queues: str, warning: str
) -> None:
    write("t.csv", WEIGHTS)
    write("q.yaml", f"queues: [{queues}]\n")
    line = "simulate t.csv --cluster 1x8 --perf ideal --queues q.yaml --policy"
    assert f"Warning: {warning}" in tm(f"{line} fair,fifo").err
    assert "is guaranteed" not in tm(f"{line} fifo").err
    assert "guaranteed" not in tm(f"{line} fair".replace("1x8", "20x8")).err


def test_a_maximum_below_what_is_guaranteed_inside_is_refused(tm, write: Write) -> None:
    write("t.csv", WEIGHTS)
    write(
        "q.yaml", "queues: [{name: a, maximum_gpus: 2}, {name: b, parent: a, guaranteed_gpus: 4}]\n"
    )
    said = tm("simulate t.csv --cluster 1x8 --policy fair --queues q.yaml")
    assert said.code == 2
    sentence = "queue 'a' guarantees 4 GPUs to queues inside it, its maximum_gpus is 2."
    assert sentence in said.err


def test_every_queue_with_guarantees_is_named_where_they_are_not_enforced(tm, write: Write) -> None:
    write("t.csv", WEIGHTS)
    write("q.yaml", "queues: [{name: a, maximum_gpus: 2}, {name: b, guaranteed_gpus: 1}]\n")
    said = tm("simulate t.csv --cluster 1x8 --perf ideal --queues q.yaml --policy fifo,srtf")
    note = "Note: guaranteed GPUs of queue b are not enforced by fifo, srtf."
    assert note in said.err


def test_what_a_queue_has_that_nobody_defined_depends_on_the_policy(tm, write: Write) -> None:
    write("t.csv", WEIGHTS)
    line = "simulate t.csv --cluster 1x8 --perf ideal --set queues=a:1 --policy"
    by_weight = "such a queue has weight 1 and no bounds"
    no_quota = "such a queue has no quota"
    antman, fair, both = (tm(f"{line} {names}").err for names in ("antman", "fair", "antman,fair"))
    assert (no_quota in antman, by_weight in antman) == (True, False)
    assert (no_quota in fair, by_weight in fair) == (False, True)
    assert f"under antman {no_quota}" in both
    assert f"under fair {by_weight}" in both


@pytest.mark.parametrize("policy", ["fair", "two-level"])
def test_an_inner_policy_reads_its_file(tm, write: Write, policy: str) -> None:
    write("t.csv", "job_id,submit_s,gpus,duration_s\n1,0,2,2\n2,0,1,8\n3,0,2,6\n")
    write("samples.csv", "4\n8\n12\n")
    line = "simulate t.csv --cluster 1x2 --perf ideal --json - --policy"
    inner = "quantum_s=1;service_samples=samples.csv"
    plain = tm(f"{line} gittins --set quantum_s=1 --set service_samples=samples.csv")
    within = tm(f"{line} {policy} --set inner=gittins --set 'inner_options={inner}'").results()[0]
    assert starts(within) == starts(plain.results()[0])
    assert within["options"]["inner_options"] == inner
    absent = tm(f"{line} {policy} --set inner=gittins --set inner_options=service_samples=no.csv")
    assert absent.code == 2
    assert "no.csv" in absent.err
    write("bad.csv", "4\nx\n")
    bad = tm(f"{line} {policy} --set inner=gittins --set inner_options=service_samples=bad.csv")
    assert "gittins: service_samples bad.csv line 2 must be GPU-seconds" in bad.err


def test_limits_of_users_and_budgets_hold_in_a_simulation(tm, write: Write) -> None:
    rows = "".join(f"{user}{n},0,1,3600,lab,{user}\n" for n in range(3) for user in "ab")
    write("t.csv", f"job_id,submit_s,gpus,duration_s,queue,user\n{rows}")
    write(
        "q.yaml",
        "queues: [{name: lab, budget: {gpu_hours: 4, per: day, starting: 1970-01-01}}]\n"
        "users: [{name: a, max_gpus: 1}]\n",
    )
    said = tm(
        "simulate t.csv --cluster 1x8 --perf ideal --queues q.yaml --json - --policy fifo,srtf"
    )
    for result in said.results():
        day, hour = 24 * 3600, 3600
        assert starts(result) == {
            "b0": 0,
            "b1": 0,
            "b2": 0,
            "a0": 0,
            "a1": day,
            "a2": day + hour,
        }


def test_a_budget_that_is_not_one_is_said_with_its_line(tm, write: Write) -> None:
    write("t.csv", WEIGHTS)
    write("q.yaml", "queues:\n- name: a\n  budget: {gpu_hours: 4, per: fortnight}\n")
    said = tm("simulate t.csv --cluster 1x8 --policy fair --queues q.yaml")
    assert said.code == 2
    assert (
        "q.yaml: line 3: queues[1].budget.per must be day, week, month, year or total" in said.err
    )
