"""Numbers as people read them."""

from __future__ import annotations

from trainmaster.text.formatting import size


def test_a_size_has_the_unit_that_fits() -> None:
    sizes = (1, 700, 3 << 10, 98 << 20, 3 << 29)
    assert [size(each) for each in sizes] == ["1 byte", "700 bytes", "3 KiB", "98 MiB", "1.5 GiB"]
