"""The lease: when a standby takes over, and when a leader must ask first."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from trainmaster.daemon.lease import LeaderWatch, Lease
from trainmaster.store.errors import LeadershipLost
from trainmaster.store.open import open_store


def test_a_leader_is_silent_once_its_sign_has_not_changed_for_long_enough() -> None:
    watch = LeaderWatch(silence_s=2.0, every_s=0.5)
    looks = [watch.is_silent((1, 1, 1), now) for now in (10.0, 10.5, 11.0, 11.5, 12.0)]
    assert looks == [False, False, False, False, True]
    assert not watch.is_silent((1, 1, 2), 12.5)
    assert not watch.is_silent((1, 1, 2), 13.0)


def test_time_in_which_the_standby_slept_too_does_not_count() -> None:
    watch = LeaderWatch(silence_s=10.0, every_s=0.5)
    assert not watch.is_silent((1, 1, 1), 10.0)
    assert not watch.is_silent((1, 1, 1), 5000.0)  # the lid was closed
    assert not watch.is_silent((1, 1, 1), 5000.5)


def test_a_leader_whose_lease_has_run_out_asks_the_store_before_it_acts(tmp_path: Path) -> None:
    leader, standby = (open_store(f"sqlite:///{tmp_path}/trainmaster.db") for _ in range(2))
    try:
        assert leader.acquire_leadership()
        lease = Lease(leader, silence_s=0.0)  # has always run out
        asyncio.run(lease.confirm())
        assert standby.acquire_leadership(by_force=True)
        with pytest.raises(LeadershipLost):
            asyncio.run(lease.confirm())
        valid = Lease(leader, silence_s=600.0)
        asyncio.run(valid.confirm())  # not asked: nobody can have taken over so soon
    finally:
        leader.close()
        standby.close()


def test_a_lease_counts_from_when_its_sign_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sign that took eight seconds to write is eight seconds old: the lease of five has run out."""
    store, now_s, took_s = open_store(f"sqlite:///{tmp_path}/trainmaster.db"), 0.0, [8.0, 4.0]
    signs: list[float] = []

    def slowly() -> None:
        nonlocal now_s
        signs.append(now_s)
        now_s += took_s[len(signs) - 1]

    async def scenario() -> None:
        nonlocal now_s
        lease = Lease(store, 10.0, lambda: now_s)
        now_s = 5.0
        for _ in range(3):
            await lease.confirm()

    monkeypatch.setattr(store, "beat", slowly)
    try:
        asyncio.run(scenario())
        assert signs == [5.0, 13.0]
    finally:
        store.close()
