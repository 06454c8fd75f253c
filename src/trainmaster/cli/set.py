"""`trainmaster set`: change what a job asks for."""

from __future__ import annotations

from typing import Annotated, Any

from trainmaster.cli.support.console import show_answer
from trainmaster.cli.support.format import settings_of
from trainmaster.cli.support.options import AsJson, JobName, argument
from trainmaster.client.manager_api import Json, ManagerApi, job_path
from trainmaster.errors import BadInput
from trainmaster.text.suggest import did_you_mean

WHOLE = ("priority", "retries")
FIELDS = (
    *("priority", "queue", "max_runtime", "deadline", "grace_period", "retries", "name"),
    "preemptible",
)


def change(
    client: ManagerApi,
    job: JobName,
    settings: Annotated[list[str], argument("KEY=VALUE", f"One or more of {', '.join(FIELDS)}.")],
    as_json: AsJson = False,
) -> None:
    """Change the priority, queue, limits or name of a job that has not ended.

    Examples:
        trainmaster set 12 priority=10
        trainmaster set 12 queue=vision max_runtime=4h
        trainmaster set 12 deadline=1d retries=0
        trainmaster set 12 grace_period=2m
    """
    stated = settings_of(settings, "Setting")
    body = {key: _value(key, text) for key, text in stated.items()}
    _check(body)
    said = ", ".join(f"{key} {text}" for key, text in stated.items())
    show_answer(client.patch(job_path(job), body), as_json, f"Job {job}: {said}.")


def _value(key: str, text: str) -> Any:
    if key not in FIELDS:
        from trainmaster.config.job_file import OTHER_WORDS

        meant = OTHER_WORDS.get(key)
        hint = f"did you mean {meant}?" if meant in FIELDS else did_you_mean(key, FIELDS)
        raise BadInput(f"A job's `{key}` cannot be changed: {hint}")
    if key == "preemptible":
        if text not in ("true", "false"):
            raise BadInput(f"preemptible `{text}` is not true or false: write preemptible=false.")
        return text == "true"
    if key in WHOLE:
        try:
            return int(text)
        except ValueError:
            raise BadInput(f"{key} `{text}` is not a whole number: write {key}=10.") from None
    return text


def _check(body: Json) -> None:
    """ConfigError where a value is wrong whatever the job and the manager."""
    from trainmaster.config.validation import checked
    from trainmaster.daemon.service_api import JobChanges

    checked(JobChanges, body)
