"""A job that must not use the device on which it failed: policies with placements of their own know it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.builders import a_job, a_policy, cluster
from trainmaster.core.controller import Controller
from trainmaster.core.invariants import check
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, gpus
from trainmaster.model.units import NOMINAL, SECOND


class Play:
    """Jobs under a policy that must never be refused anything."""

    def __init__(self, topology: str, policy: str, **options: object) -> None:
        self.controller = Controller(cluster(topology), a_policy(policy, **options))
        self.now = 0

    def tell(self, *facts: e.Event, after_s: int = 1) -> None:
        """Facts come in, and what is launched then starts at once."""
        self.now += after_s * SECOND
        new: Sequence[e.Event] | None = facts
        while new is not None:
            decision = self.controller.step(self.now, new)
            check(self.controller.state)
            assert not decision.refusals, decision.refusals
            up = [order.run for order in decision.orders if isinstance(order, a.Launch)]
            new = [e.RunStarted(run, NOMINAL) for run in up] or None

    def submit(self, name: str, size: int | Demand) -> None:
        self.tell(e.JobSubmitted(a_job(name, size, retries=9)))

    def failed(self, name: str, *devices: tuple[int, int]) -> None:
        self.tell(e.RunFailed(self.controller.state.jobs[name].run, avoid=devices))

    def at(self, name: str) -> list[int]:
        placement = self.controller.state.jobs[name].placement
        return [] if placement is None else list(placement.gpus())

    def held_by(self, name: str) -> list[int]:
        held = self.controller.state.reservations.get(name)
        return [] if held is None else [piece.gpu for piece in held.slices]


def test_optimus_starts_it_on_another_device() -> None:
    play = Play("1x4", "optimus")
    play.submit("a", 1)
    assert play.at("a") == [0]
    play.failed("a", (0, 0))
    assert play.at("a") == [1]


def test_optimus_does_not_let_it_grow_onto_the_device() -> None:
    play = Play("1x3", "optimus", interval_s=60)
    play.submit("other", 1)
    play.submit("a", gpus(1, minimum=1, maximum=3))
    assert (play.at("other"), 1 in play.at("a")) == ([0], True)
    play.failed("a", (0, 1))
    for _ in range(3):
        assert play.at("a") == [2]
        play.tell(after_s=60)


def test_philly_neither_holds_nor_takes_the_device_while_it_searches() -> None:
    """Two GPUs of one server: n0 has the avoided one and another, n1 one that is free."""
    play = Play("2x2", "philly")
    play.submit("gang", 2)
    play.submit("other", 1)
    assert (play.at("gang"), play.at("other")) == ([0, 1], [2])
    play.failed("gang", (0, 0))
    assert 0 not in play.held_by("gang")
    play.submit("late", 1)
    assert play.at("late") == [0]
