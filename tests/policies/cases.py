"""Scheduling situations in words: a cluster, jobs, and what one pass of a policy should do.

A job is written as `NAME SIZEgpu` and any of

    model vgg16 · priority 2 · needs 10min · elastic 2..8 · types cpu gpu
    pending 5min                          submitted five minutes ago
    running on n1 n2:2 attained 40h       GPU time so far; the run began 40h / GPUs ago
    running on n1 grown 4 attained 1h     an elastic job that holds 4 GPUs now
    resizing on n1 grown 4 attained 1h    the same, whose resize from its nominal size is under way
    suspended attained 40h waited 10min

and jobs are separated by `|`. What a plan does is written as `start a on n1; suspend b`: a node
without a number is taken whole. The state is reached as in life, by facts and orders of a controller.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.builders import a_policy, cluster
from trainmaster.core.controller import Controller
from trainmaster.core.invariants import check
from trainmaster.core.state import JobRecord
from trainmaster.core.view import View
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.job import Demand, Estimate, Job, Oracle, Run, Shape, Source
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.plan import Plan
from trainmaster.model.reasons import Reason
from trainmaster.model.topology import Topology
from trainmaster.model.units import HOUR, MINUTE, NOMINAL, SECOND, WHOLE

NOW = 100_000 * HOUR
"""When every case is judged: a whole multiple of every quantum in the tables."""

UNITS = {"ms": 1, "s": SECOND, "min": MINUTE, "h": HOUR}


@dataclass(frozen=True)
class Case:
    """One situation, and what the policy should do about it."""

    cluster: str
    jobs: str
    want: str
    """Actions in any order."""
    options: Mapping[str, object] = field(default_factory=dict)
    draining: str = ""

    def done_by(self, policy: str) -> str:
        """What one pass of the policy does."""
        stage = Stage(self)
        planned = a_policy(policy, **self.options)
        plan = planned.plan(stage.controller.view, planned.first_memo(), NOW)
        check(stage.controller.state)
        return in_words(plan, stage.topology)


def ms(text: str) -> int:
    found = re.fullmatch(r"([\d.]+)(ms|s|min|h)", text)
    assert found, f"{text!r} is not a time"
    return round(float(found[1]) * UNITS[found[2]])


class Scripted:
    """A policy that does as it is told: it sets the stage."""

    name = "scripted"
    needs_oracle = False

    def __init__(self) -> None:
        self.next: list[a.Action] = []
        self.wake_at: int | None = None

    def first_memo(self) -> object:
        return None

    def plan(self, view: View, memo: object, now: int) -> Plan:
        actions, self.next = tuple(self.next), []
        return Plan(actions, memo, self.wake_at)

    def wake(self, view: View, memo: object, now: int) -> int | None:
        return None

    def explain(self, view: View, memo: object, record: JobRecord, now: int) -> Reason:
        raise NotImplementedError

    def forget(self) -> None:
        pass


class Stage:
    """A controller brought, by facts, into the state that a case describes."""

    def __init__(self, case: Case) -> None:
        self.topology: Topology = cluster(case.cluster)
        self.script = Scripted()
        self.controller = Controller(self.topology, self.script)
        self._taken: set[int] = set()
        self._waits: dict[str, int] = {}
        self._happenings: list[tuple[int, int, list[e.Event], list[a.Action]]] = []
        for text in case.jobs.split("|"):
            if text.strip():
                self._cast(text.split())
        for name in case.draining.split():
            self._at(NOW - 1, [e.NodeDraining(self.topology.node_by_name[name].index)])
        for time, _, events, actions in sorted(self._happenings, key=lambda each: each[:2]):
            self._play(time, events, actions)
        for name, since in self._waits.items():
            self.controller.state.jobs[name].waiting_since_ms = since
        self.controller.view.forget()

    def _long_ago(self) -> int:
        """A stretch of time for each past run to have the cluster for itself."""
        return NOW // 2 + len(self._waits) * 1_000 * HOUR

    def _at(self, time: int, events: list[e.Event], actions: list[a.Action] | None = None) -> None:
        self._happenings.append((time, len(self._happenings), events, actions or []))

    def _play(self, time: int, events: list[e.Event], actions: list[a.Action]) -> None:
        self.script.next = actions
        self.controller.state.log.needs_pass = True
        decision = self.controller.step(time, events)
        assert not decision.refusals, f"the stage cannot be set: {decision.refusals}"

    def _cast(self, words: list[str]) -> None:
        name, size = words[0], words[1].removesuffix("gpu")
        said = _clauses(words[2:])
        count = max(1, int(float(size)))
        share = round(float(size) * WHOLE) if float(size) < 1 else WHOLE
        low, _, high = said.get("elastic", f"{count}..{count}").partition("..")
        types = "|".join(said["types"].split()) if "types" in said else None
        demand = Demand(Shape(count, share), int(low), int(high), gpu_type=types)
        attained = ms(said.get("attained", "0s"))
        held = int(said.get("grown", count))
        ran = attained * WHOLE // ((count if "resizing" in said else held) * share)
        is_waiting = "suspended" in said
        waited = ms(said.get("waited") or said.get("pending") or "0s")
        began = self._long_ago() if is_waiting else NOW - ran
        submit = NOW - waited if "pending" in said else began
        job = Job(
            name,
            submit,
            demand,
            model=said.get("model", ""),
            priority=int(said.get("priority", 0)),
        )
        needs = ms(said["needs"]) * NOMINAL if "needs" in said else None
        estimate = Estimate(needs, Source.TRACE) if needs is not None else None
        oracle = Oracle(needs) if needs is not None else None
        self._at(submit, [e.JobSubmitted(job, estimate, oracle)])
        if "pending" in said:
            return
        placement = self._placement(said.get("on", "").split(), held, share, demand)
        before = self._first_of(placement, count) if "resizing" in said else placement
        self._at(began, [], [a.Start(name, before)])
        self._at(began, [e.RunStarted(Run(name, 1), NOMINAL)])
        if before != placement:
            self._at(NOW - 1, [], [a.Resize(name, placement)])
        if is_waiting:
            self._at(began + ran, [], [a.Suspend(name)])
            self._at(began + ran, [e.RunSuspended(Run(name, 1), ran * NOMINAL)])
            self._waits[name] = NOW - waited

    def _first_of(self, placement: Placement, count: int) -> Placement:
        slices = placement.slices[:count]
        span = self.topology.span_of_gpus([piece.gpu for piece in slices])
        return Placement(slices, span, placement.sharing)

    def _placement(self, nodes: list[str], count: int, share: int, demand: Demand) -> Placement:
        """`n1 n2:2`: whole nodes, or that many GPUs of them; nowhere in particular for past runs."""
        slices: list[Slice] = []
        for text in nodes or [node.name for node in self.topology.nodes]:
            name, _, number = text.partition(":")
            node = self.topology.node_by_name[name]
            taken = self._taken if nodes else set()
            free = [g for g in range(node.first_gpu, node.first_gpu + node.gpus) if g not in taken]
            wanted = int(number) if number else count - len(slices)
            for gpu in free[: min(wanted, count - len(slices))]:
                memory = 0 if share == WHOLE else node.type.memory * share // WHOLE
                slices.append(Slice(node.index, gpu, share, memory))
        assert len(slices) == count, f"{nodes} do not hold {count} GPUs"
        if nodes and share == WHOLE:
            self._taken |= {piece.gpu for piece in slices}
        span = self.topology.span_of_gpus([piece.gpu for piece in slices])
        return Placement(tuple(slices), span, demand.mode)


CLAUSES = {
    "model",
    "priority",
    "needs",
    "elastic",
    "types",
    "pending",
    "running",
    "resizing",
    "suspended",
    "on",
    "grown",
    "attained",
    "waited",
}


def _clauses(words: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    key = ""
    for word in words:
        if word in CLAUSES:
            key = word
            found[key] = []
        else:
            assert key, f"{word!r} belongs to nothing"
            found[key].append(word)
    return {key: " ".join(rest) for key, rest in found.items()}


def in_words(plan: Plan, topology: Topology) -> str:
    """The plan's actions in alphabetical order."""
    return "; ".join(sorted(_sentence(action, topology) for action in plan.actions)) or "nothing"


def _sentence(action: a.Action, topology: Topology) -> str:
    verb = type(action).__name__.lower()
    if isinstance(action, a.Start | a.Resume | a.Migrate | a.Resize):
        return f"{verb} {action.job} on {where(action.placement.slices, topology)}"
    if isinstance(action, a.Reserve):
        return f"reserve {where(action.slices, topology)} for {action.job}"
    return f"{verb} {action.job}"


def where(slices: tuple[Slice, ...], topology: Topology) -> str:
    """Nodes by name; with a number where not all GPUs of one are taken."""
    taken: dict[int, int] = {}
    for piece in slices:
        taken[piece.node] = taken.get(piece.node, 0) + 1
    parts = []
    for index in sorted(taken):
        node = topology.nodes[index]
        is_all = taken[index] == node.gpus and all(piece.share == WHOLE for piece in slices)
        parts.append(node.name if is_all else f"{node.name}:{taken[index]}")
    return " ".join(parts)
