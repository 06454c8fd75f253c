"""Random clusters, workloads, breakages and worlds: small, odd, and printed in full when one fails."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.builders import TYPES, at
from trainmaster.model import events as e
from trainmaster.model.device_aside import AsideCause
from trainmaster.model.job import Demand, Job, Part, Shape
from trainmaster.model.placement import Role, Sharing
from trainmaster.model.topology import NodeSpec, Topology, build
from trainmaster.model.trace import Outcome, Trace, TracedJob
from trainmaster.model.units import GIB, SECOND, WHOLE
from trainmaster.perf.perf_model import DEFAULT, IDEAL, FailureModel, PreemptionCost
from trainmaster.sim.driver import Estimates, Scenario
from trainmaster.sim.failure_judge import FailureRules

SAMPLES = str(Path(__file__).with_name("service_samples.csv"))

CONTENDERS: dict[str, tuple[str, dict[str, object]]] = {
    "fifo": ("fifo", {}),
    "fifo skip": ("fifo", {"backfill": "skip"}),
    "fifo easy": ("fifo", {"backfill": "easy"}),
    "fifo moldable": ("fifo", {"elastic": "moldable"}),
    "fifo skip malleable": ("fifo", {"backfill": "skip", "elastic": "malleable"}),
    "fifo easy malleable": ("fifo", {"backfill": "easy", "elastic": "malleable"}),
    "fifo malleable": ("fifo", {"elastic": "malleable"}),
    "fifo easy moldable": ("fifo", {"backfill": "easy", "elastic": "moldable"}),
    "yarn-cs": ("yarn-cs", {}),
    "yarn-cs skip": ("yarn-cs", {"backfill": "skip"}),
    "yarn-cs easy": ("yarn-cs", {"backfill": "easy"}),
    "qssf": ("qssf", {}),
    "qssf skip": ("qssf", {"backfill": "skip", "rolling": 1}),
    "qssf easy": ("qssf", {"backfill": "easy", "rolling": 0.5}),
    "srtf": ("srtf", {}),
    "srsf": ("srsf", {}),
    "las": ("las", {"quantum_s": 7}),
    "las guarded": ("las", {"quantum_s": 7, "starve_after_s": 20, "min_run_s": 3}),
    "srtf guarded": ("srtf", {"starve_after_s": 30, "min_run_s": 2}),
    "gittins": ("gittins", {"quantum_s": 7}),
    "gittins given": ("gittins", {"quantum_s": 7, "service_samples": SAMPLES}),
    "gittins global": ("gittins", {"quantum_s": 7, "classes": "all"}),
    "tiresias-g": ("tiresias-g", {"thresholds_gpu_s": "5,40"}),
    "tiresias-g given": (
        "tiresias-g",
        {"thresholds_gpu_s": "5,40", "promote_knob": 0.5, "service_samples": SAMPLES},
    ),
    "tiresias-g guarded": (
        "tiresias-g",
        {"thresholds_gpu_s": "5,40", "starve_after_s": 25, "min_run_s": 4},
    ),
    "tiresias-l": ("tiresias-l", {"thresholds_gpu_s": "5,40"}),
    "tiresias-l promoting": ("tiresias-l", {"thresholds_gpu_s": "5,40", "promote_knob": 0.5}),
    "themis": ("themis", {"lease_s": 7}),
    "themis open": ("themis", {"lease_s": 11, "filter_f": 0}),
    "themis guarded": ("themis", {"lease_s": 5, "starve_after_s": 25, "min_run_s": 9}),
    "tiresias-l packing": ("tiresias-l", {"thresholds_gpu_s": "20", "pack_limit": 0}),
    "optimus": ("optimus", {"interval_s": 7}),
    "optimus given": ("optimus", {"interval_s": 20, "learn": "given"}),
    "optimus guarded": ("optimus", {"interval_s": 5, "starve_after_s": 25, "min_run_s": 4}),
    "max-min": ("max-min", {}),
    "max-min costly": ("max-min", {"resize_cost_s": 3, "starve_after_s": 9}),
    "afs-l": ("afs-l", {}),
    "afs-l guarded": ("afs-l", {"resize_cost_s": 3, "min_run_s": 4, "starve_after_s": 9}),
    "goodput": ("goodput", {"interval_s": 7}),
    "goodput free": ("goodput", {"interval_s": 5, "resize_cost_s": 0, "power": 1}),
    "goodput guarded": (
        "goodput",
        {"interval_s": 3, "power": 0, "starve_after_s": 15, "min_run_s": 4},
    ),
    "gandiva": ("gandiva", {"quantum_s": 7, "trial_s": 5}),
    "gandiva guarded": (
        "gandiva",
        {"quantum_s": 3, "trial_s": 2, "starve_after_s": 10, "min_run_s": 2},
    ),
    "gandiva still": (
        "gandiva",
        {"quantum_s": 7, "packing": "off", "migration": "off", "grow": "off"},
    ),
    "antman": ("antman", {}),
    "antman hasty": ("antman", {"opportunistic_after_s": 2, "queues": "default:1,other:2"}),
    "antman guarded": ("antman", {"starve_after_s": 10, "min_run_s": 3}),
    "antman crowded": ("antman", {"guaranteed_per_gpu": 2, "reserve": "off", "upgrade": "off"}),
    "big-brain": ("big-brain", {"trial_s": 1}),
    "big-brain packed": ("big-brain", {"concurrency": 3}),
    "big-brain mps": ("big-brain", {"concurrency": 2, "sharing": "mps", "split": "off"}),
    "fair": ("fair", {"preempt_timeout_s": 3}),
    "fair at once": ("fair", {"preempt_timeout_s": 0, "queues": "default:1,other:3"}),
    "fair remembering": ("fair", {"preempt_timeout_s": 5, "half_life_s": 20}),
    "fair strict": ("fair", {"preempt_timeout_s": 2, "inner_options": "backfill=none"}),
    "fair easy": ("fair", {"preempt_timeout_s": 2, "inner_options": "backfill=easy"}),
    "fair guarded": ("fair", {"preempt_timeout_s": 1, "starve_after_s": 9, "min_run_s": 4}),
    "fair over srsf": ("fair", {"inner": "srsf", "preempt_timeout_s": 4}),
    "fair malleable": (
        "fair",
        {"preempt_timeout_s": 2, "inner_options": "backfill=skip;elastic=malleable"},
    ),
    "philly": ("philly", {"acquire_timeout_s": 3, "backoff_s": 2, "preempt_timeout_s": 3}),
    "philly patient": (
        "philly",
        {"acquire_timeout_s": 7, "backoff_s": 0.5, "relax_after": 2, "queues": "default:1,other:3"},
    ),
    "philly guarded": (
        "philly",
        {"acquire_timeout_s": 1, "backoff_s": 4, "preempt_timeout_s": 0, "utilisation_threshold": 0}
        | {"starve_after_s": 9, "min_run_s": 4},
    ),
    "two-level": ("two-level", {"inner_options": "thresholds_gpu_s=5,40;promote_knob=0.5"}),
    "two-level uneven": (
        "two-level",
        {"queues": "default:3,other:1", "inner_options": "thresholds_gpu_s=5;pack_limit=0"},
    ),
    "two-level las": ("two-level", {"inner": "las", "inner_options": "quantum_s=7"}),
    "two-level guarded": ("two-level", {"inner": "las", "min_run_s": 4, "starve_after_s": 20}),
    "trainmaster": ("trainmaster", {"min_run_s": 3, "guard_slack_s": 20}),
    "trainmaster by turns": ("trainmaster", {"min_run_s": 0, "packing": "time"}),
    "trainmaster plain": (
        "trainmaster",
        {
            "min_run_s": 0,
            "learn": "off",
            "siblings": "off",
            "hysteresis": 1,
            "cap": 0,
            "charge_switches": "off",
            "guard_ratio": 0,
            "packing": "off",
        },
    ),
    "trainmaster sharing": (
        "trainmaster",
        {"queues": "default:1,other:3", "half_life_s": 30, "guard_slack_s": 9, "guard_ratio": 1},
    ),
    "two-level fifo": ("two-level", {"inner": "fifo", "starve_after_s": 9, "min_run_s": 2}),
    "two-level qssf": ("two-level", {"inner": "qssf", "inner_options": "backfill=skip"}),
    "fair over goodput": ("fair", {"inner": "goodput", "inner_options": "interval_s=4"}),
    "two-level gittins": ("two-level", {"inner": "gittins", "inner_options": "quantum_s=9"}),
    "two-level tiresias-g": (
        "two-level",
        {"inner": "tiresias-g", "inner_options": "thresholds_gpu_s=5,40;promote_knob=0.5"},
    ),
}
"""Every policy of the catalog, with the options that change what it does."""

OPPORTUNISTIC = ("antman hasty",)
"""Those under which a job may come to live on idle cycles: it books the part that it keeps busy."""

MODELS = ("", "vgg16", "resnet50", "alexnet")
TYPE_CHOICES = (*[None] * 8, "fast", "cpu", "gpu|cpu")

FREEZING = replace(
    DEFAULT,
    name="freezing",
    preemption_cost=PreemptionCost(2_000, 3_000, 4_000, 1_500, 2_500, can_freeze=True),
)
BREAKING = replace(
    DEFAULT,
    name="breaking",
    node_failures=FailureModel(
        mtbf_ms=200 * SECOND, repair_ms=20 * SECOND, checkpoint_ms=3 * SECOND
    ),
    locality=replace(DEFAULT.locality, error_ppm=100_000),
)
FREE_FREEZING = replace(
    IDEAL, name="free freezing", preemption_cost=PreemptionCost(can_freeze=True)
)
REFUSING = replace(
    FREEZING,
    name="refusing",
    preemption_cost=replace(FREEZING.preemption_cost, refuse_every=3),
)
FRAIL = replace(FREEZING, name="frail", node_failures=BREAKING.node_failures)
WORLDS = (IDEAL, DEFAULT, FREEZING, REFUSING, BREAKING, FREE_FREEZING, FRAIL)


PRERUNS = FailureRules(prerun_ms=4 * SECOND)

WORLD = st.sampled_from(WORLDS)
ESTIMATES = st.sampled_from(
    [Estimates(), Estimates(), Estimates(known=False), Estimates(error=0.5)]
)


@cache
def among(*choices: Any) -> st.SearchStrategy[Any]:
    """One of these; the same strategy for the same choices, as making one takes longer than a draw."""
    return st.sampled_from(choices)


@st.composite
def topologies(draw: st.DrawFn, *, uniform: bool = False) -> Topology:
    racks = draw(st.integers(1, 2))
    kinds = ("gpu",) if uniform else draw(among(("gpu",), ("fast", "slow"), ("gpu", "cpu")))
    islands = 1 if uniform else draw(among(1, 1, 2))
    specs = []
    for rack in range(racks):
        for _ in range(draw(st.integers(1, 3))):
            kind = draw(among(*kinds)) if specs else kinds[0]
            size = draw(st.integers(1, 4))
            specs.append(NodeSpec(f"n{len(specs)}", size, (0, rack), TYPES[kind], islands=islands))
    inner = ("node", "island", "gpu") if islands > 1 else ("node", "gpu")
    return build(("cluster", "rack", *inner), specs)


@st.composite
def demands(draw: st.DrawFn, *, plain: bool = False) -> Demand:
    kind = (
        "whole"
        if plain
        else draw(among(*["whole"] * 4, "part", "elastic", "hosty", "split", "small", "small"))
    )
    size = draw(among(1, 1, 2, 2, 3, 4, 6))
    if kind == "part":
        share = draw(among(200, 250, 500, 600))
        memory = draw(among(0, 0, 2 * GIB, 5 * GIB))
        count = draw(among(1, 1, 1, 2))
        sharing = draw(among(None, None, Sharing.TIME))
        return Demand(Shape(count, share, memory), count, count, sharing=sharing)
    if kind == "small":
        return Demand(Shape(1, memory=draw(among(GIB, 3 * GIB, 7 * GIB))), 1, 1)
    if kind == "elastic":
        low, high = draw(st.integers(1, size)), size + draw(st.integers(0, 3))
        return Demand(Shape(size), low, high, gpu_type=draw(among(*TYPE_CHOICES)))
    if kind == "hosty":
        return Demand(
            Shape(size, memory=draw(among(0, 6 * GIB))),
            size,
            size,
            cpus=draw(among(None, 4_000, 12_000)),
            host_memory=draw(among(None, 1 * GIB, 90 * GIB)),
        )
    if kind == "split":
        parts = tuple(
            Part(draw(among(300, 500, WHOLE)), draw(among(GIB, 3 * GIB)))
            for _ in range(draw(st.integers(1, 3)))
        )
        split = Shape(len(parts), parts=parts, speed_ppm=700_000)
        return Demand(Shape(size), max(1, size - 1), size, splits=(split,))
    kinds = (None,) if plain else TYPE_CHOICES
    return Demand(Shape(size), size, size, gpu_type=draw(among(*kinds)))


@st.composite
def workloads(draw: st.DrawFn, *, plain: bool = False, most: int = 10) -> Trace:
    count = draw(among(1, 2, *range(3, most + 1), most, most))
    submits = sorted(draw(st.lists(among(*_instants()), min_size=count, max_size=count)))
    menu = st.sampled_from(draw(st.lists(demands(plain=plain), min_size=1, max_size=4)))
    jobs = []
    for index, submit in enumerate(submits):
        failing = () if plain else draw(among(*[()] * 6, (3_000,), (1_001, 9_000)))
        job = Job(
            f"j{index}",
            submit,
            draw(menu),
            queue=draw(among("default", "other")),
            model=draw(among(*MODELS)),
            role=Role.GUARANTEED if plain else draw(among(*Role)),
            priority=0 if plain else draw(among(0, 0, 0, 1)),
            gpu_util_ppm=draw(among(None, 300_000, 900_000)),
            retries=len(failing),
        )
        service = draw(among(1, 500, 3_000, 7_001, 20_000, 33_333, 60_000))
        outcome = Outcome.SUCCEEDED if plain else draw(among(*Outcome))
        jobs.append(TracedJob(job, service, outcome, failing))
    return Trace(tuple(jobs))


def _instants() -> list[int]:
    return [0, 0, 0, 1_000, 1_000, 2_500, 5_000, 7_000, 10_001, 20_000, 30_000, 45_000]


DISK = AsideCause.DISK
GPU_CHANGES = (
    *(e.GpuSetAside, e.GpuSetAside, e.GpuReturned),
    *(partial(e.GpuSetAside, cause=DISK), partial(e.GpuReturned, cause=DISK)),
)
"""By a user, who ends all causes, and for the disk, which ends its own."""


@st.composite
def changes(draw: st.DrawFn, topology: Topology) -> tuple[e.NodeChange, ...]:
    """Nodes and GPUs come and go; in the end all are there again, so that every job can end."""
    nodes, node_of = len(topology.nodes), topology.node_of_gpu
    kinds = [e.NodeJoined, e.NodeLeft, e.NodeDraining, e.NodeUndrained]
    found = [
        at(
            draw(among(0, 1, 2.5, 5, 8, 12, 20, 31, 50)),
            draw(among(*kinds))(node),
        )
        for node in draw(st.lists(st.integers(0, nodes - 1), max_size=6))
    ]
    found += [
        at(draw(among(0, 1, 5, 12, 31, 50)), draw(among(*GPU_CHANGES))(node_of[gpu], gpu))
        for gpu in draw(st.lists(st.integers(0, len(node_of) - 1), max_size=6))
    ]
    found += [at(300, e.GpuReturned(node, gpu)) for gpu, node in enumerate(node_of)]
    found += [
        at(300, back(node)) for node in range(nodes) for back in (e.NodeJoined, e.NodeUndrained)
    ]
    return tuple(found)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    topology = draw(topologies())
    return Scenario(
        trace=draw(workloads()),
        topology=topology,
        cluster="random",
        perf=draw(WORLD),
        estimates=draw(ESTIMATES),
        node_changes=draw(st.one_of(st.just(()), changes(topology))),
        failure_rules=draw(among(None, None, PRERUNS)),
        seed=draw(st.integers(0, 3)),
    )


@st.composite
def calm_scenarios(draw: st.DrawFn) -> Scenario:
    """Equal nodes, whole rigid jobs, nothing breaks, switching is free: what mathematics speaks of."""
    return Scenario(
        trace=draw(workloads(plain=True)),
        topology=draw(topologies(uniform=True)),
        cluster="calm",
        perf=IDEAL,
    )
