"""A job that states nothing runs alone until it was measured; then another joins it without a restart.

One GPU of 16 GiB. `host` has run on it alone for a minute when its memory and utilisation are measured;
`guest` has run before, so that those of it are known.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_job, a_policy, cluster
from trainmaster.core.controller import Controller
from trainmaster.core.invariants import check
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Job, Run, Shape, gpus
from trainmaster.model.placement import Role, Sharing
from trainmaster.model.profile import Profile
from trainmaster.model.reasons import Reason, Refusal, Why
from trainmaster.model.units import GIB, MINUTE, NOMINAL, SECOND, WHOLE

PACKING = {
    "antman": {"role": Role.OPPORTUNISTIC},
    "big-brain": {},
    "trainmaster": {},
}
"""Policies that put a waiting job beside a run, and what its user says of the guest."""
SLICED: dict[str, object] = {"packing": "time"}
KNOWN = Profile(gpu_util_ppm=200_000, gpu_memory=4 * GIB)
HOST, GUEST = Run("host", 1), Run("guest", 1)


class World:
    """A live manager's controller: nothing is known to save."""

    def __init__(
        self, policy: str, shape: str = "1x1", *, can_freeze: bool = False, **options: object
    ) -> None:
        self.controller = Controller(
            *(cluster(shape), a_policy(policy, **options)),
            can_freeze=can_freeze,
            cannot_save_at_first=True,
        )
        self.now = 0
        self.refusals: list[Refusal] = []

    def tell(self, *events: e.Event) -> list[a.Order]:
        """And what follows within two seconds."""
        orders: list[a.Order] = []
        for number in range(3):
            decision = self.controller.step(self.now, () if number else events)
            check(self.controller.state)
            orders += decision.orders
            self.refusals += decision.refusals
            self.now += SECOND
        return orders

    def why(self, job: str) -> Reason:
        return self.controller.explain(job)

    def later(self, ms: int) -> World:
        self.now += ms
        return self


def with_host_measured(policy: str, gib: int, **options: object) -> tuple[World, list[a.Order]]:
    """The orders that follow from measuring the host, while the guest waits."""
    world = World(policy, **options)
    assert [order.run for order in world.tell(e.JobSubmitted(a_job("host")))] == [HOST]
    world.tell(e.RunStarted(HOST, NOMINAL))
    guest = a_job("guest", **PACKING.get(policy, {}))  # type: ignore[arg-type]
    assert world.later(MINUTE).tell(e.JobSubmitted(guest, profile=KNOWN)) == []
    profile = Profile(gpu_util_ppm=200_000, gpu_memory=gib * GIB)
    return world, world.tell(e.JobProfiled("host", profile=profile))


@pytest.mark.parametrize("policy", PACKING)
def test_a_measured_run_gets_company_without_a_restart(policy: str) -> None:
    world, orders = with_host_measured(policy, 8)
    orders += world.later(31 * SECOND).tell()  # big-brain measures it alone for half a minute
    assert {type(order) for order in orders if order.run == HOST} == {a.Rebind}
    launch = next(order for order in orders if order.run == GUEST)
    assert isinstance(launch, a.Launch)
    assert launch.placement.sharing is Sharing.TIME
    assert world.controller.state.occupancy.free_memory[0] >= 0
    assert world.controller.state.jobs["host"].attempt == 1


@pytest.mark.parametrize("policy", PACKING)
def test_a_run_that_was_found_to_need_the_memory_stays_alone(policy: str) -> None:
    _, orders = with_host_measured(policy, 12)
    assert all(order.run != GUEST for order in orders)


def behind_an_unknown_host(
    policy: str, guest: Job, profile: Profile | None, shape: str = "1x1", **options: object
) -> World:
    """The guest waits for the GPU of a job of which nobody knows anything."""
    world = World(policy, shape, **options)
    world.tell(e.JobSubmitted(a_job("host")))
    world.tell(e.RunStarted(HOST, NOMINAL))
    assert world.tell(e.JobSubmitted(guest, profile=profile)) == []
    return world


SHARES_BY_ITSELF = ["big-brain", "gandiva", "trainmaster"]


@pytest.mark.parametrize("policy", SHARES_BY_ITSELF)
def test_a_job_that_was_never_measured_is_told_that_it_gets_a_gpu_for_itself_first(
    policy: str,
) -> None:
    world = behind_an_unknown_host(policy, a_job("guest"), None)
    assert world.why("guest").is_unmeasured
    world.tell(e.JobProfiled("guest", profile=KNOWN))
    assert not world.why("guest").is_unmeasured


