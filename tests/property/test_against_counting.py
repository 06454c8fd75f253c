"""Under `ideal`, every job ends when a simulator that shares no code with ours says it does."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import a_policy, a_scenario, outcome_of, traced
from tests.reference.counting import count
from trainmaster.model.units import SECOND

Row = tuple[int, int, int]
"""(GPUs, submit, service), in ms."""

CLUSTERS = ("1x2", "1x4", "2x2", "3x2", "2x2x2", "4x1", "rack a: n0[1] n1[3]  rack b: n2[2]")

FINE = st.integers(1, 20_000) | st.sampled_from([1_000, 2_000, 3_000, 4_000, 6_000])
WHOLE_SECONDS = st.integers(1, 20).map(lambda seconds: seconds * SECOND)

QUANTUM_S = 3.5
LIMITS_GPU_S = (5, 16)

CONTENDERS: dict[str, tuple[str, dict[str, object], st.SearchStrategy[int]]] = {
    "fifo": ("fifo", {}, FINE),
    "fifo skip": ("fifo", {"backfill": "skip"}, FINE),
    "srtf": ("srtf", {}, FINE),
    "srsf": ("srsf", {}, FINE),
    "las": ("las", {"quantum_s": QUANTUM_S}, FINE),
    # Demotion is noticed at whole seconds: so are the traces on which both must agree.
    "tiresias-l": ("tiresias-l", {"thresholds_gpu_s": "5,16"}, WHOLE_SECONDS),
}


@st.composite
def rows(draw: st.DrawFn, times: st.SearchStrategy[int]) -> list[Row]:
    gaps = st.just(0) | times
    found, now = [], 0
    for _ in range(draw(st.sampled_from([1, 4, 8, 12]))):
        now += draw(gaps)
        found.append((draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4])), now, draw(times)))
    return found


@pytest.mark.parametrize("contender", CONTENDERS)
@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_same_finishes_and_preemptions(contender: str, data: st.DataObject) -> None:
    name, options, times = CONTENDERS[contender]
    topology = data.draw(st.sampled_from(CLUSTERS))
    jobs = data.draw(rows(times))
    result = outcome_of(
        a_scenario(
            [
                traced(f"j{row:02}", gpus, service / SECOND, at_s=submit / SECOND)
                for row, (gpus, submit, service) in enumerate(jobs)
            ],
            topology,
        ),
        a_policy(name, **options),
    )
    fitting = [row for row in jobs if row[0] <= result.gpus]
    expected = count(
        fitting,
        result.gpus,
        contender,
        quantum=round(QUANTUM_S * SECOND),
        limits=[limit * SECOND for limit in LIMITS_GPU_S] if name == "tiresias-l" else (),
    )
    ours = [(job.finish_ms, job.preemptions) for job in result.jobs if job.finish_ms is not None]
    assert ours == [(job.finish, job.preemptions) for job in expected]


def test_the_reference_itself_on_the_papers_example() -> None:
    """Figure 7 of Tiresias: means 9.33, 11.67 and 10."""
    jobs = [(2, 0, 2_000), (1, 0, 8_000), (2, 0, 6_000)]
    assert [job.finish for job in count(jobs, 2, "srsf")] == [2_000, 10_000, 16_000]
    assert [job.finish for job in count(jobs, 2, "las", quantum=1_000)] == [5_000, 14_000, 16_000]
    assert [job.finish for job in count(jobs, 2, "tiresias-l", limits=[4_000])] == [
        2_000,
        12_000,
        16_000,
    ]
