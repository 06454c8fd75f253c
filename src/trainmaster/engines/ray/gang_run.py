"""One attempt of a job on the nodes of a cluster: launches its parts, hands on orders, hears reports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from trainmaster.engines.local import ownership, runfile, worker_environment
from trainmaster.engines.local.launchers import LOOPBACK
from trainmaster.engines.local.orphan_cleanup import ended_before_start
from trainmaster.engines.local.runfile import CgroupPlan, RunFile
from trainmaster.engines.ray.gang import (
    Due,
    Gang,
    Part,
    can_resize_in_place,
    due,
    left_after_loss,
    numbered,
)
from trainmaster.engines.ray.gang import ending as told_to_end
from trainmaster.engines.ray.gang_journal import GangJournal, Launched
from trainmaster.engines.ray.gang_parts import (
    Meeting,
    Reservation,
    by_node,
    orders_of_parts,
    orders_of_resize,
    parts_of,
    reservation,
    steering,
    together,
)
from trainmaster.engines.ray.log_mirror import LogMirror
from trainmaster.engines.ray.node_link import NodeLink, NotReserved, Unreachable
from trainmaster.engines.ray.node_reports import LogPiece, PartReport, Seen
from trainmaster.engines.ray.node_session import FORGET, NodeIsGone, NodeSession
from trainmaster.model.actions import Freeze, Halt, Kill, Launch, Order, Rebind, Reshape, Thaw
from trainmaster.model.engine_reports import (
    Ended,
    Frozen,
    Lost,
    NotFrozen,
    ReplicaLost,
    Report,
    Reshaped,
    StopOrder,
    Thawed,
)
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.placement import Placement
from trainmaster.model.topology import Topology

log = structlog.get_logger(__name__)

SHORT_RETRY_S = 0.05
RETRY_S = 0.5
LONG_RETRY_S = 5.0
LONGEST_ABSENCE_S = 600
"""How long ranks wait for what becomes of a node that does not answer: longer than its fence."""
RESERVE_S = 10.0
"""How long a launch waits for resources that others on the cluster hold."""
NOWHERE = Placement((), 0)
"""Stands in until a node's own part of a placement is filled in."""
ANSWERS: Mapping[type, tuple[type, ...]] = {
    Freeze: (Frozen, NotFrozen),
    Thaw: (Thawed,),
    Reshape: (Reshaped,),
}
"""What a run reports when it has carried out an order; its end answers every order."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Nodes that cannot run a job."""

    why: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a run needs of the engine that it is of."""

    link: NodeLink
    session: Callable[[str], NodeSession]
    topology: Callable[[], Topology]
    misfit: Callable[[Run, LaunchSpec, Sequence[str]], Awaitable[Misfit | None]]
    """Sends a job's files to its nodes where that is needed; which nodes cannot have or do not see them."""
    sends_files: Callable[[Run, LaunchSpec, Sequence[str]], bool]
    """Whether a run's files are sent to its nodes, or would be to these."""
    earlier_over: Callable[[Run], Awaitable[None]]
    """Returns once no earlier attempt of its job is left."""
    marker: Callable[[Run], Path]
    """A file that is there while the run is not known to have ended."""
    on_over: Callable[[GangRun], None]