@pytest.mark.parametrize("policy", SHARES_BY_ITSELF)
def test_a_measured_job_is_told_which_run_has_to_be_measured_before_it_may_join(
    policy: str,
) -> None:
    world = behind_an_unknown_host(policy, a_job("guest"), KNOWN)
    assert (world.why("guest").is_unmeasured, world.why("guest").unmeasured) == (False, ("host",))
    world.tell(e.JobProfiled("host", profile=Profile(gpu_util_ppm=900_000, gpu_memory=12 * GIB)))
    assert world.why("guest").why is Why.NOT_ENOUGH_FREE
    assert world.why("guest").unmeasured == (), "it is known now, and there is no room"


def test_memory_alone_is_not_enough_for_trainmaster_where_the_job_has_no_model() -> None:
    """Without a name and a utilisation nothing could be predicted of it or learned from it."""
    stated = Demand(Shape(1, memory=2 * GIB), 1, 1)
    assert (
        behind_an_unknown_host("trainmaster", a_job("guest", stated), None)
        .why("guest")
        .is_unmeasured
    )
    named = a_job("guest", stated, model="lm")
    assert not behind_an_unknown_host("trainmaster", named, None).why("guest").is_unmeasured


@pytest.mark.parametrize(
    ("policy", "options", "demand"),
    [
        ("big-brain", {"concurrency": 1}, gpus(1)),
        ("trainmaster", {"packing": "off"}, gpus(1)),
        ("big-brain", {}, replace(gpus(1), sharing=Sharing.EXCLUSIVE)),
        ("trainmaster", {}, replace(gpus(1), sharing=Sharing.EXCLUSIVE)),
    ],
)
def test_where_the_job_will_not_share_nothing_is_said_of_measuring(
    policy: str, options: dict[str, object], demand: Demand
) -> None:
    for profile in (None, KNOWN):
        world = behind_an_unknown_host(policy, a_job("guest", demand), profile, **options)
        found = world.why("guest")
        assert found.why is Why.NOT_ENOUGH_FREE
        assert not found.is_unmeasured
        assert not found.unmeasured


@pytest.mark.parametrize("policy", SHARES_BY_ITSELF)
def test_nothing_is_measured_on_cpu_slots(policy: str) -> None:
    world = behind_an_unknown_host(policy, a_job("guest"), None, "n1[1slot]")
    assert world.why("guest").why is Why.NOT_ENOUGH_FREE
    assert not world.why("guest").is_unmeasured


@pytest.mark.parametrize("has_next", [False, True])
def test_under_antman_the_guest_leaves_when_the_memory_of_its_host_grows(*, has_next: bool) -> None:
    world, _ = with_host_measured("antman", 8)
    world.tell(e.RunStarted(GUEST, NOMINAL), e.RunCanSave(GUEST))
    if has_next:
        world.tell(e.JobSubmitted(a_job("next")))
    orders = world.tell(e.JobProfiled("host", profile=Profile(gpu_memory=12 * GIB)))
    assert a.Halt(GUEST) in orders
    assert world.controller.state.jobs["host"].phase.name == "RUNNING"


def antman_with_an_unknown_guest() -> tuple[World, list[a.Order]]:
    """Nobody says anything of either job; the host's memory and utilisation are measured."""
    world = World("antman")
    world.tell(e.JobSubmitted(a_job("host")))
    world.tell(e.RunStarted(HOST, NOMINAL))
    guest = a_job("guest", role=Role.OPPORTUNISTIC)
    assert world.later(MINUTE).tell(e.JobSubmitted(guest)) == []
    assert world.why("guest").why is Why.NOT_MEASURED
    assert world.why("guest").held_by == ("host",)
    profile = Profile(gpu_util_ppm=200_000, gpu_memory=8 * GIB)
    return world, world.tell(e.JobProfiled("host", profile=profile))


def test_an_opportunistic_job_of_unknown_memory_starts_beside_a_measured_one() -> None:
    """With a quarter of the GPU's memory, until it was measured itself."""
    world, orders = antman_with_an_unknown_guest()
    launch = next(order for order in orders if isinstance(order, a.Launch))
    assert launch.run == GUEST
    assert launch.placement.slices[0].memory == 4 * GIB
    assert launch.placement.role is Role.OPPORTUNISTIC
    world.tell(e.RunStarted(GUEST, NOMINAL), e.RunCanSave(GUEST))
    [rebind] = world.tell(e.JobProfiled("guest", profile=Profile(gpu_memory=2 * GIB)))
    assert isinstance(rebind, a.Rebind)
    assert rebind.placement.slices[0].memory < 3 * GIB


