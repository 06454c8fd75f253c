"""How errors name a job that was asked for by its name."""

from __future__ import annotations

import pytest

from trainmaster.api.job_lookup import named_as
from trainmaster.daemon.service_api import Conflict


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("job 17 has ended.", "job bert (17) has ended."),
        ("job 17_0 has ended, and job 170 too.", "job 17_0 has ended, and job 170 too."),
    ],
)
def test_only_this_job_is_named_as_it_was_typed(raised: str, said: str) -> None:
    with pytest.raises(Conflict) as error, named_as("bert", "17"):
        raise Conflict(raised)
    assert str(error.value) == said
