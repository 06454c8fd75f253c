"""Logs of failures, condensed from public issue trackers, are classified as a person would."""

from __future__ import annotations

from tests.failures import scores


def test_logs_after_public_issues() -> None:
    cases = [scores.log_case(file) for file in scores.LOGS]
    assert len(cases) >= 40
    print(scores.figures(cases))
    assert scores.wrong(cases) == {}
