"""POST /jobs: job files in, ids out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from trainmaster.api import serializers
from trainmaster.api.audit_subject import note_subject
from trainmaster.api.caller import By, Caller
from trainmaster.api.messages import copy_sentences
from trainmaster.api.peer import ROOT
from trainmaster.api.request_body import (
    JSON,
    YAML_TYPES,
    body_of,
    content_type,
    read_json,
    text_of,
)
from trainmaster.api.responses import ApiError, JsonAnswer, NotAllowed, answer, errors, schema
from trainmaster.api.submission import Defaults, submission_of
from trainmaster.api.visibility import asker
from trainmaster.config.job_file import JobFile, Raw, jobs_in_json, jobs_in_yaml
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.response_models import AcceptedJob, AcceptedJobs, CheckedJob, CheckedJobs
from trainmaster.daemon.service_api import Accepted, Submission
from trainmaster.daemon.submission_checks import NEW_QUEUE
from trainmaster.daemon.unix_accounts import account_for
from trainmaster.daemon.unix_users import own_name, user_name
from trainmaster.model.deadline_notices import DeadlineNotice
from trainmaster.model.launch_spec import Account
from trainmaster.model.topology import CPU_TYPE
from trainmaster.text.deadlines import DEADLINE_OF_HELD, deadline_sentence
from trainmaster.text.formatting import plural

NOTED = 40
"""Ids of jobs that the audit log names."""
YAML_EXAMPLE = "name: resnet\ncommand: python train.py\ngpus: 2\n---\ncommand: python evaluate.py\n"
JOB_REF = {"$ref": "#/components/schemas/JobFile"}
BODY: dict[str, Any] = {
    "required": True,
    "description": "One job file, or several.",
    "content": {
        JSON: {
            "schema": {
                "anyOf": [
                    JOB_REF,
                    {
                        "type": "object",
                        "properties": {"jobs": {"type": "array", "items": JOB_REF, "minItems": 1}},
                        "required": ["jobs"],
                        "additionalProperties": False,
                    },
                ]
            },
            "examples": {
                "one": {"value": {"command": "python train.py", "gpus": 2}},
                "several": {"value": {"jobs": [{"command": "echo a"}, {"command": "echo b"}]}},
            },
        },
        "application/yaml": {"schema": {"type": "string"}, "example": YAML_EXAMPLE},
    },
}
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="Idempotency key: a repeated submission with the same key has no effect.",
        examples=["7b1f0c2e"],
    ),
]
DryRun = Annotated[bool, Query(description="Only check the jobs and forecast their start.")]


def routes(service: Daemon) -> APIRouter:
    router = APIRouter(tags=["jobs"])

    @router.post(
        "/jobs",
        summary="Submit jobs",
        status_code=201,
        response_model=None,
        responses={
            200: {
                "description": "Checked, or known by its key.",
                "content": {JSON: {"schema": schema(CheckedJobs, AcceptedJobs)}},
            },
            201: answer(AcceptedJobs, "Submitted: all of them, durably."),
            **errors(400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 503),
        },
        openapi_extra={"requestBody": BODY},
    )
    async def submit(
        request: Request, by: By, dry_run: DryRun = False, key: Key = None
    ) -> Response:
        """All jobs of the body are submitted, or none. A YAML body may hold several documents. They are the
        caller's; operators may submit for others by `user`."""
        kind = content_type(request)
        if kind != JSON and kind not in YAML_TYPES:
            raise ApiError(415, "Send jobs as application/json or application/yaml.")
        body = await body_of(request)
        defaults = Defaults(
            user=by.user,
            device_type=_device_type(service),
            snapshot=not service.queries.shares_files,
            command_bytes=service.limits.command_bytes,
            account_of=_accounts(service, by),
        )
        asked, digest = await to_thread.run_sync(_read, body, kind, defaults)
        for each in asked:
            _refuse_other_user(each.job.user, by)
        if dry_run:
            return JsonAnswer(CheckedJobs([await _checked(service, each, by) for each in asked]))
        own_key = None if key is None else f"{by.user} {key}"
        accepted = await service.submissions.submit(asked, own_key, digest, asker(by))
        ids = [each.ids[0] for each in accepted[:NOTED]]
        note_subject(request, f"{plural(len(accepted), 'job')}: {', '.join(ids)}")
        known = any(each.was_known for each in accepted)
        now = service.queries.now_ms()
        listed = [
            _accepted(each, answer, _deadline_remarks(service, each, answer.deadline, now))
            for each, answer in zip(asked, accepted, strict=True)
        ]
        return JsonAnswer(AcceptedJobs(listed), 200 if known else 201)

    return router


def _read(body: bytes, kind: str, defaults: Defaults) -> tuple[list[Submission], str]:
    """What is asked for, and a hash of it: equal for equal submissions, however they are written."""
    text = text_of(body)
    found: Sequence[tuple[JobFile, Raw]]
    found = jobs_in_json(read_json(text)) if kind == JSON else jobs_in_yaml(text)
    raws = [raw for _, raw in found]
    digest = hashlib.sha256(json.dumps(raws, sort_keys=True).encode()).hexdigest()
    return [submission_of(model, defaults, raw) for model, raw in found], digest


async def _checked(service: Daemon, asked: Submission, by: Caller) -> CheckedJob:
    status, forecast = await service.submissions.check(asked, asker(by))
    now, notice = service.queries.now_ms(), forecast.deadline
    said = (*_deadline_remarks(service, asked, notice, now), *status.remarks)
    history = replace(status.history, deadline=notice)
    status = replace(status, history=history, remarks=said)
    return CheckedJob(serializers.job_details(status, now), serializers.forecast_row(forecast, now))


def _deadline_remarks(
    service: Daemon, asked: Submission, notice: DeadlineNotice | None, now: int
) -> tuple[str, ...]:
    """What is said of its deadline at once, if it has one."""
    if notice is not None:
        return (deadline_sentence(notice, now),)
    policy = service.queries.policy()
    if asked.job.deadline_ms is None:
        return ()
    if policy.judges_deadlines:
        return (DEADLINE_OF_HELD,) if asked.is_held or asked.depends_on else ()
    return (f"The policy {policy.name} does not look at deadlines, so its deadline has no effect.",)


def _accepted(asked: Submission, accepted: Accepted, remarks: tuple[str, ...]) -> AcceptedJob:
    first, *elements = accepted.ids
    if accepted.copy is not None:
        remarks = (*remarks, *copy_sentences(first, accepted.left_out))
    if accepted.is_new_queue:
        remarks = (*remarks, NEW_QUEUE.format(queue=asked.job.queue))
    remarks = (*remarks, *accepted.warnings)
    return AcceptedJob(first, asked.recipe.name, elements or [first], remarks)


def _accounts(service: Daemon, caller: Caller) -> Callable[[str], Account] | None:
    """Which account each of its jobs runs as; None where all run as the manager's."""
    if not service.runs_as_user:
        return None
    return partial(account_for, caller=caller.user, uid=caller.uid)


def _refuse_other_user(user: str, by: Caller) -> None:
    """Operators submit for others, but not as those who may do more than they."""
    if user == by.user or by.is_admin:
        return
    if not by.is_operator:
        raise NotAllowed(
            f"You are {by.user} here: only operators submit jobs of others (user: {user})."
        )
    if user in (user_name(ROOT), own_name()):
        raise NotAllowed(f"Only admins submit jobs of {user}.")


def _device_type(service: Daemon) -> str | None:
    """`cpu` on machines without GPUs, where CPU slots stand in for them."""
    return CPU_TYPE if service.queries.device_types() == {CPU_TYPE} else None
