"""Examples of jobs that share GPUs, through the command line: AntMan's classes, Big Brain's factor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[[str, str], Path]

HEADER = "job_id,submit_s,gpus,duration_s,queue,class,gpu_memory_gib,gpu_util\n"
BESIDE = HEADER + "rg,0,1,100,prod,guaranteed,8,{util}\not,0,1,10,prod,opportunistic,4,20\n"


def starts(result: dict[str, Any]) -> dict[str, float]:
    return {job["job_id"]: job["start_s"] for job in result["jobs"]}


@pytest.mark.parametrize(("util", "start"), [(75, 0), (85, 100)])
def test_antman_joins_gpus_below_80_percent(tm, write: Write, util: int, start: float) -> None:
    write("t.csv", BESIDE.format(util=util))
    said = tm("simulate t.csv --cluster 1x1 --policy antman --perf ideal --json -")
    (result,) = said.results()
    assert starts(result) == {"rg": 0, "ot": start}


def test_antman_with_classes_ignored(tm, write: Write) -> None:
    write("t.csv", BESIDE.format(util=75))
    said = tm(
        "simulate t.csv --cluster 1x1 --policy antman --set classes=off --perf ideal --json -"
    )
    assert starts(said.results()[0]) == {"rg": 0, "ot": 100}


def test_antman_quotas_from_a_file_and_by_weight(tm, write: Write) -> None:
    write("t.csv", HEADER + "".join(f"a{n},0,1,10,a,guaranteed,4,90\n" for n in range(2)))
    write("q.yaml", "queues: [{name: a, guaranteed_gpus: 1}, {name: b, guaranteed_gpus: 1}]\n")
    line = "simulate t.csv --cluster 1x2 --policy antman --perf ideal --json -"
    assert starts(tm(line).results()[0]) == {"a0": 0, "a1": 0}
    assert starts(tm(f"{line} --queues q.yaml").results()[0]) == {"a0": 0, "a1": 10}
    assert starts(tm(f"{line} --set queues=a:1,b:1").results()[0]) == {"a0": 0, "a1": 10}
    late = f"{line} --set queues=a:1,b:1 --set opportunistic_after_s=3"
    assert starts(tm(late).results()[0]) == {"a0": 0, "a1": 3}


UNIT = "job_id,submit_s,gpus,duration_s,gpu_memory_gib,gpu_util\n" + "".join(
    f"{name},0,1,1000,2,{{util}}\n" for name in "abcd"
)
"""Four unit jobs at once."""


@pytest.mark.parametrize(
    ("law", "util", "means"),
    [
        ("linear", 25, {1: 2500, 2: 3000, 4: 4000}),
        ("h200", 25, {1: 2500, 2: 1575, 4: 1150}),
        ("h200", 100, {1: 2500, 2: 3300, 4: 4400}),
    ],
    ids=["linear law", "H200, small jobs", "H200, jobs that fill the GPU"],
)
def test_big_brain_four_unit_jobs(
    tm, write: Write, law: str, util: int, means: dict[int, float]
) -> None:
    write("t.csv", UNIT.format(util=util))
    write("law.yaml", f"base: ideal\nsharing: {{law: {law}}}\n")
    line = "simulate t.csv --cluster 1x1 --policy big-brain --perf law.yaml --json -"
    found = {
        factor: tm(f"{line} --set concurrency={factor}").results()[0]["summary"]["avg_jct_s"]
        for factor in means
    }
    assert found == pytest.approx(means, rel=0.003)


@pytest.mark.parametrize(
    ("law", "util", "best"),
    [("linear", 25, 1), ("h200", 25, 4), ("h200", 100, 1)],
    ids=["linear law", "H200, small jobs", "H200, jobs that fill the GPU"],
)
def test_big_brain_finds_the_factor_itself(
    tm, write: Write, law: str, util: int, best: int
) -> None:
    """Forty jobs one after another: the tuned factor comes close to the best fixed one."""
    rows = "".join(f"j{n},0,1,300,2,{util}\n" for n in range(40))
    write("t.csv", f"job_id,submit_s,gpus,duration_s,gpu_memory_gib,gpu_util\n{rows}")
    write("law.yaml", f"base: ideal\nsharing: {{law: {law}}}\n")
    line = "simulate t.csv --cluster 1x1 --policy big-brain --perf law.yaml --json -"
    found = {
        factor: tm(f"{line} --set concurrency={factor}").results()[0]["summary"]["avg_jct_s"]
        for factor in (1, 2, 4, "auto")
    }
    tuned = found.pop("auto")
    assert min(found, key=lambda factor: found[factor]) == best
    assert tuned < 1.1 * found[best]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("concurrency=0", "big-brain: concurrency must be auto or a whole number from 1 to 48"),
        ("concurrency=many", "big-brain: concurrency must be auto or a whole number from 1 to 48"),
        ("trial_s=0", "big-brain: trial_s must be a number of seconds"),
        ("antman.util_limit=80", "antman: util_limit must be a number from 0 to 1, not '80'"),
        ("antman.queues=a:0", "antman: queues must be queues as name:weight"),
        ("guaranteed_per_gpu=0", "antman: guaranteed_per_gpu must be a whole number from 1 to 16"),
    ],
)
def test_bad_options_are_one_sentence(tm, write: Write, setting: str, said: str) -> None:
    write("t.csv", UNIT.format(util=25))
    answer = tm(f"simulate t.csv --cluster 1x1 --policy antman,big-brain --set {setting}")
    assert answer.code == 2
    assert said in answer.err
    assert "Traceback" not in answer.err
