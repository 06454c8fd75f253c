"""What a job is known to use: stated by its user, else measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_job
from trainmaster.core.state import JobRecord
from trainmaster.model.job import Demand, Shape
from trainmaster.model.profile import Profile
from trainmaster.model.topology import GpuType
from trainmaster.model.units import GIB, MIB

KIND = GpuType(memory=16 * GIB)


def a_record(profile: Profile | None, *, stated: int = 0, used: int | None = None) -> JobRecord:
    demand = Demand(Shape(1, memory=stated), 1, 1)
    record = JobRecord(a_job("j", demand, gpu_util_ppm=used), 0, 0, None, None)
    record.profile = profile
    return record


MEASURED = Profile(gpu_util_ppm=300_000, gpu_memory=10 * GIB)


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        pytest.param(a_record(None), (None, 0, 16 * GIB), id="nothing is known: all memory"),
        pytest.param(a_record(Profile(step_us=5)), (None, 0, 16 * GIB), id="only its speed"),
        pytest.param(
            a_record(MEASURED), (300_000, 11 * GIB, 11 * GIB), id="measured: a tenth more"
        ),
        pytest.param(
            a_record(replace(MEASURED, gpu_memory=15 * GIB)),
            (300_000, 16 * GIB + 512 * MIB, 16 * GIB),
            id="not more than there is",
        ),
        pytest.param(
            a_record(MEASURED, stated=20 * GIB, used=0), (0, 20 * GIB, 20 * GIB), id="stated wins"
        ),
    ],
)
def test_a_statement_wins_over_a_measurement(
    record: JobRecord, wanted: tuple[int | None, int, int]
) -> None:
    assert (record.util_ppm, record.gpu_memory, record.memory_on(KIND)) == wanted


def test_a_peak_is_booked_in_whole_mebibytes() -> None:
    assert a_record(Profile(gpu_memory=1)).gpu_memory == MIB
