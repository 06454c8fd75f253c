"""Points of time as people write them."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from trainmaster.cli.support import format as words
from trainmaster.cli.support.moments import moment_ahead, moment_of
from trainmaster.errors import BadInput

DAY = 86_400
DAYLIGHT_SAVING = 3_600


def test_points_of_time_are_dates_or_how_long_ago() -> None:
    assert abs(moment_of("2h", "--since") - (time.time() - 7200)) < 60
    assert words.at(moment_of("2026-11-15 18:00", "--since")) == "2026-11-15 18:00:00"
    with pytest.raises(BadInput, match="--since"):
        moment_of("yesterday-ish", "--since")


@pytest.mark.parametrize("text", ["00:00", "2:00", "02:00", "12:30", "23:59", "23:59:59"])
def test_a_time_of_day_is_the_last_one_or_the_next_one(text: str) -> None:
    before, ahead = moment_of(text, "--since"), moment_ahead(text, "--from", "--in")
    assert before <= time.time() < ahead + 1
    assert abs(ahead - before - DAY) <= DAYLIGHT_SAVING
    for found in (before, ahead):
        stated = datetime.fromtimestamp(found)  # noqa: DTZ006  # in local time, as it was stated
        assert f"{stated:%H:%M:%S}".startswith(text.zfill(5) if text.count(":") == 1 else text)


@pytest.mark.parametrize("text", ["2h", "30", "02", "25:00", "tomorrow", "22:00+01:00", ":30", ""])
def test_what_is_to_come_is_no_duration(text: str) -> None:
    with pytest.raises(BadInput, match="is not a date and time"):
        moment_ahead(text, "--from", "--in")
