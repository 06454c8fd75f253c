"""Which CPU slots of a node the jobs of a plan get: runs keep theirs, and frozen runs go back to theirs.

A slot is only a number, so policies choose nodes and counts, and any slots of those nodes. Here the slots
that a plan hands out on a node are dealt again, so that no run is moved to make way for another job while
any slot will do for both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from trainmaster.core.state import State, can_rebind, is_on_slots
from trainmaster.model.actions import Action, Migrate, Resize, Resume, Start
from trainmaster.model.placement import Placement, Sharing, Slice

Placing = Start | Resume | Migrate


def keep_slots(actions: tuple[Action, ...], state: State) -> tuple[Action, ...]:
    """The same actions, with the slots of each node dealt so that the fewest runs change theirs.

    A plan that hands out a slot twice is left as it is: the check of plans says what is wrong with it.
    """
    dealt = {
        each.job: each for each in actions if isinstance(each, Placing) and _is_dealt(each, state)
    }
    if all(_claim(each, state) == NEW for each in dealt.values()):
        return actions
    if not _is_disjoint(actions, dealt):
        return actions
    pool = _pool(actions, dealt, state)
    in_turn = sorted(dealt.values(), key=lambda each: _claim(each, state))
    slots = {each.job: _own(each, state, pool) for each in in_turn}
    for each in in_turn:
        slots[each.job] += _others(each, slots[each.job], state, pool)
    found: list[Action] = []
    for action in actions:
        mine = dealt.get(action.job)
        if mine is None or mine is not action:
            found.append(action)
            continue
        placement = _on(mine.placement, slots[mine.job], state)
        if not (isinstance(mine, Migrate) and placement == state.jobs[mine.job].placement):
            found.append(replace(mine, placement=placement))
    return tuple(found)


def _is_dealt(action: Placing, state: State) -> bool:
    """Whether it places a whole job on CPU slots; a move only where it stays on its nodes."""
    record = state.jobs.get(action.job)
    if record is None:
        return False
    placement = action.placement
    if placement.sharing is not Sharing.EXCLUSIVE or not is_on_slots(state.topology, placement):
        return False
    if not isinstance(action, Migrate):
        return record.placement is None
    held = record.placement
    is_whole = held is not None and held.sharing is Sharing.EXCLUSIVE
    return is_whole and held is not None and can_rebind(state.topology, held, placement)


def _is_disjoint(actions: tuple[Action, ...], dealt: Mapping[str, Placing]) -> bool:
    """Whether each slot to deal is given to one job, once."""
    mine = [slot for each in dealt.values() for slot in each.placement.gpus()]
    others = {
        slot
        for each in actions
        if isinstance(each, Placing | Resize) and each is not dealt.get(each.job)
        for slot in each.placement.gpus()
    }
    return len(set(mine)) == len(mine) and others.isdisjoint(mine)


RUNNING, FROZEN, NEW = range(3)
"""Who chooses slots first."""


def _claim(action: Placing, state: State) -> int:
    if isinstance(action, Migrate):
        return RUNNING
    return NEW if state.jobs[action.job].frozen is None else FROZEN


def _pool(actions: tuple[Action, ...], dealt: Mapping[str, Placing], state: State) -> set[int]:
    """Slots to deal: those that the plan hands out, and those that moving runs would leave."""
    pool: set[int] = set()
    for each in dealt.values():
        held = state.jobs[each.job].placement
        pool.update(each.placement.gpus(), () if held is None else held.gpus())
    for action in actions:
        if isinstance(action, Placing | Resize) and action is not dealt.get(action.job):
            pool.difference_update(action.placement.gpus())
    return pool - state.gpus_aside.keys()


def _own(action: Placing, state: State, pool: set[int]) -> list[int]:
    """Its own slots among them, taken out of the pool."""
    record = state.jobs[action.job]
    before = record.placement or record.frozen
    wanted = Counter(each.node for each in action.placement.slices)
    barred = record.demand.barred
    mine = [] if before is None else [slot for slot in before.gpus() if slot not in barred]
    return _taken(mine, wanted, state, pool)


def _others(action: Placing, own: list[int], state: State, pool: set[int]) -> list[int]:
    """What it needs besides: of the slots that the plan gave it, else of any left."""
    wanted = Counter(each.node for each in action.placement.slices)
    wanted.subtract(state.topology.node_of_gpu[slot] for slot in own)
    avoid, barred = state.jobs[action.job].demand.avoid, state.jobs[action.job].demand.barred
    left = sorted(pool.difference(barred), key=lambda slot: (slot in avoid, slot))
    return _taken((*action.placement.gpus(), *left), wanted, state, pool)


def _taken(slots: Iterable[int], wanted: Counter[int], state: State, pool: set[int]) -> list[int]:
    """The first of these slots that are in the pool, as many as are wanted of each node."""
    taken: list[int] = []
    for slot in slots:
        node = state.topology.node_of_gpu[slot]
        if slot in pool and wanted[node] > 0:
            wanted[node] -= 1
            pool.discard(slot)
            taken.append(slot)
    return taken


def _on(placement: Placement, slots: list[int], state: State) -> Placement:
    """The placement on these slots, its nodes in their order."""
    node_of = state.topology.node_of_gpu
    slices: list[Slice] = []
    for node in placement.nodes:
        here = [piece for piece in placement.slices if piece.node == node]
        gpus = sorted(slot for slot in slots if node_of[slot] == node)
        slices += [piece._replace(gpu=gpu) for piece, gpu in zip(here, gpus, strict=True)]
    if tuple(slices) == placement.slices:
        return placement
    span = state.topology.span_of_gpus([piece.gpu for piece in slices])
    return replace(placement, slices=tuple(slices), span=span)
