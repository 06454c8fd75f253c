"""The page on jobs that state no memory: what it says, what it leaves out, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import memory_live_page

GIB = 1 << 30
SAID = {"low_bytes": GIB, "high_bytes": 2 * GIB, "source": "learned", "reserved_bytes": 2 * GIB}
JOB = {
    "program": "mlp --batch 8",
    "state": "succeeded",
    "said": [SAID],
    "memory": {"peak_bytes": GIB},
    "reserved_bytes": GIB // 2,
    "start_s": 4.5,
}
PART = {
    "jobs": [JOB],
    "succeeded": 1,
    "all_ended": True,
    "out_of_memory": 0,
    "stopped_for_memory": 0,
    "wall_s": 10.0,
    "steps_per_s": 5.0,
    "jobs_per_min": 6.0,
    "gpu_busy": 0.5,
    "jobs_at_once_mean": 1.9,
    "jobs_at_once_most": 2,
    "gpu_memory_most_gib": 30.0,
}
MACHINE = {"gpu": "NVIDIA H200", "gpu_memory": 140 * GIB, "driver": "580", "is_fake": False}


def results(**steps: Any) -> dict[str, Any]:
    setting = {"seconds": 2.0}
    return {"date": "2026-11-18", "machine": MACHINE, "steps": {"setting": setting, **steps}}


def test_what_was_measured_is_shown_and_the_rest_is_said_to_be_missing() -> None:
    text = memory_live_page.page(results(known=PART), None, None)
    row = "| `mlp --batch 8` | succeeded | 1.0 to 2.0 (learned) | 2.0 | 1.0 | 0.5 |"
    assert row in text
    assert "takes 4.5 s (median) to start, and trains alone for 2.0 s" in text
    assert "| packed, each program has run once | 1 of 1 | 0 | 0 | 10.0 |" in text
    assert "Ended by the time limit" not in text
    assert "At most 30 GiB of the GPU's 140 GiB were in use" in text
    assert "nothing was packed" not in text
    assert "Not measured yet: `python -m benchmarks.zero_estimate_slots`." in text


def test_a_part_that_was_cut_short_is_said_to_be() -> None:
    text = memory_live_page.page(results(known=PART, new=PART | {"all_ended": False}), None, None)
    assert "before all jobs were done: packed, by a manager that has seen none." in text


def test_what_packed_nothing_or_did_other_work_is_said() -> None:
    new = PART | {"jobs_at_once_most": 1, "against_alone": {"is_same_work": False}}
    text = memory_live_page.page(results(known=PART, new=new), None, None)
    assert "Packed, by a manager that has seen none: nothing was packed" in text
    assert "not the same work as one at a time" in text


def test_where_memory_is_short_it_says_what_was_killed_and_how_much_faster_it_was() -> None:
    each = {"slots": 8, "succeeded": 2, "out_of_memory": 0, "wall_s": 1.0, "jobs_per_min": 3.0}
    each |= {"jobs_at_once": 4.0, "memory_mean_mib": 450, "memory_most_mib": 900, "jobs": [{}, {}]}
    read = {"date": "2026-11-19", "cpus": 2, "load_before": 1.0, "memory_mib": 900}
    read["alone"] = each | {"steps_per_s": 10.0}
    read["known"] = each | {"steps_per_s": 35.0}
    read["new"] = each | {"steps_per_s": 20.0, "out_of_memory": 3}
    text = memory_live_page.page(None, None, None, read)
    assert "| together, each program has run once | 8 | 2 of 2 | 0 |" in text
    assert "| 4.0 | 50% | 100% |" in text
    assert "3.5 times as fast as one at a time" in text
    assert "3 runs were killed" in text
    assert "2 of 2 jobs succeeded." in text
    assert "Not measured yet: `python -m benchmarks.zero_estimate_short`" in memory_live_page.page(
        None, None, None
    )


def test_a_played_gpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpu").mkdir()
    played = results() | {"machine": MACHINE | {"is_fake": True}}
    (tmp_path / "gpu" / "zero_estimate.json").write_text(json.dumps(played))
    asked = ["page", "--results", str(tmp_path), "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", asked)
    with pytest.raises(SystemExit, match="of a played GPU"):
        memory_live_page.main()
    assert not (tmp_path / "memory-live.md").exists()
