"""The policy lab: policies compared by simulating a trace that was sent, or is made."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.responses import FileResponse, Response

from trainmaster.api.audit_subject import note_subject
from trainmaster.api.caller import By, Caller
from trainmaster.api.leading import only_of_the_leader
from trainmaster.api.option_texts import option_texts
from trainmaster.api.request_body import JSON, body_of, content_type, read_json, text_of
from trainmaster.api.responses import ApiError, JsonAnswer, answers, changes, sends, takes
from trainmaster.catalog import policy_names
from trainmaster.config.job_file import Name
from trainmaster.config.validation import StrictModel, checked
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.response_models import LabComparison, LabList, LabRow
from trainmaster.model.units import MIB, SECOND
from trainmaster.text.suggest import did_you_mean
from trainmaster.traces.formats import FORMATS
from trainmaster.traces.generators import GENERATORS
from trainmaster.whatif.lab_bounds import MOST_JOBS, PROGRAM, REPORT
from trainmaster.whatif.simulation_processes import RunState, SimulationProcesses, SimulationRun

Id = Annotated[str, Path(pattern=r"^[0-9a-f]{1,32}$", examples=["3f9c1a2b4d5e"])]
MOST_TRACE = 16 * MIB
MOST_POLICIES = 8
TOO_LARGE = (
    "The trace is larger than {most} MiB: compare a part of it, or use `trainmaster compare`."
)


class LabTrace(StrictModel):
    """A trace that is sent, or one that is made: `like` a cluster."""

    name: str = Field("trace", max_length=200, description="What it is called in the report.")
    content: str | None = Field(None, description="The text of a trace file.")
    format: str | None = Field(None, description="Its format; by default it is recognised.")
    like: str | None = Field(None, description="Make one that resembles this cluster.")
    jobs: int = Field(
        1000, ge=1, le=MOST_JOBS, strict=True, description="Jobs of one that is made."
    )
    load: float = Field(0.9, gt=0, le=10, strict=True, description="GPU time it asks for, of all.")
    seed: int = Field(0, ge=0, le=2**31, strict=True, description="Random seed.")

    @model_validator(mode="after")
    def _is_one(self) -> LabTrace:
        if (self.content is None) == (self.like is None):
            raise ValueError("needs either content or like")
        for said, known in ((self.like, GENERATORS), (self.format, FORMATS)):
            if said is not None and said not in known:
                raise ValueError(f"names {said!r}; {did_you_mean(said, known)}")
        return self


class LabPolicy(StrictModel):
    """A policy of the catalog, with the options that differ from their defaults."""

    name: Name
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)


class LabQuestion(StrictModel):
    """What is to be compared, on which trace and cluster."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "trace": {"like": "philly", "jobs": 1000},
                    "cluster": "8x8",
                    "policies": [{"name": "fifo"}, {"name": "trainmaster"}],
                }
            ]
        },
    )

    trace: LabTrace
    cluster: str = Field(
        pattern=r"^[0-9]{1,6}([xX][0-9]{1,6}){1,3}$",
        description="Nodes x GPUs, or racks x nodes x GPUs.",
    )
    policies: list[LabPolicy] = Field(min_length=1, max_length=MOST_POLICIES)
    perf: Literal["default", "ideal"] = Field(
        "default", description="What placement, sharing and preemption cost; ideal: nothing."
    )
    estimates: str = Field("exact", max_length=20, description="exact, none, or noisy:0.3.")

    def request(self) -> dict[str, Any]:
        """For the process that simulates."""
        names = [each.name for each in self.policies]
        for name in names:
            if name not in policy_names():
                raise ApiError(
                    422, f"there is no policy {name!r}; {did_you_mean(name, policy_names())}"
                )
        if len(set(names)) < len(names):
            raise ApiError(422, "A policy is named twice: choose each once.")
        policies = [
            {
                "name": each.name,
                "options": option_texts(each.options),
            }
            for each in self.policies
        ]
        return {**self.model_dump(), "policies": policies, "seed": self.trace.seed}

    @property
    def title(self) -> str:
        like = self.trace.like
        what = self.trace.name if like is None else f"a trace like {like}"
        return f"{what} on {self.cluster} under {', '.join(each.name for each in self.policies)}"


