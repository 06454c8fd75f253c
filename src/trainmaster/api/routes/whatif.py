"""What-ifs: the past, or the present queue, under other policies, on more nodes, with other queues."""

from __future__ import annotations

import json
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from trainmaster.api.caller import By
from trainmaster.api.leading import only_of_the_leader
from trainmaster.api.option_texts import option_texts
from trainmaster.api.request_body import object_of
from trainmaster.api.responses import ApiError, JsonAnswer, answers, changes, takes
from trainmaster.api.routes.cluster import MOST_GPUS
from trainmaster.config.job_file import Name
from trainmaster.config.validation import StrictModel, checked
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.whatif_rows import DailyWhatIf, WhatIfList, WhatIfRow
from trainmaster.model.units import DAY, SECOND
from trainmaster.whatif.daily import DailyComparison
from trainmaster.whatif.question import MOST_MORE_NODES, MOST_POLICIES, PolicyAsked, Question
from trainmaster.whatif.simulation_processes import RunState, SimulationProcesses, SimulationRun
from trainmaster.whatif.study import PROGRAM

Id = Annotated[str, Path(pattern=r"^[0-9a-f]{1,32}$", examples=["3f9c1a2b4d5e"])]
MOST_QUEUES = 1000


class WhatIfPolicy(StrictModel):
    """A policy by name, with the options that differ from their defaults."""

    name: Name
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)


class QueueChange(StrictModel):
    """What is to be different of a queue; it is a new one where there is none of that name."""

    weight: int | None = Field(None, ge=1, le=1_000_000, strict=True, description="Weight.")
    guaranteed_gpus: float | None = Field(
        None, ge=0, le=MOST_GPUS, strict=True, description="GPUs that it can always get back."
    )
    maximum_gpus: float | None = Field(
        None, ge=0, le=MOST_GPUS, strict=True, description="Most GPUs that it may hold."
    )


class WhatIfQuestion(StrictModel):
    """What to compare with what happened, or with how the queue goes on."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"policies": [{"name": "tiresias-l"}], "since_s": 86400, "more_nodes": 2}]
        },
    )

    policies: list[WhatIfPolicy] = Field(
        default_factory=list,
        max_length=MOST_POLICIES,
        description="Instead of the policy in force; none: the policy in force, where something else is"
        " different.",
    )
    queue_now: bool = Field(
        False, strict=True, description="The present queue from now on, instead of the past."
    )
    since_s: float = Field(
        DAY / SECOND, gt=0, le=31 * DAY / SECOND, description="How far back, in seconds from now."
    )
    more_nodes: int = Field(
        0, ge=0, le=MOST_MORE_NODES, strict=True, description="Nodes of the usual kind to add."
    )
    cluster: dict[str, Any] | None = Field(
        None, description="A cluster file in place of the cluster; of the past only."
    )
    queues: dict[str, Any] | None = Field(None, description="A queues file in place of the queues.")
    set_queues: dict[Name, QueueChange] = Field(
        default_factory=dict, max_length=MOST_QUEUES, description="Changes of queues, by name."
    )

    def question(self) -> Question:
        if self.queue_now and self.cluster is not None:
            raise ApiError(
                422, "The present queue runs on the cluster that is there: ask for more nodes."
            )
        return Question(
            policies=tuple(
                PolicyAsked(each.name, tuple(sorted(option_texts(each.options).items())))
                for each in self.policies
            ),
            queue_now=self.queue_now,
            since_ms=max(1, round(self.since_s * SECOND)),
            more_nodes=self.more_nodes,
            cluster=self.cluster,
            queues=self.queues,
            set_queues={
                name: change.model_dump(exclude_none=True)
                for name, change in self.set_queues.items()
            },
        )


BODIES: tuple[type[BaseModel], ...] = (WhatIfQuestion,)


def routes(service: Daemon, simulations: SimulationProcesses, daily: DailyComparison) -> APIRouter:
    router = APIRouter(dependencies=[only_of_the_leader(service)])

    @router.get(
        "/whatif",
        tags=["what-if"],
        summary="What-ifs that were asked for lately",
        **answers(WhatIfList, 503),
    )
    async def listed() -> Response:
        """Newest first, without their results."""
        runs = simulations.of(None, PROGRAM)
        return JsonAnswer(WhatIfList([row(each) for each in runs]))

    @router.post(
        "/whatif",
        tags=["what-if"],
        summary="Ask what another policy, more nodes or other queues would do",
        **takes(WhatIfQuestion, WhatIfRow),
    )
    async def ask(request: Request, by: By) -> Response:
        """It is simulated in a process of its own, at low priority; `GET /whatif/{id}` says how far it is.

        For operators: the answer names the jobs of all users, and simulating takes the manager's machine.
        """
        asked = checked(WhatIfQuestion, await object_of(request))
        question = asked.question()
        simulations.refuse_too_many(
            by.user
        )  # before the state is stored, which holds up scheduling
        said = {
            "database": await service.address_of_state(),
            "now_ms": service.queries.now_ms(),
            "question": question.fields(),
        }
        run = await simulations.ask(by.user, PROGRAM, question.title, said)
        return JsonAnswer(row(run))

    @router.get(
        "/whatif/daily",
        tags=["what-if"],
        summary="Whether another policy would have done better in the last day",
        **answers(DailyWhatIf, 503),
    )
    async def today() -> Response:
        """Computed once a day in the background; it names no jobs, so everybody may see it."""
        return JsonAnswer(daily.row(service.queries.policy().name))

    @router.get(
        "/whatif/{id}",
        tags=["what-if"],
        summary="How far a what-if is, and its result",
        **answers(WhatIfRow, 404, 422, 503),
    )
    async def one(id: Id, by: By) -> Response:
        """For those who are no operators there is none: they cannot ask for one."""
        run = simulations.get(id, None if by.is_operator else by.user, PROGRAM)
        return JsonAnswer(await to_thread.run_sync(_with_result, run))

    @router.delete(
        "/whatif/{id}",
        tags=["what-if"],
        summary="Cancel a what-if",
        **changes(WhatIfRow),
    )
    async def cancel(id: Id) -> Response:
        """One that has ended stays as it is."""
        run = simulations.get(id, None, PROGRAM)
        await simulations.cancel(run)
        return JsonAnswer(row(run))

    return router


def row(run: SimulationRun, result: dict[str, Any] | None = None) -> WhatIfRow:
    return WhatIfRow(
        id=run.id,
        state=run.state.value,
        progress=run.progress,
        says=run.says,
        title=run.title,
        user=run.user,
        asked_s=run.asked_ms / SECOND,
        ended_s=None if run.ended_ms is None else run.ended_ms / SECOND,
        result=result,
    )


def _with_result(run: SimulationRun) -> WhatIfRow:
    done = run.state is RunState.DONE
    return row(run, json.loads(run.result.read_text()) if done else None)
