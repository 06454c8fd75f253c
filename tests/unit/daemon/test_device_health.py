"""What sets a GPU aside: an XID, a driver that does not answer, failures; and whose fault failures are."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

from tests.unit.core.stage import Strings
from tests.unit.core.test_gpu_uuids import gpus
from tests.unit.daemon.test_gpu_readings import EngineOf
from trainmaster.config.limits import Limits
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.daemon.cluster_control import ClusterControl
from trainmaster.daemon.device_health import XID_LASTS_MS, DeviceHealth, failed_devices
from trainmaster.daemon.disk_watch import disk_events
from trainmaster.daemon.ends_on_gpus import EndsOnGpus
from trainmaster.daemon.failure_table import built_in_table
from trainmaster.daemon.gpu_readings import GpuReadings
from trainmaster.daemon.inbox import Request
from trainmaster.daemon.live_job import LiveJob, StoredSubmission
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.daemon.retries import devices_of_failure
from trainmaster.failures.retry_rules import EARLY_MS
from trainmaster.gpu.driver import GpuEvent, Reading
from trainmaster.gpu.watch import Look
from trainmaster.model import events as e
from trainmaster.model.device_aside import AsideCause
from trainmaster.model.engine_reports import Ended, Report
from trainmaster.model.failure import Blame, Failure
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec, Ranks

ALL = tuple(Reading(uuid) for uuid in "abcd")
UNKNOWN = Failure("unknown")


class Stage:
    """Four GPUs, their jobs, and what is known against them."""

    def __init__(self) -> None:
        self.world = Strings(gpus(("n0", "H100", "abcd")), can_freeze=False)
        self.jobs: dict[str, LiveJob] = {}
        self.health = DeviceHealth(lambda: self.world.state, self.jobs, Limits(), built_in_table)
        self.readings = GpuReadings(EngineOf(self.world.state.topology))  # type: ignore[arg-type]

    def looks(self, look: Look, now: int = 0) -> list[e.Event]:
        asyncio.run(self.readings.take(look))
        return [each.event for each in self.health.events_of_look(self.readings, now)]

    def runs(self, job: str, *on: int) -> None:
        self.world.running(job, *on)
        record = self.world.job(job)
        submission = StoredSubmission(LaunchSpec(("true",), "/", ""), record.job)
        live = self.jobs[job] = LiveJob(record.job, job, submission, {})
        live.record = record

    def suspects(self) -> dict[int, str]:
        """Devices that are to be tested, and for what."""
        asides = self.world.state.gpus_aside.items()
        return {gpu: found.why for gpu, aside in asides if (found := aside.suspicion)}

    def disk(self, free: int) -> None:
        events = list(disk_events(self.world.state, free, 100))
        followed = self.health.events_after(events, self.world.now)
        self.world.tell(*(each.event for each in (*events, *followed)))

    def asked(self, what: str, device: str) -> None:
        """By a user: to block, or unblock."""
        state = self.world.state

        async def ask(request: Request) -> None:
            self.world.tell(*(each.event for each in request.events))

        node = state.topology.node_by_name
        driver = SimpleNamespace(controller=self.world.controller, node=node.__getitem__, ask=ask)
        asyncio.run(getattr(ClusterControl(driver, None), what)(device))  # type: ignore[arg-type]

    def ends(self, job: str, event: e.Event) -> list[e.GpuSetAside]:
        followed = self.health.events_after([LoggedEvent(event)], self.world.now)
        self.world.tell(event, *(each.event for each in followed))
        return [each.event for each in followed if isinstance(each.event, e.GpuSetAside)]

    def fails(self, job: str, *on: int, failure: Failure = UNKNOWN) -> list[e.GpuSetAside]:
        self.runs(job, *on)
        return self.ends(job, e.RunFailed(Run(job, 1), retryable=False, failure=failure))


def test_an_xid_that_needs_a_reset_sets_its_gpu_aside_and_others_do_not() -> None:
    stage = Stage()
    events = tuple(GpuEvent("b", "xid", code) for code in (31, 45, 63, 9_999))
    assert not stage.looks(Look(readings=ALL, events=events))
    (found,) = stage.looks(Look(readings=ALL, events=(GpuEvent("b", "xid", 95),)))
    assert isinstance(found, e.GpuSetAside)
    assert (found.node, found.gpu) == (0, 1)
    assert found.why.startswith("XID 95 (memory error not contained to one program): reset the GPU")
    stage.world.tell(found)
    assert not stage.looks(Look(readings=ALL, events=(GpuEvent("b", "xid", 48),))), "it is aside"
    assert "n0:1 is set aside: XID 95" in stage.health.notes()[0]
    assert stage.suspects() == {1: found.why}
    stage.world.tell(*stage.looks(Look(readings=ALL, events=(GpuEvent("b", "xid", 79),))))
    assert "XID 79" in stage.world.state.gpus_aside[1].why, "that is something else"
    assert not stage.suspects(), "one that fell off the bus cannot be tested"


def test_memory_errors_and_silence_do_too() -> None:
    stage = Stage()
    ecc = stage.looks(Look(readings=ALL, events=(GpuEvent("a", "ecc", 0),)))
    assert [each.gpu for each in ecc if isinstance(each, e.GpuSetAside)] == [0]
    lost = (*ALL[:3], Reading("d", trouble="GPU is lost"))
    assert stage.looks(Look(readings=lost)) == [
        e.GpuSetAside(0, 3, "It does not answer: GPU is lost.", AsideCause.RESTART)
    ]
    assert not stage.looks(Look(trouble="no driver")), "that says nothing of any one"


def test_a_failure_after_an_xid_is_the_gpus() -> None:
    stage = Stage()
    stage.runs("x", 1)
    stage.runs("y", 2)
    stage.looks(Look(readings=ALL, events=(GpuEvent("b", "xid", 48),)), now=1_000)
    found = stage.health.blamed(Run("x", 1), UNKNOWN, 2_000)
    assert found is not None
    assert (found.reason, found.blame) == ("gpu-xid-error", Blame.PLATFORM)
    assert found.lines[0].startswith("XID 48")
    assert stage.health.blamed(Run("y", 1), UNKNOWN, 2_000) is UNKNOWN, "it is on another GPU"
    assert stage.health.blamed(Run("x", 2), UNKNOWN, 2_000) is UNKNOWN, "another attempt"
    assert stage.health.blamed(Run("x", 1), None, 2_000) is None
    users = Failure("import-error", Blame.USER)
    for later, reason in ((0, "gpu-xid-error"), (XID_LASTS_MS, "import-error")):
        said = stage.health.blamed(Run("x", 1), users, 2_000 + later)
        assert said is not None
        assert (said.reason, said.lines[0][:6]) == (reason, "XID 48"), "long ago it is only shown"


def test_any_xid_during_the_run_is_evidence_and_the_programs_own_accuses_no_gpu() -> None:
    stage = Stage()
    stage.looks(Look(readings=ALL, events=(GpuEvent("a", "xid", 94),)), now=500)
    stage.world.later(1)
    for job, gpu in (("x", 0), ("y", 1), ("z", 2)):
        stage.runs(job, gpu)
    events = [GpuEvent("b", "xid", code) for code in (94, 45, 9_999)]
    stage.looks(Look(readings=ALL, events=(*events, GpuEvent("c", "xid", 31))), now=2_000)
    now = 2_000 + 10 * XID_LASTS_MS
    assert stage.health.blamed(Run("x", 1), UNKNOWN, now) is UNKNOWN, "it was before the run"
    watched = stage.health.blamed(Run("y", 1), UNKNOWN, now)
    assert watched is not None
    assert (watched.reason, watched.blame) == ("gpu-xid-error", Blame.PLATFORM)
    assert [line[:6] for line in watched.lines] == ["XID 94"]
    own = stage.health.blamed(Run("z", 1), UNKNOWN, now)
    assert own is not None
    assert (own.reason, own.lines[0][:6]) == ("unknown", "XID 31")
    users = stage.health.blamed(Run("y", 1), Failure("import-error", Blame.USER), now)
    assert users is not None
    assert (users.reason, users.lines[0][:6]) == ("import-error", "XID 94")


def test_failures_on_gpus_wait_for_the_next_look_at_the_driver() -> None:
    stage, again = Stage(), list[tuple[Report, int]]()
    ends = EndsOnGpus(stage.readings, lambda report, number: again.append((report, number)))
    failed, succeeded = (Ended(Run("x", n), 0, code=n) for n in (1, 0))

    async def play() -> None:
        both = [(failed, 7), (succeeded, 8)]
        assert ends.ready(both) == both, "nothing is read of GPUs here"
        await stage.readings.take(Look(readings=ALL))
        assert ends.ready(both) == [(succeeded, 8)]
        assert not again
        await stage.readings.take(Look(readings=ALL))
        assert again == [(failed, 7)]
        assert ends.ready(again) == again

    asyncio.run(play())


def test_a_device_that_fails_job_after_job_is_set_aside_with_their_names() -> None:
    stage = Stage()
    assert not stage.fails("a", 0)
    assert not stage.fails("b", 0)
    (found,) = stage.fails("c", 0)
    assert found.gpu == 0
    assert found.why.startswith("Jobs a, b and c failed there one after another")
    assert stage.suspects() == {0: found.why}
    assert not any(stage.fails(each, 1) for each in ("d", "e", "f")), "a quarter is aside"
    assert any("n0:1 stays in use" in note for note in stage.health.notes())
    stage.ends("", e.GpuReturned(0, 0))
    assert not stage.fails("g", 0), "it begins again"


def test_it_comes_back_when_the_programs_that_failed_there_fail_elsewhere_too() -> None:
    stage = Stage()
    for job in "abc":
        stage.fails(job, 0)
    assert set(stage.world.state.gpus_aside) == {0}
    stage.fails("d", 1)
    assert set(stage.world.state.gpus_aside) == {0}, "d says nothing of it"
    stage.runs("e", 1)
    stage.jobs["e"].name = "a"  # the same program
    stage.ends("e", e.RunFailed(Run("e", 1), retryable=False, failure=UNKNOWN))
    assert not stage.world.state.gpus_aside
    assert stage.fails("f", 0), "with b and c that are three again"


def test_what_is_aside_for_two_causes_stays_aside_when_one_ends() -> None:
    stage = Stage()
    stage.disk(0)
    stage.world.tell(*stage.looks(Look(readings=ALL, events=(GpuEvent("b", "xid", 79),))))
    stage.asked("block", "n0:2")
    stage.disk(1_000)
    asides = stage.world.state.gpus_aside
    assert {gpu: each.why[:6] for gpu, each in asides.items()} == {1: "XID 79", 2: "A user"}
    stage.world.tell(*stage.looks(Look(readings=ALL, events=(GpuEvent("c", "xid", 48),))))
    stage.asked("unblock", "n0:2")
    assert asides.keys() == {1}, "a user's word ends all"

    excused = Stage()
    for job in "abc":
        excused.fails(job, 0)
    excused.asked("block", "n0:0")
    excused.runs("e", 1)
    excused.jobs["e"].name = "a"  # the same program
    excused.ends("e", e.RunFailed(Run("e", 1), retryable=False, failure=UNKNOWN))
    assert excused.world.state.gpus_aside[0].why == "A user set it aside."


def test_room_on_the_disk_does_not_show_that_devices_work() -> None:
    stage = Stage()
    for job in "ab":
        assert not stage.fails(job, 0)
    stage.disk(0)
    stage.disk(1_000)
    assert stage.fails("c", 0)


def test_so_it_does_where_their_reason_accuses_devices() -> None:
    """Three programs that print an ECC error wherever they run."""
    stage, ecc = Stage(), Failure("gpu-ecc-error", Blame.PLATFORM)
    for job in "abc":
        stage.fails(job, 0, failure=ecc)
    assert set(stage.world.state.gpus_aside) == {0}
    for job, program in zip("xyz", "abc", strict=True):
        stage.runs(job, 1)
        stage.jobs[job].name = program
        stage.ends(job, e.RunFailed(Run(job, 1), retryable=False, failure=ecc))
        assert not stage.world.state.gpus_aside


def test_failures_are_remembered_over_a_restart_of_the_manager() -> None:
    stage = Stage()
    for job in "ab":
        assert not stage.fails(job, 0)
    body = json.loads(json.dumps(snapshot_of(stage.world.controller)))
    again = restored(body, stage.world.topology, stage.world.script, can_freeze=False).controller
    stage.world.controller = again
    stage.health = DeviceHealth(lambda: stage.world.state, stage.jobs, Limits(), built_in_table)
    (found,) = stage.fails("c", 0)
    assert found.why.startswith("Jobs a, b and c failed there one after another")


def test_users_failures_long_runs_and_successes_do_not_accuse_it() -> None:
    stage = Stage()
    for job in "abcd":
        assert not stage.fails(job, 0, failure=Failure("import-error", Blame.USER))
    for job in "ef":
        assert not stage.fails(job, 0)
    stage.runs("g", 0)
    assert not stage.ends("g", e.RunSucceeded(Run("g", 1)))
    for job in "hi":
        assert not stage.fails(job, 0)
    stage.runs("j", 0)
    stage.jobs["j"].began(0)
    stage.world.later(EARLY_MS / 1_000 + 1)
    lasted = e.RunFailed(Run("j", 1), retryable=False, failure=UNKNOWN)
    assert not stage.ends("j", lasted)
    assert not stage.fails("k", 0)


def test_of_a_gang_the_device_of_the_rank_that_failed_first_counts() -> None:
    stage = Stage()
    stage.runs("x", 2, 3)
    ranked = Failure("unknown", rank=1)

    def found(ranks: Ranks, failure: Failure) -> list[int]:
        return list(failed_devices(stage.world.topology, stage.world.job("x"), ranks, failure))

    assert found(Ranks.PER_GPU, ranked) == [3]
    assert found(Ranks.PER_GPU, UNKNOWN) == []
    assert found(Ranks.PER_NODE, ranked) == [], "its rank is not a device"
    assert found(Ranks.PER_GPU, replace(ranked, devices=("c", "a"))) == [2], "it had an XID"


def test_of_a_gang_with_a_process_for_each_node_the_device_counts_where_a_node_has_one() -> None:
    two_nodes = gpus(("n0", "H100", "ab"), ("n1", "H100", "cd"))
    world = Strings(two_nodes, can_freeze=False).running("x", 1, 2).running("y", 0, 3)
    launched = Failure("gpu-ecc-error", rank=0, process=1)
    first, other = world.job("x"), world.job("y")
    assert failed_devices(two_nodes, first, Ranks.PER_NODE, launched) == [2]
    assert failed_devices(two_nodes, other, Ranks.PER_NODE, replace(launched, process=0)) == [0]


def test_of_a_gang_the_gpu_that_had_the_xid_is_accused_and_avoided() -> None:
    stage, asides = Stage(), list[e.GpuSetAside]()
    for job in "xyz":
        stage.runs(job, 0, 1, 2)
        now = stage.world.later(1).now
        stage.looks(Look(readings=ALL, events=(GpuEvent("c", "xid", 94),)), now)
        failure = stage.health.blamed(Run(job, 1), Failure("unknown", rank=0), now)
        assert failure is not None
        assert (failure.reason, failure.rank, failure.devices) == ("gpu-xid-error", 0, ("c",))
        ecc = Failure("gpu-ecc-error", Blame.PLATFORM, rank=0)
        assert stage.health.blamed(Run(job, 1), ecc, now) == replace(ecc, devices=("c",))
        disk = Failure("disk-full", Blame.PLATFORM, rank=0)
        assert stage.health.blamed(Run(job, 1), disk, now) is disk
        at = stage.world.job(job).placement
        assert at is not None
        avoided = devices_of_failure(stage.world.topology, at, failure, Ranks.PER_GPU)
        assert avoided == ((0, 2),)
        asides += stage.ends(job, e.RunFailed(Run(job, 1), retryable=False, failure=failure))
    assert [each.gpu for each in asides] == [2]


def test_one_step_sets_no_more_aside_than_several_and_never_all() -> None:
    stage, broken = Stage(), Failure("cuda-init-failed", Blame.PLATFORM)
    for job, gpu in product("ab", range(4)):
        assert not stage.fails(f"{job}{'wxyz'[gpu]}", gpu, failure=broken)
    ends = []
    for gpu, job in enumerate(("cw", "cx", "cy", "cz")):
        stage.runs(job, gpu)
        ends.append(e.RunFailed(Run(job, 1), retryable=False, failure=broken))
    followed = stage.health.events_after(map(LoggedEvent, ends), stage.world.now)
    asides = [each.event for each in followed if isinstance(each.event, e.GpuSetAside)]
    assert [each.gpu for each in asides] == [0], "that is a quarter"


def test_a_pre_run_accuses_a_device_only_where_the_platform_is_known_to_be_at_fault() -> None:
    stage, ecc = Stage(), Failure("gpu-ecc-error", Blame.PLATFORM)
    for job in ("a", "b", "c", "d"):
        stage.runs(job, 0)
        assert stage.ends(job, e.RunPassed(Run(job, 1), UNKNOWN)) == [], "it may need more devices"
    for job in ("f", "g"):
        stage.runs(job, 0)
        assert stage.ends(job, e.RunPassed(Run(job, 1), ecc)) == []
    stage.runs("h", 0)
    assert [each.gpu for each in stage.ends("h", e.RunPassed(Run("h", 1), ecc))] == [0]
    stage.runs("i", 1)
    record = stage.jobs["i"].record
    assert record is not None
    record.demand_after_prerun = record.demand
    failed = LoggedEvent(e.RunFailed(Run("i", 1), retryable=False, failure=UNKNOWN))
    assert not stage.health.events_after([failed], stage.world.now)
    record.demand_after_prerun = None
    assert stage.health.events_after([failed], stage.world.now), "of any other run it counts"
