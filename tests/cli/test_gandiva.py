"""Gandiva's examples through the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

HEADER = "job_id,submit_s,gpus,duration_s"

Write = Callable[[str, str], Path]


def test_six_jobs_on_four_gpus_get_two_thirds_each(tm, write: Write) -> None:
    """At the horizon of 30 quanta each has had 20 of them, and no GPU was ever idle."""
    write("six.csv", HEADER + "\n" + "".join(f"j{n},0,1,1200\n" for n in range(6)))
    said = tm("simulate six.csv --cluster 1x4 --policy gandiva --perf ideal --json -")
    (result,) = said.results()
    ends = [job["finish_s"] for job in result["jobs"]]
    assert max(ends) == 1800  # 6 x 1200 s on 4 GPUs
    assert min(ends) >= 1740  # all within the last quantum
    assert result["summary"]["gpu_util"] == 1
    assert max(job["queue_s"] for job in result["jobs"]) == 60
    off = tm(
        "simulate six.csv --cluster 1x4 --policy gandiva --set quantum_s=1e6 --perf ideal --json -"
    )
    assert sorted(job["finish_s"] for job in off.results()[0]["jobs"]) == [1200] * 4 + [2400] * 2


@pytest.mark.parametrize(
    ("beside", "memory", "makespan_s"),
    [(0.81, 6, 786.667), (0.45, 6, 1206), (0.81, 9, 1200)],
)
def test_a_pair_stays_is_undone_or_is_never_tried(
    tm, write: Write, beside: float, memory: int, makespan_s: float
) -> None:
    """Alone for a minute each; then both at 0.81, or a minute at 0.45 for nothing, or 9 + 9 > 16 GB."""
    row = f"lm,0.3,{memory}"
    write("t.csv", f"{HEADER},model,gpu_util,gpu_memory_gib\na,0,1,600,{row}\nb,0,1,600,{row}\n")
    write(
        "p.yaml", f"base: ideal\ninterference: true\nsharing: {{pairs: {{lm: {{lm: {beside}}}}}}}\n"
    )
    said = tm("simulate t.csv --cluster 1x1 --policy gandiva --perf p.yaml --json -")
    assert said.results()[0]["summary"]["makespan_s"] == pytest.approx(makespan_s, abs=1.0)
    off = tm(
        "simulate t.csv --cluster 1x1 --policy gandiva --set packing=off --perf p.yaml --json -"
    )
    assert off.results()[0]["summary"]["makespan_s"] == 1200


def test_an_elastic_job_grows_and_shrinks(tm, write: Write) -> None:
    write("t.csv", f"{HEADER},min_gpus,max_gpus\nbig,0,2,100,2,4\nlate,20,2,10,,\n")
    command = "simulate t.csv --cluster 1x4 --policy gandiva --perf ideal --json - --set"
    ends = [
        {job["job_id"]: job["finish_s"] for job in tm(command, f"grow={grow}").results()[0]["jobs"]}
        for grow in ("on", "off")
    ]
    assert ends == [{"big": 55, "late": 30}, {"big": 100, "late": 30}]


def test_wrong_options_are_one_sentence(tm, write: Write) -> None:
    write("t.csv", f"{HEADER}\na,0,1,10\n")
    said = tm("simulate t.csv --cluster 1x1 --policy gandiva --set packing=maybe")
    assert said.code == 2
    assert "gandiva: packing must be one of on, off, not 'maybe'." in said.err
