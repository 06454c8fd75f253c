"""The process between the manager and a Ray cluster: it has Ray loaded, and the manager has not.

    python -m trainmaster.engines.ray.gateway

Ray's client ends its process when the control store is away for long; then the manager starts another one. It
reads requests from its input and writes answers, and what it sees of the nodes, to its output
(`frames.py`); it ends with its input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import structlog

from trainmaster.engines.local import processes
from trainmaster.engines.ray.frames import framed, next_value
from trainmaster.engines.ray.gateway_messages import (
    Answer,
    Call,
    Connect,
    Nodes,
    Refused,
    Request,
    Reserve,
    Withdraw,
)
from trainmaster.engines.ray.held_devices import wanted
from trainmaster.engines.ray.node_facts import NodeFacts
from trainmaster.engines.ray.node_link import NotReserved, Unreachable
from trainmaster.model.job import Run

log = structlog.get_logger(__name__)

THREADS = 64
MOST_MISSES = 12
"""Looks that Ray's control store may leave unanswered, before this process ends to begin afresh."""


def main() -> None:
    processes.die_with_parent()
    processes.set_process_name("tm ray gateway")
    out = os.dup(1)
    os.dup2(2, 1)  # what Ray prints is not for the manager
    asyncio.run(_serve(out))
    os._exit(0)  # Ray's own way out may take long


async def _serve(out: int) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS))
    requests = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(out, "wb")
    )
    answers = asyncio.StreamWriter(transport, protocol, None, loop)
    with contextlib.suppress(EOFError):
        said: Connect = await next_value(requests)
        why = await asyncio.to_thread(_connect, said)
        if why:
            answers.write(framed(Refused(why)))
            await answers.drain()
            return
        await _Gateway(said, answers).serve(requests)


class _Gateway:
    def __init__(self, said: Connect, answers: asyncio.StreamWriter) -> None:
        from trainmaster.engines.ray.membership import Membership
        from trainmaster.engines.ray.reservations import Reservations

        self._answers = answers
        self._reservations = Reservations(said.store)
        self._members = Membership(
            *(said.store, said.fence_s, said.longest_fence_s, said.serves_users, said.launcher),
            self._reservations.of_others,
        )
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, requests: asyncio.StreamReader) -> None:
        await self._reservations.read()
        watching = self._watching = asyncio.create_task(self._watch())
        serving = asyncio.create_task(self._take(requests))
        await asyncio.wait([watching, serving], return_when=asyncio.FIRST_COMPLETED)
        if watching.cancelled():
            await serving
        elif watching.done():
            watching.result()

    async def _take(self, requests: asyncio.StreamReader) -> None:
        with contextlib.suppress(EOFError):
            while True:
                request: Request = await next_value(requests)
                task = asyncio.create_task(self._answer(request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: Request) -> None:
        try:
            answer = Answer(request.number, await self._carried_out(request))
        except Unreachable as why:
            answer = Answer(request.number, unreachable=str(why))
        except NotReserved as why:
            answer = Answer(request.number, not_reserved=str(why))
        except Exception as error:  # whatever Ray raises
            log.exception("a request to Ray failed")
            answer = Answer(request.number, unreachable=f"Ray could not do it: {error}")
        self._answers.write(framed(answer))

    async def _carried_out(self, request: Request) -> object:
        if isinstance(request, Call):
            return await self._members.call(request.node, request.method, request.words)
        if isinstance(request, Reserve):
            await self._reserve(request)
            return None
        if isinstance(request, Withdraw):
            self._watching.cancel()
            self._members.withdraw()
            await self._reservations.withdraw()
            return None
        return await self._reserved()

    async def _reserve(self, request: Reserve) -> None:
        nodes = [self._facts(node) for node in {**request.thousandths, **request.cpus}]
        held = wanted(nodes, request.thousandths, request.cpus)
        await self._reservations.reserve(request.run, held)

    def _facts(self, node: str) -> NodeFacts:
        incarnation = self._members.incarnation_of(node)
        facts = None if incarnation is None else self._members.facts_of(incarnation)
        if facts is None:
            raise Unreachable(f"Ray has no living node {node}.")
        return facts

    async def _reserved(self) -> dict[Run, dict[str, int]]:
        found: dict[Run, dict[str, int]] = {}
        for run, held in (await self._reservations.reserved()).items():
            named = ((self._members.facts_of(node), much) for node, much in held.items())
            found[run] = {facts.name: much for facts, much in named if facts is not None}
        return found

    async def _watch(self) -> None:
        from trainmaster.engines.ray.membership import LOOK_S

        last, misses = None, 0
        while True:
            try:
                looked = await self._members.look()
                self._answers.write(framed(Nodes(None if looked == last else looked)))
                last, misses = looked, 0
            except Exception as error:  # whatever Ray raises while its store is away
                misses += 1
                log.warning("Ray's control store does not answer", why=str(error))
                if misses > MOST_MISSES or "WrongClusterID" in str(error):
                    return
                self._answers.write(framed(Nodes(None, is_answered=False)))
            await self._answers.drain()
            await asyncio.sleep(LOOK_S)


def _connect(said: Connect) -> str:
    """Be a client of the cluster; why that cannot be, or empty."""
    import ray

    from trainmaster.engines.ray.admission import refusal

    if why := refusal(said.address):
        return why
    try:
        ray.init(
            address=said.address,
            namespace=f"trainmaster-{said.store}",
            log_to_driver=False,
            logging_level="error",
        )
    except Exception as error:  # Ray raises what comes
        return why_not_connected(said.address, error)
    return ""


def why_not_connected(address: str, error: Exception) -> str:
    said = str(error)
    if "No node info found" in said or "possible node" in said or "raylet" in said:
        return (
            "No node of the Ray cluster runs on this machine: start the manager on the cluster's head, or run"
            f" `ray start --address={address} --num-cpus=0 --num-gpus=0` here."
        )
    if "ersion mismatch" in said:
        return f"The Ray cluster at {address} is of another version: {' '.join(said.split())}"
    line = next((each.strip() for each in said.splitlines() if each.strip()), type(error).__name__)
    return f"The Ray cluster at {address} cannot be used: {line}"


if __name__ == "__main__":
    main()
