"""Why a job ended without success, and who suspended it: one sentence each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainmaster.model.stop_reasons import EndCode, EndReason, Suspender, Suspension
from trainmaster.model.units import SECOND
from trainmaster.text.formatting import as_sentence, length, plural
from trainmaster.text.reasons import names

ENDED_AS = {
    "succeeded": "succeeded",
    "failed": "failed",
    "timed_out": "timed out",
    "cancelled": "was cancelled",
}


def ended_as(state: str) -> str:
    """How a job ended, as the end of a sentence."""
    return ENDED_AS.get(state, f"is {state}")


def _exit_code(end: EndReason) -> str:
    return end.detail or (f"Rank {end.rank} failed first" if end.rank else "")


def _signal(end: EndReason) -> str:
    return end.detail or f"Its program was killed by {end.signal}"


def _not_started(end: EndReason) -> str:
    return end.detail or f"Its command could not be started (exit code {end.exit_code})"


def _lost(end: EndReason) -> str:
    detail = (
        f", the last time because {end.detail[:1].lower()}{end.detail[1:]}" if end.detail else ""
    )
    return f"It was lost {plural(end.times or 0, 'time')}{detail}"


def _time_limit(end: EndReason) -> str:
    limit = f" of {length(round(end.limit_s * SECOND))}" if end.limit_s is not None else ""
    return f"It has run for its time limit{limit}"


def _idle(end: EndReason) -> str:
    time = f" for {length(round(end.limit_s * SECOND))}" if end.limit_s is not None else ""
    return f"Its GPUs had been idle{time}"


def _dependency(end: EndReason) -> str:
    return f"It was to run after job {end.job}, which {ended_as(end.job_state)}"


def _cancelled(end: EndReason) -> str:
    return f"Cancelled by {end.by}" if end.by else ""


SENTENCES: Mapping[str, Callable[[EndReason], str]] = {
    EndCode.EXIT_CODE: _exit_code,
    EndCode.SIGNAL: _signal,
    EndCode.NOT_STARTED: _not_started,
    EndCode.LOST: _lost,
    EndCode.TIME_LIMIT: _time_limit,
    EndCode.DEPENDENCY: _dependency,
    EndCode.IDLE: _idle,
    EndCode.CANCELLED: _cancelled,
}


def end_sentence(end: EndReason, failure: str = "") -> str:
    """Why it ended; empty where nothing more is known than its state says.

    `failure` is why its program failed, in a few words: "GPU out of memory"; or what it said last.
    """
    word = SENTENCES.get(end.code)
    said = end.detail if word is None else word(end)
    if failure and end.code == EndCode.EXIT_CODE and not end.detail:
        is_word = failure.partition(" ")[0].isalpha()  # and not `train.Tired: 3 of 4`
        opening = f"{failure[:1].upper()}{failure[1:]}" if is_word else failure
        said = f"{as_sentence(opening)} {said}" if said else opening
    return as_sentence(said) if said else ""


def suspension_sentence(suspension: Suspension) -> str:
    """Who suspended a job, or for what."""
    if suspension.by == Suspender.IDLE:
        return "Suspended because it was idle."
    if suspension.by == Suspender.MEMORY:
        return f"Stopped because it {suspension.detail}."
    if suspension.by == Suspender.USER:
        return f"Suspended by {suspension.user}." if suspension.user else "Suspended by a user."
    if suspension.detail:
        return f"Suspended because it {suspension.detail}."
    return f"Suspended to make room for {names(suspension.jobs)}."
