"""Shapes, units and memos."""

from __future__ import annotations

import pickle

import pytest

from tests.builders import fraction
from trainmaster.model.job import Demand, Part, Shape, gpus
from trainmaster.model.placement import Placement, Sharing, Slice
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import ceil_div, to_ms, to_seconds


def test_shapes_nominal_first_then_larger_to_smaller_then_splits() -> None:
    split = Shape(2, parts=(Part(500, 1), Part(250, 1)))
    demand = Demand(Shape(2), 1, 4, splits=(split,))
    assert [shape.count for shape in demand.shapes()] == [2, 4, 3, 1, 2]
    assert split.total_share == 750
    assert demand.is_elastic
    assert not gpus(3).is_elastic


def test_sharing_follows_the_shape_unless_said() -> None:
    assert gpus(1).mode is Sharing.EXCLUSIVE
    assert fraction(0.5).mode is Sharing.MPS
    assert fraction(0.5, sharing=Sharing.TIME).mode is Sharing.TIME


def test_an_exclusive_placement_holds_whole_gpus() -> None:
    slices = (Slice(0, 0, 300), Slice(0, 1, 500), Slice(2, 9, 500))
    assert Placement(slices, 0).total_share == 3_000
    assert Placement(slices, 0, Sharing.MPS).total_share == 1_300
    assert Placement(slices, 0).nodes == (0, 2)


def test_a_memo_is_a_value() -> None:
    memo = FrozenMap({"a": 1})
    assert memo.updated({"b": 2}) == FrozenMap({"b": 2, "a": 1})
    assert hash(memo) == hash(FrozenMap({"a": 1}))
    assert memo.updated({"b": 2}).only({"b": None}) == FrozenMap({"b": 2})
    assert pickle.loads(pickle.dumps(memo)) == memo
    assert memo == FrozenMap({"a": 1}), "updating gave a new one"
    with pytest.raises(TypeError):
        memo["a"] = 2  # type: ignore[index]


def test_units() -> None:
    assert (to_ms(0.0005), to_ms(1.2345), to_seconds(1_500)) == (0, 1_234, 1.5)
    assert (ceil_div(7, 2), ceil_div(8, 2), ceil_div(0, 5)) == (4, 4, 0)


def test_which_types_a_job_allows() -> None:
    def allowed(said: str | None) -> set[str]:
        demand = Demand(Shape(1), 1, 1, gpu_type=said)
        return {kind for kind in ("A100", "V100", "cpu") if demand.allows(kind)}

    assert allowed(None) == allowed("") == allowed("any") == {"A100", "V100"}
    assert allowed("cpu") == {"cpu"}
    assert allowed("V100") == {"V100"}
    assert allowed("V100|cpu") == allowed(" V100 | cpu ") == {"V100", "cpu"}
    assert allowed("any|cpu") == {"A100", "V100", "cpu"}
    assert allowed("H100|") == set()
