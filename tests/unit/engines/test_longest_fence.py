"""The longest fence of a data folder is remembered when a later manager has a shorter one."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.engines.protocol import EngineError
from trainmaster.engines.ray.longest_fence import FILE, longest_fence_s


def test_a_shorter_fence_does_not_make_the_longest_one_forgotten(tmp_path: Path) -> None:
    assert [longest_fence_s(tmp_path, each) for each in (60.0, 300.0, 10.0)] == [60, 300, 300]


@pytest.mark.parametrize("content", ["", "long", "nan", "inf", "-1"])
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(EngineError, match="longest-fence does not hold a number of seconds"):
        longest_fence_s(tmp_path, 60.0)