def test_it_leaves_where_the_guaranteed_one_needs_the_memory() -> None:
    world, _ = antman_with_an_unknown_guest()
    world.tell(e.RunStarted(GUEST, NOMINAL), e.RunCanSave(GUEST))
    orders = world.tell(e.JobProfiled("host", profile=Profile(gpu_memory=12 * GIB)))
    assert a.Halt(GUEST) in orders
    world.tell(e.RunSuspended(GUEST, 0))
    assert world.why("guest").why is Why.GPU_MEMORY_TAKEN
    part = world.why("guest").part
    assert part is not None
    assert part.needed == 4 * GIB
    assert part.free < 4 * GIB


def test_a_job_that_fills_its_gpu_has_no_guests() -> None:
    world = World("antman")
    world.tell(e.JobSubmitted(a_job("host"), profile=Profile(gpu_util_ppm=990_000, gpu_memory=GIB)))
    world.tell(e.RunStarted(HOST, NOMINAL))
    assert world.tell(e.JobSubmitted(a_job("guest", role=Role.OPPORTUNISTIC))) == []
    assert world.why("guest").why is Why.GPU_BUSY


def test_an_unknown_job_that_is_guaranteed_later_needs_a_gpu_of_its_own() -> None:
    """It was started as a guest because it had waited long; it is not upgraded beside its host."""
    world = World("antman", opportunistic_after_s=60)
    known = Profile(gpu_util_ppm=200_000, gpu_memory=8 * GIB)
    world.tell(e.JobSubmitted(a_job("host"), profile=known))
    world.tell(e.RunStarted(HOST, NOMINAL))
    assert world.tell(e.JobSubmitted(a_job("guest"))) == []
    [launch] = world.later(MINUTE).tell()
    assert (launch.run, launch.placement.role) == (GUEST, Role.OPPORTUNISTIC)  # type: ignore[union-attr]
    world.tell(e.RunStarted(GUEST, NOMINAL))
    assert not world.refusals
    world.tell(e.RunSucceeded(HOST))
    upgraded = world.controller.state.jobs["guest"].placement
    assert upgraded is not None
    assert upgraded.role is Role.GUARANTEED
    assert upgraded.slices[0].memory == 16 * GIB
    assert not world.refusals


def with_a_still_guest() -> World:
    """Beside a guaranteed run that cannot bear it, an opportunistic one has made no step for a minute."""
    world = World("antman", can_freeze=True)
    world.tell(e.JobSubmitted(a_job("host"), profile=KNOWN))
    world.tell(e.RunStarted(HOST, NOMINAL))
    guest = a_job("guest", role=Role.OPPORTUNISTIC)
    world.tell(e.JobSubmitted(guest, profile=Profile(gpu_memory=GIB)))
    world.tell(e.RunStarted(GUEST, NOMINAL))
    assert world.tell(e.RunPaced(GUEST, 0)) == []
    assert world.later(MINUTE).tell() == [a.Freeze(GUEST)]
    world.tell(e.RunSuspended(GUEST, 0, frozen=True))
    return world


