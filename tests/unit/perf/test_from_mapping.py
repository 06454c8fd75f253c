"""A world from a user's file: what it says is taken, every mistake is one sentence."""

from __future__ import annotations

import pytest

from trainmaster.model.units import HOUR, NOMINAL, SECOND
from trainmaster.perf.from_mapping import WorldError, world_from
from trainmaster.perf.world import DEFAULT, IDEAL


def test_an_empty_file_is_the_default_under_another_name() -> None:
    world = world_from({}, "mine")
    assert world.name == "mine"
    assert (world.spans, world.switching) == (DEFAULT.spans, DEFAULT.switching)
    assert world_from({"base": "ideal"}, "x").spans == IDEAL.spans


def test_everything_can_be_said() -> None:
    world = world_from(
        {
            "base": "ideal",
            "speed": {"default": {"rack": 0.5}, "models": {"mine": {"rack": 0.25}}},
            "switch": {
                "start_s": 1,
                "suspend_s": 2.5,
                "resume_s": 3,
                "thaw_s": 0,
                "resize_s": 4,
                "by": "freeze",
            },
            "node_failures": {"mtbf_h": 100, "repair_h": 2},
            "checkpoint_every_s": 60,
            "failures": True,
            "interference": True,
            "elastic_efficiency": 0.9,
            "table_error": 0.1,
        },
        "mine",
    )
    assert world.models == {"mine": {"rack": NOMINAL // 4}}
    assert world.spans == {"rack": NOMINAL // 2}
    switching = world.switching
    assert (switching.start_ms, switching.suspend_ms, switching.resume_ms) == (1_000, 2_500, 3_000)
    assert (switching.thaw_ms, switching.resize_ms, switching.can_freeze) == (0, 4_000, True)
    assert (world.breakage.mtbf_ms, world.breakage.repair_ms) == (100 * HOUR, 2 * HOUR)
    assert world.breakage.checkpoint_ms == 60 * SECOND
    assert (world.has_failures, world.interferes) == (True, True)
    assert (world.doubling_ppm, world.table_error_ppm) == (900_000, 100_000)


def test_a_model_keeps_the_spans_that_the_file_does_not_name() -> None:
    world = world_from({"speed": {"models": {"vgg16": {"rack": 0.5}}}}, "x")
    assert world.span_factor("vgg16", "rack") == 500_000
    assert world.span_factor("vgg16", "cluster") == 623_200
    assert DEFAULT.span_factor("vgg16", "rack") == 730_000, "the default itself is untouched"


MISTAKES = {
    "an unknown key": ({"sped": {}}, "the perf file has no 'sped'; it may hold base, "),
    "an unknown base": ({"base": "perfect"}, "base must be ideal or default, not 'perfect'."),
    "a list for a section": ({"speed": [1]}, r"speed must be a mapping, not \[1\]"),
    "a number for a model": (
        {"speed": {"models": {"a": 1}}},
        "speed.models.a must map spans to speeds.",
    ),
    "text for a speed": (
        {"speed": {"default": {"rack": "half"}}},
        "speed.default.rack must be a number",
    ),
    "no speed at all": (
        {"speed": {"default": {"rack": 0}}},
        "speed.default.rack must be more than 0.",
    ),
    "a negative time": (
        {"switch": {"suspend_s": -1}},
        "switch.suspend_s must be a number of at least 0",
    ),
    "not a number": ({"switch": {"suspend_s": float("nan")}}, "switch.suspend_s must be a number"),
    "true for a number": ({"table_error": True}, "table_error must be a number"),
    "an unknown cost": ({"switch": {"teleport_s": 1}}, "switch has no 'teleport_s'"),
    "another way to suspend": (
        {"switch": {"by": "magic"}},
        "switch.by must be halt or freeze, not 'magic'.",
    ),
    "nodes that fail all the time": (
        {"node_failures": {"mtbf_h": 0}},
        "node_failures.mtbf_h must be more",
    ),
    "an unknown failure": ({"node_failures": {"rate": 1}}, "node_failures has no 'rate'"),
    "a checkpoint every zero seconds": (
        {"checkpoint_every_s": 0},
        "checkpoint_every_s must be more than 0",
    ),
    "text for a switch": ({"failures": "yes"}, "failures must be true or false, not 'yes'."),
    "no efficiency": ({"elastic_efficiency": 0}, "elastic_efficiency must be more than 0"),
}


@pytest.mark.parametrize(("mapping", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_mistake(mapping: dict[str, object], sentence: str) -> None:
    with pytest.raises(WorldError, match=sentence):
        world_from(mapping, "x")
