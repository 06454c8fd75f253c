"""Sentences about a job: why it waits, how it ended, what it does now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from trainmaster.daemon.job_rows import PrerunRow
from trainmaster.daemon.service_api import JobStatus
from trainmaster.model.job_state import ENDED_STATES, WAITING_STATES, JobState
from trainmaster.model.reasons import Why
from trainmaster.model.stop_reasons import EndCode, EndReason, Suspender
from trainmaster.model.units import SECOND
from trainmaster.text.failures import failure_words
from trainmaster.text.formatting import length, when
from trainmaster.text.hangs import hang_sentence
from trainmaster.text.messages import SAYS_NO_PREFLIGHT, perhaps_for_want
from trainmaster.text.reasons import reason_sentence
from trainmaster.text.stop_messages import end_sentence, ended_as, suspension_sentence

BY_PERSON = {
    Why.SUSPENDED_BY_USER: Suspender.USER,
    Why.SUSPENDED_IDLE: Suspender.IDLE,
}
"""Reasons of a suspended job that is not to continue by itself; any other one is the policy's."""

BY_MANAGER = frozenset({Suspender.POLICY, Suspender.MEMORY})
MOST_NAMED = 10
HUNG = "Hung"
"""The code of a job that hangs."""


def suspended_by(status: JobStatus) -> Suspender | None:
    """Who keeps a suspended job off its devices."""
    if status.row.state != JobState.SUSPENDED:
        return None
    reason = status.reason
    return Suspender.POLICY if reason is None else BY_PERSON.get(reason.why, Suspender.POLICY)


def waiting_sentence(status: JobStatus, now: int) -> tuple[str, str] | None:
    """Code and sentence; None for a job that does not wait, or whose reason is not known yet."""
    reason = status.reason
    if reason is None or status.row.state in ENDED_STATES:
        return None
    said = reason_sentence(reason, now)
    if suspended_by(status) is Suspender.POLICY:
        said = f"Waiting to resume: {said[:1].lower()}{said[1:]}"
    return reason.why.value, said


def end_reason(status: JobStatus) -> EndReason | None:
    """Why a job ended without success; None where it succeeded, or has not ended."""
    row, history = status.row, status.history
    if row.state not in ENDED_STATES or row.state == JobState.SUCCEEDED:
        return None
    end = history.end
    if end is None:
        end = _former_end(status)
    if row.state == JobState.CANCELLED and not end.is_withdrawal:
        return EndReason(EndCode.CANCELLED)  # an earlier attempt failed so
    return end


def _former_end(status: JobStatus) -> EndReason:
    """Of a job that ended under an older version, which recorded the words alone."""
    row, failure = status.row, status.history.failure
    why = str(failure.get("why") or "")
    if row.state == JobState.TIMED_OUT:
        return EndReason(EndCode.TIME_LIMIT, row.exit_code, detail=why)
    code = EndCode.CANCELLED if row.state == JobState.CANCELLED else EndCode.EXIT_CODE
    return EndReason(code, row.exit_code, detail=why)


def ended_because(status: JobStatus) -> str:
    """Why it ended without success, as a sentence; empty where the state says all."""
    end = end_reason(status)
    return "" if end is None else end_sentence(end, failure_title(status))


def failure_title(status: JobStatus) -> str:
    """Why its program failed, in a few words; empty where that is not known."""
    row, failed = status.failure_reason, status.history.failed_by
    return "" if row is None or failed is None else failure_words(failed, row.title)


