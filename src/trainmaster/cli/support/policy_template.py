"""The files that a new policy starts from: they work as they are, to be changed."""

from __future__ import annotations

from string import Template

POLICY = Template('''\
"""$title: fewest GPUs first, until you say otherwise.

Replace this text: what it decides and by which rule. Paper: AUTHORS, VENUE'YY, section N.
Deviations: none known; name every one.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.config.options import choice, option
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.mechanisms.base_policy import BasePolicy
from trainmaster.model.plan import Rank


@dataclass(frozen=True, slots=True)
class ${cls}Options:
    first: str = option("small", choice("small", "old"), "who goes first: small jobs, or old ones")


class $cls(BasePolicy[${cls}Options]):
    name = "$name"
    options_type = ${cls}Options

    def rank(self, view: View, record: JobRecord, now: int) -> Rank:
        """A job's place in line, lower first; ties go to the earlier submission."""
        if self.options.first == "old":
            return Rank(0, record.job.submit_ms)
        return Rank(0, record.demand.nominal.total_share)
''')

TEST = Template('''\
"""$name: what makes it different, told as an engineer would tell it."""

from __future__ import annotations

from trainmaster.model.job import Job, gpus
from trainmaster.model.result import Result
from trainmaster.model.topology import parse_shorthand
from trainmaster.model.trace import Trace, TracedJob
from trainmaster.model.units import SECOND
from trainmaster.perf.perf_model import IDEAL
from $module import $cls, ${cls}Options
from trainmaster.sim.driver import Scenario, Simulation
from trainmaster.sim.metrics import result_of


def job(name: str, size: int, seconds: int, submit: int = 0) -> TracedJob:
    return TracedJob(Job(name, submit * SECOND, gpus(size)), seconds * SECOND)


def simulate(cluster: str, jobs: list[TracedJob], options: ${cls}Options) -> Result:
    scenario = Scenario(Trace(tuple(jobs)), parse_shorthand(cluster), cluster, IDEAL)
    simulation = Simulation(scenario, $cls(options))
    simulation.run()
    assert not simulation.refusals
    return result_of(simulation)


def finishes(result: Result) -> dict[str, float | None]:
    return {j.job_id: None if j.finish_ms is None else j.finish_ms / SECOND for j in result.jobs}


BIG_THEN_SMALL = [job("big", 2, 10), job("small", 1, 4, submit=1)]


def test_a_small_newcomer_takes_the_gpus_of_a_big_job() -> None:
    result = simulate("1x2", BIG_THEN_SMALL, ${cls}Options())
    assert finishes(result) == {"small": 5, "big": 14}
    assert result.summary.preemptions == 1


def test_old_jobs_go_first_when_told_so() -> None:
    """Switch the mechanism off, and the difference is gone."""
    result = simulate("1x2", BIG_THEN_SMALL, ${cls}Options(first="old"))
    assert finishes(result) == {"big": 10, "small": 14}
    assert result.summary.preemptions == 0


def test_every_job_ends() -> None:
    jobs = [job(f"j{n}", 1 + n % 4, 5 + n, submit=n) for n in range(40)]
    result = simulate("2x2", jobs, ${cls}Options())
    assert result.summary.finished == len(jobs)
''')

PAGE = Template("""\
# $name

What it decides, in two sentences; the paper; when to use it, and when not.

| option | default | meaning |
|---|---|---|
| `first` | `small` | who goes first: `small` jobs, or `old` ones |

Deviations from the paper: none known.
""")
