"""The public formats: a small file of each, then the real one where it is."""

from __future__ import annotations

import json

import pytest

from trainmaster.model.placement import Role
from trainmaster.model.trace import Outcome, TraceError
from trainmaster.model.units import DAY, GIB, HOUR, MIB
from trainmaster.traces import (
    alibaba_2020,
    alibaba_2023,
    helios,
    philly,
    philly_82k,
    tiresias,
)

# ------------------------------------------------------------------------------------------- Philly


def attempt(start: str | None, end: str | None, *gpus_by_machine: int) -> dict[str, object]:
    detail = [
        {"ip": f"m{n}", "gpus": [f"gpu{g}" for g in range(gpus)]}
        for n, gpus in enumerate(gpus_by_machine)
    ]
    return {"start_time": start, "end_time": end, "detail": detail}


def entry(job_id: str, status: str, *attempts: dict[str, object], at: str = "01:00:00"):
    return {
        "status": status,
        "vc": "ee9e8c",
        "jobid": job_id,
        "attempts": list(attempts),
        "submitted_time": f"2017-10-07 {at}",
        "user": "ce2f4c",
    }


def test_philly_takes_service_from_the_last_attempt_and_failures_from_the_others(write):
    log = [
        entry(
            "a",
            "Failed",
            attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 8, 8),
            attempt(None, None, 8),
            attempt("2017-10-07 01:13:30", "2017-10-07 02:13:30", 8, 8),
        ),
        entry(
            "b", "Killed", attempt("2017-10-08 00:00:00", "2017-10-08 00:00:05", 1), at="00:30:00"
        ),
    ]
    trace = philly.read(write(json.dumps(log), "cluster_job_log"))
    b, a = trace.jobs
    assert (a.job.id, a.job.submit_ms, a.job.demand.nominal.count) == ("a", HOUR, 16)
    assert (a.service_ms, a.failed_attempts_ms, a.outcome) == (HOUR, (74_000,), Outcome.FAILED)
    assert (a.job.queue, a.job.user) == ("ee9e8c", "ce2f4c")
    assert (b.job.submit_ms, b.outcome) == (HOUR // 2, Outcome.CANCELLED)
    assert "cluster_job_log: dropped 1 earlier attempts without times." in trace.notes


def test_philly_leaves_out_what_never_ran_or_never_ended_and_counts_it(write):
    good = attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 1)
    log = [
        entry("a", "Pass", good),
        entry("b", "Killed"),
        entry("c", "Failed", good, attempt("2017-10-07 01:12:09", None, 1)),
        entry("d", "Failed", attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23")),
    ]
    trace = philly.read(write(json.dumps(log), "cluster_job_log").parent)
    assert [traced.job.id for traced in trace.jobs] == ["a"]
    assert trace.notes == (
        "cluster_job_log: 1 job left out: never ran.",
        "cluster_job_log: 1 job left out: the last attempt has no start or no end.",
        "cluster_job_log: 1 job left out: the first attempt names no GPUs.",
    )


PHILLY_BAD = {
    "not JSON": (
        "[{]",
        "line 1: it is not JSON, Expecting property name enclosed in double quotes.",
    ),
    "not a list": ("{}", "is not a JSON list of jobs."),
    "not an object": ("[3]", "job 1: it is not a JSON object."),
    "an unknown status": (
        json.dumps([entry("a", "Lost")]),
        "job 1, field status: 'Lost' is none of Pass, Killed, Failed.",
    ),
    "a bad time": (
        json.dumps([entry("a", "Pass", at="noon")]),
        "job 1, field submitted_time: '2017-10-07 noon' is not a date and time"
        " such as 2017-10-07 01:12:09.",
    ),
    "the same id twice": (
        json.dumps([entry("a", "Pass"), entry("a", "Pass")]),
        "job 2, column jobid: 'a' is already on job 1.",
    ),
    "no job that ran": (json.dumps([entry("a", "Pass")]), "holds no jobs (1 left out: never ran)."),
}


@pytest.mark.parametrize(("text", "want"), PHILLY_BAD.values(), ids=PHILLY_BAD.keys())
def test_a_bad_philly_log_gets_one_sentence(text, want, write):
    path = write(text, "cluster_job_log")
    with pytest.raises(TraceError) as caught:
        philly.read(path)
    assert str(caught.value) == f"{path} {want}"


def test_philly_machines_become_a_topology(write):
    text = "machineId, number of GPUs, single GPU mem\nm31,8, 24GB\nm2,2, 12GB\n"
    topology = philly.read_machines(write(text, "cluster_machine_list"))
    assert topology.gpu_count == 10
    assert topology.nodes[0].type.memory == 24 * GIB
    assert [node.name for node in topology.nodes] == ["m31", "m2"]
    with pytest.raises(TraceError, match="two nodes of the cluster are called 'm31'"):
        philly.read_machines(write(text + "m31,8, 24GB\n", "cluster_machine_list"))


# -------------------------------------------------------------------------------------- philly-82k


def test_philly_82k_numbers_jobs_in_file_order_and_counts_time_from_midnight(write):
    trace = philly_82k.read(
        write(
            "timestamp,duration,num_gpus,gpu_time,cluster\n"
            "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
            "2017-10-08 06:00:00,2951.0,8,23608.0,6214e9\n"
        )
    )
    first, second = trace.jobs
    assert (first.job.id, first.job.submit_ms, first.job.queue) == ("j1", 6 * HOUR, "6214e9")
    assert (second.job.id, second.service_ms) == ("j0", 66_000)
    assert second.job.submit_ms == DAY + 7 * HOUR + 115_000


def test_philly_82k_complains_about_a_date(write):
    path = write("timestamp,duration,num_gpus,gpu_time,cluster\nyesterday,1,1,1,a\n")
    with pytest.raises(TraceError, match="column timestamp: 'yesterday' is not a date and time"):
        philly_82k.read(path)


@pytest.mark.shared
def test_the_real_philly_82k(shared):
    trace = philly_82k.read(shared("philly/philly-82k.csv"))
    assert len(trace.jobs) == 82_247
    assert len({traced.job.queue for traced in trace.jobs}) == 15
    assert sum(traced.job.demand.nominal.count == 1 for traced in trace.jobs) == 76_627
    assert trace.jobs[0].job.submit_ms == 10 * HOUR + 30 * 60_000 + 41_000


# ------------------------------------------------------------------------------------------ Helios

HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
)