class GangRun:
    """`tell` hears of its reports in order, each once; `after` is the last that was seen before."""

    def __init__(
        self,
        run: Run,
        uuid: str,
        folder: Path,
        cluster: Cluster,
        tell: Callable[[Report, int], None] | None,
        after: int = 0,
    ) -> None:
        self.run = run
        self.uuid = uuid
        self.folder = folder
        self._cluster = cluster
        self._tell = tell
        self._over = asyncio.Event()
        self._spec: LaunchSpec | None = None
        """What it is launched with; None in a manager that has not been told yet."""
        self._placements: Mapping[str, Placement] = {}
        """Its part on each node, of the present generation; empty where that is not known yet."""
        self._standing: Order | None = None
        """The last order that has not been answered."""
        self._waiting: list[Freeze | Thaw] = []
        """Orders that are carried out once it is resized."""
        self._end: Halt | Kill | None = None
        self._wanted: Placement | None = None
        """What it is to be resized to."""
        self._bringing_up: asyncio.Task[None] | None = None
        self._planning: asyncio.Task[None] | None = None
        self._plans_regroup = False
        """Whether that is for those that are left after a loss."""
        """Agrees with nodes on what a resize in place needs, before any part is told."""
        self._retrying: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._mirrors: dict[int, LogMirror] = {}
        self._files: dict[int, RunFile] = {}
        """What the parts were started with."""
        self._due_told: dict[tuple[int, int], tuple[Due, int]] = {}
        """What parts were told because of others, and in which shape of the gang, by generation and index."""
        self._is_prerun = False
        self._journal = GangJournal(run, folder, self._told, after)
        self._held = self._journal.held
        """What it has, or had before it was frozen, on the cluster."""
        if self._journal.is_over:
            self._over.set()

    def catch_up(self) -> None:
        """Tell what an earlier manager has written, and nobody has seen."""
        self._journal.catch_up()

    @property
    def is_over(self) -> bool:
        """Whether its end is known; once the disk has that too, it is told."""
        return self._over.is_set() or self._journal.is_over

    @property
    def gang(self) -> Gang | None:
        return self._journal.gang

    @property
    def is_killed(self) -> bool:
        """Whether it is being ended for good: nothing goes on from what it wrote."""
        return isinstance(self._end, Kill)

    async def until_over(self) -> None:
        await self._over.wait()

    def begin(self) -> None:
        """Write down that it was begun: no other attempt of this number will be."""
        if not self._journal.has_begun:
            self._cluster.marker(self.run).touch()
            self._journal.open(self.uuid)
            self._retry_writing()

    # -- orders --------------------------------------------------------------------------------------------

    def order(self, order: Order, spec: LaunchSpec) -> None:
        """Begin to carry it out. One that is carried out changes nothing."""
        if self.is_over:
            return
        self._spec = spec
        if isinstance(order, Launch):
            self._launch(order, spec)
        elif isinstance(order, Halt | Kill):
            self._end_by(order, spec)
        elif isinstance(order, Reshape):
            self._reshape(order)
        elif isinstance(order, Rebind):
            self._rebind(order.placement, spec)
            self._post_orders(order, spec, order.placement)
        elif self.gang is None and self._bringing_up is None:
            self._lose("Nothing is left of it.")
        elif self._is_resize_unknown:
            self._end_by(Halt(self.run), spec)
        elif isinstance(self._standing, Reshape) or self._is_regrouping:
            self._waiting.append(order)
        else:
            self._standing = order
            self._send(order, spec)

    @property
    def _is_regrouping(self) -> bool:
        """Whether its ranks are on their way into another group."""
        gang = self.gang
        return gang is not None and (gang.resize is not None or gang.loss is not None)

    @property
    def _is_resize_unknown(self) -> bool:
        """Whether an earlier manager had begun a resize that nobody orders any more: then a run that is to
        be suspended saves and leaves, which works in the middle of a resize too."""
        gang = self.gang
        if gang is None or self._wanted is not None or self._bringing_up is not None:
            return False
        is_asking = gang.resize is not None and not gang.resize.is_asked and not self._placements
        return gang.is_resizing or is_asking

    def end(self) -> None:
        """Its job does not need it any more."""
        if not self.is_over:
            self._end_by(Kill(self.run), self._any_spec())

    def save(self) -> None:
        self._post_all("save", self.run)

    def tell_gpu_use(self, util_ppm: int) -> None:
        self._post_all("tell_gpu_use", self.run, util_ppm)

    def write_row(self, spec: LaunchSpec) -> None:
        self._post_all("write_row", self.run, spec)

    def _launch(self, order: Launch, spec: LaunchSpec) -> None:
        gang = self.gang
        if gang is None:
            if self._bringing_up is None:
                self._bring_up(order.placement, is_prerun=order.is_prerun)
            return
        if gang.generation == 0 and not gang.is_up and self._bringing_up is None:
            self._placements = by_node(order.placement, self._cluster.topology())
            self._is_prerun = order.is_prerun
            self._launch_parts(gang)

    def _end_by(self, order: Halt | Kill, spec: LaunchSpec) -> None:
        gang = self.gang
        self._end = order
        if gang is not None and not gang.is_between:
            self._journal.gang = told_to_end(gang)
            self._forget_earlier(gang)
            self._post_all("execute", order, spec)
            return
        if self._bringing_up is not None:
            self._bringing_up.cancel()
        self._conclude_unstarted(order)

    def _conclude_unstarted(self, order: Halt | Kill) -> None:
        """The end of a run none of whose processes has begun, or whose next ones have not."""
        self.begin()
        asked = StopOrder.HALT if isinstance(order, Halt) else StopOrder.KILL
        end = order.end if isinstance(order, Kill) else None
        said = ended_before_start({"order": asked.value})
        self._journal.conclude(
            Ended(
                *(self.run, _now_ms(), said["code"], asked),
                has_left=asked is StopOrder.HALT,
                why="" if self.gang is not None else said["why"],
                cancelled=asked is StopOrder.KILL,
                end=end,
            )
        )
        self._retry_writing()

    def _reshape(self, order: Reshape) -> None:
        gang, launched = self.gang, self._journal.launched
        if gang is None or launched is None:
            if self._bringing_up is None:
                self._lose("Nothing is left of it.")
            else:
                self._standing = order
            return
        wanted = repr(order.placement.slices)
        self._wanted = order.placement
        if gang.is_resizing:
            if gang.is_between:
                self._go_on()
        elif gang.resize is not None or gang.loss is not None:
            self._standing = order
            if gang.loss is None and self._journal.next_placement == wanted:
                self._want_again(gang)
                self._placements = by_node(order.placement, self._cluster.topology())
                self._prepare_parts()
            elif gang.loss is None:
                self._journal.supersede()
        elif gang.generation > 0 and not gang.is_up and launched.placement == wanted:
            self._standing = order
            if self._bringing_up is None:  # an earlier manager's launches may not have arrived
                self._placements = by_node(order.placement, self._cluster.topology())
                self._launch_parts(gang)
        elif gang.is_changing and not self.stays(gang, order.placement):
            self._standing = order
            self._journal.supersede()
        elif self.stays(gang, order.placement):
            if launched.placement == wanted and not gang.is_changing:
                return  # it is done
            self._want_again(gang)
            self._standing = order
            self._start(self._reshape_there(order))
        elif launched.placement != wanted:
            self._standing = order
            if self.can_resize_in_place(gang, order.placement):
                self._plan(self._begin_in_place(order))
            else:
                self._restart(order.placement)

    def _want_again(self, gang: Gang) -> None:
        """The resize that is under way answers the order again."""
        if gang.is_superseded:
            self._journal.supersede(is_again_wanted=True)

    def _restart(self, placement: Placement) -> None:
        """Its parts save and end; it goes on with others from its checkpoint."""
        self._journal.resize(repr(placement.slices))
        self._tell_due()

    def stays(self, gang: Gang, placement: Placement) -> bool:
        """Whether it is all on one node, and would be: then that node resizes it, in place where it can."""
        nodes = [*by_node(placement, self._cluster.topology())]
        return [part.node for part in gang.member_parts] == nodes and len(nodes) == 1

    # -- in place ------------------------------------------------------------------------------------------

    def can_resize_in_place(self, gang: Gang, placement: Placement) -> bool:
        """One whose files are sent is restarted: what it has written is brought first."""
        nodes = by_node(placement, self._cluster.topology())
        return can_resize_in_place(gang, nodes) and not self._cluster.sends_files(
            self.run, self._any_spec(), [*nodes]
        )

    def _plan(self, work: Coroutine[None, None, None]) -> None:
        """One plan at a time: a new one replaces it, since no part has been told yet."""
        if self._planning is not None:
            self._planning.cancel()
        self._planning = asyncio.create_task(work)
        self._planning.add_done_callback(self._planned)

    def _planned(self, task: asyncio.Task[None]) -> None:
        if self._planning is task:
            self._planning = None
        if not task.cancelled() and task.exception() is not None:
            log.error("a resize failed", run=self.run, exc_info=task.exception())
            if isinstance(self._standing, Reshape) and not self.is_over:
                self._restart(self._standing.placement)

    async def _begin_in_place(self, order: Reshape) -> None:
        """What it gets is reserved first, while it trains; where a node is gone it has to be restarted."""
        spec, gang = self._spec, self.gang
        assert spec is not None
        assert gang is not None
        topology = self._cluster.topology()
        placements = by_node(order.placement, topology)
        parts = parts_of(placements, spec.ranks)
        held, before = reservation(order.placement, spec, topology), self._held
        if not await self._reserve_beside(order, held):
            return
        present = {part.node for part in gang.member_parts}
        new = [part.node for part in parts if part.node not in present]
        while any(part.node in new and part.over is None for part in self._former_parts()):
            await asyncio.sleep(SHORT_RETRY_S)  # it was to join before, and is leaving
        try:
            misfit = await self._cluster.misfit(self.run, spec, new) if new else None
            meeting = await self._meeting(parts)
        except NodeIsGone as gone:
            misfit, meeting = Misfit(f"the node {gone} is gone", (str(gone),)), Meeting("", 0)
        gang, launched = self.gang, self._journal.launched
        if not self._is_wanted(order) or gang is None or launched is None:
            self._held = before
            return
        if misfit is not None or not self.can_resize_in_place(gang, order.placement):
            self._restart(order.placement)
            return
        launched = replace(
            launched, meeting=meeting, placement=repr(order.placement.slices), held=held
        )
        self._journal.resize_in_place(numbered(gang, parts), launched)
        self._placements = placements
        await self._until_written()  # so that the next manager knows of parts that are launched
        self._prepare_parts()

    def _prepare_parts(self, node: str | None = None) -> None:
        """Tell those parts that are not ready what they are to be."""
        gang, launched, spec = self.gang, self._journal.launched, self._spec
        if gang is None or launched is None or spec is None or self._end is not None:
            return
        for told in orders_of_resize(spec, gang, self._placements, launched.meeting):
            if node in (None, told.node):
                session = self._cluster.session(told.node)
                if isinstance(told.order, Launch):
                    session.post(self.run, FORGET, self.run, gang.shape)
                session.post(self.run, "execute", told.order, told.spec)

    async def _regroup_rest(self) -> None:
        """Ranks were lost: those that are left meet at the first node that is left."""
        gang, launched = self.gang, self._journal.launched
        assert gang is not None
        assert launched is not None
        rest = left_after_loss(gang)
        try:
            meeting = await self._meeting(rest)
        except NodeIsGone:
            return  # its end is heard, and decides
        finally:
            self._plans_regroup = False
        if self.gang is None or not self.gang.must_regroup or self._end is not None:
            return
        nodes = {part.node for part in rest}
        held = Reservation(
            {node: much for node, much in launched.held.gpus.items() if node in nodes},
            {node: much for node, much in launched.held.cpus.items() if node in nodes},
        )
        self._held = held
        self._journal.resize_in_place(rest, replace(launched, meeting=meeting, held=held))
        self._follow_up()

    async def _reshape_there(self, order: Reshape) -> None:
        """What it gets is reserved first; what it gives up is given back once it is resized."""
        assert self._spec is not None
        topology = self._cluster.topology()
        held = reservation(order.placement, self._spec, topology)
        (part,) = parts_of(by_node(order.placement, topology), self._spec.ranks)
        self._journal.resize_there(part, repr(order.placement.slices), held)
        if await self._reserve_beside(order, held):
            self._post_orders(order, self._spec, order.placement)

    async def _reserve_beside(self, order: Reshape, held: Reservation) -> bool:
        """What a resize needs, beside what the run goes on using. Where others hold it, and the run is to be
        suspended meanwhile, it saves and leaves instead."""
        before, self._held = self._held, together(self._held, held)
        if await self._reserve_for(order):
            return True
        self._held = before
        if self._waiting and self._standing is order and not self.is_over:
            self._end_by(Halt(self.run), self._any_spec())
        return False

    def _is_wanted(self, order: Order) -> bool:
        return self._standing is order and self._end is None and not self.is_over

    async def _reserve_for(self, order: Order) -> bool:
        """However long others hold it; False where it is not wanted any more, or another order waits."""
        while self._is_wanted(order):
            with suppress(NotReserved, Unreachable):
                await self._cluster.link.reserve(self.run, self._held.gpus, self._held.cpus)
                return self._is_wanted(order)
            if self._waiting:
                return False
            await asyncio.sleep(RETRY_S)
        return False

    def _rebind(self, placement: Placement, spec: LaunchSpec) -> None:
        """Write down which devices it has now, for programs that are started beside it."""
        topology = self._cluster.topology()
        host = worker_environment.Host(topology, topology.uuids, CgroupPlan())
        try:
            last = runfile.newest(str(self.folder))
            if last is not None:
                whole = replace(spec, part=None)
                runfile.write(
                    str(self.folder), worker_environment.rebound(last, placement, whole, host)
                )
        except (OSError, ValueError) as problem:
            log.warning("the new slots could not be written down", run=self.run, why=str(problem))

    def _send(self, order: Order, spec: LaunchSpec) -> None:
        """An order that all parts get, in their own numbers."""
        if self.gang is None:
            return  # it is sent once it is launched
        if isinstance(order, Thaw):
            self._start(self._thaw(order, spec))
        else:
            self._post_all("execute", order, spec)

    async def _thaw(self, order: Thaw, spec: LaunchSpec) -> None:
        """Its devices are reserved again first, however long others hold them."""
        placement = order.placement
        if placement is not None:
            self._held = reservation(placement, spec, self._cluster.topology())
            self._rebind(placement, spec)
        if await self._reserve_for(order):
            self._post_orders(order, spec, placement)

    # -- coming up -----------------------------------------------------------------------------------------

    def _bring_up(self, placement: Placement, *, is_prerun: bool = False) -> None:
        self.begin()
        self._bringing_up = asyncio.create_task(self._come_up(placement, is_prerun))
        self._bringing_up.add_done_callback(self._is_up)

    def _is_up(self, task: asyncio.Task[None]) -> None:
        if self._bringing_up is task:
            self._bringing_up = None
        if not task.cancelled() and task.exception() is not None:
            log.error("a run could not be launched", run=self.run, exc_info=task.exception())
            self._lose(f"It could not be launched: {task.exception()}.")

    async def _come_up(self, placement: Placement, is_prerun: bool) -> None:
        """One generation: what it needs is reserved and agreed, then all parts are launched."""
        assert self._spec is not None
        topology = self._cluster.topology()
        await self._cluster.earlier_over(self.run)
        self._held = reservation(placement, self._spec, topology)
        placements = by_node(placement, topology)
        parts = parts_of(placements, self._spec.ranks)
        await self._prepare(self._spec)
        try:
            refusal, misfit, meeting = await self._agree(self._spec, parts)
        except NodeIsGone as gone:
            self._lose(f"The node {gone} is gone.")
            return
        if misfit is not None:
            self._lose(misfit.why, misfit.nodes)
            return
        if refusal is not None:
            self._lose(refusal)
            return
        spec, self._placements = self._spec, placements
        self._is_prerun = is_prerun
        launched = Launched(meeting, repr(placement.slices), spec.grace_ms, spec.logs, self._held)
        self._mirrors.clear()
        self._files.clear()
        self._journal.launch(parts, launched)
        await self._until_written()  # else the next manager might launch it elsewhere as well
        if self.gang is not None:
            self._launch_parts(self.gang)
        if self._standing is not None and not isinstance(self._standing, Reshape):
            self._send(self._standing, spec)
        self._hear_of_gone_nodes()

    async def _agree(
        self, spec: LaunchSpec, parts: tuple[Part, ...]
    ) -> tuple[str | None, Misfit | None, Meeting]:
        """What has to be known of all nodes before a launch; nothing goes on once one of them is gone."""
        nodes = [part.node for part in parts]
        asking = (
            asyncio.create_task(self._reserve(nodes)),
            asyncio.ensure_future(self._cluster.misfit(self.run, spec, nodes)),
            asyncio.create_task(self._meeting(parts)),
        )
        try:
            return await asyncio.gather(*asking)
        finally:
            for each in asking:
                each.cancel()
            await asyncio.wait(asking)

    async def _prepare(self, spec: LaunchSpec) -> None:
        """The job's folder in the manager's, for its checkpoints; tried again while the disk refuses."""
        job_folder = self.folder.parents[2] / "jobs" / self.run.job
        trouble = ""
        while True:
            try:
                await asyncio.to_thread(ownership.prepare_job_folder, job_folder, spec)
                return
            except OSError as problem:
                if trouble != str(problem):
                    trouble = str(problem)
                    log.warning("a run has to wait", run=self.run, why=trouble)
            await asyncio.sleep(RETRY_S)

    def _former_parts(self) -> tuple[Part, ...]:
        return () if self.gang is None else self.gang.parts

    async def _reserve(self, nodes: Sequence[str]) -> str | None:
        """Why the cluster does not have what it needs; None: it is reserved. NodeIsGone where one is."""
        until = time.monotonic() + RESERVE_S
        while True:
            for node in nodes:
                if self._cluster.session(node).is_gone:
                    raise NodeIsGone(node)
            try:
                await self._cluster.link.reserve(self.run, self._held.gpus, self._held.cpus)
                return None
            except NotReserved as refused:
                if time.monotonic() >= until:
                    return str(refused)
            except Unreachable:
                pass
            await asyncio.sleep(RETRY_S)

    async def _meeting(self, parts: tuple[Part, ...]) -> Meeting:
        """A port of the first node; a gang on one node agrees by itself."""
        if len(parts) == 1:
            return Meeting(LOOPBACK, 0)
        session = self._cluster.session(parts[0].node)
        port = await session.ask("free_port", "")
        assert isinstance(port, int)
        return Meeting(session.host, port)

    def _launch_parts(self, gang: Gang) -> None:
        """All that are not known to have started."""
        self._forget_earlier(gang)
        for part in gang.parts:
            if part.started is None and part.over is None:
                self._post_launch(part.node)

    def _forget_earlier(self, gang: Gang) -> None:
        """What an earlier part of it left on a node would count as this one there."""
        for part in gang.parts:
            if part.shape > 0 and part.started is None and part.over is None:
                self._post(part, FORGET, self.run, part.shape)

    def _post_launch(self, node: str) -> None:
        """Launch its part on this node; where this manager cannot yet, it is ordered again."""
        spec, own = self._spec, self._placements.get(node)
        if spec is not None and own is not None:
            order = Launch(self.run, NOWHERE, 0, is_prerun=self._is_prerun)
            self._post_placed(order, spec, {node: own})

    def _go_on(self) -> None:
        """All parts have left: launch those with which it goes on."""
        if self._bringing_up is None and self._wanted is not None and self._spec is not None:
            self._bring_up(self._wanted)

    # -- what is heard -------------------------------------------------------------------------------------

    def hear(self, node: str, said: PartReport) -> None:
        """A report of its part on this node."""
        index = self._index_of(node)
        if index is None or self.is_over:
            return
        before = self.gang
        self._journal.hear(index, said.number, said.report)
        self._keep_file(index, said)
        gang = self.gang
        if before is not None and before.is_superseded and gang and not gang.is_superseded:
            self._start(self._carry_on())
        self._follow_up()

    def note(self, report: Report) -> None:
        """What the engine has found out of the run itself."""
        if not self.is_over:
            self._journal.note(report)
            self._retry_writing()

    def is_last(self, node: str) -> bool:
        """Whether all its other parts are over."""
        return set(self.nodes) <= {node}

    def node_gone(self, node: str, why: str, alive_ms: int | None = None) -> None:
        """Nothing of it is left on this node, of which the last sign of life was then."""
        index = self._index_of(node)
        if index is None or self.is_over or self.gang is None:
            return
        part = self.gang.parts[index]
        said = Lost(self.run, _now_ms(), why, alive_ms=alive_ms)
        self._journal.hear(index, part.seen + 1, said)
        self._follow_up()

    def node_silent(self, node: str, *, is_back: bool = False) -> None:
        """It may be dead: ranks elsewhere whose exchange has failed wait until that is known."""
        gang = self.gang
        if gang is None or all(part.node != node for part in gang.member_parts):
            return
        for part in gang.member_parts:
            if part.node != node and part.over is None and part.may_lose:
                self._post(part, "hold", self.run, 0 if is_back else LONGEST_ABSENCE_S)

    def _hear_of_gone_nodes(self) -> None:
        for part in self._former_parts():
            if self._cluster.session(part.node).is_gone:
                self.node_gone(part.node, f"The node {part.node} is gone.")

    def _follow_up(self) -> None:
        gang = self.gang
        self._retry_writing()
        if self.is_over or gang is None:
            return
        self._tell_due()
        if gang.must_regroup and not self._plans_regroup and self._end is None:
            self._plans_regroup = True  # a resize that is being planned begins again afterwards
            self._plan(self._regroup_rest())
        if gang.is_between:
            for mirror in self._mirrors.values():
                mirror.close()
            self._go_on()

    def _tell_due(self) -> None:
        """What parts have to be told because of others."""
        gang = self.gang
        if gang is None:
            return
        orders: Mapping[Due, Order] = {
            Due.KILL: Kill(self.run),
            Due.THAW: Thaw(self.run),
            Due.HALT: Halt(self.run),
        }
        meeting = (
            Meeting("", 0) if self._journal.launched is None else self._journal.launched.meeting
        )
        for index, what in due(gang).items():
            if self._due_told.get((gang.generation, index)) == (what, gang.shape):
                continue
            self._due_told[gang.generation, index] = what, gang.shape
            part = gang.parts[index]
            if what in orders:
                if part.started is None and part.shape > 0:
                    self._post(part, FORGET, self.run, part.shape)
                self._post(part, "execute", orders[what], self._any_spec())
            else:
                self._post(part, "steer", self.run, steering(gang, index, what, meeting))

    def told_again(self, node: str) -> None:
        """A new session with a node has begun: say again what may not have been heard there."""
        index, gang = self._index_of(node), self.gang
        if index is None or gang is None or gang.parts[index].over is not None:
            return
        part = gang.parts[index]
        self._due_told.pop((gang.generation, index), None)
        if gang.resize is not None:
            self._prepare_parts(node)
        elif part.started is None and not part.is_out and self._bringing_up is None:
            self._post_launch(node)  # else it is launched once that is written
        if self._end is not None:
            self._post(part, "execute", self._end, self._any_spec())
        elif isinstance(self._standing, Freeze):
            self._post(part, "execute", self._standing, self._any_spec())
        elif isinstance(self._standing, Thaw):
            self._send(self._standing, self._any_spec())
        elif isinstance(self._standing, Reshape) and self._may_begin_resize(gang):
            self._reshape(self._standing)
        self._follow_up()
        self._start(self._reserve_again())

    def _may_begin_resize(self, gang: Gang) -> bool:
        return not gang.is_resizing and gang.resize is None and self._planning is None

    def adopted(self, node: str) -> Seen | None:
        """What is known of its part on this node; None where it has none that may go on."""
        index, gang = self._index_of(node), self.gang
        if index is None or gang is None or self.is_over or gang.parts[index].over is not None:
            return None
        return Seen(gang.parts[index].seen, gang.parts[index].shape, self._mirror(index).places)

    def write_logs(self, node: str, pieces: list[LogPiece]) -> None:
        """In a thread, since it waits for the disk."""
        index = self._index_of(node)
        if index is not None:
            self._mirror(index).write(pieces)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Those of its parts that may go on."""
        return tuple(part.node for part in self._former_parts() if part.over is None)

    async def stop(self) -> None:
        """Stop watching. It goes on."""
        under_way = (self._bringing_up, self._planning, self._retrying)
        tasks = [*self._tasks, *filter(None, under_way)]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError, Exception):
                await task
        self._close()

    # -- keeping it ----------------------------------------------------------------------------------------

    def _told(self, report: Report, number: int) -> None:
        if self._standing is not None and isinstance(report, ANSWERS[type(self._standing)]):
            self._standing = None
        if isinstance(report, Frozen):
            self._start(self._give_back())
        if isinstance(report, Reshaped | ReplicaLost):
            self._start(self._carry_on())
        if isinstance(report, Frozen | NotFrozen):
            self._due_told.clear()
        if isinstance(report, Ended | Lost):
            self._over.set()
        if self._tell is not None:
            self._tell(report, number)
        if isinstance(report, Ended | Lost):
            self._close()
            self._cluster.on_over(self)

    async def _carry_on(self) -> None:
        """It is resized: give back what it does not need any more, and do what was ordered meanwhile."""
        if self._journal.launched is not None:
            self._held = self._journal.launched.held
        self._start(self._reserve_again())
        if self.is_over or self.gang is None or self._end is not None:
            return
        if isinstance(self._standing, Reshape):  # a loss came first, or another resize
            self._reshape(self._standing)
            return
        waiting, self._waiting = self._waiting, []
        for order in waiting:
            self.order(order, self._any_spec())

    async def _reserve_again(self) -> None:
        """What it runs on was reserved where a node was before it went, or was given to others meanwhile."""
        while self.gang is not None and not (self.gang.is_frozen or self.is_over):
            try:
                await self._cluster.link.reserve(self.run, self._held.gpus, self._held.cpus)
                return
            except (NotReserved, Unreachable) as problem:
                log.warning("a run goes on without its reservation", run=self.run, why=str(problem))
            await asyncio.sleep(LONG_RETRY_S)

    async def _give_back(self) -> None:
        while self.gang is not None and self.gang.is_frozen and not self.is_over:
            with suppress(Unreachable):
                await self._cluster.link.reserve(self.run, {}, {})
                return
            await asyncio.sleep(RETRY_S)

    def _keep_file(self, index: int, said: PartReport) -> None:
        """What all its ranks were started with, once that is known of all parts."""
        gang = self.gang
        if said.file is None or gang is None:
            return
        self._files[index] = said.file
        if gang.resize is not None or not self._files.keys() >= set(gang.members):
            return
        files = [self._files[each] for each in gang.members]
        first = files[0]
        ranks = tuple(rank for file in files for rank in file.ranks)
        placement = "" if self._journal.launched is None else self._journal.launched.placement
        whole = replace(
            first, ranks=ranks, placement=placement, generation=gang.generation, first_rank=0
        )
        try:
            runfile.write(str(self.folder), whole)
        except OSError as problem:
            log.warning("a run's environment could not be kept", run=self.run, why=str(problem))

    def _mirror(self, index: int) -> LogMirror:
        gang, launched = self.gang, self._journal.launched
        assert gang is not None
        assert launched is not None
        if index not in self._mirrors:
            part = f"{gang.generation}-{index}"
            self._mirrors[index] = LogMirror(self.folder, part, launched.logs)
        return self._mirrors[index]

    def _lose(self, why: str, unfit: tuple[str, ...] | None = None) -> None:
        """The end of a run of which nothing has begun, or nothing is left."""
        if not self.is_over:
            self.begin()
            self._journal.conclude(Lost(self.run, _now_ms(), why, alive_ms=0, unfit=unfit))
            self._retry_writing()

    def _any_spec(self) -> LaunchSpec:
        """For orders to parts that run: all that counts then is whose they are, and their grace."""
        if self._spec is not None:
            return self._spec
        launched = self._journal.launched
        grace_ms = 0 if launched is None else launched.grace_ms
        return LaunchSpec((), "", "", uuid=self.uuid, grace_ms=grace_ms)

    def _index_of(self, node: str) -> int | None:
        """Of its last part there: an earlier one is over."""
        parts = [*enumerate(self._former_parts())]
        return next((index for index, part in reversed(parts) if part.node == node), None)

    def _post(self, part: Part, method: str, *words: object) -> None:
        self._cluster.session(part.node).post(self.run, method, *words)

    def _post_all(self, method: str, *words: object) -> None:
        for part in self._former_parts():
            if part.over is None:
                self._post(part, method, *words)

    def _post_orders(self, order: Order, spec: LaunchSpec, placement: Placement | None) -> None:
        local = {} if placement is None else by_node(placement, self._cluster.topology())
        self._post_placed(order, spec, local)

    def _post_placed(
        self, order: Order, spec: LaunchSpec, placements: Mapping[str, Placement]
    ) -> None:
        gang, launched = self.gang, self._journal.launched
        if gang is None or launched is None:
            return
        for told in orders_of_parts(order, spec, gang, placements, launched.meeting):
            session = self._cluster.session(told.node)
            session.post(self.run, "execute", told.order, told.spec)

    def _retry_writing(self) -> None:
        """Until the disk has taken all that was heard."""
        if not self._journal.is_written and self._retrying is None:
            self._retrying = asyncio.create_task(self._write_again())

    async def _write_again(self) -> None:
        try:
            while not (self._journal.is_written or self._over.is_set()):
                await self._journal.sync()
                if not self._journal.is_written:
                    await asyncio.sleep(RETRY_S)
        finally:
            self._retrying = None

    async def _until_written(self) -> None:
        while not (self._journal.is_written or self._over.is_set()):
            self._retry_writing()
            assert self._retrying is not None
            await asyncio.shield(self._retrying)

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _close(self) -> None:
        if self._planning is not None:
            self._planning.cancel()
        for mirror in self._mirrors.values():
            mirror.close()
        self._mirrors.clear()
        self._journal.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
