"""The memo: one that an earlier version stored is read with everything that was learned and promised."""

from __future__ import annotations

from dataclasses import replace

from trainmaster.model.codec import decode, encode
from trainmaster.model.deadline_notices import DeadlineNotice, DeadlineOutcome
from trainmaster.model.plan import FrozenMap
from trainmaster.policies.trainmaster.deadlines.commitments import Commitment, Commitments
from trainmaster.policies.trainmaster.memo import TrainmasterMemo
from trainmaster.policies.trainmaster.starvation_guard import GuaranteedRuns

ACCEPTED = Commitment(
    deadline_ms=90_000,
    estimate=5,
    needs=6,
    count=1,
    pace_ppm=1_000_000,
    switch_ms=0,
    stretches=((10, 20),),
    booked_ms=3,
    notice=DeadlineNotice("j", DeadlineOutcome.ACCEPTED, 90_000, finish_ms=20),
)
MEMO = TrainmasterMemo(
    handover_ms=30_000,
    owed=GuaranteedRuns(FrozenMap({"j": 7}), 9),
    deadlines=Commitments(judged=4, accepted=FrozenMap({"j": ACCEPTED})),
)


def stored_before() -> dict[str, object]:
    """The same memo as the version before stored it: in two parts, with other names."""
    body = encode(replace(MEMO))
    commitment = body["deadlines"]["accepted"]["of"][0][1]
    commitment["told"] = commitment.pop("notice")
    return {
        "is": "trainmaster.policies.trainmaster:Memo",
        "knowledge": {
            "is": "trainmaster.policies.line.knowing:Knowledge",
            "switch_ms": body["handover_ms"],
            "debts": body["owed"],
            "pledges": body["deadlines"],
        },
        "line": {"is": "trainmaster.policies.line.whole_cluster:LineMemo"},
    }


def test_a_memo_is_read_as_it_was_written() -> None:
    assert decode(encode(MEMO)) == MEMO


def test_a_memo_of_the_version_before_keeps_what_was_learned_and_promised() -> None:
    assert decode(stored_before()) == MEMO


def test_a_memo_from_before_the_handover_had_its_name_is_read() -> None:
    body = encode(MEMO)
    body["switch_ms"] = body.pop("handover_ms")
    assert decode(body) == MEMO
