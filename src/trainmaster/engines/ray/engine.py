"""The engine of a cluster: a launcher on each node runs the parts of gangs as the local engine does.

It knows Ray only by its node link. What it must remember is in the manager's folder, in the local engine's
layout: a journal for each run, and a copy of its logs.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import structlog

from trainmaster.engines.local import journal, logs, ownership, runfile
from trainmaster.engines.local.engine import LIVE
from trainmaster.engines.protocol import (
    Abilities,
    EngineError,
    Known,
    KnownJob,
    Probed,
    RecordedRun,
    Request,
    StrayRun,
    Tell,
    TellNode,
    any_job,
    ignore,
)
from trainmaster.engines.ray import node_files
from trainmaster.engines.ray.file_tree import CHECKPOINTS, Tree, entries_of, leads_out
from trainmaster.engines.ray.gang import (
    Gang,
    next_generation,
    numbered,
    resizing_in_place,
)
from trainmaster.engines.ray.gang_journal import IN_PLACE, LAUNCHED, reports_in
from trainmaster.engines.ray.gang_parts import (
    Meeting,
    by_node,
    orders_of_parts,
    orders_of_resize,
    parts_of,
    reservation,
)
from trainmaster.engines.ray.gang_run import Cluster, GangRun, Misfit
from trainmaster.engines.ray.node_files import Unseen
from trainmaster.engines.ray.node_link import (
    NodeFound,
    NodeGone,
    NodeLink,
    NodeNews,
    NodeSilent,
    TakenByOthers,
    Unreachable,
)
from trainmaster.engines.ray.node_reports import Batch, LogPiece, PartReport
from trainmaster.engines.ray.node_session import FORGET, NodeIsGone, NodeSession
from trainmaster.engines.ray.staging import LONGEST_RETRY_S, NotBrought, NotSent, Staging, Unsettled
from trainmaster.engines.run_limits import DEFAULT_RUN_LIMITS, RunLimits
from trainmaster.model.actions import Halt, Launch, Order, Rebind, Reshape
from trainmaster.model.engine_reports import (
    ClusterNode,
    DevicesTaken,
    Ended,
    FilesKept,
    Lost,
    NodeCame,
    NodeFell,
    Saved,
)
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.placement import Placement
from trainmaster.model.topology import Topology
from trainmaster.model.topology_growth import topology_of
from trainmaster.text.formatting import listing

log = structlog.get_logger(__name__)

LOOK_S = 30.0
"""How long a start waits to learn from nodes what happened to runs before."""
ASK_S = 10.0
"""How long a thread waits for the answer of a node."""
RETRY_S = 1.0
FOREIGN = "The folder of this run holds a run of another job, which was left alone."
BRING_S = 60.0
"""How often it is looked whether jobs have saved something without saying so, ..."""
AT_ONCE = 16
"""... of so many of them at once, ..."""
QUIET_S = 5.0
"""... and for how long that has to be as it is."""
APART = (
    "It does not see {}, the manager's data folder: jobs run there in copies of their code, and what they"
    " write is brought back."
)
NOT_SEEN = "The node {} does not see {}: put that on storage that all nodes share."
BARE = "On the node {} there is nothing in {}, and elsewhere there is: look whether it is mounted there."
MANAGER = ""
"""No node has this name."""
OR_COPY = " Or submit it with --snapshot: then its code is copied to its nodes."
NOT_BROUGHT = "What job {} wrote on its nodes cannot be brought here: {}."
LEFT_OUT = "{} cannot be read, or belong to another account"
LOST_WITH = "The node {} is gone, with what it had written there last."
GOES_ON = "It goes on from the last checkpoint that was brought from there{}."
NOTHING_BROUGHT = "Nothing that it may have saved there had been brought to the manager."
NOTHING_LEFT = "Its records are gone, so nothing is known of how it ended."


class RayEngine:
    """Runs gangs on the nodes that a link reaches. `nodes` are those that were found when it was made;
    `limits` hold on each of them."""

    name = "ray"

    def __init__(
        self,
        folder: Path,
        link: NodeLink,
        nodes: Sequence[ClusterNode] = (),
        limits: RunLimits = DEFAULT_RUN_LIMITS,
        address: str | None = None,
        fence_s: float | None = None,
        *,
        serves_users: bool = False,
    ) -> None:
        self._address, self._fence_s = address, fence_s
        self._serves_users = serves_users
        self._folder = Path(os.path.abspath(folder)) / "runs"
        self._link = link
        self._limits = limits
        self._nodes: dict[str, ClusterNode] = {node.name: node for node in nodes}
        self._topology = topology_of(nodes)
        self._numbers = self._topology
        """How orders number nodes and GPUs."""
        self._sessions: dict[str, NodeSession] = {}
        self._silent: dict[str, str] = {}
        """Why a node takes nothing now."""
        self._remarks: dict[str, tuple[str, ...]] = {}
        self._runs: dict[Run, GangRun] = {}
        self._over: set[Run] = set()
        """Runs that were told to be over: their orders are answered."""
        self._staging = Staging(self._folder.parent, self._ask)
        self._saved: dict[Run, Saved] = {}
        """What runs have saved on nodes of their own, and is not brought yet."""
        self._mark = ""
        """What nodes know the manager's folder by."""
        self._known: Known | None = None
        """What the store knows; None until runs have been observed."""
        self._tell: Tell | None = None
        self._tell_node: TellNode = ignore
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cluster = Cluster(
            link=link,
            session=self._session,
            topology=lambda: self._numbers,
            misfit=self._misfit,
            sends_files=self._sends_files,
            earlier_over=self._end_earlier,
            marker=self._marker,
            on_over=self._is_over,
        )

    @property
    def topology(self) -> Topology:
        return self._topology

    @property
    def abilities(self) -> Abilities:
        """What all nodes can do, as far as they have said."""
        known = [each.abilities for each in self._sessions.values() if each.abilities is not None]
        return Abilities(
            can_freeze=all(each.can_freeze for each in known),
            limits_memory=all(each.limits_memory for each in known),
            limits_cpus=all(each.limits_cpus for each in known),
            shares_files=all(each.sees_folder for each in self._sessions.values()),
            spans_machines=True,
            node_remarks=tuple(self._node_remarks()),
            cluster=self._address,
            fence_s=self._fence_s,
            left_out=tuple(self._left_out()),
        )

    def _node_remarks(self) -> Iterator[tuple[str, str]]:
        for name in sorted(self._remarks.keys() | self._sessions.keys()):
            session = self._sessions.get(name)
            able = None if session is None else session.abilities
            said = [*self._remarks.get(name, ()), *(() if able is None else able.remarks)]
            if able is not None and self._serves_users:
                said += able.user_remarks
            if session is not None and not session.sees_folder:
                said.append(APART.format(self._folder.parent))
            yield from ((name, each) for each in dict.fromkeys(said))

    def _left_out(self) -> list[tuple[str, str]]:
        """Nodes that are there, and why they take nothing."""
        said = ((name, why or self._silent.get(name, "")) for name, why in self._link.alive())
        return [(name, why) for name, why in said if why]

    def troubles(self) -> Sequence[str]:
        silent = [
            f"The node {name} takes nothing: {why}"
            for name, why in self._left_out()
            if name in self._silent
            and name not in self._numbers.node_by_name  # of others the manager says it
        ]
        other = [
            f"Another manager gives orders to the node {each.name}."
            for each in self._sessions.values()
            if each.is_superseded
        ]
        unbrought = [
            NOT_BROUGHT.format(run.job, why) for run, why in self._staging.troubles.items()
        ]
        return (*self._link.troubles(), *silent, *other, *unbrought)

    def folder_of(self, run: Run) -> Path:
        return self._folder / run.job / str(run.attempt)

    def logs(self, run: Run) -> Mapping[int, tuple[Path, ...]]:
        """Each rank's output as it was collected, oldest file first."""
        return logs.rank_logs(self.folder_of(run))

    # -- the contract --------------------------------------------------------------------------------------

    def number_nodes(self, topology: Topology) -> None:
        self._numbers = topology

    async def open(self, tell: Tell, tell_node: TellNode = ignore) -> None:
        self._tell, self._tell_node = tell, tell_node
        self._loop = asyncio.get_running_loop()
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._folder / LIVE).mkdir(mode=0o700, exist_ok=True)
            self._mark = node_files.mark_of(self._folder)
        except OSError as problem:
            raise EngineError(f"{self._folder} cannot be used: {problem.strerror}.") from None
        await self._link.open(self._hear_of_node)
        self._start(self._bring_now_and_then())

    async def execute(self, order: Order, spec: LaunchSpec) -> None:
        run = order.run
        if run not in self._over and (gang := self._gang_for(order, spec)) is not None:
            gang.order(order, spec)
        await asyncio.sleep(0)

    def requests(self, order: Order, spec: LaunchSpec) -> Sequence[Request]:
        """What each node would be told, in its own numbers; before that, what would be reserved.

        The port at which a gang meets is agreed with its first node: here it is 0.
        """
        topology, known = self._numbers, self._runs.get(order.run)
        gang = None if known is None else known.gang
        placement = getattr(order, "placement", None)
        placements = {} if placement is None else by_node(placement, topology)
        if not isinstance(order, Launch | Reshape):
            return () if gang is None else _told(order, spec, gang, placements)
        found = [Request("cluster", "reserve", reservation(order.placement, spec, topology))]
        if isinstance(order, Reshape) and gang is not None:
            if known is not None and known.stays(gang, order.placement):
                return (*found, *_told(order, spec, gang, placements))
            if known is not None and known.can_resize_in_place(gang, order.placement):
                return (*found, *_told_in_place(spec, gang, placements))
            found = [*_told(Halt(order.run), spec, gang, {}), *found]
            gang = next_generation(gang, parts_of(placements, spec.ranks))
        else:
            gang = Gang(order.run, parts_of(placements, spec.ranks))
        first = self._nodes.get(gang.parts[0].node)
        launch = Launch(order.run, order.placement, 0)
        host = "" if first is None else first.host
        return (*found, *self._sent(gang, spec), *_told(launch, spec, gang, placements, host))

    def _sent(self, gang: Gang, spec: LaunchSpec) -> list[Request]:
        """What its nodes would be sent of its files."""
        trees, nodes = self._staging.trees_of(gang.run, spec), [part.node for part in gang.parts]
        is_sent = trees and self._some_apart(nodes)
        return [Request(node, "stage", trees) for node in nodes if is_sent]

    async def observe(self, runs: Mapping[Run, int], known: Known = any_job) -> Sequence[StrayRun]:
        self._known = known
        adopted = [
            gang
            for run, seen in runs.items()
            if (gang := self._adopt(run, seen, known)) is not None
        ]
        for name in {name for gang in adopted for name in gang.nodes}:
            self._session(name)  # one that was never seen is then found, or is gone
        reached = sorted(self._nodes.keys() - self._silent.keys())
        asking = {asyncio.create_task(self._settle(name, adopted, known)): name for name in reached}
        strays: dict[Run, StrayRun] = {}
        if asking:
            done, slow = await asyncio.wait(asking, timeout=LOOK_S)
            for task in slow:
                task.cancel()
                self._start(self._settle_later(asking[task], known, adopted))
            for task in done:
                if (problem := task.exception()) is not None:
                    log.warning("a node refused its runs", node=asking[task], why=str(problem))
                    self._start(self._settle_later(asking[task], known, adopted))
                    continue
                strays |= {each.run: each for each in task.result() if each.run not in strays}
        for run, seen in runs.items():
            if seen > 0 and run not in self._runs and run not in self._over:
                self._start(self._lose_when_gone(run, seen))
        self._start(self._release_unknown(strays))
        await asyncio.sleep(0)
        return [*strays.values()]

    async def save(self, run: Run) -> None:
        if run in self._runs:
            self._runs[run].save()

    def tell_gpu_use(self, run: Run, util_ppm: int) -> None:
        if run in self._runs:
            self._runs[run].tell_gpu_use(util_ppm)

    def catches_save(self, run: Run, pids: Sequence[int]) -> bool:
        """Its nodes are asked: process numbers mean nothing here."""
        gang = self._runs.get(run)
        nodes = () if gang is None else gang.nodes
        return any(self._asked(node, "catches_save", run) is True for node in nodes)

    def environment(self, run: Run) -> tuple[Path, Mapping[str, str]]:
        file = self._newest_file(run)
        if file is None:
            raise FileNotFoundError(f"nothing is known of run {run.job}.{run.attempt}")
        return Path(file.workdir), file.env | file.ranks[0].env

    def run_of(self, pid: int) -> Run | None:
        """None: runs are not on this machine, or belong to its launcher."""
        return None

    def connect(self, job: str, port: int) -> socket.socket | None:
        """None: ports of programs on other machines are not forwarded yet."""
        return None

    def recorded(self, run: Run) -> RecordedRun | None:
        folder, file = self.folder_of(run), self._newest_file(run)
        has_begun = journal.has_begun(str(folder))
        if file is None and not has_begun:
            return None
        reports = tuple(reports_in(run, folder))
        newest = journal.last(str(folder))
        is_over = newest is not None and newest["what"] in journal.LAST
        return RecordedRun(
            "" if file is None else file.row,
            reports,
            has_begun,
            is_prerun=file is not None and file.prerun_ms > 0,
            alive_ms=newest["at_ms"] if newest is not None and is_over else None,
        )

    async def write_row(self, run: Run, spec: LaunchSpec) -> None:
        try:
            await asyncio.to_thread(
                runfile.write_row, str(self.folder_of(run)), spec.uuid, spec.row
            )
        except (OSError, ValueError) as problem:
            log.warning("a job's record could not be written", run=run, why=str(problem))
        if run in self._runs:
            self._runs[run].write_row(spec)

    async def probe(self, node: str, words: Sequence[str], limit_s: float) -> Probed:
        session = self._sessions.get(node)
        try:
            if session is not None and not session.is_gone:
                said = await session.ask("probe", words, limit_s)
                assert isinstance(said, Probed)
                return said
        except NodeIsGone:
            pass
        raise EngineError(f"The node {node} is away.")

    def host_of(self, node: str) -> str:
        session = self._sessions.get(node)
        return "" if session is None else session.host

    def unwatched(self) -> Sequence[Run]:
        """By their records: their nodes cannot be asked before the engine is open."""
        found = []
        for marker in sorted((self._folder / LIVE).glob("*.*")):
            job, _, attempt = marker.name.rpartition(".")
            run = Run(job, int(attempt))
            folder = str(self.folder_of(run))
            if journal.has_begun(folder) and not journal.has_ended(folder):
                found.append(run)
        return found

    def cancel_unwatched(self, run: Run) -> bool:
        """False: only an open engine reaches its nodes."""
        return False

    async def bring(self, run: Run) -> None:
        if run in self._runs:  # it goes on where its caller waits no longer
            with suppress(Unsettled, OSError):
                await asyncio.shield(self._start(self._staging.bring(run)))

    async def forget(self, run: Run) -> None:
        gang = self._runs.pop(run, None)
        if gang is not None:
            await gang.stop()
        folder = self.folder_of(run)
        nodes = await asyncio.to_thread(_nodes_of, run, folder)
        for node in nodes & self._sessions.keys():
            self._sessions[node].post(run, FORGET, run)
        await asyncio.to_thread(shutil.rmtree, folder, True)
        self._marker(run).unlink(missing_ok=True)
        self._over.discard(run)
        self._staging.forget(run)
        with suppress(OSError):  # other attempts of the job are still there
            folder.parent.rmdir()

    async def close(self) -> None:
        for task in (tasks := [*self._tasks]):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # a folder may be being replaced
        for session in self._sessions.values():
            await session.close()
        for gang in [*self._runs.values()]:
            await gang.stop()
        for task in [*self._tasks]:
            task.cancel()
        self._runs.clear()
        self._sessions.clear()
        await self._link.close()

    def _marker(self, run: Run) -> Path:
        return self._folder / LIVE / f"{run.job}.{run.attempt}"

    # -- runs ----------------------------------------------------------------------------------------------

    def _gang_for(self, order: Order, spec: LaunchSpec) -> GangRun | None:
        """The run that the order is for; None where there is none that takes orders of ours."""
        run, folder = order.run, self.folder_of(order.run)
        if run in self._runs:
            return self._runs[run]
        owner = ownership.uuid_of(str(folder))
        if owner is not None and owner != spec.uuid:
            is_over = journal.has_ended(str(folder))
            if not (isinstance(order, Launch) and is_over and ownership.set_aside(folder)):
                self._tell_lost(run, 0, FOREIGN)
                return None
        if isinstance(order, Rebind) and not journal.has_begun(str(folder)):
            return None
        return self._follow(run, spec.uuid, 0)

    def _adopt(self, run: Run, seen: int, known: Known) -> GangRun | None:
        """Go on with a run of an earlier manager, if anything is known of it."""
        if run in self._runs:
            return None
        job, folder = known(run.job), str(self.folder_of(run))
        uuid, owner = "" if job is None else job.uuid, ownership.uuid_of(folder)
        if owner is not None and owner != uuid:
            self._over.add(run)
            self._tell_lost(run, seen, FOREIGN)
            return None
        if not journal.has_begun(folder):
            return None
        gang = self._follow(run, uuid, seen)
        return gang if run in self._runs else None

    def _follow(self, run: Run, uuid: str, seen: int) -> GangRun:
        gang = GangRun(run, uuid, self.folder_of(run), self._cluster, self._tell, seen)
        self._runs[run] = gang
        gang.catch_up()
        return gang

    def _is_over(self, gang: GangRun) -> None:
        self._over.add(gang.run)
        with suppress(OSError):  # it counts as ended by its journal
            self._marker(gang.run).unlink(missing_ok=True)
        if self._runs.get(gang.run) is gang:
            del self._runs[gang.run]
        self._staging.forget(gang.run)
        self._start(self._release(gang.run))

    async def _release(self, run: Run) -> None:
        """Give back what it had on the cluster."""
        while True:
            with suppress(Unreachable):
                await self._link.reserve(run, {}, {})
                return
            await asyncio.sleep(RETRY_S)

    async def _release_unknown(self, strays: Mapping[Run, StrayRun]) -> None:
        """Give back what is reserved for runs of which nothing is left."""
        while True:
            with suppress(Unreachable):
                reserved = await self._link.reserved()
                break
            await asyncio.sleep(RETRY_S)
        left = {run for run, stray in strays.items() if not stray.is_ended}
        for run in reserved.keys() - self._runs.keys() - left:
            await self._release(run)

    async def _lose_when_gone(self, run: Run, seen: int) -> None:
        """A run without records here is lost once no node has it any more."""
        await self._link.settled()
        for name in sorted(self._nodes.keys() - self._silent.keys()):
            with suppress(NodeIsGone):
                while run in cast(tuple[Run, ...], await self._session(name).ask("live")):
                    await asyncio.sleep(RETRY_S)
        self._tell_lost(run, seen, NOTHING_LEFT)

    async def _end_earlier(self, run: Run) -> None:
        """Never two attempts of a job at once."""
        earlier = [
            gang
            for other, gang in self._runs.items()
            if other.job == run.job and other.attempt < run.attempt
        ]
        for gang in earlier:
            log.warning("a run that its job does not need any more is ended", run=gang.run)
            gang.end()
        for gang in earlier:
            await gang.until_over()

    def _tell_lost(self, run: Run, seen: int, why: str) -> None:
        log.error("nothing of a run is left for its job", run=run, why=why)
        if self._tell is not None:
            self._tell(Lost(run, time.time_ns() // 1_000_000, why, alive_ms=0), seen + 1)

    def _newest_file(self, run: Run) -> runfile.RunFile | None:
        try:
            return runfile.newest(str(self.folder_of(run)))
        except ValueError:
            return None

    # -- nodes ---------------------------------------------------------------------------------------------

    def _hear_of_node(self, news: NodeNews) -> None:
        now_ms = time.time_ns() // 1_000_000
        if isinstance(news, TakenByOthers):
            self._tell_node(DevicesTaken(news.name, now_ms, news.gpus))
        elif isinstance(news, NodeFound):
            name = news.node.name
            self._nodes[name], self._remarks[name] = news.node, news.remarks
            session = self._session(name)
            session.found(news.node.host)
            if session.is_usable:
                self._has_come(name)
        elif isinstance(news, NodeSilent):
            self._silent[news.name] = news.why
            known = self._sessions.get(news.name)
            since_ms = now_ms if known is None else known.silent_ms or now_ms
            self._tell_node(NodeFell(news.name, since_ms, news.why, news.gone_ms))
            for gang in [*self._runs.values()]:
                gang.node_silent(news.name)
        elif isinstance(news, NodeGone):
            self._node_gone(news, now_ms)

    def _has_come(self, name: str) -> None:
        if self._silent.pop(name, None) is not None:
            for gang in [*self._runs.values()]:
                gang.node_silent(name, is_back=True)
        self._tell_node(NodeCame(self._nodes[name], time.time_ns() // 1_000_000))

    def _node_gone(self, news: NodeGone, now_ms: int) -> None:
        """Only now nothing of it is left: its runs are lost."""
        session = self._session(news.name)
        alive_ms = session.silent_ms
        session.gone()
        if news.name not in self._silent:
            self._tell_node(NodeFell(news.name, now_ms, news.why))
        self._silent[news.name] = news.why
        for gang in [*self._runs.values()]:
            if news.name in gang.nodes:
                why = self._with_loss(gang.run, news.why)
                hear = partial(gang.node_gone, news.name, why, alive_ms)
                self._over_there(gang, news.name, hear, is_lost=True)

    def _session(self, name: str) -> NodeSession:
        if name not in self._sessions:
            self._sessions[name] = NodeSession(
                self._link, name, self._limits, self._begun, self._take
            )
        return self._sessions[name]

    async def _begun(self, session: NodeSession) -> None:
        """In a new session with a node: go on with what is there, and say again what it may have missed."""
        gangs = [*self._runs.values()]
        session.sees_folder = (
            await session.call_begun("has_mark", str(self._folder), self._mark) is True
        )
        session.is_usable = True
        if session.name in self._nodes:
            self._has_come(session.name)
        await self._observe_at(session, gangs)
        for gang in gangs:
            gang.told_again(session.name)
        if self._known is not None:
            self._start(self._settle_later(session.name, self._known))

    async def _observe_at(self, session: NodeSession, gangs: Sequence[GangRun]) -> None:
        """Have a node go on with these runs."""
        seen = {gang.run: at for gang in gangs if (at := gang.adopted(session.name)) is not None}
        uuids = {gang.run.job: KnownJob(gang.uuid, 0) for gang in gangs}
        if seen:
            await session.call_begun("observe", seen, uuids)

    async def _misfit(self, run: Run, spec: LaunchSpec, nodes: Sequence[str]) -> Misfit | None:
        """What is sent need not be seen. All nodes of a gang are alike: they are sent it, or none is."""
        trees = self._staging.trees_of(run, spec)
        is_sent = self._some_apart(nodes)
        paths = node_files.named_files(spec, [tree.source for tree in trees])
        if is_sent:
            paths += await asyncio.to_thread(_outside, trees)
        misfit = await self._unseen(spec, nodes, paths) if paths else None
        if misfit is not None:
            return misfit
        if not (is_sent and trees):
            self._staging.not_sent(run)
            return None
        try:
            await self._staging.send(run, spec, nodes)
        except NotSent as refused:
            return Misfit(str(refused), (refused.node,))
        return None

    def _sends_files(self, run: Run, spec: LaunchSpec, nodes: Sequence[str]) -> bool:
        is_sent = self._staging.staged(run) is not None
        return is_sent or (bool(self._staging.trees_of(run, spec)) and self._some_apart(nodes))

    def _some_apart(self, nodes: Sequence[str]) -> bool:
        """Whether some of these do not see the manager's folder."""
        return not all(self._session(name).sees_folder for name in nodes)

    async def _unseen(
        self, spec: LaunchSpec, nodes: Sequence[str], paths: tuple[str, ...]
    ) -> Misfit | None:
        """A path counts that somebody sees: else it is the job's fault, and its end says so."""
        asked = (paths, node_files.read_files(spec))
        asking = (self._session(name).ask("unseen", *asked) for name in nodes)
        unseen = dict(zip(nodes, cast(list[Unseen], await asyncio.gather(*asking)), strict=True))
        if all(each == Unseen() for each in unseen.values()):
            return None
        unseen |= await self._unseen_elsewhere(asked, set(nodes))
        own = await asyncio.to_thread(node_files.unseen, *asked)
        lacking = node_files.lacking({**unseen, MANAGER: own})
        unfit = {name: lacking[name] for name in unseen if lacking[name] != Unseen()}
        first = next((name for name in nodes if name in unfit), None)
        if first is None:
            return None
        found = unfit[first]
        why = NOT_SEEN.format(first, listing([*found.gone])) if found.gone else ""
        why = why or BARE.format(first, listing([*found.bare]))
        if spec.workdir in found.gone + found.bare:
            why += OR_COPY
        return Misfit(why, tuple(unfit))

    async def _unseen_elsewhere(
        self, asked: tuple[tuple[str, ...], tuple[str, ...]], but: set[str]
    ) -> dict[str, Unseen]:
        """What the other nodes do not see, of those that answer soon."""
        asking = {
            asyncio.create_task(self._sessions[name].ask("unseen", *asked)): name
            for name in self._sessions.keys() - but - self._silent.keys()
        }
        if not asking:
            return {}
        done, slow = await asyncio.wait(asking, timeout=ASK_S)
        for task in slow:
            task.cancel()
        answered = (task for task in done if task.exception() is None)
        return {asking[task]: cast(Unseen, task.result()) for task in answered}

    async def _settle_later(self, name: str, known: Known, adopted: Sequence[GangRun] = ()) -> None:
        """Until nothing there hinders it, such as a full disk."""
        trouble = ""
        while True:
            try:
                await self._settle(name, adopted, known)
                return
            except Exception as problem:
                if trouble != str(problem):
                    trouble = str(problem)
                    log.warning("a node refused its runs", node=name, why=trouble)
            await asyncio.sleep(RETRY_S)

    async def _settle(
        self, name: str, adopted: Sequence[GangRun], known: Known
    ) -> tuple[StrayRun, ...]:
        """Go on with runs of an earlier manager at a node; end those there that nobody needs any more."""
        session = self._session(name)
        seen = {gang.run: at for gang in adopted if (at := gang.adopted(name)) is not None}
        try:
            live = cast(tuple[Run, ...], await session.ask("live"))
            ours = {run for run, gang in self._runs.items() if name in gang.nodes}
            jobs = {run.job for run in live if run not in ours} | {run.job for run in seen}
            named = {job: found for job in jobs if (found := known(job)) is not None}
            strays = cast(tuple[StrayRun, ...], await session.ask("observe", seen, named))
        except NodeIsGone:
            return ()
        for gang in adopted:
            gang.told_again(name)
        return tuple(each for each in strays if each.run not in ours)

    async def _take(self, name: str, batch: Batch) -> None:
        """Logs first: the end of a run comes after the last of its output."""
        pieces: dict[Run, list[LogPiece]] = {}
        for piece in batch.logs:
            pieces.setdefault(piece.run, []).append(piece)
        for run, each in pieces.items():
            if run in self._runs:
                await asyncio.to_thread(self._runs[run].write_logs, name, each)
        for said in batch.reports:
            self._hear(name, said)

    def _hear(self, name: str, said: PartReport) -> None:
        gang, report = self._runs.get(said.report.run), said.report
        if gang is None:
            return
        staged = self._staging.staged(gang.run)
        if isinstance(report, Saved) and staged is not None and CHECKPOINTS in staged.trees:
            self._has_saved(gang, report)
        elif isinstance(report, Ended | Lost):
            is_lost = isinstance(report, Lost) or report.code != 0 or report.cancelled is True
            self._over_there(gang, name, partial(gang.hear, name, said), is_lost=is_lost)
        else:
            gang.hear(name, said)

    # -- files that jobs write on nodes of their own -------------------------------------------------------

    def _has_saved(self, gang: GangRun, said: Saved) -> None:
        """It counts as saved once it is here: until then it could be lost with its node."""
        is_bringing = gang.run in self._saved
        self._saved[gang.run] = said
        if not is_bringing:
            self._start(self._bring_saved(gang))

    async def _bring_saved(self, gang: GangRun) -> None:
        """Until it is here: the node does not say it again."""
        run, pause, trouble = gang.run, RETRY_S, ""
        while not gang.is_over and (said := self._saved.get(run)) is not None:
            try:
                lost = await self._staging.bring(run, (CHECKPOINTS,))
            except Exception as problem:
                if trouble != str(problem):
                    trouble = str(problem)
                    log.warning("a checkpoint could not be brought", run=run, why=trouble)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_RETRY_S)
                continue
            if run in self._saved:  # else its end has noted it
                self._note_saved(gang, said, lost)
        self._saved.pop(run, None)

    def _note_saved(self, gang: GangRun, said: Saved, lost: Collection[str]) -> None:
        if self._saved.get(gang.run) is said:
            del self._saved[gang.run]
        if not _missed(gang, lost):
            gang.note(said)

    async def _bring_now_and_then(self) -> None:
        """For programs that save without saying so."""
        few = asyncio.Semaphore(AT_ONCE)
        while True:
            await asyncio.sleep(BRING_S)
            await asyncio.gather(*(self._bring_quiet(run, few) for run in [*self._runs]))

    async def _bring_quiet(self, run: Run, few: asyncio.Semaphore) -> None:
        try:
            async with few, asyncio.timeout(BRING_S):
                await self._staging.bring(run, (CHECKPOINTS,), QUIET_S)
        except (Unsettled, TimeoutError):  # it writes now, or a node is silent
            pass
        except Exception as problem:
            log.warning("checkpoints could not be looked for", run=run, why=str(problem))

    def _over_there(
        self, gang: GangRun, name: str, hear: Callable[[], None], *, is_lost: bool
    ) -> None:
        """Its part on this node is over: before the run is, all that it wrote is brought.

        `is_lost`: the run has not ended well, whatever it wrote.
        """
        if self._staging.staged(gang.run) is None or not gang.is_last(name):
            hear()
        else:
            self._start(self._bring_then(gang, name, hear, is_lost))

    async def _bring_then(
        self, gang: GangRun, name: str, hear: Callable[[], None], is_lost: bool
    ) -> None:
        run = gang.run
        staged = self._staging.staged(run)
        lost, missing = await self._brought(gang)
        if not missing and (said := self._saved.get(run)) is not None:
            self._note_saved(gang, said, lost)
        nodes = () if staged is None else staged.nodes
        kept = tuple(node for node in nodes if node not in lost)
        if not gang.is_over:
            left_out = self._staging.left_out(run)
            why = missing or (LEFT_OUT.format(listing([*left_out])) if left_out else "")
            gang.note(FilesKept(run, time.time_ns() // 1_000_000, () if missing else kept, why))
        if not missing:  # before its next processes begin: files that those use are not settled
            await self._settle_files(run, kept)
        missed = _missed(gang, lost)
        if missed and not is_lost:
            gang.node_gone(name, self._with_loss(run, LOST_WITH.format(missed[0])))
        else:
            hear()
        if missing and gang.is_over:
            await gang.until_over()
            await self._staging.bring_all(run)
            await self._settle_files(run, kept)

    async def _brought(self, gang: GangRun) -> tuple[list[str], str]:
        """The nodes on which something of it is lost; and why not all of the rest is here."""
        try:
            return sorted(await self._staging.bring_all(gang.run, lambda: gang.is_killed)), ""
        except NotBrought as problem:
            return [], str(problem)

    async def _settle_files(self, run: Run, nodes: Sequence[str]) -> None:
        async def settle(node: str) -> None:
            try:
                same = await asyncio.to_thread(self._staging.brought_from, run, node)
                await self._ask(node, "settle", run, same)
            except NodeIsGone:
                pass
            except Exception as problem:
                log.warning("a node keeps files of a run for good", node=node, why=str(problem))

        await asyncio.gather(*map(settle, nodes))

    def _with_loss(self, run: Run, why: str) -> str:
        """Why it is lost with a node, and what is left of what it saved there."""
        if self._staging.staged(run) is None:
            return why
        saved = [
            each for each, _ in reports_in(run, self.folder_of(run)) if isinstance(each, Saved)
        ]
        if not saved and not self._staging.has_brought(run):
            return f"{why} {NOTHING_BROUGHT}"
        step = f", of step {saved[-1].step}" if saved and saved[-1].step is not None else ""
        return f"{why} {GOES_ON.format(step)}"

    async def _ask(self, node: str, method: str, *words: object) -> object:
        return await self._session(node).ask(method, *words)

    def _asked(self, node: str, method: str, *words: object) -> object:
        """The answer of a node, for a thread; None where there is none in time."""
        if self._loop is None or node not in self._sessions:
            return None
        asking = asyncio.run_coroutine_threadsafe(
            self._sessions[node].ask(method, *words), self._loop
        )
        try:
            return asking.result(ASK_S)
        except (TimeoutError, NodeIsGone):
            asking.cancel()
            return None

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _missed(gang: GangRun, lost: Collection[str]) -> list[str]:
    """Of these nodes those that it needs: one that it went on without has nothing for it."""
    members = () if gang.gang is None else gang.gang.member_parts
    return [part.node for part in members if part.node in lost and not part.is_out]


def _told(
    order: Order,
    spec: LaunchSpec,
    gang: Gang,
    placements: Mapping[str, Placement],
    host: str = "",
) -> list[Request]:
    orders = orders_of_parts(order, spec, gang, placements, Meeting(host, 0))
    return [Request(each.node, "execute", each) for each in orders]


def _outside(trees: Sequence[Tree]) -> tuple[str, ...]:
    """What links in these folders lead to."""
    return tuple(
        path
        for tree in trees
        for path in leads_out(tree.source, entries_of(tree.source, tree.name))
    )


def _told_in_place(
    spec: LaunchSpec, gang: Gang, placements: Mapping[str, Placement]
) -> list[Request]:
    target = numbered(gang, parts_of(placements, spec.ranks))
    gang = resizing_in_place(gang, gang.shape + 1, target)
    orders = orders_of_resize(spec, gang, placements, Meeting("", 0))
    return [Request(each.node, "execute", each) for each in orders]


def _nodes_of(run: Run, folder: Path) -> set[str]:
    """All nodes that parts of it were ever on."""
    launched = (
        entry for entry in journal.read(str(folder)) if entry["what"] in (LAUNCHED, IN_PLACE)
    )
    return {part[0] for entry in launched for part in entry["parts"]}
