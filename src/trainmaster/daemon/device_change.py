"""A manager that comes back with other devices: what becomes of runs on those that are gone.

On CPU slots they move to others of their node, where there are enough. The rest is ended only if the user
says so: until then the start is refused, and nothing has changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trainmaster.core.state import JobRecord, State
from trainmaster.core.topology_remap import kinds_of, layout_of
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.live_job import LiveJob, named_devices
from trainmaster.daemon.report_events import LoggedEvent, lost_to, lost_work
from trainmaster.daemon.request_errors import BadStart
from trainmaster.engines.protocol import Engine
from trainmaster.model import codec
from trainmaster.model import events as e
from trainmaster.model.actions import Rebind
from trainmaster.model.engine_reports import Ended, Lost
from trainmaster.model.job import Run
from trainmaster.model.topology import SLOT_TYPE, Topology
from trainmaster.model.units import SECOND
from trainmaster.store.store import Store
from trainmaster.text.formatting import length, listing, plural

WHY = "the manager came back without its devices"


@dataclass(frozen=True, slots=True)
class DeviceChange:
    """The devices of the last manager, and the runs that it concerns."""

    before: Topology
    lost: tuple[JobRecord, ...]
    """Jobs of runs whose devices are gone, as they were."""
    moved: tuple[Rebind, ...]
    """Runs that have other slots now."""

    @classmethod
    def between(cls, before: State, after: State, lost: Iterable[Run]) -> DeviceChange:
        gone = tuple(before.jobs[run.job] for run in sorted(lost))
        moved = () if before is after else tuple(_moved(before, after))
        return cls(before.topology, gone, moved)


def _moved(before: State, after: State) -> Iterator[Rebind]:
    for record in after.jobs.values():
        old, place = before.jobs[record.id], record.placement or record.frozen
        had = named_devices(old.placement or old.frozen, before.topology)
        if place is not None and named_devices(place, after.topology) != had:
            yield Rebind(record.run, place)


def refuse_lost_runs(change: DeviceChange, driver: Driver) -> None:
    """BadStart where a run would be ended that goes on, or that has ended by itself meanwhile."""
    at_stake = [job for job in change.lost if _is_at_stake(job.run, driver.engine)]
    if not at_stake:
        return
    one = len(at_stake) == 1
    them, devices = ("it", "a device") if one else ("them", "devices")
    lost_ms = sum(_lost_ms(job, driver) for job in at_stake)
    loses = f" and lose {length(lost_ms)} of unsaved work" if lost_ms >= SECOND else ""
    names = listing([_named(job.id, driver) for job in at_stake])
    raise BadStart(
        f"{'Job' if one else 'Jobs'} {names} {'is' if one else 'are'} on {devices} that this start does"
        f" not have: {_way_back(change.before, driver.engine.topology)} to keep {them}, or start with"
        f" --force to end {them}{loses}."
    )


def refuse_other_devices(store: Store, own: Topology | None, engine: str = "local") -> bool:
    """BadStart for a standby that could not take over all that the leader has; False: not known yet.

    `own` is None for an engine whose nodes come and go.
    """
    snapshot = store.snapshot()
    if snapshot is None:  # the leader has just begun
        return False
    body = json.loads(snapshot.body_json)
    before = str(body.get("engine", "local"))
    if before != engine:
        raise BadStart(
            f"The leader runs jobs by the {before} engine, and this standby would by {engine}: start it with"
            f" --engine {before}, as the leader was."
        )
    if own is None:
        return True
    leader = codec.decode(body["topology"])
    assert isinstance(leader, Topology)
    has_same = (layout_of(leader), kinds_of(leader)) == (layout_of(own), kinds_of(own))
    if not has_same or (leader.uuids and set(leader.uuids) != set(own.uuids)):
        raise BadStart(
            f"The leader has {_shown(leader)}, and this standby would have {_shown(own)}:"
            f" {_way_back(leader, own)}."
        )
    return True


async def apply_change(change: DeviceChange, driver: Driver, ended: set[Run]) -> Sequence[str]:
    """Tell the engine of new slots, and count what is lost; a line for each run that is."""
    await driver.dispatcher.send(change.moved)
    return [_lose(job, driver, was_ended=job.run in ended) for job in change.lost]


def _lose(job: JobRecord, driver: Driver, *, was_ended: bool) -> str:
    live, now = driver.jobs[job.id], driver.clock.now()
    lost_ms = _lost_ms(job, driver)
    live.paused(now)
    _tell_loss(job, live, driver, lost_work(job, now))
    loses = f", {length(lost_ms)} of its work is lost" if lost_ms >= SECOND else ""
    what = "Ended" if was_ended else "Lost"
    return (
        f"{what}: job {_named(job.id, driver)}. Its devices are gone{loses}; it waits for others."
    )


def settle_loss(live: LiveJob, driver: Driver) -> None:
    """Count what a waiting job lost to a manager that was killed while it took the devices away."""
    record, history = live.record, live.history
    assert record is not None
    recorded = driver.engine.recorded(record.run)
    last = recorded.reports[-1][0] if recorded is not None and recorded.reports else None
    ended_ms = last.at_ms if isinstance(last, Ended | Lost) else driver.clock.now()
    lost_ms = live.ran_ms(ended_ms) - history.before_ms
    if history.saved_at_ms is not None:
        lost_ms = min(lost_ms, ended_ms - history.saved_at_ms)
    live.paused(ended_ms)
    _tell_loss(record, live, driver, {"lost_s": lost_ms / SECOND} if lost_ms > 0 else {})


def _tell_loss(job: JobRecord, live: LiveJob, driver: Driver, lost: Mapping[str, float]) -> None:
    lost_ms = live.history.lost_ms + round(lost.get("lost_s", 0.0) * SECOND)
    event = e.RunLost(job.run, job.saved_work)
    to = lost_to(event, live.history)
    live.history = replace(live.history, pids=(), lost_ms=lost_ms, lost_to=to)
    driver.inbox.follow_up([LoggedEvent(event, {"why": WHY, **lost})])


def _is_at_stake(run: Run, engine: Engine) -> bool:
    """Whether it goes on, or has an end that nobody has heard of."""
    if run in engine.unwatched():
        return True
    recorded = engine.recorded(run)
    return recorded is not None and any(isinstance(report, Ended) for report, _ in recorded.reports)


def _lost_ms(job: JobRecord, driver: Driver) -> int:
    return round(lost_work(job, driver.clock.now()).get("lost_s", 0.0) * SECOND)


def _named(id: str, driver: Driver) -> str:
    live = driver.jobs.get(id)
    return id if live is None else f"{id} ({live.name})"


def _way_back(before: Topology, now: Topology) -> str:
    """How to have the devices of the last time."""
    slots = _slots_of(before)
    if slots is None and _slots_of(now) is not None:
        return "start with --slots auto"
    if slots is None:
        return f"start with the GPUs of last time visible ({_shown(before)})"
    if slots == _slots_of(now):
        return f"give the machine its name {before.nodes[0].name} again"
    return f"start with --slots {slots}"


def _shown(topology: Topology) -> str:
    slots = _slots_of(topology)
    if slots is not None:
        return "1 slot" if slots == "1" else f"{slots} slots"
    return listing([plural(node.gpus, node.type.name) for node in topology.nodes])


def _slots_of(topology: Topology) -> str | None:
    """What `--slots` says to have these; None for GPUs."""
    if any(node.type.name != SLOT_TYPE for node in topology.nodes):
        return None
    each = topology.nodes[0].gpus
    return str(each) if len(topology.nodes) == 1 else f"{len(topology.nodes)}x{each}"
