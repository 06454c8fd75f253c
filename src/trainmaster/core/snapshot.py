"""A controller as JSON, and a controller restored from it that makes the same decisions.

Caches are left out: they are built again, as after `forget`. A snapshot of another topology is remapped:
a GPU is the same one if it has the same UUID, or where that is not known the same index on a node of the same
name; of CPU slots any free one of the node will do. Other runs on devices that are gone are lost, and their
jobs continue from their last checkpoint. The policy's memo, which may name nodes by their indices, starts
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from trainmaster.core.controller import Controller, MakePolicy
from trainmaster.core.frozen_memory import estimated
from trainmaster.core.invariants import rebuilt
from trainmaster.core.job_record import JobRecord
from trainmaster.core.lifecycle import WAITING, Cause, Phase
from trainmaster.core.next_attempt import remap_avoided
from trainmaster.core.pending_launches import released
from trainmaster.core.policy import Policy
from trainmaster.core.quota_gate import rebuild
from trainmaster.core.quotas import is_bounded
from trainmaster.core.reducer import requeue_for_retry
from trainmaster.core.state import Account, PendingLaunch, ScopeKey, State
from trainmaster.core.switch_times import SwitchTimes
from trainmaster.core.topology_remap import IndexMapping, Layout, kinds_of, layout_of
from trainmaster.core.view import View
from trainmaster.model.codec import Json, decode, encode
from trainmaster.model.device_aside import AsideWhy, GpuAside, stated_only_in_words
from trainmaster.model.job import Job, Run
from trainmaster.model.placement import Slice
from trainmaster.model.reservation import Reservation
from trainmaster.model.topology import Topology
from trainmaster.model.type_speeds import MeasuredRate, with_speeds

VERSION = 1
DERIVED = frozenset({"job", "id", "seq", "siblings"})
"""Slots of a record that are written apart, or follow from others."""
FORGETTABLE = frozenset(
    {"samples", "profile", "estimate", "oracle", "demand", "demand_after_prerun"}
)
"""Not needed of a job that ended before the last pass."""
KEYS = {
    slot: {"job_time_before": "crowd_before", "protected_until_ms": "spared_until_ms"}.get(
        slot, slot
    )
    for slot in JobRecord.__slots__
    if slot not in DERIVED
}
"""Slots of a record, and the names that stores know them by; those stay as they were first written."""


def _pairs(write: Callable[[Any], object]) -> Callable[[Mapping[Any, Any]], object]:
    """A table as pairs: its order matters."""
    return lambda table: tuple((key, write(value)) for key, value in table.items())


def _table(read: Callable[[Any], object]) -> Callable[[Iterable[tuple[Any, Any]]], object]:
    return lambda pairs: {key: read(value) for key, value in pairs}


def _as_it_is(value: object) -> object:
    return value


def _aside(since_ms: int, why: tuple[AsideWhy, ...] | str) -> GpuAside:
    """A store of an earlier version has a sentence alone."""
    return GpuAside(since_ms, (stated_only_in_words(why),) if isinstance(why, str) else why)


Field = tuple[str, Callable[[Any], object], Callable[[Any], object]]
"""The name of an attribute, and how it is written and read."""
STATE_FIELDS: dict[str, Field] = {
    "groups": ("groups", tuple, lambda demands: {each: n for n, each in enumerate(demands)}),
    "queues": ("queues", lambda by: tuple(by.values()), lambda all_: {q.name: q for q in all_}),
    "user_limits": (
        "user_limits",
        lambda by: tuple(by.values()),
        lambda all_: {each.user: each for each in all_},
    ),
    "accounts": (
        "accounts",
        lambda by: tuple((*key, each.began_ms, each.settled) for key, each in by.items()),
        lambda all_: {ScopeKey(q, u): Account(began, used) for q, u, began, used in all_},
    ),
    "prices": ("prices", _as_it_is, _as_it_is),
    "quotas_stale": ("quotas_stale", bool, bool),
    "awaited": ("awaited", _pairs(tuple), _table(list)),
    "releasing": ("releasing", _pairs(frozenset), _table(set)),
    "leaving": ("leaving", _pairs(tuple), _table(tuple)),
    "reservations": (
        "reservations",
        lambda by: tuple(by.values()),
        lambda all_: {held.job: held for held in all_},
    ),
    "draining": ("draining", frozenset, set),
    "kept_free": (
        "kept_free",
        lambda by: tuple(by.values()),
        lambda all_: {each.number: each for each in all_},
    ),
    "last_kept_free": ("last_kept_free", int, int),
    "in_maintenance": ("in_maintenance", frozenset, set),
    "away": ("away", frozenset, set),
    "forgotten": ("forgotten", frozenset, set),
    "rates": (
        "rates",
        lambda by: tuple((name, *each) for name, each in by.items()),
        lambda all_: {name: MeasuredRate(kind, rate) for name, kind, rate in all_},
    ),
    "nominal_type": ("nominal_type", str, str),
    "has_run": ("has_run", bool, bool),
    "stated_speeds": ("stated_speeds", _pairs(int), _table(int)),
    "set_aside": ("set_aside", _pairs(frozenset), _table(set)),
    "gpus_aside": ("gpus_aside", _pairs(tuple), _table(lambda said: _aside(*said))),
    "device_failures": ("device_failures", _as_it_is, _as_it_is),
    "input_failures": ("input_failures", _pairs(tuple), _table(tuple)),
    "input_blocks": (
        "input_blocks",
        lambda by: tuple(by.values()),
        lambda all_: {block.path: block for block in all_},
    ),
    "submitted": ("submitted", int, int),
    "crowd": ("job_time_integral", int, int),
    "switches": ("switch_times", SwitchTimes.counts, SwitchTimes.of),
}
"""By the name that stores know it by."""
LOG_FIELDS: dict[str, Field] = {
    "stirred": ("dirty_queues", frozenset, set),
    "needs_pass": ("needs_pass", bool, bool),
    "has_news": ("woken_by_event", bool, bool),
    "is_quiet": ("last_pass_was_noop", bool, bool),
}


class Restored(NamedTuple):
    """A controller out of a snapshot."""

    controller: Controller
    lost: tuple[Run, ...]
    """Runs whose devices are no longer there."""


# -- writing -------------------------------------------------------------------------------------------


def snapshot_of(controller: Controller) -> dict[str, Json]:
    """All that decides what the controller will do, between two steps."""
    state, log = controller.state, controller.state.log
    return {
        "version": VERSION,
        "now": controller.now,
        "wake_at": controller.wake_at,
        "memo": encode(controller.memo),
        "layout": encode(layout_of(state.topology)),
        "kinds": encode(kinds_of(state.topology)),
        "uuids": encode(state.topology.uuids),
        "speeds": encode(tuple(state.topology.speed_by_type.items())),
        "records": [_image(*each) for each in _known(state).values()],
        "jobs": [record.seq for record in state.jobs.values()],
        "ended": [record.seq for record in log.ended],
        "anew": [record.seq for record in log.requeued],
        "changed": log.has_dirty_jobs,
        "sources": [
            [encode(source), [record.seq for record in last]]
            for source, last in state.recent_submissions.by_source()
        ],
        "residents": [list(there) for there in state.residents],
        "state": encode(_values(state)),
        "protects_unsaved": state.cannot_save_at_first,
    }


def _known(state: State) -> dict[int, tuple[JobRecord, bool]]:
    """Every record that is referred to, in order of seq, and whether all of it is needed."""
    log = state.log
    asked = (*state.jobs.values(), *log.ended, *log.requeued)
    known = {record.seq: (record, True) for record in asked}
    siblings = (each for record in (*state.jobs.values(), *log.ended) for each in record.siblings)
    last = (each for _, last in state.recent_submissions.by_source() for each in last)
    for each in (*siblings, *last):
        known.setdefault(each.seq, (each, False))
    return dict(sorted(known.items()))


def _image(record: JobRecord, is_whole: bool) -> Json:
    """A record's slots that are not as in a new one."""
    fresh = _fresh(record.job, record.seq)
    body: dict[str, Json] = {"seq": record.seq, "job": encode(record.job)}
    if is_whole and record.siblings:
        body["siblings"] = [each.seq for each in record.siblings]
    for slot, key in KEYS.items():
        value, usual = getattr(record, slot), getattr(fresh, slot)
        is_usual = value is usual or (type(value) is type(usual) and value == usual)
        if not is_usual and (is_whole or slot not in FORGETTABLE):
            body[key] = encode(value)
    return body


