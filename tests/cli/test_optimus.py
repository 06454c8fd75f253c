"""Optimus' worked example (EuroSys'18, section 4.1) through the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str, str], Path]

JOBS = (
    "job_id,submit_s,gpus,min_gpus,max_gpus,duration_s,model\nJ1,0,1,1,4,10,j1\nJ2,0,1,1,4,20,j2\n"
)
SPEEDS = """\
base: ideal
elastic:
  models:
    j1: {1: 1, 2: 1.8, 3: 2.4, 4: 2.8}
    j2: {1: 1, 2: 1.5, 3: 1.8, 4: 1.9}
"""


@pytest.mark.parametrize("learn", ["given", "fit"])
def test_three_gpus_each(tm, write: Write, learn: str) -> None:  # type: ignore[no-untyped-def]
    jobs, speeds = write("jobs.csv", JOBS), write("speeds.yaml", SPEEDS)
    said = tm(
        f"simulate {jobs} --cluster 1x6 --policy optimus --set learn={learn} --perf {speeds} --json -"
    )
    (optimus,) = said.results()
    assert optimus["options"]["interval_s"] == 600
    found = {each["job_id"]: (each["finish_s"], each["gpu_s"]) for each in optimus["jobs"]}
    assert found == {"J1": (4.167, 12.501), "J2": (11.112, 33.336)}


def test_without_estimates_it_still_measures(tm, write: Write) -> None:  # type: ignore[no-untyped-def]
    """Reports of progress come with a small error, and the same one for the same seed."""
    jobs = write(
        "jobs.csv",
        "job_id,submit_s,gpus,min_gpus,max_gpus,duration_s\nlong,0,1,1,8,12000\nshort,0,1,1,8,2000\n",
    )
    line = f"simulate {jobs} --cluster 2x6 --policy optimus --set interval_s=20 --estimates none"
    first, second = (tm(f"{line} --json -").results()[0]["jobs"] for _ in range(2))
    assert first == second
    other = tm(f"{line} --set learn=given --json -").results()[0]["jobs"]
    assert other != first


def test_a_bad_choice_is_one_sentence(tm, write: Write) -> None:  # type: ignore[no-untyped-def]
    said = tm(
        f"simulate {write('jobs.csv', JOBS)} --cluster 1x6 --policy optimus --set learn=guess"
    )
    assert said.code == 2
    assert "optimus: learn must be one of fit, given, not 'guess'." in said.err.replace("\n", " ")
