"""What the GPUs, and the runs on them, use now: read every few seconds by a process beside the manager.

Others read it by `of_run` and `device`, or are called after each look: `readings.listeners.append(call)`, in
the event loop, with the readings themselves. Nothing here is a fact of the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from trainmaster.daemon.run_gpu_use import Holders, RunUse, uses_of
from trainmaster.engines.local import processes
from trainmaster.engines.protocol import Engine
from trainmaster.gpu.driver import Gpu, GpuEvent, GpuProcess, Reading
from trainmaster.gpu.watch import Look
from trainmaster.model.job import Run
from trainmaster.model.topology import Node
from trainmaster.model.units import GIB
from trainmaster.text.formatting import as_sentence, listing, plural, size

log = structlog.get_logger("trainmaster.gpu")

EVERY_S = 1.0
SILENCE_S = 20.0
"""A driver that has not answered for so long is said not to, and asked by a new process."""
AGAIN_S = 5.0
"""Before a new process is started."""
NEWS_S = 3600.0
"""How long an XID event is said in the status."""
END_S = 2.0
"""How long a process that was killed is waited for."""
MOST_LINE = 1 << 24
OTHER_MACHINES = "the manager does not read the GPUs of other machines"
MUCH = 1 * GIB
"""What programs that are not jobs may use of a GPU before it is said."""


@dataclass(slots=True)
class XidCount:
    """XID events of one GPU since the manager started. Not seen on hardware."""

    count: int = 0
    last: int | None = None
    last_s: float = 0.0
    """By the steady clock."""


class GpuReadings:
    """The last look, and what follows from it; empty where there are no GPUs, or the driver has trouble."""

    def __init__(self, engine: Engine, holders: Callable[[], Holders] = dict) -> None:
        self._engine = engine
        self._holders = holders
        self.listeners: list[Callable[[GpuReadings], None]] = []
        self.look = Look()
        self.trouble = ""
        """Why there are no readings; empty where there are."""
        self.xids: dict[str, XidCount] = {}
        self._readings: dict[str, Reading] = {}
        self._gpus: dict[str, Gpu] = {}
        self._runs: dict[Run, RunUse] = {}
        self._strangers: dict[str, list[GpuProcess]] = {}
        """Of each device the processes that exist here and are of no run."""
        self._unnamed: set[str] = set()
        """Devices with processes that do not exist here: the driver counts them as another machine does."""
        self._failure = ""
        """What went wrong in a listener at the last look."""
        self.every_s, self.silence_s, self.again_s = EVERY_S, SILENCE_S, AGAIN_S

    # -- asking --------------------------------------------------------------------------------------

    def device(self, uuid: str) -> Reading | None:
        """What was read of a device last; None: nothing."""
        return self._readings.get(uuid)

    def readings(self) -> Iterable[Reading]:
        """What was read of all devices last."""
        return self._readings.values()

    def gpu(self, uuid: str) -> Gpu | None:
        """What the driver says that it is."""
        return self._gpus.get(uuid)

    def of_run(self, run: Run) -> RunUse | None:
        """What this run uses; None while none of its processes has memory on a GPU."""
        return self._runs.get(run)

    def is_used_outside(self, uuid: str) -> bool:
        """Whether a program that is not a job, and still exists, computes there or holds much memory."""
        found = self._strangers.get(uuid, ())
        there = [each for each in found if os.path.exists(f"/proc/{each.pid}")]
        return sum(each.memory for each in there) >= MUCH or any(each.util_ppm for each in there)

    def runs(self) -> Iterable[RunUse]:
        return self._runs.values()

    def notes(self, nodes: Sequence[Node] | None = None) -> list[str]:
        """What does not work as it should, a sentence each: of all nodes, or of these."""
        if self._engine.abilities.spans_machines:
            return []
        nodes = self._engine.topology.nodes if nodes is None else nodes
        if self.trouble:
            return [as_sentence(f"GPUs are not read: {self.trouble}")]
        said = []
        if self._failure:
            said.append(
                f"What is read of GPUs is not used ({self._failure}): manager.log says more."
            )
        for uuid, name in named_gpus(nodes).items():
            reading, xid = self._readings.get(uuid), self.xids.get(uuid)
            if reading is None and self._readings:
                said.append(f"GPU {name} is gone: the driver does not know {uuid} any more.")
            elif reading is not None and reading.trouble:
                said.append(
                    f"GPU {name} does not answer ({reading.trouble}): reset the GPU or restart the"
                    " machine."
                )
            elif reading is not None and reading.ecc_errors:
                errors = plural(reading.ecc_errors, "uncorrected memory error")
                said.append(f"GPU {name} has had {errors} (ECC).")
            if xid is not None and time.monotonic() - xid.last_s < NEWS_S:
                said.append(f"GPU {name} reported XID {xid.last} ({plural(xid.count, 'event')}).")
            strangers = self._strangers.get(uuid, ())
            if (used := sum(each.memory for each in strangers)) >= MUCH:
                pids = listing([str(each.pid) for each in strangers])
                said.append(f"GPU {name} has {size(used)} in use outside of jobs: process {pids}.")
        return said

    def blindness(self, uuids: Iterable[str]) -> str:
        """Why it is not known what each of several runs uses on these devices; empty where it is."""
        if self.trouble or self._unnamed.isdisjoint(uuids):
            return self.trouble
        return "the driver does not name processes as this machine does"

    # -- looking -------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Until cancelled; nothing to do where there are no GPUs, or where they are in other machines."""
        if self._engine.abilities.spans_machines:
            self._set(Look(trouble=OTHER_MACHINES), {})
            return
        while self._engine.topology.uuids:
            try:
                why = f"the GPU driver {await self._follow()}"
            except OSError as problem:
                why = f"no process can be started for it: {problem}"
            self._fail(why)
            await asyncio.sleep(self.again_s)

    async def _follow(self) -> str:
        """Take in what a new process reads until it ends or says nothing more; what became of it."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "trainmaster.gpu.watch", str(self.every_s)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": processes.python_path()},
            start_new_session=True,
            limit=MOST_LINE,
        )
        assert process.stdout is not None
        try:
            while line := await self._line(process.stdout):
                await self.take(Look.from_json(line))
            return f"ended the process that asked it (exit code {await process.wait()})"
        except TimeoutError:
            self._fail(f"the GPU driver has not answered for {self.silence_s:g} s")
            process.kill()
            await process.wait()  # one that hangs in the kernel stays: a second one would too
            return f"has not answered for {self.silence_s:g} s"
        except (ValueError, TypeError, KeyError) as problem:
            return f"gave an answer that cannot be read: {problem}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            with contextlib.suppress(TimeoutError):  # it hangs in the kernel
                await asyncio.wait_for(process.wait(), END_S)

    async def _line(self, output: asyncio.StreamReader) -> bytes:
        """The next one; asyncio.wait_for of Python 3.11 loses a cancellation that comes together with it."""
        async with asyncio.timeout(self.silence_s):
            return await output.readline()

    def _fail(self, why: str) -> None:
        if self.trouble != why:
            log.error("GPUs cannot be read", why=why)
        self._set(Look(trouble=why), {})

    async def take(self, look: Look) -> None:
        """Take in what was read; whose processes they are is looked up beside the event loop."""
        pids = {each.pid for each in look.processes}
        run_of = await asyncio.to_thread(self._run_of, pids)
        if look.trouble and look.trouble != self.trouble:
            log.error("GPUs cannot be read", why=look.trouble)
        self._set(look, run_of)

    def _run_of(self, pids: Collection[int]) -> dict[int, Run | None]:
        """Of those that exist here: in a container, NVML may name processes by the host's numbers."""
        here = (pid for pid in pids if os.path.exists(f"/proc/{pid}"))
        return {pid: self._engine.run_of(pid) for pid in here}

    def _set(self, look: Look, run_of: Mapping[int, Run | None]) -> None:
        self.look, self.trouble = look, look.trouble
        self._readings = {each.uuid: each for each in look.readings}
        self._gpus = {each.uuid: each for each in look.gpus}
        self._runs = uses_of(look, run_of, self._holders())
        self._strangers = {}
        for each in look.processes:
            if each.pid in run_of and run_of[each.pid] is None:
                self._strangers.setdefault(each.uuid, []).append(each)
        self._unnamed = {each.uuid for each in look.processes if each.pid not in run_of}
        for event in look.events:
            self._note(event)
        before, self._failure = self._failure, ""
        for call in self.listeners:
            try:
                call(self)
            except Exception as problem:  # the manager goes on, and so does the watching
                self._failure = f"{type(problem).__name__}: {problem}"
                if self._failure != before:
                    trace = traceback.format_exc()
                    log.error("what was read of GPUs could not be used", trace=trace)

    def _note(self, event: GpuEvent) -> None:
        log.error("a GPU reported an event", gpu=event.uuid, kind=event.kind, code=event.code)
        if event.kind == "xid":
            known = self.xids.setdefault(event.uuid, XidCount())
            known.count, known.last, known.last_s = known.count + 1, event.code, time.monotonic()


def named_gpus(nodes: Iterable[Node]) -> dict[str, str]:
    """UUIDs, and the devices' names, as `node:number`."""
    return {uuid: f"{node.name}:{local}" for node in nodes for local, uuid in enumerate(node.uuids)}
