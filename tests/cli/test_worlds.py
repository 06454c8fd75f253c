"""What the world does to jobs, as a user of the command line sees it: perf files, nodes, CPU slots."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str, str], Path]
HEADER = "job_id,submit_s,gpus,duration_s"


def finishes(result: dict) -> dict[str, float]:
    return {job["job_id"]: job["finish_s"] for job in result["jobs"]}


def run(tm, *more: str, cluster: str = "1x4", perf: str = "p.yaml") -> dict:
    command = f"simulate t.csv --cluster {cluster} --policy fifo --perf {perf} --json -"
    return tm(command, *more).results()[0]


# -- CPU slots for jobs that allow them ------------------------------------

SLOTS = """
types: {cpu: {speed: 0.1}, A100: {memory_gib: 80}}
nodes:
  - {gpus: 1, type: A100}
  - {cpu_slots: 4}
"""


def test_a_job_that_allows_cpus_does_not_wait_for_a_gpu(tm, write: Write) -> None:
    """The GPU is taken for 100 s: who allows CPU slots runs there at a tenth of the speed."""
    write("c.yaml", SLOTS)
    for kind, ends in (("any|cpu", 50), ("A100 | cpu", 50), ("any", 105), ("A100", 105)):
        write("t.csv", f"{HEADER},gpu_type\nfirst,0,1,100,\nflexible,0,1,5,{kind}\n")
        found = run(tm, cluster="c.yaml", perf="ideal")
        assert finishes(found) == {"first": 100, "flexible": ends}, kind


def test_a_free_gpu_goes_before_a_cpu_slot_and_slots_are_no_gpus(tm, write: Write) -> None:
    write("c.yaml", SLOTS)
    write("t.csv", f"{HEADER},gpu_type\na,0,1,100,any|cpu\nb,0,1,10,any|cpu\n")
    found = run(tm, cluster="c.yaml", perf="ideal")
    assert finishes(found) == {"a": 100, "b": 100}
    assert found["summary"]["gpu_util"] == 1, "b's time on a CPU slot is no GPU's"


def test_who_does_not_say_so_gets_no_cpu_slot(tm, write: Write) -> None:
    write("c.yaml", SLOTS)
    write("t.csv", f"{HEADER},gpu_type\na,0,2,100,any\nb,0,4,100,any|cpu\nc,0,9,1,any|cpu\n")
    said = tm("simulate t.csv --cluster c.yaml --policy fifo --perf ideal --json -")
    statuses = {job["job_id"]: job["status"] for job in said.results()[0]["jobs"]}
    assert statuses == {"a": "rejected", "b": "succeeded", "c": "rejected"}
    assert "job c needs 9 GPUs of type any|cpu, the cluster has 5: rejected" in said.err


def test_a_model_has_its_own_speed_on_a_cpu(tm, write: Write) -> None:
    write("c.yaml", SLOTS)
    write("t.csv", f"{HEADER},gpu_type,model\na,0,1,10,cpu,resnet50\nb,0,1,10,cpu,a3c\n")
    write("p.yaml", "base: ideal\ngpu_speed: {ResNet-50: {cpu: 0.02}}\n")
    assert finishes(run(tm, cluster="c.yaml")) == {"a": 500, "b": 100}


# -- perf files --------------------------------------------------------------------------------------


def test_sockets_and_switches_of_a_cluster_file(tm, write: Write) -> None:
    """One GPU is left on each side: VGG16 runs at 0.60 or 0.81 of one PCIe switch (Gandiva)."""
    held = "a,0,1,1000,\nb,0,1,10,\nc,0,1,1000,\n"
    write("t.csv", f"{HEADER},model\n{held}vgg,20,2,100,vgg16\n")
    for node, speed in (
        ("{gpus: 4}", 1),
        ("{gpus: 4, sockets: 2}", 0.60 / 0.81),
        ("{gpus: 4, pcie_switches: 2}", 0.60),
        ("{gpus: 8, sockets: 2, pcie_switches: 4}", 1),
    ):
        write("c.yaml", f"nodes: {node}\n")
        found = finishes(run(tm, cluster="c.yaml", perf="default"))
        assert found["vgg"] == pytest.approx(20 + 100 / speed, abs=0.01), node


def test_laws_of_sharing(tm, write: Write) -> None:
    """Four quarters at once: no loss, four times as long, or as on an H200 with MPS."""
    rows = "".join(f"j{n},0,1,10,0.25,0.25\n" for n in range(4))
    write("t.csv", f"{HEADER},gpu_share,gpu_util\n{rows}")
    for said, ends in (
        ("sharing: {law: utilisation}\n", 10),
        ("sharing: {law: linear}\n", 40),
        ("sharing: {law: h200}\n", 10.901),
        ("{}\n", 10.901),
        ("interference: false\n", 10),
    ):
        write("p.yaml", said)
        found = finishes(run(tm, cluster="1x1"))
        assert found == pytest.approx({f"j{n}": ends for n in range(4)}, abs=0.002), said


def test_neighbours_on_a_server(tm, write: Write) -> None:
    """Philly's ResNet-50: 75.6 images/s beside another job, 114.8 alone; others lose less."""
    write("t.csv", f"{HEADER},model\na,0,2,100,ResNet-50\nb,0,2,100,ResNet-50\n")
    write("p.yaml", "{}\n")
    assert finishes(run(tm))["a"] == pytest.approx(100 * 114.8 / 75.6, rel=1e-3)
    write("t.csv", f"{HEADER}\na,0,2,100\nb,0,2,100\n")
    for said, ends in (
        ("{}\n", 100 / 0.85),
        ("neighbours: false\n", 100),
        ("neighbours: {server: {default: {2: 0.5}}}\n", 200),
    ):
        write("p.yaml", said)
        assert finishes(run(tm))["a"] == pytest.approx(ends, rel=1e-3), said


