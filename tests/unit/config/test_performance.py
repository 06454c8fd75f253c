"""A world from a user's file: what it says is taken, every mistake is one sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainmaster.config.performance import perf_model_from
from trainmaster.config.validation import ConfigError
from trainmaster.model.placement import Sharing
from trainmaster.model.units import HOUR, NOMINAL, SECOND
from trainmaster.perf.default_parameters import H200
from trainmaster.perf.gpu_interference import SharingLaw
from trainmaster.perf.network_contention import NetworkContention
from trainmaster.perf.perf_model import DEFAULT, IDEAL


def test_an_empty_file_is_the_default_under_another_name() -> None:
    world = perf_model_from({}, "mine")
    assert world.name == "mine"
    assert replace(world, name="default") == DEFAULT
    assert replace(perf_model_from({"base": "ideal"}, "x"), name="ideal") == IDEAL


def test_everything_can_be_said() -> None:
    world = perf_model_from(
        {
            "base": "ideal",
            "speed": {
                "default": {"rack": 0.5, "socket": 0.9},
                "models": {"mine": {"rack": 0.25}},
                "nodes": {"mine": {4: {2: 0.7, 4: 0.4}}},
                "widths": {"default": {1.5: 0.9}},
            },
            "gpu_speed": {"mine": {"K80": 0.1}},
            "switch": {
                "start_s": 1,
                "suspend_s": 2.5,
                "resume_s": 3,
                "thaw_s": 0,
                "freeze_s": 0.25,
                "resize_s": 4,
                "by": "freeze",
                "path": "driver",
                "load_gb_s": 2.5,
                "saves": "periodic",
            },
            "node_failures": {"mtbf_h": 100, "repair_h": 2, "detection_s": 64},
            "profiling_s": 40,
            "checkpoint_every_s": 60,
            "failures": True,
            "sharing": {
                "law": "h200",
                "a": -0.05,
                "b": 1.06,
                "cost": {"mps": {0.25: 0.4, 1: 0.9}},
                "contention": 0.1,
                "bandwidth": {"mine": 0.3},
                "pairs": {"mine": {"other": 0.6}},
                "opportunistic": {"tolerance": 0.01, "floor": 0.05},
            },
            "neighbours": {"server": {"default": {2: 0.8}}, "nic": {"mine": {2: 0.7, 4: 0.6}}},
            "elastic": {"default_efficiency": 0.9, "models": {"mine": {1: 10, 3: 25}}},
            "table_error": 0.1,
        },
        "mine",
    )
    locality = world.locality
    assert locality.models == {"mine": {"rack": NOMINAL // 4}}
    assert locality.spans == {"rack": NOMINAL // 2, "socket": 900_000}
    assert locality.node_counts == {"mine": {4: {2: 700_000, 4: 400_000}}}
    assert locality.widths == {"default": {150: 900_000}}
    assert world.gpu_speeds == {"mine": {"k80": 100_000}}
    switching = world.preemption_cost
    assert (switching.start_ms, switching.suspend_ms, switching.resume_ms) == (1_000, 2_500, 3_000)
    assert (switching.thaw_ms, switching.resize_ms, switching.can_freeze) == (0, 4_000, True)
    assert switching.freeze_ms == 250
    assert (world.node_failures.mtbf_ms, world.node_failures.repair_ms) == (100 * HOUR, 2 * HOUR)
    assert world.node_failures.checkpoint_ms == 60 * SECOND
    assert (world.node_failures.detection_ms, world.profiling_ms) == (64 * SECOND, 40 * SECOND)
    assert not switching.saves_on_demand
    assert (switching.save_bytes_s, switching.load_bytes_s) == (1_900_000_000, 2_500_000_000)
    assert (world.has_failures, world.interferes) == (True, True), (
        "a gang with neighbours is slowed down"
    )
    assert (world.elasticity.doubling_ppm, locality.error_ppm) == (900_000, 100_000)
    assert world.elasticity.models == {"mine": {1: NOMINAL, 3: 2_500_000}}
    assert world.neighbours == NetworkContention(
        {"default": {2: 800_000}}, {"mine": {2: 700_000, 4: 600_000}}
    )
    law = world.shared_gpu
    assert (law.law, law.constant_ppm, law.per_job_ppm) == (SharingLaw.H200, -50_000, 1_060_000)
    assert law.costs[Sharing.MPS] == {250_000: 400_000, NOMINAL: 900_000}
    assert law.costs[Sharing.TIME] == H200[Sharing.TIME], "what the file leaves out"
    assert (law.contention_ppm, law.bandwidth) == (100_000, {"mine": 300_000})
    assert law.pairs == {("mine", "other"): 600_000}
    assert (law.tolerance_ppm, law.floor_ppm) == (10_000, 50_000)


@pytest.mark.parametrize("base", ["ideal", "default"])
def test_a_law_brings_its_own_costs(base: str) -> None:
    h200 = perf_model_from({"base": base, "sharing": {"law": "h200"}}, "x").shared_gpu
    assert (h200.costs, h200.contention_ppm) == (H200, 200_000)
    plain = perf_model_from({"base": base, "sharing": {"law": "utilisation"}}, "x").shared_gpu
    assert (plain.costs, plain.contention_ppm, plain.pairs) == ({}, 0, {})


def test_what_a_file_says_of_a_model_replaces_what_was_measured_of_its_nodes() -> None:
    world = perf_model_from({"speed": {"models": {"ResNet-50": {"rack": 0.5}}}}, "x")
    assert world.locality.at_span("resnet50", "rack") == 500_000
    assert "resnet50" not in world.locality.node_counts
    assert "resnet50" not in world.locality.widths
    assert "inception3" in world.locality.node_counts, "others are untouched"


def test_neighbours_and_interference_can_be_turned_off() -> None:
    assert not perf_model_from({"neighbours": False}, "x").neighbours
    assert not perf_model_from({"interference": False}, "x").interferes
    assert not perf_model_from({"base": "ideal", "neighbours": False}, "x").interferes


def test_speeds_by_size_may_be_in_any_unit() -> None:
    tiny = {1: 0.000_001_4, 2: 0.000_002_6, 4: 0.000_004_9}
    world = perf_model_from({"elastic": {"models": {"a": tiny}}}, "x")
    assert world.elasticity.models["a"] == {1: NOMINAL, 2: 1_857_143, 4: 3_500_000}


def test_the_short_form_of_efficiency() -> None:
    assert perf_model_from({"elastic_efficiency": 0.7}, "x").elasticity.doubling_ppm == 700_000


@pytest.mark.parametrize(
    ("path", "rates"),
    [("driver", (1_900_000_000, 5_700_000_000)), ("cooperative", (49 << 30, 47 << 30)),
     ("none", (None, None))],
)  # fmt: skip
def test_ways_for_memory_to_travel(path: str, rates: tuple[int | None, int | None]) -> None:
    found = perf_model_from({"switch": {"path": path}}, "x").preemption_cost
    assert (found.save_bytes_s, found.load_bytes_s) == rates


def test_a_model_keeps_the_spans_that_the_file_does_not_name() -> None:
    world = perf_model_from({"speed": {"models": {"vgg16": {"rack": 0.5}}}}, "x")
    assert world.locality.at_span("vgg16", "rack") == 500_000
    assert world.locality.at_span("vgg16", "cluster") == 623_200
    assert DEFAULT.locality.at_span("vgg16", "rack") == 730_000, "the default itself is untouched"


MISTAKES = {
    "an unknown key": ({"sped": {}}, "unknown key 'sped'; did you mean speed"),
    "an unknown base": ({"base": "perfect"}, "base must be ideal or default, not 'perfect'."),
    "a list for a section": ({"speed": [1]}, r"speed must be a mapping, not \[1\]"),
    "a number for a model": (
        {"speed": {"models": {"a": 1}}},
        "speed.models.a must be a mapping, not 1.",
    ),
    "text for a speed": (
        {"speed": {"default": {"rack": "half"}}},
        "speed.default.rack must be a number",
    ),
    "no speed at all": (
        {"speed": {"default": {"rack": 0}}},
        "speed.default.rack must be more than 0 and at most 1, not 0: 1 is all of it.",
    ),
    "a negative time": (
        {"switch": {"suspend_s": -1}},
        "switch.suspend_s must be at least 0, not -1.",
    ),
    "not a number": ({"switch": {"suspend_s": float("nan")}}, "switch.suspend_s must be"),
    "true for a number": ({"table_error": True}, "table_error must be a number"),
    "an unknown cost": (
        {"switch": {"teleport_s": 1}},
        "unknown key 'switch.teleport_s'; there are",
    ),
    "another way to suspend": (
        {"switch": {"by": "magic"}},
        "switch.by must be halt or freeze, not 'magic'.",
    ),
    "another time to save": (
        {"switch": {"saves": True}},
        "switch.saves must be never, periodic or on-demand, not true.",
    ),
    "failures noticed before they happen": (
        {"node_failures": {"detection_s": -1}},
        "node_failures.detection_s must be at least 0, not -1.",
    ),
    "no time to be measured in": (
        {"profiling_s": "long"},
        "profiling_s must be a number of at least 0, not 'long'.",
    ),
    "nodes that fail all the time": (
        {"node_failures": {"mtbf_h": 0}},
        "node_failures.mtbf_h must be more",
    ),
    "an unknown failure": ({"node_failures": {"rate": 1}}, "unknown key 'node_failures.rate'"),
    "a checkpoint every zero seconds": (
        {"checkpoint_every_s": 0},
        "checkpoint_every_s must be more than 0",
    ),
    "text for a switch": ({"failures": "yes"}, "failures must be true or false, not 'yes'."),
    "no efficiency": (
        {"elastic_efficiency": 0},
        "elastic_efficiency must be at least 0.5 and at most 1, not 0: twice",
    ),
    "faster than the nearest": (
        {"speed": {"models": {"a": {"rack": 1.1}}}},
        "speed.models.a.rack must be more than 0 and at most 1, not 1.1: 1 is all of it.",
    ),
    "no nodes": (
        {"speed": {"nodes": {"a": {4: {1: 0.5}}}}},
        "speed.nodes.a.4.1 must be at least 2, not 1.",
    ),
    "an empty table of nodes": (
        {"speed": {"nodes": {"a": {4: {}}}}},
        "speed.nodes.a.4 must not be empty.",
    ),
    "a model without nodes": ({"speed": {"nodes": {"a": {}}}}, "speed.nodes.a must not be empty."),
    "a model without widths": (
        {"speed": {"widths": {"a": {}}}},
        "speed.widths.a must not be empty.",
    ),
    "a model without GPU types": ({"gpu_speed": {"a": {}}}, "gpu_speed.a must not be empty."),
    "a way of sharing without costs": (
        {"sharing": {"cost": {"mps": {}}}},
        "sharing.cost.mps must not be empty.",
    ),
    "times by the number of jobs, as there once were": (
        {"sharing": {"times": {"mps": {"small": {2: 1.05}}}}},
        "unknown key 'sharing.times'; did you mean cost .GPU time in company by utilisation",
    ),
    "tables that may be wrong by all": (
        {"table_error": 1},
        "table_error must be at least 0 and less than 1, not 1.",
    ),
    "nothing for a constant": (
        {"sharing": {"a": None}},
        "sharing.a is empty: give it a value, or leave it out.",
    ),
    "twice the GPUs, thrice the speed": (
        {"elastic": {"default_efficiency": 1.5}},
        "elastic.default_efficiency must be at least 0.5 and at most 1, not 1.5",
    ),
    "twice the GPUs, less speed": (
        {"elastic_efficiency": 0.4},
        "elastic_efficiency must be at least 0.5 and at most 1, not 0.4",
    ),
    "a width of one": (
        {"speed": {"widths": {"a": {1: 0.5}}}},
        "speed.widths.a.1 must be more than 1 and less than 1,000,000, not 1.",
    ),
    "text for a width": (
        {"speed": {"widths": {"a": {"wide": 0.5}}}},
        "speed.widths.a.wide must be a number of more than 1 and less than 1,000,000, not 'wide'.",
    ),
    "a GPU without speed": (
        {"gpu_speed": {"a": {"K80": 0}}},
        "gpu_speed.a.K80 must be more than 0",
    ),
    "a number for GPU speeds": ({"gpu_speed": {"a": 1}}, "gpu_speed.a must be a mapping, not 1."),
    "an unknown law": (
        {"sharing": {"law": "murphy"}},
        "sharing.law must be linear, h200 or utilisation, not 'murphy'.",
    ),
    "an unknown key of sharing": (
        {"sharing": {"lew": "h200"}},
        "unknown key 'sharing.lew'; did you mean",
    ),
    "text for a constant": (
        {"sharing": {"a": "x"}},
        "sharing.a must be a number of more than -1,000,000,000 and less",
    ),
    "no slope": ({"sharing": {"b": 0}}, "sharing.b must be more than 0, not 0."),
    "company that costs nothing": (
        {"sharing": {"cost": {"mps": {0.5: 0}}}},
        "sharing.cost.mps.0.5 must be more than 0, not 0.",
    ),
    "more than all of a GPU": (
        {"sharing": {"cost": {"time": {2: 1.1}}}},
        "sharing.cost.time.2 must be more than 0 and at most 1, not 2",
    ),
    "an unknown way of sharing": (
        {"sharing": {"cost": {"mig": {}}}},
        "unknown key 'sharing.cost.mig'; there are mps, time.",
    ),
    "waiting for all of the others": (
        {"sharing": {"contention": 1}},
        "sharing.contention must be at least 0 and less than 1, not 1.",
    ),
    "a pair above one": (
        {"sharing": {"pairs": {"a": {"b": 1.2}}}},
        "sharing.pairs.a.b must be more than 0 and at most 1, not 1.2",
    ),
    "more bandwidth than there is": (
        {"sharing": {"bandwidth": {"a": 2}}},
        "sharing.bandwidth.a must be more than 0 and at most 1, not 2",
    ),
    "all may be taken": (
        {"sharing": {"opportunistic": {"tolerance": 1}}},
        "sharing.opportunistic.tolerance must be at least 0 and less than 1, not 1.",
    ),
    "guests that never run": (
        {"sharing": {"opportunistic": {"floor": 0}}},
        "sharing.opportunistic.floor must be more than 0 and at most 1, not 0",
    ),
    "an unknown wire": (
        {"neighbours": {"nvlink": {}}},
        "unknown key 'neighbours.nvlink'; there are server, nic.",
    ),
    "true for neighbours": ({"neighbours": True}, "neighbours must be a mapping, not true."),
    "one neighbour": (
        {"neighbours": {"nic": {"default": {1: 0.5}}}},
        "neighbours.nic.default.1 must be at least 2, not 1.",
    ),
    "an unknown path": (
        {"switch": {"path": "magic"}},
        "switch.path must be driver, cooperative or none, not 'magic'.",
    ),
    "no bandwidth": ({"switch": {"save_gb_s": 0}}, "switch.save_gb_s must be more than 0, not 0."),
    "a table without one GPU": (
        {"elastic": {"models": {"a": {2: 1.9}}}},
        "elastic.models.a must say the speed on 1 GPU, which the others are relative to.",
    ),
    "an empty table": (
        {"elastic": {"models": {"a": {}}}},
        "elastic.models.a must say the speed on 1",
    ),
    "a table out of order": (
        {"elastic": {"models": {"a": {1: 1, 4: 3, 2: 2}}}},
        "elastic.models.a must go from fewer GPUs to more, not from 4 to 2.",
    ),
    "a table that falls": (
        {"elastic": {"models": {"a": {1: 1, 2: 1.9, 4: 1.5}}}},
        "elastic.models.a must not fall: 4 GPUs are slower than 2;",
    ),
    "a speed of zero": (
        {"elastic": {"models": {"a": {1: 1, 2: 0}}}},
        "elastic.models.a.2 must be more than 0, not 0.",
    ),
    "a negative speed": (
        {"elastic": {"models": {"a": {1: -1}}}},
        "elastic.models.a.1 must be more than 0, not -1.",
    ),
    "half a GPU": (
        {"elastic": {"models": {"a": {1: 1, 1.5: 2}}}},
        "elastic.models.a.1.5 must be a whole number, not 1.5.",
    ),
    "an unknown key of elastic": ({"elastic": {"tables": {}}}, "unknown key 'elastic.tables'"),
}


@pytest.mark.parametrize(("mapping", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_mistake(mapping: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        perf_model_from(mapping, "x")
