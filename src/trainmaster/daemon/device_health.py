"""Sets devices aside that fail job after job, or of which the driver says that they are broken.

What is decided here is a fact of the log (`GpuSetAside`), with a sentence that says why; it lasts until
a user brings the device back, or the programs that failed there fail elsewhere too. So are the failures
that count (`DeviceFailed`, `DeviceWorked`), which the state remembers over restarts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import structlog

from trainmaster.config.limits import Limits
from trainmaster.core.gpus_aside import aside_after
from trainmaster.core.state import JobRecord, State
from trainmaster.daemon.device_names import device_key, device_name
from trainmaster.daemon.gpu_readings import GpuReadings
from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.retries import devices_of_failure
from trainmaster.failures.device_blocks import counts, is_lasting, may_set_aside
from trainmaster.failures.reason_table import Accuses, ReasonTable
from trainmaster.failures.xid import XIDS, Xid, XidAction, xid_of
from trainmaster.model import events as e
from trainmaster.model.device_aside import AsideCause, GpuAside
from trainmaster.model.device_failures import DeviceFailure, DeviceFailures
from trainmaster.model.failure import UNKNOWN_REASON, Blame, Failure
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import Ranks
from trainmaster.model.program_name import program_of
from trainmaster.model.topology import Topology
from trainmaster.model.units import MINUTE
from trainmaster.text.formatting import as_sentence, listing

log = structlog.get_logger("trainmaster.health")

XID_REASON = "gpu-xid-error"
"""The reason of a failure on a GPU that the driver reported just before."""
XID_LASTS_MS = 2 * MINUTE
"""How long after an XID that sets its GPU aside a failure there is put down to it, whatever was written."""
XIDS_KEPT = 16
"""XIDs that are remembered of a device."""
ENDS = (e.RunSucceeded, e.RunFailed, e.RunPassed, e.RunSuspended, e.RunStopped)
GOOD_ENDS = (e.RunSucceeded, e.RunPassed)
ECC_CODE = 48
"""An uncorrected memory error that comes as an event of its own is treated as this XID."""
NAMED = 3


class Accused(NamedTuple):
    """A failure that counts against a device."""

    gpu: int
    failure: DeviceFailure


class DeviceHealth:
    """What is known against each device."""

    def __init__(
        self,
        state: Callable[[], State],
        jobs: Mapping[str, LiveJob],
        limits: Limits,
        table: Callable[[], ReasonTable],
    ) -> None:
        self._state = state
        self._jobs = jobs
        self._limits = limits
        self._table = table
        self._xids: dict[int, deque[tuple[int, Xid]]] = {}
        """By device: its last XIDs that say something of it or of the program, and when they came."""

    # -- ends of runs ----------------------------------------------------------------------------------

    def events_after(self, events: Iterable[LoggedEvent], now: int) -> list[LoggedEvent]:
        """What follows from these events, which are about to be taken in: devices that are set aside."""
        known, found = self._state().device_failures, list[LoggedEvent]()
        aside = dict(self._state().gpus_aside)
        for logged in events:
            _carry(aside, [logged], now)
            for fact in self._facts_of(logged.event, now):
                if isinstance(fact, e.DeviceWorked):
                    before, known = known, known.worked(fact.program, fact.devices)
                    if known != before:
                        found.append(LoggedEvent(fact))
                elif fact.gpu not in aside:
                    known = known.failed(fact.failure)
                    found.append(LoggedEvent(e.DeviceFailed(fact.failure)))
                    for follow in (self._set_aside, self._excused):
                        news = list(follow(known, fact, aside))
                        _carry(aside, news, now)
                        found += news
        return found

    def _facts_of(self, event: e.Event, now: int) -> Iterator[Accused | e.DeviceWorked]:
        """What an event says about devices."""
        if isinstance(event, e.GpuReturned) and event.cause is None:  # a user says that it works
            yield e.DeviceWorked("", (device_key(self._state().topology, event.gpu),))
        if not isinstance(event, ENDS):
            return
        live = self._jobs.get(event.run.job)
        record = None if live is None else live.record
        if live is None or record is None or record.run != event.run or record.placement is None:
            return
        topology, program = self._state().topology, program_key(live)
        ran_ms = live.ran_ms(now) - live.history.before_ms
        failure = event.failure if isinstance(event, e.RunFailed | e.RunPassed) else None
        is_good = isinstance(event, GOOD_ENDS) and failure is None
        if is_good or is_lasting(ran_ms):
            devices = tuple(device_key(topology, gpu) for gpu in record.placement.gpus())
            yield e.DeviceWorked(program, devices)
            return
        row = self._table().of(UNKNOWN_REASON if failure is None else failure.reason)
        if not _may_be_devices(event, failure, record.is_prerun) or not counts(
            failure, row, ran_ms
        ):
            return
        reason = UNKNOWN_REASON if failure is None else failure.reason
        is_platform = failure is not None and failure.blame is Blame.PLATFORM
        for gpu in failed_devices(topology, record, live.recipe.ranks, failure):
            key = device_key(topology, gpu)
            yield Accused(gpu, DeviceFailure(key, record.id, program, is_platform, reason))

    def _set_aside(
        self, known: DeviceFailures, accused: Accused, aside: Mapping[int, GpuAside]
    ) -> Iterator[LoggedEvent]:
        """Its device, where it has failed too often and others are left; `aside`: with this step's."""
        state, why = self._state(), self._why_bad(known, accused.failure.device)
        own = {
            gpu
            for gpu, node in enumerate(state.topology.node_of_gpu)
            if node not in state.forgotten and not (gpu in aside and aside[gpu].is_only_taken)
        }
        usable = sum(gpu not in aside and state.occupancy.is_offered(gpu) for gpu in own)
        if why and may_set_aside(len(own), usable, len(own & aside.keys())):
            yield set_aside(state.topology, accused.gpu, AsideCause.FAILURES, why)

    def _excused(
        self, known: DeviceFailures, accused: Accused, asides: Mapping[int, GpuAside]
    ) -> Iterator[LoggedEvent]:
        """Devices that were set aside for what a program did that has now failed elsewhere too."""
        state, last = self._state(), accused.failure
        for gpu, aside in sorted(asides.items()):
            key = device_key(state.topology, gpu)
            programs = {each.program for each in known.failures if each.device == key}
            if aside.of(AsideCause.FAILURES) is None or last.program not in programs:
                continue
            if not self._why_bad(known, key):
                if aside.without(AsideCause.FAILURES) is None:
                    name = device_name(state.topology, gpu)
                    why = f"Job {last.job} failed on another device as well."
                    log.info("a device that was set aside is used again", device=name, why=why)
                node = state.topology.node_of_gpu[gpu]
                yield LoggedEvent(e.GpuReturned(node, gpu, AsideCause.FAILURES))

    def _why_bad(self, known: DeviceFailures, device: str) -> str:
        """Why a device should be set aside for what failed there; empty: it should not."""
        if not known.is_bad(device, self._limits.device_failures):
            return ""
        against = known.against(device)
        return (
            f"Jobs {listing([each.job for each in against[-NAMED:]])} failed there one after another, each"
            f" within its first minutes (the last: {self._table().of(against[-1].reason).title})."
        )

    # -- what the driver says ----------------------------------------------------------------------------

    def events_of_look(self, readings: GpuReadings, now: int) -> list[LoggedEvent]:
        """What follows from one look at the GPUs."""
        state = self._state()
        found: dict[tuple[int, AsideCause], str] = {}
        if readings.trouble or not state.topology.uuids:
            return []
        numbers = {uuid: gpu for gpu, uuid in enumerate(state.topology.uuids)}
        for event in readings.look.events:
            gpu = numbers.get(event.uuid)
            xid = XIDS[ECC_CODE] if event.kind == "ecc" else xid_of(event.code)
            if gpu is None or xid is None or xid.action is XidAction.COLLATERAL:
                continue
            self._xids.setdefault(gpu, deque(maxlen=XIDS_KEPT)).append((now, xid))
            if xid.action.sets_aside:
                cause = AsideCause.XID if xid.action.asks_for_test else AsideCause.RESTART
                found[gpu, cause] = xid.sentence
        for uuid, gpu in numbers.items():
            reading = readings.device(uuid)
            if reading is not None and reading.trouble:
                why = as_sentence(f"It does not answer: {reading.trouble}")
                found.setdefault((gpu, AsideCause.RESTART), why)
        return [
            set_aside(state.topology, gpu, cause, why)
            for (gpu, cause), why in found.items()
            if not is_aside_for(state, gpu, cause)
        ]

    def blamed(self, run: Run, failure: Failure | None, now: int) -> Failure | None:
        """The failure of a run with the XIDs that its GPUs had meanwhile; the GPU's, where they say so.

        An XID that sets a GPU aside, just before the end, outweighs what the program wrote; any other that
        may be the GPU's counts where nothing else is known. One that is the program's own is only shown.
        A failure that accuses devices as it is accuses the GPU that had the XID.
        """
        record = self._state().jobs.get(run.job)
        placement = None if record is None or record.run != run else record.placement
        if failure is None or placement is None:
            return failure
        is_platforms = failure.blame is Blame.PLATFORM
        if is_platforms and self._table().of(failure.reason).accuses is not Accuses.DEVICE:
            return failure
        began = None if record is None else record.run_since_ms
        since = now - XID_LASTS_MS if began is None else began
        seen = [
            (gpu, at_ms, xid)
            for gpu in placement.gpus()
            for at_ms, xid in self._xids.get(gpu, ())
            if at_ms >= since
        ]
        if not seen:
            return failure
        sentences = dict.fromkeys(xid.sentence for _, _, xid in seen)
        shown = replace(failure, lines=(*sentences, *failure.lines))
        sure = [gpu for gpu, at, x in seen if x.action.sets_aside and now - at <= XID_LASTS_MS]
        maybe = [gpu for gpu, _, x in seen if x.action.accuses_gpu]
        guilty = sure or (maybe if failure.blame is not Blame.USER else [])
        topology = self._state().topology
        keys = tuple(device_key(topology, gpu) for gpu in dict.fromkeys(guilty))
        if is_platforms:
            return replace(failure, devices=keys)
        if not guilty:
            return shown
        return replace(shown, reason=XID_REASON, blame=Blame.PLATFORM, devices=keys)

    # -- asking ------------------------------------------------------------------------------------------

    def asides(self) -> list[str]:
        """Which devices are set aside, why, and how they come back: a sentence for each reason."""
        state = self._state()
        together: dict[str, list[str]] = {}
        for gpu, aside in sorted(state.gpus_aside.items()):
            if not aside.is_only_taken:
                together.setdefault(aside.why, []).append(device_name(state.topology, gpu))
        return [
            f"{listing(devices)} {'is' if len(devices) == 1 else 'are'} set aside: {why}"
            f" `trainmaster node unblock {devices[0]}` brings {devices[0]} back."
            for why, devices in together.items()
        ]

    def taken(self) -> list[str]:
        """Which devices others hold: a sentence."""
        state = self._state()
        asides = sorted(state.gpus_aside.items())
        names = [device_name(state.topology, gpu) for gpu, each in asides if each.is_only_taken]
        return [f"Other users of the cluster hold {listing(names)}."] if names else []

    def notes(self) -> list[str]:
        """What is set aside, and what is not although it should be: a sentence each."""
        state, said = self._state(), self.asides()
        known = state.device_failures
        accused = {each.device for each in known.failures}
        for gpu in range(state.topology.gpu_count) if accused else ():
            key = device_key(state.topology, gpu)
            if (
                key in accused
                and gpu not in state.gpus_aside
                and (why := self._why_bad(known, key))
            ):
                said.append(
                    f"{device_name(state.topology, gpu)} stays in use, since too few other devices would"
                    f" be left: {why}"
                )
        return said


