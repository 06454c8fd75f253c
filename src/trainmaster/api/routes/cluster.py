"""Nodes, queues, policies; the history; the schema."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Literal

from anyio import to_thread
from fastapi import APIRouter, Header, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response, StreamingResponse

from trainmaster.api import params, schema, serializers
from trainmaster.api.access import is_manager
from trainmaster.api.caller import By, Caller, Role
from trainmaster.api.csv_answer import CsvAnswer, or_csv, reason_table, usage_table, wants_csv
from trainmaster.api.option_texts import option_texts
from trainmaster.api.policy_docs import policy_doc
from trainmaster.api.request_body import object_of
from trainmaster.api.responses import (
    ApiError,
    JsonAnswer,
    NotAllowed,
    answers,
    changes,
    errors,
    sends,
    takes,
)
from trainmaster.api.visibility import shown_change, shown_inputs, shown_notes
from trainmaster.catalog import policy_names
from trainmaster.config.job_file import Name, read_name
from trainmaster.config.queues import queues_from
from trainmaster.config.quotas import MOST_JOBS, BudgetEntry, PricesEntry, UserLimitsEntry
from trainmaster.config.validation import ConfigError, StrictModel, checked
from trainmaster.daemon import response_models as models
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.reused_answer import ReusedAnswer, window_key
from trainmaster.daemon.service_api import Unavailable
from trainmaster.daemon.unix_users import own_name
from trainmaster.model.failure_report import as_json
from trainmaster.model.policy_spec import PolicySpec
from trainmaster.model.queue import Queue
from trainmaster.store.rows import JobFilter

LimitedUser = Annotated[
    str, Path(min_length=1, max_length=100, pattern=r"^[^/\x00-\x1f\x7f]+$", examples=["ada", "*"])
]
PING_S = 15
MOST_GPUS = 100_000
KEPT_BYTES = 1 << 20
"""Larger sums of usage are made each time."""
MOST_SOURCE = 1 << 20
EVENTS = "text/event-stream"
EVENT_SCHEMA = {"$ref": "#/components/schemas/SentEvent"}
CHANGE = (
    "id: 7\nevent: started\n"
    'data: {"seq": 7, "at_s": 1.5, "what": "started", "job": "12", "detail": {}}\n\n'
)


class QueueTerms(StrictModel):
    """The settings of a queue; a missing one has its default."""

    parent: Name | None = Field(None, description="Parent queue.")
    weight: int = Field(
        1, ge=1, le=1_000_000, strict=True, description="Weight among its siblings."
    )
    guaranteed_gpus: float = Field(
        0, ge=0, le=MOST_GPUS, strict=True, description="GPUs that it can always get back."
    )
    maximum_gpus: float | None = Field(
        None, ge=0, le=MOST_GPUS, strict=True, description="Most GPUs that it may hold."
    )
    allow_unpreemptible: bool = Field(
        True, strict=True, description="Whether its jobs may be `preemptible: false`."
    )
    max_gpus_per_user: float | None = Field(
        None, gt=0, le=MOST_GPUS, strict=True, description="GPUs that one user's jobs may hold."
    )
    max_running_per_user: int | None = Field(
        None, ge=0, le=MOST_JOBS, strict=True, description="Jobs that one user may run at once."
    )
    max_jobs_per_user: int | None = Field(
        *(None,),
        ge=0,
        le=MOST_JOBS,
        strict=True,
        description="Jobs of one user that have not ended: more are refused.",
    )
    budget: BudgetEntry | None = Field(None, description="GPU-hours in each period.")


class PolicyChoice(StrictModel):
    """A policy by name, with the options that differ from their defaults."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "tiresias-l", "options": {"thresholds_gpu_s": "3250,7200"}}]
        },
    )

    name: Name
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    source: str = Field(
        "",
        max_length=MOST_SOURCE,
        description="The text of a policy file of your own; `name` is then the file's name.",
    )
    files: dict[str, Annotated[str, Field(max_length=MOST_SOURCE)]] = Field(
        default_factory=dict,
        description="The text of files that options name, by the value of the option. This and `source`"
        " only from the manager's own user, over its Unix socket.",
    )


CONTENT_IS_PRIVATE = (
    "Policy files and the files of options are taken only from {user}, the manager's own user, over its Unix"
    " socket, because they run in the manager: call `trainmaster policy set` as {user} on its machine, or"
    " choose a policy by name."
)

