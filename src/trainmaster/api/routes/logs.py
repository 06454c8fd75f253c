"""GET /jobs/{job}/logs: what a job wrote, now or as it comes."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Header, Query
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import iterate_in_threadpool
from starlette.responses import Response, StreamingResponse

from trainmaster.api import params
from trainmaster.api.caller import By
from trainmaster.api.job_lookup import find_job
from trainmaster.api.logs import Follower, Log
from trainmaster.api.messages import waiting_sentence
from trainmaster.api.responses import ApiError, errors
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.service_api import JobStatus, LogFile
from trainmaster.model.job_state import ENDED_STATES

SHORTEST_S, LONGEST_S = 0.1, 0.5
"""Pauses between reads of a followed log: they grow while nothing is written."""
PING_S = 15
SEEN = re.compile(r"(\d{1,10});(\d{1,10}\.\d{1,20}\.\d{1,20}(?:,\d{1,10}\.\d{1,20}\.\d{1,20})*)")
LastEventId = Annotated[
    str | None, Header(max_length=100_000, description="Continue after this event.")
]
Followed = Annotated[bool, Query(description="Server-sent events until the job has ended.")]
TEXT = "text/plain; charset=utf-8"
EVENTS = "text/event-stream"
EVENT_SCHEMA = {"$ref": "#/components/schemas/SentEvent"}
EXAMPLE = 'event: log\nid: 1;0.917.23\ndata: {"attempt": 1, "rank": 0, "bytes": "c3RlcCAxCg=="}\n\n'


def routes(service: Daemon) -> APIRouter:
    router = APIRouter(tags=["jobs"])

    @router.get(
        "/jobs/{job}/logs",
        summary="What a job wrote",
        response_model=None,
        response_class=Response,
        responses={
            200: {
                "description": "The output as it was written, byte by byte; or, with `follow`, events"
                " `log` with attempt, rank and the bytes in base64, `state` when the job's state has"
                " changed, then `end` with the last one.",
                "content": {
                    "text/plain": {"schema": {"type": "string"}, "example": "step 1\n"},
                    EVENTS: {"schema": EVENT_SCHEMA, "example": EXAMPLE},
                },
                "headers": {
                    "X-Log-Bytes": {
                        "description": "How much is kept: give it as `from` for what comes after.",
                        "schema": {"type": "integer"},
                    }
                },
            },
            **errors(400, 401, 403, 404, 422, 429, 503),
        },
    )
    async def logs(
        job: params.JobId,
        by: By,
        attempt: params.Attempt = None,
        rank: params.Rank = "0",
        tail: params.Tail = None,
        start: Annotated[params.From, Query(alias="from")] = None,
        follow: Followed = False,
        last_event_id: LastEventId = None,
    ) -> Response:
        """Old output of a rank that writes very much is not kept: the newest files are."""
        if tail is not None and start is not None:
            raise ApiError(422, "Give tail or from, not both.")
        if rank == "all" and not follow:
            raise ApiError(
                422, "rank=all needs follow=true: without, ask for each rank by its number."
            )
        status = await find_job(service, job, by)
        own = status.row.id
        if status.elements:
            raise ApiError(
                422,
                f"{job} is an array: name one of its jobs, such as {status.elements[0].row.id}.",
            )
        why = await service.queries.why_no_output(status.row)
        if why is not None and attempt is None:
            raise ApiError(404, why)
        if follow:
            stream = _followed(service, own, attempt, rank, tail, start, last_event_id)
            return EventSourceResponse(stream, ping=PING_S, headers={"Cache-Control": "no-store"})
        found = _chosen(await service.queries.log_files(own), own, attempt, rank)
        return await _plain(found[0].paths if found else (), tail, start)

    @router.get(
        "/jobs/{job}/stacks",
        summary="Where a job's processes were when it hung",
        response_model=None,
        response_class=Response,
        responses={
            200: {
                "description": "Of each process its state, and of a Python program its stacks.",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            **errors(401, 403, 404, 422, 429, 503),
        },
    )
    async def stacks(job: params.JobId, by: By, attempt: params.Attempt = None) -> Response:
        """Of the last attempt that hung, unless another is asked for."""
        own = (await find_job(service, job, by)).row.id
        found = await service.queries.stack_files(own)
        wanted = max(found, default=None) if attempt is None else attempt
        if wanted is None or wanted not in found:
            which = "No attempt" if attempt is None else f"Attempt {attempt}"
            raise ApiError(404, f"{which} of job {own} has hung: there are no stacks.")
        return await _plain((found[wanted],), None, None)

    return router


async def _plain(paths: Sequence[Path], tail: int | None, start: int | None) -> Response:
    log = await to_thread.run_sync(Log, paths)
    begin = await to_thread.run_sync(log.tail_start, tail) if tail is not None else start or 0
    headers = {"X-Log-Bytes": str(log.size), "Cache-Control": "no-store"}
    headers["X-Content-Type-Options"] = "nosniff"
    return StreamingResponse(
        iterate_in_threadpool(log.pieces(begin)), media_type=TEXT, headers=headers
    )


def _chosen(files: Sequence[LogFile], job: str, attempt: int | None, rank: str) -> list[LogFile]:
    """The logs of this attempt and rank; of the last attempt if none is given."""
    attempts = sorted({each.attempt for each in files})
    if attempt is not None and attempt not in attempts:
        there = (
            f"there is {', '.join(map(str, attempts))}" if attempts else "it has not started yet"
        )
        raise ApiError(404, f"Job {job} has no attempt {attempt}: {there}.")
    if not attempts:
        return []
    wanted = attempts[-1] if attempt is None else attempt
    of_attempt = sorted((e for e in files if e.attempt == wanted), key=lambda each: each.rank)
    if rank == "all":
        return of_attempt
    found = [each for each in of_attempt if each.rank == int(rank)]
    if not found:
        raise ApiError(404, f"Job {job} has no rank {rank}: it has {len(of_attempt)}, from 0 on.")
    return found


async def _followed(
    service: Daemon,
    job: str,
    attempt: int | None,
    rank: str,
    tail: int | None,
    start: int | None,
    last_event_id: str | None,
) -> AsyncIterator[ServerSentEvent]:
    """Output as it comes, attempt after attempt if none is given, until the job has ended."""
    reading = _LogReader(tail, start, _seen(last_event_id))
    pause, state = SHORTEST_S, ""
    try:
        while True:
            # Asked before its output is read, so that nothing of it is missed when it has ended.
            status = await service.queries.job(job)
            before, state = state, status.row.state
            if before not in ("", state) and state not in ENDED_STATES:
                yield _state_event(status, service.queries.now_ms())
            files = [
                e for e in await service.queries.log_files(job) if rank in ("all", str(e.rank))
            ]
            at = reading.begun(files) if attempt is None else attempt
            news = False
            async for event in reading.new_events([each for each in files if each.attempt == at]):
                news = True
                yield event
            # Once there is a later attempt, this one has ended, and all of it has been read.
            later = min((each.attempt for each in files if each.attempt > at), default=None)
            if news:
                pause = SHORTEST_S
            elif later is not None and attempt is None:
                reading.begin(later)
            elif state in ENDED_STATES:
                yield _end_event(status)
                return
            else:
                await asyncio.sleep(pause)
                pause = min(LONGEST_S, pause * 1.5)
    finally:
        reading.close()


def _state_event(status: JobStatus, now: int) -> ServerSentEvent:
    """The job's state and why: a suspended job writes nothing itself."""
    why = waiting_sentence(status, now)
    said = {
        "state": status.row.state,
        "transition": status.transition,
        "sentence": None if why is None else why[1],
    }
    return ServerSentEvent(json.dumps(said), event="state")


