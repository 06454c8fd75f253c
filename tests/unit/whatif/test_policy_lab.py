"""What the process of the policy lab leaves: metrics with the best marked, curves, the report."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from trainmaster.model.topology import TopologyError
from trainmaster.model.trace import TraceError
from trainmaster.whatif.child_process import Teller
from trainmaster.whatif.lab_bounds import REPORT
from trainmaster.whatif.policy_lab import compared

TRACE = "job_id,submit_s,gpus,duration_s\nlong,0,1,1000\nshort,1,1,10\nother,2,1,20\n"


class Told(Teller):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def tell(self, progress: float, says: str) -> None:
        self.said.append(says)


def question(**changed: Any) -> dict[str, Any]:
    trace = {"name": "mine", "content": TRACE, "format": None, "like": None, "jobs": 9, "load": 1.0}
    asked: dict[str, Any] = {
        "trace": {**trace, "seed": 0},
        "cluster": "1x1",
        "policies": [{"name": "fifo", "options": {}}, {"name": "srtf", "options": {}}],
        "perf": "ideal",
        "estimates": "exact",
        "seed": 0,
    }
    return {**asked, **changed}


def test_two_policies_side_by_side(tmp_path: Path) -> None:
    told = Told()
    found = compared(question(), tmp_path, told)
    assert (found["policies"], found["jobs"], found["gpus"]) == (["fifo", "srtf"], 3, 1)
    metrics = {each["key"]: each for each in found["metrics"]}
    jct = metrics["avg_jct_s"]
    assert jct["values"] == [
        pytest.approx((1000 + 1009 + 1028) / 3),
        pytest.approx((1030 + 10 + 29) / 3, abs=1),
    ]
    assert jct["best"] == [False, True]
    fifo = found["runs"][0]
    assert fifo["jct"][-1] == [1028, 1]
    assert [x for x, _ in fifo["wait"]] == [0, 999, 1008]
    with zipfile.ZipFile(tmp_path / REPORT) as report:
        assert {"index.html", "summary.csv", "jobs-fifo.csv"} <= set(report.namelist())
    assert told.said[-1] == "Drawing the report."


def test_what_cannot_be_compared_is_one_sentence(tmp_path: Path) -> None:
    bad = {**question()["trace"], "content": TRACE.replace("1000", "x")}
    with pytest.raises(TraceError, match="The trace line 2, column duration_s: 'x'"):
        compared(question(trace=bad), tmp_path, Told())
    with pytest.raises(ValueError, match="20,000 GPUs at most"):
        compared(question(cluster="30000x8"), tmp_path, Told())
    with pytest.raises(TopologyError):
        compared(question(cluster="0x8"), tmp_path, Told())


def test_no_file_is_read_and_no_code_is_loaded(tmp_path: Path) -> None:
    """Who asks is not the manager's own user, whose process this is."""
    secret = tmp_path / "secret"
    secret.write_text("1\nsecret words\n")
    code = tmp_path / "own.py"
    code.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    asked = [
        ("gittins", {"service_samples": str(secret)}),
        ("tiresias-g", {"service_samples": str(secret)}),
        ("two-level", {"inner": str(code)}),
        ("fair", {"inner": "gittins", "inner_options": f"service_samples={secret}"}),
        (str(code), {}),
    ]
    for name, options in asked:
        with pytest.raises(ValueError, match="policy") as refusal:
            compared(question(policies=[{"name": name, "options": options}]), tmp_path, Told())
        assert "secret words" not in str(refusal.value)
    assert not (tmp_path / "ran").exists()