BODIES: tuple[type[BaseModel], ...] = (QueueTerms, PolicyChoice, UserLimitsEntry, PricesEntry)


def routes(service: Daemon) -> APIRouter:
    router = APIRouter()
    _nodes_and_queues(router, service)
    _limits(router, service)
    _inputs(router, service)
    _policy(router, service)
    _watching(router, service)
    _recording(router, service)
    _schema(router)
    return router


def _check_new_name(name: str) -> None:
    """Refuse a queue whose name cannot be shown; one that an older version took can still be removed."""
    try:
        read_name(name)
    except ValueError as error:
        raise ApiError(422, f"The name of a queue {error}.") from None


def _nodes_and_queues(router: APIRouter, service: Daemon) -> None:
    @router.get(
        "/nodes",
        tags=["cluster"],
        summary="Nodes, their devices, and the jobs on them",
        **answers(models.NodeList, 503),
    )
    async def nodes() -> Response:
        found = service.queries.nodes()
        return JsonAnswer(models.NodeList(list(found), list(service.queries.left_out())))

    @router.get(
        "/nodes/{name}/curves",
        tags=["cluster"],
        summary="The GPUs of a node over time",
        **answers(models.NodeCurves, 404, 422, 503),
    )
    async def node_curves(name: params.NodeName, since: params.FromTime = None) -> Response:
        """Use, memory, temperature and power, as read every second: means over 20 s, for 6 hours, since this
        manager started. CPU slots and GPUs of other machines have no curves."""
        since_ms = 0 if since is None else round(since * 1000)
        return JsonAnswer(service.queries.node_curves(name, since_ms))

    @router.get(
        "/queues",
        tags=["cluster"],
        summary="Queues and what they hold",
        **answers(models.QueueList, 503),
    )
    async def queues() -> Response:
        return JsonAnswer(models.QueueList(serializers.with_default(service.queries.queues())))

    @router.put(
        "/queues/{name:path}",  # a name with a slash is refused by name, not as an unknown page
        tags=["cluster"],
        summary="Define or change a queue",
        **takes(QueueTerms, models.QueueRow),
    )
    async def define_queue(name: params.QueueName, request: Request) -> Response:
        terms = checked(QueueTerms, await object_of(request))
        _check_new_name(name)
        await service.cluster_control.define_queue(_queue(service, name, terms))
        for row in service.queries.queues():
            if row.name == name:
                return JsonAnswer(row)
        raise ApiError(404, f"There is no queue {name}.")

    @router.delete(
        "/queues/{name:path}",
        tags=["cluster"],
        summary="Remove a queue",
        **changes(models.QueueList),
    )
    async def remove_queue(name: params.QueueName) -> Response:
        """One that nothing is in; the answer is the queues that are left."""
        await service.cluster_control.remove_queue(name)
        return JsonAnswer(models.QueueList(serializers.with_default(service.queries.queues())))

    @router.post(
        "/nodes/{name}/test",
        tags=["cluster"],
        summary="Run the self-test of a node's devices, or of one",
        **changes(models.SelfTestList),
    )
    async def test_devices(name: params.NodeName) -> Response:
        """The name is that of a node, or `node:number`. It takes seconds for each idle device; what is broken
        is set aside."""
        found = await service.cluster_control.test(name)
        rows = [
            models.SelfTestRow(each.device, each.verdict.value, each.sentence) for each in found
        ]
        return JsonAnswer(models.SelfTestList(rows))

    for action, (summary, description) in NODE_ACTIONS.items():
        _node_action(router, service, action, summary, description)


def _inputs(router: APIRouter, service: Daemon) -> None:
    @router.get(
        "/inputs",
        tags=["cluster"],
        summary="Input paths that are set aside",
        **answers(models.InputList, 503),
    )
    async def inputs(by: By) -> Response:
        """Because job after job failed on them; jobs that name one wait. A plain user sees those of its own
        jobs."""
        own = service.queries.live_jobs_of(by.user)
        return JsonAnswer(models.InputList(shown_inputs(service.queries.inputs(), by, own)))

    @router.delete(
        "/inputs/{path:path}",
        tags=["cluster"],
        summary="Use an input again that is set aside",
        **changes(models.InputRow),
    )
    async def unblock_input(path: params.InputPath) -> Response:
        """The answer is the input as it was, with the jobs that waited for it."""
        before = {row.path: row for row in service.queries.inputs()}
        return JsonAnswer(before[await service.cluster_control.unblock_input(path)])


