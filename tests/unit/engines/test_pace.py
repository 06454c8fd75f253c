"""How far an opportunistic run is held back: the law, the files between supervisors, and both together."""

from __future__ import annotations

import math
import os
import selectors
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from trainmaster.engines.local import gpu_neighbours, pace_keeper, runfile
from trainmaster.engines.local.control_socket import ControlSocket
from trainmaster.engines.local.duty_cycle import PERIOD_S, DutyCycle
from trainmaster.engines.local.freezer_choice import gpu_names
from trainmaster.engines.local.gpu_neighbours import Notice
from trainmaster.engines.local.pace_keeper import PaceKeeper, StepClock
from trainmaster.engines.local.pace_law import Pace, next_pace, slowdown_ppm
from trainmaster.engines.local.run_pacing import RunPacing
from trainmaster.engines.local.runfile import CgroupPlan, RankSpec, RunFile
from trainmaster.engines.local.worker_environment import Host, rebound, run_file
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.placement import Placement, Role, Sharing, Slice
from trainmaster.model.topology import parse_shorthand
from trainmaster_sdk.pacing import pause_s
from trainmaster_sdk.wire import Message

TOLERANCE = 30_000


@pytest.mark.parametrize(("pace", "pause"), [(100, 0), (50, 80), (20, 320), (0, math.inf)])
def test_a_step_of_80_ms_is_followed_by_a_pause(pace: int, pause: float) -> None:
    assert pause_s(80, pace) == pause


def test_a_step_of_110_ms_instead_of_100_lowers_the_pace_at_once() -> None:
    slowdown = slowdown_ppm(110_000, 100_000)
    assert slowdown == 100_000
    assert next_pace(Pace(), slowdown, TOLERANCE).percent == 50
    assert next_pace(Pace(), slowdown_ppm(103_000, 100_000), TOLERANCE).percent == 100
    assert slowdown_ppm(90_000, 100_000) == 0


def paces(pace: Pace, *slowdowns: int) -> list[int]:
    found = []
    for each in slowdowns:
        pace = next_pace(pace, each, TOLERANCE)
        found.append(pace.percent)
    return found


def test_it_is_cut_quickly_and_recovers_slowly() -> None:
    assert paces(Pace(), *[50_000] * 6) == [50, 25, 12, 6, 0, 0]
    assert paces(Pace(50), *[0] * 7) == [50, 50, 55, 55, 55, 60, 60]
    assert paces(Pace(98), *[0] * 4) == [98, 98, 100, 100]


def test_what_cannot_be_borne_at_all_is_tried_more_and_more_rarely() -> None:
    pace, waits = Pace(5), []
    for _ in range(4):
        pace, waited = next_pace(pace, 50_000, TOLERANCE), 0
        assert pace.percent == 0
        while pace.percent == 0:
            pace, waited = next_pace(pace, 0, TOLERANCE), waited + 1
        waits.append(waited)
    assert waits == [6, 12, 24, 48]
    while pace.percent < 30:
        pace = next_pace(pace, 0, TOLERANCE)
    assert pace.patience == 3, "it is borne after all"


def test_notices_are_read_by_others_while_they_are_fresh(tmp_path: Path) -> None:
    folder, mine = str(tmp_path / "gpus"), Notice("1.1", "guaranteed", at=100.0, step_us=7)
    assert gpu_neighbours.read(folder, ["vm:0"], "2.1", 100.0) == []
    gpu_neighbours.write(folder, ["vm:0", "vm:1"], mine)
    assert gpu_neighbours.read(folder, ["vm:1", "vm:0"], "2.1", 101.0) == [mine]
    assert gpu_neighbours.read(folder, ["vm:2"], "2.1", 101.0) == []
    assert gpu_neighbours.read(folder, ["vm:0"], "1.1", 101.0) == [], "its own"
    assert gpu_neighbours.read(folder, ["vm:0"], "2.1", 106.0) == [], "its supervisor has died"
    Path(folder, "vm:0", "3.1.json").write_text('{"of": "another version"}')
    Path(folder, "vm:0", "4.1.json").write_text("torn")
    assert gpu_neighbours.read(folder, ["vm:0"], "2.1", 101.0) == [mine]
    gpu_neighbours.remove(folder, ["vm:0", "vm:1"], "1.1")
    assert gpu_neighbours.read(folder, ["vm:1"], "2.1", 101.0) == []


