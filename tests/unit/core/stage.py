"""A controller on strings: a scripted policy gives the orders, the test plays the engine."""

from __future__ import annotations

from tests.builders import a_job, cluster, on
from tests.policies.cases import Scripted
from trainmaster.core.controller import Controller, Decision
from trainmaster.core.invariants import check
from trainmaster.core.lifecycle import Phase
from trainmaster.core.state import JobRecord, State
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Run
from trainmaster.model.placement import Placement
from trainmaster.model.reasons import Refused
from trainmaster.model.topology import Topology
from trainmaster.model.units import HOUR, NOMINAL, SECOND


class Strings:
    """Does one thing per call, checks every invariant after it, and remembers the last decision."""

    def __init__(
        self,
        topology: str | Topology = "2x4",
        *,
        can_freeze: bool = False,
        can_move_frozen: bool = False,
        cannot_save_at_first: bool = False,
    ) -> None:
        self.topology = cluster(topology) if isinstance(topology, str) else topology
        self.script = Scripted()
        self.controller = Controller(
            self.topology,
            self.script,
            can_freeze=can_freeze,
            can_move_frozen=can_move_frozen,
            cannot_save_at_first=cannot_save_at_first,
        )
        self.now = 0
        self.last: Decision | None = None

    @property
    def state(self) -> State:
        return self.controller.state

    def job(self, name: str) -> JobRecord:
        return self.state.jobs[name]

    def phase(self, name: str) -> Phase:
        return self.job(name).phase

    def on(self, *gpus: int, **how: object) -> Placement:
        return on(self.topology, *gpus, **how)  # type: ignore[arg-type]

    def later(self, seconds: float) -> Strings:
        self.now += round(seconds * SECOND)
        return self

    def tell(self, *facts: e.Event) -> list[a.Order]:
        """Facts come in; nothing is planned beyond what the script holds."""
        self.last = self.controller.step(self.now, facts)
        check(self.state)
        return list(self.last.orders)

    def plan(self, *actions: a.Action) -> list[a.Order]:
        """A plan is admitted; every action must hold."""
        orders = self.try_plan(*actions)
        assert self.last is not None
        assert not self.last.refusals, self.last.refusals
        return orders

    def try_plan(self, *actions: a.Action) -> list[a.Order]:
        self.script.next = list(actions)
        self.state.log.needs_pass = True
        return self.tell()

    def refused(self, *actions: a.Action) -> list[tuple[str, Refused]]:
        self.try_plan(*actions)
        assert self.last is not None
        return [(refusal.job, refusal.why) for refusal in self.last.refusals]

    # -- whole sentences -------------------------------------------------------------------------

    def submit(self, name: str, size: int | Demand = 1, **job: object) -> Strings:
        self.script.wake_at = self.now + HOUR  # else it would be left waiting for nothing
        self.tell(e.JobSubmitted(a_job(name, size, at_s=self.now / SECOND, **job)))  # type: ignore[arg-type]
        self.script.wake_at = None
        return self

    def start(self, name: str, *gpus: int, **how: object) -> Strings:
        """Launch it and report it up."""
        orders = self.plan(a.Start(name, self.on(*gpus, **how)))
        assert orders == [a.Launch(self.job(name).run, self.on(*gpus, **how), self.job(name).work)]
        self.started(name)
        return self

    def running(self, name: str, *gpus: int, **job: object) -> Strings:
        return self.submit(name, len(gpus), **job).start(name, *gpus)

    def started(self, name: str, speed_ppm: int = NOMINAL) -> None:
        self.tell(e.RunStarted(self.job(name).run, speed_ppm))

    def run(self, name: str, attempt: int = 1) -> Run:
        return Run(name, attempt)
