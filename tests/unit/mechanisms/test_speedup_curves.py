"""The cache of speedup curves: live jobs keep theirs, ended jobs do not pile up."""

from __future__ import annotations

from tests.builders import cluster
from trainmaster.core.job_record import JobRecord
from trainmaster.estimators.throughput_calibration import NOTHING_MEASURED
from trainmaster.mechanisms.speedup_curves import SPARE_CURVES, Curves, MeasuredSpeeds
from trainmaster.model.job import Job, gpus


def test_curves_of_ended_jobs_are_dropped_in_time() -> None:
    curves = Curves(cluster("1x4"))
    jobs = [Job(f"j{seq}", 0, gpus(1, maximum=4)) for seq in range(5 * SPARE_CURVES)]
    records = [JobRecord(job, seq, 0, None, None) for seq, job in enumerate(jobs)]
    kept = curves.of(records[0], NOTHING_MEASURED)
    for record in records[1:]:
        curves.of(record, NOTHING_MEASURED)
        live = {each.id: each for each in (records[0], record)}
        curves.learned((), MeasuredSpeeds(), live)
        assert len(curves.known) <= 2 * len(live) + SPARE_CURVES
    assert {0, records[-1].seq} <= curves.known.keys()
    assert curves.of(records[0], NOTHING_MEASURED) is kept