BODIES: tuple[type[BaseModel], ...] = (LabQuestion,)


def routes(service: Daemon, simulations: SimulationProcesses) -> APIRouter:
    router = APIRouter(dependencies=[only_of_the_leader(service)])

    @router.get(
        "/lab",
        tags=["what-if"],
        summary="Comparisons of policies that were asked for lately",
        **answers(LabList, 503),
    )
    async def listed(by: By) -> Response:
        """The caller's own, the newest first; operators see all."""
        return JsonAnswer(LabList([row(each) for each in simulations.of(_whose(by), PROGRAM)]))

    @router.post(
        "/lab",
        tags=["what-if"],
        summary="Compare policies on a trace",
        **takes(LabQuestion, LabRow),
    )
    async def ask(request: Request, by: By) -> Response:
        """It is simulated in a process of its own, at low priority; `GET /lab/{id}` says how far it is. Each
        user has one that runs, and some that wait."""
        question = checked(LabQuestion, await _object_of(request))
        content = question.trace.content
        if content is not None and len(content) > MOST_TRACE:
            raise ApiError(413, TOO_LARGE.format(most=MOST_TRACE // MIB))
        note_subject(request, question.title)
        run = await simulations.ask(by.user, PROGRAM, question.title, question.request())
        return JsonAnswer(row(run))

    @router.get(
        "/lab/{id}",
        tags=["what-if"],
        summary="How far a comparison is, and its result",
        **answers(LabComparison, 404, 422, 503),
    )
    async def one(id: Id, by: By) -> Response:
        """`result` has the metrics with the best of each marked, and curves; null until it is done."""
        run = simulations.get(id, _whose(by), PROGRAM)
        return JsonAnswer(await to_thread.run_sync(_with_result, run))

    @router.get(
        "/lab/{id}/report",
        tags=["what-if"],
        summary="The full report of a comparison",
        **sends("application/zip", "string", 404, 409, 422, 503),
    )
    async def report(id: Id, by: By) -> Response:
        """A ZIP with a page, its plots and its numbers, as `simulate --report` writes it."""
        run = simulations.get(id, _whose(by), PROGRAM)
        if run.state is not RunState.DONE:
            raise ApiError(409, f"There is no report of it: it is {run.state}.")
        return FileResponse(run.folder / REPORT, media_type="application/zip", filename=REPORT)

    @router.delete(
        "/lab/{id}",
        tags=["what-if"],
        summary="Cancel a comparison",
        **changes(LabRow),
    )
    async def cancel(id: Id, by: By) -> Response:
        """One that has ended stays as it is."""
        run = simulations.get(id, _whose(by), PROGRAM)
        await simulations.cancel(run)
        return JsonAnswer(row(run))

    return router


async def _object_of(request: Request) -> object:
    """A trace is longer than what other requests may say in one text."""
    if content_type(request) != JSON:
        raise ApiError(415, "Send the body as application/json.")
    body = await body_of(request)
    value = await to_thread.run_sync(lambda: read_json(text_of(body)))
    if not isinstance(value, dict):
        raise ApiError(422, "The body must be an object.")
    return value


def _whose(by: Caller) -> str | None:
    return None if by.is_operator else by.user


def row(run: SimulationRun) -> LabRow:
    return LabRow(
        id=run.id,
        user=run.user,
        title=run.title,
        state=run.state.value,
        progress=run.progress,
        says=run.says,
        asked_s=run.asked_ms / SECOND,
        ended_s=None if run.ended_ms is None else run.ended_ms / SECOND,
    )


def _with_result(run: SimulationRun) -> LabComparison:
    done = run.state is RunState.DONE
    result = json.loads(run.result.read_text()) if done else None
    return LabComparison(**vars(row(run)), result=result)
