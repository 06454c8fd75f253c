"""Limits: what may be set, and what is said of what may not."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from trainmaster.config.limits import Limits, limits_of
from trainmaster.config.validation import ConfigError
from trainmaster.model.units import MINUTE

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"


def test_limits_are_set_by_name() -> None:
    found = limits_of(["losses=7", "retry_delay=2m"])
    assert (found.losses, found.retry_delay) == (7, 2 * MINUTE)
    assert found.max_retry_delay == Limits().max_retry_delay


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ("loses=7", "is not a limit: did you mean losses?"),
        ("keep_log=5s", "is not a limit: did you mean keep_logs?"),
        ("nonsense=5s", "is not a limit: write NAME=VALUE with one of losses,"),
        ("losses", "is not a limit"),
        ("losses=0", "the limit losses must be a whole number from 1"),
        ("losses=many", "the limit losses must be a whole number from 1"),
        ("input_failures=17", "the limit input_failures must be a whole number from 1 to 16, not"),
        ("max_grace=5", r"the limit max_grace must be .* with its unit: 5s or 5m\?$"),
        ("retry_delay=soon", "the limit retry_delay must be a length of time"),
    ],
)
def test_what_cannot_be_a_limit(stated: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        limits_of([stated])


def test_every_limit_says_what_it_is() -> None:
    assert all(each.metadata["says"].endswith(".") for each in fields(Limits))


def test_the_page_lists_every_limit_with_its_default() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (\S+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert [name for name, _, _ in listed] == [each.name for each in fields(Limits)]
    assert limits_of(f"{name}={default}" for name, default, _ in listed) == Limits()
    assert [says for _, _, says in listed] == [each.metadata["says"] for each in fields(Limits)]
