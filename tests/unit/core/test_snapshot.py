"""Snapshots: the names that stores know, and memos that belong to another policy."""

from __future__ import annotations

from tests.builders import a_policy
from tests.unit.core.stage import Strings
from trainmaster.core.snapshot import restored, snapshot_of
from trainmaster.model import events as e
from trainmaster.model.codec import decode


def test_names_in_stores_stay_as_they_were_first_written() -> None:
    stage = Strings()
    stage.submit("a", 1)
    stage.submit("b", 1)
    stage.later(5).tell(e.JobHeld("b"))
    stage.later(5).tell(e.JobReleased("b"))
    body = snapshot_of(stage.controller)
    assert {"anew", "changed", "ended", "jobs", "residents"} <= body.keys()
    values = decode(body["state"])
    assert {"crowd", "stirred", "needs_pass", "has_news", "is_quiet"} <= values.keys()
    assert values["crowd"] == stage.state.job_time_integral == 15_000
    (record,) = [image for image in body["records"] if image["seq"] == 1]
    assert decode(record["crowd_before"]) == stage.job("b").job_time_before
    again = restored(body, stage.topology, stage.script, can_freeze=False).controller
    assert again.state.jobs["b"].job_time_before == stage.job("b").job_time_before
    assert snapshot_of(again) == body


def test_a_memo_of_another_policy_is_replaced_by_the_first_one() -> None:
    stage = Strings()
    stage.controller.memo = a_policy("themis").first_memo()
    body = snapshot_of(stage.controller)
    gandiva = a_policy("gandiva")
    assert restored(body, stage.topology, gandiva, can_freeze=False).controller.memo == (
        gandiva.first_memo()
    )
    themis = a_policy("themis")
    assert restored(body, stage.topology, themis, can_freeze=False).controller.memo == (
        stage.controller.memo
    )