def _fresh(job: Job, seq: int) -> JobRecord:
    return JobRecord(job, seq, 0, None, None)


def _values(state: State) -> dict[str, object]:
    """What is not a record."""
    values: dict[str, object] = {
        key: write(getattr(owner, name))
        for owner, fields in ((state, STATE_FIELDS), (state.log, LOG_FIELDS))
        for key, (name, write, _) in fields.items()
    }
    pending = state.pending_launches.items()
    values["promises"] = tuple(
        (job, frozenset(each.awaiting), each.expires_ms) for job, each in pending
    )
    return values


# -- reading -------------------------------------------------------------------------------------------


def restored(
    body: Mapping[str, Json],
    topology: Topology,
    policy: Policy,
    *,
    can_freeze: bool,
    can_move_frozen: bool = False,
    saves_on_demand: bool = True,
    cannot_save_at_first: bool = False,
    make_policy: MakePolicy | None = None,
) -> Restored:
    """A controller that continues where the other one stopped; CodecError if the body cannot be read.

    Types of devices are as fast as they were.
    """
    topology = with_speeds(topology, dict(decode(body.get("speeds", []))))
    controller = Controller(
        topology,
        policy,
        can_freeze=can_freeze,
        can_move_frozen=can_move_frozen,
        saves_on_demand=saves_on_demand,
        cannot_save_at_first=cannot_save_at_first,
        make_policy=make_policy,
    )
    layout: Layout = decode(body["layout"])
    records = _records(body)
    state = controller.state
    _fill(state, body, records)
    if cannot_save_at_first and not body.get("protects_unsaved"):  # a store of an earlier version
        for record in state.jobs.values():
            record.cannot_save = not record.saved_work
    kinds = decode(body["kinds"]) if "kinds" in body else None  # a store of an earlier version
    uuids: tuple[str, ...] = decode(body["uuids"]) if "uuids" in body else ()
    is_same = (
        layout == layout_of(topology)
        and kinds in (None, kinds_of(topology))
        and (not uuids or not topology.uuids or uuids == topology.uuids)
    )
    memo = decode(body["memo"]) if is_same else policy.first_memo()
    controller.resume(memo, body["now"], body["wake_at"])
    lost: tuple[Run, ...] = ()
    if is_same:
        for there, seqs in zip(state.residents, body["residents"], strict=True):
            there.update((seq, records[seq]) for seq in seqs)
        _estimate_kept(state)
        state.occupancy = rebuilt(state, is_checked=False)
    else:
        lost = _remap(state, IndexMapping.between(layout, topology, kinds, uuids), body["now"])
    if is_bounded(state):
        rebuild(state, body["now"])
    controller.view = View(state)
    return Restored(controller, lost)


