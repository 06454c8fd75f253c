"""The program that freezes CUDA processes, on the folder that plays the driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from trainmaster.gpu import checkpoint, checkpoint_walk, cuda_process, fake_driver
from trainmaster.gpu import freeze_conditions as conditions
from trainmaster.gpu.checkpoint_walk import Outcome
from trainmaster.gpu.driver import FAKE_GPUS
from trainmaster.gpu.freeze_conditions import Room

GIB = 1 << 30
NO = "CUDA_ERROR_NOT_SUPPORTED"
SIZE = 32 << 20


class Results:
    """As cuda.bindings has them: not an Enum of Python."""

    CUDA_ERROR_NOT_INITIALIZED = 3


FAULTS = ("lock", "checkpoint", "restore", "unlock", "state")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of two GPUs, on which nobody waits long."""
    monkeypatch.setenv(FAKE_GPUS, str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(checkpoint_walk, "EXIT_S", 0.2)
    monkeypatch.setattr(checkpoint_walk, "MEMORY_S", 0.1)
    return fake_driver.make_folder(tmp_path, gpus=2)


@pytest.fixture
def pids() -> Iterator[list[int]]:
    """Two processes of a run."""
    started = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    try:
        yield [each.pid for each in started]
    finally:
        for each in started:
            each.kill()
            each.wait()


def gpus(folder: Path) -> list[str]:
    return [gpu.uuid for gpu in fake_driver.FakeDriver(folder).gpus()]


def give(pids: list[int], folder: Path, size: int = SIZE, **said: object) -> None:
    for pid in pids:
        fake_driver.allocate(size, gpus(folder)[:1], pid=pid, folder=folder, **said)


def states(pids: list[int]) -> list[str | None]:
    return [fake_driver.state_of(pid) for pid in pids]


def freeze(pids: list[int]) -> tuple[Outcome, list[Mapping[str, object]]]:
    said: list[Mapping[str, object]] = []
    return checkpoint.freeze(pids, said.append, lambda: False, 100), said


def thaw(pids: list[int], moves: Mapping[str, str] | None = None) -> Outcome:
    return checkpoint.thaw(pids, lambda said: None, moves or {})


def calls(said: list[Mapping[str, object]]) -> list[tuple[object, object]]:
    return [(each["did"], each["pid"]) for each in said if "did" in each]


def test_the_table_leads_from_every_state_to_every_goal() -> None:
    after = {"lock": "locked", "checkpoint": "checkpointed", "restore": "locked"}
    after["unlock"] = "running"
    for goals, end in ((checkpoint_walk.FREEZE, "checkpointed"), (checkpoint_walk.THAW, "running")):
        for state in ("running", "locked", "checkpointed"):
            for goal in goals:
                while call := checkpoint_walk.next_call(state, goal):
                    state = after[call]
            assert state == end


def test_all_are_locked_before_one_is_checkpointed(folder: Path, pids: list[int]) -> None:
    give(pids, folder)
    one, two = pids
    outcome, said = freeze([os.getpid(), *pids])
    assert outcome == Outcome("frozen")
    assert said[0] == {"plan": pids, "bytes": 2 * SIZE}
    assert calls(said) == [
        ("lock", one), ("lock", two), ("checkpoint", one), ("checkpoint", two),
    ]  # fmt: skip
    assert states(pids) == ["checkpointed"] * 2
    assert freeze(pids)[0].end == "frozen", "again changes nothing"
    assert thaw(pids) == Outcome("running")
    assert thaw(pids) == Outcome("running")
    assert states(pids) == ["running"] * 2


def test_processes_without_a_gpu_are_left_alone(pids: list[int]) -> None:
    outcome, said = freeze(pids)
    assert (outcome.end, said) == ("frozen", [{"plan": [], "bytes": 0}])


def test_only_processes_that_may_have_cuda_state_are_asked(
    folder: Path, pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = fake_driver.FakeDriver(folder)
    assert checkpoint.candidates(pids, driver) == []
    monkeypatch.setattr(checkpoint, "has_cuda", lambda pid: pid == pids[0])
    assert checkpoint.candidates(pids, driver) == pids[:1]
    give(pids[1:], folder)
    assert checkpoint.candidates(pids, driver) == pids[1:]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("call", ["lock", "checkpoint"])
def test_one_failing_call_leaves_all_of_them_running(
    folder: Path, pids: list[int], call: str, which: int
) -> None:
    give(pids, folder)
    fake_driver.add_fault(call, pid=pids[which], folder=folder)
    outcome, _ = freeze(pids)
    assert (outcome.end, outcome.is_final) == ("running", False)
    assert f"could not {call} process {pids[which]}: error 999" in outcome.why
    assert states(pids) == ["running"] * 2


def test_a_process_that_cannot_be_walked_back_is_stuck(folder: Path, pids: list[int]) -> None:
    give(pids, folder)
    fake_driver.add_fault("checkpoint", pid=pids[1], folder=folder)
    fake_driver.add_fault("restore", pid=pids[0], folder=folder)
    assert freeze(pids)[0].end == "stuck"
    fake_driver.clear_faults(folder)
    assert thaw(pids).end == "running"
    fake_driver.set_state(pids[0], "failed", folder)
    assert "has failed process" in thaw(pids).why


@pytest.mark.parametrize("call", FAULTS)
def test_a_process_that_ends_meanwhile_is_no_fault(
    folder: Path, pids: list[int], call: str
) -> None:
    give(pids, folder)
    is_late = call in ("restore", "unlock")
    if is_late:
        freeze(pids)
    fake_driver.add_fault(call, "die", pid=pids[0], nth=2 if call == "state" else 1, folder=folder)
    outcome = thaw(pids) if is_late else freeze(pids)[0]
    assert outcome == Outcome("running" if is_late else "frozen")
    assert states(pids) == [None, "running" if is_late else "checkpointed"]


def test_what_the_driver_cannot_do_is_not_tried_again(folder: Path, pids: list[int]) -> None:
    give(pids[:1], folder, mps=True)
    outcome, _ = freeze(pids)
    assert (outcome.end, outcome.is_final, states(pids)[0]) == ("running", True, "running")
    assert "MPS" in outcome.why
    give(pids[1:], folder, managed=True)
    outcome, _ = freeze(pids[1:])
    assert (outcome.end, outcome.is_final, states(pids)[1]) == ("running", True, "running")


def test_gangs_with_nccl_are_not_touched(folder: Path, pids: list[int]) -> None:
    give(pids, folder, nccl=True)
    outcome, said = freeze(pids)
    assert (outcome.end, outcome.is_final, said) == ("running", True, [])
    assert "2 GPU processes are joined by NCCL" in outcome.why


def test_what_is_frozen_must_fit_into_host_memory(
    folder: Path, pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    give(pids, folder, GIB)
    monkeypatch.setattr(conditions, "machine_room", lambda needed: Room("here", GIB, needed))
    outcome, said = freeze(pids)
    assert (outcome.end, outcome.is_final, said) == ("running", False, [])
    assert outcome.why == (
        "It has 2.0 GiB on its GPUs, and only 1.0 GiB of host memory are left here."
    )


def test_conditions_have_a_sentence_each() -> None:
    assert conditions.driver_refusal("580.159.04") is None
    assert "this is 550.54" in str(conditions.driver_refusal("550.54"))
    assert "none answers here" in str(conditions.driver_refusal(""))
    assert conditions.device_refusal(["GPU-1"], False) is None
    assert "MIG" in str(conditions.device_refusal(["MIG-1"], False))
    assert "MPS" in str(conditions.device_refusal(["GPU-1"], True))
    assert conditions.nccl_refusal(1, True) is None
    assert conditions.machine_room(0).left > 0
    assert all(room.needed == 7 for room in conditions.cgroup_rooms({os.getpid(): 7}))


@pytest.mark.parametrize(("version", "prefix"), [(1, "total_"), (2, "")])
def test_processes_of_one_control_group_need_room_for_all_of_them_and_caches_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, prefix: str
) -> None:
    for name, left, cached in (("shared", 10, 0), ("shared/1", 8, 3), ("shared/2", 8, 0)):
        group = tmp_path / name
        group.mkdir()
        most, used, _ = conditions.FILES[version]
        (group / most).write_text("100\n")
        (group / used).write_text(f"{100 - left}\n")
        stat = f"anon 60\n{prefix}inactive_file {cached}\n{prefix}active_file {cached}\n"
        (group / "memory.stat").write_text(stat)
    monkeypatch.setattr(
        conditions,
        "cgroups_of",
        lambda pid: [
            (str(tmp_path / f"shared/{pid}"), version),
            (str(tmp_path / "shared"), version),
        ],
    )
    rooms = {(room.left, room.needed) for room in conditions.cgroup_rooms({1: 6, 2: 7})}
    assert rooms == {(14, 6), (8, 7), (10, 13)}


def test_limits_count_also_where_the_driver_numbers_processes_otherwise(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Mapping[int, int]] = []
    monkeypatch.setattr(conditions, "cgroup_rooms", lambda held: asked.append(held) or [])
    found = {pid: cuda_process.FakeProcess(pid, folder) for pid in (1, 2)}
    assert checkpoint.refusal(found, {}, 7) is None
    assert checkpoint.refusal(found, {1: 3, 2: 4}, 7) is None
    assert asked == [{1: 4, 2: 4}, {1: 3, 2: 4}]


def test_only_its_own_gpus_count_where_the_driver_numbers_processes_otherwise(
    folder: Path, pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = gpus(folder)
    mine, neighbour = pids
    fake_driver.allocate(SIZE, [own], pid=mine, folder=folder)
    fake_driver.allocate(4 * SIZE, [other], pid=neighbour, folder=folder)
    monkeypatch.setattr(fake_driver.FakeDriver, "processes", lambda driver: ())
    monkeypatch.setattr(checkpoint, "has_cuda", lambda pid: True)
    used = {each.uuid: each.memory_used for each in fake_driver.FakeDriver(folder).readings()}
    said: list[Mapping[str, object]] = []
    outcome = checkpoint.freeze([mine], said.append, lambda: False, 100, [own])
    assert outcome.end == "frozen"
    assert said[0] == {"plan": [mine], "bytes": used[own]}


def test_the_control_groups_of_a_process_end_at_the_root() -> None:
    groups = conditions.cgroups_of(os.getpid())
    assert len(groups) == len(set(groups))
    assert {folder for folder, _ in groups} & {"/sys/fs/cgroup", "/sys/fs/cgroup/memory"}
    assert conditions.cgroups_of(2**22 + 1) == []


def test_an_old_driver_is_left_alone(folder: Path, pids: list[int]) -> None:
    fake_driver.make_folder(folder, gpus=1, driver_version="550.54.15")
    give(pids, folder)
    outcome, said = freeze(pids)
    assert (outcome.end, outcome.is_final, said) == ("running", True, [])


def test_it_turns_round_when_it_is_not_wanted_any_more(folder: Path, pids: list[int]) -> None:
    give(pids, folder)
    said: list[Mapping[str, object]] = []
    outcome = checkpoint.freeze(pids, said.append, lambda: len(said) >= 4, 100)
    assert outcome.end == "running"
    assert [call for call, _ in calls(said)] == [
        *("lock", "lock", "checkpoint"),
        *("restore", "unlock", "unlock"),
    ]
    assert states(pids) == ["running"] * 2


def test_a_restore_waits_for_memory_that_is_being_given_back(
    folder: Path, pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pids
    give([one], folder, 100 * GIB)
    monkeypatch.setattr(conditions, "machine_room", lambda needed: Room("here", needed, needed))
    freeze([one])
    give([two], folder, 100 * GIB)
    stuck = thaw([one])
    assert (stuck.end, states([one])) == ("stuck", ["checkpointed"])
    assert "error 2 (out of memory)" in stuck.why
    monkeypatch.setattr(checkpoint_walk.time, "sleep", lambda s: fake_driver.release(two, folder))
    assert thaw([one]).end == "running"


def test_a_process_that_the_driver_does_not_know_is_running_only_if_it_has_ended(
    folder: Path, pids: list[int]
) -> None:
    give(pids, folder)
    freeze(pids)
    fake_driver.add_fault(
        "state", pid=pids[1], nth=1, code=cuda_process.NOT_INITIALIZED, folder=folder
    )
    stuck = thaw(pids)
    assert (stuck.end, stuck.is_final) == ("stuck", False)
    assert stuck.why == f"The driver does not know process {pids[1]} any more, which has not ended."
    assert states(pids) == ["checkpointed"] * 2
    fake_driver.clear_faults(folder)
    assert thaw(pids).end == "running"
    os.kill(pids[1], signal.SIGKILL)
    fake_driver.release(pids[1], folder)
    assert thaw(pids).end == "running"


def test_the_map_names_every_gpu_of_the_machine() -> None:
    assert checkpoint.full_map({"a": "a"}, "abc") == {}
    assert checkpoint.full_map({"a": "b"}, "abc") == {"a": "b", "b": "a", "c": "c"}
    assert checkpoint.full_map({"a": "b", "b": "c"}, "abc") == {"a": "b", "b": "c", "c": "a"}


def test_a_frozen_process_goes_on_on_another_gpu(folder: Path, pids: list[int]) -> None:
    first, second = gpus(folder)
    give(pids[:1], folder)
    freeze(pids)
    assert thaw(pids[:1], {first: "7"}).why == "This machine has no GPU 7."
    assert states(pids)[0] == "checkpointed"
    assert thaw(pids[:1], {"0": second}).end == "running"
    assert fake_driver.process_of(pids[0], folder)["gpus"] == {second: SIZE}


def test_exceptions_of_cuda_core_have_a_number() -> None:
    for words, code, said in (
        ("CUDA_ERROR_NOT_INITIALIZED: initialization error", 3, "CUDA_ERROR_NOT_INITIALIZED"),
        ("CUDA checkpointing is not supported by the installed NVIDIA driver.", 801, NO),
        ("something else", 999, None),
    ):
        fault = cuda_process.fault_of(words, Results)
        assert (fault.code, str(fault)) == (code, said or words)
    assert cuda_process.is_nccl_thread("NCCL Service 0")
    assert not cuda_process.is_nccl_thread("python")
    assert cuda_process.thread_names(os.getpid())


def test_the_program_speaks_json(folder: Path, pids: list[int]) -> None:
    give(pids, folder)
    program = [sys.executable, "-P", "-m", "trainmaster.gpu.checkpoint"]

    def run(*words: object) -> tuple[int, list[dict[str, object]]]:
        done = subprocess.run([*program, *map(str, words)], capture_output=True, text=True)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    code, said = run("freeze", *pids)
    assert (code, said[-1]["end"]) == (0, "frozen")
    assert "gpu_bytes" not in said[-1], "the driver lists checkpointed processes no more"
    code, said = run("state", *pids, os.getpid())
    assert [each["state"] for each in said] == ["checkpointed", "checkpointed", None]
    code, said = run("thaw", *pids)
    assert (code, said[-1]["end"], said[-1]["gpu_bytes"]) == (0, "running", 2 * SIZE)
    assert run("thaw")[0] == run("thaw", "--map", "a", "1")[0] == 2


class Process:
    """As cuda.core has it, of a driver that says what it is told to."""

    said: object = "running"

    def __init__(self, pid: int) -> None:
        self.calls: list[object] = []

    @property
    def state(self) -> object:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said

    def restore(self, pairs: object) -> None:
        self.calls.append(pairs)


def test_the_drivers_answers_are_read_as_cuda_core_gives_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = cuda_process.DriverProcess(os.getpid(), Process, Results)
    assert process.state() == "running"
    monkeypatch.setattr(Process, "said", RuntimeError("Unknown CUDA checkpoint process state: 4"))
    assert process.state() == cuda_process.BUSY
    monkeypatch.setattr(Process, "said", Exception("CUDA_ERROR_NOT_INITIALIZED: no"))
    with pytest.raises(cuda_process.CudaFault) as fault:
        process.state()
    assert fault.value.code == 3
    process.restore({})
    process.restore({"GPU-1-2": "GPU-3"})
    assert process._process.calls == [None, {"1-2": "3"}]
    assert not process.has_communicators()