def status_sentence(status: JobStatus, now: int) -> tuple[str | None, str]:
    """Code and sentence for a job in any state: what it waits for, or what it does instead."""
    waits, suspension = waiting_sentence(status, now), status.history.suspension
    if waits is not None:
        is_policys = suspended_by(status) is Suspender.POLICY
        if is_policys and suspension is not None and suspension.by in BY_MANAGER:
            return waits[0], f"{suspension_sentence(suspension)} {waits[1]}"
        return waits
    row = status.row
    if row.state in ENDED_STATES:
        has_code = row.exit_code is not None and row.state in (JobState.FAILED, JobState.SUCCEEDED)
        code = f" with exit code {row.exit_code}" if has_code else ""
        is_recent = row.finish_ms is not None and now - row.finish_ms < SECOND
        ended = "" if row.finish_ms is None else f", {when(row.finish_ms, now)}"
        ended = ", just now" if is_recent else ended
        end = end_reason(status)
        tried = prerun(status) if row.state == JobState.FAILED else None
        in_prerun = f" {tried.sentence}" if tried is not None and tried.result == "failed" else ""
        said = f"It {ended_as(row.state)}{code}{ended}. {ended_because(status)}".rstrip()
        said += in_prerun
        return None if end is None else end.code, said
    if row.state in WAITING_STATES:
        return None, f"It is {status.transition or 'waiting for the next scheduling pass'}."
    place = f" on {', '.join(status.devices)}" if status.devices else ""
    beside = f" and {status.transition}" if status.transition is not None else ""
    hang = status.history.hang
    if hang is not None and not hang.is_over:
        said = " ".join((hang_sentence(hang.at(now)), *hang.stacks))
        silent = f"its last sign of life was {when(hang.since_ms, now)}"
        return HUNG, f"It is {row.state}{place}{beside}, and hangs: {silent}. {said}"
    tried = prerun(status)
    on_one = f" {tried.sentence}" if tried is not None and tried.result == "running" else ""
    return None, f"It is {row.state}{place}{beside}.{on_one}"


def copy_sentences(job: str, left_out: Sequence[str]) -> Iterator[str]:
    """What the user of a job that runs in a copy of its code should know."""
    yield (
        f"It runs in a copy of the code: `trainmaster outputs {job}` fetches what it writes there."
    )
    if left_out:
        more = f" and {len(left_out) - MOST_NAMED} more" if len(left_out) > MOST_NAMED else ""
        yield f"The copy does not have {', '.join(left_out[:MOST_NAMED])}{more}, which are ignored."


def ran_in(stored: Mapping[str, object]) -> str | None:
    """The folder of its processes, by what is stored of its submission."""
    return _launched_with(stored, "workdir")


def uuid_of(stored: Mapping[str, object]) -> str | None:
    """The job's own name for ever, by what is stored of its submission; None of an earlier version."""
    return _launched_with(stored, "uuid") or None


def _launched_with(stored: Mapping[str, object], field: str) -> str | None:
    kept = stored.get("kept")
    recipe = kept.get("recipe") if isinstance(kept, Mapping) else None
    found = recipe.get(field) if isinstance(recipe, Mapping) else None
    return found if isinstance(found, str) else None


def details(text: str) -> dict[str, object]:
    """The JSON object in a text of the store; empty if the text is not one."""
    try:
        found = json.loads(text, parse_constant=lambda _: None)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


PRERUN_SENTENCES = {
    "waiting": "It first runs on one of its devices (pre-run).",
    "running": "Its first steps run on one device (pre-run).",
    "passed": "Passed on one device, in {ran}.",
    "failed": "It failed in its pre-run on one device, after {ran}{hint}.",
    "unsure": "Failed on one device after {ran} ({reason}), {want}.",
    "skipped": "Skipped: job {passed_as} has passed it.",
}


def prerun(status: JobStatus) -> PrerunRow | None:
    """What there is to say about its pre-run."""
    found = status.history.prerun
    if found is None:
        return None
    is_running = status.row.state == JobState.RUNNING
    result = found.result or ("running" if is_running else "waiting")
    if result == "waiting" and status.row.state in ENDED_STATES:
        return None
    reason = found.title or found.reason
    words = {
        "ran": length(found.ran_ms),
        "reason": reason,
        "passed_as": found.passed_as,
        "want": perhaps_for_want(found.wants),
        "hint": f"; {SAYS_NO_PREFLIGHT}" if found.wants else "",
    }
    sentence = PRERUN_SENTENCES[result].format(**words)
    if result == "unsure" and not found.reason:
        sentence = (
            f"It was seen to make no step on one device in {words['ran']}: that shows nothing."
        )
    if result == "passed" and found.has_finished:
        sentence = (
            f"Its program ended on one device, in {words['ran']}; its work is done again on all its devices "
            "(`preflight: false` spares it that)."
        )
    if result == "waiting" and found.failed_as:
        sentence += f" The same program has just failed its pre-run as job {found.failed_as}."
    if result == "skipped" and not found.passed_as:
        sentence = "Skipped: that of the same program was unsure."
    return PrerunRow(result, sentence, found.attempt or None, found.ran_ms / SECOND)
