"""Section 7's examples through the command line: curves from a performance file, sizes from a trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

HEADER = "job_id,submit_s,gpus,duration_s,model,min_gpus,max_gpus"
CURVES = """\
base: ideal
elastic:
  models:
    sub: {1: 1, 2: 1.9, 3: 2.7, 4: 3.4, 5: 4.0, 6: 4.5}
    poor: {1: 1, 2: 1.3, 3: 1.5, 4: 1.6, 5: 1.65, 6: 1.68}
"""

Write = Callable[[str, str], Path]


def ends(tm, policy: str, cluster: str) -> dict[str, float]:
    said = tm(f"simulate t.csv --cluster {cluster} --policy {policy} --perf p.yaml --json -")
    (result,) = said.results()
    return {job["job_id"]: job["finish_s"] for job in result["jobs"]}


@pytest.mark.parametrize(
    ("short", "first", "last"),
    [
        ("sub", 10 / 2.7, 10 / 2.7 + (100 - 10) / 4.5),  # 3/3
        ("poor", 10 / 1.3, 10 / 1.3 + (100 - 34 / 1.3) / 4.5),  # 2/4
    ],
)
def test_afs_l_shares_six_gpus(tm, write: Write, short: str, first: float, last: float) -> None:
    write("p.yaml", CURVES)
    write("t.csv", f"{HEADER}\nS,0,1,10,{short},1,6\nL,0,1,100,sub,1,6\n")
    assert ends(tm, "afs-l", "1x6") == {
        "S": pytest.approx(first, abs=0.002),
        "L": pytest.approx(last, abs=0.002),
    }


def test_max_min_shares_seven_gpus_1_3_3(tm, write: Write) -> None:
    """Linear: after 10 s the job that could use 8 has done 30 of its 80 GPU-seconds, and has all 7."""
    write("p.yaml", "base: ideal\n")
    write("t.csv", f"{HEADER}\na,0,1,10,,,\nb,0,3,10,,1,3\nc,0,8,10,,1,8\n")
    assert ends(tm, "max-min", "1x7") == {
        "a": 10,
        "b": 10,
        "c": pytest.approx(10 + 50 / 7, abs=0.002),
    }


def test_a_minimum_above_the_maximum_is_refused_when_the_trace_is_read(tm, write: Write) -> None:
    write("p.yaml", "base: ideal\n")
    write("t.csv", f"{HEADER}\na,0,4,10,,8,2\n")
    said = tm("simulate t.csv --cluster 1x7 --policy max-min --perf p.yaml")
    assert said.code == 2
    assert "line 2, column min_gpus: 8 is more than max_gpus, 2." in said.err
