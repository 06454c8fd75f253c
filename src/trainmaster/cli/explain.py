"""`trainmaster explain`: why a job waits, which jobs block it, and when it should start."""

from __future__ import annotations

import time

from trainmaster.cli.support.console import show_answer
from trainmaster.cli.support.format import at
from trainmaster.cli.support.options import AsJson, JobName
from trainmaster.client.manager_api import Json, ManagerApi, job_path
from trainmaster.model.job_state import LIVE_STATES
from trainmaster.text.formatting import short_length

NUMBERS = {"need": "needed", "free": "free", "largest_block": "free together"}


def explain(client: ManagerApi, job: JobName, as_json: AsJson = False) -> None:
    """Explain why a job waits: the reason with its numbers, the jobs that block it, the expected start.

    Examples:
        trainmaster explain 12
        trainmaster explain 12 --json
    """
    answer = client.get(job_path(job, "explain"))
    show_answer(answer, as_json, "\n".join(lines_of(answer)))


def lines_of(answer: Json) -> list[str]:
    """The explanation, a line for each thing that is known."""
    code = f" ({answer['code']})" if answer.get("code") else ""
    lines = [f"{answer['sentence']}{code}"]
    if answer.get("array") and answer["id"] != answer["array"]:
        lines.insert(0, f"Of array {answer['array']}, job {answer['id']} is the first that waits:")
    numbers = answer.get("numbers") or {}
    if numbers.get("need", 0) <= 1:  # for one GPU all are together
        numbers = {key: value for key, value in numbers.items() if key != "largest_block"}
    stated = [f"{word} {numbers[key]:g}" for key, word in NUMBERS.items() if key in numbers]
    if stated:
        lines.append(f"GPUs: {', '.join(stated)}.")
    held_by = answer.get("held_by") or ()
    if held_by:
        lines += ["In the way:", *(f"  {_holder(each)}" for each in held_by)]
    forecast = answer.get("forecast")
    if forecast:
        lines.append(_forecast(forecast))
    lines += [f"Note: {each}" for each in answer.get("remarks") or ()]
    return [*lines, *failure_lines(answer), *last_lines(answer)]


def failure_lines(answer: Json) -> list[str]:
    """Why its last run failed, the lines that show it, and what to do."""
    failure = answer.get("failure")
    if not failure:
        return []
    rank = failure["rank"]
    first = f"; rank {rank} failed first" if rank is not None else ""
    what = "Last failure" if answer["state"] in LIVE_STATES else "Failure"
    lines = [f"{what}: {failure['title']}; blame: {failure['blame']}{first}."]
    if failure["path"]:
        lines.append(f"Input that it could not read: {failure['path']}")
    lines += [f"  {line}" for line in failure["lines"]]
    again = failure.get("retry")
    return [*lines, f"Advice: {failure['advice']}", *([again] if again else [])]


def last_lines(answer: Json) -> list[str]:
    """The end of the output of a job that ended without success."""
    found = answer.get("last_lines") or ()
    return ["Last lines of its output:", *(f"  {line}" for line in found)] if found else []


def _holder(holder: Json) -> str:
    """A blocking job, and what it holds; of another user's, without its name and devices."""
    devices = ", ".join(holder["devices"])
    if not holder["name"]:
        which, holds = holder["id"], f"GPUs: {holder['gpus']:g}"
    else:
        which = f"{holder['id']} {holder['name']}"
        holds = f"holds {devices}" if devices else f"asks for GPUs: {holder['gpus']:g}"
    return f"job {which} of {holder['user']}, {holder['state']}, {holds}"


def _forecast(forecast: Json) -> str:
    basis = f" ({forecast['basis'].rstrip('.')})" if forecast["basis"] else ""
    start = forecast["start_s"]
    if start is None:
        return f"Expected start: not known{basis}."
    ahead = start - time.time()
    when = f"in {short_length(ahead)}, at {at(start)}" if ahead >= 1 else "now"
    return f"Expected start: {when}{basis}."