def test_a_guest_that_stands_still_is_suspended_until_its_host_uses_less_of_the_gpu() -> None:
    world = with_a_still_guest()
    assert world.later(10 * MINUTE).tell() == [], "it would stand still again"
    assert (world.why("guest").why, world.why("guest").held_by) == (Why.GPU_BUSY, ("host",))
    less = e.JobProfiled("host", profile=Profile(gpu_util_ppm=100_000))
    assert world.tell(less) == [a.Thaw(GUEST)]
    world.tell(e.RunResumed(GUEST, NOMINAL))
    assert world.later(MINUTE // 2).tell() == []
    assert world.later(MINUTE).tell() == [a.Freeze(GUEST)], "it still makes no step"


def test_a_suspended_guest_of_unknown_memory_goes_on_where_it_had_all_of_it() -> None:
    """What it keeps on the GPU is its own."""
    world = World("antman", can_freeze=True)
    world.tell(e.JobSubmitted(a_job("guest", role=Role.OPPORTUNISTIC)))
    world.tell(e.RunStarted(GUEST, NOMINAL))
    [order] = world.tell(e.JobSubmitted(a_job("host"), profile=KNOWN))
    assert isinstance(order, a.Freeze)
    world.tell(e.RunSuspended(GUEST, 0, frozen=True))
    world.tell(e.RunStarted(HOST, NOMINAL))
    assert world.tell(e.RunSucceeded(HOST)) == [a.Thaw(GUEST)]


def test_or_until_its_host_has_left() -> None:
    world = with_a_still_guest()
    assert world.tell(e.RunSucceeded(HOST)) == [a.Thaw(GUEST)]


def test_what_a_guest_could_not_bear_survives_a_restart() -> None:
    world = with_a_still_guest()
    policy, topology = a_policy("antman"), world.controller.state.topology
    world.controller = restored(
        snapshot_of(world.controller), topology, policy, can_freeze=True, cannot_save_at_first=True
    ).controller
    assert world.later(MINUTE).tell(e.JobSubmitted(a_job("other"))) == []
    assert world.tell(e.RunSucceeded(HOST)) != []


def test_another_guest_of_the_same_kind_may_have_its_place() -> None:
    world = with_a_still_guest()
    other = a_job("other", role=Role.OPPORTUNISTIC)
    [launch] = world.tell(e.JobSubmitted(other, profile=Profile(gpu_memory=GIB)))
    assert launch.run == Run("other", 1)


def test_a_guest_that_makes_steps_again_in_time_stays() -> None:
    world = World("antman", can_freeze=True)
    world.tell(e.JobSubmitted(a_job("host"), profile=KNOWN))
    world.tell(e.RunStarted(HOST, NOMINAL))
    world.tell(
        e.JobSubmitted(a_job("guest", role=Role.OPPORTUNISTIC), profile=Profile(gpu_memory=GIB))
    )
    world.tell(e.RunStarted(GUEST, NOMINAL))
    for _ in range(3):
        world.tell(e.RunPaced(GUEST, 0))
        assert world.later(MINUTE // 2).tell(e.RunPaced(GUEST, 5)) == []
    assert world.later(10 * MINUTE).tell() == []


def test_what_was_measured_survives_a_restart() -> None:
    world, _ = with_host_measured("trainmaster", 8)
    before = world.controller.state
    body = snapshot_of(world.controller)
    restart = restored(body, before.topology, a_policy("trainmaster"), can_freeze=False)
    again = restart.controller.state
    assert again.jobs["host"].profile == before.jobs["host"].profile
    assert again.measured.keys() == {"host", "guest"}


@pytest.mark.parametrize(("policy", "options"), [("gandiva", {}), ("trainmaster", SLICED)])
def test_a_pair_that_cannot_be_separated_goes_on_together(
    policy: str, options: dict[str, object]
) -> None:
    """Sharing does not pay, and neither run can save or be frozen: both keep their halves and their work."""
    engine = FreezingEngine(policy, **options)
    jobs = [a_job(name, model=name) for name in ("host", "guest")]
    engine.play(3 * MINUTE, *(e.JobSubmitted(job, profile=KNOWN) for job in jobs))
    records = engine.controller.state.jobs.values()
    together = [record.placement for record in records]
    assert [place and place.slices[0].share for place in together] == [WHOLE // 2] * 2
    engine.can_freeze = False
    slow = [e.RunSpeedChanged(each.run, each.work_at(engine.now), NOMINAL // 4) for each in records]
    engine.play(20 * MINUTE, *slow)
    assert engine.refused_freezes, "it was tried"
    assert [record.placement for record in records] == together
    assert [record.lost_work for record in records] == [0, 0]
    assert not engine.refusals
    engine.play(25 * MINUTE, e.JobSubmitted(a_job("third", model="third"), profile=KNOWN))
    engine.can_freeze = True
    engine.play(100 * MINUTE)
    assert engine.controller.state.jobs["third"].first_start_ms is not None


class FreezingEngine:
    """Carries out orders at once, and freezes runs while it can."""

    def __init__(self, policy: str, **options: object) -> None:
        self.controller = Controller(
            cluster("1x1"), a_policy(policy, **options), can_freeze=True, cannot_save_at_first=True
        )
        self.now = 0
        self.can_freeze = True
        self.refused_freezes = 0
        self.refusals: list[object] = []

    def play(self, until: int, *events: e.Event) -> None:
        while True:
            decision = self.controller.step(self.now, events)
            check(self.controller.state)
            self.refusals += decision.refusals
            events = tuple(e_ for order in decision.orders for e_ in self._done(order))
            wake = self.now + SECOND if events else decision.wake_at
            if wake is None or wake > until:
                break
            self.now = wake
        self.now = until

    def _done(self, order: a.Order) -> list[e.Event]:
        work = self.controller.state.jobs[order.run.job].work_at(self.now)
        if isinstance(order, a.Launch):
            return [e.RunStarted(order.run, NOMINAL)]
        if isinstance(order, a.Thaw):
            return [e.RunResumed(order.run, NOMINAL)]
        if isinstance(order, a.Freeze) and self.can_freeze:
            return [e.RunSuspended(order.run, work, frozen=True)]
        if isinstance(order, a.Freeze):
            self.refused_freezes += 1
            return [e.RunNotFrozen(order.run)]
        assert isinstance(order, a.Rebind), order
        return []
