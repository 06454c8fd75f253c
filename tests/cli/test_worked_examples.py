"""Examples with known answers, through the command line: the paper's, another simulator's, and ours.

Each test of a mechanism asserts a number that comes out only if the mechanism worked.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PHILLY = Path(__file__).parents[3] / "shared/data/philly"
HEADER = "job_id,submit_s,gpus,duration_s"

Write = Callable[[str, str], Path]


def jobs(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {job["job_id"]: job for job in result["jobs"]}


def finishes(result: dict[str, Any]) -> dict[str, float | None]:
    return {job["job_id"]: job["finish_s"] for job in result["jobs"]}


# -- Tiresias, Figure 7 ------------------------------------------------------------------------------


def test_figure_7(tm, fig7: Path) -> None:
    said = tm(
        f"simulate {fig7} --cluster 1x2 --policy srsf,las,tiresias-l"
        " --set quantum_s=1 --set thresholds_gpu_s=4 --perf ideal --json -",
    )
    srsf, las, tiresias = said.results()
    assert [round(each["summary"]["avg_jct_s"], 3) for each in (srsf, las, tiresias)] == [
        9.333,
        11.667,
        10.0,
    ]
    assert finishes(srsf) == {"1": 2, "2": 10, "3": 16}
    assert finishes(las) == {"1": 5, "2": 14, "3": 16}
    assert finishes(tiresias) == {"1": 2, "2": 12, "3": 16}
    assert las["options"] == {"quantum_s": 1, "starve_after_s": 0, "min_run_s": 0}
    assert tiresias["options"]["thresholds_gpu_s"] == "4"


def test_gittins_on_figure_7_with_samples_from_a_file(tm, fig7: Path, write: Write) -> None:
    samples = write("samples.csv", "duration\n4\n8\n12\n")
    said = tm(
        f"simulate {fig7} --cluster 1x2 --policy gittins,tiresias-g --set quantum_s=1"
        f" --set thresholds_gpu_s=4 --set service_samples={samples} --perf ideal --json -",
    )
    gittins, tiresias = said.results()
    assert finishes(gittins) == {"1": 2, "2": 10, "3": 16}
    assert finishes(tiresias) == {"1": 2, "2": 12, "3": 16}
    assert gittins["options"]["service_samples"] == str(samples)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("4\n-8\n", "s.csv line 2 must be GPU-seconds of at least 0, not '-8'."),
        ("4\n\nfour\n", "s.csv line 3 must be GPU-seconds of at least 0, not 'four'."),
        ("", "s.csv has no sample above 0: give one number of GPU-seconds to a line."),
    ],
)
def test_bad_service_samples(tm, fig7: Path, write: Write, content: str, complaint: str) -> None:
    write("s.csv", content)
    said = tm(f"simulate {fig7} --cluster 1x2 --policy gittins --set service_samples=s.csv")
    assert said.code == 2
    assert f"gittins: service_samples {complaint}" in " ".join(said.err.split())
    missing = tm(f"simulate {fig7} --cluster 1x2 --policy gittins --set service_samples=no.csv")
    assert missing.code == 2
    assert "no.csv cannot be read" in " ".join(missing.err.split())


# -- a simulator that no one here wrote --------------------------------------------------------------


@pytest.mark.shared
@pytest.mark.skipif(not PHILLY.exists(), reason="needs ../shared/data/philly")
def test_philly_1k(tm) -> None:
    said = tm(
        f"simulate {PHILLY}/philly1k_job.csv --cluster 32x4 --policy fifo,srtf,tiresias-l"
        " --perf ideal --json -",
    )
    fifo, srtf, tiresias = (each["summary"] for each in said.results())
    assert fifo["avg_jct_s"] == 91_694.495
    assert srtf["avg_jct_s"] == 10_966.077
    assert tiresias["avg_jct_s"] == 15_169.756
    assert tiresias["p50_jct_s"] == 14_097
    assert tiresias["preemptions"] == 762


# -- not only whole GPUs -----------------------------------------------------------------------------


def test_two_halves_share_one_gpu(tm, write: Write) -> None:
    """Three jobs of half a GPU on one GPU: two at once, then the third."""
    write("t.csv", f"{HEADER},gpu_share\na,0,1,10,0.5\nb,0,1,10,0.5\nc,0,1,10,0.5\n")
    said = tm("simulate t.csv --cluster 1x1 --policy fifo --perf ideal --json -")
    (result,) = said.results()
    assert finishes(result) == {"a": 10, "b": 10, "c": 20}
    assert jobs(result)["a"]["gpu_s"] == 5


def test_neighbours_on_one_gpu_slow_each_other_down(tm, write: Write) -> None:
    """Utilisations of 0.8 and 0.8 on one GPU leave each 1/1.6 of its speed, by that law."""
    write("t.csv", f"{HEADER},gpu_share,gpu_util\na,0,1,10,0.5,0.8\nb,0,1,10,0.5,0.8\n")
    write("p.yaml", "sharing: {law: utilisation}\n")
    said = tm("simulate t.csv --cluster 1x1 --policy fifo --perf p.yaml --json -")
    assert finishes(said.results()[0]) == {"a": 16, "b": 16}


def test_a_malleable_job_grows_into_idle_gpus_and_shrinks_for_others(tm, write: Write) -> None:
    write("t.csv", f"{HEADER},min_gpus,max_gpus\nbig,0,2,100,1,4\nlate,20,2,10,,\n")
    command = "simulate t.csv --cluster 1x4 --policy fifo --perf ideal --json -"
    (rigid,) = tm(command).results()
    assert finishes(rigid) == {"big": 100, "late": 30}
    (malleable,) = tm(command, "--set", "elastic=malleable").results()
    # On 2 GPUs beside `late`, on 4 once it is gone: at 30 s at most 70 of 100 are left, for 35 s.
    ended = finishes(malleable)
    assert ended["late"] == 30
    assert 50 < ended["big"] <= 65


def test_a_moldable_job_starts_with_what_there_is(tm, write: Write) -> None:
    write("t.csv", f"{HEADER},min_gpus,max_gpus\nfirst,0,3,100,,\nelastic,0,2,10,1,2\n")
    command = "simulate t.csv --cluster 1x4 --policy fifo --perf ideal --json -"
    (rigid,) = tm(command).results()
    assert jobs(rigid)["elastic"]["start_s"] == 100
    (moldable,) = tm(command, "--set", "elastic=moldable").results()
    assert jobs(moldable)["elastic"]["start_s"] == 0
    assert jobs(moldable)["elastic"]["finish_s"] == 20


@pytest.mark.parametrize("policy", ["las", "tiresias-l"])
def test_a_newcomer_suspends_a_job_that_has_had_much(tm, write: Write, policy: str) -> None:
    """16 GiB leave in 9.043 s; 18 s and 3.015 s to start again; all is wasted on two GPUs."""
    write("t.csv", f"{HEADER}\nlong,0,2,10000\nnew,9000,2,100\n")
    said = tm(f"simulate t.csv --cluster 1x2 --policy {policy} --perf default --json -")
    (result,) = said.results()
    long, new = jobs(result)["long"], jobs(result)["new"]
    assert long["preemptions"] == 1
    assert new["start_s"] == 9009.043
    assert new["finish_s"] == 9109.043
    assert long["suspended_s"] == 130.058
    assert long["finish_s"] == 10_130.058
    assert result["summary"]["gpu_hours_wasted"] == round(2 * 30.058 / 3600, 3)


def test_a_drained_node_sends_its_job_away(tm, write: Write) -> None:
    write("c.yaml", "nodes: {count: 2, gpus: 2}\nchanges: [{at_s: 40, drain: n0}]\n")
    write("t.csv", f"{HEADER}\na,0,2,100\n")
    said = tm("simulate t.csv --cluster c.yaml --policy fifo --perf default --json -")
    (result,) = said.results()
    moved = jobs(result)["a"]
    assert (moved["migrations"], moved["preemptions"]) == (1, 0)
    assert moved["finish_s"] == 130.058


def test_a_node_that_leaves_and_joins_again(tm, write: Write) -> None:
    """What was not saved is lost: the job starts again when the node is back."""
    write(
        "c.yaml",
        "nodes: {count: 1, gpus: 2}\nchanges: [{at_s: 40, leave: n0}, {at_s: 60, join: n0}]\n",
    )
    write("t.csv", f"{HEADER}\na,0,2,100\n")
    said = tm("simulate t.csv --cluster c.yaml --policy fifo --perf ideal --json -")
    (result,) = said.results()
    assert finishes(result) == {"a": 160}
    assert result["summary"]["gpu_hours_wasted"] == round(2 * 40 / 3600, 3)


def test_failed_attempts_run_first_and_the_status_is_reported(tm, write: Write) -> None:
    write(
        "t.csv",
        f"{HEADER},status,failed_attempts_s\na,0,1,100,passed,30;50\nb,0,1,10,failed,\n"
        "c,0,1,10,killed,\n",
    )
    write("p.yaml", "base: default\nswitch: {resume_s: 0, path: none}\n")
    command = "simulate t.csv --cluster 1x3 --policy fifo --json - --perf"
    (result,) = tm(command, "p.yaml").results()
    assert finishes(result) == {"a": 180, "b": 10, "c": 10}
    assert [job["status"] for job in result["jobs"]] == ["succeeded", "failed", "cancelled"]
    assert result["summary"]["gpu_hours_wasted"] == 0.025  # 30 + 50 + 10 s
    (ideal,) = tm(command, "ideal").results()
    assert finishes(ideal) == {"a": 100, "b": 10, "c": 10}
    assert {job["status"] for job in ideal["jobs"]} == {"succeeded"}


def test_nodes_fail_by_the_seed(tm, write: Write) -> None:
    write(
        "p.yaml",
        "base: ideal\nnode_failures: {mtbf_h: 2, repair_h: 0.5}\ncheckpoint_every_s: 600\n",
    )
    write("t.csv", HEADER + "\n" + "".join(f"j{n},0,2,20000\n" for n in range(4)))
    command = "simulate t.csv --cluster 4x2 --policy fifo --perf p.yaml --json - --seed"
    first, again, other = (tm(command, seed).results()[0] for seed in (1, 1, 2))
    assert first["summary"]["gpu_hours_wasted"] > 0
    assert first["summary"]["finished"] == 4
    assert all(job["finish_s"] > 20_000 for job in first["jobs"])
    assert first["jobs"] == again["jobs"]
    assert first["jobs"] != other["jobs"]


def test_easy_backfill_reserves_for_the_head(tm, write: Write) -> None:
    """`short` ends before the head can start and may overtake it; `long` would delay it."""
    write("t.csv", f"{HEADER}\nfirst,0,3,100\nhead,1,4,10\nlong,2,1,500\nshort,3,1,50\n")
    command = "simulate t.csv --cluster 1x4 --policy fifo --perf ideal --json - --set"
    starts = {
        mode: {job["job_id"]: job["start_s"] for job in result["jobs"]}
        for mode in ("none", "skip", "easy")
        for result in tm(command, f"backfill={mode}").results()
    }
    assert starts["none"] == {"first": 0, "head": 100, "long": 110, "short": 110}
    assert starts["skip"] == {"first": 0, "head": 502, "long": 2, "short": 100}
    assert starts["easy"] == {"first": 0, "head": 100, "long": 110, "short": 3}


# -- clusters ----------------------------------------------------------------------------------------

MIXED = """
types:
  A100: {memory_gib: 80, speed: 2.0, price_per_hour: 3.0}
  V100: {memory_gib: 16}
  A100-1g: {memory_gib: 10, speed: 0.25}
