"""Philly through the command line: its search, its shares, and the ends of its jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

HEADER = "job_id,submit_s,gpus,duration_s"
Write = Callable[[str, str], Path]

APART = f"""{HEADER}
a,0,3,1000
b,0,3,1000
pair,10,2,100
single,200,1,100
"""


def starts(result: dict[str, list[dict[str, object]]]) -> dict[object, object]:
    return {job["job_id"]: job["start_s"] for job in result["jobs"]}


def test_a_pair_without_a_server_relaxes_after_timeout_and_back_off(tm, write: Write) -> None:
    """Two servers of 4 GPUs with one idle each: the pair acquires from 10 s and sleeps from 160 s.

    While it sleeps, the single takes one of them until 300 s; then the pair lies apart.
    """
    write("apart.csv", APART)
    line = "simulate apart.csv --cluster 1x2x4 --policy philly --perf ideal --json -"
    (result,) = tm(line).results()
    assert starts(result) == {"a": 0, "b": 0, "pair": 300, "single": 200}, "lent while it slept"
    assert result["delays"]["fragmentation_s"] == 190
    assert result["delays"]["by_size"][-1]["label"] == "2-4 GPUs"
    (never,) = tm(f"{line} --set relax_after=1000000").results()
    assert starts(never) == {"a": 0, "b": 0, "pair": 1110, "single": 200}
    (hasty,) = tm(f"{line} --set acquire_timeout_s=20 --set backoff_s=10").results()
    assert starts(hasty)["pair"] == 40


def test_of_two_gangs_one_runs_and_the_other_waits_with_nothing(tm, write: Write) -> None:
    write("gangs.csv", f"{HEADER}\na,0,8,500\nb,0,8,500\nc,1,4,100\n")
    (result,) = tm(
        "simulate gangs.csv --cluster 1x3x4 --policy philly --perf ideal --json -"
    ).results()
    assert starts(result) == {"a": 0, "b": 500, "c": 1}
    assert result["delays"]["contention_s"] == 500


def test_the_ends_of_a_log_with_the_counts_of_table_6(tm, write: Write) -> None:
    ends = {"passed": 66_696, "killed": 12_996, "failed": 16_568}
    rows = [f"{end}{n},0,1,1,{end}" for end, count in ends.items() for n in range(count)]
    write("ends.csv", "\n".join([f"{HEADER},status", *rows]) + "\n")
    stats = json.loads(tm("trace stats ends.csv --json").out)
    shares = {
        each["outcome"]: round(100 * each["jobs"] / stats["jobs"], 1) for each in stats["outcomes"]
    }
    assert shares == {"succeeded": 69.3, "cancelled": 13.5, "failed": 17.2}
    said = tm("trace stats ends.csv").out
    assert all(f"{part} %" in said for part in ("69.3", "13.5", "17.2"))
