"""`trace generate`, `stats`, `convert`, `formats`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

PHILLY_LOG = """[{"status": "Pass", "vc": "ee9e8c", "jobid": "application_1", "user": "ce2f4c",
  "submitted_time": "2017-10-07 01:11:39",
  "attempts": [{"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:23",
                "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}]}]},
 {"status": "Failed", "vc": "ee9e8c", "jobid": "application_2", "user": "ce2f4c",
  "submitted_time": "2017-10-07 01:11:40", "attempts": []}]
"""


def test_generate_to_standard_output_and_to_a_file(tm, folder: Path) -> None:
    printed = tm("trace generate --like philly --jobs 50 --gpus 16 --load 0.8 --seed 3")
    assert printed.code == 0
    assert len(printed.out.splitlines()) == 51
    assert printed.err == ""
    assert tm("trace generate --jobs 50 --gpus 16 --load 0.8 --seed 3 --out t.csv").out == ""
    assert (folder / "t.csv").read_text() == printed.out
    assert tm("trace generate --jobs 50 --gpus 16 --load 0.8 --seed 4").out != printed.out


def test_a_generated_trace_has_the_load_that_was_asked_for(tm) -> None:
    tm("trace generate --jobs 500 --gpus 64 --load 0.8 --out t.csv")
    stats = json.loads(tm("trace stats t.csv --gpus 64 --json").out)
    assert stats["load"] == 0.8
    assert stats["jobs"] == 500


def test_stats_for_people(tm) -> None:
    tm("trace generate --jobs 500 --gpus 64 --load 0.8 --out t.csv")
    said = tm("trace stats t.csv --gpus 64")
    assert said.code == 0
    assert "t.csv: 500 jobs" in said.out
    assert "load 0.80 on 64 GPUs" in said.out
    assert "████" in said.out
    assert "Arrivals by hour of the day" in said.out
    for word in ("succeeded", "failed", "cancelled", "queue (10)", "model (10)"):
        assert word in said.out


def test_stats_of_a_single_job(tm, write: Callable[[str, str], Path]) -> None:
    write("t.csv", "job_id,submit_s,gpus,duration_s\na,0,1,0\n")
    assert tm("trace stats t.csv --gpus 4").code == 0
    assert json.loads(tm("trace stats t.csv --json").out)["load"] is None


def test_brackets_in_names_are_only_brackets(tm, write: Callable[[str, str], Path]) -> None:
    header = "job_id,submit_s,gpus,duration_s,queue\n"
    write("t[red].csv", header + "a,0,1,10,[bold]\nb,0,1,10,[/]\n")
    said = tm("trace stats t[red].csv")
    assert said.code == 0
    assert "t[red].csv: 2 jobs" in said.out
    assert "[bold]" in said.out
    assert "t[red].csv on 1x2" in tm("simulate t[red].csv --cluster 1x2").out


def test_a_plot(tm, folder: Path) -> None:
    tm("trace generate --jobs 200 --gpus 64 --out t.csv")
    for name, magic in (("t.png", b"\x89PNG"), ("t.svg", b"<?xml"), ("t.pdf", b"%PDF")):
        assert tm("trace stats t.csv --plot", name).code == 0
        assert (folder / name).read_bytes().startswith(magic)


def test_convert_says_what_it_left_out(tm, write: Callable[[str, str], Path]) -> None:
    write("cluster_job_log", PHILLY_LOG)
    said = tm("trace convert cluster_job_log")
    assert said.code == 0
    assert said.out.splitlines()[1].startswith("application_1,")
    assert said.err == "Note: cluster_job_log: 1 job left out: never ran.\n"


def test_convert_in_place_keeps_unknown_columns(tm, write: Callable[[str, str], Path]) -> None:
    text = "job_id,submit_s,gpus,duration_s,colour\na,0,1,10,red\n"
    path = write("t.csv", text)
    assert tm("trace convert t.csv --out t.csv").code == 0
    assert path.read_text() == text


def test_formats(tm) -> None:
    names = [each["name"] for each in json.loads(tm("trace formats --json").out)["formats"]]
    assert names[:2] == ["native", "philly"]
    assert "helios" in tm("trace formats").out


def test_a_load_in_percent_is_refused(tm) -> None:
    said = tm("trace generate --load 90 --jobs 10")
    assert (said.code, said.out) == (2, "")
    assert "0.9 for 90 %" in said.err