def helios_row(job_id: str, gpus: int, state: str, submit: str = "2020-06-09 18:41:01") -> str:
    return f"{job_id},uX,vcJ,{gpus},16,1,{state},{submit},{submit},{submit},249,0\n"


def test_helios_maps_states_and_leaves_out_cpu_jobs(write):
    states = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "SUSPENDED")
    rows = "".join(helios_row(str(n), 4, state) for n, state in enumerate(states))
    trace = helios.read(write(HELIOS + rows + helios_row("9", 0, "COMPLETED")))
    assert [traced.outcome for traced in trace.jobs] == [
        Outcome.SUCCEEDED,
        Outcome.CANCELLED,
        *[Outcome.FAILED] * 3,
    ]
    first = trace.jobs[0]
    assert (first.job.queue, first.job.user, first.service_ms) == ("vcJ", "uX", 249_000)
    assert first.job.submit_ms == 18 * HOUR + 41 * 60_000 + 1000
    assert trace.notes == (
        "trace.csv: 1 job left out: not ended.",
        "trace.csv: 1 job left out: CPUs only.",
    )


def test_helios_complains_about_a_state_and_a_second_id(write):
    with pytest.raises(TraceError, match="column state: 'LOST' is none of COMPLETED, CANCELLED"):
        helios.read(write(HELIOS + helios_row("1", 1, "LOST")))
    with pytest.raises(TraceError, match="line 3, column job_id: '1' is already on line 2"):
        helios.read(write(HELIOS + helios_row("1", 1, "FAILED") * 2))


# ------------------------------------------------------------------------------------ Alibaba 2020

TASKS = (
    "j1,tensorflow,2.0,Terminated,100.0,400.0,600.0,29.3,50.0,MISC\n"
    "j2,ps,1.0,Terminated,10.0,90.0,600.0,29.3,,\n"
    "j2,worker,3.0,Terminated,20.0,80.0,600.0,29.3,200.0,V100\n"
    "j2,evaluator,1.0,Failed,30.0,99.5,600.0,29.3,100.0,V100\n"
    "j3,ps,1.0,Terminated,10.0,90.0,600.0,29.3,0.0,\n"
    "j4,worker,1.0,Running,10.0,,600.0,29.3,100.0,T4\n"
    "j5,worker,1.0,Terminated,500.0,501.0,600.0,29.3,25.0,T4\n"
    "j5,chief,1.0,Terminated,500.0,502.0,600.0,29.3,100.0,T4\n"
)


def test_a_task_table_alone(write):
    trace = alibaba_2020.read(write(TASKS, "pai_task_table.csv"))
    two, one, five = trace.jobs
    assert (two.job.id, two.job.submit_ms, two.service_ms) == ("j2", 20_000, 79_500)
    assert (two.job.demand.nominal.count, two.outcome) == (7, Outcome.FAILED)
    assert (one.job.demand.nominal.count, one.job.demand.nominal.share) == (2, 500)
    assert (five.job.demand.nominal.count, five.job.demand.nominal.share) == (2, 1000)
    assert "pai_task_table.csv: 1 job left out: CPUs only." in trace.notes
    assert "pai_task_table.csv: 1 job left out: no end." in trace.notes
    assert any("1 jobs have GPU tasks of different sizes" in note for note in trace.notes)


