"""The cache of speedup curves: live jobs keep theirs, ended jobs do not pile up."""

from __future__ import annotations

from tests.builders import cluster
from tests.unit.core.stage import Strings
from trainmaster.core.job_record import JobRecord
from trainmaster.estimators.throughput_calibration import NOTHING_MEASURED
from trainmaster.mechanisms.speedup_curves import SPARE_CURVES, Curves, MeasuredSpeeds
from trainmaster.model.actions import Start
from trainmaster.model.events import RunSpeedChanged, RunStarted
from trainmaster.model.job import Job, gpus
from trainmaster.model.units import NOMINAL


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


def test_a_speed_that_nobody_measured_teaches_nothing_until_one_is_reported() -> None:
    world = Strings("1x4")
    world.submit("a", gpus(1, maximum=4))
    world.plan(Start("a", world.on(0, 1, 2, 3)))
    record, curves, memo = world.job("a"), Curves(world.topology), MeasuredSpeeds()
    world.tell(RunStarted(record.run, 4 * NOMINAL, is_assumed=True))
    assert curves.learned([record], memo, world.state.jobs) is memo
    world.later(10).tell(RunSpeedChanged(record.run, 0, NOMINAL // 2))
    learned = curves.learned([record], memo, world.state.jobs)
    assert curves.speed(record, world.on(0, 1, 2, 3), learned.corrections) == NOMINAL // 2


def test_the_first_measured_speed_makes_the_policy_look() -> None:
    world = Strings("1x3")
    for name in ("a", "b", "c"):
        world.submit(name)
    world.plan(Start("a", world.on(0)))
    run = world.job("a").run
    world.tell(RunStarted(run, NOMINAL, is_assumed=True))
    world.script.next = [Start("b", world.on(1))]
    assert [order.run.job for order in world.tell(RunSpeedChanged(run, 0, NOMINAL))] == ["b"]
    world.script.next = [Start("c", world.on(2))]
    assert world.later(1).tell(RunSpeedChanged(run, 0, NOMINAL // 2)) == []
