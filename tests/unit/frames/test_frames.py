"""Simulations and comparisons from Python: the numbers of the command line, as frames."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import trainmaster
from trainmaster.cli.main import main

TRACE = """job_id,submit_s,gpus,duration_s,queue
1,0,2,2000,a
2,0,1,8000,b
3,10,2,600,a
4,20,9,600,a
"""


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


Said = Callable[..., Any]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """The JSON that a command writes to standard output; its notes go to standard error."""

    def run(*words: str) -> Any:
        assert main([*words]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_a_simulation_has_the_numbers_of_the_command(trace: Path, said: Said) -> None:
    found = trainmaster.simulate(
        trace, "2x2", ["fifo", "las"], options={"quantum_s": 300, "fifo.backfill": "easy"}
    )
    arguments = ("--policy", "fifo,las", "--set", "quantum_s=300", "--set", "fifo.backfill=easy")
    wanted = said("simulate", "trace.csv", "--cluster", "2x2", *arguments, "--json", "-")
    assert list(found.summary.index) == ["fifo", "las"]
    for entry in wanted["results"]:
        ours = found.summary.loc[entry["policy"]]
        for name, value in entry["summary"].items():
            if name != "wall_s":
                assert ours[name] == value or (value is None and pd.isna(ours[name])), name
    jobs = found.jobs[found.jobs.policy == "las"].drop(columns="policy").to_json(orient="records")
    assert json.loads(jobs) == wanted["results"][1]["jobs"]
    assert found.notes == ("job 4 needs 9 GPUs, the cluster has 4: rejected",)
    assert "fifo" in found._repr_html_()


def test_a_frame_is_a_trace(trace: Path) -> None:
    frame = pd.read_csv(trace)
    of_frame = trainmaster.simulate(frame, "2x2", "fifo").jobs
    assert of_frame.equals(trainmaster.simulate(str(trace), "2x2", "fifo").jobs)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"cluster": "2y2"}, r"^--cluster 2y2 is neither a file nor of the form"),
        ({"policy": "fifi"}, r"did you mean fifo\?$"),
        ({"options": {"quantom_s": 3}}, r"quantom_s"),
        ({"perf": "idael"}, r"did you mean ideal\?$"),
        ({"trace": "gone.csv"}, r"gone\.csv"),
        ({"estimates": "rough"}, r"^--estimates rough is none of"),
    ],
)
@pytest.mark.parametrize("function", ["simulate", "compare"])
def test_bad_input_is_a_value_error(
    trace: Path, function: str, change: dict[str, Any], sentence: str
) -> None:
    asked = {"trace": trace, "cluster": "2x2", "policy": "fifo", **change}
    with pytest.raises(ValueError, match=sentence) as raised:
        getattr(trainmaster, function)(**asked)
    assert str(raised.value).endswith((".", "?"))
    assert "\n" not in str(raised.value)


def test_a_comparison_has_the_scores_of_the_command(trace: Path, said: Said) -> None:
    found = trainmaster.compare(
        trace, "2x2", "fifo,las", estimates="noisy:0.3", seeds=2, options={"quantum_s": 300}
    )
    arguments = ("--policy", "fifo,las", "--set", "quantum_s=300", "--estimates", "noisy:0.3")
    arguments += ("--processes", "1")
    wanted = said("compare", "trace.csv", "--cluster", "2x2", *arguments, "--seeds", "2", "--json")
    assert found.entries == wanted
    assert len(found.trials) == 4
    las = found.summary.loc["las"]
    scores = [each["score"] for each in wanted["trials"] if each["contender"] == "las"]
    assert las.mean_jct_s == pytest.approx(sum(each["mean_jct_s"] for each in scores) / 2)
    assert pd.isna(found.summary.loc["fifo"].ratio)
    assert las.ratio_low <= las.ratio <= las.ratio_high
