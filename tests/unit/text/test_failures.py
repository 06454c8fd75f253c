"""Why a run failed is said in the words of people, also where no reason is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainmaster.daemon.failure_table import built_in_table
from trainmaster.model.failure import UNKNOWN_REASON, Failure
from trainmaster.model.stop_reasons import EndCode, EndReason
from trainmaster.text.failures import failure_words
from trainmaster.text.messages import story_sentence
from trainmaster.text.stop_messages import end_sentence

LONG = f"RuntimeError: the teacher {'never ' * 20}answered"


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (Failure("semantic-error", lines=("KeyError: 'a'",)), "error in the program"),
        (Failure(UNKNOWN_REASON, lines=("go()", "train.Tired: 3 of 4")), "train.Tired: 3 of 4"),
        (Failure(UNKNOWN_REASON, lines=(LONG,)), f"{LONG[:99]}…"),
        (Failure(UNKNOWN_REASON, exit_code=3), "nothing in its log says why"),
    ],
)
def test_the_words_of_a_failure(failure: Failure, said: str) -> None:
    assert failure_words(failure, built_in_table().of(failure.reason).title) == said


def test_the_name_of_an_exception_keeps_its_case_at_the_head_of_a_sentence() -> None:
    end = EndReason(EndCode.EXIT_CODE, 1)
    assert end_sentence(end, "train.Tired: 3 of 4") == "train.Tired: 3 of 4."
    assert end_sentence(end, "error in the program") == "Error in the program."
    assert end_sentence(replace(end, rank=2), "cut…") == "cut… Rank 2 failed first."


def test_a_story_gives_the_title_and_not_the_key() -> None:
    reason = {"reason": "semantic-error", "title": "error in the program"}
    assert story_sentence("failed", {"code": 1, **reason}) == (
        "Failed (exit code 1, error in the program)"
    )
    assert story_sentence("failed", {"reason": "semantic-error"}) == "Failed (semantic error)"
    assert "failed (error in the program)," in story_sentence("pre-run passed", reason)


def test_a_failed_pre_run_is_told_with_what_may_help_only_where_it_may() -> None:
    failed = {"prerun": True, "code": 1, "title": "module not found", "reason": "import-error"}
    said = story_sentence("failed", failed)
    assert "in its pre-run on one device" in said
    assert "preflight" not in said
    assert "`run --no-preflight`" in story_sentence("failed", {**failed, "wants": "devices"})
    passed = story_sentence("pre-run passed", {"title": "file not found", "wants": "checkpoints"})
    assert "perhaps for want of its checkpoints: it is tried on all its devices" in passed


def test_advice_for_unknown_failures_is_for_users() -> None:
    table = built_in_table()
    assert "trainmaster logs JOB" in table.of(UNKNOWN_REASON).advice
    assert [row.key for row in table.rows if "--failure-reasons" in row.advice] == []


@pytest.mark.parametrize(
    ("code", "line", "said"),
    [
        (1, "All data loaded", 'nothing in its log says why; its last line was "All data loaded"'),
        (1, "cannot find the teacher", "cannot find the teacher"),
        (4, "licence server lic1 is down", "licence server lic1 is down"),
        (3, "Validation accuracy too low, stopping.", "Validation accuracy too low, stopping."),
        (137, "", "nothing in its log says why; exit code 137 often stands for SIGKILL"),
        (
            *(127, "step 3"),
            'nothing in its log says why; its last line was "step 3"; '
            "shells use exit code 127 for a command that is not found",
        ),
    ],
)
def test_a_line_that_tells_nothing_is_not_given_as_the_cause(
    code: int, line: str, said: str
) -> None:
    failure = Failure(UNKNOWN_REASON, exit_code=code, lines=(line,) if line else ())
    assert failure_words(failure, "unknown") == said


def test_no_advice_promises_a_retry() -> None:
    """It stands beside the sentence that says whether there is one."""
    promises = [row.key for row in built_in_table().rows if "is tried" in row.advice]
    assert promises == []