@pytest.mark.parametrize("policy", ["optimus", "max-min", "afs-l", "themis"])
@pytest.mark.parametrize("estimates", ["exact", "none"])
def test_elastic_jobs_on_more_cpu_slots_than_there_are_gpus(
    tm, write: Write, policy: str, estimates: str
) -> None:
    write("c.yaml", SLOTS)
    elastic = "a,0,2,100,1,4,cpu\nb,0,2,100,1,4,any|cpu\n"
    write("t.csv", f"{HEADER},min_gpus,max_gpus,gpu_type\n{elastic}")
    done = tm(f"simulate t.csv --cluster c.yaml --policy {policy} --estimates {estimates} --json -")
    assert "raised" not in done.err
    assert {job["status"] for job in done.results()[0]["jobs"]} == {"succeeded"}


def test_a_table_of_speedups(tm, write: Write) -> None:
    write("t.csv", f"{HEADER},model,min_gpus,max_gpus\na,0,1,100,resnet50,1,4\n")
    write("p.yaml", "base: ideal\nelastic: {models: {resnet50: {1: 1, 2: 1.9, 4: 2.5}}}\n")
    found = run(tm, "--set", "elastic=malleable")
    assert finishes(found)["a"] == pytest.approx(100 / 2.5, abs=0.01)


def test_memory_that_has_to_move(tm, write: Write) -> None:
    """8 GB out at 2 GB/s and in at 4 GB/s: a drained job loses 6 s and the restart."""
    write("c.yaml", "nodes: {count: 2, gpus: 2}\nchanges: [{at_s: 40, drain: n0}]\n")
    write("t.csv", f"{HEADER},gpu_memory_gib\na,0,2,100,{8e9 / 2**30}\n")
    write("p.yaml", "base: ideal\nswitch: {resume_s: 10, save_gb_s: 2, load_gb_s: 4}\n")
    assert finishes(run(tm, cluster="c.yaml"))["a"] == pytest.approx(116, abs=0.01)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("speed: {default: {sockit: 0.5}}\n", "speed.default: the cluster has no level 'sockit'"),
        (
            "sharing: {law: murphy}\n",
            "p.yaml: line 1: sharing.law must be linear, h200 or utilisation",
        ),
        (
            "elastic: {models: {a: {2: 1}}}\n",
            "p.yaml: line 1: elastic.models.a must say the speed on 1 GPU",
        ),
    ],
)
def test_a_mistake_is_one_sentence(tm, write: Write, said: str, sentence: str) -> None:
    write("t.csv", f"{HEADER}\na,0,1,100\n")
    write("p.yaml", said)
    found = tm("simulate t.csv --cluster 1x4 --policy fifo --perf p.yaml")
    assert found.code == 2
    assert sentence in found.err
    assert "Traceback" not in found.err


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        (
            "{gpus: 8, sockets: 2, pcie_switches: 3}",
            "must have pcie_switches in a multiple of sockets, 2",
        ),
        ("{gpus: 8, sockets: 9}", "has more sockets than GPUs"),
        ("{cpu_slots: 8, sockets: 2}", "has CPU slots; they have no type and no islands"),
    ],
)
def test_a_node_that_cannot_be(tm, write: Write, node: str, sentence: str) -> None:
    write("t.csv", f"{HEADER}\na,0,1,100\n")
    write("c.yaml", f"nodes: [{{gpus: 1}}, {node}]\n")
    found = tm("simulate t.csv --cluster c.yaml --policy fifo")
    assert (found.code, sentence in found.err) == (2, True), found.err


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("elastic: {models: {a: {1: 1, 2: 1.9, 2: 3}}}\n", 1),
        ("base: ideal\nfailures: true\nbase: default\n", 3),
    ],
)
def test_a_key_stated_twice_is_refused(tm, write: Write, said: str, line: int) -> None:
    write("t.csv", f"{HEADER}\na,0,2,100\n")
    write("p.yaml", said)
    done = tm("simulate t.csv --cluster 1x4 --policy fifo --perf p.yaml")
    assert done.code == 2
    assert f"line {line}: " in done.err
    assert "is given twice" in done.err