def test_files_of_killed_supervisors_are_removed_after_an_hour(tmp_path: Path) -> None:
    folder, place = str(tmp_path), tmp_path / "vm:0"
    gpu_neighbours.write(folder, ["vm:0"], Notice("1.1", "guaranteed", at=100.0))
    gpu_neighbours.write(folder, ["vm:0"], Notice("2.1", "guaranteed", at=4000.0))
    for name in ("3.1.json", "4.1.json.new"):  # of another version, and cut off in the middle
        (place / name).write_text("{")
        os.utime(place / name, (100.0, 100.0))
    gpu_neighbours.read(folder, ["vm:0"], "9.1", 100.0 + gpu_neighbours.KEEP_S)
    assert len(list(place.iterdir())) == 4
    gpu_neighbours.read(folder, ["vm:0"], "9.1", 101.0 + gpu_neighbours.KEEP_S)
    assert [each.name for each in place.iterdir()] == ["2.1.json"]


def test_a_clock_tells_steps_alone_from_steps_beside_others() -> None:
    clock = StepClock()
    clock.set_alone(True, 0.0)
    for tick in range(100):
        clock.count(tick, tick * 0.1)
    assert clock.step_us == pytest.approx(100_000, rel=0.01)
    assert clock.alone_us == pytest.approx(100_000, rel=0.01)
    clock.set_alone(False, 10.0)
    for tick in range(100):
        clock.count(100 + tick, 10 + tick * 0.2)
    assert clock.step_us == pytest.approx(200_000, rel=0.01)
    assert clock.alone_us == pytest.approx(100_000, rel=0.01)
    clock.reset()
    clock.count(300, 1000.0)
    assert clock.step_us == pytest.approx(200_000, rel=0.01), (
        "the time of a suspension counts for nothing"
    )
    clock.count(5, 1001.0)  # it has started again
    clock.count(15, 1002.0)
    assert clock.step_us == 100_000


def test_the_run_file_says_its_role_and_follows_it() -> None:
    topology = parse_shorthand("1x2")
    host = Host(topology, ("GPU-a", "GPU-b"), CgroupPlan(), (), "/state/runs/.gpus")
    spec = LaunchSpec(("true",), "/", "", tolerance_ppm=50_000)
    guest = Placement((Slice(0, 1),), 0, Sharing.TIME, Role.OPPORTUNISTIC)
    file = run_file(Run("1", 1), guest, spec, host, "/tmp/x.sock", 0)
    assert (file.role, file.tolerance_ppm) == ("opportunistic", 50_000)
    assert file.gpus_folder == "/state/runs/.gpus"
    assert len(gpu_names(file)) == 1
    promoted = rebound(file, replace(guest, role=Role.GUARANTEED), spec, host)
    assert promoted.role == "guaranteed"
    on_slots = run_file(Run("1", 1), guest, spec, replace(host, uuids=()), "/tmp/x.sock", 0)
    assert (on_slots.role, on_slots.gpus_folder, gpu_names(on_slots)) == ("", "", [])


def gpus_of(run: RunFile) -> list[str]:
    return run.ranks[0].env.get("TRAINMASTER_DEVICES", "vm:0").split(",")


class Shared:
    """A guaranteed and an opportunistic run on one GPU; time is played, steps follow the pace."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(pace_keeper.time, "time", lambda: self.now)
        monkeypatch.setattr(pace_keeper.time, "monotonic", lambda: self.now)
        self.folder = folder
        self.paces: list[int] = []
        self.said: list[Message] = []
        self.steps = 0.0
        self.guest_pace = 100
        self.guaranteed = self.keeper("1.1", "guaranteed", lambda pace: None)
        self.guest: PaceKeeper | None = None

    def keeper(self, name: str, role: str, ask: Callable[[int], None]) -> PaceKeeper:
        place = self.folder / name
        place.mkdir()
        run = RunFile(
            name=name,
            generation=0,
            workdir="/",
            env={},
            ranks=(RankSpec(("true",), {}),),
            socket="",
            grace_ms=0,
            log_bytes=0,
            log_files=0,
            placement="",
            cgroups=CgroupPlan(),
            role=role,
            tolerance_ppm=TOLERANCE,
            gpus_folder=str(self.folder / "gpus"),
        )
        runfile.write(str(place), run)
        return PaceKeeper(
            str(place),
            run,
            gpus_of,
            ask,
            lambda what, said: self.said.append({"what": what, **said}),
        )

    def bring_guest(self) -> None:
        def ask(pace: int) -> None:
            self.guest_pace = pace
            self.paces.append(pace)

        self.guest_pace = 100
        self.guest = self.keeper("2.1", "opportunistic", ask)

    def run(
        self, seconds: float, slowdown_of: Callable[[int], float], reports: bool = True
    ) -> None:
        """A step takes 10 ms alone, and so much longer beside a guest of this pace."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            pace = self.guest_pace if self.guest is not None else 0
            self.steps += 10 / (1 + slowdown_of(pace))
            if reports:
                self.guaranteed.step_done(int(self.steps))
            self.guaranteed.tick(self.now, False)
            if self.guest is not None:
                self.guest.tick(self.now, False)


