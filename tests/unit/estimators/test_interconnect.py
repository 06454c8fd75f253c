"""Links fitted to all-reduces, and which links of a cluster count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainmaster.estimators.interconnect import DEFAULT_LINKS, GB, fit_link, links_of
from trainmaster.gpu.devices import slot_topology
from trainmaster.model.topology import Link, parse_shorthand
from trainmaster.model.units import GIB


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_link_is_fitted_to_all_reduces(ranks: int) -> None:
    hops = 2 * (ranks - 1)
    times = {
        size: hops * (80e-6 + size / ranks / 3e9) for size in (4_096, 65_536, 1_048_576, 26_214_400)
    }
    link = fit_link(ranks, times)
    assert link.latency_us == 80
    assert link.bytes_per_s == pytest.approx(3e9, rel=1e-6)


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ({4096: 1e-3}, "at least two sizes"),
        ({4096: 2e-3, 65_536: 1e-3}, "no longer than small ones"),
    ],
)
def test_all_reduces_that_say_nothing_of_bandwidth(times: dict[int, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        fit_link(2, times)


def test_measured_links_go_before_usual_ones_and_slots_hide_nothing() -> None:
    slots = slot_topology(1, 4, "box", 4_000, 16 * GIB)
    assert links_of(slots).overlap_ppm == 0
    assert links_of(parse_shorthand("1x4")) == DEFAULT_LINKS
    measured = replace(slots, links=(("node", Link(GB, 7)),))
    assert links_of(measured).at("node") == Link(GB, 7)
    assert links_of(measured).at("rack") == DEFAULT_LINKS.at("rack")