# -- what is saved, noticed and measured ---------------------------------------------------------------


def test_where_suspending_does_not_save_a_preemption_loses_work(tm, write: Write) -> None:
    """`a` gives way at 100, and has saved 60 s of its work; on demand it saves all of it."""
    write("t.csv", f"{HEADER}\na,0,1,300\nshort,100,1,10\n")
    for saves, ends in (("on-demand", 310), ("periodic", 350)):
        write("p.yaml", f"base: ideal\nswitch: {{saves: {saves}}}\ncheckpoint_every_s: 60\n")
        found = tm("simulate t.csv --cluster 1x1 --policy srtf --perf p.yaml --json -").results()[0]
        assert finishes(found) == {"a": ends, "short": 110}
        assert found["summary"]["gpu_hours_wasted"] == pytest.approx((ends - 310) / 3600, abs=1e-3)


def test_a_policy_that_never_lets_a_run_save_is_told_on(tm, write: Write) -> None:
    write("t.csv", f"{HEADER}\na,0,1,3600\nb,0,1,3600\n")
    write("p.yaml", "base: ideal\nswitch: {saves: periodic}\n")
    done = tm(
        "simulate t.csv --cluster 1x1 --policy gandiva --set packing=off --perf p.yaml --json -"
    )
    assert done.code == 0
    assert "gandiva suspends runs before they have saved anything, so that no job ends" in done.err
    assert done.results()[0]["summary"]["unfinished"] == 2


def test_programs_that_never_save_run_to_their_end(tm, write: Write) -> None:
    write("t.csv", f"{HEADER}\na,0,1,3600\nb,0,1,3600\n")
    write("p.yaml", "base: ideal\nswitch: {saves: never}\n")
    for policy in ("gandiva", "las"):
        done = tm(f"simulate t.csv --cluster 1x1 --policy {policy} --perf p.yaml --json -")
        assert finishes(done.results()[0]) == {"a": 3600, "b": 7200}
        assert done.results()[0]["summary"]["gpu_hours_wasted"] == 0


def test_a_failure_goes_unnoticed_for_a_while(tm, write: Write) -> None:
    write("t.csv", f"{HEADER}\na,0,1,36000\n")
    ends = []
    for seconds in (0, 600):
        failing = f"{{mtbf_h: 3, repair_h: 1, detection_s: {seconds}}}"
        write("p.yaml", f"base: ideal\nnode_failures: {failing}\ncheckpoint_every_s: 60\n")
        ends.append(finishes(run(tm, cluster="1x1"))["a"])
    assert ends[1] >= ends[0] + 600


def test_measuring_an_elastic_job_takes_its_time(tm, write: Write) -> None:
    write("t.csv", f"{HEADER},min_gpus,max_gpus\na,0,2,100,1,2\n")
    write("p.yaml", "base: ideal\nprofiling_s: 40\n")
    done = tm("simulate t.csv --cluster 1x2 --policy max-min,las --perf p.yaml --json -")
    assert [finishes(found)["a"] for found in done.results()] == [140, 100]
