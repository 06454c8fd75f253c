"""Maintenance and reservations: who may start, and what is suspended when they begin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_job, a_policy, cluster
from tests.unit.core.test_quotas import Desk
from trainmaster.core.controller import Controller
from trainmaster.core.lifecycle import Phase
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Estimate, Source
from trainmaster.model.reasons import Refused, Why
from trainmaster.model.reservation import Reservation
from trainmaster.model.units import HOUR, MINUTE, NOMINAL

FROM, UNTIL = 2 * HOUR, 6 * HOUR


class Site(Desk):
    """A controller for which maintenance is planned."""

    def __init__(
        self, topology: str = "1x4", *, can_freeze: bool = True, saves: bool = False
    ) -> None:
        super().__init__(topology)
        self.controller = Controller(
            cluster(topology),
            a_policy("fifo"),
            can_freeze=can_freeze,
            cannot_save_at_first=not saves,
        )

    def job(self, name: str, size: int = 1, limit: int | None = None, **more: object) -> Site:
        job = replace(a_job(name, size), max_runtime_ms=limit, **more)  # type: ignore[arg-type]
        self.tell(e.JobSubmitted(job))
        return self

    def maintain(self, *nodes: int, number: int = 1, **more: object) -> Site:
        topology = self.controller.state.topology
        gpus = tuple(gpu for gpu, node in enumerate(topology.node_of_gpu) if node in nodes)
        kept = Reservation(number, gpus, FROM, UNTIL, nodes=nodes, **more)  # type: ignore[arg-type]
        self.tell(e.ReservationMade(kept))
        return self

    def reserve(self, *gpus: int, number: int = 1, **whom: str) -> Site:
        self.tell(e.ReservationMade(Reservation(number, gpus, FROM, UNTIL, **whom)))  # type: ignore[arg-type]
        return self

    def nodes_of(self, name: str) -> tuple[int, ...]:
        placement = self.controller.state.jobs[name].placement
        return () if placement is None else tuple(placement.nodes)


def test_a_job_starts_only_if_it_ends_before_maintenance_and_nobody_waits_behind_it() -> None:
    site = Site().maintain(0)
    site.job("long", 4, limit=3 * HOUR).job("short", 2, limit=HOUR).job("exact", limit=2 * HOUR)
    assert site.running == "short exact"
    assert site.why("long").why is Why.MAINTENANCE
    assert site.sentence("long") == (
        "n0: in maintenance from 1970-01-01 02:00:00 UTC to 1970-01-01 06:00:00 UTC, when it might still run."
    )
    site.at(HOUR + 1).job("late", limit=HOUR)
    assert site.running == "short exact"
    assert site.controller.next_step_at == FROM


def test_the_earlier_of_limit_and_estimate_counts() -> None:
    site = Site().maintain(0)
    for name, limit, estimate in (("a", 9, 1), ("b", 1, 9), ("c", None, 3), ("d", None, 2)):
        job = replace(a_job(name), max_runtime_ms=None if limit is None else limit * HOUR)
        site.tell(e.JobSubmitted(job, estimate=Estimate(estimate * HOUR * NOMINAL, Source.STEPS)))
    assert site.running == "a b d"
    site.tell(e.JobProfiled("c", estimate=Estimate(HOUR * NOMINAL, Source.STEPS)))
    assert site.running == "a b c d"


def test_of_an_uncertain_estimate_the_upper_bound_counts() -> None:
    site = Site().maintain(0)
    uncertain = Estimate(HOUR * NOMINAL, Source.RUNS, 3 * HOUR * NOMINAL)
    site.tell(e.JobSubmitted(a_job("c"), estimate=uncertain))
    assert site.running == ""
    site.tell(e.JobProfiled("c", estimate=replace(uncertain, most=2 * HOUR * NOMINAL)))
    assert site.running == "c"


@pytest.mark.parametrize(
    ("can_freeze", "saves", "preemptible", "starts"),
    [
        (True, False, True, True),
        (False, True, True, True),
        (False, False, True, False),
        (True, True, False, False),
    ],
)
def test_a_job_of_unknown_length_starts_if_it_can_be_suspended_without_loss(
    can_freeze: bool, saves: bool, preemptible: bool, starts: bool
) -> None:
    site = Site(can_freeze=can_freeze, saves=saves).maintain(0)
    site.job("a", preemptible=preemptible)
    assert (site.running == "a") is starts


def test_other_nodes_are_used_meanwhile() -> None:
    site = Site("2x4").maintain(0).job("long", 4, limit=9 * HOUR).job("more", 4, limit=9 * HOUR)
    assert (site.nodes_of("long"), site.nodes_of("more")) == ((1,), ())
    assert site.why("more").why is Why.MAINTENANCE


def test_at_the_begin_runs_are_suspended_and_at_the_end_they_go_on_by_themselves() -> None:
    site = Site(saves=True).job("a", 2).job("b", preemptible=False).maintain(0)
    assert site.running == "a b"
    site.at(FROM).tell()
    state = site.controller.state
    assert state.jobs["a"].phase is Phase.HELD
    assert state.jobs["a"].frozen is None  # it can save: the machine may be restarted
    assert site.running == "b"
    assert site.sentence("a") == "n0: in maintenance until 1970-01-01 06:00:00 UTC."
    site.job("c", limit=MINUTE)
    assert site.running == "b"
    assert site.controller.next_step_at == UNTIL
    site.at(UNTIL).tell()
    assert site.running == "a b c"
    assert not state.kept_free
    assert site.controller.next_step_at is None


def test_what_can_only_be_frozen_is_and_force_ends_the_rest() -> None:
    site = Site().job("a").maintain(0).at(FROM).tell()
    assert site.controller.state.jobs["a"].frozen is not None
    plain = Site(can_freeze=False).job("a").maintain(0).at(FROM).tell()
    assert plain.running == "a"  # it would lose work
    forced = Site(can_freeze=False).job("a").job("b", preemptible=False)
    assert isinstance(forced, Site)
    forced.maintain(0, force=True).at(FROM).tell()
    assert forced.running == ""
    assert forced.at(UNTIL).tell().running == "a b"


def test_a_cancelled_one_lets_jobs_start_and_one_that_has_begun_ends() -> None:
    site = Site().maintain(0).job("long", limit=9 * HOUR)
    assert site.tell(e.ReservationCancelled(1)).running == "long"
    site = Site().maintain(0)
    site.at(FROM).tell()
    site.job("a", limit=HOUR)
    assert site.running == ""
    assert site.tell(e.ReservationCancelled(1)).running == "a"


def test_reserved_devices_are_for_one_user_or_a_queue_and_those_inside_it() -> None:
    site = Site().queue("vision").queue("deep", parent="vision")
    assert isinstance(site, Site)
    site.reserve(0, 1, queue="vision").reserve(2, 3, number=2, user="eve")
    site.job("a", 2, limit=9 * HOUR).job("b", 2, limit=9 * HOUR, queue="deep")
    site.job("c", 2, limit=9 * HOUR, user="eve")
    assert site.running == "b c"
    assert site.why("a").why is Why.RESERVATION
    assert site.sentence("a") == (
        "n0:0, n0:1: reserved for queue vision from 1970-01-01 02:00:00 UTC to 1970-01-01 06:00:00 UTC,"
        " when it might still run."
    )
    assert site.at(FROM).tell().running == "b c"  # they are meant to be there


def test_a_reservation_clears_its_devices_and_no_others() -> None:
    site = Site().job("a").job("b").reserve(0, user="eve")
    site.at(FROM).tell()
    assert site.running == "b"
    site.job("eves", user="eve")
    assert set(site.controller.state.jobs["eves"].placement.gpus()) <= {0, 2, 3}  # type: ignore[union-attr]


def test_a_requested_move_into_maintenance_is_refused() -> None:
    site = Site("2x2", saves=True).job("a", limit=9 * HOUR).maintain(1)
    placement = site.controller.state.jobs["a"].placement
    assert placement is not None
    there = replace(placement, slices=(placement.slices[0]._replace(node=1, gpu=2),))
    site.tell(e.ActionRequested(a.Migrate("a", there)))
    state = site.controller.state
    assert state.jobs["a"].placement == placement
    decision = site.controller.step(site.now, [e.ActionRequested(a.Migrate("a", there))])
    assert [each.why for each in decision.refusals] == [Refused.KEPT_FREE]


def test_it_is_in_snapshots_also_under_another_topology() -> None:
    site = Site("2x2").maintain(1).job("a", 2, limit=HOUR).job("b", 2, limit=9 * HOUR)
    body = snapshot_of(site.controller)
    again = restored(body, cluster("2x2"), a_policy("fifo"), can_freeze=True).controller
    assert again.state.kept_free == site.controller.state.kept_free
    assert again.state.last_kept_free == 1
    assert again.next_step_at == site.controller.next_step_at
    other = restored(body, cluster("3x4"), a_policy("fifo"), can_freeze=True).controller
    assert other.state.kept_free[1].nodes == (1,)
    assert other.state.kept_free[1].gpus == (4, 5)
    other.step(FROM, [])
    assert other.state.in_maintenance == {1}
