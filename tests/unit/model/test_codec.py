"""Values as JSON and back: tagged, with defaults left out, and nothing imported by name."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType
from typing import NamedTuple

import pytest

from tests.builders import cluster
from trainmaster.catalog import policy_class, policy_names
from trainmaster.core.controller import Decision
from trainmaster.core.lifecycle import Phase
from trainmaster.model import actions as a
from trainmaster.model import codec
from trainmaster.model import events as e
from trainmaster.model.codec import CodecError, decode, dumps, encode, loads, trust
from trainmaster.model.engine_reports import Ended, StopOrder
from trainmaster.model.former_tags import FORMER_TAGS
from trainmaster.model.job import Demand, Estimate, Job, Run, Shape, Source, gpus
from trainmaster.model.launch_spec import LaunchSpec, LogLimits, Ranks
from trainmaster.model.placement import Placement, Role, Sharing, Slice
from trainmaster.model.plan import FrozenMap
from trainmaster.policies.trainmaster.policy import TrainmasterMemo

JOB = Job("12", 5, gpus(2, maximum=4), queue="vision", role=Role.OPPORTUNISTIC)
SPREAD = Placement((Slice(0, 1), Slice(1, 4, 500, 7, 2)), 1, Sharing.MPS)

VALUES = {
    "nothing": None,
    "a large whole number": 10**60 + 1,
    "infinity": float("inf"),
    "minus nothing": -0.0,
    "a lone surrogate": "\ud800 \x00 é",
    "a tuple of tuples": ((), (1, (2.0, True)), "x"),
    "a set": frozenset({("a", 1), ("b", 2)}),
    "an empty set": frozenset(),
    "a map with keys of all kinds": FrozenMap({(1, "a"): Run("1", 2), 3: None, Sharing.MPS: ()}),
    "a dict": {"is": "no tag", 5: {"deep": (1,)}},
    "an event": e.JobSubmitted(JOB),
    "an order": a.Launch(Run("12", 3), SPREAD, 10**15),
    "a reservation": a.Reserve("1", SPREAD.slices, 7, a.OpenTo.SHORT),
    "a launch spec": LaunchSpec(
        ("python", "x"), "/w", "/c", env=(("A", "b"),), ranks=Ranks.PER_NODE, logs=LogLimits(1, 2)
    ),
    "a report": Ended(Run("12_3", 1), 9, 137, StopOrder.HALT, tail="Killed\n"),
    "a topology": cluster("rack r1: n1[8/2] n2[4slow]   rack r2: n3[2cpu]"),
    "a memo": TrainmasterMemo(),
}


def is_same(one: object, other: object) -> bool:
    """Equal, with equal types all the way down."""
    return type(one) is type(other) and one == other and repr(one) == repr(other)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_round_trip(value: object) -> None:
    assert is_same(loads(dumps(value)), value) or isinstance(value, frozenset)
    assert loads(dumps(value)) == value
    assert dumps(loads(dumps(value))) == dumps(value)


def test_what_it_looks_like() -> None:
    assert encode(Run("12", 1)) == {"is": "Run", "job": "12", "attempt": 1}
    assert encode(a.Halt(Run("a", 0))) == {
        "is": "Halt",
        "run": {"is": "Run", "job": "a", "attempt": 0},
    }
    assert encode(Sharing.MPS) == {"is": "Sharing", "name": "MPS"}


def test_fields_with_their_default_are_left_out() -> None:
    assert encode(Shape(2)) == {"is": "Shape", "count": 2}
    assert encode(Slice(0, 1)) == {"is": "Slice", "node": 0, "gpu": 1}
    assert encode(LaunchSpec(("x",), "/", "/", logs=LogLimits())).keys() == {
        "is",
        "command",
        "workdir",
        "checkpoint_dir",
    }


@pytest.mark.parametrize("name", ["DECLARED", "HISTORY", "FIT"])
def test_sources_of_estimates_in_old_stores_are_read(name: str) -> None:
    body = {"is": "Estimate", "work": 7, "source": {"is": "Source", "name": name}}
    assert decode(body) == Estimate(7, Source.STEPS)
    assert encode(decode(body))["source"]["name"] == "STEPS"


def test_equal_is_not_the_same() -> None:
    """A default of 1 does not swallow True, nor 1.0."""
    odd = Shape(1, share=1000.0, memory=False)  # type: ignore[arg-type]
    again = decode(encode(odd))
    assert (type(again.share), type(again.memory)) == (float, bool)


def test_old_and_new_logs_can_be_read() -> None:
    old = {"is": "JobSubmitted", "job": encode(JOB)}
    assert decode(old) == e.JobSubmitted(JOB)
    assert decode(old | {"mood": {"is": "MoodOfNextYear"}}) == e.JobSubmitted(JOB)


REFUSED = {
    "a type of another module": ('{"is":"os:system"}', "neither ours nor a loaded policy's"),
    "a class that is not a value": ('{"is":"trainmaster.core.state:State"}', "there is no type"),
    "something imported there": (
        '{"is":"trainmaster.core.state:Demand","nominal":1}',
        "there is no type",
    ),
    "a module that is not loaded": ('{"is":"trainmaster.never.was:X"}', "there is no type"),
    "an attribute of a class": ('{"is":"trainmaster.core.state:State.move"}', "there is no type"),
    "an unknown name": ('{"is":"Wish"}', "no type 'Wish' in this version"),
    "an unknown member": ('{"is":"Role","name":"KING"}', "Role has no 'KING' in this version"),
    "a missing field": ('{"is":"Run","job":"a"}', "a Run must say its attempt"),
    "an object without a tag": ('{"job":"a"}', "does not say what it is"),
    "a tag that is no name": ('{"is":5}', "does not say what it is"),
    "a map of no pairs": ('{"is":"FrozenMap","of":[1]}', "must be of pairs"),
    "a map of nothing": ('{"is":"dict"}', "must say what it is of"),
    "a set of dicts": ('{"is":"frozenset","of":[{"is":"dict","of":[]}]}', "must be of values"),
    "a float that is none": ('{"is":"float","value":"wide"}', "is not a number"),
    "half a line": ('{"is":"Run","jo', "is not JSON"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(CodecError, match=said):
        loads(text)
    assert "trainmaster.never" not in sys.modules


class Local(NamedTuple):
    x: int


@dataclass
class Changing:
    x: int


@pytest.mark.parametrize("value", [[1], {1}, object(), Changing(1), Local(1), b"x", 1j])
def test_what_is_not_a_value_is_not_written(value: object) -> None:
    with pytest.raises(CodecError):
        encode((value,))


def test_a_policy_of_another_project_may_have_types_once_it_is_trusted() -> None:
    module = ModuleType("other_project.policy")
    sys.modules[module.__name__] = module
    try:
        exec("from typing import NamedTuple\nclass Memo(NamedTuple):\n    x: int = 0", vars(module))
        memo = module.Memo(3)
        with pytest.raises(CodecError, match="neither ours nor"):
            encode(memo)
        trust("other_project.policy")
        assert encode(memo) == {"is": "other_project.policy:Memo", "x": 3}
        assert loads(dumps(memo)) == memo
    finally:
        del sys.modules[module.__name__]


def test_numbers_that_are_enums_keep_their_names() -> None:
    assert issubclass(Phase, IntEnum)
    assert encode(Phase.RUNNING) == {"is": "core.Phase", "name": "RUNNING"}
    assert decode(encode(Phase.RUNNING)) is Phase.RUNNING


def test_stores_of_earlier_versions_name_types_by_their_old_modules() -> None:
    for name in policy_names():
        policy_class(name)
    import trainmaster.daemon.live_job  # noqa: F401

    assert decode({"is": "trainmaster.core.lifecycle:Phase", "name": "RUNNING"}) is Phase.RUNNING
    for former, tag in FORMER_TAGS.items():
        assert codec._type_of(former) is codec._type_of(tag)


def test_a_type_of_ours_without_a_stable_tag_is_not_written() -> None:
    with pytest.raises(CodecError, match="no stable tag"):
        encode(Decision((), (), None, planned=False))


def test_lines_are_strict_json() -> None:
    def refuse(text: str) -> float:
        raise AssertionError(text)

    line = dumps((float("nan"), float("-inf"), Demand(Shape(1), 1, 1)))
    assert "\n" not in line
    json.loads(line, parse_constant=refuse)