fabrics:
  - name: left
    racks:
      - nodes: {count: 2, prefix: a, gpus: 4, type: A100, islands: 2, cpus: 64, memory_gib: 512}
  - racks:
      - nodes:
          - {name: v, gpus: 4, type: V100}
          - {name: mig, gpus: 7, type: A100-1g}
          - {name: cpu, cpu_slots: 16}
"""


def test_types_speeds_slices_and_cpu_slots(tm, write: Write) -> None:
    write("c.yaml", MIXED)
    write(
        "t.csv",
        f"{HEADER},gpu_type\nfast,0,4,100,A100\nslow,0,4,100,V100\nslice,0,1,100,A100-1g\n"
        "data,0,16,100,cpu\nany,0,1,100,\n",
    )
    said = tm("simulate t.csv --cluster c.yaml --policy fifo --perf ideal --json -")
    (result,) = said.results()
    assert finishes(result) == {"fast": 50, "slow": 100, "slice": 400, "data": 100, "any": 50}


def test_speed_is_relative_to_the_best_placement_that_the_cluster_has(tm, write: Write) -> None:
    """A cluster without wide nodes does not punish wide jobs; levels may have names of one's own."""
    write("t.csv", f"{HEADER}\nwide,0,8,100\n")
    write("p.yaml", "base: ideal\nspeed: {default: {rack: 0.8, fabric: 0.5, cluster: 0.4}}\n")
    for text in (
        "racks: [{nodes: {count: 2, gpus: 4}}, {nodes: {gpus: 4}}]\n",
        "fabrics: [{racks: [{nodes: {gpus: 4}}]}, {racks: [{nodes: {gpus: 4}}]}]\n",
        "levels: [zone, rack]\nzones: [{racks: [{nodes: {count: 2, gpus: 4}}]}]\n",
    ):
        write("c.yaml", text)
        said = tm("simulate t.csv --cluster c.yaml --policy fifo --perf p.yaml --json -")
        assert finishes(said.results()[0]) == {"wide": 100}


