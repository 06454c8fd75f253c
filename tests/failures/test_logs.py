"""Genuine logs of failures, shortened from public issue trackers, are classified as a person would."""

from __future__ import annotations

from tests.failures import scores


def test_genuine_logs() -> None:
    cases = [scores.log_case(file) for file in scores.LOGS]
    assert len(cases) >= 40
    print(scores.figures(cases))
    assert scores.wrong(cases) == {}