NODE_ACTIONS = {
    "drain": (
        "Drain a node",
        "Nothing more is started there. What runs there is moved where that is possible, or stays"
        " until it ends.",
    ),
    "forget": (
        "Remove a node that does not come back",
        "It must be away, and no job may still have anything there. Its name is free for another node.",
    ),
    "undrain": ("Use a drained node again", "Jobs may be started there again."),
    "block": (
        "Set a node or a device aside",
        "The name is that of a node, or `node:number` of one of its devices. Nothing more is started"
        " there. What runs there goes on.",
    ),
    "unblock": (
        "Use a node or a device again that is set aside",
        "The name is that of a node, or `node:number` of one of its devices.",
    ),
}


def _node_action(
    router: APIRouter, service: Daemon, action: str, summary: str, description: str
) -> None:
    async def do(name: params.NodeName) -> Response:
        before = {row.name: row for row in service.queries.nodes()}
        await getattr(service.cluster_control, action)(name)
        own = name.rpartition(":")[0]
        rows = before | {row.name: row for row in service.queries.nodes()}
        return JsonAnswer(rows[name] if name in rows else rows[own])

    router.add_api_route(
        f"/nodes/{{name}}/{action}",
        do,
        methods=["POST"],
        name=action,
        operation_id=action,
        tags=["cluster"],
        summary=summary,
        description=f"{description} The answer is the node, as it is now or was.",
        **changes(models.NodeRow),
    )


def _queue(service: Daemon, name: str, terms: QueueTerms) -> Queue:
    """The queue, checked against the others that are defined."""
    stated = ("name", *QueueTerms.model_fields)
    described = [
        {field: value for field in stated if (value := _stated(each, field)) is not None}
        for each in service.queries.queues()
        if each.is_defined and each.name != name
    ]
    described.append({"name": name, **terms.model_dump(exclude_none=True)})
    try:
        return queues_from({"queues": described}, "")[name]
    except ConfigError as error:
        raise ApiError(422, str(error)) from None


def _stated(row: models.QueueRow, field: str) -> object:
    """A setting of a queue as a file would state it."""
    value = getattr(row, field)
    if field != "budget" or value is None:
        return value
    budget = {each: getattr(value, each) for each in BudgetEntry.model_fields}
    return {each: said for each, said in budget.items() if said is not None}


def _limits(router: APIRouter, service: Daemon) -> None:
    @router.get(
        "/user-limits",
        tags=["cluster"],
        summary="What users may have at most, and have",
        **answers(models.UserLimitsList, 503),
    )
    async def user_limits(by: By) -> Response:
        """Of all users with limits; a plain user sees their own, and what holds for everybody."""
        only = by.user if by.role is Role.USER else None
        return JsonAnswer(models.UserLimitsList(list(service.queries.user_limits(only))))

    @router.put(
        "/user-limits/{name}",
        tags=["cluster"],
        summary="Set what a user may have at most",
        **takes(UserLimitsEntry, models.UserLimitsRow),
    )
    async def limit_user(name: LimitedUser, request: Request) -> Response:
        """In all queues together, at once; `*` stands for everybody who has no limits of their own. An empty
        body takes them back."""
        entry = checked(UserLimitsEntry, await object_of(request))
        await service.cluster_control.limit_user(entry.limits(name))
        row = next(row for row in service.queries.user_limits(name) if row.user == name)
        return JsonAnswer(row)

    @router.get(
        "/prices",
        tags=["cluster"],
        summary="What GPU-hours cost",
        **answers(models.PricesRow, 503),
    )
    async def prices() -> Response:
        return JsonAnswer(service.queries.prices())

    @router.put(
        "/prices",
        tags=["cluster"],
        summary="Set what GPU-hours cost",
        **takes(PricesEntry, models.PricesRow),
    )
    async def set_prices(request: Request) -> Response:
        """From now on: what was used before costs what it did. Types that are left out have no price."""
        entry = checked(PricesEntry, await object_of(request))
        await service.cluster_control.set_prices(entry.as_value)
        return JsonAnswer(service.queries.prices())


