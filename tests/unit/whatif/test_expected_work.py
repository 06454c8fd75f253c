"""What a forecast of starts assumes of run times: the estimates, and twice what was done beyond them."""

from __future__ import annotations

import pytest

from tests.builders import a_job, a_policy, cluster
from trainmaster.core.controller import Controller
from trainmaster.model.events import JobSubmitted
from trainmaster.model.job import Estimate, Source
from trainmaster.model.units import MINUTE, NOMINAL
from trainmaster.whatif.forecast import ExpectedWork


def a_controller(*estimates: Estimate | None) -> Controller:
    controller = Controller(cluster("1x1"), a_policy("fifo"))
    controller.step(
        0, [JobSubmitted(a_job(f"j{at}", 1), each) for at, each in enumerate(estimates)]
    )
    return controller


def minutes(count: int, source: Source) -> Estimate:
    return Estimate(count * MINUTE * NOMINAL, source)


def test_jobs_end_when_their_estimates_say() -> None:
    controller = a_controller(minutes(20, Source.RUNS), minutes(5, Source.STEPS))
    expected = ExpectedWork(controller)
    jobs = controller.state.jobs
    assert expected(jobs["j0"]) == 20 * MINUTE * NOMINAL
    assert expected(jobs["j1"]) == 5 * MINUTE * NOMINAL
    assert expected.basis() == (
        "assumes that each job ends when expected, judging by its steps or earlier runs of the same program"
        " with the same arguments, and that nobody submits more jobs."
    )


@pytest.mark.parametrize("source", [Source.LOSS, Source.RUNS, Source.PROGRAM, Source.PROFILE])
def test_a_job_beyond_its_estimate_needs_as_long_again(source: Source) -> None:
    controller = a_controller(minutes(5, source))
    job = controller.state.jobs["j0"]
    job.work = 8 * MINUTE * NOMINAL
    expected = ExpectedWork(controller)
    assert expected(job) == 16 * MINUTE * NOMINAL
    assert "run as long again as they have already run" in expected.basis()


def test_a_job_of_which_nothing_is_known_is_said_to_be_guessed() -> None:
    controller = a_controller(minutes(20, Source.RUNS), None)
    expected, jobs = ExpectedWork(controller), controller.state.jobs
    assert [expected(job) for job in jobs.values()] == [20 * MINUTE * NOMINAL] * 2
    assert expected.basis() == (
        "assumes that each job ends when expected, judging by earlier runs of the same program with the"
        " same arguments, that jobs without progress reports or earlier runs run as long again as they have"
        " already run, and 20 min at least, within their time limits, and that nobody submits more jobs."
    )
