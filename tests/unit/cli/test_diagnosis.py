"""The checks of `doctor` on facts that are made up: what cannot be made for real everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from trainmaster.cli.diagnosis.checks import CHECKS, Verdict, findings
from trainmaster.cli.diagnosis.facts import (
    Answer,
    Cluster,
    Facts,
    FileSystem,
    Folder,
    GpuDevice,
    Gpus,
    Machine,
    Manager,
    Place,
    Runs,
    StoreFacts,
)
from trainmaster.cli.diagnosis.machine import is_stranger

DISK = FileSystem("ext4", frozenset({"rw"}), 100 << 30, 1_000_000)
NFS = FileSystem("nfs4", frozenset({"rw", "hard"}), 100 << 30, None)
CLUSTER = Cluster("ray", "10.0.0.1:6379", True, True)
ANSWER = Answer(True, "active", "1.0", "", (), 1.0)
GPU = GpuDevice("H200", "GPU-1", True, 0, False, "", ())
WELL = Facts(
    machine=Machine(
        (3, 12), "Linux 6", True, 65536, (), True, DISK, 8 << 30, 1, True, (), True, 10_000
    ),
    folder=Folder("/data", True, 1000, 1000, True, DISK, (), 0o600, 1000, "home", False),
    store=StoreFacts(
        url="sqlite:////data/trainmaster.db",
        is_there=True,
        trouble="",
        problem="",
        schema="0005",
        newest_schema="0005",
        knows_schema=True,
        bytes=1 << 20,
        is_led=True,
        is_on_server=False,
        backup_age_s=3600.0,
        copy_age_s=60.0,
        seq=7,
        newest_ms=9_000,
        home="home",
        store="store",
        mark_store="store",
        mark_seq=7,
        unknown_runs=(),
    ),
    manager=Manager(
        own_version="1.0",
        address="alive",
        pid=7,
        url="https://127.0.0.1:8470",
        socket="/tmp/x.sock",
        processes=(7,),
        by_socket=ANSWER,
        by_port=ANSWER,
        port=8470,
        port_users=(1000,),
        stale_sockets=(),
        certificate_days=300.0,
        certificate_trouble="",
    ),
    gpus=Gpus("580.1", "", True, (GPU,), True, True),
    runs=Runs(("1.1",), (), ()),
    places=(Place("/work", ("1",), "working folder", "", NFS, None),),
)


def with_machine(**fields: object) -> Facts:
    return replace(WELL, machine=replace(WELL.machine, **fields))  # type: ignore[arg-type]


def with_folder(**fields: object) -> Facts:
    return replace(WELL, folder=replace(WELL.folder, **fields))  # type: ignore[arg-type]


def with_store(**fields: object) -> Facts:
    return replace(WELL, store=replace(WELL.store, **fields))  # type: ignore[arg-type]


def with_manager(**fields: object) -> Facts:
    return replace(WELL, manager=replace(WELL.manager, **fields))  # type: ignore[arg-type]


def with_gpus(**fields: object) -> Facts:
    return replace(WELL, gpus=replace(WELL.gpus, **fields))  # type: ignore[arg-type]


def with_gpu(**fields: object) -> Facts:
    return with_gpus(devices=(replace(GPU, **fields),))  # type: ignore[arg-type]


def with_place(**fields: object) -> Facts:
    return replace(WELL, places=(replace(WELL.places[0], **fields),))  # type: ignore[arg-type]


def with_cluster(**fields: object) -> Facts:
    return replace(WELL, cluster=replace(CLUSTER, **fields))  # type: ignore[arg-type]


SOFT = replace(NFS, options=frozenset({"rw", "soft"}))
CASES: list[tuple[Facts, str, Verdict, str]] = [
    (with_machine(python=(3, 10)), "python", Verdict.FAULT, "3.10"),
    (
        replace(
            with_machine(interpreter_remark="Other users cannot run it."),
            folder=replace(WELL.folder, serves_users=True),
        ),
        "interpreter",
        Verdict.FAULT,
        "cannot run it",
    ),
    (
        with_machine(cgroup_remarks=("Limits are not kept.",)),
        "control-groups",
        Verdict.WARNING,
        "kept",
    ),
    (
        with_machine(cgroup_remarks=("Limits are not kept.", "Some hide."), filters_devices=False),
        "control-groups",
        Verdict.WARNING,
        "Some hide. Jobs are told which GPUs are theirs, and nothing keeps them",
    ),
    (with_machine(open_files=2048), "open-files", Verdict.WARNING, "2048"),
    (with_machine(shm_bytes=64 << 20), "shared-memory", Verdict.WARNING, "64 MiB"),
    (with_machine(has_py_spy=False), "stacks", Verdict.WARNING, "py-spy"),
    (with_machine(ptrace_scope=2), "stacks", Verdict.WARNING, "ptrace_scope 2"),
    (with_machine(clock_is_synchronised=False), "time-server", Verdict.WARNING, "synchronised"),
    (with_machine(now_ms=-100_000), "clock", Verdict.FAULT, "set back"),
    (with_folder(owner=7), "data-folder", Verdict.FAULT, "id 7"),
    (with_folder(mode=0o777), "data-folder", Verdict.FAULT, "Others can change"),
    (with_manager(address="none"), "address", Verdict.FAULT, "Process 7 uses the data folder"),
    (with_folder(is_writable=False), "data-folder", Verdict.FAULT, "cannot be written"),
    (with_folder(file_system=replace(DISK, free=1 << 20)), "disk-space", Verdict.FAULT, "1 MiB"),
    (
        with_folder(file_system=replace(DISK, free=2 << 30)),
        "disk-space",
        Verdict.WARNING,
        "2.0 GiB",
    ),
    (with_folder(file_system=replace(DISK, inodes_free=9)), "inodes", Verdict.FAULT, "Only 9"),
    (with_folder(file_system=NFS), "network-disk", Verdict.FAULT, "can be damaged"),
    (
        replace(with_folder(file_system=NFS), store=replace(WELL.store, is_on_server=True)),
        "network-disk",
        Verdict.WARNING,
        "nfs4",
    ),
    (with_store(schema="0004"), "store-schema", Verdict.WARNING, "0004"),
    (with_store(mark_store="other"), "store-of-folder", Verdict.FAULT, "another database"),
    (with_store(backup_age_s=None, copy_age_s=None), "last-backup", Verdict.WARNING, "No backup"),
    (with_store(bytes=9 << 30), "store", Verdict.WARNING, "9.0 GiB"),
    (with_store(is_led=False), "store-lease", Verdict.FAULT, "nobody holds the lock"),
    (with_manager(by_port=None), "manager-answers", Verdict.FAULT, "does not answer at"),
    (with_manager(address="dead", processes=(9,)), "address", Verdict.FAULT, "process 9"),
    (
        with_manager(by_socket=replace(ANSWER, trouble="Its disk is full.")),
        "manager-health",
        Verdict.FAULT,
        "Its disk is full.",
    ),
    (
        with_manager(by_socket=replace(ANSWER, notes=("One.", "Two."))),
        "manager-health",
        Verdict.WARNING,
        "One. (and 1 more)",
    ),
    (
        with_manager(by_socket=replace(ANSWER, version="0.9")),
        "manager-version",
        Verdict.WARNING,
        "0.9",
    ),
    (with_manager(by_port=Answer(False)), "port", Verdict.WARNING, "another program"),
    (with_manager(certificate_days=3.5), "certificate", Verdict.WARNING, "3 days"),
    (with_gpus(trouble="it hangs", devices=()), "gpu-driver", Verdict.FAULT, "it hangs"),
    (with_gpus(devices=()), "gpu-driver", Verdict.FAULT, "the driver shows none"),
    (with_gpus(has_cuda_core=False), "gpu-suspending", Verdict.WARNING, "cuda-core"),
    (with_gpus(has_mps=False), "gpu-sharing", Verdict.WARNING, "time-slicing"),
    (with_gpu(persistence=False), "gpu-persistence", Verdict.WARNING, "Persistence mode is off"),
    (with_gpu(ecc_errors=2), "gpu-errors", Verdict.FAULT, "2 uncorrected memory errors"),
    (with_gpu(trouble="GPU is lost"), "gpu-errors", Verdict.FAULT, "GPU is lost"),
    (with_gpu(others=((99, 1 << 30),)), "gpu-other-programs", Verdict.WARNING, "Process 99"),
    (with_cluster(answers=False), "cluster", Verdict.FAULT, "10.0.0.1:6379 does not answer"),
    (with_cluster(has_client=False), "cluster", Verdict.FAULT, "Ray is not installed"),
    (with_cluster(refusal="It asks for a token."), "cluster", Verdict.WARNING, "asks for a token"),
    (
        replace(
            with_cluster(refusal="It asks for a token."),
            manager=replace(WELL.manager, by_socket=None, by_port=None),
        ),
        "cluster",
        Verdict.FAULT,
        "asks for a token",
    ),
    (
        with_place(trouble="is not there"),
        "job-folders",
        Verdict.FAULT,
        "/work of job 1 is not there",
    ),
    (with_place(file_system=SOFT), "shared-storage", Verdict.FAULT, "soft"),
    (with_place(fsync_s=2.5), "shared-storage", Verdict.WARNING, "2.5 s"),
]


def test_a_healthy_machine_has_only_what_is_in_order() -> None:
    assert {each.check for each in findings(WELL) if each.verdict is not Verdict.OK} == set()


def test_another_manager_at_the_usual_port_says_nothing_of_this_folder() -> None:
    other = replace(ANSWER, version="0.9", trouble="Its disk is full.")
    facts = with_manager(address="none", by_socket=None, by_port=other, socket="", url="")
    found = {
        each.check for each in findings(replace(facts, store=replace(WELL.store, is_led=False)))
    }
    assert not {"manager-health", "manager-version", "store-lease"} & found


@pytest.mark.parametrize(("facts", "check", "verdict", "words"), CASES)
def test_one_thing_that_is_wrong_is_one_finding(
    facts: Facts, check: str, verdict: Verdict, words: str
) -> None:
    bad = {each.check: each for each in findings(facts) if each.verdict is not Verdict.OK}
    assert check in bad
    assert bad[check].verdict is verdict
    assert words in bad[check].sentence
    assert bad[check].advice


def test_every_check_has_a_sentence_for_every_case() -> None:
    for facts in (WELL, *(case[0] for case in CASES)):
        for found in findings(facts):
            assert found.check in CHECKS
            assert found.sentence[-1] in ".)"


def test_what_a_manager_or_a_job_started_is_not_another_program() -> None:
    asleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    job = {**os.environ, "TRAINMASTER_JOB": "1"}
    with (
        subprocess.Popen(asleep, stdout=subprocess.PIPE) as other,
        subprocess.Popen(asleep, stdout=subprocess.PIPE, env=job) as started,
    ):
        try:
            for each in (other, started):
                assert each.stdout is not None
                each.stdout.readline()
            assert is_stranger(other.pid, frozenset())
            assert not is_stranger(other.pid, frozenset({os.getpid()}))
            assert not is_stranger(started.pid, frozenset())
        finally:
            other.kill()
            started.kill()