def _policy(router: APIRouter, service: Daemon) -> None:
    @router.get(
        "/policy",
        tags=["policy"],
        summary="The scheduling policy in use",
        **answers(models.PolicyRow, 503),
    )
    async def policy() -> Response:
        return JsonAnswer(service.queries.policy())

    @router.put(
        "/policy",
        tags=["policy"],
        summary="Change the scheduling policy",
        **takes(PolicyChoice, models.PolicyRow),
    )
    async def set_policy(request: Request, by: By) -> Response:
        """Running jobs stay where they are until the new policy decides otherwise.

        `source` and `files` are accepted over the manager's Unix socket from the manager's own user only:
        what a policy file says runs in the manager.
        """
        choice = checked(PolicyChoice, await object_of(request))
        if (choice.source or choice.files) and not is_manager(by):
            raise NotAllowed(CONTENT_IS_PRIVATE.format(user=own_name()))
        options = option_texts(choice.options)
        files = tuple(choice.files.items())
        spec = PolicySpec(choice.name, tuple(sorted(options.items())), choice.source, files)
        await service.cluster_control.set_policy(spec)
        return JsonAnswer(service.queries.policy())

    @router.get(
        "/policies",
        tags=["policy"],
        summary="Policies to choose from, with their options",
        **answers(models.PolicyList),
    )
    async def policies() -> Response:
        docs = await to_thread.run_sync(lambda: [policy_doc(name) for name in policy_names()])
        return JsonAnswer(models.PolicyList(docs))


LastEventId = Annotated[
    str | None, Header(pattern=r"^[0-9]{1,15}$", description="Continue after this change.")
]


def _watching(router: APIRouter, service: Daemon) -> None:
    @router.get(
        "/status",
        tags=["watching"],
        summary="The manager at a glance",
        **answers(models.StatusRow, 503),
    )
    async def status(request: Request, by: By) -> Response:
        """Also of a standby, and of a manager that waits for its database."""
        row = await service.status()
        here = request.app.state
        return JsonAnswer(
            replace(
                row,
                notes=shown_notes(service.health(), by),
                url=here.url or None,
                fingerprint=here.fingerprint,
            )
        )

    @router.get(
        "/changes",
        tags=["watching"],
        summary="Changes as they happen",
        response_model=None,
        response_class=Response,
        responses={
            200: {
                "description": "Server-sent events, named by what happened.",
                "content": {EVENTS: {"schema": EVENT_SCHEMA, "example": CHANGE}},
            },
            **errors(400, 401, 403, 422, 429, 503),
        },
    )
    async def changes(by: By, last_event_id: LastEventId = None) -> Response:
        """From now on, or after Last-Event-ID as far as it is remembered. A comment every 15 seconds
        keeps the connection open. Of other users' jobs only changes of their state are told, without
        details, except to operators."""
        if service.health().role != "active":
            raise Unavailable("This manager is a standby: watch the active one.")
        after = None if last_event_id is None else int(last_event_id)
        return EventSourceResponse(
            _changes(service, after, by), ping=PING_S, headers={"Cache-Control": "no-store"}
        )


