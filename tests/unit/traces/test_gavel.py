"""Gavel's traces: steps into seconds, by its throughputs or by the rates they were made with."""

from __future__ import annotations

import csv
import json
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from trainmaster.model.trace import TraceError
from trainmaster.traces import gavel

WIDE = "ResNet-18 (batch size 128)\tpython3 m.py\timage\t--num_steps\t1\t{steps}\t4\t1\t{slo}\t7\n"
NARROW = "A3C\tcd %s && python3 'main.py\t--max-steps\t0\t8233033\t6.000000\t16\n"
THROUGHPUTS = {"v100": {"('ResNet-18 (batch size 128)', 4)": {"null": 50.0, "other": [1, 2]}}}


def test_gavel_turns_steps_into_seconds_by_its_throughputs(write):
    write(json.dumps(THROUGHPUTS), "simulation_throughputs.json")
    path = write(
        WIDE.format(steps=500, slo="-1.000000") + WIDE.format(steps=50, slo="2.5"), "a.trace"
    )
    first, second = gavel.read(path).jobs
    assert (first.service_ms, first.job.submit_ms, first.job.demand.nominal.count) == (
        10_000,
        7000,
        4,
    )
    assert (first.job.model, first.job.iterations) == ("ResNet-18 (batch size 128)", 500)
    assert first.job.deadline_ms is None
    assert second.job.deadline_ms == 7000 + 2500


def test_gavels_narrow_trace_uses_the_rates_it_was_made_with(write):
    (traced,) = gavel.read(write(NARROW, "a.trace")).jobs
    assert (traced.service_ms, traced.job.demand.nominal.count) == (1_000_000_000, 16)
    assert traced.job.submit_ms == 6000


def test_gavel_says_where_throughputs_come_from(write):
    path = write(WIDE.format(steps=500, slo="-1"), "a.trace")
    with pytest.raises(
        TraceError, match=r"put simulation_throughputs.json from github.com/stanford"
    ):
        gavel.read(path)
    write(json.dumps({"v100": {"('A3C', 1)": {"null": 1.0}}}), "simulation_throughputs.json")
    with pytest.raises(TraceError, match="on 4 GPUs has no throughput on v100"):
        gavel.read(path)
    with pytest.raises(TraceError, match="has no throughputs for 'h100'"):
        gavel.read(path, gpu_type="h100")


def test_gavel_rows_of_a_strange_width(write):
    with pytest.raises(TraceError, match="3 fields between tabs, a Gavel trace has 7, 9, 10"):
        gavel.read(write("a\tb\tc\n", "a.trace"))


@pytest.mark.shared
def test_the_real_gavel_traces(shared):
    wide = gavel.read(shared("gavel/max_min_fairness.trace"))
    assert len(wide.jobs) == 96
    assert wide.jobs[0].service_ms == pytest.approx(925_982 / 69.95051765 * 1000, abs=1)
    narrow = [gavel.read(path) for path in shared("gavel/msr_seed0").glob("*.trace")]
    assert sum(len(trace.jobs) for trace in narrow) == 15_264


@pytest.mark.shared
def test_gavels_philly_jobs_run_as_long_as_phillys(shared):
    """The recovered rates give back the run times that the same jobs have in philly-82k."""
    wanted = philly_run_times(shared("philly/philly-82k.csv"), "103959")
    jobs = gavel.read(shared("gavel/msr_seed0/103959.trace")).jobs
    offsets = Counter(
        submit - traced.job.submit_ms // 1000 for traced in jobs[:60] for submit, _ in wanted
    )
    offset, _ = offsets.most_common(1)[0]
    pairs = [
        (traced.service_ms / 1000, *found)
        for traced in jobs
        if len(found := wanted.get((offset + traced.job.submit_ms // 1000, size(traced)), [])) == 1
    ]
    close = sum(abs(ours - theirs) <= 4 for ours, theirs in pairs)
    assert len(pairs) > 200
    assert close / len(pairs) > 0.9


def size(traced) -> int:
    return traced.job.demand.nominal.count


def philly_run_times(path: Path, cluster: str) -> dict[tuple[int, int], list[float]]:
    found: dict[tuple[int, int], list[float]] = {}
    lines = [line for line in path.read_text().splitlines()[1:] if line]
    for timestamp, duration, gpus, _, where in csv.reader(lines):
        if where == cluster:
            submit = int(datetime.fromisoformat(timestamp + "+00:00").timestamp())
            found.setdefault((submit, int(gpus)), []).append(float(duration))
    return found