@pytest.fixture(name="shared")
def fixture_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shared:
    """A guest has just come to one that was alone long enough to know its speed."""
    shared = Shared(tmp_path, monkeypatch)
    shared.run(10, lambda pace: 0.0)
    shared.bring_guest()
    return shared


def test_a_guest_that_hurts_is_held_back_until_it_does_not(shared: Shared) -> None:
    shared.run(
        300, lambda pace: pace / 100 * 0.10
    )  # 10 % slower at full speed: 30 % of it can be borne
    late = shared.paces[-8:]
    assert max(late) <= 40
    assert min(late) >= 12
    why = next(
        said["why"] for said in shared.said if said["pace"] < 100 and "longer" in said["why"]
    )
    assert why.startswith("A step of job 1 takes ")
    assert why.endswith(" longer than alone; its tolerance is 3 %.")


def test_a_guest_that_does_no_harm_gets_all(shared: Shared) -> None:
    shared.run(200, lambda pace: pace / 100 * 0.01)
    assert (shared.paces[0], shared.paces[-1]) == (25, 100)
    assert shared.said[-1]["pace"] == 100


def test_a_guest_that_cannot_be_borne_stands_still(shared: Shared) -> None:
    harmed = 0.0

    def hurts(pace: int) -> float:
        nonlocal harmed
        harmed += 0.1 if pace else 0.0
        return 0.5 if pace else 0.0

    shared.run(600, hurts)
    assert set(shared.paces[3:]) <= {0, 5}
    assert harmed < 60, "tenth of the time, less and less"


def test_a_guest_waits_until_it_is_known_how_fast_the_other_is_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared(tmp_path, monkeypatch)
    shared.bring_guest()
    shared.run(5, lambda pace: 0.0, reports=False)
    assert shared.paces == [], "one that says nothing of its steps cannot be measured"
    shared.run(15, lambda pace: pace / 100 * 0.01)
    assert shared.paces[:2] == [0, 25]
    assert shared.said[0] == {
        "what": "paced",
        "pace": 0,
        "why": "How fast job 1 is alone is being measured.",
        "is_heeded": True,
    }


def test_a_guest_does_not_wait_for_ever_for_one_that_makes_no_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared(tmp_path, monkeypatch)
    shared.bring_guest()
    shared.run(2, lambda pace: 0.0)
    assert shared.guest_pace == 0, "how fast the other one is alone is not known yet"
    shared.run(100, lambda pace: 0.0, reports=False)
    assert shared.guest_pace == 0
    shared.run(30, lambda pace: 0.0, reports=False)
    assert shared.guest_pace == 100
    shared.run(3, lambda pace: 0.0)
    assert shared.guest_pace < 100, "it trains again"


def test_left_alone_promoted_or_told_to_stop_a_guest_has_full_speed(
    shared: Shared, tmp_path: Path
) -> None:
    shared.run(20, lambda pace: 0.5 if pace else 0.0)
    assert shared.guest is not None
    assert shared.guest.pace < 100
    shared.guest.close()
    assert shared.paces[-1] == 100
    assert gpu_neighbours.read(str(tmp_path / "gpus"), ["vm:0"], "", shared.now)[0].run == "1.1"

    other = shared.keeper("3.1", "opportunistic", shared.paces.append)
    shared.guest = other
    shared.run(20, lambda pace: 0.5)
    assert other.pace < 100
    file = runfile.read(str(tmp_path / "3.1"))
    runfile.write(str(tmp_path / "3.1"), replace(file, role="guaranteed"))
    shared.run(2, lambda pace: 0.0)
    assert other.pace == 100
    assert shared.said[-1] == {"what": "paced", "pace": 100, "why": "", "is_heeded": True}


def test_a_suspended_run_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Shared(tmp_path, monkeypatch)
    shared.bring_guest()
    shared.run(3, lambda pace: 0.0)
    assert shared.guest is not None
    shared.now += 2
    shared.guaranteed.tick(shared.now, True)
    assert gpu_neighbours.read(str(tmp_path / "gpus"), ["vm:0"], "2.1", shared.now) == []