def test_scattered_gpus_cost_what_the_perf_file_says(tm, write: Write) -> None:
    """The two GPUs left for `d` lie on two nodes: half the speed that it has on one."""
    write("t.csv", f"{HEADER}\na,0,1,1000\nb,0,1,10\nc,0,1,1000\nd,20,2,100\n")
    write("p.yaml", "base: ideal\nspeed: {default: {rack: 0.5}}\n")
    command = "simulate t.csv --cluster 2x2 --policy fifo --json - --perf"
    ended = {perf: finishes(tm(command, perf).results()[0])["d"] for perf in ("ideal", "p.yaml")}
    assert ended == {"ideal": 120, "p.yaml": 220}
    strict = tm("simulate t.csv --cluster 2x2 --policy yarn-cs --perf ideal --json -").results()[0]
    assert jobs(strict)["d"]["start_s"] == 1000


def test_public_machine_lists_are_clusters(tm, write: Write) -> None:
    write("t.csv", f"{HEADER}\na,0,10,100\n")
    write("machines.csv", "machineId,number of GPUs, single GPU mem\nm1,8, 24GB\nm2,2, 12GB\n")
    write(
        "nodes.csv", "sn,cpu_milli,memory_mib,gpu,model\nx,64000,262144,8,T4\ny,64000,262144,2,T4\n"
    )
    for listed in ("machines.csv", "nodes.csv"):
        command = f"simulate t.csv --cluster {listed} --policy fifo --perf ideal --json -"
        (result,) = tm(command).results()
        assert result["summary"]["finished"] + result["summary"]["rejected"] == 1


