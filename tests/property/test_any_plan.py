"""Whatever a policy plans, sense or nonsense, the controller goes on and every invariant holds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_invariants import some
from tests.unit.core.stage import Strings
from trainmaster.core.lifecycle import Phase
from trainmaster.model import actions as a
from trainmaster.model import events as e
from trainmaster.model.placement import Placement, Sharing, Slice
from trainmaster.model.topology import SLOT_TYPE, GpuType, NodeSpec, Topology, build
from trainmaster.model.units import GIB, NOMINAL

jobs = st.sampled_from("abcdx")
"""One of them is unknown."""
gpus = st.integers(-1, 6)
slices = st.lists(
    st.one_of(
        gpus.map(lambda gpu: Slice(gpu // 3, gpu)),
        st.builds(Slice, st.integers(-1, 2), gpus, st.sampled_from((-1, 0, 500, 1000, 2000))),
    ),
    max_size=3,
).map(tuple)
placements = st.builds(Placement, slices, st.integers(-1, 4), st.sampled_from(Sharing))
placing = st.sampled_from((a.Start, a.Resume, a.Migrate, a.Resize))
actions = st.one_of(
    st.builds(lambda kind, job, where: kind(job, where), placing, jobs, placements),
    st.builds(lambda kind, job: kind(job), st.sampled_from((a.Suspend, a.Stop, a.Release)), jobs),
    st.builds(a.Reserve, jobs, slices),
)
plans = st.lists(st.lists(actions, max_size=5), min_size=1, max_size=6)


def two_nodes(kind: str) -> Topology:
    made = GpuType(kind, 4 * GIB)
    specs = [NodeSpec(f"n{n}", 3, (0,), made, memory=32 * GIB) for n in range(2)]
    return build(("cluster", "node", "gpu"), specs)


def obey(stage: Strings, orders: list[a.Order], refuses: Iterator[bool]) -> None:
    """Do as an engine does, which may refuse to freeze a run."""
    while orders:
        facts: list[e.Event] = []
        for order in orders:
            match order:
                case a.Launch():
                    facts.append(e.RunStarted(order.run, NOMINAL))
                case a.Thaw():
                    facts.append(e.RunResumed(order.run, NOMINAL))
                case a.Freeze() if next(refuses):
                    facts.append(e.RunNotFrozen(order.run))
                case a.Freeze() | a.Halt():
                    is_frozen = isinstance(order, a.Freeze)
                    facts.append(e.RunSuspended(order.run, 0, frozen=is_frozen))
                case a.Kill():
                    facts.append(e.RunStopped(order.run))
                case a.Reshape():
                    facts.append(e.RunResized(order.run, 0, NOMINAL))
        orders = stage.tell(*facts) if facts else []


@settings(some, max_examples=60)
@given(
    kind=st.sampled_from((SLOT_TYPE, "gpu")),
    can_freeze=st.booleans(),
    cannot_save_at_first=st.booleans(),
    plans=plans,
    refusals=st.lists(st.booleans(), min_size=1, max_size=4),
)
def test_a_step_never_raises(
    kind: str,
    can_freeze: bool,
    cannot_save_at_first: bool,
    plans: list[list[a.Action]],
    refusals: list[bool],
) -> None:
    stage = Strings(
        two_nodes(kind),
        can_freeze=can_freeze,
        can_move_frozen=refusals[0],
        cannot_save_at_first=cannot_save_at_first,
    )
    stage.running("a", 0).running("b", 1, 3).submit("c", 2).submit("d").later(700)
    refuses = cycle(refusals)
    for plan in plans:
        obey(stage, stage.try_plan(*plan), refuses)
        stage.later(60)
        assert all(each.phase is not Phase.STOPPING for each in stage.state.jobs.values())
