"""Sentences about jobs that share a GPU, or do not."""

from __future__ import annotations

import pytest

from trainmaster.model.packing_score import Evidence, PackingScore, Verdict
from trainmaster.text.packing import packing_sentence

PAIR = (640_000, 730_000)
CASES = [
    (
        PackingScore(("4",), Verdict.PACKED, PAIR, Evidence.MEASURED),
        "It shares a GPU with job 4: together they do 1.37 of what one of them does alone, measured while"
        " such jobs were together.",
    ),
    (
        PackingScore(("4",), Verdict.ON_TRIAL),
        "It shares a GPU with job 4 until it has been measured whether that pays.",
    ),
    (
        PackingScore(("4",), Verdict.ON_TRIAL, PAIR, Evidence.UTILISATION),
        "It shares a GPU with job 4 until it has been measured whether that pays: together they should do"
        " 1.37 of what one of them does alone, predicted from how busy each keeps a GPU.",
    ),
    (
        PackingScore(("4", "7"), Verdict.TOO_LITTLE, PAIR, Evidence.LEARNED, 1_500_000),
        "It does not share a GPU with jobs 4 and 7: together they would do 1.37 of what one of them does"
        " alone, predicted from such jobs beside others, and 1.50 is asked for.",
    ),
    (
        PackingScore(("4",), Verdict.TOO_SLOW, PAIR, Evidence.PUBLISHED, 800_000),
        "It does not share a GPU with job 4: one would keep 0.64 of its speed, published for these models,"
        " and 0.80 is asked for.",
    ),
    (
        PackingScore(("4",), Verdict.UNDONE),
        "It does not share a GPU with job 4: they were tried, and together did no more than one of them"
        " alone.",
    ),
    (
        PackingScore(("4",), Verdict.NO_MEMORY),
        "It does not share a GPU with job 4: the GPU has not enough memory for all of them.",
    ),
    (
        PackingScore(("4",), Verdict.UNKNOWN),
        "It does not share a GPU with job 4: it is not known how fast they would be together.",
    ),
]


@pytest.mark.parametrize(("score", "sentence"), CASES, ids=[s.verdict.value for s, _ in CASES])
def test_a_score_is_one_sentence(score: PackingScore, sentence: str) -> None:
    assert packing_sentence(score) == sentence


def test_every_verdict_and_every_evidence_has_its_words() -> None:
    assert {score.verdict for score, _ in CASES} == set(Verdict)
    for evidence in Evidence:
        assert packing_sentence(PackingScore(("4",), Verdict.PACKED, PAIR, evidence))
