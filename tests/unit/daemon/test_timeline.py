"""Spans of the timeline, made of records of GPU time."""

from __future__ import annotations

from dataclasses import replace

from trainmaster.daemon.timeline import devices_of, joined
from trainmaster.store.rows import SpanRow

SPAN = SpanRow("1", "ada", "resnet", 1, "\nn0:0,1", 0, 10, None)


def test_records_that_follow_each_other_on_the_same_devices_are_one_span() -> None:
    later = replace(SPAN, from_ms=10, to_ms=12, ended="suspended")
    assert joined([later, SPAN]) == [replace(SPAN, to_ms=12, ended="suspended")]


def test_after_a_pause_on_other_devices_or_in_another_attempt_it_is_another_span() -> None:
    others = [
        replace(SPAN, from_ms=11, to_ms=20),
        replace(SPAN, from_ms=10, to_ms=20, devices="\nn0:2"),
        replace(SPAN, from_ms=10, to_ms=20, attempt=2),
        replace(SPAN, from_ms=10, to_ms=20, job="2"),
    ]
    for other in others:
        assert joined([SPAN, other]) == [other, SPAN]


def test_devices_are_named_as_everywhere() -> None:
    assert list(devices_of("\nn0:0,1\nrack:1/n2:3")) == ["n0:0", "n0:1", "rack:1/n2:3"]
