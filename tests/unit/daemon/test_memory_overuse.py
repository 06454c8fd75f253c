"""Memory of a shared GPU is enforced by watching: who is stopped, and with what booking it comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainmaster.daemon.memory_overuse import (
    Tenant,
    booking_after,
    memory_words,
    over_its_share,
    overuse_words,
    overuses,
    who_took,
)
from trainmaster.model.job import Run
from trainmaster.model.placement import Placement, Sharing, Slice
from trainmaster.model.units import GIB, MIB


def tenants(*said: tuple[float, float]) -> list[Tenant]:
    """Booked and used GiB of jobs 1, 2 and so on."""
    return [
        Tenant(Run(str(number), 1), round(booked * GIB), round(used * GIB))
        for number, (booked, used) in enumerate(said, 1)
    ]


@pytest.mark.parametrize(
    ("total", "said", "stopped"),
    [
        (16, [(8, 8), (8, 8)], None),
        (16, [(8, 12), (8, 2)], "1"),
        (16, [(8, 2), (8, 12)], "2"),
        (32, [(8, 12), (8, 2)], None),
        (16, [(8, 8.3), (8, 7)], None),
        (16, [(8, 12)], None),
        (24, [(8, 9), (8, 12), (8, 0)], "2"),
        (16, [(0, 12), (8, 2)], None),
        (16, [(8, 9), (0, 0)], None),
        (16, [(8, 12), (8, 4)], "1"),
        (20, [(8, 12), (8, 8)], None),
    ],
    ids=[
        *("all by the book", "over", "the second is over", "enough for all", "within tolerance"),
        *("alone", "the worst first", "booked nothing known", "neighbour is owed nothing"),
        *("full", "neighbours have all they booked"),
    ],
)
def test_who_is_stopped(total: int, said: list[tuple[float, float]], stopped: str | None) -> None:
    found = tenants(*said)
    worst = over_its_share(total * GIB - sum(each.used for each in found), found)
    assert (worst.run.job if worst else None) == stopped


@pytest.mark.parametrize(
    ("guest", "stopped"),
    [((16, 3), None), ((4, 6), "2"), ((4, 4.5), "2")],
    ids=["it has booked what the other needs", "it is over", "both are over, the other further"],
)
def test_a_guaranteed_run_is_never_stopped_for_a_guest(
    guest: tuple[float, float], stopped: str | None
) -> None:
    first, second = tenants((8, 10), guest)
    found = [first, replace(second, is_guest=True)]
    more = tenants((1, 1), (1, 1), (2, 0))[2:]  # a third that is owed 2 GiB
    worst = over_its_share(GIB, [*found, *(more if guest[1] > guest[0] else [])])
    assert (worst.run.job if worst else None) == stopped


def test_its_owner_is_told_by_how_much() -> None:
    first, *_ = found = tenants((8, 12), (8, 2))
    assert overuse_words(first, found) == (
        "used 12.0 GiB of the 8.0 GiB it had booked on a GPU that it shares with job 2"
    )
    assert overuse_words(first, tenants((8, 12), (4, 2), (4, 1))).endswith("with jobs 2, 3")


def test_it_comes_back_with_what_it_needed_and_at_most_with_all() -> None:
    assert booking_after(10 * GIB, 80 * GIB) == 11 * GIB
    assert booking_after(1, 80 * GIB) == MIB
    assert booking_after(79 * GIB, 80 * GIB) == 80 * GIB


def test_it_is_said_how_memory_is_enforced() -> None:
    assert memory_words(8 * GIB, True, "gone") == "8.0 GiB, enforced by MPS"
    assert memory_words(8 * GIB, False) == "8.0 GiB, enforced by watching"
    assert memory_words(8 * GIB, False, "the driver is gone") == "none: the driver is gone"
    assert memory_words(0, False) == "none: no GPU memory is booked"


TWO_GPUS = Placement((Slice(0, 0, memory=8 * GIB), Slice(0, 1, memory=8 * GIB)), 0, Sharing.TIME)


@pytest.mark.parametrize(
    ("run", "needed", "taker"),
    [
        (Run("1", 1), 7, "3"),
        (Run("1", 1), 9, None),
        (Run("1", 2), 7, None),
        (Run("4", 1), 7, None),
    ],
    ids=["the one farthest over", "it is over itself", "it came later", "it was elsewhere"],
)
def test_by_whom_memory_was_taken(run: Run, needed: int, taker: str | None) -> None:
    known = [
        *overuses(0, tenants((8, 4), (4, 6))),
        *overuses(1, [*tenants((8, 2)), Tenant(Run("3", 1), 2 * GIB, 6 * GIB)]),
        *overuses(2, [Tenant(Run("4", 1), GIB, GIB), Tenant(Run("5", 1), GIB, 9 * GIB)]),
    ]
    found = who_took(run, TWO_GPUS, needed * GIB, known)
    assert (found.by.run.job if found else None) == taker
