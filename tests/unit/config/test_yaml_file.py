"""Files that are YAML, but not what a file of ours may hold: the sentence names the line."""

from __future__ import annotations

import pytest

from trainmaster.config.cluster import cluster_from
from trainmaster.config.queues import queues_from
from trainmaster.config.validation import ConfigError
from trainmaster.config.yaml_file import read_mapping

UNREADABLE = {
    "two documents": ("a: 1\n---\nb: 2", "x: line 3: a second document starts here"),
    "an endless number": ("a:\n  b: .inf", "x: line 2: Numbers must be finite"),
    "no number": ("a:\n  b: .nan", "x: line 2: Numbers must be finite"),
    "too many digits": ("a: 1\nb: 99999999999999999999", "x: line 2: The number 9+ is too large"),
}


@pytest.mark.parametrize(("text", "sentence"), UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_mapping(text, "x")


def test_numbers_of_other_bases_are_numbers() -> None:
    assert read_mapping("a: 0x10\nb: 0o17\nc: 1_000", "x")[0] == {"a": 16, "b": 15, "c": "1_000"}


def test_a_key_without_a_value_is_named() -> None:
    for text, name in (
        ("nodes:\n- gpus:", r"line 2: nodes\[1\].gpus"),
        ("nodes:", "line 1: nodes"),
    ):
        raw, lines = read_mapping(text, "x")
        with pytest.raises(
            ConfigError, match=f"{name} is empty: give it a value, or leave it out."
        ):
            cluster_from(raw, "x", lines)
    raw, lines = read_mapping("queues:\n- name: a\n  weight: null", "x")
    with pytest.raises(ConfigError, match=r"line 3: queues\[1\].weight is empty"):
        queues_from(raw, "x", lines)
