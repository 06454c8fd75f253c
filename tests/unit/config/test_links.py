"""Files of links: what is written can be read, and mistakes are one sentence."""

from __future__ import annotations

import pytest

from trainmaster.config.cluster import cluster_from
from trainmaster.config.links import links_in, links_text
from trainmaster.config.validation import ConfigError
from trainmaster.model.topology import Link

LINKS = (("node", Link(11_312_000_000, 12)), ("rack", Link(940_000_123, 800)))


def test_what_is_written_can_be_read() -> None:
    assert links_in(links_text(LINKS), "links.yaml") == LINKS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("links: {}\n", "links"),
        ("link: {node: {gb_s: 1, latency_us: 1}}\n", "unknown key 'link'"),
        ("links: {node: {gb_s: 0, latency_us: 1}}\n", "gb_s"),
        ("links: {node: {gb_s: 1}}\n", "latency_us"),
        ("links: {node: {gb_s: fast, latency_us: 1}}\n", "gb_s"),
    ],
)
def test_a_mistake_is_named(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        links_in(text, "links.yaml")


def test_a_cluster_file_may_have_them() -> None:
    raw = {"nodes": [{"gpus": 4, "count": 2}], "links": {"rack": {"gb_s": 0.94, "latency_us": 800}}}
    assert cluster_from(raw).topology.links == (("rack", Link(940_000_000, 800)),)
    with pytest.raises(ConfigError, match="no level 'rak'; did you mean rack"):
        cluster_from(raw | {"links": {"rak": {"gb_s": 1, "latency_us": 1}}})