def _records(body: Mapping[str, Json]) -> dict[int, JobRecord]:
    """All records with their siblings."""
    records: dict[int, JobRecord] = {}
    for image in body["records"]:
        record = _fresh(decode(image["job"]), image["seq"])
        for slot, key in KEYS.items():
            if key in image:
                setattr(record, slot, decode(image[key]))
        records[record.seq] = record
    for image in body["records"]:
        records[image["seq"]].siblings = [records[seq] for seq in image.get("siblings", ())]
    return records


def _fill(state: State, body: Mapping[str, Json], records: Mapping[int, JobRecord]) -> None:
    for seq in body["jobs"]:
        record = records[seq]
        state.jobs[record.id] = record
        state.note_profile(record)
        state.has_run |= (
            record.first_start_ms is not None
        )  # where the store is of an earlier version
        state.waiting += record.phase in WAITING
        if record.phase is Phase.HELD:
            state.on_hold[record.id] = record
        if record.protected_until_ms is not None:
            state.protected[record.id] = record
        if record.retry_at_ms is not None:
            state.delayed[record.id] = record
        if record.avoid_until_ms is not None:
            state.avoiding[record.id] = record
    log = state.log
    log.ended = [records[seq] for seq in body["ended"]]
    log.requeued = [records[seq] for seq in body["anew"]]
    log.has_dirty_jobs = bool(body["changed"])  # a list of jobs in stores of 0.1
    for source, seqs in body["sources"]:
        state.recent_submissions.restore(decode(source), [records[seq] for seq in seqs])
    values: dict[str, Any] = decode(body["state"])
    for owner, fields in ((state, STATE_FIELDS), (log, LOG_FIELDS)):
        for key, (name, _, read) in fields.items():
            if key in values:  # a store of an earlier version may not have it
                setattr(owner, name, read(values[key]))
    for job, awaiting, expires_ms in values["promises"]:
        state.pending_launches[job] = PendingLaunch(state.jobs[job], set(awaiting), expires_ms)


def _estimate_kept(state: State) -> None:
    """What frozen runs keep, where a store of an earlier version does not say."""
    for record in state.jobs.values():
        if record.frozen is not None and record.kept is None:
            record.kept = estimated(state.topology, record.demand, record.frozen)


# -- another topology ----------------------------------------------------------------------------------