def _end_event(status: JobStatus) -> ServerSentEvent:
    said = {"state": status.row.state, "exit_code": status.row.exit_code}
    return ServerSentEvent(json.dumps(said), event="end")


class _LogReader:
    """The logs that a client follows: one follower for each rank of the present attempt."""

    def __init__(
        self,
        tail: int | None,
        start: int | None,
        seen: tuple[int, dict[int, tuple[int, int]]] | None,
    ) -> None:
        self._tail, self._start = tail, start
        self._seen = seen
        self.attempt: int | None = None
        self._followers: dict[int, Follower] = {}

    def close(self) -> None:
        for follower in self._followers.values():
            follower.close()
        self._followers.clear()

    def begun(self, files: Sequence[LogFile]) -> int:
        """The attempt that is read: where the reader is, was before, or, for a new one, the last."""
        last = max((each.attempt for each in files), default=0)
        return self.attempt or (self._seen[0] if self._seen is not None else last)

    async def new_events(self, files: Sequence[LogFile]) -> AsyncIterator[ServerSentEvent]:
        """One piece at most from each rank."""
        for file in files:
            if file.attempt != self.attempt:
                self.begin(file.attempt)
            if file.rank not in self._followers:
                follower = await to_thread.run_sync(self._opened, file)
                if follower is None:
                    continue
                self._followers[file.rank] = follower
            follower = self._followers[file.rank]
            piece = await to_thread.run_sync(follower.read, file.paths)
            if piece:
                yield self._event(file, piece)

    def begin(self, attempt: int) -> None:
        """Go on with this attempt, from its start."""
        self.close()
        if self.attempt is not None:  # what a new attempt writes is wanted whole
            self._tail = self._start = self._seen = None
        self.attempt = attempt

    def _opened(self, file: LogFile) -> Follower | None:
        """A follower at the position where the reader begins; None while there is no file yet."""
        if not any(path.exists() for path in file.paths):
            return None
        follower = Follower()
        if self._seen is not None:
            attempt, places = self._seen
            if attempt == file.attempt and file.rank in places:
                follower.go_to(file.paths, places[file.rank])
        elif self._tail is not None or self._start is not None:
            log = Log(file.paths)
            begin = log.tail_start(self._tail) if self._tail is not None else self._start or 0
            follower.go_to(file.paths, log.place_of(begin))
            log.close()
        return follower

    def _event(self, file: LogFile, piece: bytes) -> ServerSentEvent:
        said = {
            "attempt": file.attempt,
            "rank": file.rank,
            "bytes": base64.b64encode(piece).decode(),
        }
        followers = self._followers.items()
        places = (f"{rank}.{at[0]}.{at[1]}" for rank, each in followers if (at := each.place))
        seen = f"{file.attempt};{','.join(places)}"
        return ServerSentEvent(json.dumps(said), event="log", id=seen)


def _seen(text: str | None) -> tuple[int, dict[int, tuple[int, int]]] | None:
    """How far a client has read before, by its Last-Event-ID."""
    found = SEEN.fullmatch(text or "")
    if found is None:
        return None
    places = (tuple(map(int, each.split("."))) for each in found[2].split(","))
    return int(found[1]), {rank: (inode, offset) for rank, inode, offset in places}
