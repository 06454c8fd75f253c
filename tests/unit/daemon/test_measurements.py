"""Which measurements become facts, as tables of what is read and what is told."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.builders import a_job
from tests.unit.core.stage import Strings
from trainmaster.daemon.measurements import GpuLook, Measurements, is_alone
from trainmaster.estimators.memory.observed_memory import passed_on
from trainmaster.model import events as e
from trainmaster.model.actions import Start
from trainmaster.model.engine_reports import Progressed
from trainmaster.model.job import Demand, Run, Shape
from trainmaster.model.memory_estimate import MemoryEstimate, MemorySource
from trainmaster.model.placement import Sharing
from trainmaster.model.profile import Profile
from trainmaster.model.units import GIB, HOUR, MIB, NOMINAL, SECOND, WHOLE

Look = tuple[int, int, float | None]
"""(second, GiB, utilisation)"""


def a_run() -> Strings:
    return Strings("1x2").running("a", 0)


def told(looks: list[Look], *, company: range = range(0)) -> list[tuple[int, float | None, int]]:
    """(second, utilisation, GiB) of the facts that follow from these looks; company at these seconds."""
    world, measurements, found = a_run(), Measurements(), []
    for second, gib, util in looks:
        ppm = None if util is None else round(util * NOMINAL)
        alone = second not in company
        news = measurements.of_gpu(
            world.job("a"), GpuLook(gib * GIB, ppm), second * SECOND, is_alone=alone
        )
        if news is not None:
            world.tell(e.JobProfiled("a", profile=news))
            util_told = None if news.gpu_util_ppm is None else news.gpu_util_ppm / NOMINAL
            found.append((second, util_told, news.gpu_memory // GIB))
    return found


def at_rate(steps_per_s: float | None, samples_per_s: float | None = None) -> Progressed:
    return Progressed(Run("a", 1), 0, 1, steps_per_s=steps_per_s, samples_per_s=samples_per_s)


def every_2_s(until: int, gib: int, util: float | None, since: int = 0) -> list[Look]:
    return [(second, gib, util) for second in range(since, until + 1, 2)]


@pytest.mark.parametrize(
    ("looks", "company", "wanted"),
    [
        pytest.param(every_2_s(8, 4, 0.3), range(0), [], id="still warming up"),
        pytest.param(every_2_s(60, 4, 0.3), range(0), [(10, 0.3, 4)], id="once, if it stays so"),
        pytest.param(
            [*every_2_s(20, 4, 0.3), (22, 9, 0.3), *every_2_s(60, 4, 0.3, since=24)],
            range(0),
            [(10, 0.3, 4), (22, None, 9)],
            id="memory is a peak",
        ),
        pytest.param(
            [*every_2_s(10, 4, 0.3), *every_2_s(18, 8, 0.3, since=12), (20, 8, 0.3)],
            range(0),
            [(10, 0.3, 4), (12, None, 8)],
            id="at once beyond what is reserved",
        ),
        pytest.param(
            [*every_2_s(20, 40, 0.30), *every_2_s(60, 41, 0.31, since=22)],
            range(0),
            [(10, 0.3, 40)],
            id="less than a tenth is not told",
        ),
        pytest.param(
            every_2_s(60, 4, 0.3),
            range(31),
            [(10, None, 4), (40, 0.3, 0)],
            id="not beside others",
        ),
        pytest.param(
            every_2_s(60, 4, None), range(0), [(10, None, 4)], id="the driver says nothing of it"
        ),
        pytest.param(
            every_2_s(60, 0, 0.0), range(0), [(10, 0.0, 0)], id="an idle one is known too"
        ),
    ],
)
def test_what_is_noticeable_is_told(
    looks: list[Look], company: range, wanted: list[tuple[int, float | None, int]]
) -> None:
    assert told(looks, company=company) == wanted


def test_utilisation_is_the_mean_of_ten_seconds() -> None:
    looks = [(second, 4, 0.2 if second % 4 else 0.6) for second in range(0, 11, 2)]
    [(_, util, _)] = told(looks)
    assert util == pytest.approx((3 * 0.6 + 3 * 0.2) / 6)


@pytest.mark.parametrize(
    ("rates", "wanted"),
    [
        ([10.0, 10.0], []),
        ([10.0, 12.5, 10.0], [100_000]),
        ([10.0] * 12 + [10.5] * 12, [100_000]),
        ([10.0] * 10 + [5.0] * 20, [100_000, 150_000, 200_000]),
    ],
)
def test_the_step_time_is_a_median_of_reports(rates: list[float], wanted: list[int]) -> None:
    world, measurements, found, seconds = a_run(), Measurements(), list[int](), list[int]()
    for second, rate in enumerate(rates):
        news = measurements.of_steps(world.job("a"), at_rate(rate), second * SECOND, is_alone=True)
        if news is not None:
            world.tell(e.JobProfiled("a", profile=news))
            found.append(news.step_us)
            seconds.append(second)
    assert found == wanted
    assert all(later - earlier >= 10 for earlier, later in pairwise(seconds))


def test_steps_count_only_of_a_run_that_is_alone_on_one_gpu() -> None:
    world, measurements = a_run().running("b", 1), Measurements()
    gang = Strings("1x2").running("g", 0, 1).job("g")
    for second in range(5):
        now = second * SECOND
        assert measurements.of_steps(world.job("a"), at_rate(10.0), now, is_alone=False) is None
        assert measurements.of_steps(world.job("a"), at_rate(None), now, is_alone=True) is None
        assert measurements.of_steps(gang, at_rate(10.0), now, is_alone=True) is None


def test_the_batch_is_known_where_samples_are_reported_too() -> None:
    world, measurements = a_run(), Measurements()
    news = [
        measurements.of_steps(world.job("a"), at_rate(10.0, 640.0), each * SECOND, is_alone=True)
        for each in range(3)
    ]
    assert news == [None, None, Profile(step_us=100_000, batch=64, per_gpu=True)]


def test_the_pre_run_of_a_gang_shows_the_step_of_one_gpu() -> None:
    world, measurements = Strings("1x2"), Measurements()
    world.script.wake_at = HOUR
    world.tell(e.JobSubmitted(a_job("g", 2), preflight=True))
    world.script.wake_at = None
    world.plan(Start("g", world.on(0)))
    world.started("g")
    news = [
        measurements.of_steps(world.job("g"), at_rate(2.0), each * SECOND, is_alone=True)
        for each in range(3)
    ]
    assert news[-1] == Profile(step_us=500_000, per_gpu=True)


def test_a_run_is_alone_until_another_shares_its_gpu() -> None:
    world = Strings("1x2")
    half = {"share": WHOLE // 2, "memory": GIB, "sharing": Sharing.TIME}
    for name in ("a", "b"):
        world.submit(name, Demand(Shape(1, memory=GIB), 1, 1))
    world.start("a", 0, **half)
    assert is_alone(world.state, world.job("a"))
    world.start("b", 0, **half)
    assert not is_alone(world.state, world.job("a"))


def test_a_job_that_waits_is_not_measured() -> None:
    world = Strings("1x1").submit("a")
    assert Measurements().of_gpu(world.job("a"), GpuLook(GIB, 0), 0, is_alone=True) is None
    assert world.job("a").profile is None
    assert Profile() == Profile().updated(Profile())


@pytest.mark.parametrize(
    ("mib", "steps", "want_mib"),
    [
        pytest.param(10_400, None, 11_000, id="below 95 %"),
        pytest.param(10_500, None, 11_550, id="of runs with the same arguments 95 % are used"),
        pytest.param(10_500, 9, 12_600, id="early: it may grow further"),
    ],
)
def test_more_is_reserved_before_all_of_it_is_used(
    mib: int, steps: int | None, want_mib: int
) -> None:
    world, measurements = a_run(), Measurements()
    learned = MemoryEstimate(
        9_000 * MIB, 10_000 * MIB, 11_000 * MIB, MemorySource.LEARNED, 3, is_same=True
    )
    world.tell(e.JobProfiled("a", profile=Profile(memory_estimate=learned)))
    for second in range(0, 14, 2):
        look, at = GpuLook(mib * MIB, 0), second * SECOND
        news = measurements.of_gpu(world.job("a"), look, at, is_alone=True, step=steps)
        if news is not None:
            world.tell(e.JobProfiled("a", profile=news))
    assert world.job("a").measured_memory == want_mib * MIB


def test_a_run_keeps_what_another_with_its_arguments_has_shown() -> None:
    world, measurements = a_run(), Measurements()
    shown = Profile(gpu_memory=7 * GIB, memory_estimate=passed_on(7 * GIB))
    world.tell(e.JobProfiled("a", profile=shown))
    for second in range(0, 60, 2):
        look, at = GpuLook(GIB, 0), second * SECOND
        news = measurements.of_gpu(world.job("a"), look, at, is_alone=True, step=second)
        if news is not None:
            world.tell(e.JobProfiled("a", profile=news))
    profile = world.job("a").profile
    assert profile is not None
    assert profile.memory_estimate is not None
    assert profile.memory_estimate.low == 7 * GIB
    assert profile.memory_estimate.is_own


@pytest.mark.parametrize(
    ("gib", "want"),
    [
        pytest.param(6, (MemorySource.STATIC, 10), id="early: its model says what comes later"),
        pytest.param(11, (MemorySource.MEASURED, 13), id="over the top: its model is wrong"),
    ],
)
def test_an_estimate_from_the_model_holds_until_it_is_passed(
    gib: int, want: tuple[MemorySource, int]
) -> None:
    world, measurements = a_run(), Measurements()
    static = MemoryEstimate(9 * GIB, 9 * GIB, 10 * GIB, MemorySource.STATIC)
    world.tell(e.JobProfiled("a", profile=Profile(memory_estimate=static)))
    look = GpuLook(gib * GIB, 0.5)
    for second in range(0, 14, 2):
        news = measurements.of_gpu(world.job("a"), look, second * SECOND, is_alone=True)
        if news is not None:
            world.tell(e.JobProfiled("a", profile=news))
    profile = world.job("a").profile
    assert profile is not None
    found = profile.memory_estimate
    assert found is not None
    assert (found.source, -(-found.high // GIB)) == want
