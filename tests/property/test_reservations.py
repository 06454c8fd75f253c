"""No policy starts a job where it would still run when devices are reserved for others, and all jobs end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import a_policy
from tests.property.drive import Drive
from tests.property.meddling import Meddler
from tests.property.test_invariants import every_contender, some
from tests.property.worlds import CONTENDERS, scenarios
from trainmaster.core.reservations import known_end
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.core.state import JobRecord, State
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.reservation import Reservation
from trainmaster.model.units import SECOND
from trainmaster.sim.driver import Scenario

MOST = 5


@dataclass
class Operators(Meddler):
    """They plan maintenance and reserve devices, now or later, and cancel some of it again."""

    now: int = 0
    kept: dict[int, Reservation] = field(default_factory=dict)
    """What was made and not cancelled."""

    def meddled(self, state: State, events: Sequence[e.Event]) -> list[e.Event]:
        chance, found = self._chance, list(events)
        if self.count < MOST and chance.random() < 0.3:
            self.count += 1
            made = self._made(state)
            self.kept[made.number] = made
            found.append(e.ReservationMade(made))
        elif self.kept and chance.random() < 0.02:
            number = chance.choice(sorted(self.kept))
            del self.kept[number]
            found.append(e.ReservationCancelled(number))
        return found

    def _made(self, state: State) -> Reservation:
        chance, nodes = self._chance, state.topology.nodes
        begin = self.now + chance.choice([0, SECOND, 20 * SECOND, 60 * SECOND])
        end = begin + chance.choice([SECOND, 30 * SECOND])
        if chance.random() < 0.6:
            own = sorted(chance.sample(range(len(nodes)), chance.randint(1, len(nodes))))
            devices = [
                gpu
                for node in own
                for gpu in range(nodes[node].first_gpu, nodes[node].first_gpu + nodes[node].gpus)
            ]
            force = chance.random() < 0.3
            return Reservation(
                self.count, tuple(devices), begin, end, nodes=tuple(own), force=force
            )
        some_gpus = chance.sample(
            range(state.topology.gpu_count), chance.randint(1, state.topology.gpu_count)
        )
        queue = chance.choice(["default", "other"])
        return Reservation(self.count, tuple(sorted(some_gpus)), begin, end, queue=queue)


@every_contender
@settings(some, max_examples=3)
@given(scenario=scenarios(), seed=st.integers(0, 1 << 16))
def test_no_job_is_started_where_it_would_run_into_a_reservation(
    contender: str, scenario: Scenario, seed: int
) -> None:
    name, options = CONTENDERS[contender]
    operators = Operators(seed)
    drive = Drive(scenario, a_policy(name, **options), meddler=operators, may_refuse=True)
    controller, chance = drive.simulation.controller, Random(seed)
    step = controller.step

    def watched(now: int, events: Sequence[e.Event]) -> object:
        operators.now = now
        waiting = {each.id for each in controller.state.jobs.values() if each.placement is None}
        known = dict(operators.kept)
        decision = step(now, events)
        known = {number: each for number, each in known.items() if number in operators.kept}
        for order in decision.orders:
            if isinstance(order, a.Launch | a.Thaw):
                is_new = order.run.job in waiting
                _is_allowed(controller.state, known.values(), order, now, is_new=is_new)
        if controller.state.kept_free and chance.random() < 0.1:
            body = snapshot_of(controller)
            policy = a_policy(name, **options)
            again = restored(body, controller.state.topology, policy, can_freeze=False).controller
            assert snapshot_of(again)["state"] == body["state"]
            assert again.next_step_at == controller.next_step_at
        return decision

    controller.step = watched  # type: ignore[method-assign, assignment]
    drive.run().everything_ended()


def _devices(record: JobRecord, order: a.Launch | a.Thaw) -> Iterable[int]:
    where = order.placement if isinstance(order, a.Launch) else record.placement
    return () if where is None else where.gpus()


def _is_allowed(
    state: State, known: Iterable[Reservation], order: a.Launch | a.Thaw, now: int, *, is_new: bool
) -> None:
    """`is_new`: it was decided in this step; else it waited for GPUs that were still being released."""
    record = state.jobs[order.run.job]
    for held in known:
        if held.end_ms <= now or set(held.gpus).isdisjoint(_devices(record, order)):
            continue
        if held.queue == record.job.queue:
            continue
        assert not held.is_on(now), f"{order.run} is started where devices are kept free"
        end = known_end(record, now)
        is_late = end is not None and end > held.begin_ms
        assert not (is_new and is_late), f"{order.run} ends at {end}, after {held}"
