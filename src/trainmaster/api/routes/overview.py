"""What the first page of the dashboard shows: the cluster at a glance, its devices now and lately."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from trainmaster.api import params, serializers
from trainmaster.api.caller import By, Caller, Role
from trainmaster.api.responses import ApiError, JsonAnswer, answers
from trainmaster.api.visibility import sees, sees_names
from trainmaster.daemon import response_models as models
from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.grid import grid
from trainmaster.daemon.live_job import LiveJob
from trainmaster.daemon.overview import Facts, longest_waits, mean_utilisation
from trainmaster.daemon.reused_answer import WAITS_S, ReusedAnswer, window_key
from trainmaster.daemon.timeline import MOST_MS, MOST_NODES, timeline
from trainmaster.model.units import HOUR, SECOND, WHOLE
from trainmaster.store.rows import DAY_MS

MOST_WAITS = 10
LATELY_MS = 6 * HOUR
Nodes = Annotated[
    list[str] | None,
    Query(description="Only these nodes; a repeated parameter.", max_length=100),
]
From = Annotated[
    float | None,
    Query(ge=0, le=params.LATEST_S, description="In Unix seconds; 6 hours before `until`."),
]
Until = Annotated[
    float | None, Query(ge=0, le=params.LATEST_S, description="In Unix seconds; now.")
]


def routes(service: Daemon) -> APIRouter:
    router = APIRouter(tags=["watching"])
    overviews, grids, timelines = (ReusedAnswer[bytes](WAITS_S) for _ in range(3))

    @router.get(
        "/overview",
        summary="The cluster at a glance, and what needs a person",
        **answers(models.Overview, 503),
    )
    async def overview(by: By) -> Response:
        """Of other users' jobs a plain user is told no names and no reasons. An answer is used again for 20
        times as long as it took to make, and for up to 15 s while those of others are made."""

        async def make() -> bytes:
            return bytes(JsonAnswer(await _overview(service, by)).body)

        return _json(await overviews.get(_group(by), make))

    @router.get(
        "/grid",
        summary="Every device, with the jobs on it",
        **answers(models.Grid, 503),
    )
    async def show_grid(by: By) -> Response:
        """Compact, for clusters of 10,000 GPUs. A plain user is told that others hold a device, and not which
        job. An answer is used again for 20 times as long as it took to make, and for up to 15 s while those
        of others are made."""
        driver = service.driver

        async def make() -> bytes:
            found = grid(driver, service.queries.now_ms(), lambda user: sees_names(by, user))
            return bytes(JsonAnswer(found).body)

        return _json(await grids.get(_group(by), make))

    @router.get(
        "/timeline",
        summary="Which job held which devices when",
        **answers(models.Timeline, 422, 503),
    )
    async def show_timeline(
        by: By, since: From = None, until: Until = None, node: Nodes = None
    ) -> Response:
        """Of 31 days and 16 nodes at most (or all nodes). Running jobs up to now, the 5,000 spans that ended
        last. A plain user is told that others held a device, not who, which job or what ended it. An answer
        is used again as that of `/grid`; of a time until now also for one that begins nearly at the same
        time: `since_s` says when."""
        until_ms = service.queries.now_ms() if until is None else round(until * SECOND)
        since_ms = max(0, until_ms - LATELY_MS) if since is None else round(since * SECOND)
        if since_ms > until_ms:
            raise ApiError(422, "`since` is later than `until`.")
        if until_ms - since_ms > MOST_MS:
            raise ApiError(422, f"Ask for {MOST_MS // DAY_MS} days at most: give a later `since`.")
        nodes = tuple(sorted(set(node or ())))
        if len(nodes) > MOST_NODES:
            raise ApiError(422, f"Name {MOST_NODES} nodes at most, or none for all of them.")

        async def make() -> bytes:
            found = await timeline(
                service.driver, since_ms, until_ms, nodes, lambda user: sees_names(by, user)
            )
            return bytes((await asyncio.to_thread(JsonAnswer, found)).body)

        window = window_key(
            None if since is None else since_ms, None if until is None else until_ms, until_ms
        )
        return _json(await timelines.get((_group(by), nodes, window), make))

    return router


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _group(by: Caller) -> tuple[str, str]:
    """Callers of one group are shown the same: a viewer has no jobs of its own."""
    if by.is_operator:
        return "operator", ""
    return by.role.value, "" if by.role is Role.VIEWER else by.user


async def _overview(service: Daemon, by: Caller) -> models.Overview:
    queries, parts = service.queries, service.overview
    facts, counts = await parts.facts(), await queries.counts()
    own = None if by.is_operator else _group(by)[1]
    jobs, policy = service.driver.jobs, queries.policy()
    oldest = next((jobs[job] for _, job in facts.waiting if job in jobs), None)
    lost = await parts.lost_gpu_ms(by.user if by.role is Role.USER else None)
    return models.Overview(
        at_s=facts.at_ms / SECOND,
        policy=policy.name,
        policy_since_s=policy.since_s,
        obeys_queues=policy.obeys_queues,
        gpus=facts.devices.total,
        gpus_used=facts.devices.used,
        utilisation=mean_utilisation(facts.devices),
        gpus_measured=facts.devices.measured,
        running=counts.get("running", 0),
        pending=counts.get("pending", 0),
        suspended=counts.get("suspended", 0),
        oldest_wait=None if oldest is None else _waiting(service, facts, oldest, by),
        gpus_idle=facts.gpus_idle,
        lost_gpu_hours=round(lost / (WHOLE * HOUR), 6),
        failures=await parts.failures(own),
        long_waits=[
            _waiting(service, facts, live, by)
            for live in longest_waits(facts, jobs, MOST_WAITS, own)
        ],
        hung=[_hung(service, facts, live) for live in facts.hung if sees(by, live.job.user)],
        idle=[
            _row(live, by, idle_ms, "Its GPUs compute nothing, and it makes no steps.")
            for live, idle_ms in facts.idle
            if sees(by, live.job.user)
        ],
        nodes=list(facts.nodes),
        queues=list(facts.queues),
    )


def _row(live: LiveJob, by: Caller, ms: int, sentence: str | None) -> models.OverviewJob:
    return models.OverviewJob(
        job=live.id,
        name=live.name if sees_names(by, live.job.user) else "",
        user=live.job.user,
        queue=live.job.queue,
        seconds=ms / SECOND,
        sentence=sentence if sees(by, live.job.user) else None,
    )


def _waiting(service: Daemon, facts: Facts, live: LiveJob, by: Caller) -> models.OverviewJob:
    since = facts.at_ms if live.record is None else live.record.waiting_since_ms
    sentence = None
    if sees(by, live.job.user):
        reason = serializers.wait_reason(service.queries.listed(live), facts.at_ms)
        sentence = None if reason is None else reason.sentence
    return _row(live, by, max(0, facts.at_ms - since), sentence)


def _hung(service: Daemon, facts: Facts, live: LiveJob) -> models.OverviewJob:
    row = serializers.hang_row(service.queries.listed(live), facts.at_ms)
    since = facts.at_ms / SECOND if row is None else row.since_s
    return models.OverviewJob(
        job=live.id,
        name=live.name,
        user=live.job.user,
        queue=live.job.queue,
        seconds=max(0.0, facts.at_ms / SECOND - since),
        sentence=None if row is None else row.sentence,
    )