def test_a_run_that_goes_on_on_another_gpu_is_seen_there(shared: Shared, tmp_path: Path) -> None:
    shared.run(3, lambda pace: 0.0)
    assert shared.guest is not None
    assert shared.guest.pace < 100
    file = runfile.read(str(tmp_path / "2.1"))
    moved = replace(file.ranks[0], env={"TRAINMASTER_DEVICES": "vm:1"})
    shared.guest.tick(shared.now + 1, True)  # it is frozen, and told to go on elsewhere
    runfile.write(str(tmp_path / "2.1"), replace(file, ranks=(moved,)))
    shared.run(2, lambda pace: 0.0)
    gpus = str(tmp_path / "gpus")
    assert shared.guest.pace == 100, "nobody is there"
    assert gpu_neighbours.read(gpus, ["vm:0"], "1.1", shared.now) == []
    assert [each.run for each in gpu_neighbours.read(gpus, ["vm:1"], "", shared.now)] == ["2.1"]


@pytest.mark.parametrize(("sharing", "first_held_s"), [("time", 60), ("mps", None)])
def test_a_silent_guest_that_is_not_stopped_is_not_taken_for_one_that_stands_still(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, sharing: str, first_held_s: int | None
) -> None:
    """Else the guaranteed run would take its speed beside the guest for its speed alone."""
    shared.guest = None
    monkeypatch.setattr("trainmaster.engines.local.duty_cycle.freeze", lambda members: True)
    began, gpus = shared.now, str(shared.folder / "gpus")
    on_gpu = RankSpec(("true",), {"CUDA_VISIBLE_DEVICES": "GPU-a", "TRAINMASTER_DEVICES": "vm:0"})
    run = replace(runfile.read(str(shared.folder / "2.1")), ranks=(on_gpu,), sharing=sharing)
    runfile.write(str(shared.folder / "2.1"), run)
    with selectors.DefaultSelector() as selector:
        control = ControlSocket(str(shared.folder / "2.sock"), selector, lambda *said: None)
        guest = RunPacing(
            str(shared.folder / "2.1"),
            run,
            list,
            control,
            lambda what, said: shared.said.append({"what": what, "at": shared.now - began, **said}),
        )
        held = []
        for _ in range(900):
            is_stopped = guest.pace == 0 and shared.now > began + (first_held_s or math.inf)
            shared.run(0.1, lambda pace, slower=0.0 if is_stopped else 0.5: slower)
            guest.tick(shared.now, is_suspended=False, is_stopping=False)
            (notice,) = gpu_neighbours.read(gpus, ["vm:0"], "1.1", shared.now)
            if guest.pace == 0 and notice.pace == 0:
                held.append(shared.now - began)
        control.close()
    assert held == [] if first_held_s is None else held[0] >= first_held_s
    told = [(said["is_heeded"], said["at"]) for said in shared.said if said["pace"] == 0]
    assert told[0][0] is False, "it is not told to be held back while it runs at full speed"
    assert all(at >= (first_held_s or math.inf) for is_heeded, at in told if is_heeded)
    assert any(is_heeded for is_heeded, _ in told) == (first_held_s is not None)
    (guaranteed,) = gpu_neighbours.read(gpus, ["vm:0"], "2.1", shared.now)
    assert guaranteed.alone_us == pytest.approx(10_000, rel=0.02)


def test_a_silent_program_runs_for_its_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []
    monkeypatch.setattr(
        "trainmaster.engines.local.duty_cycle.freeze", lambda members: not did.append("stop")
    )
    monkeypatch.setattr(
        "trainmaster.engines.local.duty_cycle.thaw", lambda members: did.append("go")
    )
    duty = DutyCycle(list)
    assert duty.due_at is None
    duty.pace = 20
    ran, now, last = 0.0, 0.0, 0.0
    for _ in range(100):
        now = duty.due_at or 0.0
        if did and did[-1] == "go":
            ran += now - last
        duty.tick(now)
        last = now
    assert ran / now == pytest.approx(0.2, abs=0.02)
    assert did[:4] == ["stop", "go", "stop", "go"]
    duty.pace = 0
    duty.tick(now + PERIOD_S)
    duty.tick(now + 2 * PERIOD_S)
    assert did[-1] == "stop"
    duty.pace = 100
    duty.tick(now)
    assert did[-1] == "go"
    assert duty.due_at is None
    duty.pace = 0
    duty.tick(now + 3 * PERIOD_S)
    duty.end()
    assert did[-1] == "go"
    assert duty.due_at is None, "nobody ticks while it is suspended: its supervisor would not sleep"
