"""Where RALP cuts a network."""

from __future__ import annotations

import pytest

from trainmaster.split.graph import GraphError
from trainmaster.split.ralp import Layer, NotWorthIt, PartitionPoint, partition_point, skewness

TOY = (Layer("a", 1, 4), Layer("b", 1, 2), Layer("c", 10, 1))


def test_the_toy_is_cut_before_its_large_layer() -> None:
    assert partition_point(TOY, batch=1) == PartitionPoint(2, traffic=8, data_parallel=24)


def test_a_large_batch_inverts_the_gain() -> None:
    said = partition_point(TOY, batch=8)
    assert isinstance(said, NotWorthIt)
    assert "takes 36 a step, parameters 24" in said.why


def test_even_layers_are_trained_in_data_parallel() -> None:
    said = partition_point([Layer(name, 5, 1) for name in "abcd"], batch=1)
    assert isinstance(said, NotWorthIt)
    assert "not skewed (0.00" in said.why


def test_vgg_16_sends_154_times_less() -> None:
    """13 convolutions of 14,714,688 parameters, and fully connected layers of 123,642,856;
    for 16 workers, as one worker could not keep up with more convolutions than none. Times are MFLOP."""
    convolutions = [
        *(1_792, 36_928, 73_856, 147_584, 295_168, 590_080, 590_080),
        *(1_180_160, 2_359_808, 2_359_808, 2_359_808, 2_359_808, 2_359_808),
    ]
    outputs = [
        *(
            64 * 224 * 224,
            64 * 112 * 112,
            128 * 112 * 112,
            128 * 56 * 56,
            256 * 56 * 56,
            256 * 56 * 56,
        ),
        *(
            256 * 28 * 28,
            512 * 28 * 28,
            512 * 28 * 28,
            512 * 14 * 14,
            512 * 14 * 14,
            512 * 14 * 14,
            25_088,
        ),
    ]
    work = (87, 1850, 925, 1850, 925, 1850, 1850, 925, 1850, 1850, 462, 462, 462)
    layers = [
        Layer(f"conv{n}", 4 * p, 4 * o, time)
        for n, (p, o, time) in enumerate(zip(convolutions, outputs, work, strict=True))
    ]
    layers += [
        Layer("fc6", 4 * 102_764_544, 4 * 4096, 103),
        Layer("fc7", 4 * 16_781_312, 4 * 4096, 17),
    ]
    layers.append(Layer("fc8", 4 * 4_097_000, 4 * 1000, 4))
    tail = sum(each.parameters for each in layers[13:])
    assert tail == 494_571_424
    said = partition_point(layers, batch=32, workers=16)
    assert isinstance(said, PartitionPoint)
    assert said.layers == 13
    activations = layers[12].output * 32
    assert activations == 3_211_264
    assert tail // activations == 154


def test_a_tail_that_does_not_fit_or_keep_up_is_not_cut_off() -> None:
    assert isinstance(partition_point(TOY, 1, tail_memory=9), NotWorthIt)
    slow = (Layer("a", 1, 4, 1), Layer("b", 1, 2, 1), Layer("c", 10, 1, 9))
    said = partition_point(slow, 1)
    assert isinstance(said, NotWorthIt)
    assert "keeps up" in said.why


def test_skewness() -> None:
    assert skewness([1, 1, 10]) == pytest.approx(0.7071, abs=1e-4)
    assert skewness([3, 3]) == 0
    with pytest.raises(GraphError):
        partition_point([], 1)
