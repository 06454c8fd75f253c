"""Speeds of types as users state them."""

from __future__ import annotations

import pytest

from trainmaster.config.type_speeds import SpeedError, speeds_of


def test_speeds_by_type() -> None:
    assert speeds_of(()) is None
    assert speeds_of(("V100=0.4", "cpu=0.02", "V100=0.5")) == (("V100", 500_000), ("cpu", 20_000))
    assert speeds_of(("A100-39GiB=1",)) == (("A100-39GiB", 1_000_000),)
    assert speeds_of(("measured",)) == ()


@pytest.mark.parametrize(
    "text", ["V100", "V100=", "=0.4", "V100=fast", "V100=0", "V100=-1", "V100=nan"]
)
def test_what_is_no_speed(text: str) -> None:
    with pytest.raises(SpeedError, match="is not TYPE=SPEED"):
        speeds_of((text,))


def test_measured_stands_alone() -> None:
    with pytest.raises(SpeedError, match="give it alone"):
        speeds_of(("measured", "V100=0.4"))
