"""Makes the engine of a Ray cluster: connects to it, or starts one on this machine first."""

from __future__ import annotations

import asyncio
from functools import partial

from trainmaster.engines.engine_settings import EngineSettings
from trainmaster.engines.protocol import EngineError
from trainmaster.engines.ray import local_cluster
from trainmaster.engines.ray.engine import RayEngine
from trainmaster.engines.ray.gateway_client import NO_RAY, Gateway, has_ray
from trainmaster.engines.ray.longest_fence import longest_fence_s, noted_fence_s

LOG = "ray-gateway.log"
"""In the data folder: what Ray's client writes."""


async def make(settings: EngineSettings) -> RayEngine:
    if not has_ray():
        raise EngineError(NO_RAY)
    choice, address = settings.choice, settings.choice.address
    environ: dict[str, str] = {}
    if choice.nodes is not None:
        cluster = await asyncio.to_thread(
            local_cluster.start, settings.folder, choice.nodes, choice.slots, settings.say
        )
        settings.say(local_cluster.announced(cluster))
        address, environ = cluster.address, cluster.environ
    assert address is not None
    link = Gateway(
        address,
        settings.store_name(),
        choice.fence_s,
        serves_users=settings.serves_users,
        environ=environ,
        log_file=settings.folder / LOG,
        longest_fence_s=longest_fence_s(settings.folder, choice.fence_s),
        noted_fence_s=partial(noted_fence_s, settings.folder),
    )
    await link.connect(may_be_away=settings.was_there)
    for trouble in link.troubles():
        settings.say(f"Note: {trouble}")
    return RayEngine(
        *(settings.folder, link, link.nodes, settings.limits, address, choice.fence_s),
        serves_users=settings.serves_users,
    )