# -- queues, estimates, horizon ----------------------------------------------------------------------


def test_queue_weights_say_what_fair_is(tm, write: Write) -> None:
    """Two queues that get the same are treated fairly by weights 1:1, not by 3:1."""
    write("t.csv", f"{HEADER},queue\na,0,1,100,red\nb,0,1,100,blue\n")
    indices = []
    for weight in (1, 3):
        text = f"queues: [{{name: all, weight: {weight}}}, {{name: red, parent: all}}, {{name: blue}}]\n"
        write("q.yaml", text)
        command = "simulate t.csv --cluster 1x2 --policy fifo --perf ideal --queues q.yaml --json -"
        indices.append(tm(command).results()[0]["summary"]["jain_index"])
    assert indices[0] == 1
    assert indices[1] < 1


def test_without_estimates_nobody_is_known_to_end_in_time(tm, write: Write) -> None:
    write("t.csv", f"{HEADER}\nfirst,0,3,100\nhead,1,4,10\nshort,3,1,50\n")
    command = "simulate t.csv --cluster 1x4 --policy fifo --set backfill=easy --perf ideal --json -"
    known = jobs(tm(command).results()[0])
    unknown = jobs(tm(command, "--estimates", "none").results()[0])
    assert (known["short"]["start_s"], unknown["short"]["start_s"]) == (3, 110)


def test_a_horizon_gives_bounds_instead_of_means(tm, write: Write) -> None:
    write("t.csv", f"{HEADER}\na,0,1,10\nb,0,1,100\n")
    command = "simulate t.csv --cluster 1x1 --policy fifo --perf ideal --until-s 50"
    summary = tm(command, "--json", "-").results()[0]["summary"]
    assert summary["unfinished"] == 1
    assert summary["avg_jct_s"] is None
    assert summary["avg_jct_lower_bound_s"] == 30
    assert "≥ 30 s" in tm(command).out