def _may_be_devices(event: e.Event, failure: Failure | None, is_prerun: bool) -> bool:
    """Whether the device may be to blame: of a pre-run, which has too few devices, only where it is known."""
    if is_prerun or isinstance(event, e.RunPassed):
        return failure is not None and failure.blame is Blame.PLATFORM
    return isinstance(event, e.RunFailed)


def _carry(asides: dict[int, GpuAside], events: Iterable[LoggedEvent], now: int) -> None:
    """Take in what these events set aside and bring back."""
    for event in (logged.event for logged in events):
        if isinstance(event, e.GpuSetAside | e.GpuReturned):
            aside = aside_after(asides.pop(event.gpu, None), event, now)
            if aside is not None:
                asides[event.gpu] = aside


def set_aside(
    topology: Topology, gpu: int, cause: AsideCause, why: str, *, is_tested: bool = False
) -> LoggedEvent:
    return LoggedEvent(e.GpuSetAside(topology.node_of_gpu[gpu], gpu, why, cause, is_tested))


def is_aside_for(state: State, gpu: int, cause: AsideCause) -> bool:
    aside = state.gpus_aside.get(gpu)
    return aside is not None and aside.of(cause) is not None


def program_key(live: LiveJob) -> str:
    """Jobs of one program: same user, folder and name without its numbers, whatever their arguments."""
    return "\n".join((live.job.user, str(live.spec.get("workdir") or ""), program_of(live.name)))


def failed_devices(
    topology: Topology, record: JobRecord, ranks: Ranks, failure: Failure | None
) -> Sequence[int]:
    """The devices that the failure names, or the one of the process that failed first; none where not known.

    A process for each node that has several of them does not say which.
    """
    placement = record.placement
    if placement is None:
        return ()
    gpus = list(placement.gpus())
    if failure is None:
        return gpus if len(gpus) == 1 else ()
    found = [gpu for _, gpu in devices_of_failure(topology, placement, failure, ranks)]
    return found if failure.devices or len(found) == 1 else ()
