"""Every suite can be run as stated: its contenders exist, its traces have the stated size and fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from trainmaster.catalog import policy_class, policy_names
from trainmaster.config.options import read_options
from trainmaster.config.performance import perf_model_from
from trainmaster.core.occupancy import Occupancy
from trainmaster.evaluation.suite import (
    Contender,
    ContenderRole,
    Experiment,
    TraceFile,
    Trial,
    Workload,
)
from trainmaster.evaluation.suites import SUITES, suite_names, suite_of
from trainmaster.evaluation.suites.philly_traces import (
    MOST_JOBS,
    PHILLY_1K,
    PHILLY_82K,
    VIRTUAL_CLUSTERS,
    Split,
    VirtualCluster,
)
from trainmaster.evaluation.suites.published import SUITE as PUBLISHED
from trainmaster.evaluation.workloads import cluster_of, stream_of
from trainmaster.placement.placers import ever_fits
from trainmaster.sim.metrics import load_of

FOLDER = Path(__file__).parents[3] / "shared" / "data"
needs_traces = pytest.mark.skipif(
    not (FOLDER / PHILLY_82K).is_file(), reason="needs the public traces in ../shared/data"
)
FEWEST_SEEDS = 10
LOADS = ("load 0.5", "load 0.7", "load 0.9", "load 1.0", "load 1.2")
UNUSED_HERE = {"deadlines"}
"""Parts of ours that no job of the suites makes use of."""
SWITCH_COSTS = tuple(f"switch cost {cost} s" for cost in (0, 10, 60, 300))


def experiments() -> Iterator[tuple[str, Experiment]]:
    for name in suite_names():
        for experiment in suite_of(name).experiments:
            yield f"{name}/{experiment.name}", experiment


EXPERIMENTS = dict(experiments())
CONTENDERS = {
    f"{name}/{each.label}": each
    for name, experiment in EXPERIMENTS.items()
    for each in experiment.contenders
}
DRAWN = {
    each.name: each
    for experiment in PUBLISHED.experiments
    for each in experiment.workloads
    if not isinstance(each.source, TraceFile)
}


def experiment(name: str) -> Experiment:
    return EXPERIMENTS[f"published/{name}"]


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_is_called_what_it_is_found_under(name: str) -> None:
    assert suite_of(name).name == name


@pytest.mark.parametrize("contender", CONTENDERS.values(), ids=CONTENDERS)
def test_every_policy_exists_and_takes_its_settings(contender: Contender) -> None:
    assert contender.policy in policy_names()
    kind = policy_class(contender.policy)
    for settings in (contender.settings, *contender.grid):
        read_options(contender.policy, kind.options_type, dict(settings))


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_every_world_can_be_read(experiment: Experiment) -> None:
    for conditions in experiment.conditions:
        if not isinstance(conditions.perf, str):
            perf_model_from(conditions.perf, conditions.name)


@pytest.mark.parametrize("workload", DRAWN.values(), ids=DRAWN)
def test_what_is_left_to_chance_has_ten_seeds(workload: Workload) -> None:
    first, second = (stream_of(workload, 64, seed, None).trace for seed in (1, 2))
    is_drawn = first != second
    assert len(workload.seeds) == len(set(workload.seeds))
    assert len(workload.seeds) >= FEWEST_SEEDS or not is_drawn


@pytest.mark.parametrize("workload", DRAWN.values(), ids=DRAWN)
def test_drawn_traces_are_short_and_fit(workload: Workload) -> None:
    topology = cluster_of(workload).topology
    stream = stream_of(workload, topology.training_gpus, workload.seeds[0], None)
    space = Occupancy(topology)
    assert len(stream.trace.jobs) <= MOST_JOBS
    assert all(ever_fits(space, each.job.demand, is_moldable=False) for each in stream.trace.jobs)


@needs_traces
@pytest.mark.parametrize("virtual", VIRTUAL_CLUSTERS, ids=lambda each: each.name)
def test_virtual_clusters_are_short_fit_and_queue(virtual: VirtualCluster) -> None:
    workload = virtual.workload()
    topology = cluster_of(workload).topology
    jobs = stream_of(workload, topology.training_gpus, 0, FOLDER).trace.jobs
    space = Occupancy(topology)
    assert len(jobs) <= MOST_JOBS
    assert {each.job.queue for each in jobs} == {virtual.name}
    assert all(ever_fits(space, each.job.demand, is_moldable=False) for each in jobs)
    load = load_of(jobs, topology.training_gpus)
    assert load is not None
    assert virtual.name == "e13805" or 0.65 <= load <= 1.1


def test_some_virtual_clusters_are_for_tuning_and_more_for_the_test() -> None:
    by_split = {split: [v for v in VIRTUAL_CLUSTERS if v.split is split] for split in Split}
    assert len(VIRTUAL_CLUSTERS) >= 8
    assert 3 <= len(by_split[Split.TUNE]) < len(by_split[Split.TEST])
    assert len({each.name for each in VIRTUAL_CLUSTERS}) == len(VIRTUAL_CLUSTERS)


# -- what the published suite has to show ------------------------------------------------------------


def test_all_four_tracks_are_there_with_real_and_generated_jobs() -> None:
    tracks = {each.track for each in PUBLISHED.experiments}
    assert {"order", "placement", "packing", "elastic", "sweep", "paper", "ablation"} <= tracks
    for track in ("order", "placement"):
        workloads = [w for e in PUBLISHED.experiments if e.track == track for w in e.workloads]
        assert PHILLY_1K in workloads
        assert any(not isinstance(each.source, TraceFile) for each in workloads)
        assert sum(each.name.startswith("vc ") for each in workloads) == len(VIRTUAL_CLUSTERS)


def test_the_baselines_are_there() -> None:
    named = {
        (each.policy, bool(each.grid))
        for experiment in PUBLISHED.experiments
        for each in experiment.contenders
        if each.role is ContenderRole.PUBLISHED
    }
    wanted = ["fifo", "las", "tiresias-l", "gittins", "tiresias-g", "qssf", "max-min", "afs-l"]
    assert {policy for policy, _ in named} >= {*wanted, "goodput", "gandiva", "themis", "antman"}
    assert {("tiresias-l", False), ("tiresias-l", True)} <= named
    ordering = experiment("order-philly").contenders
    classes = {each.settings.get("classes") for each in ordering if each.policy == "gittins"}
    assert len(classes) == 2
    assert any(each.settings.get("backfill") == "easy" for each in ordering)


@pytest.mark.parametrize("track", ["order", "placement", "packing", "elastic"])
def test_ours_knows_nothing_that_others_do_not(track: str) -> None:
    """No oracle among published ones, no estimates; LAS beside ours everywhere, and a bound."""
    for each in (e for e in PUBLISHED.experiments if e.track == track):
        roles = {c.role for c in each.contenders}
        assert {ContenderRole.OURS, ContenderRole.BOUND} <= roles
        assert any(c.policy == "las" for c in each.contenders)
        assert all(conditions.estimates == "none" for conditions in each.conditions)
        oracles = [c for c in each.contenders if policy_class(c.policy).needs_oracle]
        assert all(c.role is ContenderRole.BOUND for c in oracles)


SWEPT = {
    "load": (LOADS, ()),
    "switch-cost": ((), SWITCH_COSTS),
    "estimates": ((), ("error 0", "error 0.2", "error 0.5", "error 1")),
    "packing-table": ((), ("table error 0", "table error 0.2", "table error 0.4")),
}


@pytest.mark.parametrize(("name", "want"), SWEPT.items(), ids=SWEPT)
def test_sweeps_have_their_steps(name: str, want: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    workloads, conditions = want
    found = experiment(name)
    assert not workloads or tuple(each.name for each in found.workloads) == workloads
    assert not conditions or tuple(each.name for each in found.conditions) == conditions


def test_each_part_of_ours_has_its_ablation() -> None:
    """Every switch of the policy is thrown in one of them, and each differs from ours in one option."""
    parts = [
        each
        for found in PUBLISHED.experiments
        for each in found.contenders
        if each.role is ContenderRole.ABLATION
    ]
    assert all(len(each.settings) == 1 for each in parts)
    defaults = policy_class("trainmaster").options_type()
    thrown = {key: value for each in parts for key, value in each.settings.items()}
    assert all(str(getattr(defaults, key)) != value for key, value in thrown.items())
    switches = [field.name for field in fields(defaults) if getattr(defaults, field.name) == "on"]
    assert set(switches) - UNUSED_HERE <= set(thrown)


def test_equal_labels_mean_equal_contenders() -> None:
    """Colours and tables go by label: the same name is the same policy wherever it appears."""
    found: dict[str, Contender] = {}
    for each in PUBLISHED.experiments:
        for contender in each.contenders:
            assert found.setdefault(contender.label, contender) == contender


def test_all_82k_jobs_are_a_suite_of_their_own() -> None:
    names = {trial.workload.name for trial in suite_of("philly-82k").trials()}
    assert names == {"philly-82k 50x8", "philly-36-days 88x8"}
    assert not any(_is_whole(trial) for trial in PUBLISHED.trials())


def _is_whole(trial: Trial) -> bool:
    source = trial.workload.source
    return isinstance(source, TraceFile) and source.path == PHILLY_82K and source.part.queue is None
