"""Leaders as processes of their own, which are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.contract.stores import batch, job, wait_until
from trainmaster.store.errors import StoreError
from trainmaster.store.rows import JobFilter
from trainmaster.store.store import Store

pytestmark = pytest.mark.live

LEAD = """
import sys, time
from trainmaster.store.open import open_store
store = open_store(sys.argv[1])
print(store.acquire_leadership(), flush=True)
time.sleep(600)
"""

WRITE = """
import sys
from tests.contract.stores import batch, job
from trainmaster.store.open import open_store
store = open_store(sys.argv[1])
print(store.acquire_leadership(), flush=True)
first = store.last_number() + 1
for seq in range(first, 1_000_000):
    store.append([batch(seq, *(job(f"{seq}_{n}") for n in range(20)), job(str(seq)))])
    print(seq, flush=True)
"""


LEAD_AND_WRITE = """
import sys
from tests.contract.stores import batch
from trainmaster.store.open import open_store
store = open_store(sys.argv[1])
print(store.acquire_leadership(), flush=True)
sys.stdin.readline()
try:
    store.append([batch(1)])
except Exception as error:
    print(type(error).__name__, store.is_leader(), flush=True)
"""

LEAD_IN_TRANSACTION = """
import sys, time
from sqlalchemy import text
from trainmaster.store.open import open_store
store = open_store(sys.argv[1])
led = store.acquire_leadership()
with store.database.writer.begin() as connection:
    connection.execute(text("UPDATE ledger SET beat = beat + 1"))
    print(led, flush=True)
    time.sleep(600)
"""


@contextmanager
def another(program: str, url: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs a program on the store; gone afterwards."""
    command = [sys.executable, "-c", program, url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.close()
        process.stdin.close()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_when_the_leader_is_killed_another_takes_over(
    store_url: str, opened: Callable[[], Store]
) -> None:
    with another(LEAD, store_url) as leader:
        assert said(leader) == "True"
        standby = opened()
        assert not standby.acquire_leadership()
        assert standby.count() == {}  # it reads all the same
        with another(LEAD, store_url) as third:
            assert said(third) == "False"
        leader.kill()
        leader.wait()
        wait_until(standby.acquire_leadership)
    standby.append([batch(1, job("1"))])
    assert standby.is_leader()


def test_a_leader_that_hangs_is_replaced_and_may_not_write_when_it_wakes(
    store_url: str, opened: Callable[[], Store]
) -> None:
    with another(LEAD_AND_WRITE, store_url) as leader:
        assert said(leader) == "True"
        standby = opened()
        assert not standby.acquire_leadership()
        leader.send_signal(signal.SIGSTOP)
        sign = standby.sign_of_life()
        wait_until(lambda: standby.acquire_leadership(by_force=True))
        standby.beat()
        assert standby.sign_of_life() != sign
        leader.send_signal(signal.SIGCONT)
        print(file=leader.stdin, flush=True)
        assert said(leader) == "LeadershipLost False"
    standby.append([batch(1, job("1"))])
    assert standby.is_leader()


def test_a_leader_that_hangs_in_a_transaction_is_replaced_too(
    store_url: str, opened: Callable[[], Store]
) -> None:
    with another(LEAD_IN_TRANSACTION, store_url) as leader:
        assert said(leader) == "True"
        leader.send_signal(signal.SIGSTOP)
        standby = opened()

        def leads() -> bool:
            try:
                return standby.acquire_leadership(by_force=True)
            except StoreError:
                return False

        wait_until(leads)
    standby.append([batch(1, job("1"))])


def test_a_leader_keeps_out_other_processes(store_url: str, opened: Callable[[], Store]) -> None:
    assert opened().acquire_leadership()
    with another(LEAD, store_url) as second:
        assert said(second) == "False"


@pytest.mark.parametrize("appends", [1, 13])
def test_a_writer_killed_at_any_moment_leaves_whole_steps(
    store_url: str, opened: Callable[[], Store], appends: int
) -> None:
    """What it said it kept is there, and at most one more; twice, the second goes on."""
    kept = 0
    heir = opened()
    for _ in range(2):
        with another(WRITE, store_url) as writer:
            assert said(writer) == "True"
            for _ in range(appends):
                kept = int(said(writer))
            writer.kill()
            assert writer.stdout is not None
            kept = max([kept, *map(int, writer.stdout.read().split())])
        wait_until(heir.acquire_leadership)
        seqs = [row.seq for row in heir.steps()]
        assert seqs == list(range(1, len(seqs) + 1))
        assert kept <= len(seqs) <= kept + 1
        assert heir.last_number() == len(seqs)
        assert len(heir.jobs(JobFilter(limit=10**6))) == 21 * len(seqs)
        assert len(heir.story(f"{len(seqs)}_19")) == 1
        heir.close()
        heir = opened()