def _remap(state: State, new: IndexMapping, now: int) -> tuple[Run, ...]:
    """Move the state to the new indices; runs on devices that are gone are lost."""
    new = new.exchanging_slots((*_held_by_runs(state), *_goals(state)), state.gpus_aside)
    gone = [record for record in state.jobs.values() if _has_lost_its_run(state, record, new)]
    without_goal = [
        record for record in state.jobs.values() if _has_lost_its_goal(state, record, new)
    ]
    for record in state.jobs.values():
        record.placement = new.placement(record.placement)
        record.frozen = new.frozen(record.frozen)
        if record.demand.avoid or record.demand.barred or record.demand.warm:
            remap_avoided(state, record, new.gpus)
    _estimate_kept(state)
    for record in without_goal:
        _forget_goal(state, record)
    _remap_tables(state, new)
    state.occupancy = rebuilt(state, is_checked=False)
    for record in state.jobs.values():
        for node in record.placement.nodes if record.placement is not None else ():
            state.residents[node][record.seq] = record
    lost = []
    for record in gone:
        run = record.run
        lost.append(run)
        requeue_for_retry(state, record, record.saved_work, now)
        released(state, run)
    state.log.dirty_queues.update(record.job.queue for record in state.jobs.values())
    state.log.needs_pass = True
    return tuple(lost)


def _held_by_runs(state: State) -> Iterator[tuple[Slice, ...]]:
    """The devices that runs are on, or are about to leave."""
    for record in state.jobs.values():
        if record.placement is not None and not _is_coming(state, record):
            yield record.placement.slices
        yield state.leaving.get(record.run, ())


def _goals(state: State) -> Iterator[tuple[Slice, ...]]:
    """The devices that runs are about to start on."""
    for record in state.jobs.values():
        if record.placement is not None and _is_coming(state, record):
            yield record.placement.slices


def _is_coming(state: State, record: JobRecord) -> bool:
    """Whether its placement is where it will start, and not where its run is."""
    is_moving = record.is_moving and record.phase is Phase.SUSPENDING
    return record.id in state.pending_launches or is_moving


def _has_lost_its_goal(state: State, record: JobRecord, new: IndexMapping) -> bool:
    """Whether it is about to start on devices that are gone."""
    is_coming = _is_coming(state, record)
    return is_coming and record.placement is not None and not new.has(record.placement.slices)


def _has_lost_its_run(state: State, record: JobRecord, new: IndexMapping) -> bool:
    """Whether a run of it is, or may still be, on devices that are gone; not if it is being ended anyway."""
    if record.phase is Phase.STOPPING:
        return False
    if record.frozen is not None and new.frozen(record.frozen) is None:
        return True
    if not new.has(state.leaving.get(record.run, ())):
        return True
    if record.placement is None or _has_lost_its_goal(state, record, new):
        return False
    return not new.has(record.placement.slices)


def _forget_goal(state: State, record: JobRecord) -> None:
    """Cancel its start: it waits again, or will once it has left its current GPUs."""
    record.placement = None
    record.is_moving = False
    state.pending_launches.pop(record.id, None)
    if record.phase is Phase.STARTING:
        state.move(record, Cause.REVOKED if record.was_started else Cause.REVOKED_UNSTARTED)


def _remap_tables(state: State, new: IndexMapping) -> None:
    state.leaving = {
        run: slices for run, left in state.leaving.items() if (slices := _slices(new, left))
    }
    state.releasing = {
        new.gpus[gpu]: runs for gpu, runs in state.releasing.items() if gpu in new.gpus
    }
    still = set(state.leaving)
    for pending in state.pending_launches.values():
        pending.awaiting &= still
    state.reservations = {
        job: replace(held, slices=_slices(new, held.slices))
        for job, held in state.reservations.items()
        if new.has(held.slices)
    }
    state.draining = {new.nodes[node] for node in state.draining if node in new.nodes}
    state.in_maintenance = {new.nodes[node] for node in state.in_maintenance if node in new.nodes}
    state.kept_free = {each.number: _remapped(each, new) for each in state.kept_free.values()}
    state.away = {new.nodes[node] for node in state.away if node in new.nodes}
    state.forgotten = {new.nodes[node] for node in state.forgotten if node in new.nodes}
    aside = state.gpus_aside.items()
    state.gpus_aside = {new.gpus[gpu]: why for gpu, why in aside if gpu in new.gpus}
    state.set_aside = {
        new.nodes[node]: runs for node, runs in state.set_aside.items() if node in new.nodes
    }


def _remapped(held: Reservation, new: IndexMapping) -> Reservation:
    """The same devices under their new indices."""
    gpus = tuple(sorted(new.gpus[gpu] for gpu in held.gpus if gpu in new.gpus))
    nodes = tuple(sorted(new.nodes[node] for node in held.nodes if node in new.nodes))
    return replace(held, gpus=gpus, nodes=nodes)


def _slices(new: IndexMapping, slices: Iterable[Slice]) -> tuple[Slice, ...]:
    return tuple(new.slice(each) for each in slices if new.has((each,)))