def _recording(router: APIRouter, service: Daemon) -> None:
    usages = ReusedAnswer[Response](may_keep=lambda answer: len(answer.body) <= KEPT_BYTES)

    @router.get(
        "/failures",
        tags=["history"],
        summary="What failed runs cost, by reason",
        **or_csv(answers(models.FailureTable, 422, 503)),
    )
    async def failures(
        by: By,
        request: Request,
        since: params.Since = None,
        user: params.Filter = None,
        queue: params.Filter = None,
        form: Annotated[params.Format, Query(alias="format")] = None,
    ) -> Response:
        """As in the failure table of Microsoft's Philly study, and which programs, users, nodes, devices
        and inputs stand behind it. For those who are no operators: of their own jobs."""
        if not by.is_operator:
            if user not in (None, by.user):
                raise NotAllowed(f"Only operators see what the jobs of {user} cost.")
            user = by.user
        since_ms = None if since is None else round(since * 1000)
        wanted = JobFilter(user=user, queue=queue, since_ms=since_ms)
        report = as_json(await service.queries.failures(wanted))
        if wants_csv(request, form):
            return CsvAnswer(*reason_table(report), name="failures-by-reason")
        return JsonAnswer(report)

    @router.get(
        "/calibration",
        tags=["history"],
        summary="How good forecasts of run time and of memory were, by what they were made from",
        **answers(models.CalibrationTable, 422, 503),
    )
    async def calibration(by: By) -> Response:
        """Of the newest 500 jobs that succeeded: how many true ends were within the 80 % interval, and how
        many peaks of GPU memory within the one that was first expected."""
        times = await service.queries.calibration()
        memory = await service.queries.memory_calibration()
        return JsonAnswer(
            models.CalibrationTable(
                [serializers.calibration_row(each) for each in times],
                [serializers.memory_calibration_row(each) for each in memory],
            )
        )

    @router.get(
        "/usage",
        tags=["history"],
        summary="GPU time and what it cost, by user, queue, job, GPU type, outcome, time or cause of loss",
        **or_csv(answers(models.UsageReport, 422, 503)),
    )
    async def usage(
        by: By,
        request: Request,
        sums: Annotated[
            Literal["user", "queue", "job", "gpu-type", "outcome", "day", "hour", "lost-to"],
            Query(alias="by", description="A row for each; days and hours are those of UTC."),
        ] = "user",
        since: params.FromTime = None,
        until: params.Until = None,
        user: params.Filter = None,
        queue: params.Filter = None,
        form: Annotated[params.Format, Query(alias="format")] = None,
    ) -> Response:
        """Running jobs up to now. A plain user sees their own. An answer is used again for 20 times as long
        as it took to make; of a time until now also for one that begins nearly at the same time: `since_s`
        says when."""
        since_ms = 0 if since is None else round(since * 1000)
        until_ms = service.queries.now_ms() if until is None else round(until * 1000)
        own = by.user if by.role is Role.USER else user
        if own != user and user is not None:
            raise ApiError(403, f"You may see what {by.user} used, not what {user} did.")
        is_table = wants_csv(request, form)

        async def make() -> Response:
            report = await service.queries.usage(sums, since_ms, until_ms, own, queue)
            return await to_thread.run_sync(answer_of, report)

        def answer_of(report: models.UsageReport) -> Response:
            if is_table:
                return CsvAnswer(*usage_table(report), name=f"usage-by-{sums}")
            return JsonAnswer(report)

        window = window_key(since_ms, None if until is None else until_ms, until_ms)
        found = await usages.get((sums, window, own, queue, is_table), make)
        return Response(found.body, headers=dict(found.headers))

    @router.get(
        "/record/trace",
        tags=["history"],
        summary="The history as a native trace",
        **sends("text/csv", "string", 503),
    )
    async def trace() -> Response:
        """What `trainmaster simulate` reads."""
        return Response(await service.record_trace(), media_type="text/csv; charset=utf-8")

    @router.get(
        "/record/scenario",
        tags=["history"],
        summary="The cluster, queues and switching costs that the history ran on",
        **answers(models.RecordedScenario, 503),
    )
    async def scenario() -> Response:
        """The files that `trainmaster simulate` takes with the trace, each as a mapping."""
        found = await service.record_scenario()
        return JsonAnswer(
            models.RecordedScenario(
                cluster=dict(found.cluster),
                queues=dict(found.queues),
                perf=dict(found.perf),
                policy=found.policy.name,
                options=dict(found.policy.options),
            )
        )

    @router.get(
        "/record/events",
        tags=["history"],
        summary="The event log",
        **sends("application/x-ndjson", "string", 503),
    )
    async def events() -> Response:
        """Lines of JSON: a snapshot, then every step since, which replay to the same orders."""
        lines = service.record_events()
        first = await anext(lines, "")  # An error must be raised before the answer has begun.
        return StreamingResponse(_lines(first, lines), media_type="application/x-ndjson")


def _schema(router: APIRouter) -> None:
    @router.get(
        "/schema/job",
        tags=["jobs"],
        summary="The JSON Schema of the job file",
        **sends("application/json", "object"),
    )
    async def job_schema() -> Response:
        return Response(schema.published(), media_type="application/json")


async def _changes(service: Daemon, after: int | None, by: Caller) -> AsyncIterator[bytes]:
    """Those that happened together are sent together."""
    async with aclosing(service.queries.changes(after)) as pages:
        async for page in pages:
            shown = [each for change in page if (each := shown_change(change, by)) is not None]
            if shown:
                yield b"".join(map(_event, shown))


def _event(change: models.ChangeRow) -> bytes:
    said = json.dumps(vars(change), ensure_ascii=False)
    event = ServerSentEvent(said, event=change.what.replace("\n", " "), id=str(change.seq))
    return event.encode()


async def _lines(first: str, others: AsyncIterator[str]) -> AsyncIterator[str]:
    yield first
    async for line in others:
        yield line
