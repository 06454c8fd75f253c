"""A simulation driven instant by instant, with every invariant looked at after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from tests.property.meddling import Meddler
from trainmaster.core.controller import Decision
from trainmaster.core.invariants import check
from trainmaster.core.occupancy import is_opportunistic
from trainmaster.core.policy import Policy
from trainmaster.core.state import is_in_place
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Run
from trainmaster.model.placement import Placement, Sharing
from trainmaster.model.trace import Outcome
from trainmaster.model.units import WHOLE
from trainmaster.sim.driver import FOREVER, Scenario, Simulation
from trainmaster.sim.engine import Activity

MOST_STEPS = 20_000
"""More than any of the small workloads can need: a run that goes on is one that never ends.

A job of a millisecond that takes four seconds to start is expected to end in each of them.
"""
ENOUGH_STEPS = 400
"""As far as runs are compared that are not checked: whether they end is not their question."""


@dataclass(slots=True)
class Step:
    """One call of the controller."""

    now: int
    events: Sequence[e.Event]
    decision: Decision


@dataclass
class Drive:
    """A run that is watched; `forgetful` drops all caches before about every second step.

    Unchecked runs are for comparing: they stop after enough steps and need not end.
    """

    scenario: Scenario
    policy: Policy
    forgetful: Random | None = None
    checked: bool = True
    may_refuse: bool = False
    """Whether the controller may refuse what the policy plans: to end a run that would lose its work."""
    meddler: Meddler | None = None
    """Who adds facts of the owners' own."""
    simulation: Simulation = field(init=False)
    steps: list[Step] = field(default_factory=list)
    _had: dict[Run, Placement] = field(default_factory=dict)
    """Where runs are; while others still leave a run's GPUs, what it had of them before that."""

    def __post_init__(self) -> None:
        self.simulation = Simulation(self.scenario, self.policy)
        controller = self.simulation.controller
        step = controller.step
        if self.meddler is not None:
            self.simulation.sampler.next_ms = FOREVER  # it takes held jobs for waiting ones

        def recorded(now: int, events: Sequence[e.Event]) -> Decision:
            if self.forgetful is not None and self.forgetful.random() < 0.5:
                controller.forget()
            if self.meddler is not None:
                events = self.meddler.meddled(controller.state, events)
            decision = step(now, events)
            self.steps.append(Step(now, tuple(events), decision))
            return decision

        controller.step = recorded  # type: ignore[method-assign]

    def run(self) -> Drive:
        simulation = self.simulation
        simulation.define_queues()
        while simulation.step() or self._is_let_in():
            if self.checked:
                self.look()
                assert len(self.steps) < MOST_STEPS, "it goes on for ever"
            elif len(self.steps) >= ENOUGH_STEPS:
                break
        if self.checked:
            assert not simulation.stuck(), f"{simulation.stuck()} wait for ever"
        simulation.ledger.fairness.count_up_to(simulation.now)
        return self

    def _is_let_in(self) -> bool:
        """Whether somebody was held when nothing else was left to happen, and goes on now."""
        simulation, meddler = self.simulation, self.meddler
        held = [] if meddler is None else list(simulation.controller.state.on_hold)
        if held and meddler is not None:
            meddler.is_over = True
            freed: list[e.Event] = [e.JobReleased(job) for job in held]
            simulation.take(simulation.now, freed)
        return bool(held)

    def orders(self) -> list[tuple[int, tuple[a.Order, ...]]]:
        """What was ordered, and when."""
        return [(s.now, tuple(s.decision.orders)) for s in self.steps if s.decision.orders]

    # -- after each step -------------------------------------------------------------------------

    def look(self) -> None:
        simulation = self.simulation
        last = self.steps[-1]
        check(simulation.controller.state)
        asked = {fact.action.job for fact in last.events if isinstance(fact, e.ActionRequested)}
        refused = [each for each in last.decision.refusals if each.job not in asked]
        assert self.may_refuse or not refused, f"refused at {last.now}: {refused}"
        if len(self.steps) > 1:
            assert last.now >= self.steps[-2].now, "time went backwards"
        wake = last.decision.wake_at
        assert wake is None or wake > last.now, (
            f"asked to wake at {wake}, in the past of {last.now}"
        )
        self._nobody_is_lost()
        self._gpus_are_not_overbooked()
        away = simulation.controller.state.away
        for order in last.decision.orders:
            if isinstance(order, a.Launch | a.Reshape):
                self._gang_is_whole(order)
                assert away.isdisjoint(order.placement.nodes), (
                    f"{order.run} is sent to a node that is gone"
                )

    def _nobody_is_lost(self) -> None:
        simulation = self.simulation
        live = set(simulation.controller.state.jobs)
        for name, account in simulation.ledger.accounts.items():
            has_ended = account.finish_ms is not None
            assert has_ended != (name in live) or self._is_being_killed(name), f"{name} is lost"
        assert len(simulation.ledger.accounts) == simulation.arrived

    def _is_being_killed(self, name: str) -> bool:
        return any(
            getattr(fact, "run", (None,))[0] == name
            for fact in self.simulation.engine.pending_facts
        )

    def _gpus_are_not_overbooked(self) -> None:
        """What physically sits on the GPUs, as the engine knows it: not what the books say.

        A run may get its GPU back when its company is told to leave: until that is gone it counts as before.
        """
        shares: dict[tuple[int, bool], int] = {}
        memory: dict[int, int] = {}
        modes: dict[int, set[Sharing]] = {}
        releasing = self.simulation.controller.state.releasing
        had, self._had = self._had, {}
        for run in self.simulation.engine.runs.values():
            if run.activity is Activity.FROZEN:
                continue
            before, placement = had.get(run.run), run.placement
            is_beside = any(gpu in releasing for gpu in placement.gpus())
            if is_beside and before is not None and is_in_place(before, placement):
                placement = before
            self._had[run.run] = placement
            for piece in placement.slices:
                whole = placement.sharing is Sharing.EXCLUSIVE
                layer = (piece.gpu, is_opportunistic(placement))
                shares[layer] = shares.get(layer, 0) + (WHOLE if whole else piece.share)
                memory[piece.gpu] = memory.get(piece.gpu, 0) + piece.memory
                modes.setdefault(piece.gpu, set()).add(placement.sharing)
        kinds = self.scenario.topology.type_of_gpu
        for (gpu, _), share in shares.items():
            assert share <= WHOLE, f"GPU {gpu} carries {share} thousandths"
            assert memory[gpu] <= kinds[gpu].memory, f"GPU {gpu} is out of memory"
            assert len(modes[gpu]) == 1, f"GPU {gpu} is shared in two modes"

    def _gang_is_whole(self, order: a.Launch | a.Reshape) -> None:
        name, placement = order.run.job, order.placement
        demand = self.simulation.ledger.accounts[name].traced.job.demand
        if isinstance(order, a.Launch) and order.is_prerun:
            demand = demand.on_one_device()
        count = len(placement.slices)
        splits = {len(split.parts) for split in demand.splits}
        is_sized = demand.min_count <= count <= demand.max_count
        assert is_sized or count in splits, f"{name} got {count} pieces"
        assert len(set(placement.gpus())) == count, f"{name} has two pieces on one GPU"
        kinds = {self.scenario.topology.type_of_gpu[gpu].name for gpu in placement.gpus()}
        if demand.gpu_type is not None:
            assert kinds <= set(demand.gpu_type.split("|")), f"{name} runs on {kinds}"
        else:
            assert "cpu" not in kinds, f"{name} runs on CPU slots it did not ask for"

    # -- at the end ------------------------------------------------------------------------------

    def everything_ended(self) -> None:
        simulation = self.simulation
        assert simulation.ledger.ended_count == len(simulation.accepted)
        assert len(simulation.accepted) + len(simulation.rejected) == len(self.scenario.trace.jobs)
        assert not simulation.controller.state.jobs
        assert not simulation.engine.runs, "a run goes on without its job"

    def _failed_in_preruns(self) -> set[str]:
        """Jobs that ended by a pre-run: their work was never done."""
        launched = {
            order.run
            for _, orders in self.orders()
            for order in orders
            if isinstance(order, a.Launch) and order.is_prerun
        }
        facts = (fact for step in self.steps for fact in step.events)
        failed = (fact for fact in facts if isinstance(fact, e.RunFailed) and not fact.retryable)
        return {fact.run.job for fact in failed if fact.run in launched}

    def work_is_conserved(self) -> None:
        spared = self._failed_in_preruns()
        for name, account in self.simulation.ledger.accounts.items():
            outcome = (
                account.traced.outcome if self.scenario.perf.has_failures else Outcome.SUCCEEDED
            )
            assert account.status is outcome, f"{name} ended as {account.status}"
            needed = 0 if name in spared else account.needed
            assert account.credited == needed + account.lost, f"work of {name}"
            assert account.held == account.trained + account.charged, f"GPU time of {name}"
            assert account.holding == 0, f"{name} still holds GPUs in the ledger"
            assert 0 <= account.wasted <= account.trained, f"waste of {name}"
