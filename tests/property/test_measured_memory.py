"""Packing live: jobs are measured, share, grow and are separated; no GPU is over-booked and every job ends.

The test plays the engine: it answers orders, late or at once, and measures runs as it likes.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import a_job, a_policy, cluster, fraction
from trainmaster.core.controller import Controller
from trainmaster.core.invariants import check
from trainmaster.core.lifecycle import Phase
from trainmaster.core.policy import Policy
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Run, Shape
from trainmaster.model.placement import Role, Sharing
from trainmaster.model.profile import Profile
from trainmaster.model.units import GIB, NOMINAL, SECOND

POLICIES: dict[str, dict[str, object]] = {
    "gandiva": {"quantum_s": 5, "trial_s": 2},
    "antman": {"opportunistic_after_s": 5},
    "big-brain": {"concurrency": 3},
    "big-brain auto": {"trial_s": 2},
    "trainmaster": {"min_run_s": 2, "pack_kept": 0.1},
    "trainmaster by turns": {"min_run_s": 2, "packing": "time", "pack_kept": 0.1},
}
DEMANDS = (
    *(Demand(Shape(1), 1, 1),) * 4,
    Demand(Shape(2), 2, 2),
    Demand(Shape(1, memory=5 * GIB), 1, 1),
    fraction(0.5),
)
SUBMISSIONS = st.tuples(
    st.just("submit"),
    st.sampled_from(DEMANDS),
    st.sampled_from([Role.GUARANTEED, Role.GUARANTEED, Role.OPPORTUNISTIC]),
    st.sampled_from([0, 3, 6]),  # GiB that earlier runs of the program used; 0: there were none
)
STEPS = st.lists(
    st.one_of(
        SUBMISSIONS,
        st.tuples(
            st.just("measure"), st.integers(0, 9), st.integers(1, 16), st.sampled_from([1, 4, 9])
        ),
        st.tuples(st.just("slow"), st.integers(0, 9), st.sampled_from([2, 5, 10])),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.sampled_from([1, 3, 7])),
    ),
    min_size=5,
    max_size=40,
)


def policy_named(name: str) -> Policy:
    return a_policy(name.split(maxsplit=1)[0], **POLICIES[name])


class Engine:
    """Answers orders of a controller."""

    def __init__(self, policy: Policy, *, can_freeze: bool, is_slow: bool) -> None:
        self.controller = Controller(
            cluster("1x2"), policy, can_freeze=can_freeze, cannot_save_at_first=can_freeze
        )
        self.state, self.is_slow = self.controller.state, is_slow
        self.now, self.submitted = 0, 0
        self.answers: list[e.Event] = []

    def tell(self, *events: e.Event) -> None:
        for order in self.controller.step(self.now, events).orders:
            self.answer(order)
        check(self.state)
        self.check_memory()
        if not self.is_slow:
            self.flush()

    def flush(self) -> None:
        while self.answers:
            answers, self.answers = self.answers, []
            self.now += 1
            self.tell(*answers)

    def answer(self, order: a.Order) -> None:
        run = order.run
        work = self.state.jobs[run.job].work_at(self.now) if run.job in self.state.jobs else 0
        answers: dict[type, e.Event] = {
            a.Launch: e.RunStarted(run, NOMINAL),
            a.Thaw: e.RunResumed(run, NOMINAL),
            a.Freeze: e.RunSuspended(run, work, frozen=True),
            a.Halt: e.RunSuspended(run, work),
            a.Kill: e.RunStopped(run),
            a.Reshape: e.RunResized(run, work, NOMINAL),
        }
        if not isinstance(order, a.Rebind):
            self.answers.append(answers[type(order)])

    def check_memory(self) -> None:
        """What is booked beside others covers what each was measured to need when it came, and fits."""
        booked = [0] * self.state.topology.gpu_count
        for record in self.state.jobs.values():
            placement = record.placement
            if placement is None or placement.sharing is Sharing.EXCLUSIVE:
                continue
            for piece in placement.slices:
                assert piece.memory > 0
                booked[piece.gpu] += piece.memory
        assert all(each <= 16 * GIB for each in booked)

    def running(self) -> list[Run]:
        return [each.run for each in self.state.jobs.values() if each.phase is Phase.RUNNING]

    def do(self, step: tuple[object, ...]) -> None:
        what, *rest = step
        self.now += 100
        running = self.running()
        if what == "submit":
            demand, role, gib = rest
            self.submitted += 1
            job = a_job(f"j{self.submitted}", demand, role=role, at_s=self.now / SECOND)  # type: ignore[arg-type]
            known = Profile(gpu_util_ppm=NOMINAL // 10, gpu_memory=int(gib) * GIB)  # type: ignore[call-overload]
            self.tell(e.JobSubmitted(job, profile=known if gib else None))
        elif what == "wait":
            self.now += int(rest[0]) * SECOND  # type: ignore[call-overload]
            self.flush()
            self.tell()
        elif running:
            run = running[int(rest[0]) % len(running)]  # type: ignore[call-overload]
            self.tell(self.event(str(what), run, rest))

    def event(self, what: str, run: Run, rest: list[object]) -> e.Event:
        record = self.state.jobs[run.job]
        if what == "end":
            return e.RunSucceeded(run)
        if what == "slow":
            speed = NOMINAL * int(rest[1]) // 10  # type: ignore[call-overload]
            return e.RunSpeedChanged(run, record.work_at(self.now), speed)
        known = 0 if record.profile is None else record.profile.gpu_memory
        peak = max(known, int(rest[1]) * GIB)  # type: ignore[call-overload]
        util = int(rest[2]) * NOMINAL // 10  # type: ignore[call-overload]
        return e.JobProfiled(run.job, profile=Profile(gpu_util_ppm=util, gpu_memory=peak))

    def finish(self) -> None:
        """End whatever runs, until nothing is left."""
        self.is_slow = False
        for _ in range(200):
            self.flush()
            if not self.state.jobs:
                return
            self.now += 10 * SECOND
            self.tell(*(e.RunSucceeded(run) for run in self.running()[:1]))
        raise AssertionError(f"still there: {list(self.state.jobs)}")


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    name=st.sampled_from(sorted(POLICIES)),
    first=st.lists(SUBMISSIONS, min_size=3, max_size=6),
    steps=STEPS,
    can_freeze=st.booleans(),
    is_slow=st.booleans(),
)
def test_measured_jobs_share_and_nothing_is_over_booked(
    name: str,
    first: list[tuple[object, ...]],
    steps: list[tuple[object, ...]],
    can_freeze: bool,
    is_slow: bool,
) -> None:
    engine = Engine(policy_named(name), can_freeze=can_freeze, is_slow=is_slow)
    for step in (*first, *steps):
        engine.do(step)
    engine.finish()