def test_the_job_table_adds_users_and_submissions(write):
    write("j1,i1,alice,Terminated,40.0,400.0\nj5,i5,bob,Failed,450.0,502.0\n", "pai_job_table.csv")
    folder = write(",".join(alibaba_2020.TASK_COLUMNS) + "\n" + TASKS, "pai_task_table.csv").parent
    jobs = {traced.job.id: traced for traced in alibaba_2020.read(folder).jobs}
    assert (jobs["j1"].job.user, jobs["j1"].job.submit_ms) == ("alice", 40_000)
    assert (jobs["j5"].job.user, jobs["j5"].outcome) == ("bob", Outcome.FAILED)
    assert jobs["j2"].job.user == ""


def test_a_bad_task_is_named(write, tmp_path):
    with pytest.raises(TraceError, match=r"holds no pai_task_table\.csv"):
        alibaba_2020.read(tmp_path)
    row = "j1,t,1.0,Terminated,1.0,2.0,600.0,29.3,{},MISC\n"
    with pytest.raises(TraceError, match="line 1, column plan_gpu: 'x' is not a number"):
        alibaba_2020.read(write(row.format("x"), "pai_task_table.csv"))


@pytest.mark.shared
def test_our_headers_are_the_released_ones(shared):
    tasks = shared("alibaba/pai_task_table.header").read_text().strip()
    jobs = shared("alibaba/pai_job_table.header").read_text().strip()
    assert tuple(tasks.split(",")) == alibaba_2020.TASK_COLUMNS
    assert tuple(jobs.split(",")) == alibaba_2020.JOB_COLUMNS


# ------------------------------------------------------------------------------------ Alibaba 2023

PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)


def test_pods_become_jobs(write):
    trace = alibaba_2023.read(
        write(
            PODS + "p0,12000,16384,1,460,,LS,Running,5,100,10\n"
            "p1,12000,16384,8,1000,V100M32,BE,Succeeded,6,100,90\n"
            "p2,12000,16384,2,1000,V100M16|V100M32,BE,Failed,7,100,100\n"
            "p3,12000,16384,1,1000,,BE,Pending,8,100,\n"
            "p4,12000,16384,0,0,,LS,Succeeded,9,100,90\n"
        )
    )
    first, second, third = trace.jobs
    assert (first.job.demand.nominal.share, first.job.submit_ms) == (460, 5000)
    assert (first.service_ms, first.outcome) == (90_000, Outcome.CANCELLED)
    assert (second.job.role, second.job.demand.gpu_type) == (Role.OPPORTUNISTIC, "V100M32")
    assert (third.job.demand.gpu_type, third.outcome) == (None, Outcome.FAILED)
    assert len(trace.notes) == 3


def test_pods_that_cannot_be(write):
    row = "p0,1,1,1,{},,LS,Running,5,{},10\n"
    with pytest.raises(TraceError, match="column gpu_milli: 1500 is more than one GPU, 1000"):
        alibaba_2023.read(write(PODS + row.format(1500, 100)))
    with pytest.raises(TraceError, match="column deletion_time: 9 is before scheduled_time, 10"):
        alibaba_2023.read(write(PODS + row.format(500, 9)))


def test_nodes_become_a_topology(write):
    text = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,1,1,0,nan\nn2,9,1,8,G2\n"
    topology = alibaba_2023.read_nodes(write(text))
    assert (len(topology.nodes), topology.gpu_count) == (2, 10)
    assert (topology.nodes[0].cpus, topology.nodes[0].memory) == (64_000, 262_144 * MIB)


@pytest.mark.shared
def test_the_real_alibaba_2023(shared):
    trace = alibaba_2023.read(shared("alibaba/openb_pod_list_default.csv"))
    assert len(trace.jobs) == 8152 - 1088 - 861
    assert sum(traced.job.demand.nominal.count == 8 for traced in trace.jobs) > 0
    topology = alibaba_2023.read_nodes(shared("alibaba/openb_node_list_gpu_node.csv"))
    assert (len(topology.nodes), topology.gpu_count) == (1213, 6212)


# ---------------------------------------------------------------------------------------- Tiresias

TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"


def test_tiresias(write):
    (traced,) = tiresias.read(write(TIRESIAS + "0,8,30,606,vgg19,164,23\n")).jobs
    assert (traced.job.id, traced.job.submit_ms, traced.service_ms) == ("0", 30_000, 164_000)
    assert (traced.job.demand.nominal.count, traced.job.model) == (8, "vgg19")
    assert traced.job.iterations == 606
    with pytest.raises(TraceError, match="line 2, column num_gpu: 0 is less than 1"):
        tiresias.read(write(TIRESIAS + "0,0,30,606,vgg19,164,23\n"))


@pytest.mark.shared
@pytest.mark.parametrize(("name", "jobs"), [("tiresias/60_job", 60), ("philly/philly1k_job", 1000)])
def test_the_real_tiresias(shared, name, jobs):
    assert len(tiresias.read(shared(f"{name}.csv")).jobs) == jobs
